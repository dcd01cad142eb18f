//! What a record means: each rule of decisions 7, 9, 11 and 14, and when time alone changes it.

use proptest::prelude::*;

use super::merge::record;
use crate::rollout::evidence::*;

const SECOND: Millis = 1_000;
const DARK_AFTER: Millis = 90 * SECOND;
const GRACE: Millis = 60 * SECOND;
const SOAK: Millis = 3_600 * SECOND;
/// When the soak begins, long after evidence did.
const START: Millis = 10_000 * SECOND;

fn context(now_ms: Millis) -> Context {
    Context {
        now_ms,
        stage: 1,
        soak_since_ms: START,
        soak_ms: SOAK,
        earlier_until_ms: 0,
        dark_after_ms: DARK_AFTER,
        grace_ms: GRACE,
        evidence_since_ms: 0,
    }
}

/// A served collector on the candidate since `took_ms`, last heard at `heard_ms`.
fn member(seat: Seat, conn: Conn, took_ms: Option<Millis>, heard_ms: Millis) -> Record {
    let stamp = Stamp { epoch_ms: 1, incarnation: 1, n: 1 };
    let arm = if took_ms.is_some() { Reading::To } else { Reading::From };
    Record {
        arm: Some((stamp, arm)),
        conn: Some((Session { epoch_ms: 1, incarnation: 1, n: 1 }, conn)),
        observed: Some((stamp, Observed { seat, foreign: false, healthy: None })),
        heard_ms,
        first_to_ms: took_ms,
        ..Record::default()
    }
}

fn failed(record: Record) -> Record {
    let stamp = Stamp { epoch_ms: 1, incarnation: 1, n: 1 };
    Record { failed: Some((stamp, ErrorId(0))), ..record }
}

fn foreign(mut record: Record) -> Record {
    if let Some((_, observed)) = &mut record.observed {
        observed.foreign = true;
    }
    record
}

const IN: Seat = Seat::Stage(0);

fn at(record: &Record, now_ms: Millis) -> Class {
    classify(record, &context(now_ms), Owner::Reporting)
}

/// Asserts that it is counted and in order until just before `dark_ms`, and dark from then on.
fn goes_dark_at(
    record: &Record,
    context_of: impl Fn(Millis) -> Context,
    owner: Owner,
    dark_ms: Millis,
) {
    let before = classify(record, &context_of(dark_ms - 1), owner);
    assert!(before.counts && !before.dark && before.condition.is_none(), "{before:?}");
    assert_eq!(before.next_ms, Some(dark_ms));
    let after = classify(record, &context_of(dark_ms), owner);
    assert!(after.counts && after.dark && after.taken && !after.failed, "{after:?}");
    let long_ms = dark_ms + context_of(dark_ms).dark_after_ms / 3;
    assert_eq!((after.condition, after.next_ms), (Some("went_dark"), Some(long_ms)));
    assert!(!after.long_dark && !classify(record, &context_of(long_ms - 1), owner).long_dark);
    let long = classify(record, &context_of(long_ms), owner);
    assert!(long.long_dark && long.dark && long.next_ms.is_none(), "{long:?}");
    assert!(classify(record, &context_of(dark_ms + 1_000 * SOAK), owner).dark, "until it is heard");
}

/// Asserts that it is counted until just before `gone_ms`, never halted, and then no longer.
fn expires_at(record: &Record, owner: Owner, gone_ms: Millis) {
    let before = classify(record, &context(gone_ms - 1), owner);
    assert!(before.counts && before.condition.is_none(), "{before:?}");
    assert_eq!(before.next_ms, Some(gone_ms));
    let after = classify(record, &context(gone_ms), owner);
    assert!(!after.counts && !after.taken && after.condition.is_none(), "{after:?}");
    assert_eq!(after.next_ms, None);
}

#[test]
fn an_open_link_of_a_reporting_replica_is_heard_for_ever() {
    let class = at(&member(IN, Conn::Open, Some(START), START), START + 1_000 * SOAK);
    assert!(class.counts && class.taken && class.heard_since_soak && !class.dark);
    assert_eq!((class.arm, class.next_ms, class.silent_since_ms), (Reading::To, None, None));
}

#[test]
fn who_took_the_candidate_and_is_silent_for_dark_after_is_dark() {
    let heard = START + 100 * SECOND;
    let lost = member(IN, Conn::Lost, Some(START + SECOND), heard);
    goes_dark_at(&lost, context, Owner::Reporting, heard + DARK_AFTER);
    let silent = at(&lost, heard + DARK_AFTER);
    assert_eq!(silent.silent_since_ms, Some(heard));
}

#[test]
fn an_offer_that_reached_it_is_a_sign_of_life_too() {
    let took = START + 5 * SECOND;
    let lost = member(IN, Conn::Lost, Some(took), START);
    goes_dark_at(&lost, context, Owner::Reporting, took + DARK_AFTER);
}

