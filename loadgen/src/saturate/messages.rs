//! What a link says, made once and sent again and again under another sequence number.

use bytes::Bytes;
use prost::Message;
use prost::encoding::{encode_varint, encoded_len_varint};
use proto::ids::InstanceUid;
use proto::opamp as wire;

use super::Kind;
use crate::agent::messages::{capabilities, describe};
use crate::model::Attributes;
use crate::swarm::frames;

/// The number's place in an encoded message: behind tag, length and 16 bytes of the uid, and a tag.
const SEQUENCE_AT: usize = 2 + 16 + 1;

/// Who speaks on a link.
#[derive(Debug)]
pub(super) struct Speaker {
    uid: InstanceUid,
    accepts: bool,
    description: wire::AgentDescription,
}

impl Speaker {
    pub(super) fn new(uid: InstanceUid, accepts: bool, attributes: Attributes) -> Self {
        Self { uid, accepts, description: describe(attributes) }
    }

    /// Uid, number and capabilities, and nothing else.
    pub(super) fn heartbeat(&self, sequence: u64) -> wire::AgentToServer {
        wire::AgentToServer {
            instance_uid: Bytes::copy_from_slice(&self.uid.0),
            sequence_num: sequence,
            capabilities: capabilities(!self.accepts),
            ..wire::AgentToServer::default()
        }
    }

    /// With the description and, of who takes offers, the status of that hash: APPLIED, and UNSET
    /// where there is none.
    pub(super) fn described(&self, sequence: u64, hash: &Bytes) -> wire::AgentToServer {
        wire::AgentToServer {
            agent_description: Some(self.description.clone()),
            remote_config_status: self.accepts.then(|| status(hash)),
            ..self.heartbeat(sequence)
        }
    }

    /// Tells that an offer is applied.
    pub(super) fn applied(&self, sequence: u64, hash: &Bytes) -> wire::AgentToServer {
        wire::AgentToServer { remote_config_status: Some(status(hash)), ..self.heartbeat(sequence) }
    }

    /// The last word.
    pub(super) fn goodbye(&self, sequence: u64) -> wire::AgentToServer {
        wire::AgentToServer {
            agent_disconnect: Some(wire::AgentDisconnect {}),
            ..self.heartbeat(sequence)
        }
    }

    /// The message of that kind, as it is sent again and again.
    pub(super) fn message(&self, kind: Kind, sequence: u64, hash: &Bytes) -> wire::AgentToServer {
        match kind {
            Kind::Described => self.described(sequence, hash),
            Kind::Heartbeat => self.heartbeat(sequence),
        }
    }
}

fn status(hash: &Bytes) -> wire::RemoteConfigStatus {
    use wire::RemoteConfigStatuses::{Applied, Unset};
    wire::RemoteConfigStatus {
        last_remote_config_hash: hash.clone(),
        status: if hash.is_empty() { Unset } else { Applied }.into(),
        ..wire::RemoteConfigStatus::default()
    }
}

/// A message as it lies on the wire, in which only the number changes.
#[derive(Debug)]
pub(super) struct Template {
    message: wire::AgentToServer,
    /// Masked frames, with the number of `message`.
    frames: Vec<u8>,
    /// Where the number is.
    at: usize,
    /// Bytes of the message as protobuf.
    pub(super) size: usize,
}

impl Template {
    pub(super) fn new(message: wire::AgentToServer, rng: &mut fastrand::Rng) -> Self {
        let mut template = Self { message, frames: Vec::new(), at: 0, size: 0 };
        template.encode(rng);
        template
    }

    fn encode(&mut self, rng: &mut fastrand::Rng) {
        let protobuf = self.message.encode_to_vec();
        self.size = protobuf.len();
        self.at = frames::before_message(self.size) + SEQUENCE_AT;
        self.frames.clear();
        frames::write_message(&mut self.frames, &protobuf, rng);
    }

