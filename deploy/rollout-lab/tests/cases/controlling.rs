//! T47 to T64 and T67 to T72: what a pass does.

use rollout_lab::controller::{self, Block, Decision};
use rollout_lab::fleet::{BEGINNING, Fleet, IMAGE_FROM, IMAGE_TO, Setup};
use rollout_lab::lab::{self, Settings};
use rollout_lab::records::{Context, RestartCondition, ServiceSpec};
use rollout_lab::rules::PROGRESS_SECONDS;
use rollout_lab::status::{DeploymentStatus, TaskStatus as S};
use rollout_lab::store::Heartbeat;
use rollout_lab::{Clock, MemoryStore, Rules, Switch};

use crate::setup::{
    LIMITS, active, baseline, counts, fleet, heal, limits, only, pass, play, report, restarting,
    row, status, task,
};

#[test]
fn t47_the_seven_checkpoints() {
    let settings = Settings { seed: 1, mode: "baseline".to_owned(), rules: Rules::baseline() };
    let seen = lab::run(&settings).unwrap();
    let rows: Vec<_> = seen
        .checkpoints
        .iter()
        .map(|row| {
            let counters = [
                row.old_active,
                row.target_active,
                row.target_healthy,
                row.pending_stop,
                row.modeled_available,
                row.surge_bound,
            ];
            (row.checkpoint.as_str(), counters, row.deployment_status.as_str(), row.pass)
        })
        .collect();
    assert_eq!(
        rows,
        [
            ("requested", [3, 0, 0, 0, 3, 4], "pending", 0),
            ("target-created", [3, 1, 0, 0, 3, 4], "running", 1),
            ("capacity-exhausted", [3, 1, 0, 0, 3, 4], "running", 2),
            ("running-but-not-healthy", [3, 1, 0, 0, 3, 4], "running", 3),
            ("healthy-pass-1", [2, 1, 1, 1, 3, 4], "running", 4),
            ("healthy-pass-2", [1, 2, 2, 1, 3, 4], "running", 6),
            ("healthy-pass-3", [0, 3, 3, 1, 3, 4], "succeeded", 8),
        ]
    );
    let scheduled: Vec<i64> =
        seen.passes.iter().filter(|row| row.actor == "scheduler").map(|row| row.assigned).collect();
    assert_eq!(scheduled, [0, 1, 1, 1]);
}

#[test]
fn t48_a_waiting_target_stays_the_only_one() {
    let setup = Setup { node_cpu: 300, ..Setup::of(3, 7, Rules::baseline()) };
    let mut fleet = Fleet::healthy(setup).unwrap();
    fleet.rollout(LIMITS).unwrap();
    pass(&mut fleet);
    for _ in 0..10 {
        fleet.schedule().unwrap();
        let handled = pass(&mut fleet);
        assert_eq!(handled.decision, Decision::Wait);
        assert_eq!(handled.blocks[0], Block::Ceiling { charged: 4, ceiling: 4 });
    }
    assert_eq!(row(&fleet), [3, 1, 0, 0, 3]);
}

#[test]
fn t49_success_needs_no_acknowledgement() {
    let mut fleet = baseline(3);
    fleet.rollout(LIMITS).unwrap();
    let mut seen = Vec::new();
    for _ in 0..3 {
        pass(&mut fleet);
        heal(&mut fleet);
        pass(&mut fleet);
        seen.push((counts(&fleet).pending_stop, counts(&fleet).processes));
    }
    assert_eq!(seen, [(1, 4), (2, 5), (3, 6)]);
    assert_eq!(status(&fleet), DeploymentStatus::Succeeded);
}

#[test]
fn strict_waits_for_every_acknowledgement() {
    let mut fleet = fleet(3, Rules::strict());
    fleet.rollout(LIMITS).unwrap();
    let played = play(&mut fleet, false);
    assert_eq!((status(&fleet), played.max_processes), (DeploymentStatus::Running, 4));
    assert_eq!(row(&fleet), [2, 1, 1, 1, 3]);
    let played = play(&mut fleet, true);
    assert_eq!((status(&fleet), played.max_processes), (DeploymentStatus::Succeeded, 4));

    let mut eager = crate::setup::fleet(3, Rules::strict().without(Switch::Acknowledge));
    eager.rollout(LIMITS).unwrap();
    play(&mut eager, true);
    let counts = counts(&eager);
    assert_eq!((status(&eager), counts.old_processes), (DeploymentStatus::Succeeded, 0));
}

