//! What is learned of a collector under a Rollout goes into the evidence from here: every
//! collector on a Tier under a Rollout, and nobody else (rollouts.md, decisions 5, 7, 11 and 13).
//!
//! What was told is remembered, so that a message without news costs a comparison, and neither a
//! lock nor an allocation. On a WebSocket a collector has one session from its first message on
//! the link, which its replica vouches for until it is silent for `dark_after`. An HTTP exchange is
//! a session of its own, over as soon as it is told, and told at most every third of `dark_after`
//! where there is nothing else to tell.

use std::sync::Arc;

use proto::capabilities::AgentCapabilities;
use proto::peek::Peek;
use proto::session::{Agent, ContentKey, News, Seconds};
use render::rollout::evidence::{
    Conn, Identity, Millis, Observed, Reading, Record, Seat, Session, error_id, scrub,
};
use render::rollout::running::{Side, Wiring, running};
use render::snapshot::{Arm, CompiledRollout, TierEntry};

use super::decide::Placed;
use super::head::{Head, dark_after};
use super::versions::{VersionId, Versions};
use crate::aggregate::{About, Aggregator, Followed, Ticket};
use crate::clock::Now;

/// A sign of life that comes so long after the candidate was sent shows that its bytes have arrived
/// as well: TCP keeps the order, and a peer that is gone says nothing (`docs/adr/0007`).
pub const OFFER_ARRIVES_SECONDS: Seconds = 2;

/// A collector that evidence is gathered of.
#[derive(Debug)]
pub(super) struct Tracked {
    cell: Followed,
    identity: Identity,
    session: Session,
    /// What was told last of what may change at any time; `None` before the first.
    told: Option<Told>,
    wiring: Option<Wiring>,
    /// The head that made it be offered what it is converging to; 0 when it is not.
    converging_since_ms: Millis,
    told_at: Seconds,
    dark_after: Seconds,
    version: VersionId,
    /// How often the candidate was offered to it again, as was told.
    tries: u8,
    /// Whether `wiring` was read since tracking began or the configuration changed.
    wiring_read: bool,
    /// It was told to be silent.
    lost: bool,
    /// It was told to have taken the candidate.
    took: bool,
    /// It reported APPLIED for the candidate last, and that was told.
    applied: bool,
}

const _: () = assert!(size_of::<Tracked>() <= 160);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Told {
    reading: Reading,
    observed: Observed,
}

/// What evidence is told through.
#[derive(Clone, Copy)]
pub(super) struct Teller<'s> {
    pub(super) aggregator: &'s Aggregator,
    pub(super) versions: &'s Versions,
    pub(super) head: &'s Head,
    pub(super) now: Now,
    /// Over HTTP.
    pub(super) polls: bool,
}

/// A message, and what it changed.
#[derive(Clone, Copy)]
pub(super) struct Heard<'m> {
    pub(super) peek: &'m Peek<'m>,
    pub(super) news: News,
}

/// How a collector goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Leave {
    pub(super) conn: Conn,
    /// It is not under this Rollout any more.
    pub(super) outside: bool,
    /// When anything was heard that vouches for it, its own messages aside.
    pub(super) heard: Seconds,
}

/// The Rollout that an agent's placement leads to, and its Tier.
fn staged<'h>(head: &'h Head, placed: &Placed) -> Option<(&'h CompiledRollout, &'h TierEntry)> {
    let rollout = placed.placement(head)?.rollout?;
    let compiled = head.snapshot.rollouts.get(rollout as usize)?;
    Some((compiled, head.snapshot.tiers.get(compiled.tier as usize)?))
}

/// What the agent runs, if it is tracked.
pub(super) fn reading(head: &Head, agent: &Agent<Placed>) -> Option<Reading> {
    agent.placed.tracked.as_ref().map(|tracked| tracked.reading(head, agent))
}

fn accepts(agent: &Agent<Placed>) -> bool {
    agent.capabilities().contains(AgentCapabilities::ACCEPTS_REMOTE_CONFIG)
}

