//! A collector under a Supervisor, as a state machine that knows no socket and no clock
//! (serving.md 3.1 and 3.3).
//!
//! In: [`Agent::handle_connected`], [`Agent::handle_message`], [`Agent::handle_timeout`],
//! [`Agent::handle_stop`]. Out, after any of them: [`Agent::poll_transmit`] until `None`, then
//! [`Agent::poll_timeout`].

pub(crate) mod backoff;
pub(crate) mod messages;

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use proto::capabilities::SERVER_REPORT_FULL_STATE;
use proto::ids::InstanceUid;
use proto::opamp as wire;

use crate::clock::{Micros, micros};
use crate::faults::{Failure, Faults, Once, Profile, Reaction, Vanishing};
use crate::model::{Arm, Attributes, Content};
use crate::plan::{Behaviour, ReconnectReport};

/// What all collectors of a run have in common.
#[derive(Clone, Debug)]
pub struct Habits {
    heartbeat: Micros,
    jitter_percent: u32,
    apply_delay: Range<Micros>,
    report_applying: bool,
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
            report_applying: behaviour.report_applying,
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
    /// The offer is being applied. Boxed, as most collectors are in another state most of the time.
    Applying(Box<Applying>),
    /// The offer is applied.
    Applied(Arc<Content>),
    /// The offer failed.
    Failed(Box<Failed>),
}

/// An offer that is being applied until then; `before` runs meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Applying {
    content: Arc<Content>,
    until: Micros,
    before: Option<Arc<Content>>,
    end: End,
}

/// An offer that failed; `before` runs. Back to its status at that time, where that is to happen.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Failed {
    hash: Bytes,
    text: Arc<str>,
    before: Option<Arc<Content>>,
    rollback: Option<Micros>,
}

/// How an apply ends.
#[derive(Clone, Debug, PartialEq, Eq)]
enum End {
    Applied,
    Failed(Failure),
    /// Never: the collector goes dark once APPLYING is said.
    Dark(Vanishing),
    /// APPLIED, and then dark.
    AppliedThenDark(Vanishing),
    /// Dark without another word.
    Mute(Vanishing),
}

/// A collector that nothing is heard of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone {
    /// How it went.
    pub how: Vanishing,
    /// When it comes back by itself.
    pub until: Option<Micros>,
}

