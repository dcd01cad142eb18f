//! The rollout controller: one pass over the deployments that hold a lock.
//!
//! It keeps nothing between passes; everything is counted anew from the store. A pass creates targets
//! while the budget has room, stops old tasks in exchange for healthy targets, and ends a deployment
//! that is done or whose target failed. It knows no timer: a wait may last for ever.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::records::{Context, Deployment, Progress, Service, Severity, Task};
use crate::rules::{Rules, Switch};
use crate::status::{DeploymentStatus, TaskStatus};
use crate::store::MemoryStore;
use crate::time::{Id, SECOND};

/// What a pass decided for a deployment. Creating and stopping can fall into one pass; stop is then
/// named, and completion before both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Targets were made.
    Create,
    /// Nothing could be done.
    Wait,
    /// Old tasks were told to stop.
    Stop,
    /// A target had failed.
    Fail,
    /// It is done.
    Complete,
}

/// The tasks of a deployment, counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Counts {
    /// Active tasks of the old version.
    pub old: i64,
    /// Those of them that run or are healthy.
    pub old_available: i64,
    /// Old tasks that the health gate has to be paid for.
    pub old_gone: i64,
    /// Active tasks of the target version.
    pub new: i64,
    /// Those of them that are healthy.
    pub new_healthy: i64,
    /// Failed tasks of the target version.
    pub new_failed: i64,
    /// Old tasks told to stop and not seen to end.
    pub pending_stop: i64,
    /// Old tasks whose process was not seen to end, told to stop or not.
    pub old_processes: i64,
    /// What the surge ceiling is held against.
    pub charged: i64,
    /// Processes of the service that may exist.
    pub processes: i64,
}

impl Counts {
    /// `modeled_available`: old tasks that run or are healthy, and healthy targets.
    pub fn available(&self) -> i64 {
        self.old_available + self.new_healthy
    }

    /// Counts the tasks of a deployment.
    pub fn of(store: &MemoryStore, deployment: &Deployment) -> Self {
        let rules = store.rules();
        let mut counts = Self::default();
        for task in store.tasks_of(deployment.service) {
            let actual = task.actual;
            counts.processes += i64::from(task.has_process());
            if rules.has(Switch::Processes) {
                counts.charged += i64::from(task.is_active() || task.has_process());
            }
            if is_old(rules, deployment, task) {
                let active = task.is_active();
                counts.old += i64::from(active);
                counts.old_available += i64::from(active && is_available(task));
                counts.old_processes += i64::from(task.has_process());
                counts.pending_stop +=
                    i64::from(task.desired == TaskStatus::Stopped && !actual.is_terminal());
                counts.old_gone += i64::from(if rules.has(Switch::OwnStops) {
                    task.stopped_by == Some(deployment.id)
                } else {
                    !active
                });
            } else if task.version == deployment.to_version {
                let active = task.is_active();
                counts.new += i64::from(active);
                counts.new_healthy += i64::from(active && actual == TaskStatus::Healthy);
                let own = task.deployment == Some(deployment.id);
                counts.new_failed += i64::from(
                    actual == TaskStatus::Failed && (own || !rules.has(Switch::Monotone)),
                );
            }
        }
        if !rules.has(Switch::Processes) {
            counts.charged = counts.old + counts.new;
        }
        counts
    }
}

/// The baseline sees only the version that the deployment comes from; tasks of any other are
/// invisible to it.
fn is_old(rules: Rules, deployment: &Deployment, task: &Task) -> bool {
    if rules.has(Switch::Monotone) {
        task.version != deployment.to_version
    } else {
        task.version == deployment.from_version
    }
}

/// Running is good enough for an old task.
fn is_available(task: &Task) -> bool {
    matches!(task.actual, TaskStatus::Running | TaskStatus::Healthy)
}

/// Why a deployment could not get on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Block {
    /// No target may be made: the ceiling R+S is reached.
    Ceiling {
        /// Tasks (or processes) held against it.
        charged: i64,
        /// R+S.
        ceiling: i64,
    },
    /// No old task may be stopped: each stop must be paid for with one more healthy target.
    HealthGate {
        /// Healthy targets.
        healthy: i64,
        /// Old tasks already gone.
        gone: i64,
        /// Stops allowed without a healthy target.
        allowance: i64,
    },
    /// No old task may be stopped: too few would be available.
    AvailabilityGate {
        /// Available after the stop, as the arithmetic has it.
        after: i64,
        /// R−U.
        least: i64,
    },
    /// Everything is done but for old processes that were not seen to end.
    Unacknowledged {
        /// How many.
        processes: i64,
    },
    /// All targets exist, too few are healthy.
    Targets {
        /// Healthy targets.
        healthy: i64,
        /// R.
        replicas: i64,
    },
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ceiling { charged, ceiling } => {
                write!(
                    f,
                    "surge ceiling: {charged} of {ceiling} are used, no target may be created"
                )
            }
            Self::HealthGate { healthy, gone, allowance: 0 } => write!(
                f,
                "health gate: {healthy} healthy targets for {gone} old tasks already gone, a stop needs one more"
            ),
            Self::HealthGate { healthy, gone, allowance } => write!(
                f,
                "health gate: {healthy} healthy targets and {allowance} stops on credit for {gone} old tasks already gone"
            ),
            Self::AvailabilityGate { after, least } => write!(
                f,
                "availability gate: a stop would leave {after} available by the arithmetic, {least} are required"
            ),
            Self::Unacknowledged { processes } => {
                write!(f, "acknowledgement: {processes} old processes were not seen to end")
            }
            Self::Targets { healthy, replicas } => {
                write!(f, "targets: {healthy} of {replicas} are healthy")
            }
        }
    }
}