/// Whether its status does not tell what it runs.
fn wants_wiring(agent: &Agent<Placed>) -> bool {
    !accepts(agent) || !agent.reports()
}

impl Teller<'_> {
    /// Takes an agent that has been placed into the evidence that its placement leads to, and out
    /// of any other. What failed on it before, on whichever link or replica, is known from then on.
    pub(super) fn follow(&self, agent: &mut Agent<Placed>, described: Option<&Peek<'_>>) {
        let head = self.head;
        let rollout = agent.placed.placement(head).and_then(|placement| placement.rollout);
        let cell = rollout.and_then(|at| head.evidence.get(at as usize));
        let is_same = |tracked: &Tracked| cell.is_some_and(|cell| Arc::ptr_eq(cell, &tracked.cell));
        match &agent.placed.tracked {
            None if cell.is_none() => return,
            Some(tracked) if described.is_none() && is_same(tracked) => return,
            _ => {}
        }
        let Some((cell, (compiled, _))) = cell.zip(staged(head, &agent.placed)) else {
            let gone = Leave { conn: Conn::Lost, outside: true, heard: 0 };
            self.leave(agent, gone);
            return;
        };
        let version = described.and_then(|peek| text_of(peek, "service.version"));
        let version = version.map(|version| self.versions.remember(version));
        let identity = agent.placed.identity(head, &compiled.rollout, agent.uid());
        if let Some(tracked) = &mut agent.placed.tracked
            && is_same(tracked)
            && tracked.identity == identity
        {
            tracked.version = version.unwrap_or(tracked.version);
            return;
        }
        let gone = Leave { conn: Conn::Lost, outside: true, heard: 0 };
        let before = self.leave(agent, gone);
        let tracked = Tracked {
            cell: Followed::new(cell),
            identity,
            session: self.aggregator.begin_session(self.now),
            told: None,
            wiring: before.as_ref().and_then(|before| before.wiring),
            converging_since_ms: 0,
            told_at: 0,
            dark_after: dark_after(&compiled.rollout),
            version: version
                .or_else(|| before.as_ref().map(|before| before.version))
                .unwrap_or(VersionId::NONE),
            tries: 0,
            wiring_read: before.is_some_and(|before| before.wiring_read),
            lost: false,
            took: false,
            applied: false,
        };
        if let Some(tries) = cell.failed(identity) {
            agent.remember_failure(self.now.seconds, tracked.to(), tries);
        }
        let asks = described.is_none()
            && !tracked.wiring_read
            && wants_wiring(agent)
            && agent.capabilities().contains(AgentCapabilities::REPORTS_EFFECTIVE_CONFIG);
        if asks {
            // What it runs was not kept while nobody wanted to know.
            agent.require_attributes();
        }
        agent.placed.tracked = Some(Box::new(tracked));
    }

    /// Reads the pipelines that an agent says it runs, where its status does not tell as much.
    pub(super) fn read_wiring(&self, agent: &mut Agent<Placed>, heard: Heard<'_>) {
        let Some(config) = &heard.peek.effective_config else { return };
        let wanted = wants_wiring(agent);
        let Some(tracked) = &mut agent.placed.tracked else { return };
        if tracked.wiring_read && !heard.news.effective_changed {
            return;
        }
        tracked.wiring = if wanted { Wiring::of_files(config.files()) } else { None };
        tracked.wiring_read = wanted;
    }

    /// Tells what a message or a decision has changed. `offered`: an offer goes out with it.
    // hot: once per message of a tracked agent; without news it locks and allocates nothing.
    pub(super) fn report(
        &self,
        agent: &mut Agent<Placed>,
        heard: Option<Heard<'_>>,
        offered: bool,
    ) -> Option<Ticket> {
        let mut tracked = agent.placed.tracked.take()?;
        tracked.converge(self, agent, heard, offered);
        let ticket = tracked.report(self, agent, heard);
        agent.placed.tracked = Some(tracked);
        ticket
    }

    /// Somebody is at the other end of a link: what was sent to its agents some time ago arrived.
    pub(super) fn handle_alive(&self, agent: &mut Agent<Placed>) {
        let old = |tracked: &Tracked| tracked.has_arrived(agent, self.now.seconds);
        if agent.placed.tracked.as_deref().is_some_and(old) {
            self.handle_arrived(agent);
        }
    }

    /// What was sent to an agent has arrived at its machine.
    pub(super) fn handle_arrived(&self, agent: &mut Agent<Placed>) {
        let Some(mut tracked) = agent.placed.tracked.take() else { return };
        if tracked.awaits_arrival(agent) {
            tracked.took = true;
            // That is when its silence begins, not the moment at which we notice.
            let first_to_ms = Some(self.at(agent.offered_at()));
            tracked.tell(self, agent, &Record { first_to_ms, ..Record::default() }, None);
        }
        agent.placed.tracked = Some(tracked);
    }

    /// Looks whether an agent of a link has fallen silent, or is heard again. `heard`: when
    /// anything came that vouches for it, its own messages aside. It is not silent while there is
    /// something `unread`: that may be its.
    pub(super) fn look(
        &self,
        agent: &mut Agent<Placed>,
        heard: Seconds,
        unread: &dyn Fn() -> bool,
    ) {
        let Some(mut tracked) = agent.placed.tracked.take() else { return };
        if let Some((compiled, _)) = staged(self.head, &agent.placed) {
            tracked.dark_after = dark_after(&compiled.rollout);
        }
        let heard = heard.max(agent.heard());
        let silent = self.now.seconds.saturating_sub(heard) >= tracked.dark_after;
        let turns = silent != tracked.lost && tracked.told.is_some();
        if turns && !(silent && unread()) {
            tracked.lost = silent;
            if !silent {
                tracked.session = self.aggregator.begin_session(self.now);
            }
            let conn = if silent { Conn::Lost } else { Conn::Open };
            let change = Record {
                conn: Some((tracked.session, conn)),
                heard_ms: self.at(heard),
                ..Record::default()
            };
            tracked.tell(self, agent, &change, None);
        }
        agent.placed.tracked = Some(tracked);
    }

    /// An agent goes, from its link or from under its Rollout. Returns what was kept of it.
    pub(super) fn leave(&self, agent: &mut Agent<Placed>, leave: Leave) -> Option<Box<Tracked>> {
        let mut tracked = agent.placed.tracked.take()?;
        let Some(told) = tracked.told else { return Some(tracked) };
        if self.polls {
            tracked.session = self.aggregator.begin_session(self.now);
        }
        let mut change =
            Record { heard_ms: self.at(leave.heard.max(agent.heard())), ..Record::default() };
        // The exchanges of one that polled are over already.
        if !self.polls || leave.conn == Conn::Left {
            change.conn = Some((tracked.session, leave.conn));
        }
        if leave.outside {
            let stamp = tracked.session.stamp(self.aggregator.next_n());
            change.observed = Some((stamp, Observed { seat: Seat::Outside, ..told.observed }));
        }
        tracked.tell(self, agent, &change, None);
        Some(tracked)
    }

    /// A second of this process in the aggregator's time.
    fn at(&self, seconds: Seconds) -> Millis {
        let ago = u64::from(self.now.seconds.saturating_sub(seconds)) * 1_000;
        self.aggregator.now_ms(self.now).saturating_sub(ago)
    }
}

