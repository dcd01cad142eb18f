//! T34 to T46: where tasks go.

use std::collections::BTreeMap;

use proptest::prelude::*;
use rollout_lab::error::Kind;
use rollout_lab::fleet::{BEGINNING, IMAGE_FROM};
use rollout_lab::records::{
    Constraint, Context, Port, Resources, RestartCondition, RestartPolicy, ServiceSpec,
};
use rollout_lab::scheduler::{self, Plan};
use rollout_lab::status::TaskStatus as S;
use rollout_lab::store::{Heartbeat, NewTask, Registration, Report};
use rollout_lab::time::Id;
use rollout_lab::{Clock, MemoryStore, Rules, Switch};

/// A store with nodes and services of no replicas, so that every task is made by the test.
struct World {
    store: MemoryStore,
    context: Context,
}

impl World {
    fn new(rules: Rules) -> Self {
        let store = MemoryStore::new(Clock::new(BEGINNING, 1), 3, rules);
        Self { store, context: Context::default() }
    }

    fn node(&mut self, name: &str, cpu: i64, memory: i64) -> Id {
        self.labelled(name, cpu, memory, &[])
    }

    fn labelled(&mut self, name: &str, cpu: i64, memory: i64, labels: &[(&str, &str)]) -> Id {
        let size = Resources { cpu, memory };
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let registration = Registration {
            hostname: name.to_owned(),
            advertise_address: "192.0.2.1".to_owned(),
            capacity: size,
            allocatable: size,
            labels: labels.collect(),
            ..Registration::default()
        };
        self.store.register_node(&self.context, registration).unwrap()
    }

    fn service(&mut self, name: &str, change: impl FnOnce(&mut ServiceSpec)) -> Id {
        let mut spec = ServiceSpec::new(name, IMAGE_FROM, 0).unwrap();
        spec.request = Resources { cpu: 100, memory: 10 };
        spec.limit = Resources { cpu: 1000, memory: 1000 };
        spec.restart = RestartPolicy { condition: RestartCondition::Never, max_attempts: 0 };
        change(&mut spec);
        self.store.create_service(&self.context, spec).unwrap()
    }

    fn pending(&mut self, service: Id) -> Id {
        self.store.create_task(&self.context, &NewTask::pending(service, 1)).unwrap()
    }

    fn on(&mut self, service: Id, node: Id, desired: S, actual: S) -> Id {
        let task = NewTask { service, version: 1, desired, actual, node: Some(node) };
        self.store.create_task(&self.context, &task).unwrap()
    }

    fn plan(&self) -> Plan {
        scheduler::plan(&self.store)
    }

    /// Where the tasks go, by task.
    fn places(&self) -> BTreeMap<Id, Id> {
        self.plan().placements.iter().map(|claim| (claim.task, claim.node)).collect()
    }

    fn place_of(&self, task: Id) -> Option<Id> {
        self.places().get(&task).copied()
    }
}

fn world() -> World {
    World::new(Rules::baseline())
}

#[test]
fn t34_t35_t36_fit_by_cpu_and_memory() {
    for (cpu, memory, fits) in
        [(300, 1000, false), (400, 1000, true), (400, 39, false), (400, 40, true)]
    {
        let mut world = world();
        let node = world.node("a", cpu, memory);
        let service = world.service("s", |_| {});
        for _ in 0..3 {
            world.on(service, node, S::Running, S::Healthy);
        }
        let task = world.pending(service);
        assert_eq!(world.place_of(task), fits.then_some(node), "{cpu} {memory}");
        assert_eq!(world.plan().unplaced.len(), usize::from(!fits));
    }
}

#[test]
fn t37_equal_nodes_alternate() {
    let mut world = world();
    let mut nodes = [world.node("a", 1000, 1000), world.node("b", 1000, 1000)];
    nodes.sort();
    let service = world.service("s", |_| {});
    let mut tasks = [world.pending(service), world.pending(service)];
    tasks.sort();
    assert_eq!(world.places(), BTreeMap::from([(tasks[0], nodes[0]), (tasks[1], nodes[1])]));
}

