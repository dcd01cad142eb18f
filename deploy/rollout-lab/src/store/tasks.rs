//! Tasks: create, assign, stop, report, and retention.

use super::MemoryStore;
use crate::error::Error;
use crate::records::{Context, Publication, RestartCondition, Severity, Task, Token};
use crate::status::{NodeStatus, TaskStatus};
use crate::time::{Id, SECOND, Utc};

/// Days that a stopped or removed task is kept.
pub const ENDED_DAYS: i64 = 7;
/// Days that a failed task is kept, once nothing is under way in its service.
pub const FAILED_DAYS: i64 = 30;

/// A task made by hand: no lock, no limit.
#[derive(Debug, Clone)]
pub struct NewTask {
    /// Whose instance.
    pub service: Id,
    /// Which version.
    pub version: i64,
    /// running unless it says otherwise.
    pub desired: TaskStatus,
    /// pending unless it says otherwise.
    pub actual: TaskStatus,
    /// Where, if anywhere.
    pub node: Option<Id>,
}

impl NewTask {
    /// A pending task of this version that should run.
    pub fn pending(service: Id, version: i64) -> Self {
        let (desired, actual) = (TaskStatus::Running, TaskStatus::Pending);
        Self { service, version, desired, actual, node: None }
    }
}

/// What an agent says of a task.
#[derive(Debug, Clone)]
pub struct Report {
    /// Which task.
    pub task: Id,
    /// The node that reports; must be the task's.
    pub node: Id,
    /// What it is.
    pub status: TaskStatus,
    /// What the agent calls it.
    pub container: String,
    /// Why it failed.
    pub reason: String,
    /// How its process ended.
    pub exit_code: Option<i32>,
}

impl Report {
    /// A report of a status and nothing more.
    pub fn of(task: Id, node: Id, status: TaskStatus) -> Self {
        Self {
            task,
            node,
            status,
            container: String::new(),
            reason: String::new(),
            exit_code: None,
        }
    }
}

impl MemoryStore {
    /// Makes a task outside of reconciler and controller: history for a fixture, an injected target.
    ///
    /// # Errors
    /// [`Error::NotFound`] without such a service, [`Error::InvalidState`] for a desired status that
    /// nothing may have.
    pub fn create_task(&mut self, context: &Context, given: &NewTask) -> Result<Id, Error> {
        let service = self.service(context, given.service)?.clone();
        if !matches!(given.desired, TaskStatus::Running | TaskStatus::Stopped | TaskStatus::Removed)
        {
            return Err(Error::invalid(format!("desired status {}", given.desired)));
        }
        let deployment = self
            .lock_of(given.service)
            .filter(|lock| lock.to_version == given.version)
            .map(|lock| lock.id);
        let id = self.add_task(&service, given.version, deployment, given.node);
        if let Some(task) = self.tasks.get_mut(&id) {
            task.desired = given.desired;
            task.actual = given.actual;
            task.finished_at = given.actual.is_terminal().then_some(task.created_at);
        }
        Ok(id)
    }

    /// Puts a pending task on a node. Looks at no capacity and at no desired status: a fixture may
    /// inject a task that the scheduler would not place.
    ///
    /// # Errors
    /// In this order: [`Error::NotFound`] (task), [`Error::Stale`], [`Error::Conflict`] unless it is
    /// pending, [`Error::NotFound`] unless the node is there and ready, [`Error::Conflict`] when a
    /// volume is held on another node.
    pub fn assign_task(
        &mut self,
        context: &Context,
        task: Id,
        node: Id,
        ports: Vec<Publication>,
        expected: Token,
    ) -> Result<(), Error> {
        let held = self.task(context, task)?;
        if self.is_stale(expected, held.token()) {
            return Err(Error::Stale { what: "task", id: task.to_string() });
        }
        if held.actual != TaskStatus::Pending {
            return Err(Error::Conflict(format!("task {task} is {}, not pending", held.actual)));
        }
        if self.nodes.get(&node).is_none_or(|node| node.status != NodeStatus::Ready) {
            return Err(Error::not_found("ready node", node));
        }
        if let Some(volume) = self.volume_elsewhere(held.service, node) {
            return Err(Error::Conflict(format!("volume {volume} is held on another node")));
        }
        self.write_task(task, |task, _| {
            task.node = Some(node);
            task.ports = ports;
            task.actual = TaskStatus::Assigned;
        });
        Ok(())
    }

    /// Directs a task to stop. Directing it again changes nothing.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Stale`].
    pub fn stop_task(&mut self, context: &Context, task: Id, expected: Token) -> Result<(), Error> {
        self.stop_for(context, task, expected, None)
    }

