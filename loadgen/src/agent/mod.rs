//! A collector under a Supervisor, as a state machine that knows no socket and no clock
//! (serving.md 3.1 and 3.3).
//!
//! In: [`Agent::handle_connected`], [`Agent::handle_message`], [`Agent::handle_timeout`],
//! [`Agent::handle_stop`]. Out, after any of them: [`Agent::poll_transmit`] until `None`, then
//! [`Agent::poll_timeout`].

pub(crate) mod backoff;
mod messages;

use std::ops::Range;

use bytes::Bytes;
use proto::capabilities::{AgentCapabilities, SERVER_REPORT_FULL_STATE};
use proto::ids::InstanceUid;
use proto::opamp as wire;

use crate::clock::{Micros, micros};
use crate::faults::{self, Reaction};
use crate::model::Attributes;
use crate::plan::{Behaviour, ReconnectReport};

/// What all collectors of a run have in common.
#[derive(Clone, Debug)]
pub struct Habits {
    heartbeat: Micros,
    jitter_percent: u32,
    apply_delay: Range<Micros>,
    reconnect_report: ReconnectReport,
    /// What runs before the first offer.
    first_config: Bytes,
}

impl Habits {
    /// Prepares what a plan says.
    pub fn new(behaviour: &Behaviour) -> Self {
        Self {
            heartbeat: micros(behaviour.heartbeat),
            jitter_percent: behaviour.heartbeat_jitter_percent,
            apply_delay: micros(behaviour.apply_delay.start)..micros(behaviour.apply_delay.end),
            reconnect_report: behaviour.reconnect_report,
            first_config: messages::some_config(behaviour.effective_config_bytes),
        }
    }
}

/// What a message that was sent is, for those who account for the replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// Carries the description.
    Full,
    /// The first on a link, without a description: asking for full state is right.
    Hello,
    /// A change of status.
    Delta,
    /// Nothing new.
    Heartbeat,
    /// The last.
    Disconnect,
}

/// Where an apply stands.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Running {
    /// Nothing was offered yet.
    First,
    /// The offer is being applied until then.
    Applying { hash: Bytes, body: Bytes, until: Micros },
    /// The offer is applied.
    Applied { hash: Bytes, body: Bytes },
}

/// What the next message has to carry.
#[derive(Clone, Copy, Debug, Default)]
struct Pending {
    any: bool,
    description: bool,
    status: bool,
    config: bool,
    health: bool,
    goodbye: bool,
}

/// One collector.
#[derive(Debug)]
pub struct Agent {
    uid: InstanceUid,
    report_only: bool,
    sequence: u64,
    connected: bool,
    was_connected: bool,
    first_on_link: bool,
    pending: Pending,
    running: Running,
    heartbeat_at: Micros,
    started_unix_ms: u64,
    rng: fastrand::Rng,
}

impl Agent {
    /// A collector that has just been started. One that is `report_only` takes no configuration.
    pub fn new(unix_ms: u64, report_only: bool, mut rng: fastrand::Rng) -> Self {
        let mut random = [0; 10];
        rng.fill(&mut random);
        Self {
            uid: InstanceUid::v7(unix_ms, random),
            report_only,
            sequence: 0,
            connected: false,
            was_connected: false,
            first_on_link: false,
            pending: Pending::default(),
            running: Running::First,
            heartbeat_at: 0,
            started_unix_ms: unix_ms,
            rng,
        }
    }

    /// A link is up: everything is reported on the first one, and what the habit says on others.
    pub fn handle_connected(&mut self, habits: &Habits) {
        let everything = !self.was_connected || habits.reconnect_report == ReconnectReport::Full;
        self.connected = true;
        self.was_connected = true;
        self.first_on_link = true;
        self.pending.any = true;
        if everything {
            self.report_everything();
        }
    }

    /// The link is gone. What was not sent yet waits for the next one.
    pub fn handle_disconnected(&mut self) {
        self.connected = false;
    }

    /// Takes a message of the server.
    pub fn handle_message(&mut self, now: Micros, message: &wire::ServerToAgent, habits: &Habits) {
        if message.error_response.is_some() {
            return; // clients tell their user and go on
        }
        let identification = message.agent_identification.as_ref();
        if let Some(uid) =
            identification.and_then(|new| InstanceUid::from_slice(&new.new_instance_uid))
        {
            self.uid = uid;
        }
        if message.flags & SERVER_REPORT_FULL_STATE != 0 {
            self.report_everything();
        }
        if let Some(offer) = &message.remote_config {
            self.handle_offer(now, offer, habits);
        }
    }

