//! T12 to T33: the store's operations, locks and guards; and nodes.

use rollout_lab::error::Kind;
use rollout_lab::fleet::{BEGINNING, Fleet, IMAGE_FROM, IMAGE_TO, NODE_MEMORY, Setup};
use rollout_lab::records::{Context, Resources, RestartCondition, ServiceSpec};
use rollout_lab::status::{DeploymentStatus, NodeStatus, ServiceStatus, TaskStatus as S};
use rollout_lab::store::{Heartbeat, NewTask, Registration};
use rollout_lab::time::Id;
use rollout_lab::{Clock, MemoryStore, Rules, Switch};

use crate::setup::{
    LIMITS, active, baseline, busy, fleet, heal, limits, only, pass, play, refused, report, status,
    task,
};

fn rollout_kind(fleet: &mut Fleet, image: &str, u: i64, s: i64) -> Option<Kind> {
    let service = fleet.service;
    let result = fleet.store.rollout_service(&Context::default(), service, image, limits(u, s));
    result.err().map(|error| error.kind())
}

fn version(fleet: &Fleet) -> i64 {
    fleet.store.service(&fleet.context, fleet.service).unwrap().version
}

#[test]
fn t12_bad_limits_and_images() {
    let mut fleet = baseline(1);
    for (image, u, s) in
        [("  ", 0, 1), (IMAGE_TO, -1, 1), (IMAGE_TO, 1, -1), (IMAGE_TO, 0, 0), ("a b", 0, 1)]
    {
        assert_eq!(
            rollout_kind(&mut fleet, image, u, s),
            Some(Kind::InvalidState),
            "{image} {u} {s}"
        );
    }
    assert_eq!(rollout_kind(&mut fleet, IMAGE_TO, 1, 0), None);
}

#[test]
fn t13_unknown_and_foreign_services() {
    let mut fleet = baseline(1);
    let elsewhere = Context { namespace: Some("elsewhere".to_owned()), ..Context::default() };
    let here = Context::default();
    for (context, id) in [(&here, Id::from_bits(1)), (&elsewhere, fleet.service)] {
        let store = &mut fleet.store;
        refused(store.rollout_service(context, id, IMAGE_TO, LIMITS), Kind::NotFound);
        refused(store.rollback_service(context, id), Kind::NotFound);
        refused(store.scale_service(context, id, 1), Kind::NotFound);
        refused(store.delete_service(context, id), Kind::NotFound);
    }
    let gone = Context { cancelled: true, ..Context::default() };
    refused(fleet.store.scale_service(&gone, fleet.service, 1), Kind::Cancelled);
}

#[test]
fn t14_t15_t16_a_rollout_asked_for_again() {
    let mut fleet = baseline(3);
    let first = fleet.rollout(LIMITS).unwrap();
    let again = fleet.rollout(LIMITS).unwrap();
    assert_eq!(first.id, again.id);
    assert_eq!((fleet.store.deployments().count(), version(&fleet)), (1, 2));
    busy(fleet.rollout(limits(1, 1)), "rollout");
    let other = "nginx:1.29-alpine";
    busy(fleet.store.rollout_service(&fleet.context, fleet.service, other, LIMITS), "rollout");
}

#[test]
fn t17_t18_t19_rollback_and_rollout_exclude_each_other() {
    let mut fleet = baseline(3);
    fleet.rollout(LIMITS).unwrap();
    busy(fleet.store.rollback_service(&fleet.context, fleet.service), "rollout");
    play(&mut fleet, true);
    let back = fleet.store.rollback_service(&fleet.context, fleet.service).unwrap();
    let again = fleet.store.rollback_service(&fleet.context, fleet.service).unwrap();
    assert_eq!(back.id, again.id);
    busy(fleet.rollout(LIMITS), "rollback");
    busy(fleet.store.scale_service(&fleet.context, fleet.service, 3), "rollback");
}

#[test]
fn t20_t21_scaling() {
    let mut fleet = baseline(3);
    fleet.rollout(LIMITS).unwrap();
    let service = fleet.service;
    busy(fleet.store.scale_service(&fleet.context, service, 3), "rollout");
    refused(fleet.store.scale_service(&fleet.context, service, -1), Kind::InvalidState);
    let mut idle = baseline(3);
    idle.store.scale_service(&idle.context, idle.service, 5).unwrap();
    assert_eq!(active(&idle, 1), 5);
    idle.settle().unwrap();
    idle.store.scale_service(&idle.context, idle.service, 2).unwrap();
    assert_eq!(active(&idle, 1), 2);
    assert_eq!(idle.ids(|task| task.desired == S::Removed).len(), 3);
}

