//! One agent, as its link remembers it, and the rules that decide what it is sent.

use super::failures::Failures;
use super::full_state::{FullStateReason, Need};
use super::{ContentKey, Seconds};
use crate::capabilities::AgentCapabilities;
use crate::ids::InstanceUid;
use crate::peek::{Health, Peek, RemoteConfigStatus, Status};

/// The same content is offered to the same agent again no sooner than this: an agent that takes an
/// offer and then reports something else must not be able to make a loop of it.
pub const REOFFER_SECONDS: Seconds = 60;

/// Over HTTP a reply can be lost without anybody noticing. An offer made in one is repeated when
/// nothing was reported of it for this long: four polls at the usual pace.
pub const UNANSWERED_POLL_SECONDS: Seconds = 120;

/// What a message travelled on, as far as it can be trusted to arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exchange {
    /// A WebSocket: what was written arrives, or the link dies.
    Stream,
    /// HTTP: a reply may be lost and the next poll comes all the same.
    Poll,
}

/// What an agent is meant to run, as its placement says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Desired {
    /// For everybody, and for whom the candidate failed.
    pub base: ContentKey,
    /// For a member of the Cohort.
    pub candidate: Option<DesiredCandidate>,
}

/// The candidate that a member of a Cohort is meant to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DesiredCandidate {
    /// Its content.
    pub content: ContentKey,
    /// How often it is offered again to an agent on which it failed; 0 = never.
    pub retries: u8,
    /// Nobody new gets it: who is believed to run it or reports it keeps it, everybody else is served the base,
    /// and no offer of it goes out.
    pub withheld: bool,
}

/// Which of two artefacts an agent is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serving {
    /// [`Desired::base`].
    Base,
    /// [`Desired::candidate`].
    Candidate,
}

/// What [`Agent::handle_decision`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Which artefact the agent is served now.
    pub serving: Serving,
    /// Whether it is to be offered: the message that is about to be sent must carry it.
    pub offer: bool,
}

/// How far an agent is with what it is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Delivery {
    /// It does not accept remote configuration; whatever it runs was brought to it otherwise.
    Foreign,
    /// It reports something else, or nothing.
    Pending,
    /// It reports that it is applying what it is served.
    Applying,
    /// It reports that it runs what it is served.
    Applied,
    /// What it is meant to run failed on it.
    Failed,
}

/// What one message changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct News {
    /// The first message of this agent on this link.
    pub first: bool,
    /// The same sequence number as the message before.
    pub repeated: bool,
    /// Messages are missing before this one.
    pub gap: bool,
    /// It counts from the beginning again: another process, or the same one restarted.
    pub restarted: bool,
    /// It describes itself: its placement has to be decided again.
    pub described: bool,
    /// This configuration failed and was not known to have.
    pub failed: Option<ContentKey>,
    /// A failure is forgotten: the configuration was applied after all.
    pub recovered: bool,
    /// The effective configuration differs from the last one reported.
    pub effective_changed: bool,
    /// It turned healthy or unhealthy. A report that is older than the last one is no news.
    pub health_changed: bool,
    /// It says farewell.
    pub disconnect: bool,
}

/// An agent on a link. `P` is what the owner of the session keeps beside it.
///
/// Kept small, since there is one per link, half a million of them: hashes as their first half,
/// times as seconds, failures behind a pointer that is nearly always empty.
#[derive(Debug)]
pub struct Agent<P> {
    uid: InstanceUid,
    sequence: u64,
    effective: u64,
    failures: Option<Box<Failures>>,
    /// The content last offered on this link.
    offered: ContentKey,
    /// The content last reported.
    reported: ContentKey,
    /// Bits that we know of; none lies higher.
    capabilities: u32,
    heard: Seconds,
    offered_at: Seconds,
    asked_at: Seconds,
    /// When the health below was observed by the agent, in seconds of Unix time.
    health_at: u32,
    reported_state: State,
    need: Need,
    /// Times that full state was asked for since the last description.
    asks: u8,
    marks: u8,
    /// The owner's part.
    pub placed: P,
}

const _: () = assert!(size_of::<Agent<()>>() <= 96);

/// [`Status`] in one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Unset,
    Applied,
    Applying,
    Failed,
    Other,
}

/// The offer is not answered yet.
const UNANSWERED: u8 = 1;
/// The offer went out with the reply to the last message.
const OFFERED_IN_REPLY: u8 = 1 << 1;
/// It has described itself on this link.
const DESCRIBED: u8 = 1 << 2;
/// It has reported its health.
const HEALTH_KNOWN: u8 = 1 << 3;
/// ... and that was good.
const HEALTHY: u8 = 1 << 4;
/// It was heard over HTTP.
const POLLS: u8 = 1 << 5;

