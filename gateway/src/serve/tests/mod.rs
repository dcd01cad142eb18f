//! The server without sockets: whole heads, several links, and time as an argument.

mod ahead;
mod brake;
mod duplicates;
mod estate;
mod evidence;
mod failures;
mod heads;
mod listing;
mod messages;
mod model;
mod polling;

use prost::Message as _;
use proto::opamp;
use proto::peek::Gathered;

use super::*;
use estate::{Estate, artefact_of};

const ACCEPTS: u64 = 0x1 | 0x2;
const REPORTS: u64 = ACCEPTS | 0x1000;

fn uid(n: u32) -> InstanceUid {
    let mut uid = [0xb0; 16];
    uid[12..].copy_from_slice(&n.to_be_bytes());
    InstanceUid(uid)
}

fn now(seconds: u32) -> Now {
    Now { seconds, unix_ms: 1_700_000_000_000 + u64::from(seconds) * 1_000 }
}

fn message(agent: u32, sequence: u64) -> opamp::AgentToServer {
    opamp::AgentToServer {
        instance_uid: uid(agent).0.to_vec().into(),
        sequence_num: sequence,
        ..Default::default()
    }
}

fn attribute(key: &str, value: &str) -> opamp::KeyValue {
    let value = opamp::any_value::Value::StringValue(value.into());
    let value = Some(opamp::AnyValue { value: Some(value) });
    opamp::KeyValue { key: key.into(), value }
}

/// A first message with these non-identifying attributes.
fn described(agent: u32, sequence: u64, attributes: &[(&str, &str)]) -> opamp::AgentToServer {
    let attributes = attributes.iter().map(|(key, value)| attribute(key, value));
    opamp::AgentToServer {
        capabilities: REPORTS,
        agent_description: Some(opamp::AgentDescription {
            non_identifying_attributes: attributes.collect(),
            ..Default::default()
        }),
        ..message(agent, sequence)
    }
}

fn with_status(
    message: opamp::AgentToServer,
    artefact: &str,
    status: opamp::RemoteConfigStatuses,
) -> opamp::AgentToServer {
    let hash = artefact_of(artefact).content_hash().to_hex();
    let status = opamp::RemoteConfigStatus {
        last_remote_config_hash: hash.to_vec().into(),
        status: status.into(),
        error_message: "it\nsays \u{1b}[31mred".into(),
    };
    opamp::AgentToServer { remote_config_status: Some(status), ..message }
}

fn bye(message: opamp::AgentToServer) -> opamp::AgentToServer {
    opamp::AgentToServer { agent_disconnect: Some(opamp::AgentDisconnect {}), ..message }
}

fn decode(outgoing: &Outgoing) -> opamp::ServerToAgent {
    let bytes = outgoing.parts().concat();
    assert_eq!(bytes.len(), outgoing.len());
    opamp::ServerToAgent::decode(&bytes[..]).expect("what we send")
}

/// The offered artefact of a reply; panics on an offer that no client would take.
fn offered(reply: &opamp::ServerToAgent) -> Option<String> {
    let config = reply.remote_config.as_ref()?;
    let files = &config.config.as_ref().expect("a config").config_map;
    assert_eq!(files.len(), 1);
    let body = String::from_utf8(files[""].body.to_vec()).expect("text");
    assert_eq!(files[""].content_type, "text/yaml");
    assert_eq!(config.config_hash[..], artefact_of(&body).content_hash().to_hex());
    Some(body)
}

/// What a credential grants that obliges its agents to report these attributes.
fn grant(required: &str) -> Grant {
    use sha2::{Digest as _, Sha256};
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("tokens");
    let secret = "0123456789abcdef0123456789abcdef0123456789abcdef";
    let digest: String = Sha256::digest(secret).iter().map(|b| format!("{b:02x}")).collect();
    std::fs::write(&file, format!("name {digest} {required}\n")).expect("written");
    let credentials = crate::tokens::Credentials::load(&file).expect("a token file");
    let header = format!("Bearer {secret}");
    credentials.check(Some(header.as_bytes()), None).expect("let in")
}

fn evidence_settings() -> crate::aggregate::Settings {
    crate::aggregate::Settings { incarnation: 7, ..crate::aggregate::Settings::default() }
}

/// A server with links, all of which live in its test.
struct World {
    server: Server,
    metrics: &'static Metrics,
    links: Links<Mutex<LinkState>>,
    now: u32,
}

impl Linked for Mutex<LinkState> {
    fn with_state(&self, with: &mut dyn FnMut(&mut LinkState)) {
        with(&mut self.lock().expect("not poisoned"));
    }
}

impl World {
    fn new(estate: &Estate) -> Self {
        Self::with(estate, Settings::default())
    }

