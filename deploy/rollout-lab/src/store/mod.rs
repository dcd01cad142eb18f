//! The store: every object in memory, and every operation on them.
//!
//! Callers hold it by `&mut`; the borrow is the one lock of the baseline. Locks on a service are not
//! stored but derived: is there a deployment in pending, running or rolling_back, and is the service
//! active? Every operation that changes an object moves its `updated_at` and its revision.

mod deployments;
mod maintenance;
mod nodes;
mod services;
mod tasks;

use std::collections::{BTreeMap, BTreeSet};

pub use maintenance::{Guarded, MaintenanceWindow, NewWindow, WINDOW_SECONDS_MAX, WINDOWS_MAX};
pub use nodes::{Heartbeat, Registration};
pub use services::REPLICAS_MAX;
pub use tasks::{ENDED_DAYS, FAILED_DAYS, NewTask, Report};

use crate::error::{Error, Operation};
use crate::records::{
    AuditLog, Context, Deployment, Event, Node, Service, ServiceSpec, Severity, Task, Token,
};
use crate::rules::{Rules, Switch};
use crate::status::{ServiceStatus, TaskStatus};
use crate::time::{Clock, Id, Ids, Utc};

/// Events kept; the oldest goes first. A lab writes some dozens, a drill some hundreds.
pub const EVENTS_MAX: usize = 16_384;

/// Audit records kept; past it a forced operation outside its window is refused, so that none goes
/// unrecorded.
pub const AUDIT_MAX: usize = 65_536;

/// What may be placed at all. Everything may, unless somebody says otherwise.
#[derive(Debug, Clone, Default)]
pub struct Admission {
    /// Registries whose images are refused.
    pub denied_registries: BTreeSet<String>,
    /// Replicas of all services of one namespace together.
    pub replicas_max: Option<i64>,
}

/// Every object, in memory only: dropped with the process.
#[derive(Debug)]
pub struct MemoryStore {
    clock: Clock,
    ids: Ids,
    rules: Rules,
    admission: Admission,
    nodes: BTreeMap<Id, Node>,
    services: BTreeMap<Id, Service>,
    versions: BTreeMap<(Id, i64), ServiceSpec>,
    tasks: BTreeMap<Id, Task>,
    deployments: BTreeMap<Id, Deployment>,
    windows: BTreeMap<Id, MaintenanceWindow>,
    events: Vec<Event>,
    audit: Vec<AuditLog>,
    unreadable: BTreeSet<Id>,
}

impl MemoryStore {
    /// An empty store. The same clock, seed and calls make the same objects.
    pub fn new(clock: Clock, seed: u64, rules: Rules) -> Self {
        Self {
            clock,
            ids: Ids::seeded(seed),
            rules,
            admission: Admission::default(),
            nodes: BTreeMap::new(),
            services: BTreeMap::new(),
            versions: BTreeMap::new(),
            tasks: BTreeMap::new(),
            deployments: BTreeMap::new(),
            windows: BTreeMap::new(),
            events: Vec::new(),
            audit: Vec::new(),
            unreadable: BTreeSet::new(),
        }
    }

    /// The clock, to be told the time.
    pub fn clock_mut(&mut self) -> &mut Clock {
        &mut self.clock
    }

    /// What may be placed, to be changed.
    pub fn admission_mut(&mut self) -> &mut Admission {
        &mut self.admission
    }

    /// Makes every read of this service fail, as a storage that does not answer would: the seam by
    /// which a test sees what an error in one deployment does to the others.
    pub fn make_unreadable(&mut self, service: Id) {
        self.unreadable.insert(service);
    }

    /// The time by the store's clock.
    pub fn now(&self) -> Utc {
        self.clock.peek()
    }

    /// The rules in force.
    pub fn rules(&self) -> Rules {
        self.rules
    }

