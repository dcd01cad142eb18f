//! Which replicas report, and what becomes of those that do not (rollouts.md, decision 9).
//!
//! A process that keeps its evidence to itself is one replica that reports always; those before it,
//! whose records the store held, are gone as of when evidence started.

use std::collections::BTreeMap;

use render::rollout::evidence::{Millis, Owner, ReportKey};
use render::rollout::report::ReplicaLine;

/// Processes that are remembered beside those that report; the longest silent is forgotten first.
pub(super) const REPLICAS_MAX: usize = 1_024;
/// Collectors that replicas may say that they await, one and all together.
const AWAITED_MAX: u64 = 1_000_000;

/// Who may be classified otherwise than before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Affected {
    /// Everybody.
    All,
    /// Whose newest session is of one of these processes.
    Of(Vec<u32>),
}

/// What became of the process that a session was heard by, for classification.
#[derive(Clone, Debug)]
pub(super) struct Owners {
    known: BTreeMap<u32, Owner>,
    /// Of a process that nobody remembers.
    unknown: Owner,
    /// Of sessions that have ended at a process that reports or is gone, where somebody else may
    /// have heard the collector since and could not say so.
    ended: Option<Owner>,
}

/// One process of a replica.
#[derive(Clone, Debug)]
struct Replica {
    name: Box<str>,
    owner: Owner,
    heard_ms: Millis,
    /// As many reported when it was last among them, itself included.
    peers: usize,
    keys: BTreeMap<Box<str>, ReportKey>,
    /// Collectors that have no place yet, by Rollout.
    awaited: BTreeMap<Box<str>, u64>,
    /// It is connected, and its full state is not here yet.
    syncing: bool,
}

/// A time in which not every replica was heard.
#[derive(Clone, Copy, Debug)]
struct Blind {
    since_ms: Millis,
    /// `None`: it lasts.
    until_ms: Option<Millis>,
}

/// All processes that report, or did.
#[derive(Debug)]
pub(super) struct Replicas {
    known: BTreeMap<u32, Replica>,
    evidence_since_ms: Millis,
    expected: usize,
    forget_ms: Millis,
    /// Of an aggregator: when replicas were missing last.
    blind: Option<Blind>,
    /// Of an aggregator: as many have reported at one time as are expected.
    was_whole: bool,
}

impl Owners {
    pub(super) fn of(&self, incarnation: u32) -> Owner {
        self.known.get(&incarnation).copied().unwrap_or(self.unknown)
    }

    pub(super) fn reports(&self, incarnation: u32) -> bool {
        self.of(incarnation) == Owner::Reporting
    }

    /// Whom it makes a difference to that these came instead of `before`.
    pub(super) fn affects(&self, before: &Self) -> Affected {
        if self.ended != before.ended || self.unknown != before.unknown {
            return Affected::All;
        }
        let known = self.known.keys().chain(before.known.keys());
        let mut changed: Vec<u32> =
            known.filter(|process| self.of(**process) != before.of(**process)).copied().collect();
        changed.sort_unstable();
        changed.dedup();
        Affected::Of(changed)
    }

    /// Who speaks for a collector whose newest session has ended.
    pub(super) fn of_ended(&self) -> Option<Owner> {
        self.ended
    }
}

impl Replicas {
    pub(super) fn new(evidence_since_ms: Millis, expected: u32, forget_ms: Millis) -> Self {
        Self {
            known: BTreeMap::new(),
            evidence_since_ms,
            expected: expected as usize,
            forget_ms,
            blind: None,
            was_whole: true,
        }
    }

    /// Those of a process that serves nobody itself: until as many report as are expected, anybody
    /// may have been heard by one that does not.
    pub(super) fn of_aggregator(
        evidence_since_ms: Millis,
        expected: u32,
        forget_ms: Millis,
    ) -> Self {
        let blind = Some(Blind { since_ms: evidence_since_ms, until_ms: None });
        Self { blind, was_whole: false, ..Self::new(evidence_since_ms, expected, forget_ms) }
    }

    /// A process is connected and sends its full state. Until that is here, it is as last known.
    /// When it was last heard.
    pub(super) fn connects(&mut self, now_ms: Millis, incarnation: u32, name: &str) -> Millis {
        let replica = self.known.entry(incarnation).or_insert_with(|| Replica {
            name: name.into(),
            owner: Owner::Unobserved { since_ms: now_ms },
            heard_ms: now_ms,
            peers: 0,
            keys: BTreeMap::new(),
            awaited: BTreeMap::new(),
            syncing: true,
        });
        let heard_ms = replica.heard_ms;
        match replica.owner {
            Owner::Unobserved { .. } => {}
            Owner::Reporting | Owner::Gone { .. } | Owner::Forgotten { .. } => {
                replica.owner = Owner::Unobserved { since_ms: heard_ms };
            }
        }
        replica.syncing = true;
        heard_ms
    }