impl<P: Default> Agent<P> {
    pub(super) fn new(uid: InstanceUid) -> Self {
        Self {
            uid,
            sequence: 0,
            effective: 0,
            failures: None,
            offered: ContentKey::NONE,
            reported: ContentKey::NONE,
            capabilities: 0,
            heard: 0,
            offered_at: 0,
            asked_at: 0,
            health_at: 0,
            reported_state: State::Unset,
            need: Need::Unknown,
            asks: 0,
            marks: 0,
            placed: P::default(),
        }
    }
}

impl<P> Agent<P> {
    /// What it calls itself.
    pub fn uid(&self) -> InstanceUid {
        self.uid
    }

    /// The sequence number of its last message.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// When it was last heard.
    pub fn heard(&self) -> Seconds {
        self.heard
    }

    /// What it can do, as last stated; bits that nobody has defined are left out.
    pub fn capabilities(&self) -> AgentCapabilities {
        AgentCapabilities(u64::from(self.capabilities))
    }

    /// Whether it has described itself on this link.
    pub fn described(&self) -> bool {
        self.is(DESCRIBED)
    }

    /// Its health as last reported.
    pub fn healthy(&self) -> Option<bool> {
        self.is(HEALTH_KNOWN).then(|| self.is(HEALTHY))
    }

    /// The content last offered on this link, [`ContentKey::NONE`] before that.
    pub fn offered(&self) -> ContentKey {
        self.offered
    }

    /// The content last reported, whatever became of it.
    pub fn reported(&self) -> ContentKey {
        self.reported
    }

    /// XXH3 of the effective configuration last reported; 0 before that.
    pub fn effective_digest(&self) -> u64 {
        self.effective
    }

    /// Whether `content` is known to have failed on it.
    pub fn has_failed(&self, content: ContentKey) -> bool {
        self.failures.as_ref().is_some_and(|failures| failures.contains(content))
    }

    /// What failed on it, to be kept beyond its link.
    pub fn failures(&self) -> Option<&Failures> {
        self.failures.as_deref()
    }

    /// Brings back what failed on it on an earlier link. What it reported here already counts: one
    /// of them may have been applied meanwhile.
    pub fn restore_failures(&mut self, failures: Failures) {
        let newer = self.failures.replace(Box::new(failures));
        let Some(failures) = &mut self.failures else { return };
        if let Some(newer) = newer {
            failures.merge(&newer);
        }
        if self.reported_state == State::Applied {
            failures.clear(self.reported);
        }
        if failures.is_empty() {
            self.failures = None;
        }
    }

    pub(super) fn rename(&mut self, uid: InstanceUid) {
        self.uid = uid;
    }

    /// Remembers that `content` failed on it, as is known from elsewhere, where it was offered again
    /// `tries` times. An agent that says here that it runs `content` knows better.
    pub fn remember_failure(&mut self, now: Seconds, content: ContentKey, tries: u8) {
        if self.applied() != Some(content) && content.is_some() {
            self.failures.get_or_insert_default().remember(now, content, tries);
        }
    }

    /// What it last reported as applied, while it has reported nothing else since.
    pub fn applied(&self) -> Option<ContentKey> {
        self.reported_as(State::Applied)
    }

    /// What it last reported to be applying, while it has reported nothing else since.
    pub fn applying(&self) -> Option<ContentKey> {
        self.reported_as(State::Applying)
    }

    /// What it last reported to have failed, while it has reported nothing else since.
    pub fn failing(&self) -> Option<ContentKey> {
        self.reported_as(State::Failed)
    }

    /// The offer that it has not answered yet.
    pub fn unanswered(&self) -> Option<ContentKey> {
        self.is(UNANSWERED).then_some(self.offered)
    }

    /// When it was last made an offer; 0 before that.
    pub fn offered_at(&self) -> Seconds {
        self.offered_at
    }

    /// Whether it reports what became of its offers.
    pub fn reports(&self) -> bool {
        self.capabilities().contains(AgentCapabilities::REPORTS_REMOTE_CONFIG)
    }

    fn reported_as(&self, state: State) -> Option<ContentKey> {
        (self.reported_state == state && self.reported.is_some()).then_some(self.reported)
    }