#[test]
fn t38_memory_decides_and_cpu_does_not() {
    let mut world = world();
    world.node("a", 10_000, 999);
    let roomy = world.node("b", 100, 1000);
    let service = world.service("s", |_| {});
    let task = world.pending(service);
    assert_eq!(world.place_of(task), Some(roomy));
}

#[test]
fn t39_t40_fewer_of_the_same_service_then_the_smaller_id() {
    let mut world = world();
    let nodes = [world.node("a", 1000, 1000), world.node("b", 1000, 1000)];
    let (service, other) = (world.service("s", |_| {}), world.service("o", |_| {}));
    let task = world.pending(service);
    assert_eq!(world.place_of(task), nodes.iter().min().copied());
    let (crowded, free) = (*nodes.iter().min().unwrap(), *nodes.iter().max().unwrap());
    world.on(service, crowded, S::Running, S::Healthy);
    world.on(other, free, S::Running, S::Healthy);
    assert_eq!(world.place_of(task), Some(free));
}

#[test]
fn t41_only_ready_nodes() {
    let mut world = world();
    let (draining, offline) = (world.node("a", 1000, 1000), world.node("b", 1000, 1000));
    world.store.drain_node(&world.context, draining).unwrap();
    let bye = Heartbeat { shutdown: true, ..Heartbeat::default() };
    world.store.heartbeat(&world.context, offline, bye).unwrap();
    let service = world.service("s", |_| {});
    let task = world.pending(service);
    assert_eq!(world.place_of(task), None);
}

#[test]
fn t42_constraints() {
    for (operator, value, labels, fits) in [
        ("equals", "x", &[][..], false),
        ("equals", "x", &[("zone", "x")], true),
        ("equals", "x", &[("zone", "y")], false),
        ("not_equals", "x", &[], true),
        ("not_equals", "x", &[("zone", "x")], false),
        ("in", "x", &[("zone", "x")], false),
    ] {
        let mut world = world();
        world.labelled("a", 1000, 1000, labels);
        let service = world.service("s", |spec| {
            spec.constraints.push(Constraint {
                key: "zone".to_owned(),
                operator: operator.to_owned(),
                value: value.to_owned(),
            });
        });
        let task = world.pending(service);
        assert_eq!(world.place_of(task).is_some(), fits, "{operator} {labels:?}");
    }
}

#[test]
fn t43_what_costs() {
    for (desired, actual, baseline, strict) in [
        (S::Running, S::Assigned, true, true),
        (S::Running, S::Failed, false, false),
        (S::Stopped, S::Healthy, false, true),
        (S::Stopped, S::Stopped, false, false),
    ] {
        for (rules, costs) in
            [(Rules::baseline(), baseline), (Rules::baseline().with(Switch::Processes), strict)]
        {
            let mut world = World::new(rules);
            let node = world.node("a", 100, 1000);
            let service = world.service("s", |_| {});
            world.on(service, node, desired, actual);
            let task = world.pending(service);
            assert_eq!(world.place_of(task).is_none(), costs, "{desired} {actual} {rules:?}");
        }
    }
}