#[test]
fn t22_deletion_wins() {
    for back in [false, true] {
        let mut fleet = baseline(3);
        fleet.rollout(LIMITS).unwrap();
        if back {
            play(&mut fleet, true);
            fleet.store.rollback_service(&fleet.context, fleet.service).unwrap();
        }
        let service = fleet.service;
        fleet.store.delete_service(&fleet.context, service).unwrap();
        let deployment = fleet.deployment().unwrap();
        assert_eq!(deployment.status, DeploymentStatus::Failed);
        assert!(deployment.completed_at.is_some());
        busy(fleet.rollout(LIMITS), "delete");
        busy(fleet.store.scale_service(&fleet.context, service, 9), "delete");
        busy(fleet.store.rollback_service(&fleet.context, service), "delete");
        fleet.store.delete_service(&fleet.context, service).unwrap();
        assert!(fleet.store.events().iter().any(|event| event.kind == "rollout.cancelled"));
    }
}

#[test]
fn t23_a_deleted_name_stays_taken() {
    let mut fleet = baseline(0);
    fleet.store.delete_service(&fleet.context, fleet.service).unwrap();
    let service = fleet.store.service(&fleet.context, fleet.service).unwrap();
    assert_eq!(service.status, ServiceStatus::Deleted);
    let again = ServiceSpec::new("gateway", IMAGE_FROM, 1).unwrap();
    refused(fleet.store.create_service(&fleet.context, again.clone()), Kind::Duplicate);
    let elsewhere = Context { namespace: Some("elsewhere".to_owned()), ..Context::default() };
    fleet.store.create_service(&elsewhere, again).unwrap();
}

#[test]
fn t24_staleness_is_looked_at_before_legality() {
    let mut fleet = baseline(3);
    let stale = fleet.rollout(LIMITS).unwrap();
    pass(&mut fleet);
    let context = fleet.context.clone();
    let mut write =
        |status, token| fleet.store.update_deployment_status(&context, stale.id, status, token);
    refused(write(DeploymentStatus::Failed, Some(stale.token())), Kind::Conflict);
    refused(write(DeploymentStatus::RollingBack, Some(stale.token())), Kind::Conflict);
    refused(write(DeploymentStatus::RollingBack, None), Kind::InvalidState);
    write(DeploymentStatus::Failed, None).unwrap();
    refused(write(DeploymentStatus::Running, None), Kind::InvalidState);
}

#[test]
fn t25_two_writes_in_one_tick() {
    for (rules, seen) in
        [(Rules::baseline(), false), (Rules::baseline().with(Switch::Monotone), true)]
    {
        let mut fleet = fleet(1, rules);
        *fleet.store.clock_mut() = Clock::new(BEGINNING.plus_seconds(1), 0);
        let read = fleet.rollout(LIMITS).unwrap();
        let write = |fleet: &mut Fleet, token| {
            let running = DeploymentStatus::Running;
            fleet.store.update_deployment_status(&Context::default(), read.id, running, token)
        };
        write(&mut fleet, Some(read.token())).unwrap();
        let second = write(&mut fleet, Some(read.token()));
        assert_eq!(second.is_err(), seen, "only a revision tells the second writer from the first");
    }
}

#[test]
fn t26_stopping_a_task() {
    let mut fleet = baseline(1);
    let id = fleet.ids(|_| true)[0];
    let old = task(&fleet, id).token();
    report(&mut fleet, id, S::Running).unwrap();
    refused(fleet.store.stop_task(&fleet.context, id, old), Kind::Conflict);
    let fresh = task(&fleet, id).token();
    fleet.store.stop_task(&fleet.context, id, fresh).unwrap();
    let stopped = task(&fleet, id);
    fleet.store.stop_task(&fleet.context, id, stopped.token()).unwrap();
    assert_eq!(task(&fleet, id), stopped);
}

