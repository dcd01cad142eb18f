//! A service on one node, and the synthetic agent that reports for its tasks.

use crate::controller::{self, Counts, Pass};
use crate::error::Error;
use crate::records::{Context, Deployment, Limits, Resources, RestartCondition, ServiceSpec, Task};
use crate::rules::Rules;
use crate::scheduler::{self, Applied};
use crate::status::TaskStatus;
use crate::store::{MemoryStore, Registration, Report};
use crate::time::{Clock, Id, Utc};

/// 2026-01-01T00:00:00Z: every lab begins then.
pub const BEGINNING: Utc = Utc(1_767_225_600_000_000);
/// Microseconds between two writes of a lab.
pub const STEP_MICROS: i64 = 1_000;
/// Memory of the lab's node: 1 GiB.
pub const NODE_MEMORY: i64 = 1 << 30;
/// What a task of the lab asks for: CPU 100, 1 MiB.
pub const REQUEST: Resources = Resources { cpu: 100, memory: 1 << 20 };
/// The version that a lab begins with. Never pulled.
pub const IMAGE_FROM: &str = "nginx:1.27-alpine";
/// The version that a lab goes to. Never pulled.
pub const IMAGE_TO: &str = "nginx:1.28-alpine";

/// How a fleet begins.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    /// Tasks of version 1.
    pub replicas: i64,
    /// CPU of the one node.
    pub node_cpu: i64,
    /// What happens to an unhealthy task.
    pub restart: RestartCondition,
    /// Of the ids.
    pub seed: u64,
    /// The mode.
    pub rules: Rules,
}

impl Setup {
    /// `replicas` tasks that are never restarted, on a node with room for twice as many.
    pub fn of(replicas: i64, seed: u64, rules: Rules) -> Self {
        let node_cpu = replicas.saturating_mul(2 * REQUEST.cpu);
        Self { replicas, node_cpu, restart: RestartCondition::Never, seed, rules }
    }
}

/// One service on one node.
#[derive(Debug)]
pub struct Fleet {
    /// The store; everything may be done to it.
    pub store: MemoryStore,
    /// The node.
    pub node: Id,
    /// The service.
    pub service: Id,
    /// The caller.
    pub context: Context,
}

impl Fleet {
    /// Registers the node and creates the service; its tasks are assigned, nothing more.
    ///
    /// # Errors
    /// What the store refuses: replicas out of range.
    pub fn created(setup: Setup) -> Result<Self, Error> {
        let mut store =
            MemoryStore::new(Clock::new(BEGINNING, STEP_MICROS), setup.seed, setup.rules);
        let context = Context::default();
        let size = Resources { cpu: setup.node_cpu.max(0), memory: NODE_MEMORY };
        let node = store.register_node(
            &context,
            Registration {
                hostname: "lab-node".to_owned(),
                advertise_address: "lab-node.invalid".to_owned(),
                capacity: size,
                allocatable: size,
                ..Registration::default()
            },
        )?;
        let mut spec = ServiceSpec::new("gateway", IMAGE_FROM, setup.replicas)?;
        spec.request = REQUEST;
        spec.restart.condition = setup.restart;
        let service = store.create_service(&context, spec)?;
        Ok(Self { store, node, service, context })
    }

    /// As [`Self::created`], with every task reported running, then healthy.
    ///
    /// # Errors
    /// As [`Self::created`].
    pub fn healthy(setup: Setup) -> Result<Self, Error> {
        let mut fleet = Self::created(setup)?;
        fleet.settle()?;
        Ok(fleet)
    }

    /// Asks for the lab's second image.
    ///
    /// # Errors
    /// As [`MemoryStore::rollout_service`].
    pub fn rollout(&mut self, limits: Limits) -> Result<Deployment, Error> {
        self.store.rollout_service(&self.context, self.service, IMAGE_TO, limits)
    }

    /// One pass of the controller.
    pub fn pass(&mut self) -> Pass {
        controller::pass(&mut self.store)
    }

    /// One pass of the scheduler.
    ///
    /// # Errors
    /// As [`scheduler::pass`].
    pub fn schedule(&mut self) -> Result<Applied, Error> {
        scheduler::pass(&mut self.store)
    }

    /// Reports a status for a task, from the node that it is on.
    ///
    /// # Errors
    /// As [`MemoryStore::report_task_status`].
    pub fn report(&mut self, task: Id, status: TaskStatus) -> Result<(), Error> {
        let node = self.store.task(&self.context, task)?.node.unwrap_or(self.node);
        self.store.report_task_status(&self.context, Report::of(task, node, status))
    }

    /// Reports every placed task that should run, and does not yet, running and then healthy. One
    /// that was reported unhealthy stays so.
    ///
    /// # Errors
    /// As [`Self::report`].
    pub fn settle(&mut self) -> Result<(), Error> {
        for task in self.ids(|task| task.is_active() && task.actual == TaskStatus::Assigned) {
            self.report(task, TaskStatus::Running)?;
            self.report(task, TaskStatus::Healthy)?;
        }
        Ok(())
    }

    /// Reports every process that was told to end stopped, then removed.
    ///
    /// # Errors
    /// As [`Self::report`].
    pub fn acknowledge(&mut self) -> Result<(), Error> {
        for task in self.ids(|task| task.is_directed() && task.has_process()) {
            self.report(task, TaskStatus::Stopped)?;
            self.report(task, TaskStatus::Removed)?;
        }
        Ok(())
    }

    /// Ids of the service's tasks for which `wanted` holds, ascending.
    pub fn ids(&self, wanted: impl Fn(&Task) -> bool) -> Vec<Id> {
        self.store.tasks_of(self.service).filter(|task| wanted(task)).map(|task| task.id).collect()
    }

    /// The latest deployment.
    ///
    /// # Errors
    /// [`Error::NotFound`] when there is none.
    pub fn deployment(&self) -> Result<&Deployment, Error> {
        self.store.service_rollout(&self.context, self.service)
    }

    /// The tasks of the latest deployment, counted.
    ///
    /// # Errors
    /// As [`Self::deployment`].
    pub fn counts(&self) -> Result<Counts, Error> {
        Ok(Counts::of(&self.store, self.deployment()?))
    }
}