#[test]
fn t44_ports() {
    let port = |published| Port { protocol: "tcp".to_owned(), target: 80, published };
    let mut world = world();
    let nodes = [world.node("a", 1000, 1000), world.node("b", 1000, 1000)];
    let fixed = world.service("fixed", |spec| spec.ports = vec![port(30_005)]);
    let (first, second) = (world.pending(fixed), world.pending(fixed));
    let third = world.pending(fixed);
    let places = world.places();
    let at: Vec<_> = [first, second, third].iter().filter_map(|task| places.get(task)).collect();
    assert_eq!(at.len(), 2, "one on each node, the third nowhere");
    assert_ne!(at[0], at[1]);
    scheduler::pass(&mut world.store).unwrap();

    let any = world.service("any", |spec| spec.ports = vec![port(0), port(0)]);
    let task = world.pending(any);
    let plan = world.plan();
    let claim = plan.placements.iter().find(|claim| claim.task == task).unwrap();
    let given: Vec<u16> = claim.ports.iter().map(|port| port.published).collect();
    assert_eq!(given, [30_000, 30_001]);

    let held = world.store.tasks().find(|task| task.node == Some(nodes[0])).unwrap().id;
    let mut failed = Report::of(held, nodes[0], S::Failed);
    failed.reason = "port allocation failed".to_owned();
    world.store.report_task_status(&world.context, failed).unwrap();
    assert_eq!(world.plan().unplaced.len(), 1, "the port is still held by something else");
}

#[test]
fn t45_a_lost_claim_is_skipped_without_an_event() {
    let mut world = world();
    let node = world.node("a", 1000, 1000);
    let service = world.service("s", |_| {});
    let mut tasks = [world.pending(service), world.pending(service)];
    tasks.sort();
    let plan = world.plan();
    let token = plan.placements[0].token;
    world.store.assign_task(&world.context, tasks[0], node, Vec::new(), token).unwrap();
    let applied = scheduler::apply(&mut world.store, &plan).unwrap();
    assert_eq!((applied.raced, applied.assigned), (1, 1));
    let events: Vec<Id> = world
        .store
        .events()
        .iter()
        .filter(|event| event.kind == "task.assigned")
        .map(|event| event.object_id)
        .collect();
    assert_eq!(events, [tasks[1]]);
}

#[test]
fn a_volume_ties_its_users_to_a_node() {
    let mut world = world();
    let (a, b) = (world.node("a", 1000, 1000), world.node("b", 1000, 2000));
    let service = world.service("s", |spec| spec.volumes = vec!["data".to_owned()]);
    world.on(service, a, S::Running, S::Healthy);
    let task = world.pending(service);
    assert_eq!(world.place_of(task), Some(a), "although b has more memory");
    let token = world.store.task(&world.context, task).unwrap().token();
    let clash = world.store.assign_task(&world.context, task, b, Vec::new(), token);
    assert_eq!(clash.unwrap_err().kind(), Kind::Conflict);
}

proptest! {
    /// T46: the same input twice makes the same plan, no plan exceeds a node or places a task twice.
    #[test]
    fn t46_plans_fit_and_repeat(
        nodes in prop::collection::vec((0_i64..500, 0_i64..60), 0..4),
        services in prop::collection::vec((1_i64..200, 1_i64..30), 1..4),
        tasks in prop::collection::vec(0_usize..4, 0..12),
    ) {
        let mut world = world();
        for (number, (cpu, memory)) in nodes.iter().enumerate() {
            world.node(&format!("n{number}"), *cpu, *memory);
        }
        let services: Vec<Id> = services
            .iter()
            .enumerate()
            .map(|(number, (cpu, memory))| {
                world.service(&format!("s{number}"), |spec| {
                    spec.request = Resources { cpu: *cpu, memory: *memory };
                })
            })
            .collect();
        for at in &tasks {
            world.pending(services[at % services.len()]);
        }
        let plan = world.plan();
        prop_assert_eq!(&plan, &world.plan());
        prop_assert_eq!(plan.placements.len() + plan.unplaced.len(), tasks.len());
        prop_assert_eq!(world.places().len(), plan.placements.len());
        scheduler::apply(&mut world.store, &plan).unwrap();
        for node in world.store.nodes() {
            let free = scheduler::free_on(&world.store, node.id).unwrap();
            prop_assert!(free.cpu >= 0 && free.memory >= 0, "{free:?}");
        }
        prop_assert_eq!(world.plan().placements, vec![], "what did not fit does not fit afterwards");
    }
}