#[test]
fn t27_assigning_a_task_by_hand() {
    let setup = Setup { node_cpu: 100, ..Setup::of(1, 7, Rules::baseline()) };
    let mut fleet = Fleet::healthy(setup).unwrap();
    let (context, node) = (fleet.context.clone(), fleet.node);
    let pending = NewTask::pending(fleet.service, 1);
    let first = fleet.store.create_task(&context, &pending).unwrap();
    let second = fleet.store.create_task(&context, &pending).unwrap();
    let token = task(&fleet, first).token();
    fleet.store.assign_task(&context, first, node, Vec::new(), token).unwrap();
    refused(fleet.store.assign_task(&context, first, node, Vec::new(), token), Kind::Conflict);
    let token = task(&fleet, first).token();
    let again = fleet.store.assign_task(&context, first, node, Vec::new(), token);
    assert!(refused(again, Kind::Conflict).to_string().contains("not pending"));
    fleet.store.drain_node(&context, node).unwrap();
    let token = task(&fleet, second).token();
    refused(fleet.store.assign_task(&context, second, node, Vec::new(), token), Kind::NotFound);
}

#[test]
fn t33_a_target_that_was_never_placed_keeps_a_service_deleting() {
    let setup = Setup { node_cpu: 300, ..Setup::of(3, 7, Rules::baseline()) };
    let mut lab = Fleet::healthy(setup).unwrap();
    lab.rollout(LIMITS).unwrap();
    pass(&mut lab);
    let target = only(&lab, |task| task.version == 2);
    lab.store.delete_service(&lab.context, lab.service).unwrap();
    let old = lab.ids(|task| task.version == 1);
    for id in old {
        report(&mut lab, id, S::Removed).unwrap();
    }
    let service = |lab: &Fleet| lab.store.service(&lab.context, lab.service).unwrap().status;
    assert_eq!(service(&lab), ServiceStatus::Deleting);
    refused(report(&mut lab, target, S::Removed), Kind::InvalidState);
    lab.schedule().unwrap();
    report(&mut lab, target, S::Removed).unwrap();
    assert_eq!(service(&lab), ServiceStatus::Deleted);

    let setup = Setup { rules: Rules::strict(), ..setup };
    let mut strict = Fleet::healthy(setup).unwrap();
    strict.rollout(LIMITS).unwrap();
    pass(&mut strict);
    strict.store.delete_service(&strict.context, strict.service).unwrap();
    strict.acknowledge().unwrap();
    assert_eq!(service(&strict), ServiceStatus::Deleted, "no process, nobody to acknowledge");
}

#[test]
fn creating_a_service_checks_and_fills_its_specification() {
    let mut fleet = baseline(0);
    let context = fleet.context.clone();
    let spec = |name: &str| ServiceSpec::new(name, IMAGE_FROM, 1).unwrap();
    refused(fleet.store.create_service(&context, spec("  ")), Kind::InvalidState);
    let below = ServiceSpec { replicas: -1, ..spec("below") };
    refused(fleet.store.create_service(&context, below), Kind::InvalidState);
    let above = ServiceSpec { request: Resources { cpu: 200, memory: 1 }, ..spec("above") };
    refused(fleet.store.create_service(&context, above), Kind::InvalidState);
    let id = fleet.store.create_service(&context, spec("filled")).unwrap();
    let filled = &fleet.store.service(&context, id).unwrap().spec;
    assert_eq!((filled.request, filled.limit), (Resources::DEFAULT, Resources::DEFAULT));
    fleet.store.admission_mut().denied_registries.insert("bad.example".to_owned());
    fleet.store.admission_mut().replicas_max = Some(2);
    let denied = ServiceSpec::new("denied", "bad.example/a:1", 1).unwrap();
    refused(fleet.store.create_service(&context, denied), Kind::Admission);
    let many = ServiceSpec { replicas: 2, ..spec("many") };
    refused(fleet.store.create_service(&context, many), Kind::Quota);
    refused(fleet.store.scale_service(&context, id, 3), Kind::Quota);
    fleet.store.scale_service(&context, id, 2).unwrap();
}