/// Whether the candidate was sent to an agent, and nothing tells yet that it came.
pub(super) fn awaits_arrival(agent: &Agent<Placed>) -> bool {
    agent.placed.tracked.as_deref().is_some_and(|tracked| tracked.awaits_arrival(agent))
}

impl Tracked {
    /// The candidate's content.
    fn to(&self) -> ContentKey {
        ContentKey::new(&self.cell.key().candidate.0)
    }

    /// What the agent runs, as far as it can be told.
    fn reading(&self, head: &Head, agent: &Agent<Placed>) -> Reading {
        let to = self.to();
        let reports = accepts(agent) && agent.reports();
        if reports && (agent.unanswered() == Some(to) || agent.applying() == Some(to)) {
            return Reading::Taking;
        }
        let Some((compiled, tier)) = staged(head, &agent.placed) else {
            // A head asks for attributes that are not known: what it runs was told by another one.
            let told = self.told.map_or(Reading::Unknown, |told| told.reading);
            return if agent.applied() == Some(to) { Reading::To } else { told };
        };
        let from = ContentKey::new(&tier.base.content.0);
        if reports {
            return match agent.applied() {
                Some(applied) if applied == to => Reading::To,
                Some(applied) if applied == from => Reading::From,
                Some(_) => Reading::Other,
                None => Reading::Unknown,
            };
        }
        let [from_wiring, to_wiring] =
            if self.wiring.is_some() { compiled.wirings.read() } else { [None; 2] };
        let applied = agent.applied();
        let reading = running(
            applied.as_ref().map(|applied| &applied.as_bytes()[..]),
            self.wiring,
            Side { hash: from.as_bytes(), wiring: from_wiring },
            Side { hash: to.as_bytes(), wiring: to_wiring },
        );
        match reading {
            // It says nothing of its offers: it is believed to have taken the last one.
            Reading::From | Reading::Unknown if accepts(agent) && agent.offered() == to => {
                Reading::Taking
            }
            other => other,
        }
    }