    /// The name of a process.
    pub(super) fn name(&self, incarnation: u32) -> Option<&str> {
        self.known.get(&incarnation).map(|replica| &*replica.name)
    }

    /// A process reports from now on.
    pub(super) fn hello(&mut self, now_ms: Millis, incarnation: u32, name: &str) {
        let replica = self.known.entry(incarnation).or_insert_with(|| Replica {
            name: name.into(),
            owner: Owner::Reporting,
            heard_ms: now_ms,
            peers: 0,
            keys: BTreeMap::new(),
            awaited: BTreeMap::new(),
            syncing: false,
        });
        replica.syncing = false;
        replica.owner = Owner::Reporting;
        replica.heard_ms = replica.heard_ms.max(now_ms);
        let peers = self.reporting();
        for replica in self.known.values_mut().filter(|known| known.owner == Owner::Reporting) {
            replica.peers = peers;
        }
        self.settle(now_ms);
        while self.known.len() > REPLICAS_MAX + peers {
            let silent = self
                .known
                .iter()
                .filter(|(_, known)| known.owner != Owner::Reporting && !known.syncing);
            let Some((oldest, _)) = silent.min_by_key(|(_, known)| known.heard_ms) else { break };
            let oldest = *oldest;
            self.known.remove(&oldest);
        }
    }

    /// A process lives.
    pub(super) fn heard(&mut self, now_ms: Millis, incarnation: u32) {
        if let Some(replica) = self.known.get_mut(&incarnation) {
            replica.heard_ms = replica.heard_ms.max(now_ms);
        }
    }

    /// A process was heard; it serves these.
    pub(super) fn vouch(
        &mut self,
        now_ms: Millis,
        incarnation: u32,
        keys: BTreeMap<Box<str>, ReportKey>,
        awaited: BTreeMap<Box<str>, u64>,
    ) {
        if let Some(replica) = self.known.get_mut(&incarnation) {
            replica.heard_ms = replica.heard_ms.max(now_ms);
            replica.keys = keys;
            replica.awaited = awaited;
        }
    }

    /// A process ended: it said so, or its link broke without a word.
    pub(super) fn bye(&mut self, now_ms: Millis, incarnation: u32, said: bool) {
        let Some(replica) = self.known.get_mut(&incarnation) else { return };
        if replica.owner != Owner::Reporting && !replica.syncing {
            return;
        }
        replica.syncing = false;
        let since_ms = match replica.owner {
            _ if said => replica.heard_ms.max(now_ms),
            Owner::Unobserved { since_ms } => since_ms,
            Owner::Reporting | Owner::Gone { .. } | Owner::Forgotten { .. } => replica.heard_ms,
        };
        replica.owner = if said {
            Owner::Gone { since_ms, at_ms: now_ms }
        } else {
            Owner::Unobserved { since_ms }
        };
        self.settle(now_ms);
    }

    /// A process of an earlier life of this one, found in the store.
    pub(super) fn predecessor(&mut self, incarnation: u32, name: &str, heard_ms: Millis) {
        let at_ms = self.evidence_since_ms;
        let since_ms = heard_ms.min(at_ms);
        self.known.entry(incarnation).or_insert_with(|| Replica {
            name: name.into(),
            owner: Owner::Gone { since_ms, at_ms },
            heard_ms: since_ms,
            peers: 1,
            keys: BTreeMap::new(),
            awaited: BTreeMap::new(),
            syncing: false,
        });
    }

    /// A replica that reported to an earlier process of this aggregator, when `peers` did.
    pub(super) fn reported_before(
        &mut self,
        incarnation: u32,
        name: &str,
        heard_ms: Millis,
        peers: usize,
    ) {
        let since_ms = heard_ms.min(self.evidence_since_ms);
        self.known.entry(incarnation).or_insert_with(|| Replica {
            name: name.into(),
            owner: Owner::Unobserved { since_ms },
            heard_ms: since_ms,
            peers,
            keys: BTreeMap::new(),
            awaited: BTreeMap::new(),
            syncing: false,
        });
    }