#[test]
fn who_never_took_the_candidate_expires_instead() {
    let heard = START + 100 * SECOND;
    expires_at(&member(IN, Conn::Lost, None, heard), Owner::Reporting, heard + DARK_AFTER);
}

#[test]
fn a_drained_replicas_members_get_the_grace_more() {
    let heard = START + 100 * SECOND;
    let drained = member(IN, Conn::Drained, Some(START), heard);
    goes_dark_at(&drained, context, Owner::Reporting, heard + DARK_AFTER + GRACE);
}

#[test]
fn the_window_closes_dark_after_past_the_soak() {
    let closes = START + SOAK + DARK_AFTER;
    let last = member(IN, Conn::Lost, Some(START), closes);
    goes_dark_at(&last, context, Owner::Reporting, closes + DARK_AFTER);
    let late = member(IN, Conn::Lost, Some(START), closes + 1);
    expires_at(&late, Owner::Reporting, closes + 1 + DARK_AFTER);
}

#[test]
fn the_window_of_a_late_taker_is_dark_after_at_least() {
    let took = START + 10 * SOAK;
    let last = member(IN, Conn::Lost, Some(took), took + DARK_AFTER);
    goes_dark_at(&last, context, Owner::Reporting, took + 2 * DARK_AFTER);
    let late = member(IN, Conn::Lost, Some(took), took + DARK_AFTER + 1);
    expires_at(&late, Owner::Reporting, took + 2 * DARK_AFTER + 1);
}

#[test]
fn a_dark_member_stays_halted_over_a_stage_change_and_another_silence_does_not_become_one() {
    let heard = START - 500 * SECOND;
    let lost = member(IN, Conn::Lost, Some(START - 2_000 * SECOND), heard);
    let earlier = |earlier_until_ms| Context { earlier_until_ms, ..context(START + SECOND) };
    let class = classify(&lost, &earlier(heard), Owner::Reporting);
    assert!(class.dark, "its silence began in the window of the stage before");
    assert!(!class.heard_since_soak);
    let class = classify(&lost, &earlier(heard - 1), Owner::Reporting);
    assert!(!class.counts, "it fell silent between the two windows");
    let heard_again = Record { heard_ms: START, ..lost };
    assert!(!at(&heard_again, START + SECOND).dark);
    let took_late = Record { first_to_ms: Some(heard), ..lost };
    assert!(
        classify(&took_late, &earlier(0), Owner::Reporting).dark,
        "never shorter than dark_after"
    );
}

#[test]
fn no_silence_is_counted_from_before_evidence_starts() {
    let since = START + 50 * SOAK;
    let with = |now_ms| Context { evidence_since_ms: since, ..context(now_ms) };
    let lost = member(IN, Conn::Lost, Some(START), START + SECOND);
    goes_dark_at(&lost, with, Owner::Reporting, since + DARK_AFTER);
}

#[test]
fn who_failed_stays_failed_however_silent() {
    for conn in [Conn::Open, Conn::Drained, Conn::Lost, Conn::Left] {
        let record = failed(member(IN, conn, Some(START), START));
        for owner in [
            Owner::Reporting,
            Owner::Unobserved { since_ms: START },
            Owner::Gone { since_ms: START, at_ms: START },
            Owner::Forgotten { since_ms: START },
        ] {
            let class = classify(&record, &context(START + 1_000 * SOAK), owner);
            assert!(class.counts && class.failed && !class.dark, "{conn:?} {owner:?} {class:?}");
            assert_eq!((class.condition, class.next_ms), (Some("failed"), None));
        }
    }
}

#[test]
fn who_left_is_never_dark_and_leaves_seen_after_dark_after() {
    let heard = START + 100 * SECOND;
    let left = member(IN, Conn::Left, Some(START), heard);
    assert!(at(&left, heard).left);
    for owner in [Owner::Reporting, Owner::Unobserved { since_ms: heard }] {
        expires_at(&left, owner, heard + DARK_AFTER);
        assert!(!classify(&left, &context(heard), owner).unobserved);
    }
    assert!(!at(&member(Seat::Control, Conn::Left, None, heard), heard).counts);
}

#[test]
fn nobody_but_a_replica_reports_silence() {
    let heard = START + 100 * SECOND;
    let since_ms = heard + 30 * SECOND;
    let owner = Owner::Unobserved { since_ms };
    for conn in [Conn::Open, Conn::Drained, Conn::Lost] {
        let class =
            classify(&member(IN, conn, Some(START), heard), &context(START + 99 * SOAK), owner);
        assert!(class.counts && class.unobserved && class.taken && !class.dark, "{class:?}");
        assert_eq!(class.next_ms, None);
    }
    let owner = Owner::Unobserved { since_ms: heard + DARK_AFTER };
    let dark =
        classify(&member(IN, Conn::Lost, Some(START), heard), &context(START + 99 * SOAK), owner);
    assert!(dark.dark && dark.unobserved, "its replica still told that it is dark");
    let gone = classify(&member(IN, Conn::Lost, None, heard), &context(START + 99 * SOAK), owner);
    assert!(!gone.counts && !gone.unobserved, "it had expired");
}