    fn awaits_arrival(&self, agent: &Agent<Placed>) -> bool {
        !self.took && self.told.is_some() && agent.offered() == self.to()
    }

    /// Whether a sign of life that comes now shows that the candidate has arrived.
    fn has_arrived(&self, agent: &Agent<Placed>, now: Seconds) -> bool {
        agent.offered() == self.to()
            && now.saturating_sub(agent.offered_at()) >= OFFER_ARRIVES_SECONDS
    }

    /// Measures how long a head takes to reach a collector that was here when it came.
    fn converge(
        &mut self,
        teller: &Teller<'_>,
        agent: &Agent<Placed>,
        heard: Option<Heard<'_>>,
        offered: bool,
    ) {
        let waits = heard.is_none_or(|heard| !heard.news.first && !heard.news.described);
        if offered {
            let again = agent.has_failed(agent.offered());
            self.converging_since_ms = if waits && !again { teller.head.since_ms } else { 0 };
        } else if self.converging_since_ms != 0 && agent.applied() == Some(agent.offered()) {
            let since = std::mem::take(&mut self.converging_since_ms);
            let arm = if agent.offered() == self.to() { Arm::To } else { Arm::From };
            let took_ms = teller.aggregator.now_ms(teller.now).saturating_sub(since);
            self.cell.converged(took_ms, arm);
        }
    }

