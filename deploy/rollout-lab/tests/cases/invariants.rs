//! I1 to I4 over random schedules, in both modes their own; and a slow second controller, written
//! from the specification, that must decide the same as the baseline's.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError};
use rollout_lab::controller::Counts;
use rollout_lab::fleet::{Fleet, Setup};
use rollout_lab::records::{Context, Deployment, Limits, RestartCondition, Task};
use rollout_lab::status::{DeploymentStatus, TaskStatus as S};
use rollout_lab::store::{Heartbeat, NewTask};
use rollout_lab::time::Id;
use rollout_lab::{Rules, Switch};

const SCHEDULES: u32 = 20_000;

#[derive(Debug, Clone)]
struct Schedule {
    seed: u64,
    replicas: i64,
    limits: Limits,
    restart: bool,
    history: usize,
    steps: Vec<(u8, u8)>,
}

fn schedules() -> impl Strategy<Value = Schedule> {
    (
        any::<u64>(),
        0_i64..=4,
        (0_i64..=3, 0_i64..=3).prop_filter("both zero", |(u, s)| *u + *s > 0),
        any::<bool>(),
        0_usize..3,
        prop::collection::vec((0_u8..24, any::<u8>()), 10..50),
    )
        .prop_map(|(seed, replicas, (u, s), restart, history, steps)| Schedule {
            seed,
            replicas,
            limits: Limits { max_unavailable: u, max_surge: s },
            restart,
            history: history.saturating_sub(1),
            steps,
        })
}

/// A fleet on which a schedule is played, watched after every step.
struct Watched {
    fleet: Fleet,
    rules: Rules,
    /// Terminal statuses seen; they must not change.
    ended: BTreeMap<Id, DeploymentStatus>,
    /// Open deployments under whose start the ceiling held.
    bounded: BTreeMap<Id, bool>,
}

impl Watched {
    fn new(schedule: &Schedule, rules: Rules) -> Self {
        let restart =
            if schedule.restart { RestartCondition::Always } else { RestartCondition::Never };
        let setup = Setup { restart, ..Setup::of(schedule.replicas, schedule.seed, rules) };
        let mut fleet = Fleet::healthy(setup).unwrap();
        for _ in 0..schedule.history {
            let dead = NewTask {
                desired: S::Removed,
                actual: S::Removed,
                ..NewTask::pending(fleet.service, 1)
            };
            fleet.store.create_task(&fleet.context, &dead).unwrap();
        }
        Self { fleet, rules, ended: BTreeMap::new(), bounded: BTreeMap::new() }
    }

    fn step(&mut self, kind: u8, pick: u8, limits: Limits) -> Result<(), TestCaseError> {
        let fleet = &mut self.fleet;
        let context = Context::default();
        let (service, node) = (fleet.service, fleet.node);
        // Refusals are part of a random schedule; what they must not do is watched.
        match kind {
            0..=7 => return self.pass(),
            8..=10 => {
                fleet.schedule().unwrap();
            }
            11..=13 => fleet.settle().unwrap(),
            14 | 15 => fleet.acknowledge().unwrap(),
            16..=18 => {
                let tasks = fleet.ids(|_| true);
                if let Some(task) = tasks.get(usize::from(pick) % tasks.len().max(1)) {
                    let status = S::ALL[usize::from(pick / 8) % S::ALL.len()];
                    let _ = fleet.report(*task, status);
                }
            }
            19 => fleet.store.heartbeat(&context, node, Heartbeat::default()).unwrap(),
            20 | 21 => {
                let image = format!("gateway:{}", pick % 3);
                let _ = fleet.store.rollout_service(&context, service, &image, limits);
            }
            22 => {
                let _ = fleet.store.rollback_service(&context, service);
            }
            _ if pick.is_multiple_of(16) => fleet.store.delete_service(&context, service).unwrap(),
            _ => {
                let _ = fleet.store.scale_service(&context, service, i64::from(pick % 5));
            }
        }
        self.watch()
    }

    fn pass(&mut self) -> Result<(), TestCaseError> {
        let Some(before) = self.fleet.store.lock_of(self.fleet.service).cloned() else {
            prop_assert!(self.fleet.pass().handled.is_empty());
            return Ok(());
        };
        let tasks: Vec<Task> = self.fleet.store.tasks_of(self.fleet.service).cloned().collect();
        let counts = Counts::of(&self.fleet.store, &before);
        let replicas = self.replicas();
        let pass = self.fleet.pass();
        prop_assert!(pass.errors.is_empty());
        let handled = &pass.handled[0];
        let after_tasks: Vec<Task> =
            self.fleet.store.tasks_of(self.fleet.service).cloned().collect();
        let after = self.fleet.store.deployment(&Context::default(), before.id).unwrap().clone();
        let seen = Counts::of(&self.fleet.store, &after);
        if self.rules == Rules::baseline() {
            let expected = reference(&before, replicas, &tasks);
            let stopped: Vec<Id> = after_tasks
                .iter()
                .filter(|task| task.is_directed())
                .filter(|task| tasks.iter().any(|old| old.id == task.id && !old.is_directed()))
                .map(|task| task.id)
                .collect();
            let mut wanted = expected.stopped.clone();
            wanted.sort();
            prop_assert_eq!(&stopped, &wanted);
            prop_assert_eq!(handled.created, expected.created);
            prop_assert_eq!(after.status, expected.status);
            if handled.stopped > 0 {
                prop_assert!(replicas - seen.available() <= before.limits.max_unavailable, "I2");
                prop_assert!(seen.old_gone <= seen.new_healthy, "I3");
            }
        } else {
            // A stop never takes away what the budget cannot spare.
            let least = replicas - before.limits.max_unavailable;
            prop_assert!(seen.available() >= counts.available().min(least), "I2");
            let credit =
                if before.limits.max_surge == 0 { before.limits.max_unavailable } else { 0 };
            let surplus = (counts.old + counts.old_gone - replicas).max(0);
            if handled.stopped > 0 {
                prop_assert!(seen.old_gone <= seen.new_healthy + credit + surplus, "I3");
            }
        }
        if matches!(after.status, DeploymentStatus::Succeeded | DeploymentStatus::RolledBack) {
            prop_assert_eq!(seen.old, 0, "I4");
            prop_assert!(seen.new_healthy >= replicas, "I4");
            if self.rules.has(Switch::Acknowledge) {
                let running = after_tasks
                    .iter()
                    .filter(|task| task.version != after.to_version && task.has_process());
                prop_assert_eq!(running.count(), 0, "I4: no old process is left");
            }
        }
        self.watch()
    }

