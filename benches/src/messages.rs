//! What a collector sends, as protobuf bytes behind the header of a WebSocket message.

use prost::Message as _;
use proto::ids::InstanceUid;
use proto::opamp;

use crate::heads;

/// AcceptsRemoteConfig, ReportsRemoteConfig and what a supervisor has beside them.
const CAPABILITIES: u64 = 0x1 | 0x2 | 0x4 | 0x800 | 0x1000 | 0x2000;

/// The uid of collector `n`.
pub fn uid(n: u32) -> InstanceUid {
    let mut uid = [0x01; 16];
    uid[12..].copy_from_slice(&n.to_be_bytes());
    InstanceUid(uid)
}

/// The first message of collector `n`, of Tier `tier`: twelve attributes, no effective config.
pub fn described(n: u32, sequence: u64, tier: usize) -> Vec<u8> {
    let (instance, host) = (format!("01890a5d-ac96-774b-bcce-{n:012x}"), format!("host-{n:06}"));
    let region = heads::value(1, tier);
    let (selected, environment, namespace) =
        (heads::value(0, tier), heads::value(2, tier), heads::value(3, tier));
    let identifying = [
        ("service.name", "otelcol-contrib"),
        ("service.instance.id", &*instance),
        ("service.version", "0.158.0"),
        ("service.namespace", &*namespace),
    ];
    let non_identifying = [
        ("os.type", "linux"),
        ("os.description", "Ubuntu 24.04.1 LTS (Noble Numbat)"),
        ("host.arch", "amd64"),
        ("host.name", &*host),
        ("region", &*region),
        ("deployment.environment", &*environment),
        ("tier", &*selected),
        ("k8s.cluster.name", "production-eu-1"),
    ];
    framed(&opamp::AgentToServer {
        agent_description: Some(opamp::AgentDescription {
            identifying_attributes: attributes(&identifying),
            non_identifying_attributes: attributes(&non_identifying),
        }),
        ..message(n, sequence)
    })
}

/// Uid, sequence number and capabilities.
pub fn heartbeat(n: u32, sequence: u64) -> Vec<u8> {
    framed(&message(n, sequence))
}

/// APPLIED for a content hash.
pub fn applied(n: u32, sequence: u64, content: &[u8; 64]) -> Vec<u8> {
    let status = opamp::RemoteConfigStatus {
        last_remote_config_hash: content.to_vec().into(),
        status: opamp::RemoteConfigStatuses::Applied.into(),
        error_message: String::new(),
    };
    framed(&opamp::AgentToServer { remote_config_status: Some(status), ..message(n, sequence) })
}

fn message(n: u32, sequence: u64) -> opamp::AgentToServer {
    opamp::AgentToServer {
        instance_uid: uid(n).0.to_vec().into(),
        sequence_num: sequence,
        capabilities: CAPABILITIES,
        ..Default::default()
    }
}

fn framed(message: &opamp::AgentToServer) -> Vec<u8> {
    let mut bytes = vec![0];
    bytes.extend(message.encode_to_vec());
    bytes
}

fn attributes(pairs: &[(&str, &str)]) -> Vec<opamp::KeyValue> {
    let attribute = |(key, value): &(&str, &str)| {
        let value = opamp::any_value::Value::StringValue((*value).into());
        let value = Some(opamp::AnyValue { value: Some(value) });
        opamp::KeyValue { key: (*key).into(), value }
    };
    pairs.iter().map(attribute).collect()
}