/// From FAILED to APPLIED of what ran before: the time a Supervisor takes to start its collector
/// again.
const ROLLBACK: Micros = 200_000;
/// How long a flapping collector stays away.
const FLAP: Micros = 300_000;

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
    faults: Faults,
    /// Going, as soon as what is owed to it has come.
    gone: Option<Gone>,
    /// Going, once its next message is out.
    going: Option<Vanishing>,
    flap_at: Option<Micros>,
    /// What it runs, where it takes no offers.
    foreign: Option<Box<Bytes>>,
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
            faults: Faults::default(),
            gone: None,
            going: None,
            flap_at: None,
            foreign: None,
        }
    }

    /// Behaves like that from now on.
    pub fn with_profile(mut self, profile: Arc<Profile>) -> Self {
        self.faults = Faults::new(profile);
        self
    }

    /// The same collector as a new process: another uid, nothing remembered, its faults as far used
    /// up as they are.
    pub fn restarted(&mut self, unix_ms: u64) -> Self {
        let mut fresh = Self::new(unix_ms, self.report_only, self.rng.fork());
        fresh.faults = std::mem::take(&mut self.faults);
        fresh.foreign = self.foreign.take();
        fresh
    }

    /// What a collector that takes no offers runs; told in its next report.
    pub fn run_foreign(&mut self, body: Bytes) {
        if self.foreign.as_deref() != Some(&body) {
            self.foreign = Some(Box::new(body));
            self.pending.any = true;
            self.pending.config = true;
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

    /// Takes a message of the server; its offer, if it has one, is of that arm.
    pub fn handle_message(
        &mut self,
        now: Micros,
        message: &wire::ServerToAgent,
        arm: Arm,
        habits: &Habits,
    ) {
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
            self.handle_offer(now, offer, arm, habits);
        }
    }

    /// An apply may be finished, a heartbeat may be due.
    pub fn handle_timeout(&mut self, now: Micros) {
        if self.gone.is_some_and(|gone| gone.until.is_some_and(|until| now >= until)) {
            self.come_back();
        }
        if self.gone.is_some() {
            return;
        }
        self.finish_apply(now);
        if self.connected && now >= self.heartbeat_at {
            self.pending.any = true;
        }
        let settled = !self.pending.any && !matches!(self.running, Running::Applying(_));
        if self.flap_at.is_some_and(|at| now >= at) && self.connected && settled {
            self.flap_at = None;
            self.gone = Some(Gone { how: Vanishing::Close, until: Some(now + FLAP) });
        }
    }

    fn finish_apply(&mut self, now: Micros) {
        let next = match &self.running {
            Running::Applying(applying) if now >= applying.until => match &applying.end {
                End::Dark(_) => return,
                End::Mute(how) => {
                    self.gone = Some(Gone { how: *how, until: None });
                    return;
                }
                End::Applied => Running::Applied(Arc::clone(&applying.content)),
                End::AppliedThenDark(how) => {
                    self.going = Some(*how);
                    Running::Applied(Arc::clone(&applying.content))
                }
                End::Failed(failure) => Running::Failed(Box::new(Failed {
                    hash: applying.content.hash.clone(),
                    text: Arc::clone(&failure.text),
                    before: applying.before.clone(),
                    rollback: failure.rollback.then_some(now.saturating_add(ROLLBACK)),
                })),
            },
            // Only once the FAILED is told, which a dead link delays.
            Running::Failed(failed) if !self.pending.status => {
                match (&failed.before, failed.rollback) {
                    (Some(before), Some(at)) if now >= at => Running::Applied(Arc::clone(before)),
                    _ => return,
                }
            }
            _ => return,
        };
        self.running = next;
        self.pending.any = true;
        self.pending.status = true;
        self.pending.config = true;
        self.pending.health = true;
    }

    /// Whether it is gone, and how; in force once nothing is owed to it.
    pub fn gone(&self) -> Option<Gone> {
        self.gone
    }

    /// It is heard again, with the same process.
    pub fn come_back(&mut self) {
        self.gone = None;
        self.pending.any = true;
        if let Running::Applying(applying) = &mut self.running
            && matches!(applying.end, End::Dark(_) | End::Mute(_))
        {
            applying.end = End::Applied;
            self.pending.status = true;
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
        let mute = matches!(self.end(), Some(End::Mute(_)));
        if !self.connected || !self.pending.any || mute || self.gone.is_some() {
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
        if self.flap_at.is_none() {
            self.flap_at = self.faults.profile().flap.map(|every| now.saturating_add(every));
        }
        if let Some(End::Dark(how)) = self.end()
            && pending.status
        {
            self.going = Some(*how);
        }
        if let Some(how) = self.going.take() {
            self.gone = Some(Gone { how, until: None });
        }
        Some((sent, message))
    }

    /// When [`Agent::handle_timeout`] has something to do; ask again after every other call.
    pub fn poll_timeout(&self) -> Option<Micros> {
        if let Some(gone) = self.gone {
            return gone.until;
        }
        let apply = match &self.running {
            Running::Applying(applying) if matches!(applying.end, End::Dark(_)) => None,
            Running::Applying(applying) => Some(applying.until),
            Running::Failed(failed) if failed.before.is_some() && !self.pending.status => {
                failed.rollback
            }
            Running::First | Running::Applied(_) | Running::Failed(_) => None,
        };
        let heartbeat = self.connected.then_some(self.heartbeat_at);
        let busy = self.pending.any || matches!(self.running, Running::Applying(_));
        let flap = self.flap_at.filter(|_| self.connected && !busy);
        [apply, heartbeat, flap].into_iter().flatten().min()
    }

    /// How the apply that is under way ends.
    fn end(&self) -> Option<&End> {
        match &self.running {
            Running::Applying(applying) => Some(&applying.end),
            Running::First | Running::Applied(_) | Running::Failed(_) => None,
        }
    }

    /// Who it is at present.
    pub fn uid(&self) -> InstanceUid {
        self.uid
    }

    /// The hash of what has been applied, unless another offer is being applied.
    pub fn applied(&self) -> Option<&Bytes> {
        match &self.running {
            Running::Applied(applied) => Some(&applied.hash),
            Running::First | Running::Applying(_) | Running::Failed(_) => None,
        }
    }

    /// The hash of what failed last, while nothing else has been reported since.
    pub fn failed(&self) -> Option<&Bytes> {
        match &self.running {
            Running::Failed(failed) => Some(&failed.hash),
            Running::First | Running::Applying(_) | Running::Applied(_) => None,
        }
    }

    /// Whether nothing waits to be sent and nothing is being applied.
    pub fn is_settled(&self) -> bool {
        !self.pending.any && !matches!(self.running, Running::Applying(_))
    }

    /// Holds an offer by these shared bytes rather than by the message that brought it, where they
    /// are equal.
    pub(crate) fn share(&mut self, shared: &Arc<Content>) {
        let held = match &mut self.running {
            Running::Applying(applying) => &mut applying.content,
            Running::Applied(held) => held,
            Running::First | Running::Failed(_) => return,
        };
        if held == shared {
            *held = Arc::clone(shared);
        }
    }

    fn handle_offer(
        &mut self,
        now: Micros,
        offer: &wire::AgentRemoteConfig,
        arm: Arm,
        habits: &Habits,
    ) {
        let hash = &offer.config_hash;
        let same = match &self.running {
            Running::First | Running::Failed(_) => false,
            Running::Applying(applying) => applying.content.hash == hash,
            Running::Applied(held) => held.hash == hash,
        };
        if self.report_only || same || self.gone.is_some() {
            return;
        }
        let mut files = offer.config.iter().flat_map(|config| config.config_map.values());
        let body = files.next().map(|file| file.body.clone()).unwrap_or_default();
        let (after, end) = match self.faults.react(arm, &habits.apply_delay, &mut self.rng) {
            Reaction::Apply { after } => (after, End::Applied),
            Reaction::Fail { after, failure } => (after, End::Failed(failure)),
            Reaction::GoDark { after, once: Once::Applied, how } => {
                (after, End::AppliedThenDark(how))
            }
            Reaction::GoDark { after, once: Once::Applying, how } => (after, End::Dark(how)),
            Reaction::GoDark { after, once: Once::Offered, how } => (after, End::Mute(how)),
        };
        let before = match std::mem::replace(&mut self.running, Running::First) {
            Running::Applied(applied) => Some(applied),
            Running::Applying(applying) => applying.before,
            Running::Failed(failed) => failed.before,
            Running::First => None,
        };
        let content = Arc::new(Content { hash: hash.clone(), body });
        let until = now.saturating_add(after);
        let mute = matches!(end, End::Mute(_));
        self.running = Running::Applying(Box::new(Applying { content, until, before, end }));
        if !mute && habits.report_applying {
            self.pending.any = true;
            self.pending.status = true;
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
}

#[cfg(test)]
mod tests;
