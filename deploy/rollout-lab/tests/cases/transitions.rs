//! T1 to T11: which steps are legal, what is active, what an agent may report.

use rollout_lab::error::Kind;
use rollout_lab::records::RestartCondition;
use rollout_lab::status::{DeploymentStatus, NodeStatus, ServiceStatus, TaskStatus as S};
use rollout_lab::store::NewTask;
use rollout_lab::time::Id;

use crate::setup::{baseline, refused, report, restarting, task};

#[test]
fn t1_t2_actual_steps() {
    for (from, to) in [(S::Pending, S::Assigned), (S::Failed, S::Removed), (S::Failed, S::Failed)] {
        from.step(to).unwrap();
    }
    for (from, to) in [(S::Pending, S::Running), (S::Failed, S::Running), (S::Removed, S::Stopped)]
    {
        refused(from.step(to), Kind::InvalidState);
    }
}

#[test]
fn the_table_of_actual_steps_is_the_specification() {
    let table = "pending assigned stopped removed failed
        assigned pulling created running healthy unhealthy stopping stopped removed failed
        pulling created running stopping stopped removed failed
        created starting running stopping stopped removed failed
        starting running stopping stopped removed failed
        running healthy unhealthy stopping stopped removed failed
        healthy running unhealthy stopping stopped removed failed
        unhealthy running healthy stopping stopped removed failed
        stopping stopped removed failed
        stopped removed
        failed removed
        removed";
    for line in table.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let from = S::ALL.iter().find(|status| status.as_str() == words[0]).unwrap();
        for to in S::ALL {
            let legal = words.contains(&to.as_str());
            assert_eq!(from.step(*to).is_ok(), legal, "{from} to {to}");
        }
    }
}

#[test]
fn t3_desired_steps() {
    refused(S::Stopped.step_desired(S::Running), Kind::InvalidState);
    refused(S::Removed.step_desired(S::Stopped), Kind::InvalidState);
    for (from, to) in [(S::Running, S::Removed), (S::Stopped, S::Removed), (S::Stopped, S::Stopped)]
    {
        from.step_desired(to).unwrap();
    }
}

#[test]
fn t4_deployment_steps() {
    use DeploymentStatus::{Failed, Pending, RolledBack, Running, Succeeded};
    refused(Succeeded.step(Failed), Kind::InvalidState);
    refused(RolledBack.step(Running), Kind::InvalidState);
    Pending.step(Succeeded).unwrap();
    Pending.step(Failed).unwrap();
}

#[test]
fn t5_node_and_service_steps() {
    refused(NodeStatus::Offline.step(NodeStatus::Draining), Kind::InvalidState);
    NodeStatus::Offline.step(NodeStatus::Ready).unwrap();
    refused(ServiceStatus::Active.step(ServiceStatus::Deleted), Kind::InvalidState);
}

#[test]
fn t6_what_is_active() {
    let fleet = baseline(1);
    let mut task = task(&fleet, fleet.ids(|_| true)[0]);
    for (desired, actual, active) in [
        (S::Stopped, S::Healthy, false),
        (S::Running, S::Unhealthy, true),
        (S::Running, S::Stopping, true),
        (S::Running, S::Failed, false),
    ] {
        (task.desired, task.actual) = (desired, actual);
        assert_eq!(task.is_active(), active, "{desired} {actual}");
    }
}

#[test]
fn t7_a_task_told_to_stop_may_only_end() {
    let mut fleet = baseline(2);
    let ids = fleet.ids(|_| true);
    for id in &ids {
        report(&mut fleet, *id, S::Running).unwrap();
        let token = task(&fleet, *id).token();
        fleet.store.stop_task(&fleet.context, *id, token).unwrap();
        refused(report(&mut fleet, *id, S::Running), Kind::InvalidState);
    }
    report(&mut fleet, ids[0], S::Removed).unwrap();
    report(&mut fleet, ids[1], S::Failed).unwrap();
    refused(report(&mut fleet, ids[0], S::Stopped), Kind::InvalidState);
}

#[test]
fn t8_a_task_that_failed_by_itself_stays_so() {
    let mut fleet = baseline(1);
    let id = fleet.ids(|_| true)[0];
    report(&mut fleet, id, S::Failed).unwrap();
    let (held, events) = (task(&fleet, id), fleet.store.events().len());
    refused(report(&mut fleet, id, S::Healthy), Kind::InvalidState);
    refused(report(&mut fleet, id, S::Removed), Kind::InvalidState);
    report(&mut fleet, id, S::Failed).unwrap();
    assert_eq!(task(&fleet, id), held);
    assert_eq!(fleet.store.events().len(), events);
}

#[test]
fn t9_t10_what_agents_may_not_report() {
    let mut fleet = baseline(1);
    let id = fleet.ids(|_| true)[0];
    for status in [S::Assigned, S::Stopping, S::Pending, S::Starting] {
        refused(report(&mut fleet, id, status), Kind::InvalidState);
    }
    let elsewhere = Id::from_bits(99);
    let unknown = refused(report(&mut fleet, elsewhere, S::Healthy), Kind::NotFound);
    assert!(unknown.to_string().starts_with("task "));
    let unplaced = NewTask::pending(fleet.service, 1);
    let unplaced = fleet.store.create_task(&fleet.context, &unplaced).unwrap();
    refused(report(&mut fleet, unplaced, S::Healthy), Kind::InvalidState);
    fleet.node = elsewhere;
    refused(report(&mut fleet, id, S::Healthy), Kind::InvalidState);
}

#[test]
fn t11_unhealthy_is_failed_unless_nothing_restarts() {
    for (restart, stored) in [
        (RestartCondition::Never, S::Unhealthy),
        (RestartCondition::OnFailure, S::Failed),
        (RestartCondition::Always, S::Failed),
        (RestartCondition::Unset, S::Failed),
    ] {
        let mut fleet = restarting(1, restart);
        let id = fleet.ids(|_| true)[0];
        report(&mut fleet, id, S::Unhealthy).unwrap();
        let held = task(&fleet, id);
        assert_eq!(held.actual, stored, "{restart:?}");
        assert_eq!(held.failure_reason.is_empty(), stored == S::Unhealthy);
        assert_eq!(held.finished_at.is_some(), stored == S::Failed);
    }
}
