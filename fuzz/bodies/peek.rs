//! `peek` agrees with a full decoder about everything that it reads.

use std::collections::BTreeMap;

use prost::Message as _;
use proto::opamp::{self, any_value};
use proto::peek::{self, Gathered, Peek, PeekErrorKind, Status};

/// `data` is a protobuf message, or not.
pub(crate) fn run(data: &[u8]) {
    let mut gathered = Gathered::default();
    match (opamp::AgentToServer::decode(data), Peek::parse(data, &mut gathered)) {
        (Ok(full), Ok(peek)) => assert_agree(&full, &peek),
        (Ok(full), Err(error)) => {
            assert_refused_for_a_reason(&full, error.kind);
            if let Ok(uid) = <[u8; 16]>::try_from(&full.instance_uid[..])
                && error.kind != PeekErrorKind::Group
            {
                assert_eq!(error.uid().map(|uid| uid.0), Some(uid));
            }
        }
        // What peek skips it does not check.
        (Err(_), Ok(_) | Err(_)) => {}
    }
}

fn assert_agree(full: &opamp::AgentToServer, peek: &Peek<'_>) {
    assert_eq!(full.instance_uid, peek.uid.0[..]);
    assert_eq!(full.sequence_num, peek.sequence);
    assert_eq!(full.capabilities, peek.capabilities);
    assert_eq!(full.flags, peek.flags);
    assert_eq!(full.agent_disconnect.is_some(), peek.disconnect);
    assert_eq!(full.connection_settings_request.is_some(), peek.connection_settings_request);

    assert_eq!(
        full.health.as_ref().map(|health| peek::Health {
            healthy: health.healthy,
            start_time_unix_nano: health.start_time_unix_nano,
            last_error: &health.last_error,
            status: &health.status,
            status_time_unix_nano: health.status_time_unix_nano,
        }),
        peek.health
    );
    assert_eq!(
        full.remote_config_status.as_ref().map(|status| peek::RemoteConfigStatus {
            hash: &status.last_remote_config_hash,
            status: Status::from(status.status),
            error_message: &status.error_message,
        }),
        peek.remote_config_status
    );

    assert_eq!(full.agent_description.is_some(), peek.description.is_some());
    if let (Some(full), Some(peek)) = (&full.agent_description, &peek.description) {
        assert_same_attributes(&full.identifying_attributes, peek.identifying());
        assert_same_attributes(&full.non_identifying_attributes, peek.non_identifying());
    }

    assert_eq!(full.effective_config.is_some(), peek.effective_config.is_some());
    if let (Some(full), Some(peek)) = (&full.effective_config, &peek.effective_config) {
        let full: BTreeMap<&str, &[u8]> = full
            .config_map
            .iter()
            .flat_map(|map| &map.config_map)
            .map(|(name, file)| (name.as_str(), &file.body[..]))
            .collect();
        assert_eq!(full, peek.files().collect());
        peek.digest();
    }
}

fn assert_same_attributes<'m>(
    full: &[opamp::KeyValue],
    peek: impl Iterator<Item = (&'m str, Option<&'m str>)>,
) {
    let full: Vec<_> = full
        .iter()
        .map(|pair| {
            let string = match pair.value.as_ref().and_then(|value| value.value.as_ref()) {
                Some(any_value::Value::StringValue(text)) => Some(text.as_str()),
                _ => None,
            };
            (pair.key.as_str(), string)
        })
        .collect();
    assert_eq!(full, peek.collect::<Vec<_>>());
}

fn assert_refused_for_a_reason(full: &opamp::AgentToServer, kind: PeekErrorKind) {
    let description = full.agent_description.clone().unwrap_or_default();
    let attributes =
        || description.identifying_attributes.iter().chain(&description.non_identifying_attributes);
    match kind {
        // A full decoder passes over groups.
        PeekErrorKind::Group => {}
        PeekErrorKind::Uid { len } => {
            assert_ne!(len, 16);
            assert_eq!(full.instance_uid.len(), len);
        }
        PeekErrorKind::Attributes => assert!(attributes().count() > peek::MAX_ATTRIBUTES),
        PeekErrorKind::AttributeKey { len } => {
            assert!(len > peek::MAX_ATTRIBUTE_KEY_BYTES);
            assert!(attributes().any(|pair| pair.key.len() == len));
        }
        PeekErrorKind::AttributeValue { len } => assert!(len > peek::MAX_ATTRIBUTE_VALUE_BYTES),
        // A map has fewer files than were written when names occur twice.
        PeekErrorKind::ConfigFiles => assert!(full.effective_config.is_some()),
        PeekErrorKind::ConfigFileName { len } => assert!(len > peek::MAX_FILE_NAME_BYTES),
        PeekErrorKind::Truncated
        | PeekErrorKind::Varint
        | PeekErrorKind::Tag
        | PeekErrorKind::WireType { .. }
        | PeekErrorKind::Utf8 { .. } => panic!("a full decoder takes it, peek says: {kind}"),
    }
}
