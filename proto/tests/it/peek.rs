//! `peek` against prost, and at its limits.

use std::collections::BTreeMap;

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use prost::Message as _;
use prost::bytes::Bytes;
use proto::ids::InstanceUid;
use proto::opamp::{self, any_value};
use proto::peek::{self, Gathered, Peek, PeekError, PeekErrorKind, Status};

use crate::bodies::peek::run as check;

proptest! {
    #[test]
    fn every_field_is_read_as_prost_reads_it(message in message()) {
        let encoded = message.encode_to_vec();
        prop_assert_eq!(refusal(&encoded), None);
        check(&encoded);
    }

    #[test]
    fn order_pieces_and_unknown_fields_do_not_matter(
        message in message(),
        choices in vec(any::<u8>(), 64),
    ) {
        let encoded = mangle(&message.encode_to_vec(), &choices);
        prop_assert_eq!(refusal(&encoded), None);
        check(&encoded);
    }

    #[test]
    fn a_message_that_ends_early_is_read_or_refused(message in message()) {
        let encoded = message.encode_to_vec();
        for end in 0..encoded.len() {
            check(&encoded[..end]);
        }
    }

    #[test]
    fn damage_is_read_or_refused(
        message in message(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut encoded = message.encode_to_vec();
        for (at, byte) in damage {
            if !encoded.is_empty() {
                let at = at.index(encoded.len());
                encoded[at] = byte;
            }
        }
        check(&encoded);
    }

    #[test]
    fn noise_is_read_or_refused(noise in vec(any::<u8>(), 0..200)) {
        check(&noise);
    }
}

#[test]
fn present_but_empty_is_not_absent() {
    let uid = [&[0x0a, 0x10][..], &[7; 16]].concat();
    let mut gathered = Gathered::default();
    let absent = Peek::parse(&uid, &mut gathered).unwrap();
    assert_eq!(absent.uid, InstanceUid([7; 16]));
    assert!(absent.description.is_none());
    assert!(absent.health.is_none());
    assert!(absent.effective_config.is_none());
    assert!(absent.remote_config_status.is_none());
    assert!(!absent.disconnect);
    assert!(!absent.connection_settings_request);

    let empty = [&uid[..], &[0x1a, 0, 0x2a, 0, 0x32, 0, 0x3a, 0, 0x4a, 0, 0x5a, 0]].concat();
    let mut gathered = Gathered::default();
    let empty = Peek::parse(&empty, &mut gathered).unwrap();
    assert_eq!(empty.description.unwrap().identifying().count(), 0);
    assert_eq!(empty.health, Some(peek::Health::default()));
    assert_eq!(empty.effective_config.unwrap().files().count(), 0);
    assert_eq!(empty.effective_config.unwrap().digest(), 0);
    assert_eq!(empty.remote_config_status, Some(peek::RemoteConfigStatus::default()));
    assert!(empty.disconnect);
    assert!(empty.connection_settings_request);
}

#[test]
fn a_heartbeat_is_read() {
    let heartbeat = [&[0x0a, 0x10][..], &[9; 16], &[0x10, 0xac, 0x02, 0x20, 0x87, 0x60]].concat();
    let mut gathered = Gathered::default();
    let peek = Peek::parse(&heartbeat, &mut gathered).unwrap();
    assert_eq!((peek.uid, peek.sequence, peek.capabilities), (InstanceUid([9; 16]), 300, 0x3007));
    check(&heartbeat);
}

#[test]
fn attributes_are_told_apart_however_many_they_are() {
    let pair = |n: usize| [field(1, format!("key.{n}").as_bytes()), field(2, &field(1, b"v"))];
    for count in [3, 2 * peek::INLINE_ATTRIBUTES, 0, 1] {
        let pairs: Vec<u8> =
            (0..count).flat_map(|n| field(1 + n as u32 % 2, &pair(n).concat())).collect();
        let message = [field(1, &[7; 16]), field(3, &pairs)].concat();
        check(&message);
        let mut gathered = Gathered::default();
        let description = Peek::parse(&message, &mut gathered).unwrap().description.unwrap();
        assert_eq!(description.identifying().count(), count.div_ceil(2));
        assert_eq!(description.non_identifying().count(), count / 2);
    }
}

#[test]
fn an_error_knows_the_uid_wherever_it_stands() {
    let uid = [&[0x0a, 0x10][..], &[7; 16]].concat();
    let not_utf8 = [0x3a, 0x03, 0x1a, 0x01, 0xff];
    for message in [[&uid[..], &not_utf8].concat(), [&not_utf8[..], &uid].concat()] {
        let error = refusal(&message).unwrap();
        assert_eq!(error.uid(), Some(InstanceUid([7; 16])));
        assert_eq!(error.reason(), "utf8");
        assert_eq!(error.to_string(), "remote_config_status.error_message is not UTF-8");
    }
    let cut = [&uid[..], &[0x1a, 0x09]].concat();
    assert_eq!(refusal(&cut).unwrap().kind, PeekErrorKind::Truncated);
    assert_eq!(refusal(&cut).unwrap().uid(), Some(InstanceUid([7; 16])));
}

#[test]
fn a_uid_of_another_length_is_refused() {
    for len in [0, 15, 17, 26] {
        let message = opamp::AgentToServer {
            instance_uid: Bytes::from(vec![1; len]),
            ..opamp::AgentToServer::default()
        };
        let error = refusal(&message.encode_to_vec()).unwrap();
        assert_eq!((error.kind, error.uid()), (PeekErrorKind::Uid { len }, None));
    }
}

#[test]
fn groups_are_refused() {
    let message = [&[0x0a, 0x10][..], &[7; 16], &[0xa3, 0x06, 0xa4, 0x06]].concat();
    assert_eq!(refusal(&message).unwrap().kind, PeekErrorKind::Group);
}

#[test]
fn deep_nesting_is_passed_over() {
    // Each level is an array of one value; prost gives up at 100 levels.
    let mut value = vec![0x0a, 0x01, b'x'];
    for _ in 0..5_000 {
        value = field(5, &field(1, &value));
    }
    let mut health = vec![];
    for _ in 0..5_000 {
        health = field(6, &field(2, &health));
    }
    let pair = [field(1, b"deep"), field(2, &value)].concat();
    let message = [field(1, &[7; 16]), field(3, &field(1, &pair)), field(5, &health)].concat();
    let mut gathered = Gathered::default();
    let peek = Peek::parse(&message, &mut gathered).unwrap();
    assert_eq!(peek.description.unwrap().identifying().collect::<Vec<_>>(), [("deep", None)]);
    assert_eq!(peek.health, Some(peek::Health::default()));
}

#[test]
fn counts_and_sizes_are_limited() {
    let described = |pairs: &[u8]| [field(1, &[7; 16]), field(3, pairs)].concat();
    let pair = |key: usize, value: usize| {
        let value = field(1, &vec![b'v'; value]);
        field(2, &[field(1, &vec![b'k'; key]), field(2, &value)].concat())
    };
    let kind = |message: &[u8]| refusal(message).map(|error| error.kind);

    let most = pair(1, 1).repeat(peek::MAX_ATTRIBUTES);
    assert_eq!(kind(&described(&most)), None);
    let more = pair(1, 1).repeat(peek::MAX_ATTRIBUTES + 1);
    assert_eq!(kind(&described(&more)), Some(PeekErrorKind::Attributes));

    let (key, value) = (peek::MAX_ATTRIBUTE_KEY_BYTES, peek::MAX_ATTRIBUTE_VALUE_BYTES);
    assert_eq!(kind(&described(&pair(key, value))), None);
    assert_eq!(
        kind(&described(&pair(key + 1, 0))),
        Some(PeekErrorKind::AttributeKey { len: key + 1 })
    );
    assert_eq!(
        kind(&described(&pair(0, value + 1))),
        Some(PeekErrorKind::AttributeValue { len: value + 1 })
    );

    let running = |files: &[u8]| [field(1, &[7; 16]), field(6, &field(1, files))].concat();
    let file = |name: usize| field(1, &field(1, &vec![b'n'; name]));
    assert_eq!(kind(&running(&file(1).repeat(peek::MAX_CONFIG_FILES))), None);
    assert_eq!(
        kind(&running(&file(1).repeat(peek::MAX_CONFIG_FILES + 1))),
        Some(PeekErrorKind::ConfigFiles)
    );
    let name = peek::MAX_FILE_NAME_BYTES;
    assert_eq!(kind(&running(&file(name))), None);
    assert_eq!(
        kind(&running(&file(name + 1))),
        Some(PeekErrorKind::ConfigFileName { len: name + 1 })
    );
}

#[test]
fn the_digest_is_of_names_and_bodies_in_any_order() {
    let file = |name: &str, body: &str| {
        let body = field(2, &field(1, body.as_bytes()));
        field(1, &[field(1, name.as_bytes()), body].concat())
    };
    let digest = |files: &[Vec<u8>]| {
        let message = [field(1, &[7; 16]), field(6, &field(1, &files.concat()))].concat();
        Peek::parse(&message, &mut Gathered::default()).unwrap().effective_config.unwrap().digest()
    };
    let (a, b) = (file("a", "1"), file("b", "2"));
    assert_eq!(digest(&[a.clone(), b.clone()]), digest(&[b.clone(), a.clone()]));
    let others = [
        digest(&[a.clone(), b]),
        digest(&[a]),
        digest(&[file("a", "2"), file("b", "1")]),
        digest(&[file("b", "1")]),
        digest(&[file("", "a1")]),
        digest(&[file("a1", "")]),
        digest(&[]),
    ];
    for (at, one) in others.iter().enumerate() {
        assert!(!others[at + 1..].contains(one), "{at}");
    }
}

#[test]
fn status_numbers_are_named() {
    for (number, status) in [
        (0, Status::Unset),
        (1, Status::Applied),
        (2, Status::Applying),
        (3, Status::Failed),
        (4, Status::Other(4)),
        (-1, Status::Other(-1)),
    ] {
        let message = opamp::AgentToServer {
            instance_uid: Bytes::from(vec![1; 16]),
            remote_config_status: Some(opamp::RemoteConfigStatus {
                status: number,
                ..opamp::RemoteConfigStatus::default()
            }),
            ..opamp::AgentToServer::default()
        };
        let encoded = message.encode_to_vec();
        let mut gathered = Gathered::default();
        let peek = Peek::parse(&encoded, &mut gathered).unwrap();
        assert_eq!(peek.remote_config_status.unwrap().status, status);
    }
}

/// Why a message is not read, if it is not.
fn refusal(message: &[u8]) -> Option<PeekError> {
    Peek::parse(message, &mut Gathered::default()).err()
}

/// A length-delimited field.
fn field(number: u32, body: &[u8]) -> Vec<u8> {
    let mut out = vec![];
    prost::encoding::encode_varint(u64::from(number) << 3 | 2, &mut out);
    prost::encoding::encode_varint(body.len() as u64, &mut out);
    out.extend(body);
    out
}

/// Writes the same message in another way: fields in another order, sub-messages in two pieces,
/// unknown fields between them.
fn mangle(encoded: &[u8], choices: &[u8]) -> Vec<u8> {
    let mut choices = choices.iter().copied().cycle();
    let mut choose = move |of: usize| usize::from(choices.next().unwrap_or(0)) % of.max(1);
    let mut parts = vec![];
    for (number, raw, body) in fields(encoded) {
        match (number, body) {
            (3 | 5 | 6 | 7, Some(body)) => {
                let inner: Vec<_> = fields(body).into_iter().map(|(_, raw, _)| raw).collect();
                let (left, right) = inner.split_at(choose(inner.len() + 1));
                parts.push(field(number, &left.concat()));
                parts.push(field(number, &right.concat()));
            }
            _ => parts.push(raw.to_vec()),
        }
    }
    for unknown in [
        &[0x82, 0x01, 0x02, 0xff, 0xff][..],
        &[0x88, 0x01, 0xff, 0x01],
        &[0x91, 0x01, 1, 2, 3, 4, 5, 6, 7, 8],
        &[0x9d, 0x01, 1, 2, 3, 4],
        &[0xf8, 0xff, 0xff, 0xff, 0x0f, 0x00],
    ] {
        parts.insert(choose(parts.len() + 1), unknown.to_vec());
    }
    for at in (1..parts.len()).rev() {
        parts.swap(at, choose(at + 1));
    }
    parts.concat()
}

/// Number, raw bytes and body of a field.
type Field<'m> = (u32, &'m [u8], Option<&'m [u8]>);

/// The fields of what prost has written.
fn fields(mut message: &[u8]) -> Vec<Field<'_>> {
    let mut out = vec![];
    while !message.is_empty() {
        let whole = message;
        let (number, wire_type) = prost::encoding::decode_key(&mut message).unwrap();
        let body = match wire_type {
            prost::encoding::WireType::LengthDelimited => {
                let len = prost::encoding::decode_varint(&mut message).unwrap() as usize;
                let (body, rest) = message.split_at(len);
                message = rest;
                Some(body)
            }
            prost::encoding::WireType::Varint => {
                prost::encoding::decode_varint(&mut message).unwrap();
                None
            }
            prost::encoding::WireType::SixtyFourBit => {
                message = &message[8..];
                None
            }
            other => panic!("prost does not write {other:?}"),
        };
        out.push((number, &whole[..whole.len() - message.len()], body));
    }
    out
}