    /// Evidence starts now, not when the process did: the collectors of those before it can only come
    /// back from now on.
    pub(super) fn begin(&mut self, now_ms: Millis) {
        for replica in self.known.values_mut() {
            if let Owner::Gone { at_ms, .. } = &mut replica.owner
                && *at_ms == self.evidence_since_ms
            {
                *at_ms = now_ms;
            }
        }
        self.evidence_since_ms = now_ms;
    }

    /// What time alone changes. Whether anything did.
    pub(super) fn handle_timeout(&mut self, now_ms: Millis) -> bool {
        self.settle(now_ms)
    }

    /// Decides which vanished ones are gone, and which are forgotten.
    fn settle(&mut self, now_ms: Millis) -> bool {
        let reporting = self.reporting();
        let mut changed = false;
        for replica in self.known.values_mut().filter(|replica| !replica.syncing) {
            let Owner::Unobserved { since_ms } = replica.owner else { continue };
            if reporting >= replica.peers.max(self.expected) {
                replica.owner = Owner::Gone { since_ms, at_ms: now_ms };
                changed = true;
            } else if now_ms >= since_ms.saturating_add(self.forget_ms) {
                replica.owner = Owner::Forgotten { since_ms };
                changed = true;
            }
        }
        changed | self.watch(now_ms, reporting)
    }

    /// Of an aggregator: whether everybody who could have heard a collector reports. Whether that
    /// changed.
    fn watch(&mut self, now_ms: Millis, reporting: usize) -> bool {
        let Some(blind) = self.blind else { return false };
        self.was_whole |= reporting >= self.expected;
        // One that never reported has heard nobody for long.
        let missing = self.known.values().filter(|known| known.peers > 0);
        let missing_since = missing.filter_map(|known| match known.owner {
            Owner::Unobserved { since_ms } => Some(since_ms),
            Owner::Reporting | Owner::Gone { .. } | Owner::Forgotten { .. } => None,
        });
        let missing_since = missing_since.min();
        let now_blind = match (missing_since, self.was_whole) {
            (None, true) => None,
            (since_ms, _) => Some(since_ms.unwrap_or(now_ms)),
        };
        match (now_blind, blind.until_ms) {
            (None, None) => self.blind = Some(Blind { until_ms: Some(now_ms), ..blind }),
            (Some(since_ms), Some(until_ms)) => {
                // Silence from between two such times may not have been told either.
                let apart = since_ms >= until_ms.saturating_add(self.forget_ms);
                let since_ms = if apart { since_ms } else { blind.since_ms.min(since_ms) };
                self.blind = Some(Blind { since_ms, until_ms: None });
            }
            (None, Some(_)) => return false,
            (Some(since_ms), None) => {
                let earlier = since_ms < blind.since_ms;
                self.blind = Some(Blind { since_ms: blind.since_ms.min(since_ms), until_ms: None });
                return earlier;
            }
        }
        true
    }

    /// When one that reports was last heard.
    pub(super) fn reporting_heard(&self, incarnation: u32) -> Option<Millis> {
        let replica = self.known.get(&incarnation)?;
        (replica.owner == Owner::Reporting).then_some(replica.heard_ms)
    }

    pub(super) fn reporting(&self) -> usize {
        self.known.values().filter(|replica| replica.owner == Owner::Reporting).count()
    }

    /// How many report this of a Rollout.
    pub(super) fn agreeing(&self, rollout: &str, key: &ReportKey) -> u32 {
        let agree = self.known.values().filter(|replica| {
            replica.owner == Owner::Reporting && replica.keys.get(rollout) == Some(key)
        });
        u32::try_from(agree.count()).unwrap_or(u32::MAX)
    }

    /// Collectors without a place yet, at those that report this of a Rollout.
    pub(super) fn awaited(&self, rollout: &str, key: &ReportKey) -> u64 {
        let agree = self.known.values().filter(|replica| {
            replica.owner == Owner::Reporting && replica.keys.get(rollout) == Some(key)
        });
        let sum: u64 = agree
            .filter_map(|replica| replica.awaited.get(rollout))
            .map(|awaited| (*awaited).min(AWAITED_MAX))
            .sum();
        sum.min(AWAITED_MAX)
    }

    pub(super) fn owners(&self) -> Owners {
        let since_ms = self.evidence_since_ms;
        Owners {
            known: self.known.iter().map(|(id, replica)| (*id, replica.owner)).collect(),
            unknown: Owner::Gone { since_ms, at_ms: since_ms },
            ended: self.blind.map(|Blind { since_ms, until_ms }| match until_ms {
                None => Owner::Unobserved { since_ms },
                Some(at_ms) => Owner::Gone { since_ms, at_ms },
            }),
        }
    }

