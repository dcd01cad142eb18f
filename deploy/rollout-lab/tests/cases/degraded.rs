//! T55 to T57: what unhealthy and historic old tasks do to a rollout.

use rollout_lab::Rules;
use rollout_lab::fleet::Fleet;
use rollout_lab::status::{DeploymentStatus, TaskStatus as S};
use rollout_lab::store::NewTask;

use crate::setup::{LIMITS, baseline, fleet, limits, play, row, status};

/// Plays a rollout whose old tasks at these places (by id) are unhealthy and stay so.
fn with_unhealthy(places: &[usize], r: i64, u: i64, s: i64, rules: Rules) -> (Fleet, bool) {
    let mut fleet = fleet(r, rules);
    let ids = fleet.ids(|_| true);
    for at in places {
        fleet.report(ids[*at], S::Unhealthy).unwrap();
    }
    let before = ids.len() - places.len();
    fleet.rollout(limits(u, s)).unwrap();
    let played = play(&mut fleet, true);
    if rules == Rules::strict() {
        assert!(played.min_available >= i64::try_from(before).unwrap().min(r - u));
    }
    let done = status(&fleet) == DeploymentStatus::Succeeded;
    (fleet, done)
}

#[test]
fn t55_t56_unhealthy_old_tasks() {
    let baseline = Rules::baseline();
    for place in 0..3 {
        let (fleet, done) = with_unhealthy(&[place], 3, 0, 1, baseline);
        assert!(!done);
        assert_eq!(row(&fleet), [3, 1, 1, 0, 3]);
        assert!(with_unhealthy(&[place], 3, 1, 1, baseline).1);
    }
    assert!(!with_unhealthy(&[0, 2], 3, 1, 1, baseline).1);
    assert!(with_unhealthy(&[0, 1, 2], 3, 3, 1, baseline).1);
    let (smallest, done) = with_unhealthy(&[0], 3, 0, 2, baseline);
    assert!(!done);
    assert_eq!((row(&smallest)[0], row(&smallest)[2]), (1, 3), "the unhealthy one is left");
    assert!(with_unhealthy(&[1], 3, 0, 2, baseline).1);
    assert!(with_unhealthy(&[2], 3, 0, 2, baseline).1);
}

/// Every placement of unhealthy old tasks for R up to 5, U up to R, S up to 4: the baseline's exact
/// rule, and that strict always arrives.
#[test]
fn the_exact_rule_of_degraded_starts() {
    let mut seen = 0;
    for r in 1_i64..=5 {
        for u in 0..=r {
            for s in 1..=4 {
                for mask in 0_u32..1 << r {
                    let places: Vec<usize> =
                        (0..r as usize).filter(|at| mask & 1 << at != 0).collect();
                    let sick = places.len() as i64;
                    let (_, done) = with_unhealthy(&places, r, u, s, Rules::baseline());
                    let room = u + s.min(r) - 1;
                    if sick == 0 || (u >= 1 && sick <= room) {
                        assert!(done, "{r} {u} {s} {places:?}");
                    } else if sick > room {
                        assert!(!done, "{r} {u} {s} {places:?}");
                    } else if places.iter().all(|at| *at < places.len()) {
                        assert!(!done, "smallest ids: {r} {u} {s} {places:?}");
                    } else if places.iter().all(|at| *at >= r as usize - places.len()) {
                        assert!(done, "largest ids: {r} {u} {s} {places:?}");
                    }
                    let (_, strict) = with_unhealthy(&places, r, u, s, Rules::strict());
                    assert!(strict, "strict {r} {u} {s} {places:?}");
                    seen += 1;
                }
            }
            if u > 0 {
                let (_, strict) = with_unhealthy(&[], r, u, 0, Rules::strict());
                assert!(strict, "strict {r} {u} 0");
                let (_, sick) = with_unhealthy(&[0], r, u, 0, Rules::strict());
                assert!(sick, "strict {r} {u} 0, one unhealthy");
            }
        }
    }
    assert_eq!(seen, 4 * (2 * 2 + 3 * 4 + 4 * 8 + 5 * 16 + 6 * 32));
}

#[test]
fn t57_historic_dead_tasks_of_the_old_version() {
    for r in 1..=6 {
        for (u, s) in (0..=r).flat_map(|u| (1..=3).map(move |s| (u, s))) {
            for (rules, arrives) in [(Rules::baseline(), false), (Rules::strict(), true)] {
                let mut fleet = fleet(r, rules);
                let history = NewTask {
                    service: fleet.service,
                    version: 1,
                    desired: S::Removed,
                    actual: S::Removed,
                    node: Some(fleet.node),
                };
                fleet.store.create_task(&fleet.context, &history).unwrap();
                fleet.rollout(limits(u, s)).unwrap();
                play(&mut fleet, true);
                let done = status(&fleet) == DeploymentStatus::Succeeded;
                assert_eq!(done, arrives, "{r} {u} {s}");
            }
        }
    }
    let mut stalled = baseline(3);
    let history =
        NewTask { desired: S::Removed, actual: S::Removed, ..NewTask::pending(stalled.service, 1) };
    stalled.store.create_task(&stalled.context, &history).unwrap();
    stalled.rollout(LIMITS).unwrap();
    play(&mut stalled, true);
    assert_eq!(row(&stalled), [3, 1, 1, 0, 4]);
}