#[test]
fn t51_t52_t53_t54_passes_by_budget() {
    use DeploymentStatus::{Running, Succeeded};
    // R, U, S; status, passes, min available, max active, max processes acknowledged and not.
    for (r, u, s, ends, passes, available, most, acknowledged, never) in [
        (1, 0, 1, Succeeded, 2, 1, 2, 2, 2),
        (2, 1, 1, Succeeded, 4, 2, 3, 3, 4),
        (3, 0, 1, Succeeded, 6, 3, 4, 4, 6),
        (3, 1, 1, Succeeded, 6, 3, 4, 4, 6),
        (3, 0, 3, Succeeded, 2, 3, 6, 6, 6),
        (4, 1, 2, Succeeded, 4, 4, 6, 6, 8),
        (3, 1, 0, Running, 0, 3, 3, 3, 3),
        (3, 3, 0, Running, 0, 3, 3, 3, 3),
    ] {
        for (acknowledge, processes) in [(true, acknowledged), (false, never)] {
            let mut fleet = baseline(r);
            fleet.rollout(limits(u, s)).unwrap();
            let played = play(&mut fleet, acknowledge);
            let seen = (status(&fleet), played.passes, played.min_available, played.max_active);
            assert_eq!(seen, (ends, passes, available, most), "{r} {u} {s}");
            assert_eq!(played.max_processes, processes, "{r} {u} {s} {acknowledge}");
        }
    }
}

#[test]
fn t53_strict_stops_first_when_there_is_no_surge() {
    for u in 1..=3 {
        let mut fleet = fleet(3, Rules::strict());
        fleet.rollout(limits(u, 0)).unwrap();
        let played = play(&mut fleet, true);
        assert_eq!(status(&fleet), DeploymentStatus::Succeeded);
        assert_eq!((played.min_available, played.max_active), (3 - u, 3));
    }
    let mut without = fleet(3, Rules::strict().without(Switch::StopFirst));
    without.rollout(limits(1, 0)).unwrap();
    play(&mut without, true);
    assert_eq!(status(&without), DeploymentStatus::Running);
}

#[test]
fn t59_a_failed_target_ends_it_and_touches_no_old_task() {
    let mut fleet = baseline(3);
    fleet.rollout(LIMITS).unwrap();
    pass(&mut fleet);
    fleet.schedule().unwrap();
    let target = only(&fleet, |task| task.version == 2);
    report(&mut fleet, target, S::Failed).unwrap();
    let handled = pass(&mut fleet);
    assert_eq!((handled.decision, handled.status), (Decision::Fail, DeploymentStatus::Failed));
    assert_eq!((active(&fleet, 1), counts(&fleet).pending_stop), (3, 0));
    assert!(fleet.deployment().unwrap().completed_at.is_some());
    assert!(fleet.pass().handled.is_empty());
}

#[test]
fn t60_t61_an_unhealthy_target() {
    for (restart, after) in [
        (RestartCondition::OnFailure, DeploymentStatus::Failed),
        (RestartCondition::Never, DeploymentStatus::Running),
    ] {
        let mut fleet = restarting(3, restart);
        fleet.rollout(LIMITS).unwrap();
        pass(&mut fleet);
        fleet.schedule().unwrap();
        let target = only(&fleet, |task| task.version == 2);
        report(&mut fleet, target, S::Running).unwrap();
        report(&mut fleet, target, S::Unhealthy).unwrap();
        let handled = pass(&mut fleet);
        assert_eq!(handled.status, after);
        if restart == RestartCondition::Never {
            assert_eq!(handled.decision, Decision::Wait);
            report(&mut fleet, target, S::Healthy).unwrap();
            assert_eq!(pass(&mut fleet).decision, Decision::Stop);
        }
    }
}