    /// Appends the message under that number.
    pub(super) fn write(&mut self, sequence: u64, out: &mut Vec<u8>, rng: &mut fastrand::Rng) {
        let before = std::mem::replace(&mut self.message.sequence_num, sequence);
        // Zero is not written at all.
        let size = |number: u64| if number == 0 { 0 } else { encoded_len_varint(number) };
        if size(before) == size(sequence) {
            let (old, new) = (varint(before), varint(sequence));
            let place = self.frames.get_mut(self.at..self.at + size(sequence)).unwrap_or_default();
            for (byte, (old, new)) in place.iter_mut().zip(old.iter().zip(&new)) {
                *byte ^= old ^ new; // whatever the mask is
            }
        } else {
            self.encode(rng);
        }
        out.extend_from_slice(&self.frames);
    }
}

/// At most ten bytes, the rest is zero.
fn varint(number: u64) -> [u8; 10] {
    let mut bytes = [0; 10];
    let mut rest = &mut bytes[..];
    encode_varint(number, &mut rest);
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio_tungstenite::tungstenite::protocol::frame::FrameHeader;

    use super::*;
    use crate::model::Value;

    fn speaker(length: usize) -> Speaker {
        let attributes = Attributes {
            identifying: vec![("service.name".to_owned(), Value::Text("a".repeat(length)))],
            non_identifying: vec![("process.pid".to_owned(), Value::Integer(7))],
        };
        Speaker::new(InstanceUid([7; 16]), true, attributes)
    }

    /// The messages in these frames, read by another implementation.
    fn read(bytes: &[u8]) -> Vec<wire::AgentToServer> {
        let mut rest = std::io::Cursor::new(bytes);
        let (mut messages, mut message) = (Vec::new(), Vec::new());
        while let Some((header, length)) = FrameHeader::parse(&mut rest).unwrap() {
            let at = usize::try_from(rest.position()).unwrap();
            let end = at + usize::try_from(length).unwrap();
            let mask = header.mask.unwrap();
            let plain = bytes[at..end].iter().zip(mask.iter().cycle());
            message.extend(plain.map(|(byte, mask)| byte ^ mask));
            rest.set_position(end as u64);
            if header.is_final {
                assert_eq!(message[0], 0);
                messages.push(wire::AgentToServer::decode(&message[1..]).unwrap());
                message.clear();
            }
        }
        messages
    }

    proptest! {
        #[test]
        fn a_template_is_the_message_under_every_number(
            numbers in proptest::collection::vec(
                prop_oneof![0_u64..300, 16_000_u64..17_000, any::<u64>()],
                1..20,
            ),
            // Short, in a longer frame, and in two frames.
            length in prop_oneof![Just(1_usize), Just(500), Just(5_000)],
        ) {
            let (speaker, hash) = (speaker(length), Bytes::from_static(b"abc"));
            let mut rng = fastrand::Rng::with_seed(1);
            for kind in [Kind::Described, Kind::Heartbeat] {
                let mut out = Vec::new();
                let mut template = Template::new(speaker.message(kind, 1, &hash), &mut rng);
                for number in &numbers {
                    template.write(*number, &mut out, &mut rng);
                }
                let expected: Vec<_> =
                    numbers.iter().map(|number| speaker.message(kind, *number, &hash)).collect();
                prop_assert_eq!(read(&out), expected);
            }
        }
    }

    #[test]
    fn who_takes_no_offers_reports_no_status() {
        let mut speaker = speaker(1);
        let report = speaker.described(0, &Bytes::new());
        assert_eq!(report.remote_config_status.unwrap().status, 0);
        let report = speaker.described(5, &Bytes::from_static(b"hash"));
        assert_eq!(report.remote_config_status.unwrap().status, 1);
        assert_eq!(report.capabilities & 2, 2);
        speaker.accepts = false;
        let report = speaker.described(5, &Bytes::new());
        assert_eq!((report.remote_config_status, report.capabilities & 2), (None, 0));
    }
}
