//! The main script: seven checkpoints of one rollout.

use super::document::{
    Checkpoint, End, Fixture, Labels, Negative, Observation, PassRow, Restart, SCHEMA,
};
use super::{Settings, control_plane_sha256, negative};
use crate::controller::{self, Counts, Decision};
use crate::error::Error;
use crate::fleet::{BEGINNING, Fleet, IMAGE_FROM, IMAGE_TO, NODE_MEMORY, REQUEST, Setup};
use crate::records::{Context, Limits, Resources, RestartCondition, Task};
use crate::rules::Switch;
use crate::status::{DeploymentStatus, TaskStatus};
use crate::store::{Heartbeat, MemoryStore};
use crate::time::{Clock, Id};

/// Tasks of the lab's service.
pub(super) const REPLICAS: i64 = 3;
/// Milli-units: as much as three tasks ask for.
pub(super) const CPU_BEFORE: i64 = 300;
/// Milli-units after the heartbeat: room for a fourth.
const CPU_AFTER: i64 = 400;
/// The lab's budget.
pub(super) const LIMITS: Limits = Limits { max_unavailable: 0, max_surge: 1 };

/// What nobody may read into a document.
const NOT_CLAIMED: [&str; 5] = [
    "traffic availability: no endpoint, no probe, no route was involved",
    "container removal: a stop directive is not an ended process, and there were no containers",
    "durability: the store is memory and ends with the process",
    "elapsed time: the clock is stepped by the lab, not measured",
    "production readiness: nothing here orchestrates a gateway",
];

/// Runs the script and all fixtures once.
pub(super) fn observe(settings: &Settings) -> Result<Observation, Error> {
    let setup = Setup {
        node_cpu: CPU_BEFORE,
        restart: RestartCondition::Never,
        ..Setup::of(REPLICAS, settings.seed, settings.rules)
    };
    let mut script = Script {
        fleet: Fleet::healthy(setup)?,
        checkpoints: Vec::new(),
        passes: Vec::new(),
        controller_passes: 0,
        scheduler_passes: 0,
    };
    let played = script.play()?;
    let negatives = negative::observe(settings)?;
    let deployment = script.fleet.deployment()?.id.to_string();
    let (fleet, end) = (&script.fleet, played.end);
    Ok(Observation {
        schema: SCHEMA.to_owned(),
        mode: settings.mode.clone(),
        switches: settings.rules.switches().map(|switch| switch.to_string()).collect(),
        seed: settings.seed,
        control_plane_sha256: control_plane_sha256(),
        fixture: Fixture {
            node_cpu_before: CPU_BEFORE,
            node_cpu_after: CPU_AFTER,
            node_memory: NODE_MEMORY,
            replicas: REPLICAS,
            request_cpu: REQUEST.cpu,
            request_memory: REQUEST.memory,
            image_from: IMAGE_FROM.to_owned(),
            image_to: IMAGE_TO.to_owned(),
            max_unavailable: LIMITS.max_unavailable,
            max_surge: LIMITS.max_surge,
            restart_policy: "never".to_owned(),
        },
        ids: Labels {
            node: fleet.node.to_string(),
            service: fleet.service.to_string(),
            deployment,
            failed_deployment: negatives.failure.deployment_id.clone(),
            rollback_deployment: negatives.rollback.deployment_id.clone(),
        },
        negative: Negative {
            repeat_same: played.during.repeat_same,
            changed_image: played.during.changed_image,
            scale_during: played.during.scale_during,
            rollback_during: played.during.rollback_during,
            stale_status_write: played.during.stale_status_write,
            late_healthy: negatives.late_healthy,
            rollback_untouched: negatives.rollback_untouched,
        },
        checkpoints: script.checkpoints,
        passes: script.passes,
        failure: negatives.failure,
        rollback: negatives.rollback,
        delete: negatives.delete,
        maintenance: negatives.maintenance,
        end,
        restart: played.restart,
        acceptance: Vec::new(),
        not_claimed: NOT_CLAIMED.map(str::to_owned).to_vec(),
    })
}

struct Played {
    during: negative::During,
    end: End,
    restart: Restart,
}

struct Script {
    fleet: Fleet,
    checkpoints: Vec<Checkpoint>,
    passes: Vec<PassRow>,
    controller_passes: i64,
    scheduler_passes: i64,
}