    /// An apply may be finished, a heartbeat may be due.
    pub fn handle_timeout(&mut self, now: Micros) {
        if let Running::Applying { hash, body, until } = &self.running
            && now >= *until
        {
            self.running = Running::Applied { hash: hash.clone(), body: body.clone() };
            self.pending.any = true;
            self.pending.status = true;
            self.pending.config = true;
            self.pending.health = true;
        }
        if self.connected && now >= self.heartbeat_at {
            self.pending.any = true;
        }
    }

    /// The process ends: one last message says so.
    pub fn handle_stop(&mut self) {
        self.pending = Pending { any: true, goodbye: true, ..Pending::default() };
    }

    /// The next message, protobuf without a header. `attributes` is asked only when the message
    /// carries the description.
    pub fn poll_transmit(
        &mut self,
        now: Micros,
        habits: &Habits,
        attributes: impl FnOnce() -> Attributes,
    ) -> Option<(Sent, Bytes)> {
        if !self.connected || !self.pending.any {
            return None;
        }
        let pending = std::mem::take(&mut self.pending);
        let sent = if pending.goodbye {
            Sent::Disconnect
        } else if pending.description {
            Sent::Full
        } else if self.first_on_link {
            Sent::Hello
        } else if pending.status {
            Sent::Delta
        } else {
            Sent::Heartbeat
        };
        self.first_on_link = false;
        let message = messages::compose(self, &pending, habits, attributes);
        self.sequence += 1;
        self.heartbeat_at = now + self.heartbeat_interval(habits);
        Some((sent, message))
    }

    /// When [`Agent::handle_timeout`] has something to do; ask again after every other call.
    pub fn poll_timeout(&self) -> Option<Micros> {
        let apply = match &self.running {
            Running::Applying { until, .. } => Some(*until),
            Running::First | Running::Applied { .. } => None,
        };
        let heartbeat = self.connected.then_some(self.heartbeat_at);
        [apply, heartbeat].into_iter().flatten().min()
    }

    /// Who it is at present.
    pub fn uid(&self) -> InstanceUid {
        self.uid
    }

    /// The hash of what has been applied, unless another offer is being applied.
    pub fn applied(&self) -> Option<&Bytes> {
        match &self.running {
            Running::Applied { hash, .. } => Some(hash),
            Running::First | Running::Applying { .. } => None,
        }
    }

    /// Whether nothing waits to be sent and nothing is being applied.
    pub fn is_settled(&self) -> bool {
        !self.pending.any && !matches!(self.running, Running::Applying { .. })
    }

    /// Holds an offer by these shared bytes rather than by the message that brought it, where they
    /// are equal.
    pub fn share(&mut self, shared_hash: &Bytes, shared_body: &Bytes) {
        let (Running::Applying { hash, body, .. } | Running::Applied { hash, body }) =
            &mut self.running
        else {
            return;
        };
        if hash == shared_hash && body == shared_body {
            *hash = shared_hash.clone();
            *body = shared_body.clone();
        }
    }

    fn handle_offer(&mut self, now: Micros, offer: &wire::AgentRemoteConfig, habits: &Habits) {
        let hash = &offer.config_hash;
        let same = match &self.running {
            Running::First => false,
            Running::Applying { hash: held, .. } | Running::Applied { hash: held, .. } => {
                held == hash
            }
        };
        if self.report_only || same {
            return;
        }
        let mut files = offer.config.iter().flat_map(|config| config.config_map.values());
        let body = files.next().map(|file| file.body.clone()).unwrap_or_default();
        match faults::react(&habits.apply_delay, &mut self.rng) {
            Reaction::Apply { after } => {
                self.running = Running::Applying { hash: hash.clone(), body, until: now + after };
                self.pending.any = true;
                self.pending.status = true;
            }
        }
    }

    fn report_everything(&mut self) {
        self.pending = Pending {
            any: true,
            description: true,
            status: true,
            config: true,
            health: true,
            goodbye: self.pending.goodbye,
        };
    }

    fn heartbeat_interval(&mut self, habits: &Habits) -> Micros {
        let spread = habits.heartbeat.saturating_mul(u64::from(habits.jitter_percent)) / 100;
        (habits.heartbeat - spread).saturating_add(self.rng.u64(0..=spread.saturating_mul(2)))
    }

    fn capabilities(&self) -> u64 {
        let reports = AgentCapabilities::REPORTS_STATUS
            | AgentCapabilities::REPORTS_EFFECTIVE_CONFIG
            | AgentCapabilities::REPORTS_HEALTH
            | AgentCapabilities::REPORTS_HEARTBEAT;
        if self.report_only {
            return reports.0;
        }
        let accepts =
            AgentCapabilities::ACCEPTS_REMOTE_CONFIG | AgentCapabilities::REPORTS_REMOTE_CONFIG;
        (reports | accepts).0
    }
}

#[cfg(test)]
mod tests;