/// What a pass did for one deployment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handled {
    /// Which.
    pub deployment: Id,
    /// Targets made.
    pub created: i64,
    /// Old tasks told to stop.
    pub stopped: i64,
    /// What it amounts to.
    pub decision: Decision,
    /// The status it left.
    pub status: DeploymentStatus,
    /// What stood in the way of doing more.
    pub blocks: Vec<Block>,
}

/// What a pass did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pass {
    /// The deployments that were handled, in their order.
    pub handled: Vec<Handled>,
    /// Errors, with their deployment.
    pub errors: Vec<(Id, Error)>,
    /// Deployments that were not looked at because of an error before them.
    pub skipped: usize,
}

/// Runs one pass over all deployments in pending, running or rolling_back, by creation, then id.
///
/// In the baseline an error in one ends the pass for the rest.
pub fn pass(store: &mut MemoryStore) -> Pass {
    let open: Vec<Id> = store
        .deployments_by_status(&[
            DeploymentStatus::Pending,
            DeploymentStatus::Running,
            DeploymentStatus::RollingBack,
        ])
        .iter()
        .map(|deployment| deployment.id)
        .collect();
    let mut pass = Pass::default();
    for (at, id) in open.iter().enumerate() {
        match handle(store, *id) {
            Ok(handled) => pass.handled.push(handled),
            Err(error) => {
                event(store, *id, Severity::Error, "rollout.error", error.to_string());
                pass.errors.push((*id, error));
                if !store.rules().has(Switch::Isolate) {
                    pass.skipped = open.len() - at - 1;
                    break;
                }
            }
        }
    }
    pass
}

fn handle(store: &mut MemoryStore, id: Id) -> Result<Handled, Error> {
    let context = Context::default();
    let deployment = store.deployment(&context, id)?.clone();
    let service = store.service(&context, deployment.service)?.clone();
    let counts = Counts::of(store, &deployment);
    let mut run = Run { store, service, deployment, counts, created: 0, stopped: 0 };
    run.pass()
}

/// One deployment during one pass. The counts are those of its start.
struct Run<'s> {
    store: &'s mut MemoryStore,
    service: Service,
    deployment: Deployment,
    counts: Counts,
    created: i64,
    stopped: i64,
}