#[test]
fn t63_no_replicas_succeed_on_the_first_pass() {
    let mut fleet = baseline(0);
    fleet.rollout(LIMITS).unwrap();
    assert_eq!(pass(&mut fleet).decision, Decision::Complete);
    let deployment = fleet.deployment().unwrap();
    assert_eq!(deployment.status, DeploymentStatus::Succeeded);
    assert_eq!(deployment.started_at, None);
}

#[test]
fn t64_a_target_that_only_runs_is_waited_for() {
    let mut fleet = baseline(3);
    fleet.rollout(LIMITS).unwrap();
    pass(&mut fleet);
    fleet.schedule().unwrap();
    let target = only(&fleet, |task| task.version == 2);
    report(&mut fleet, target, S::Running).unwrap();
    for _ in 0..20 {
        assert_eq!(pass(&mut fleet).decision, Decision::Wait);
    }
    assert_eq!(row(&fleet), [3, 1, 0, 0, 3]);
}

#[test]
fn a_healthy_target_that_turns_unhealthy_is_not_compensated() {
    let mut fleet = baseline(3);
    fleet.rollout(LIMITS).unwrap();
    pass(&mut fleet);
    heal(&mut fleet);
    pass(&mut fleet);
    let target = only(&fleet, |task| task.version == 2);
    report(&mut fleet, target, S::Unhealthy).unwrap();
    pass(&mut fleet);
    heal(&mut fleet);
    assert_eq!(counts(&fleet).available(), 3, "the next target stands in");
    assert_eq!(pass(&mut fleet).stopped, 0, "no further stop until it recovers");
    report(&mut fleet, target, S::Healthy).unwrap();
    assert_eq!(pass(&mut fleet).stopped, 1);
}

#[test]
fn an_old_task_that_fails_is_replaced_without_a_stop() {
    let mut fleet = baseline(3);
    fleet.rollout(LIMITS).unwrap();
    pass(&mut fleet);
    let victim = fleet.ids(|task| task.version == 1)[0];
    report(&mut fleet, victim, S::Failed).unwrap();
    assert_eq!(pass(&mut fleet).created, 1, "one extra target");
    heal(&mut fleet);
    assert_eq!(pass(&mut fleet).stopped, 1, "two healthy targets, one of them for the failed task");
}

fn failed_rollout(rules: Rules) -> Fleet {
    let mut fleet = fleet(3, rules);
    fleet.rollout(LIMITS).unwrap();
    pass(&mut fleet);
    fleet.schedule().unwrap();
    let target = only(&fleet, |task| task.version == 2);
    report(&mut fleet, target, S::Failed).unwrap();
    pass(&mut fleet);
    assert_eq!(status(&fleet), DeploymentStatus::Failed);
    fleet
}

fn beat(fleet: &mut Fleet) {
    let node = fleet.node;
    fleet.store.heartbeat(&Context::default(), node, Heartbeat::default()).unwrap();
}

#[test]
fn t67_the_heartbeat_after_a_failure() {
    let mut fleet = failed_rollout(Rules::baseline());
    beat(&mut fleet);
    assert_eq!(active(&fleet, 1), 0, "every healthy old task is told to go");
    let started = fleet.ids(|task| task.version == 2 && task.is_active());
    assert_eq!(started.len(), 3, "the failed version starts everywhere");
    assert!(started.iter().all(|id| task(&fleet, *id).actual == S::Assigned));

    let mut strict = failed_rollout(Rules::strict());
    beat(&mut strict);
    assert_eq!((active(&strict, 1), active(&strict, 2)), (3, 0));
    strict.store.rollback_service(&strict.context, strict.service).unwrap();
    play(&mut strict, true);
    assert_eq!(status(&strict), DeploymentStatus::RolledBack);
    beat(&mut strict);
    assert_eq!(active(&strict, 1), 3);
}