prop_compose! {
    fn message()(
        uid in any::<[u8; 16]>(),
        (sequence_num, capabilities, flags) in any::<(u64, u64, u64)>(),
        agent_description in option::of(description()),
        health in option::of(health()),
        effective_config in option::of(effective_config()),
        remote_config_status in option::of(status()),
        (disconnect, request) in any::<(bool, bool)>(),
        custom in option::of((any::<String>(), bytes())),
        components in option::of(bytes()),
    ) -> opamp::AgentToServer {
        opamp::AgentToServer {
            instance_uid: Bytes::copy_from_slice(&uid),
            sequence_num,
            agent_description,
            capabilities,
            health,
            effective_config,
            remote_config_status,
            package_statuses: components.clone().map(|hash| opamp::PackageStatuses {
                server_provided_all_packages_hash: hash,
                ..opamp::PackageStatuses::default()
            }),
            agent_disconnect: disconnect.then_some(opamp::AgentDisconnect {}),
            flags,
            connection_settings_request: request.then(opamp::ConnectionSettingsRequest::default),
            custom_capabilities: custom.as_ref().map(|(name, _)| opamp::CustomCapabilities {
                capabilities: vec![name.clone()],
            }),
            custom_message: custom.map(|(capability, data)| opamp::CustomMessage {
                capability,
                data,
                ..opamp::CustomMessage::default()
            }),
            available_components: components.clone().map(|hash| opamp::AvailableComponents {
                hash,
                ..opamp::AvailableComponents::default()
            }),
            connection_settings_status: components.map(|hash| opamp::ConnectionSettingsStatus {
                last_connection_settings_hash: hash,
                ..opamp::ConnectionSettingsStatus::default()
            }),
        }
    }
}

