//! Decision 14 word by word, without a care for speed.

use proptest::prelude::*;

use super::*;
use crate::rollout::evidence::{Class, Reading, Seat};

/// floor((|T| C_d + isqrt(4 |T| C_d (|C| - C_d) (|C| + |T|) / |C|)) / |C|), the root by trying.
fn explained(taken: u64, control: &Control) -> u64 {
    let (c, c_d) = (control.seen, control.dark);
    let square = 4 * taken * c_d * (c - c_d) * (c + taken) / c;
    let root = (0..).take_while(|root| root * root <= square).last().unwrap();
    (taken * c_d + root) / c
}

fn slow(terms: &Terms, tally: &Tally, times: &Times) -> Kind {
    let sum = |pick: fn(&Counts) -> u64| tally.stages.iter().map(pick).sum::<u64>();
    let seen = sum(|row| row.seen);
    let failed = sum(|row| row.failed);
    let dark = sum(|row| row.dark);
    let unobserved = sum(|row| row.unobserved) + tally.control.unobserved;
    let e = if tally.control.seen < 20 {
        dark
    } else {
        0.max(tally.long_dark as i64 - explained(tally.taken, &tally.control) as i64) as u64
    };
    // Of those that are awaited, as many are members as of those that are not.
    let placed = tally.served_in_tier + tally.foreign.seen;
    let in_all = (0..).find(|all| all * placed >= seen * (placed + tally.awaited)).unwrap();
    let late = terms.dark_after_ms + terms.grace_ms;
    let young = times.now_ms < times.evidence_since_ms + late;

    let past_threshold =
        seen > 0 && 100 * (failed + e) >= u64::from(terms.abort_at_percent) * in_all;
    let newly_reached = !tally.braked;
    if past_threshold && !(young && newly_reached) {
        return Kind::Abort;
    }
    if failed > 0 || dark > 0 {
        return Kind::Blocked;
    }
    if seen < u64::from(terms.min_seen)
        || unobserved > 0
        || tally.overflow > 0
        || tally.replicas < terms.expect_replicas
    {
        return Kind::Inconclusive;
    }
    let somebody = if tally.served_in_tier > 0 { sum(|row| row.to) } else { tally.foreign.to };
    let soaked = times.now_ms >= times.soak_since_ms + terms.soak_ms + late;
    if young || !soaked || somebody == 0 || terms.hold || terms.same_content || tally.braked {
        return Kind::Hold;
    }
    if terms.stage + 1 == terms.stages { Kind::Complete } else { Kind::Advance }
}

fn agree(terms: &Terms, tally: &Tally, times: &Times) {
    let verdict = judge(terms, tally, times);
    assert_eq!(verdict.kind, slow(terms, tally, times), "{terms:?} {tally:?} {times:?}");
    let reached = verdict.failed + verdict.dark_beyond_control >= verdict.aborts_at;
    if verdict.kind == Kind::Abort {
        assert!(reached, "the number that the sentence names is the one that is used");
    }
    let young = times.now_ms < times.evidence_since_ms + 150 * SECOND;
    if verdict.kind == Kind::Blocked && !young {
        assert!(!reached, "{verdict:?}");
    }
}

/// Every count of members, failed, dark and taken, with and without a control group.
#[test]
fn all_small_counts_are_judged_as_decided() {
    let controls = [(0, 0), (19, 19), (20, 0), (20, 1), (20, 10), (20, 20), (23, 5), (100, 3)];
    for seen in 0..=7_u64 {
        for failed in 0..=seen {
            for dark in 0..=seen - failed {
                for to in [0, seen / 2, seen] {
                    for (all, silent) in controls {
                        for percent in [1, 10, 34, 50, 100] {
                            let row = Counts {
                                seen,
                                to,
                                from: seen - to,
                                failed,
                                dark,
                                ..Counts::default()
                            };
                            let tally = Tally {
                                stages: vec![Counts::default(), row],
                                taken: to.max(dark),
                                long_dark: dark - dark / 3,
                                awaited: (failed + to) % 3,
                                control: Control { seen: all, dark: silent, unobserved: 0 },
                                served_in_tier: seen + all,
                                replicas: 1,
                                ..Tally::default()
                            };
                            let terms = Terms { abort_at_percent: percent, ..terms() };
                            agree(&terms, &tally, &after(25 * HOUR));
                        }
                    }
                }
            }
        }
    }
}

