//! Scenarios and a model: messages are encoded by prost, so that the whole way in is tested.

mod model;
mod replies;
mod scenarios;

use prost::Message as _;

use super::*;
use crate::opamp;
use crate::peek::Gathered;

pub(super) const ACCEPTS: u64 = 0x1 | 0x2;
pub(super) const REPORTS: u64 = ACCEPTS | 0x1000;

pub(super) fn uid(n: u16) -> InstanceUid {
    let mut uid = [0xa0; 16];
    uid[14..].copy_from_slice(&n.to_be_bytes());
    InstanceUid(uid)
}

/// The SHA-256 that stands for the `n`th configuration.
pub(super) fn hash(n: u8) -> [u8; 32] {
    [n + 1; 32]
}

pub(super) fn key(n: u8) -> ContentKey {
    ContentKey::new(&hash(n))
}

pub(super) fn hex(n: u8) -> Vec<u8> {
    format!("{:02x}", n + 1).repeat(32).into_bytes()
}

/// An `AgentToServer` of agent 1, to be filled in.
pub(super) fn message(sequence: u64) -> opamp::AgentToServer {
    opamp::AgentToServer {
        instance_uid: uid(1).0.to_vec().into(),
        sequence_num: sequence,
        ..Default::default()
    }
}

pub(super) fn described(sequence: u64, capabilities: u64) -> opamp::AgentToServer {
    opamp::AgentToServer {
        agent_description: Some(opamp::AgentDescription::default()),
        capabilities,
        ..message(sequence)
    }
}

pub(super) fn with_status(
    message: opamp::AgentToServer,
    hash: &[u8],
    status: opamp::RemoteConfigStatuses,
) -> opamp::AgentToServer {
    let status = opamp::RemoteConfigStatus {
        last_remote_config_hash: hash.to_vec().into(),
        status: status.into(),
        error_message: String::new(),
    };
    opamp::AgentToServer { remote_config_status: Some(status), ..message }
}

/// One session with its owner's part left out.
#[derive(Default)]
pub(super) struct Link {
    pub(super) session: Session<()>,
    pub(super) now: Seconds,
}

/// What a message came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) news: News,
    /// What was offered.
    pub(super) offered: Option<ContentKey>,
    pub(super) serving: Option<Serving>,
    pub(super) full_state: Option<FullStateReason>,
}

impl Link {
    pub(super) fn at(now: Seconds) -> Self {
        Self { now, ..Self::default() }
    }

    /// Takes in a message over a WebSocket, with `desired` for everybody who is described.
    pub(super) fn receive(&mut self, message: &opamp::AgentToServer, desired: &Desired) -> Outcome {
        self.receive_over(Exchange::Stream, message, desired, true)
    }

    pub(super) fn receive_over(
        &mut self,
        exchange: Exchange,
        message: &opamp::AgentToServer,
        desired: &Desired,
        budget: bool,
    ) -> Outcome {
        let bytes = message.encode_to_vec();
        let mut gathered = Gathered::default();
        let peek = Peek::parse(&bytes, &mut gathered).expect("a message of prost");
        let raw = |raw: &[u8; 32]| (raw[0] == 0xee).then(|| hash(raw[1]));
        let received = self.session.handle_message(self.now, exchange, &peek, raw);
        let Received { agent, news, .. } = received.expect("room for it");
        let decision = agent.described().then(|| agent.handle_decision(self.now, desired, true));
        let full_state = agent.poll_full_state(self.now, || budget);
        Outcome {
            news,
            offered: decision.and_then(|decision| content(desired, decision)),
            serving: decision.map(|decision| decision.serving),
            full_state,
        }
    }

    /// What a head change pushes to agent 1.
    pub(super) fn push(&mut self, desired: &Desired) -> Option<ContentKey> {
        let agent = self.session.get_mut(uid(1)).expect("agent 1");
        let decision = agent.handle_decision(self.now, desired, false);
        content(desired, decision)
    }

    pub(super) fn agent(&self) -> &Agent<()> {
        self.session.get(uid(1)).expect("agent 1")
    }
}

/// The content that a decision offers.
pub(super) fn content(desired: &Desired, decision: Decision) -> Option<ContentKey> {
    decision.offer.then(|| match decision.serving {
        Serving::Base => desired.base,
        Serving::Candidate => desired.candidate.expect("a candidate").content,
    })
}

pub(super) fn base(n: u8) -> Desired {
    Desired { base: key(n), candidate: None }
}

pub(super) fn staged(base: u8, candidate: u8) -> Desired {
    let candidate = DesiredCandidate { content: key(candidate), retries: 0, withheld: false };
    Desired { base: key(base), candidate: Some(candidate) }
}
