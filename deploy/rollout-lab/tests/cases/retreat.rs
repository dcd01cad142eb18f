//! T28 to T32 and T65: where a rollback goes, and whether it arrives.

use rollout_lab::error::Kind;
use rollout_lab::fleet::{Fleet, IMAGE_FROM};
use rollout_lab::status::{DeploymentStatus, TaskStatus as S};
use rollout_lab::{Rules, Switch};

use crate::setup::{LIMITS, counts, fleet, heal, only, pass, play, refused, report, status};

fn rollback(fleet: &mut Fleet) -> rollout_lab::records::Deployment {
    fleet.store.rollback_service(&fleet.context, fleet.service).unwrap()
}

/// A rollout of 0/1 that fails after so many completed cohorts.
fn failed_after(cohorts: usize, rules: Rules) -> Fleet {
    let mut fleet = fleet(3, rules);
    fleet.rollout(LIMITS).unwrap();
    for _ in 0..cohorts {
        pass(&mut fleet);
        heal(&mut fleet);
        pass(&mut fleet);
        fleet.acknowledge().unwrap();
    }
    pass(&mut fleet);
    fleet.schedule().unwrap();
    let target = only(&fleet, |task| task.version == 2 && task.actual == S::Assigned);
    report(&mut fleet, target, S::Failed).unwrap();
    pass(&mut fleet);
    assert_eq!(status(&fleet), DeploymentStatus::Failed);
    fleet
}

#[test]
fn t28_there_must_be_a_version_to_go_back_to() {
    let mut fleet = fleet(3, Rules::baseline());
    let service = fleet.service;
    refused(fleet.store.rollback_service(&fleet.context, service), Kind::InvalidState);
}

#[test]
fn t29_t32_a_rollback_leaves_the_failure_as_it_was() {
    let mut fleet = failed_after(0, Rules::baseline());
    let failed = fleet.deployment().unwrap().clone();
    let back = rollback(&mut fleet);
    assert_eq!((back.from_version, back.to_version), (2, 1));
    assert_eq!((back.limits.max_unavailable, back.limits.max_surge), (1, 0));
    assert_eq!(back.status, DeploymentStatus::RollingBack);
    assert!(back.started_at.is_some() && back.id != failed.id);
    assert_eq!(*fleet.store.deployment(&fleet.context, failed.id).unwrap(), failed);
    assert_eq!(fleet.store.deployments().count(), 2);
    let service = fleet.store.service(&fleet.context, fleet.service).unwrap();
    assert_eq!((service.version, service.spec.image.requested.as_str()), (1, IMAGE_FROM));
}

#[test]
fn t30_t31_the_newest_version_that_was_reached() {
    // With the baseline's own budget the first rollback would stall, and hold the lock.
    let mut fleet = fleet(3, Rules::baseline().with(Switch::InheritLimits));
    fleet.rollout(LIMITS).unwrap();
    play(&mut fleet, true);
    let third = "nginx:1.29-alpine";
    fleet.store.rollout_service(&fleet.context, fleet.service, third, LIMITS).unwrap();
    pass(&mut fleet);
    fleet.schedule().unwrap();
    let target = only(&fleet, |task| task.version == 3);
    report(&mut fleet, target, S::Failed).unwrap();
    pass(&mut fleet);
    let back = rollback(&mut fleet);
    assert_eq!((back.from_version, back.to_version), (3, 2));
    play(&mut fleet, true);
    assert_eq!(status(&fleet), DeploymentStatus::RolledBack);
    let further = rollback(&mut fleet);
    assert_eq!((further.from_version, further.to_version), (2, 1));
}

#[test]
fn t65_rollback_outcomes_of_the_baseline() {
    use DeploymentStatus::{RolledBack, RollingBack};
    // Cohorts; old and new active, new healthy and old gone at the start; end; least available.
    for (cohorts, start, ends, least) in [
        (0, (0, 3, 3, 1), RolledBack, 3),
        (1, (1, 2, 2, 1), RolledBack, 2),
        (2, (2, 1, 1, 1), RollingBack, 3),
    ] {
        let mut fleet = failed_after(cohorts, Rules::baseline());
        rollback(&mut fleet);
        let seen = counts(&fleet);
        assert_eq!((seen.old, seen.new, seen.new_healthy, seen.old_gone), start);
        if cohorts == 0 {
            pass(&mut fleet);
            assert_eq!(status(&fleet), RolledBack, "on the first pass");
        }
        let played = play(&mut fleet, true);
        assert_eq!((status(&fleet), played.min_available), (ends, least), "{cohorts}");
    }
    let mut complete = fleet(3, Rules::baseline());
    complete.rollout(LIMITS).unwrap();
    play(&mut complete, true);
    rollback(&mut complete);
    play(&mut complete, true);
    assert_eq!(status(&complete), RollingBack);
}

#[test]
fn t65_strict_arrives_every_time() {
    for cohorts in 0..=2 {
        let mut fleet = failed_after(cohorts, Rules::strict());
        assert_eq!(rollback(&mut fleet).limits, LIMITS);
        let played = play(&mut fleet, true);
        assert_eq!(status(&fleet), DeploymentStatus::RolledBack, "{cohorts}");
        assert_eq!(
            (played.min_available, played.max_processes),
            (3, if cohorts == 0 { 3 } else { 4 })
        );
    }
    let mut complete = fleet(3, Rules::strict());
    complete.rollout(LIMITS).unwrap();
    play(&mut complete, true);
    rollback(&mut complete);
    play(&mut complete, true);
    assert_eq!(status(&complete), DeploymentStatus::RolledBack);
}

#[test]
fn a_failed_task_of_the_first_version_fails_the_baselines_rollback() {
    for (rules, ends) in [
        (Rules::baseline(), DeploymentStatus::Failed),
        (Rules::strict(), DeploymentStatus::RolledBack),
    ] {
        let mut fleet = fleet(3, rules);
        let old = fleet.ids(|_| true)[0];
        fleet.rollout(LIMITS).unwrap();
        pass(&mut fleet);
        fleet.schedule().unwrap();
        let target = only(&fleet, |task| task.version == 2);
        report(&mut fleet, old, S::Failed).unwrap();
        report(&mut fleet, target, S::Failed).unwrap();
        pass(&mut fleet);
        rollback(&mut fleet);
        play(&mut fleet, true);
        assert_eq!(status(&fleet), ends);
    }
}