/// Every combination of what decides besides counts.
#[test]
fn the_first_rule_that_holds_wins_in_every_combination() {
    let late = 150 * SECOND;
    let moments = [0, 24 * HOUR - 1, 24 * HOUR, 24 * HOUR + late - 1, 24 * HOUR + late];
    for bits in 0..1 << 9_u32 {
        let is = |bit: u32| bits & 1 << bit != 0;
        let terms = Terms {
            hold: is(0),
            same_content: is(1),
            min_seen: if is(2) { 3 } else { 2 },
            expect_replicas: if is(3) { 2 } else { 1 },
            stage: if is(4) { 2 } else { 1 },
            ..terms()
        };
        for (failed, dark) in [(0, 0), (1, 0), (0, 1)] {
            for (to, foreign) in [(0, 0), (2, 0), (0, 1)] {
                for (served, members) in [(2, 2), (1, 0), (0, 0)] {
                    let row = Counts {
                        seen: members,
                        to: to.min(members),
                        from: members - to.min(members),
                        failed: failed.min(members),
                        dark: dark.min(members),
                        unobserved: u64::from(is(5)).min(members),
                        ..Counts::default()
                    };
                    let tally = Tally {
                        stages: vec![row],
                        taken: to.min(members),
                        foreign: Counts { seen: foreign, to: foreign, ..Counts::default() },
                        served_in_tier: served,
                        overflow: u64::from(is(6)),
                        replicas: 1,
                        braked: is(7),
                        ..Tally::default()
                    };
                    for moment in moments {
                        let mut times = after(moment);
                        if is(8) {
                            times.evidence_since_ms = times.now_ms - 149 * SECOND;
                        }
                        agree(&terms, &tally, &times);
                    }
                }
            }
        }
    }
}

fn class() -> impl Strategy<Value = Class> {
    use Reading::{From, Other, Taking, To, Unknown};
    let seat =
        prop_oneof![(0..2_u16).prop_map(Seat::Stage), Just(Seat::Control), Just(Seat::Outside)];
    (seat, prop::sample::select(vec![Taking, To, From, Other, Unknown]), any::<[bool; 9]>())
        .prop_map(|(seat, arm, flags)| Class {
            counts: flags[0] && seat != Seat::Outside,
            seat,
            foreign: flags[1],
            arm,
            condition: None,
            failed: flags[2],
            dark: flags[3] && !flags[2],
            long_dark: flags[3] && !flags[2] && flags[8],
            unobserved: flags[4],
            left: flags[5],
            control_dark: flags[6],
            heard_since_soak: true,
            taken: flags[7],
            silent_since_ms: None,
            next_ms: None,
        })
}

proptest! {
    #[test]
    fn what_explains_an_outage_is_exact_and_within_bounds(
        dark in 0..1_000_u64, taken in 0..1_000_u64, all in 20..500_u64, share in 0..=100_u64,
    ) {
        let control = Control { seen: all, dark: all * share / 100, unobserved: 0 };
        let expected = dark.saturating_sub(explained(taken, &control));
        prop_assert_eq!(unexplained(dark, taken, &control), expected);
        let vast = Control { seen: u64::MAX, dark: u64::MAX - dark, unobserved: 0 };
        let left_over = unexplained(dark, u64::MAX, &vast);
        prop_assert!(left_over <= dark, "{}", left_over);
    }

    #[test]
    fn taking_classes_in_and_out_equals_counting_who_is_left(
        classes in prop::collection::vec((class(), any::<bool>()), 0..30),
    ) {
        let mut tally = Tally::new(1);
        classes.iter().for_each(|(class, _)| tally.add(class));
        classes.iter().filter(|(_, stays)| !stays).for_each(|(class, _)| tally.remove(class));
        let left: Vec<&Class> =
            classes.iter().filter(|(class, stays)| *stays && class.counts).map(|(class, _)| class).collect();
        let count = |holds: &dyn Fn(&Class) -> bool| left.iter().filter(|class| holds(class)).count() as u64;
        let row = |is_in: &dyn Fn(&Class) -> bool| Counts {
            seen: count(&|class| is_in(class)),
            taking: count(&|class| is_in(class) && class.arm == Reading::Taking),
            to: count(&|class| is_in(class) && class.arm == Reading::To),
            from: count(&|class| is_in(class) && class.arm == Reading::From),
            other: count(&|class| is_in(class) && class.arm == Reading::Other),
            unknown: count(&|class| is_in(class) && class.arm == Reading::Unknown),
            failed: count(&|class| is_in(class) && class.failed),
            dark: count(&|class| is_in(class) && class.dark),
            unobserved: count(&|class| is_in(class) && class.unobserved),
            left: count(&|class| is_in(class) && class.left),
        };
        let member = |class: &Class| matches!(class.seat, Seat::Stage(_)) && !class.foreign;
        let control = |class: &Class| class.seat == Seat::Control;
        prop_assert_eq!(tally, Tally {
            stages: vec![
                row(&|class| member(class) && class.seat == Seat::Stage(0)),
                row(&|class| member(class) && class.seat == Seat::Stage(1)),
            ],
            taken: count(&|class| member(class) && class.taken),
            long_dark: count(&|class| member(class) && class.long_dark),
            control: Control {
                seen: count(&control),
                dark: count(&|class| control(class) && class.control_dark),
                unobserved: count(&|class| control(class) && class.unobserved),
            },
            foreign: row(&|class| matches!(class.seat, Seat::Stage(_)) && class.foreign),
            served_in_tier: count(&|class| member(class) || control(class)),
            ..Tally::default()
        });
    }
}