    /// Takes in a message of this agent. What a message leaves out has not changed.
    pub(super) fn handle_message(
        &mut self,
        now: Seconds,
        exchange: Exchange,
        first: bool,
        message: &Peek<'_>,
        content_of_raw: impl FnOnce(&[u8; 32]) -> Option<[u8; 32]>,
    ) -> News {
        let described = message.description.is_some();
        let mut news = News { first, described, disconnect: message.disconnect, ..News::default() };
        self.heard = now;
        self.mark(POLLS, exchange == Exchange::Poll);
        if first || message.capabilities != 0 {
            self.capabilities = message.capabilities as u32;
        }
        if described {
            self.mark(DESCRIBED, true);
            self.need = Need::Nothing;
            self.asks = 0;
        }
        self.handle_sequence(message, &mut news);
        if let Some(status) = &message.remote_config_status {
            self.handle_status(now, status, content_of_raw, &mut news);
        }
        if let Some(config) = &message.effective_config {
            let digest = config.digest() as u64;
            news.effective_changed = self.effective != digest;
            self.effective = digest;
        }
        if let Some(health) = &message.health {
            news.health_changed = self.handle_health(health);
        }
        news
    }

    fn handle_sequence(&mut self, message: &Peek<'_>, news: &mut News) {
        let sequence = message.sequence;
        if news.first {
            self.sequence = sequence;
        } else if is_bare_poll(message) {
            // An HTTP poll need say nothing but who polls; it does not count, nor does it repeat.
        } else if sequence == self.sequence {
            news.repeated = true;
            return;
        } else if sequence == self.sequence.wrapping_add(1) {
            self.sequence = sequence;
        } else if sequence <= 1 && news.described {
            // The process started anew and says everything: what the old one was offered is lost.
            news.restarted = true;
            self.sequence = sequence;
            self.offered = ContentKey::NONE;
            self.mark(UNANSWERED, false);
        } else {
            news.gap = true;
            self.sequence = sequence;
            if self.need == Need::Nothing {
                self.need = Need::Gap;
            }
        }
        self.mark(OFFERED_IN_REPLY, false);
    }

    fn handle_status(
        &mut self,
        now: Seconds,
        status: &RemoteConfigStatus<'_>,
        content_of_raw: impl FnOnce(&[u8; 32]) -> Option<[u8; 32]>,
        news: &mut News,
    ) {
        let content = ContentKey::of_reported(status.hash, content_of_raw);
        self.reported = content;
        self.reported_state = match status.status {
            Status::Unset => State::Unset,
            Status::Applied => State::Applied,
            Status::Applying => State::Applying,
            Status::Failed => State::Failed,
            Status::Other(_) => State::Other,
        };
        if !content.is_some() {
            return;
        }
        // Only a word about the offer answers it: a client that repeats its status with every
        // heartbeat may send the old one once more before it has read the offer.
        if content == self.offered {
            self.mark(UNANSWERED, false);
        }
        if self.reported_state == State::Failed
            && self.failures.get_or_insert_default().latch(now, content)
        {
            news.failed = Some(content);
        }
        if self.reported_state == State::Applied
            && let Some(failures) = &mut self.failures
        {
            news.recovered = failures.clear(content);
            if failures.is_empty() {
                self.failures = None;
            }
        }
    }

    fn handle_health(&mut self, health: &Health<'_>) -> bool {
        let seconds = health.status_time_unix_nano / 1_000_000_000;
        let at = u32::try_from(seconds).unwrap_or(u32::MAX);
        if self.is(HEALTH_KNOWN) && at < self.health_at {
            return false;
        }
        let changed = self.healthy() != Some(health.healthy);
        self.health_at = at;
        self.mark(HEALTH_KNOWN, true);
        self.mark(HEALTHY, health.healthy);
        changed
    }

    /// Head mentions an attribute whose value was not kept: the agent has to describe itself again
    /// before it can be placed.
    pub fn require_attributes(&mut self) {
        if self.need == Need::Nothing {
            self.need = Need::Attributes;
        }
    }

    /// Head mentions nothing that was not kept, after all.
    pub fn waive_attributes(&mut self) {
        if self.need == Need::Attributes {
            self.need = Need::Nothing;
        }
    }

    /// Whether full state has to be asked for in the reply that is about to be sent, and why: at
    /// most once per ten seconds, more seldom when it was asked for in vain, and only when
    /// `budget`, asked last, has something left for it.
    pub fn poll_full_state(
        &mut self,
        now: Seconds,
        budget: impl FnOnce() -> bool,
    ) -> Option<FullStateReason> {
        let reason = self.need.reason()?;
        let waited = now.saturating_sub(self.asked_at);
        if self.asked_at != 0 && waited < super::full_state::cool_down(self.asks) {
            return None;
        }
        if !budget() {
            return None;
        }
        self.asked_at = now;
        self.asks = self.asks.saturating_add(1);
        if self.need == Need::Gap {
            // Asked once per gap: should the answer get lost too, that makes a gap of its own.
            self.need = Need::Nothing;
        }
        Some(reason)
    }

