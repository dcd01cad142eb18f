//! The merge against a model that keeps every fact ever reported.

use std::collections::BTreeSet;

use proptest::prelude::*;

use crate::rollout::evidence::*;

/// One thing that a replica may report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fact {
    Failed(Stamp, ErrorId),
    Applied(Stamp),
    Arm(Stamp, Reading),
    Conn(Session, Conn),
    Observed(Stamp, Observed),
    Heard(Millis),
    Took(Millis),
    Tried(u8),
}

impl Fact {
    fn record(self) -> Record {
        let mut record = Record::default();
        match self {
            Self::Failed(stamp, error) => record.failed = Some((stamp, error)),
            Self::Applied(stamp) => record.applied = Some(stamp),
            Self::Arm(stamp, arm) => record.arm = Some((stamp, arm)),
            Self::Conn(session, conn) => record.conn = Some((session, conn)),
            Self::Observed(stamp, observed) => record.observed = Some((stamp, observed)),
            Self::Heard(ms) => record.heard_ms = ms,
            Self::Took(ms) => record.first_to_ms = Some(ms),
            Self::Tried(tries) => record.tries = tries,
        }
        record
    }
}

/// Each field from all facts at once.
fn model(facts: &BTreeSet<Fact>) -> Record {
    fn newest<T: Ord>(facts: &BTreeSet<Fact>, pick: impl Fn(&Fact) -> Option<T>) -> Option<T> {
        facts.iter().filter_map(pick).max()
    }
    let failed = newest(facts, |fact| match fact {
        Fact::Failed(stamp, error) => Some((*stamp, *error)),
        _ => None,
    });
    let applied = newest(facts, |fact| match fact {
        Fact::Applied(stamp) => Some(*stamp),
        _ => None,
    });
    let arm = newest(facts, |fact| match fact {
        Fact::Arm(stamp, arm) => Some((*stamp, *arm)),
        _ => None,
    });
    let conn = newest(facts, |fact| match fact {
        Fact::Conn(session, conn) => Some((*session, *conn)),
        _ => None,
    });
    let observed = newest(facts, |fact| match fact {
        Fact::Observed(stamp, observed) => Some((*stamp, *observed)),
        _ => None,
    });
    let heard = newest(facts, |fact| match fact {
        Fact::Heard(ms) => Some(*ms),
        _ => None,
    });
    let first_to_ms = facts
        .iter()
        .filter_map(|fact| match fact {
            Fact::Took(ms) => Some(*ms),
            _ => None,
        })
        .min();
    let tries = newest(facts, |fact| match fact {
        Fact::Tried(tries) => Some(*tries),
        _ => None,
    });
    Record {
        failed,
        applied,
        arm,
        conn,
        observed,
        heard_ms: heard.unwrap_or(0),
        first_to_ms,
        tries: tries.unwrap_or(0),
    }
}

fn stamp() -> impl Strategy<Value = Stamp> {
    (0..3_u64, 0..2_u32, 0..4_u64).prop_map(|(epoch, incarnation, n)| Stamp {
        epoch_ms: epoch * 1_500,
        incarnation,
        n,
    })
}

fn session() -> impl Strategy<Value = Session> {
    stamp().prop_map(|Stamp { epoch_ms, incarnation, n }| Session { epoch_ms, incarnation, n })
}

fn reading() -> impl Strategy<Value = Reading> {
    use Reading::{From, Other, Taking, To, Unknown};
    prop::sample::select(vec![Taking, To, From, Other, Unknown])
}

fn conn() -> impl Strategy<Value = Conn> {
    prop::sample::select(vec![Conn::Open, Conn::Drained, Conn::Lost, Conn::Left])
}

fn observed() -> impl Strategy<Value = Observed> {
    let seat =
        prop_oneof![(0..3_u16).prop_map(Seat::Stage), Just(Seat::Control), Just(Seat::Outside)];
    (seat, any::<bool>(), any::<Option<bool>>()).prop_map(|(seat, foreign, healthy)| Observed {
        seat,
        foreign,
        healthy,
    })
}