    /// As [`Self::stop_task`], on behalf of a deployment.
    pub(crate) fn stop_for(
        &mut self,
        context: &Context,
        task: Id,
        expected: Token,
        by: Option<Id>,
    ) -> Result<(), Error> {
        let held = self.task(context, task)?;
        if self.is_stale(expected, held.token()) {
            return Err(Error::Stale { what: "task", id: task.to_string() });
        }
        if !held.is_directed() {
            self.direct(task, TaskStatus::Stopped, by);
        }
        Ok(())
    }

    /// Takes an agent's report. It carries no timestamp, so nothing guards it but the table of legal
    /// steps. A repeated report of an end is accepted and changes nothing.
    ///
    /// # Errors
    /// [`Error::InvalidState`] for a status that agents do not report, a report from another node and
    /// an illegal step; [`Error::NotFound`].
    pub fn report_task_status(&mut self, context: &Context, given: Report) -> Result<(), Error> {
        context.check()?;
        let Report { task: id, node, status, .. } = given;
        if !status.is_reportable() {
            return Err(Error::invalid(format!("agents do not report {status}")));
        }
        let task = self.task(context, id)?;
        if task.node != Some(node) {
            return Err(Error::invalid(format!("task {id} is not on node {node}")));
        }
        may_report(task, status)?;
        if task.actual.is_terminal() && task.actual == status {
            return Ok(());
        }
        let service = task.service;
        let namespace = task.namespace.clone();
        let restart = self
            .services
            .get(&service)
            .is_none_or(|held| held.spec.restart.condition != RestartCondition::Never);
        let (stored, reason) = if status == TaskStatus::Unhealthy && restart && !task.is_directed()
        {
            (TaskStatus::Failed, "unhealthy, and its policy is to restart".to_owned())
        } else {
            (status, given.reason)
        };
        self.write_task(id, |task, now| {
            task.actual = stored;
            if !given.container.is_empty() {
                task.container = given.container;
            }
            if !reason.is_empty() {
                task.failure_reason = reason;
            }
            task.exit_code = given.exit_code.or(task.exit_code);
            if matches!(stored, TaskStatus::Running | TaskStatus::Healthy) {
                task.started_at.get_or_insert(now);
            }
            if stored.is_terminal() {
                task.finished_at.get_or_insert(now);
            }
        });
        self.emit(
            if stored == TaskStatus::Failed { Severity::Warning } else { Severity::Info },
            "store",
            "task.reported",
            ("task", id),
            &namespace,
            format!("task is {stored}"),
            [("status", stored.to_string())].into(),
        );
        if stored == TaskStatus::Removed {
            self.finish_delete(service);
        }
        Ok(())
    }

    /// Deletes tasks that ended long ago; returns how many. During a rollout of the baseline this
    /// loosens the health gate, which counts ended old tasks.
    pub fn retain(&mut self) -> usize {
        let now = self.clock.read();
        let before = |days: i64| Utc(now.0.saturating_sub(days * 86_400 * SECOND));
        let (ended, failed) = (before(ENDED_DAYS), before(FAILED_DAYS));
        let old: Vec<Id> = self
            .tasks
            .values()
            .filter(|task| match task.actual {
                TaskStatus::Stopped | TaskStatus::Removed => {
                    task.finished_at.is_some_and(|at| at < ended)
                }
                TaskStatus::Failed => {
                    task.finished_at.is_some_and(|at| at < failed)
                        && self.lock_of(task.service).is_none()
                }
                TaskStatus::Pending
                | TaskStatus::Assigned
                | TaskStatus::Pulling
                | TaskStatus::Created
                | TaskStatus::Starting
                | TaskStatus::Running
                | TaskStatus::Healthy
                | TaskStatus::Unhealthy
                | TaskStatus::Stopping => false,
            })
            .map(|task| task.id)
            .collect();
        for task in &old {
            self.tasks.remove(task);
        }
        old.len()
    }

    /// A volume of this service that an active task holds on another node than `node`.
    pub(crate) fn volume_elsewhere(&self, service: Id, node: Id) -> Option<&str> {
        let volumes = &self.services.get(&service)?.spec.volumes;
        volumes.iter().map(String::as_str).find(|volume| {
            self.tasks.values().any(|task| {
                task.is_active()
                    && task.node.is_some_and(|held| held != node)
                    && self
                        .services
                        .get(&task.service)
                        .is_some_and(|held| held.spec.volumes.iter().any(|name| name == volume))
            })
        })
    }
}

/// The filter on reports, in the order of the baseline. A task that was told to end may only end; one
/// that ended by itself stays so.
fn may_report(task: &Task, status: TaskStatus) -> Result<(), Error> {
    let refuse =
        |why: &str| Err(Error::invalid(format!("task {} {why}: report {status} refused", task.id)));
    if task.actual == TaskStatus::Removed && status != TaskStatus::Removed {
        return refuse("is removed");
    }
    if task.is_directed() {
        if !status.is_terminal() {
            return refuse("was told to end");
        }
    } else if task.actual.is_terminal() && status != task.actual {
        return refuse("has ended");
    }
    task.actual.step(status)
}