impl Script {
    fn play(&mut self) -> Result<Played, Error> {
        let requested = self.fleet.rollout(LIMITS)?;
        self.checkpoint("requested")?;

        self.controller()?;
        self.checkpoint("target-created")?;

        self.scheduler()?;
        self.controller()?;
        self.checkpoint("capacity-exhausted")?;
        let during = negative::during(&mut self.fleet, &requested)?;

        let size = Resources { cpu: CPU_AFTER, memory: NODE_MEMORY };
        let beat = Heartbeat { capacity: size, allocatable: size, ..Heartbeat::default() };
        let Fleet { node, .. } = self.fleet;
        self.fleet.store.heartbeat(&Context::default(), node, beat)?;
        self.scheduler()?;
        self.report_targets(TaskStatus::Assigned, TaskStatus::Running)?;
        self.controller()?;
        self.checkpoint("running-but-not-healthy")?;

        self.report_targets(TaskStatus::Running, TaskStatus::Healthy)?;
        self.controller()?;
        self.checkpoint("healthy-pass-1")?;
        for label in ["healthy-pass-2", "healthy-pass-3"] {
            self.fleet.acknowledge()?;
            self.controller()?;
            self.scheduler()?;
            self.report_targets(TaskStatus::Assigned, TaskStatus::Running)?;
            self.report_targets(TaskStatus::Running, TaskStatus::Healthy)?;
            self.controller()?;
            self.checkpoint(label)?;
        }
        let last_old_task = self.last_old_task();
        if self.fleet.store.rules().has(Switch::Acknowledge) {
            self.fleet.acknowledge()?;
            self.controller()?;
        }
        let restart = self.restart();
        let tasks = |wanted: fn(&Task) -> bool| len(self.fleet.ids(wanted).len());
        let end = End {
            stored_tasks: tasks(|_| true),
            active_tasks: tasks(Task::is_active),
            succeeded_deployments: len(self
                .fleet
                .store
                .deployments_by_status(&[DeploymentStatus::Succeeded])
                .len()),
            last_old_task,
            files: 0,
            replay_identical: false,
        };
        Ok(Played { during, end, restart })
    }

    fn controller(&mut self) -> Result<(), Error> {
        let pass = self.fleet.pass();
        if let Some((_, error)) = pass.errors.into_iter().next() {
            return Err(error);
        }
        self.controller_passes += 1;
        let (created, stopped, decision) = pass
            .handled
            .first()
            .map_or((0, 0, Decision::Wait), |one| (one.created, one.stopped, one.decision));
        self.passes.push(PassRow {
            n: self.controller_passes,
            actor: "controller".to_owned(),
            created,
            stopped,
            assigned: 0,
            decision: Some(decision),
            status_after: self.fleet.deployment()?.status.to_string(),
        });
        Ok(())
    }

    fn scheduler(&mut self) -> Result<(), Error> {
        let applied = self.fleet.schedule()?;
        self.scheduler_passes += 1;
        self.passes.push(PassRow {
            n: self.scheduler_passes,
            actor: "scheduler".to_owned(),
            created: 0,
            stopped: 0,
            assigned: len(applied.assigned),
            decision: None,
            status_after: self.fleet.deployment()?.status.to_string(),
        });
        Ok(())
    }

    fn report_targets(&mut self, from: TaskStatus, to: TaskStatus) -> Result<(), Error> {
        for task in self.fleet.ids(|task| task.is_active() && task.actual == from) {
            self.fleet.report(task, to)?;
        }
        Ok(())
    }

    fn checkpoint(&mut self, label: &str) -> Result<(), Error> {
        let (store, deployment) = (&self.fleet.store, self.fleet.deployment()?);
        let counts = Counts::of(store, deployment);
        let now = store.now();
        self.checkpoints.push(Checkpoint {
            seq: len(self.checkpoints.len()) + 1,
            checkpoint: label.to_owned(),
            utc: now.to_string(),
            elapsed_us: now.0 - BEGINNING.0,
            pass: self.controller_passes,
            deployment_status: deployment.status.to_string(),
            old_active: counts.old,
            target_active: counts.new,
            target_healthy: counts.new_healthy,
            pending_stop: counts.pending_stop,
            modeled_available: counts.available(),
            surge_bound: REPLICAS + deployment.limits.max_surge,
        });
        Ok(())
    }

    /// Desired and actual status of the old task that was stopped last.
    fn last_old_task(&self) -> [String; 2] {
        let last = self
            .fleet
            .store
            .tasks_of(self.fleet.service)
            .filter(|task| task.version == 1 && task.has_process())
            .max_by_key(|task| (task.updated_at, task.id));
        last.map_or_else(Default::default, |task| {
            [task.desired.to_string(), task.actual.to_string()]
        })
    }

    /// A pass keeps nothing: one that begins anew over the same store finds every object. A fresh
    /// store has none.
    fn restart(&mut self) -> Restart {
        let before = self.fleet.store.objects();
        controller::pass(&mut self.fleet.store);
        let rules = self.fleet.store.rules();
        let fresh = MemoryStore::new(Clock::new(BEGINNING, 1), 0, rules);
        Restart {
            objects_before: len(before),
            same_store_objects: len(self.fleet.store.objects()),
            fresh_store_objects: len(fresh.objects()),
        }
    }
}

pub(super) fn len(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Seeds of the fixtures beside the main script.
pub(super) fn seed_of(settings: &Settings, fixture: u64) -> u64 {
    settings.seed.wrapping_add(fixture)
}

/// The id of the first task for which `wanted` holds.
pub(super) fn first(fleet: &Fleet, wanted: impl Fn(&Task) -> bool) -> Result<Id, Error> {
    fleet.ids(wanted).first().copied().ok_or_else(|| Error::not_found("task of", fleet.service))
}