    /// All nodes by id.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values()
    }

    /// All services by id.
    pub fn services(&self) -> impl Iterator<Item = &Service> {
        self.services.values()
    }

    /// All tasks by id, history included.
    pub fn tasks(&self) -> impl Iterator<Item = &Task> {
        self.tasks.values()
    }

    /// The tasks of a service by id, history included.
    pub fn tasks_of(&self, service: Id) -> impl DoubleEndedIterator<Item = &Task> {
        self.tasks.values().filter(move |task| task.service == service)
    }

    /// All deployments by id.
    pub fn deployments(&self) -> impl Iterator<Item = &Deployment> {
        self.deployments.values()
    }

    /// What happened, oldest first.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Who passed what, oldest first.
    pub fn audit(&self) -> &[AuditLog] {
        &self.audit
    }

    /// Objects in the store, history included.
    pub fn objects(&self) -> usize {
        self.nodes.len()
            + self.services.len()
            + self.tasks.len()
            + self.deployments.len()
            + self.windows.len()
    }

    /// A node.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn node(&self, id: Id) -> Result<&Node, Error> {
        self.nodes.get(&id).ok_or_else(|| Error::not_found("node", id))
    }

    /// A service in the caller's namespace.
    ///
    /// # Errors
    /// [`Error::NotFound`], and [`Error::Storage`] after [`Self::make_unreadable`].
    pub fn service(&self, context: &Context, id: Id) -> Result<&Service, Error> {
        context.check()?;
        if self.unreadable.contains(&id) {
            return Err(Error::Storage(format!("service {id} cannot be read")));
        }
        self.services
            .get(&id)
            .filter(|service| context.sees(&service.namespace))
            .ok_or_else(|| Error::not_found("service", id))
    }

    /// A task in the caller's namespace.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn task(&self, context: &Context, id: Id) -> Result<&Task, Error> {
        context.check()?;
        self.tasks
            .get(&id)
            .filter(|task| context.sees(&task.namespace))
            .ok_or_else(|| Error::not_found("task", id))
    }

    /// A deployment in the caller's namespace.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn deployment(&self, context: &Context, id: Id) -> Result<&Deployment, Error> {
        context.check()?;
        self.deployments
            .get(&id)
            .filter(|deployment| context.sees(&deployment.namespace))
            .ok_or_else(|| Error::not_found("deployment", id))
    }

    /// The deployment that holds the lock of a service.
    pub fn lock_of(&self, service: Id) -> Option<&Deployment> {
        self.deployments
            .values()
            .find(|deployment| deployment.service == service && deployment.status.holds_lock())
    }

    fn busy(deployment: &Deployment) -> Error {
        Error::Busy(if deployment.is_rollback() { Operation::Rollback } else { Operation::Rollout })
    }

    fn active(&self, context: &Context, id: Id) -> Result<&Service, Error> {
        let service = self.service(context, id)?;
        match service.status {
            ServiceStatus::Active => Ok(service),
            ServiceStatus::Deleting | ServiceStatus::Deleted => Err(Error::Busy(Operation::Delete)),
        }
    }

    /// Whether a write that shows `shown` is behind `held`. The baseline compares times, which two
    /// writes in one tick share.
    fn is_stale(&self, shown: Token, held: Token) -> bool {
        if self.rules.has(Switch::Monotone) {
            shown.revision != held.revision
        } else {
            shown.updated_at != held.updated_at
        }
    }

    /// Changes a task and moves its timestamp and revision; a task that is gone is left alone.
    fn write_task(&mut self, id: Id, change: impl FnOnce(&mut Task, Utc)) {
        let now = self.clock.read();
        if let Some(task) = self.tasks.get_mut(&id) {
            change(task, now);
            task.updated_at = now;
            task.revision += 1;
        }
    }

    /// Directs a task to end. With [`Switch::Processes`] a task that was never placed has no process
    /// and nobody who could acknowledge: it is removed at once.
    fn direct(&mut self, id: Id, desired: TaskStatus, by: Option<Id>) {
        let at_once = self.rules.has(Switch::Processes);
        self.write_task(id, |task, now| {
            task.desired = desired;
            task.stopped_by = by.or(task.stopped_by);
            if at_once && task.node.is_none() && !task.actual.is_terminal() {
                task.actual = TaskStatus::Removed;
                task.finished_at = Some(now);
            }
        });
    }

    #[expect(clippy::too_many_arguments, reason = "one call site per kind of event, all named")]
    pub(crate) fn emit(
        &mut self,
        severity: Severity,
        source: &'static str,
        kind: &'static str,
        (object, object_id): (&'static str, Id),
        namespace: &str,
        message: String,
        details: BTreeMap<&'static str, String>,
    ) {
        if self.events.len() >= EVENTS_MAX {
            self.events.drain(..EVENTS_MAX / 4);
        }
        let (id, at) = (self.ids.next(), self.clock.peek());
        let namespace = namespace.to_owned();
        self.events.push(Event {
            id,
            namespace,
            kind,
            severity,
            source,
            message,
            object,
            object_id,
            details,
            at,
        });
    }
}