#[test]
fn members_of_a_gone_replica_may_turn_dark_after_dark_after_and_grace() {
    let heard = START + 100 * SECOND;
    let (since_ms, at_ms) = (heard + 30 * SECOND, heard + 200 * SECOND);
    let owner = Owner::Gone { since_ms, at_ms };
    for conn in [Conn::Open, Conn::Drained, Conn::Lost] {
        let record = member(IN, conn, Some(START), heard);
        goes_dark_at(&record, context, owner, at_ms + DARK_AFTER + GRACE);
        let class = classify(&record, &context(at_ms), owner);
        assert!(!class.unobserved && class.counts);
        expires_at(&member(IN, conn, None, heard), owner, at_ms + DARK_AFTER + GRACE);
    }
    let told = Owner::Gone { since_ms: heard + DARK_AFTER, at_ms };
    let class = classify(&member(IN, Conn::Lost, Some(START), heard), &context(at_ms), told);
    assert!(class.dark, "it was dark before its replica went");
}

#[test]
fn the_forgotten_expire_without_turning_dark() {
    let heard = START + 100 * SECOND;
    let owner = Owner::Forgotten { since_ms: heard + 30 * SECOND };
    for conn in [Conn::Open, Conn::Drained, Conn::Lost] {
        let class = classify(&member(IN, conn, Some(START), heard), &context(heard + SOAK), owner);
        assert!(!class.counts && !class.dark && class.next_ms.is_none());
    }
    let owner = Owner::Forgotten { since_ms: heard + DARK_AFTER };
    let class =
        classify(&member(IN, Conn::Lost, Some(START), heard), &context(heard + SOAK), owner);
    assert!(class.dark, "it was dark before its replica was lost");
}

#[test]
fn the_control_group_is_who_was_heard_since_the_soak_began() {
    let control = |heard_ms| member(Seat::Control, Conn::Lost, None, heard_ms);
    let now = START + DARK_AFTER - 1;
    assert!(at(&control(START), now).counts);
    assert!(!at(&control(START - 1), START).counts, "not heard since");
    assert!(!at(&foreign(control(START)), now).counts, "served ones only");
    let dark = at(&control(START), START + DARK_AFTER);
    assert!(dark.counts && dark.control_dark && !dark.dark && dark.condition.is_none());
    let closes = START + SOAK + DARK_AFTER;
    assert!(at(&control(closes), closes + DARK_AFTER).control_dark);
    expires_at(&control(closes + 1), Owner::Reporting, closes + 1 + DARK_AFTER);
    let open = at(&member(Seat::Control, Conn::Open, None, 0), START + SOAK);
    assert!(open.counts && open.heard_since_soak && !open.control_dark);
    let halted = at(&failed(control(START)), START);
    assert!(halted.counts && !halted.failed && halted.condition.is_none(), "no member");
}

#[test]
fn foreign_members_are_counted_and_never_halted() {
    let heard = START + 100 * SECOND;
    let silent = foreign(member(IN, Conn::Lost, Some(START), heard));
    expires_at(&silent, Owner::Reporting, heard + DARK_AFTER);
    let open = at(&foreign(failed(member(IN, Conn::Open, Some(START), heard))), heard);
    assert!(open.counts && open.foreign && !open.failed && !open.taken);
}

#[test]
fn who_is_admitted_by_no_active_stage_is_not_counted() {
    for seat in [Seat::Stage(2), Seat::Outside] {
        let class = at(&failed(member(seat, Conn::Open, Some(START), START)), START);
        assert!(!class.counts && !class.failed && class.seat == Seat::Outside, "{class:?}");
    }
    assert!(!at(&Record::default(), START).counts, "nothing is known of it");
    assert!(at(&member(Seat::Stage(1), Conn::Open, None, START), START).counts);
}

#[test]
fn a_reconnect_clears_the_silence_even_when_the_old_close_comes_late() {
    let session = |n| Session { epoch_ms: START + n, incarnation: 1, n };
    let mut record = member(IN, Conn::Lost, Some(START), START + SECOND);
    record.conn = Some((session(1), Conn::Open));
    record.merge(&Record { conn: Some((session(2), Conn::Open)), ..record });
    record.merge(&Record { conn: Some((session(1), Conn::Lost)), ..record });
    assert!(!at(&record, START + SOAK).dark);
}

