//! What a reply must be: decoded and looked at, or byte for byte one that was.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use proto::capabilities::SERVER_REPORT_FULL_STATE;
use proto::frame::strip_header;
use proto::ids::InstanceUid;
use proto::opamp as wire;

use crate::ledger::offer::shape;
use crate::model::Artefact;

/// What one link is told, if its server is right.
#[derive(Debug)]
pub(super) struct Expected {
    uid: InstanceUid,
    /// The artefact of its Tier and, under a Rollout, the candidate.
    artefacts: Vec<Arc<Artefact>>,
    /// The payload of the last right reply without an offer.
    known: Vec<u8>,
}

impl Expected {
    pub(super) fn new(uid: InstanceUid, artefacts: Vec<Arc<Artefact>>) -> Self {
        Self { uid, artefacts, known: Vec::new() }
    }

    /// Takes a reply that must carry an offer, or must not; the hash of the offer.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub(super) fn check(&mut self, payload: &[u8], due: bool) -> Result<Option<Bytes>, String> {
        if !due && !self.known.is_empty() && payload == self.known {
            return Ok(None);
        }
        let message = strip_header(payload).map_err(|error| error.to_string())?;
        let message = wire::ServerToAgent::decode(Bytes::copy_from_slice(message))
            .map_err(|error| format!("no protobuf of a server: {error}"))?;
        if message.instance_uid != self.uid.0[..] {
            return Err("a reply to another uid".to_owned());
        }
        if let Some(error) = &message.error_response {
            return Err(format!("error_response {}: {}", error.r#type, error.error_message));
        }
        for (there, what) in [
            (message.flags & SERVER_REPORT_FULL_STATE != 0, "asked for full state"),
            (message.agent_identification.is_some(), "another uid for the collector"),
            (message.connection_settings.is_some(), "connection settings"),
            (message.command.is_some(), "a command"),
            (message.custom_message.is_some(), "a custom message"),
        ] {
            if there {
                return Err(format!("{what}, which nothing asks for"));
            }
        }
        match (&message.remote_config, due) {
            (None, true) => Err("no offer in the answer to the first report".to_owned()),
            (Some(_), false) => Err("an offer that is not due".to_owned()),
            (None, false) => {
                self.known.clear();
                self.known.extend_from_slice(payload);
                Ok(None)
            }
            (Some(offer), true) => {
                let body = shape(offer)?;
                let is = |artefact: &&Arc<Artefact>| {
                    artefact.hash == offer.config_hash && artefact.bytes == *body
                };
                match self.artefacts.iter().find(is) {
                    Some(_) => Ok(Some(offer.config_hash.clone())),
                    None => Err(match self.artefacts.first() {
                        Some(artefact) => format!("an offer that is not {}", artefact.path),
                        None => "an offer to who takes none".to_owned(),
                    }),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const UID: InstanceUid = InstanceUid([3; 16]);

    fn payload(change: impl FnOnce(&mut wire::ServerToAgent)) -> Vec<u8> {
        let mut message = wire::ServerToAgent {
            instance_uid: Bytes::copy_from_slice(&UID.0),
            capabilities: 7,
            ..wire::ServerToAgent::default()
        };
        change(&mut message);
        [&[0][..], &message.encode_to_vec()].concat()
    }

    fn offer(artefact: &Artefact) -> wire::AgentRemoteConfig {
        let file = wire::AgentConfigFile {
            body: artefact.bytes.clone(),
            content_type: "text/yaml".to_owned(),
            ..wire::AgentConfigFile::default()
        };
        let config_map = BTreeMap::from([(String::new(), file)]);
        wire::AgentRemoteConfig {
            config: Some(wire::AgentConfigMap { config_map }),
            config_hash: artefact.hash.clone(),
        }
    }

    #[test]
    fn a_reply_is_right_however_often_it_comes_and_a_byte_more_is_looked_at() {
        let mut expected = Expected::new(UID, Vec::new());
        for _ in 0..3 {
            assert_eq!(expected.check(&payload(|_| ()), false), Ok(None));
        }
        // opamp-go's server says this once on each link.
        let once = payload(|message| message.custom_capabilities = Some(Default::default()));
        assert_eq!(expected.check(&once, false), Ok(None));
        for (wrong, what) in [
            (payload(|message| message.flags = 1), "asked for full state"),
            (payload(|message| message.instance_uid = Bytes::from_static(&[4; 16])), "another uid"),
            (payload(|message| message.error_response = Some(Default::default())), "error_respon"),
            (payload(|message| message.command = Some(Default::default())), "a command"),
            (payload(|message| message.remote_config = Some(Default::default())), "not due"),
            (vec![0, 0xff], "no protobuf"),
            (vec![3], "header"),
        ] {
            let found = expected.check(&wrong, false).unwrap_err();
            assert!(found.contains(what), "{found}");
        }
    }

    #[test]
    fn an_offer_is_of_the_tier_or_of_its_candidate_and_comes_when_it_is_due() {
        let artefact = |text: &'static str| {
            Arc::new(Artefact::new(text.to_owned(), Bytes::from_static(text.as_bytes())))
        };
        let (base, next, other) = (artefact("a: 1\n"), artefact("a: 2\n"), artefact("a: 3\n"));
        let mut expected = Expected::new(UID, vec![Arc::clone(&base), Arc::clone(&next)]);
        for right in [&base, &next] {
            let payload = payload(|message| message.remote_config = Some(offer(right)));
            assert_eq!(expected.check(&payload, true), Ok(Some(right.hash.clone())));
            assert!(expected.check(&payload, false).unwrap_err().contains("not due"));
        }
        let wrong = payload(|message| message.remote_config = Some(offer(&other)));
        assert!(expected.check(&wrong, true).unwrap_err().contains("not a: 1"));
        let hash = payload(|message| {
            let mut offer = offer(&base);
            offer.config_hash = next.hash.clone();
            message.remote_config = Some(offer);
        });
        assert!(expected.check(&hash, true).is_err());
        assert!(expected.check(&payload(|_| ()), true).unwrap_err().contains("no offer"));
    }
}