fn bytes() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..40).prop_map(Bytes::from)
}

fn description() -> impl Strategy<Value = opamp::AgentDescription> {
    (vec(pair(), 0..6), vec(pair(), 0..6)).prop_map(
        |(identifying_attributes, non_identifying_attributes)| opamp::AgentDescription {
            identifying_attributes,
            non_identifying_attributes,
        },
    )
}

fn pair() -> impl Strategy<Value = opamp::KeyValue> {
    ("[a-c]{0,2}", option::of(value())).prop_map(|(key, value)| opamp::KeyValue { key, value })
}

fn value() -> impl Strategy<Value = opamp::AnyValue> {
    use any_value::Value;
    let leaf = prop_oneof![
        4 => any::<String>().prop_map(|text| Some(Value::StringValue(text))),
        1 => any::<bool>().prop_map(|yes| Some(Value::BoolValue(yes))),
        1 => any::<i64>().prop_map(|number| Some(Value::IntValue(number))),
        1 => any::<u32>().prop_map(|number| Some(Value::DoubleValue(number.into()))),
        1 => bytes().prop_map(|bytes| Some(Value::BytesValue(bytes))),
        1 => Just(None),
    ]
    .prop_map(|value| opamp::AnyValue { value });
    leaf.prop_recursive(3, 12, 3, |inner| {
        let list = vec(inner.clone(), 0..3)
            .prop_map(|values| Value::ArrayValue(opamp::ArrayValue { values }));
        let map = vec((any::<String>(), inner), 0..3).prop_map(|pairs| {
            let values = pairs
                .into_iter()
                .map(|(key, value)| opamp::KeyValue { key, value: Some(value) })
                .collect();
            Value::KvlistValue(opamp::KeyValueList { values })
        });
        prop_oneof![list, map].prop_map(|value| opamp::AnyValue { value: Some(value) })
    })
}