    /// Which of the two artefacts the agent is served, and whether it has to be offered (serving.md,
    /// decisions 6 and 8). When it says `offer`, the offer counts as made.
    ///
    /// `in_reply` tells a reply to the agent's last message from a push.
    pub fn handle_decision(&mut self, now: Seconds, desired: &Desired, in_reply: bool) -> Decision {
        self.handle_decision_unless(now, desired, in_reply, |_| false)
    }

    /// [`Agent::handle_decision`], but an offer that would be made is not made when `held` says so,
    /// given what the agent reported last. It is asked only then.
    pub fn handle_decision_unless(
        &mut self,
        now: Seconds,
        desired: &Desired,
        in_reply: bool,
        held: impl FnOnce(ContentKey) -> bool,
    ) -> Decision {
        let (serving, content) = self.serving(now, desired);
        let withheld = serving == Serving::Candidate
            && desired.candidate.is_some_and(|candidate| candidate.withheld);
        let offer = !withheld && self.wants(now, content, in_reply) && !held(self.reported);
        if offer {
            if let Some(failures) = &mut self.failures {
                failures.handle_offered(now, content);
            }
            self.offered = content;
            self.offered_at = now;
            self.mark(UNANSWERED, true);
            self.mark(OFFERED_IN_REPLY, in_reply);
        }
        Decision { serving, offer }
    }

    /// Which artefact the agent is served: the candidate, unless that failed on it, or is withheld
    /// and would be new to it.
    fn serving(&self, now: Seconds, desired: &Desired) -> (Serving, ContentKey) {
        let admits = |candidate: &DesiredCandidate| {
            if candidate.withheld {
                // Also one that reports it while an offer of something else is under way.
                let has_it = [self.believed(), self.reported].contains(&candidate.content);
                return has_it && !self.has_failed(candidate.content);
            }
            self.failures.as_ref().is_none_or(|failures| {
                failures.admits_candidate(now, candidate.content, candidate.retries)
            })
        };
        match desired.candidate.filter(admits) {
            Some(candidate) => (Serving::Candidate, candidate.content),
            None => (Serving::Base, desired.base),
        }
    }

    fn wants(&self, now: Seconds, content: ContentKey, in_reply: bool) -> bool {
        if !self.capabilities().contains(AgentCapabilities::ACCEPTS_REMOTE_CONFIG) {
            return false;
        }
        let waited = now.saturating_sub(self.offered_at);
        if self.is(UNANSWERED) && self.offered == content {
            let lost_reply = self.is(POLLS)
                && (in_reply && self.is(OFFERED_IN_REPLY)
                    || self.reports() && waited >= UNANSWERED_POLL_SECONDS);
            return lost_reply;
        }
        if let Some(failures) = &self.failures
            && let Some(due) = failures.admits_offer(now, content)
        {
            return due;
        }
        if self.believed() == content {
            return false;
        }
        self.offered != content || waited >= REOFFER_SECONDS
    }

    /// What the agent is believed to run or to be about to run: an offer that it has not answered,
    /// else what it reported last. One that does not report is believed to have taken the last
    /// offer of this link.
    pub fn believed(&self) -> ContentKey {
        let takes_offers_silently = !self.reports() && self.offered.is_some();
        if self.is(UNANSWERED) || takes_offers_silently { self.offered } else { self.reported }
    }

    /// How far the agent is with what `desired` says.
    pub fn delivery(&self, now: Seconds, desired: &Desired) -> Delivery {
        if !self.capabilities().contains(AgentCapabilities::ACCEPTS_REMOTE_CONFIG) {
            return Delivery::Foreign;
        }
        let meant = desired.candidate.map_or(desired.base, |candidate| candidate.content);
        if self.has_failed(meant) {
            return Delivery::Failed;
        }
        let (_, content) = self.serving(now, desired);
        match self.reported_state {
            State::Applied if self.reported == content => Delivery::Applied,
            State::Applying if self.reported == content => Delivery::Applying,
            State::Unset | State::Applied | State::Applying | State::Failed | State::Other => {
                Delivery::Pending
            }
        }
    }

    fn is(&self, mark: u8) -> bool {
        self.marks & mark != 0
    }

    fn mark(&mut self, mark: u8, set: bool) {
        if set {
            self.marks |= mark;
        } else {
            self.marks &= !mark;
        }
    }
}

/// A message that says nothing but who sends it.
fn is_bare_poll(message: &Peek<'_>) -> bool {
    message.sequence == 0
        && message.capabilities == 0
        && message.description.is_none()
        && message.health.is_none()
        && message.effective_config.is_none()
        && message.remote_config_status.is_none()
        && !message.disconnect
}