fn owner() -> impl Strategy<Value = Owner> {
    (0..4_u8, 0..60_u64, 0..60_u64).prop_map(|(kind, since_ms, more)| match kind {
        0 => Owner::Reporting,
        1 => Owner::Unobserved { since_ms },
        2 => Owner::Gone { since_ms, at_ms: since_ms + more },
        _ => Owner::Forgotten { since_ms },
    })
}

fn small_context() -> impl Strategy<Value = Context> {
    (0..40_u64, 0..3_u32, 0..40_u64, 0..20_u64, 0..40_u64, 1..20_u64, 0..10_u64, 0..40_u64)
        .prop_map(
            |(now_ms, stage, soak_since_ms, soak_ms, earlier, dark_after_ms, grace_ms, since)| {
                Context {
                    now_ms,
                    stage,
                    soak_since_ms,
                    soak_ms,
                    earlier_until_ms: earlier.min(soak_since_ms),
                    dark_after_ms,
                    grace_ms,
                    evidence_since_ms: since,
                }
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// `next_ms` against looking at every moment.
    #[test]
    fn a_class_changes_by_time_alone_exactly_when_it_says(
        record in record(), context in small_context(), owner in owner(),
    ) {
        let same = |one: &Class, other: &Class| {
            Class { next_ms: None, ..*one } == Class { next_ms: None, ..*other }
        };
        let class = classify(&record, &context, owner);
        let first = (context.now_ms + 1..context.now_ms + 200).find(|&now_ms| {
            !same(&classify(&record, &Context { now_ms, ..context }, owner), &class)
        });
        prop_assert_eq!(class.next_ms, first);
    }

    /// Half a million collectors are counted by this: see `gateway::aggregate`.
    #[test]
    fn while_a_replica_vouches_nothing_counts_but_seat_arm_failure_and_the_candidate(
        record in record(), other in record(), context in small_context(), now_ms in 0..100_u64,
    ) {
        let open = |record: Record| Record {
            conn: Some((record.conn.map_or(Session { epoch_ms: 0, incarnation: 0, n: 0 }, |(session, _)| session), Conn::Open)),
            ..record
        };
        let key = |record: &Record| {
            let seen = record.observed.map(|(_, observed)| (observed.seat, observed.foreign));
            (seen, record.arm.map(|(_, arm)| arm), record.failed_now(), record.took_candidate())
        };
        let one = open(record);
        let class = classify(&one, &context, Owner::Reporting);
        prop_assert_eq!(class.next_ms, None);
        // Another record with all of these the same, and all else another's.
        let like = Record {
            observed: one.observed,
            arm: one.arm,
            failed: one.failed,
            applied: one.applied,
            first_to_ms: one.first_to_ms.map(|_| other.first_to_ms.unwrap_or(0)),
            ..open(other)
        };
        prop_assert_eq!(key(&one), key(&like));
        let context = Context { now_ms, ..context };
        prop_assert_eq!(classify(&like, &context, Owner::Reporting), class);
        // And with the least that has them.
        let stamp = Stamp { epoch_ms: 0, incarnation: 0, n: 0 };
        let least = Record {
            observed: one.observed.map(|(_, observed)| (stamp, observed)),
            arm: one.arm.map(|(_, arm)| (stamp, arm)),
            failed: one.failed_now().then_some((stamp, ErrorId(0))),
            first_to_ms: one.first_to_ms.map(|_| 0),
            ..open(Record::default())
        };
        prop_assert_eq!(key(&one), key(&least));
        prop_assert_eq!(classify(&least, &context, Owner::Reporting), class);
    }

    #[test]
    fn what_does_not_count_is_not_flagged(
        record in record(), context in small_context(), owner in owner(),
    ) {
        let class = classify(&record, &context, owner);
        let flags = class.failed || class.dark || class.taken || class.unobserved || class.control_dark;
        prop_assert!(class.counts || !flags, "{:?}", class);
        prop_assert_eq!(class.condition.is_some(), class.failed || class.dark);
        prop_assert!(!(class.failed && class.dark));
    }

    #[test]
    fn no_time_is_too_large(record in record(), huge in prop::collection::vec(prop_oneof![Just(u64::MAX), Just(0)], 9)) {
        let context = Context {
            now_ms: huge[0], stage: 3, soak_since_ms: huge[1], soak_ms: huge[2],
            earlier_until_ms: huge[3], dark_after_ms: huge[4], grace_ms: huge[5], evidence_since_ms: huge[6],
        };
        let record = Record { heard_ms: huge[7], first_to_ms: Some(huge[8]), ..record };
        for owner in [Owner::Reporting, Owner::Gone { since_ms: 0, at_ms: huge[7] }] {
            let class = classify(&record, &context, owner);
            prop_assert!(class.next_ms.is_none_or(|next| next > context.now_ms));
        }
    }
}