fn health() -> impl Strategy<Value = opamp::ComponentHealth> {
    let flat = (any::<bool>(), any::<u64>(), any::<String>(), any::<String>(), any::<u64>());
    let flat = flat.prop_map(|(healthy, start_time_unix_nano, last_error, status, time)| {
        opamp::ComponentHealth {
            healthy,
            start_time_unix_nano,
            last_error,
            status,
            status_time_unix_nano: time,
            ..opamp::ComponentHealth::default()
        }
    });
    (flat.clone(), btree_map(any::<String>(), flat, 0..3), vec(pair(), 0..2)).prop_map(
        |(top, component_health_map, attributes)| opamp::ComponentHealth {
            component_health_map,
            attributes,
            ..top
        },
    )
}

fn effective_config() -> impl Strategy<Value = opamp::EffectiveConfig> {
    let file = (bytes(), any::<String>()).prop_map(|(body, content_type)| opamp::AgentConfigFile {
        body,
        content_type,
        ..opamp::AgentConfigFile::default()
    });
    let map = btree_map("[a-c]{0,2}", file, 0..4);
    option::of(map).prop_map(|map: Option<BTreeMap<_, _>>| opamp::EffectiveConfig {
        config_map: map.map(|config_map| opamp::AgentConfigMap { config_map }),
    })
}

fn status() -> impl Strategy<Value = opamp::RemoteConfigStatus> {
    (bytes(), any::<i32>(), any::<String>()).prop_map(
        |(last_remote_config_hash, status, error_message)| opamp::RemoteConfigStatus {
            last_remote_config_hash,
            status,
            error_message,
        },
    )
}