    /// How long ago the one that is silent longest, of those that report, was heard.
    pub(super) fn age_ms(&self, now_ms: Millis) -> Millis {
        let reporting = self.known.values().filter(|known| known.owner == Owner::Reporting);
        reporting.map(|known| now_ms.saturating_sub(known.heard_ms)).max().unwrap_or(0)
    }

    /// For a report on a Rollout: those that report, and those that nobody can speak for. Whoever
    /// is gone is left out: another has its collectors.
    pub(super) fn lines(&self, now_ms: Millis, rollout: &str, key: &ReportKey) -> Vec<ReplicaLine> {
        let shown = self.known.iter().filter(|(_, known)| {
            matches!(known.owner, Owner::Reporting | Owner::Unobserved { .. })
        });
        let line = |(incarnation, known): (&u32, &Replica)| ReplicaLine {
            name: known.name.to_string(),
            incarnation: format!("{incarnation:08x}"),
            reporting: known.owner == Owner::Reporting,
            same_head: known.keys.get(rollout) == Some(key),
            age_ms: now_ms.saturating_sub(known.heard_ms),
        };
        let mut lines: Vec<ReplicaLine> = shown.map(line).collect();
        lines.sort_by(|one, other| {
            (&one.name, &one.incarnation).cmp(&(&other.name, &other.incarnation))
        });
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replicas(expected: u32) -> Replicas {
        let mut replicas = Replicas::new(1_000, expected, 3_600_000);
        replicas.hello(1_000, 1, "a");
        replicas
    }

    #[test]
    fn who_says_bye_is_gone_at_once() {
        let mut replicas = replicas(2);
        replicas.hello(2_000, 2, "b");
        replicas.bye(5_000, 2, true);
        let gone = Owner::Gone { since_ms: 5_000, at_ms: 5_000 };
        assert_eq!(replicas.owners().of(2), gone);
    }

    #[test]
    fn who_vanished_is_gone_when_as_many_report_as_before() {
        let mut replicas = replicas(1);
        replicas.hello(2_000, 2, "b");
        replicas.bye(5_000, 2, false);
        assert_eq!(replicas.owners().of(2), Owner::Unobserved { since_ms: 2_000 });
        replicas.hello(9_000, 3, "b");
        assert_eq!(replicas.owners().of(2), Owner::Gone { since_ms: 2_000, at_ms: 9_000 });
    }

    #[test]
    fn never_fewer_than_are_expected() {
        let mut replicas = replicas(3);
        replicas.hello(2_000, 2, "b");
        replicas.bye(5_000, 2, false);
        replicas.hello(9_000, 3, "c");
        assert_eq!(replicas.owners().of(2), Owner::Unobserved { since_ms: 2_000 });
        replicas.hello(9_500, 4, "d");
        assert_eq!(replicas.owners().of(2), Owner::Gone { since_ms: 2_000, at_ms: 9_500 });
    }

    #[test]
    fn who_never_comes_back_is_forgotten_but_not_who_is_gone() {
        let mut replicas = replicas(2);
        replicas.predecessor(9, "a", 900);
        replicas.hello(2_000, 2, "b");
        replicas.bye(5_000, 2, false);
        assert!(!replicas.handle_timeout(3_601_999));
        assert!(replicas.handle_timeout(3_602_000));
        assert_eq!(replicas.owners().of(2), Owner::Forgotten { since_ms: 2_000 });
        assert_eq!(replicas.owners().of(9), Owner::Gone { since_ms: 900, at_ms: 1_000 });
        replicas.hello(4_000_000, 2, "b");
        assert!(replicas.owners().reports(2));
    }

    #[test]
    fn evidence_that_starts_late_waits_for_the_collectors_of_those_before_it() {
        let mut replicas = replicas(1);
        replicas.predecessor(9, "a", 900);
        replicas.begin(61_000);
        assert_eq!(replicas.owners().of(9), Owner::Gone { since_ms: 900, at_ms: 61_000 });
        assert_eq!(replicas.owners().of(77), Owner::Gone { since_ms: 61_000, at_ms: 61_000 });
        assert!(replicas.owners().reports(1));
    }

    #[test]
    fn an_unknown_process_is_one_from_before_evidence_started() {
        let owners = replicas(1).owners();
        assert_eq!(owners.of(77), Owner::Gone { since_ms: 1_000, at_ms: 1_000 });
        assert!(owners.reports(1));
    }
}