#[test]
fn registering_and_hearing_of_nodes() {
    let mut store = MemoryStore::new(Clock::new(BEGINNING, 1), 7, Rules::baseline());
    let context = Context::default();
    let size = Resources { cpu: 100, memory: 1 };
    let node = |name: &str, version: &str, allocatable| Registration {
        hostname: name.to_owned(),
        advertise_address: "192.0.2.1".to_owned(),
        capacity: size,
        allocatable,
        agent_version: version.to_owned(),
        ..Registration::default()
    };
    refused(store.register_node(&context, node("", "", size)), Kind::InvalidState);
    refused(store.register_node(&context, node("a", "0.0.9", size)), Kind::InvalidState);
    refused(store.register_node(&context, node("a", "one", size)), Kind::InvalidState);
    let more = Resources { cpu: 101, memory: 1 };
    refused(store.register_node(&context, node("a", "", more)), Kind::InvalidState);
    let id = store.register_node(&context, node("a", "1.2.3", size)).unwrap();
    let bye = Heartbeat { shutdown: true, ..Heartbeat::default() };
    store.heartbeat(&context, id, bye).unwrap();
    assert_eq!(store.node(id).unwrap().status, NodeStatus::Offline);
    assert_eq!(store.register_node(&context, node("a", "", size)).unwrap(), id);
    assert_eq!(store.node(id).unwrap().status, NodeStatus::Ready);
    let half = Heartbeat { capacity: Resources { cpu: 5, memory: 0 }, ..Heartbeat::default() };
    store.heartbeat(&context, id, half).unwrap();
    let held = store.node(id).unwrap();
    assert_eq!(held.capacity, Resources { cpu: 5, memory: 0 }, "the whole pair is replaced");
    assert_eq!(held.allocatable, size);
    refused(store.heartbeat(&context, Id::from_bits(3), Heartbeat::default()), Kind::NotFound);
}

#[test]
fn a_lost_target_fails_the_rollout_on_the_next_pass() {
    let mut fleet = baseline(1);
    let context = fleet.context.clone();
    fleet.rollout(LIMITS).unwrap();
    pass(&mut fleet);
    heal(&mut fleet);
    refused(fleet.store.mark_stale_nodes_offline(&context, 0), Kind::InvalidState);
    assert_eq!(fleet.store.mark_stale_nodes_offline(&context, 3600).unwrap(), []);
    fleet.store.clock_mut().set(BEGINNING.plus_seconds(3601));
    assert_eq!(fleet.store.mark_stale_nodes_offline(&context, 3600).unwrap(), [fleet.node]);
    for id in fleet.ids(|_| true) {
        let held = task(&fleet, id);
        assert_eq!((held.desired, held.actual), (S::Removed, S::Failed));
        assert_eq!(
            (held.conditions.as_slice(), held.failure_reason.as_str()),
            (&["node_lost".to_owned()][..], "node_lost")
        );
    }
    pass(&mut fleet);
    assert_eq!(status(&fleet), DeploymentStatus::Failed);
}

#[test]
fn the_reconciler_spreads_and_keeps_the_best() {
    let mut fleet = baseline(0);
    let context = fleet.context.clone();
    let size = Resources { cpu: 1000, memory: NODE_MEMORY };
    let second = Registration {
        hostname: "second".to_owned(),
        advertise_address: "192.0.2.2".to_owned(),
        capacity: size,
        allocatable: size,
        ..Registration::default()
    };
    fleet.store.register_node(&context, second).unwrap();
    fleet.store.scale_service(&context, fleet.service, 4).unwrap();
    let here = fleet.ids(|task| task.node == Some(fleet.node)).len();
    assert_eq!(here, 2, "round robin over the ready nodes");
    let kept = fleet.ids(|_| true)[2];
    fleet.report(kept, S::Healthy).unwrap();
    fleet.store.scale_service(&context, fleet.service, 1).unwrap();
    assert_eq!(only(&fleet, |task| task.is_active()), kept);
}

#[test]
fn retention_deletes_what_ended_long_ago() {
    let mut fleet = Fleet::healthy(Setup {
        restart: RestartCondition::Never,
        ..Setup::of(3, 7, Rules::baseline())
    })
    .unwrap();
    let ids = fleet.ids(|_| true);
    let token = task(&fleet, ids[0]).token();
    fleet.store.stop_task(&fleet.context, ids[0], token).unwrap();
    fleet.acknowledge().unwrap();
    report(&mut fleet, ids[1], S::Failed).unwrap();
    fleet.store.clock_mut().set(BEGINNING.plus_seconds(8 * 86_400));
    assert_eq!(fleet.store.retain(), 1);
    fleet.store.clock_mut().set(BEGINNING.plus_seconds(31 * 86_400));
    assert_eq!(fleet.store.retain(), 1);
    assert_eq!(fleet.ids(|_| true), [ids[2]]);
}