#[test]
fn t68_version_numbers_are_used_again() {
    for (rules, to, ends) in [
        (Rules::baseline(), 2, DeploymentStatus::Failed),
        (Rules::strict(), 3, DeploymentStatus::Succeeded),
    ] {
        let mut fleet = failed_rollout(rules);
        fleet.store.rollback_service(&fleet.context, fleet.service).unwrap();
        play(&mut fleet, true);
        assert_eq!(status(&fleet), DeploymentStatus::RolledBack);
        let again = fleet.rollout(LIMITS).unwrap();
        assert_eq!((again.from_version, again.to_version), (1, to));
        play(&mut fleet, true);
        assert_eq!(status(&fleet), ends, "the failed task of the first attempt is still there");
    }
}

#[test]
fn t69_a_third_version_over_a_failed_second() {
    let mut fleet = failed_rollout(Rules::baseline());
    fleet.rollout(LIMITS).unwrap();
    assert_eq!(pass(&mut fleet).created, 3, "the live first version is invisible");
    heal(&mut fleet);
    assert_eq!(counts(&fleet).processes, 6);
    pass(&mut fleet);
    assert_eq!((status(&fleet), active(&fleet, 1)), (DeploymentStatus::Succeeded, 3));
    beat(&mut fleet);
    assert_eq!(active(&fleet, 1), 0);

    let mut strict = failed_rollout(Rules::strict());
    strict.rollout(LIMITS).unwrap();
    let played = play(&mut strict, true);
    assert_eq!((status(&strict), active(&strict, 1)), (DeploymentStatus::Succeeded, 0));
    assert_eq!((played.min_available, played.max_processes), (3, 4));
}

#[test]
fn t70_an_error_in_one_deployment() {
    for (rules, reached) in [(Rules::baseline(), false), (Rules::strict(), true)] {
        let mut fleet = fleet(1, rules);
        fleet.rollout(LIMITS).unwrap();
        let context = fleet.context.clone();
        let spec = ServiceSpec::new("younger", IMAGE_FROM, 1).unwrap();
        let younger = fleet.store.create_service(&context, spec).unwrap();
        fleet.store.rollout_service(&context, younger, IMAGE_TO, LIMITS).unwrap();
        fleet.store.make_unreadable(fleet.service);
        let pass = fleet.pass();
        assert_eq!(pass.errors.len(), 1);
        assert_eq!((pass.handled.len(), pass.skipped), if reached { (1, 0) } else { (0, 1) });
        assert!(fleet.store.events().iter().any(|event| event.kind == "rollout.error"));
    }
}

#[test]
fn t71_t72_a_controller_keeps_nothing_and_a_store_everything() {
    let mut fleet = baseline(3);
    fleet.rollout(LIMITS).unwrap();
    let before = fleet.store.objects();
    let moved = std::mem::replace(
        &mut fleet.store,
        MemoryStore::new(Clock::new(BEGINNING, 1), 7, Rules::baseline()),
    );
    assert_eq!(fleet.store.objects(), 0);
    assert!(controller::pass(&mut fleet.store).handled.is_empty());
    fleet.store = moved;
    assert_eq!(fleet.store.objects(), before);
    play(&mut fleet, true);
    assert_eq!(status(&fleet), DeploymentStatus::Succeeded);
}

#[test]
fn the_deadline_reports_each_standstill_once_and_decides_nothing() {
    let setup = Setup { node_cpu: 300, ..Setup::of(3, 7, Rules::strict()) };
    let mut fleet = Fleet::healthy(setup).unwrap();
    fleet.rollout(LIMITS).unwrap();
    pass(&mut fleet);
    let reports = |fleet: &Fleet| {
        let kind = "rollout.progress_deadline";
        fleet.store.events().iter().filter(|event| event.kind == kind).count()
    };
    let mut at = BEGINNING;
    for expected in [0, 1, 1] {
        pass(&mut fleet);
        assert_eq!(reports(&fleet), expected);
        at = at.plus_seconds(PROGRESS_SECONDS + 1);
        fleet.store.clock_mut().set(at);
    }
    assert_eq!(status(&fleet), DeploymentStatus::Running);
}