fn fact() -> impl Strategy<Value = Fact> {
    prop_oneof![
        (stamp(), 0..3_u32).prop_map(|(stamp, error)| Fact::Failed(stamp, ErrorId(error))),
        stamp().prop_map(Fact::Applied),
        (stamp(), reading()).prop_map(|(stamp, arm)| Fact::Arm(stamp, arm)),
        (session(), conn()).prop_map(|(session, conn)| Fact::Conn(session, conn)),
        (stamp(), observed()).prop_map(|(stamp, observed)| Fact::Observed(stamp, observed)),
        (0..9_u64).prop_map(Fact::Heard),
        (0..9_u64).prop_map(Fact::Took),
        (0..4_u8).prop_map(Fact::Tried),
    ]
}

/// A record as several facts leave it.
pub(super) fn record() -> impl Strategy<Value = Record> {
    prop::collection::btree_set(fact(), 0..8).prop_map(|facts| model(&facts))
}

fn merged(mut one: Record, other: &Record) -> Record {
    one.merge(other);
    one
}

proptest! {
    #[test]
    fn the_merge_is_commutative_associative_and_idempotent(
        a in record(), b in record(), c in record(),
    ) {
        prop_assert_eq!(merged(a, &b), merged(b, &a));
        prop_assert_eq!(merged(merged(a, &b), &c), merged(a, &merged(b, &c)));
        prop_assert_eq!(merged(a, &a), a);
        prop_assert_eq!(merged(a, &Record::default()), a);
    }

    /// Facts reach some of three replicas, in any order, some of them twice; replicas tell each
    /// other what they know in any order; in the end each has told one, and that one knows all.
    #[test]
    fn whoever_was_told_of_everything_knows_what_the_model_knows(
        reports in prop::collection::vec((fact(), 0..3_usize, any::<bool>()), 0..40),
        syncs in prop::collection::vec((0..40_usize, 0..3_usize, 0..3_usize), 0..12),
        last in Just([0, 1, 2]).prop_shuffle(),
    ) {
        let mut replicas = [Record::default(); 3];
        let mut known = [const { BTreeSet::new() }; 3];
        for (at, (fact, replica, twice)) in reports.iter().enumerate() {
            for _ in 0..=usize::from(*twice) {
                replicas[*replica].merge(&fact.record());
            }
            known[*replica].insert(*fact);
            for (_, from, to) in syncs.iter().filter(|(when, ..)| *when == at) {
                let told = replicas[*from];
                replicas[*to].merge(&told);
                let facts = known[*from].clone();
                known[*to].extend(facts);
            }
            prop_assert_eq!(replicas[*replica], model(&known[*replica]));
        }
        let mut all = Record::default();
        last.iter().for_each(|replica| all.merge(&replicas[*replica]));
        let facts: BTreeSet<Fact> = reports.iter().map(|(fact, ..)| *fact).collect();
        prop_assert_eq!(all, model(&facts));
    }
}

#[test]
fn a_failure_is_cleared_by_a_later_applied_of_its_session_or_a_clearly_later_one() {
    let at = |epoch_ms, incarnation, n| Stamp { epoch_ms, incarnation, n };
    let failed = at(10_000, 7, 5);
    for (applied, failed_now, why) in [
        (None, true, "nothing followed"),
        (Some(at(10_000, 7, 6)), false, "later in the session"),
        (Some(at(10_000, 7, 4)), true, "earlier in the session"),
        (Some(at(9_000, 9, 9)), true, "an earlier session"),
        (Some(at(10_000, 8, 6)), true, "another session at the same time"),
        (Some(at(12_000, 7, 9)), true, "a session 2 s later may repeat what it remembers"),
        (Some(at(12_001, 1, 1)), false, "a session more than 2 s later"),
    ] {
        let record = Record { failed: Some((failed, ErrorId(1))), applied, ..Record::default() };
        assert_eq!(record.failed_now(), failed_now, "{why}");
    }
    let applied = Some(at(1, 1, 1));
    assert!(!Record { applied, ..Record::default() }.failed_now());
}