    fn with(estate: &Estate, settings: Settings) -> Self {
        let metrics = Metrics::leak();
        let aggregator = Aggregator::in_memory(evidence_settings(), metrics, now(1));
        Self::on_evidence(estate, settings, metrics, aggregator, 1)
    }

    /// A process that starts at `at` with what is known already.
    fn on_evidence(
        estate: &Estate,
        settings: Settings,
        metrics: &'static Metrics,
        aggregator: Arc<Aggregator>,
        at: u32,
    ) -> Self {
        let meta = HeadMeta::default();
        let server = Server::new(estate.compile(), meta, metrics, settings, aggregator, now(at));
        Self { server, metrics, links: Links::new(1_000), now: at }
    }

    fn link(&self) -> LinkId {
        self.link_with(Grant::default())
    }

    fn link_with(&self, grant: Grant) -> LinkId {
        let mut made = LinkId(0);
        let link = self.links.insert_with(|id| {
            made = id;
            Arc::new(Mutex::new(LinkState::new(id, grant)))
        });
        link.expect("room for a link");
        made
    }

    fn on<R>(&self, link: LinkId, with: impl FnOnce(&mut LinkState) -> R) -> R {
        let link = self.links.get(link).expect("a live link");
        with(&mut link.lock().expect("not poisoned"))
    }

    /// Sends a message, and returns the reply after looking at what every reply must be like.
    fn send(&self, link: LinkId, message: &opamp::AgentToServer) -> opamp::ServerToAgent {
        let bytes = message.encode_to_vec();
        let outgoing =
            self.on(link, |link| self.server.handle_message(link, now(self.now), &bytes));
        Self::checked(message, &outgoing)
    }

    fn poll(&self, message: &opamp::AgentToServer) -> opamp::ServerToAgent {
        self.poll_with(&Grant::default(), message)
    }

    fn poll_with(&self, grant: &Grant, message: &opamp::AgentToServer) -> opamp::ServerToAgent {
        let bytes = message.encode_to_vec();
        Self::checked(message, &self.poll_bytes(grant, &bytes))
    }

    fn poll_bytes(&self, grant: &Grant, bytes: &[u8]) -> Outgoing {
        let mut gathered = Gathered::default();
        let peeked = Peek::parse(bytes, &mut gathered);
        self.server.handle_poll(grant, now(self.now), peeked)
    }

    fn checked(message: &opamp::AgentToServer, outgoing: &Outgoing) -> opamp::ServerToAgent {
        let reply = decode(outgoing);
        assert_eq!(reply.instance_uid, message.instance_uid);
        assert_eq!(reply.error_response.is_some(), outgoing.refused);
        if outgoing.refused {
            let alone = opamp::ServerToAgent {
                instance_uid: reply.instance_uid.clone(),
                error_response: reply.error_response.clone(),
                ..Default::default()
            };
            assert_eq!(reply, alone);
        } else {
            assert_eq!(reply.capabilities, 7);
        }
        reply
    }

    /// Installs a head and pushes it to every link: what was emitted, as uid and artefact.
    fn install(&self, estate: &Estate) -> Vec<(InstanceUid, String)> {
        self.server.install(estate.compile(), HeadMeta::default(), now(self.now));
        self.push()
    }

    fn push(&self) -> Vec<(InstanceUid, String)> {
        let mut pushed = Vec::new();
        self.links.for_each(LinkId(0), &mut |_, link| {
            let mut link = link.lock().expect("not poisoned");
            self.server.redecide(&mut link, now(self.now), &mut |outgoing| {
                let reply = decode(&outgoing);
                let uid = InstanceUid::from_slice(&reply.instance_uid).expect("a uid");
                pushed.push((uid, offered(&reply).expect("only offers are pushed")));
                ControlFlow::Continue(())
            })
        });
        pushed
    }

    fn close(&self, link: LinkId) {
        self.on(link, |link| self.server.handle_closed(link, now(self.now), Parting::default()));
        self.links.remove(link);
    }

    fn orders(&self) -> Vec<Order> {
        let mut orders = Vec::new();
        self.server.handle_timeout(now(self.now), &mut |order| orders.push(order));
        orders
    }

    /// The counts that are not zero, as `tier arm status: count`.
    fn census(&self) -> Vec<String> {
        let tiers = self.server.tiers();
        let cells = tiers.iter().flat_map(|count| {
            let tier = count.tier.as_deref().unwrap_or("-");
            count.cells().map(move |(arm, delivery, count)| {
                format!("{tier} {} {}: {count}", arm_label(arm), delivery_label(delivery))
            })
        });
        cells.collect()
    }

    /// What a series of a metric stands at, by the text that Prometheus would read.
    fn metric(&self, series: &str) -> Option<f64> {
        let text = self.metrics.render();
        let line = text
            .lines()
            .find(|line| line.strip_prefix(series).is_some_and(|rest| rest.starts_with(' ')))?;
        line.rsplit(' ').next()?.parse().ok()
    }
}