    fn replicas(&self) -> i64 {
        let service = self.fleet.store.service(&Context::default(), self.fleet.service).unwrap();
        service.spec.replicas
    }

    /// What must hold after every step.
    fn watch(&mut self) -> Result<(), TestCaseError> {
        let replicas = self.replicas();
        for deployment in self.fleet.store.deployments() {
            let Deployment { id, status, limits, .. } = *deployment;
            if let Some(held) = self.ended.get(&id) {
                prop_assert_eq!(*held, status, "I4: a terminal status stays");
            }
            if status.is_terminal() {
                self.ended.insert(id, status);
                continue;
            }
            let counts = Counts::of(&self.fleet.store, deployment);
            let within = counts.charged <= replicas + limits.max_surge;
            let bounded = *self.bounded.entry(id).or_insert(within);
            prop_assert!(!bounded || within, "I1: {counts:?} {deployment:?}");
        }
        Ok(())
    }
}

struct Expected {
    created: i64,
    stopped: Vec<Id>,
    status: DeploymentStatus,
}

/// Section 4 of the specification, in its own words and order.
fn reference(deployment: &Deployment, replicas: i64, tasks: &[Task]) -> Expected {
    let (from, to) = (deployment.from_version, deployment.to_version);
    let len = |found: &[&Task]| i64::try_from(found.len()).unwrap();
    let pick = |wanted: &dyn Fn(&Task) -> bool| -> Vec<&Task> {
        tasks.iter().filter(|task| wanted(task)).collect()
    };
    let old = pick(&|task| task.is_active() && task.version == from);
    let old_gone = len(&pick(&|task| !task.is_active() && task.version == from));
    let new = pick(&|task| task.is_active() && task.version == to);
    let new_healthy =
        len(&pick(&|task| task.is_active() && task.version == to && task.actual == S::Healthy));
    let new_failed = len(&pick(&|task| task.version == to && task.actual == S::Failed));
    let available = new_healthy
        + len(&pick(&|task| {
            task.is_active()
                && task.version == from
                && (task.actual == S::Running || task.actual == S::Healthy)
        }));
    let done = if to < from { DeploymentStatus::RolledBack } else { DeploymentStatus::Succeeded };
    if new_failed > 0 {
        return Expected { created: 0, stopped: Vec::new(), status: DeploymentStatus::Failed };
    }
    if old.is_empty() && new_healthy >= replicas {
        return Expected { created: 0, stopped: Vec::new(), status: done };
    }
    let mut status = deployment.status;
    if status == DeploymentStatus::Pending {
        status = DeploymentStatus::Running;
    }
    let ceiling = replicas + deployment.limits.max_surge;
    let mut created = 0;
    while len(&new) + created < replicas && len(&old) + len(&new) + created < ceiling {
        created += 1;
    }
    let mut ids: Vec<Id> = old.iter().map(|task| task.id).collect();
    ids.sort();
    let mut stopped = Vec::new();
    while let Some(victim) = ids.pop() {
        let so_far = i64::try_from(stopped.len()).unwrap();
        if new_healthy <= old_gone + so_far {
            break;
        }
        if replicas - (available - so_far - 1) > deployment.limits.max_unavailable {
            break;
        }
        stopped.push(victim);
    }
    if stopped.len() == old.len() && new_healthy >= replicas {
        status = done;
    }
    Expected { created, stopped, status }
}

fn hold(schedule: &Schedule, rules: Rules) -> Result<(), TestCaseError> {
    let mut watched = Watched::new(schedule, rules);
    watched.fleet.rollout(schedule.limits).unwrap();
    watched.watch()?;
    for (kind, pick) in &schedule.steps {
        watched.step(*kind, *pick, schedule.limits)?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(Config { cases: SCHEDULES, ..Config::default() })]

    #[test]
    fn the_baselines_invariants_hold(schedule in schedules()) {
        hold(&schedule, Rules::baseline())?;
    }

    #[test]
    fn the_invariants_of_strict_hold(schedule in schedules()) {
        hold(&schedule, Rules::strict())?;
    }
}