    fn report(
        &mut self,
        teller: &Teller<'_>,
        agent: &Agent<Placed>,
        heard: Option<Heard<'_>>,
    ) -> Option<Ticket> {
        let Teller { aggregator, head, now, polls, .. } = *teller;
        let to = self.to();
        if polls && let Some((compiled, _)) = staged(head, &agent.placed) {
            self.dark_after = dark_after(&compiled.rollout);
        }
        let first = self.told.is_none();
        let reopens = heard.is_some() && self.lost && !polls;
        let vouches = polls && now.seconds.saturating_sub(self.told_at) >= self.dark_after / 3;

        let told =
            Told { reading: self.reading(head, agent), observed: self.observed(head, agent) };
        let failed = heard.is_some_and(|heard| heard.news.failed == Some(to))
            || first && agent.failing() == Some(to);
        let applied = agent.applied() == Some(to);
        let newly_applied = applied && !self.applied;
        let took = !self.took
            && (failed
                || applied
                || agent.applying() == Some(to)
                || told.reading == Reading::To
                || heard.is_some() && !polls && self.has_arrived(agent, now.seconds));
        let tries = agent.failures().and_then(|failures| failures.tries(to)).unwrap_or(0);
        self.applied = applied;

        let changed = self.told != Some(told)
            || reopens
            || vouches
            || failed
            || newly_applied
            || took
            || tries > self.tries;
        if !changed {
            return None;
        }
        if polls || reopens {
            self.session = aggregator.begin_session(now);
        }
        let stamp = self.session.stamp(aggregator.next_n());
        let mut change = Record { tries, ..Record::default() };
        if polls {
            change.conn = Some((self.session, Conn::Lost));
        } else if first || reopens {
            change.conn = Some((self.session, Conn::Open));
        }
        change.heard_ms = teller.at(if heard.is_some() { now.seconds } else { agent.heard() });
        if self.told.map(|told| told.reading) != Some(told.reading) {
            change.arm = Some((stamp, told.reading));
        }
        if self.told.map(|told| told.observed) != Some(told.observed) {
            change.observed = Some((stamp, told.observed));
        }
        let error = heard.and_then(|heard| heard.peek.remote_config_status);
        let error = error.map_or("", |status| status.error_message);
        if failed {
            change.failed = Some((stamp, error_id(&scrub(error))));
        }
        if newly_applied {
            change.applied = Some(stamp);
        }
        if took {
            change.first_to_ms = Some(aggregator.now_ms(now));
        }
        self.took |= took;
        self.tries = self.tries.max(tries);
        self.lost &= !reopens;
        self.told = Some(told);
        self.told_at = now.seconds;
        self.tell(teller, agent, &change, heard.map(|heard| heard.peek))
    }

    fn observed(&self, head: &Head, agent: &Agent<Placed>) -> Observed {
        // While a head asks for attributes that are not known, it sits where it sat.
        let seat = match (agent.placed.placement(head), self.told) {
            (None, Some(told)) => told.observed.seat,
            (placement, _) => match placement.and_then(|placement| placement.stage) {
                Some(stage) => Seat::Stage(u16::try_from(stage).unwrap_or(u16::MAX)),
                None => Seat::Control,
            },
        };
        Observed { seat, foreign: !accepts(agent), healthy: agent.healthy() }
    }

    fn tell(
        &self,
        teller: &Teller<'_>,
        agent: &Agent<Placed>,
        change: &Record,
        peek: Option<&Peek<'_>>,
    ) -> Option<Ticket> {
        // Only a collector that is halted is ever shown, and it halts by one of these.
        let shown = change.failed.is_some()
            || self.took && change.conn.is_some_and(|(_, conn)| conn != Conn::Open);
        let version = if shown { teller.versions.text(self.version) } else { Box::default() };
        let error = peek.filter(|_| change.failed.is_some());
        let error = error.and_then(|peek| peek.remote_config_status);
        let about = About {
            uid: agent.uid(),
            label: if shown { label(teller.head, agent, peek) } else { "" },
            version: &version,
            error: error.map_or("", |status| status.error_message),
            no_bucket: agent
                .placed
                .placement(teller.head)
                .is_some_and(|placement| placement.no_bucket),
        };
        self.cell.observe(teller.now, self.identity, change, about)
    }
}

/// What people know a collector by: the name of its host, else that of its instance, from its
/// message or else from what is kept of it.
fn label<'a>(head: &'a Head, agent: &'a Agent<Placed>, peek: Option<&Peek<'a>>) -> &'a str {
    const NAMES: [&str; 2] = ["host.name", "service.instance.id"];
    let said = || NAMES.into_iter().find_map(|name| text_of(peek?, name));
    let kept = || {
        NAMES.into_iter().find_map(|name| {
            agent.placed.attributes(head).find(|(key, _)| *key == name).map(|(_, value)| value)
        })
    };
    said().or_else(kept).unwrap_or("")
}

/// A string attribute of a description; identifying ones win.
fn text_of<'m>(peek: &Peek<'m>, name: &str) -> Option<&'m str> {
    let description = peek.description.as_ref()?;
    let mut attributes = description.identifying().chain(description.non_identifying());
    attributes.find_map(|(key, text)| text.filter(|text| key == name && !text.is_empty()))
}
