//! OpAMP messages as a client makes and reads them, by prost: another reader than the gateway's.

use prost::Message;
use prost::bytes::Bytes;
use proto::capabilities::AgentCapabilities as Can;
use proto::opamp::any_value::Value;
use proto::opamp::{
    AgentConfigFile, AgentConfigMap, AgentDescription, AgentToServer, AnyValue, EffectiveConfig,
    KeyValue, RemoteConfigStatus, ServerToAgent,
};

/// An agent that counts its messages.
pub(crate) struct Agent {
    pub(crate) uid: [u8; 16],
    pub(crate) sequence: u64,
}

impl Agent {
    /// A uid that tells `n`.
    pub(crate) fn new(n: u32) -> Self {
        let mut uid = [0x11; 16];
        uid[12..].copy_from_slice(&n.to_be_bytes());
        Self { uid, sequence: 0 }
    }

    /// Its first report, as a collector of a role; the effective configuration fills it up to
    /// about `bytes`.
    pub(crate) fn report(&mut self, role: &str, bytes: usize) -> Vec<u8> {
        let text = |key: &str, value: &str| KeyValue {
            key: key.into(),
            value: Some(AnyValue { value: Some(Value::StringValue(value.into())) }),
        };
        let file = AgentConfigFile {
            body: Bytes::from(vec![b'#'; bytes]),
            content_type: "text/yaml".into(),
            ..Default::default()
        };
        self.message(AgentToServer {
            agent_description: Some(AgentDescription {
                identifying_attributes: vec![text("service.name", "otelcol")],
                non_identifying_attributes: vec![text("role", role), text("host.name", "h")],
            }),
            effective_config: Some(EffectiveConfig {
                config_map: Some(AgentConfigMap { config_map: [(String::new(), file)].into() }),
            }),
            ..Default::default()
        })
    }

    /// Reports that it runs what it was offered.
    pub(crate) fn applied(&mut self, offer: &ServerToAgent) -> Vec<u8> {
        self.status(offer, 1)
    }

    /// Reports that what it was offered does not work.
    pub(crate) fn failed(&mut self, offer: &ServerToAgent) -> Vec<u8> {
        self.status(offer, 3)
    }

    fn status(&mut self, offer: &ServerToAgent, status: i32) -> Vec<u8> {
        let hash = offer.remote_config.as_ref().unwrap().config_hash.clone();
        self.message(AgentToServer {
            remote_config_status: Some(RemoteConfigStatus {
                last_remote_config_hash: hash,
                status,
                ..Default::default()
            }),
            ..Default::default()
        })
    }

    /// Nothing but signs of life.
    pub(crate) fn heartbeat(&mut self) -> Vec<u8> {
        self.message(AgentToServer::default())
    }

    fn message(&mut self, message: AgentToServer) -> Vec<u8> {
        let capabilities = Can::REPORTS_STATUS.0
            | Can::ACCEPTS_REMOTE_CONFIG.0
            | Can::REPORTS_EFFECTIVE_CONFIG.0
            | Can::REPORTS_REMOTE_CONFIG.0
            | Can::REPORTS_HEARTBEAT.0;
        let sequence_num = self.sequence;
        self.sequence += 1;
        AgentToServer {
            instance_uid: Bytes::copy_from_slice(&self.uid),
            sequence_num,
            capabilities,
            ..message
        }
        .encode_to_vec()
    }
}

/// Decodes a reply, without WebSocket header.
pub(crate) fn reply(bytes: &[u8]) -> ServerToAgent {
    ServerToAgent::decode(bytes).unwrap()
}

/// The text that a reply offers, if it does.
pub(crate) fn offered(reply: &ServerToAgent) -> Option<String> {
    let map = &reply.remote_config.as_ref()?.config.as_ref().unwrap().config_map;
    assert_eq!(map.len(), 1);
    Some(String::from_utf8(map[""].body.to_vec()).unwrap())
}