impl Run<'_> {
    fn pass(&mut self) -> Result<Handled, Error> {
        if self.counts.new_failed > 0 {
            self.set(DeploymentStatus::Failed)?;
            let message = format!("{} tasks of the target version failed", self.counts.new_failed);
            self.event(Severity::Error, "rollout.failed", message);
            return Ok(self.handled(Decision::Fail, Vec::new()));
        }
        if self.is_done(0) {
            return self.complete();
        }
        if self.deployment.status == DeploymentStatus::Pending {
            self.set(DeploymentStatus::Running)?;
            self.event(Severity::Info, "rollout.started", "a pass has begun it".to_owned());
        }
        let mut blocks = Vec::new();
        self.create(&mut blocks);
        self.stop(&mut blocks)?;
        if self.created + self.stopped > 0 {
            let message = format!("{} created, {} stopped", self.created, self.stopped);
            self.event(Severity::Info, "rollout.advanced", message);
        }
        self.note_progress();
        if self.is_done(self.stopped) {
            return self.complete();
        }

        if self.counts.old - self.stopped == 0 {
            let (healthy, replicas) = (self.counts.new_healthy, self.service.spec.replicas);
            if healthy < replicas && self.counts.new + self.created >= replicas {
                blocks.push(Block::Targets { healthy, replicas });
            } else if healthy >= replicas {
                let processes = self.counts.old_processes;
                blocks.push(Block::Unacknowledged { processes });
            }
        }
        let decision = if self.stopped > 0 {
            Decision::Stop
        } else if self.created > 0 {
            Decision::Create
        } else {
            Decision::Wait
        };
        Ok(self.handled(decision, blocks))
    }

    /// Whether no old task is left after `stopped` stops, and all targets are healthy.
    fn is_done(&self, stopped: i64) -> bool {
        let Counts { old, new_healthy, old_processes, .. } = self.counts;
        let acknowledged = !self.store.rules().has(Switch::Acknowledge) || old_processes == 0;
        old - stopped == 0 && new_healthy >= self.service.spec.replicas && acknowledged
    }

    fn complete(&mut self) -> Result<Handled, Error> {
        let (status, kind) = if self.deployment.is_rollback() {
            (DeploymentStatus::RolledBack, "rollout.rolled_back")
        } else {
            (DeploymentStatus::Succeeded, "rollout.succeeded")
        };
        self.set(status)?;
        let healthy = self.counts.new_healthy;
        self.event(Severity::Info, kind, format!("{healthy} healthy targets, no old task active"));
        Ok(self.handled(Decision::Complete, Vec::new()))
    }

    /// Makes targets while fewer than R exist and the ceiling R+S has room.
    fn create(&mut self, blocks: &mut Vec<Block>) {
        let replicas = self.service.spec.replicas;
        let ceiling = replicas.saturating_add(self.deployment.limits.max_surge);
        while self.counts.new + self.created < replicas {
            let charged = self.counts.charged + self.created;
            if charged >= ceiling {
                blocks.push(Block::Ceiling { charged, ceiling });
                break;
            }
            let version = self.deployment.to_version;
            self.store.add_task(&self.service, version, Some(self.deployment.id), None);
            self.created += 1;
        }
    }

    /// Stops old tasks in exchange for healthy targets.
    fn stop(&mut self, blocks: &mut Vec<Block>) -> Result<(), Error> {
        let rules = self.store.rules();
        let mut victims: Vec<(Id, bool)> = self
            .store
            .tasks_of(self.deployment.service)
            .rev()
            .filter(|task| task.is_active() && is_old(rules, &self.deployment, task))
            .map(|task| (task.id, is_available(task)))
            .collect();
        let unhealthy_first = rules.has(Switch::UnhealthyFirst);
        if unhealthy_first {
            victims.sort_by_key(|(id, available)| (*available, Reverse(*id)));
        }
        let (replicas, limits) = (self.service.spec.replicas, self.deployment.limits);
        let Counts { old, old_gone, new_healthy, .. } = self.counts;
        let credit = if rules.has(Switch::StopFirst) && limits.max_surge == 0 {
            limits.max_unavailable
        } else {
            0
        };
        let surplus =
            if rules.has(Switch::OwnStops) { (old + old_gone - replicas).max(0) } else { 0 };
        let allowance = credit + surplus;
        let mut lost = 0;
        for (victim, available) in victims {
            let gone = old_gone + self.stopped;
            if new_healthy + allowance <= gone {
                blocks.push(Block::HealthGate { healthy: new_healthy, gone, allowance });
                break;
            }
            let cost = i64::from(available || !unhealthy_first);
            let after = self.counts.available() - lost - cost;
            if cost > 0 && replicas - after > limits.max_unavailable {
                let least = replicas - limits.max_unavailable;
                blocks.push(Block::AvailabilityGate { after, least });
                break;
            }
            let context = Context::default();
            let token = self.store.task(&context, victim)?.token();
            self.store.stop_for(&context, victim, token, Some(self.deployment.id))?;
            self.stopped += 1;
            lost += cost;
        }
        Ok(())
    }

    /// Reports once for each standstill that lasts longer than the deadline; decides nothing.
    fn note_progress(&mut self) {
        if !self.store.rules().has(Switch::Deadline) {
            return;
        }
        let now = self.store.now();
        let held = self.deployment.progress;
        let healthy = self.counts.new_healthy;
        let seconds = self.store.rules().progress_seconds;
        let moved = self.created + self.stopped > 0 || healthy > held.healthy;
        let progress = if moved {
            Progress { at: now, healthy: healthy.max(held.healthy), reported: false }
        } else if !held.reported && now.0 - held.at.0 > seconds.saturating_mul(SECOND) {
            let message = format!("no progress for more than {seconds} s");
            self.event(Severity::Warning, "rollout.progress_deadline", message);
            Progress { reported: true, ..held }
        } else {
            return;
        };
        self.store.set_progress(self.deployment.id, progress);
    }

    fn set(&mut self, status: DeploymentStatus) -> Result<(), Error> {
        let context = Context::default();
        let token = Some(self.deployment.token());
        self.store.update_deployment_status(&context, self.deployment.id, status, token)?;
        self.deployment = self.store.deployment(&context, self.deployment.id)?.clone();
        Ok(())
    }

    fn event(&mut self, severity: Severity, kind: &'static str, message: String) {
        event(self.store, self.deployment.id, severity, kind, message);
    }

    fn handled(&self, decision: Decision, blocks: Vec<Block>) -> Handled {
        Handled {
            deployment: self.deployment.id,
            created: self.created,
            stopped: self.stopped,
            decision,
            status: self.deployment.status,
            blocks,
        }
    }
}

fn event(
    store: &mut MemoryStore,
    deployment: Id,
    severity: Severity,
    kind: &'static str,
    message: String,
) {
    let namespace = match store.deployment(&Context::default(), deployment) {
        Ok(held) => held.namespace.clone(),
        Err(_) => String::new(),
    };
    let object = ("deployment", deployment);
    store.emit(severity, "rollout", kind, object, &namespace, message, BTreeMap::new());
}
