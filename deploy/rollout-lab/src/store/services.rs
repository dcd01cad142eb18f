//! Services: create, roll out, roll back, scale, delete, and the reconciler.

use super::{Guarded, MemoryStore};
use crate::error::Error;
use crate::image::Image;
use crate::records::{
    Context, Deployment, Limits, Progress, Resources, Service, ServiceSpec, Severity, Task,
};
use crate::rules::Switch;
use crate::status::{DeploymentStatus, NodeStatus, ServiceStatus, TaskStatus};
use crate::time::Id;

/// Replicas of one service. The reconciler makes them at once; a lab needs a handful.
pub const REPLICAS_MAX: i64 = 10_000;

impl MemoryStore {
    /// Makes a service at version 1, and its tasks by reconciling.
    ///
    /// # Errors
    /// [`Error::InvalidState`] for a bad specification, [`Error::Admission`], [`Error::Quota`], and
    /// [`Error::Duplicate`] for a name that any service of the namespace has or had.
    pub fn create_service(
        &mut self,
        context: &Context,
        mut spec: ServiceSpec,
    ) -> Result<Id, Error> {
        context.check()?;
        spec.name = spec.name.trim().to_owned();
        if spec.name.is_empty() {
            return Err(Error::invalid("service without a name"));
        }
        if !(0..=REPLICAS_MAX).contains(&spec.replicas) {
            return Err(Error::invalid(format!("replicas must be 0 to {REPLICAS_MAX}")));
        }
        self.admit(&spec.image)?;
        spec.request = spec.request.or_default();
        spec.limit = spec.limit.or_default();
        let (request, limit) = (spec.request, spec.limit);
        if [request.cpu, request.memory, limit.cpu, limit.memory].iter().any(|n| *n <= 0) {
            return Err(Error::invalid("requests and limits must be above zero"));
        }
        if !limit.holds(request) {
            return Err(Error::invalid("a request is above its limit"));
        }
        let namespace = context.namespace_or_default().to_owned();
        if self
            .services
            .values()
            .any(|service| service.namespace == namespace && service.spec.name == spec.name)
        {
            return Err(Error::Duplicate { what: "service", name: spec.name });
        }
        self.check_quota(&namespace, None, spec.replicas)?;
        let now = self.clock.read();
        let id = self.ids.next();
        self.versions.insert((id, 1), spec.clone());
        self.services.insert(
            id,
            Service {
                id,
                namespace,
                spec,
                status: ServiceStatus::Active,
                version: 1,
                created_at: now,
                updated_at: now,
            },
        );
        self.reconcile(id);
        Ok(id)
    }

    /// Asks for another image. No task is touched; the controller's next pass begins. Asking again for
    /// the same while it is under way returns the same deployment.
    ///
    /// # Errors
    /// In this order: [`Error::InvalidState`] for image or limits, [`Error::NotFound`],
    /// [`Error::OutsideWindow`], [`Error::Admission`], [`Error::Busy`].
    pub fn rollout_service(
        &mut self,
        context: &Context,
        service: Id,
        image: &str,
        limits: Limits,
    ) -> Result<Deployment, Error> {
        context.check()?;
        if image.trim().is_empty() {
            return Err(Error::invalid("image is empty"));
        }
        if limits.max_unavailable < 0 || limits.max_surge < 0 {
            return Err(Error::invalid("maxUnavailable and maxSurge must not be below zero"));
        }
        if limits.max_unavailable == 0 && limits.max_surge == 0 {
            return Err(Error::invalid("maxUnavailable and maxSurge must not both be zero"));
        }
        let image = Image::parse(image)?;
        let namespace = self.service(context, service)?.namespace.clone();
        self.guarded(context, Guarded::Rollout, &namespace, |store| {
            store.admit(&image)?;
            let held = store.active(context, service)?;
            if let Some(lock) = store.lock_of(service) {
                let same = !lock.is_rollback()
                    && held.spec.image.requested == image.requested
                    && held.spec.image.digest == image.digest
                    && lock.limits == limits;
                return if same { Ok(lock.clone()) } else { Err(Self::busy(lock)) };
            }
            let from = held.version;
            let highest = store.versions_of(service).map(|(number, _)| number).max();
            let to = match highest {
                Some(highest) if store.rules.has(Switch::Monotone) => highest.max(from) + 1,
                _ => from + 1,
            };
            let mut spec = held.spec.clone();
            spec.image = image;
            store.take_version(service, to, spec);
            Ok(store.deploy(service, from, to, limits, DeploymentStatus::Pending))
        })
    }

    /// Goes back to the newest version below the current one that a deployment reached, or to the
    /// first. Asking again while it is under way returns the same deployment.
    ///
    /// # Errors
    /// In this order: [`Error::NotFound`], [`Error::OutsideWindow`], [`Error::Busy`],
    /// [`Error::InvalidState`] when there is no earlier version.
    pub fn rollback_service(
        &mut self,
        context: &Context,
        service: Id,
    ) -> Result<Deployment, Error> {
        context.check()?;
        let namespace = self.service(context, service)?.namespace.clone();
        self.guarded(context, Guarded::Rollback, &namespace, |store| {
            let from = store.active(context, service)?.version;
            if let Some(lock) = store.lock_of(service) {
                return if lock.is_rollback() { Ok(lock.clone()) } else { Err(Self::busy(lock)) };
            }
            let first = (from > 1 && store.versions.contains_key(&(service, 1))).then_some(1);
            let reached = store
                .deployments
                .values()
                .filter(|deployment| deployment.service == service && deployment.to_version < from)
                .filter(|deployment| {
                    matches!(
                        deployment.status,
                        DeploymentStatus::Succeeded | DeploymentStatus::RolledBack
                    )
                })
                .map(|deployment| deployment.to_version);
            let target = first.into_iter().chain(reached).max().and_then(|number| {
                store.versions.get(&(service, number)).map(|spec| (number, spec.clone()))
            });
            let Some((to, spec)) = target else {
                return Err(Error::invalid("no previous version to go back to"));
            };
            let limits = store.rollback_limits(service);
            store.set_version(service, to, spec);
            Ok(store.deploy(service, from, to, limits, DeploymentStatus::RollingBack))
        })
    }

    /// Sets the number of replicas. Fewer need an open window.
    ///
    /// # Errors
    /// In this order: [`Error::InvalidState`], [`Error::NotFound`], [`Error::OutsideWindow`] (fewer
    /// only), [`Error::Admission`], [`Error::Busy`] (also for the current number), [`Error::Quota`].
    pub fn scale_service(
        &mut self,
        context: &Context,
        service: Id,
        replicas: i64,
    ) -> Result<(), Error> {
        context.check()?;
        if !(0..=REPLICAS_MAX).contains(&replicas) {
            return Err(Error::invalid(format!("replicas must be 0 to {REPLICAS_MAX}")));
        }
        let held = self.service(context, service)?;
        let (namespace, fewer) = (held.namespace.clone(), replicas < held.spec.replicas);
        let scale = |store: &mut Self| {
            let image = store.service(context, service)?.spec.image.clone();
            store.admit(&image)?;
            store.active(context, service)?;
            if let Some(lock) = store.lock_of(service) {
                return Err(Self::busy(lock));
            }
            store.check_quota(&namespace, Some(service), replicas)?;
            let now = store.clock.read();
            if let Some(held) = store.services.get_mut(&service) {
                held.spec.replicas = replicas;
                held.updated_at = now;
            }
            store.reconcile(service);
            Ok(())
        };
        if fewer {
            self.guarded(context, Guarded::AutoscalingScaleDown, &namespace, scale)
        } else {
            scale(self)
        }
    }

    /// Deletes a service; wins over everything that is under way. The row and the name stay.
    ///
    /// # Errors
    /// [`Error::NotFound`]. Deleting again is not an error.
    pub fn delete_service(&mut self, context: &Context, service: Id) -> Result<(), Error> {
        let held = self.service(context, service)?;
        if held.status != ServiceStatus::Active {
            return Ok(());
        }
        let namespace = held.namespace.clone();
        let now = self.clock.read();
        let mut cancelled = Vec::new();
        for deployment in self.deployments.values_mut() {
            if deployment.service == service && deployment.status.holds_lock() {
                deployment.status = DeploymentStatus::Failed;
                deployment.completed_at = Some(now);
                deployment.updated_at = now;
                deployment.revision += 1;
                cancelled.push(deployment.id);
            }
        }
        for deployment in cancelled {
            self.emit(
                Severity::Warning,
                "store",
                "rollout.cancelled",
                ("deployment", deployment),
                &namespace,
                "its service is deleted".to_owned(),
                [("service", service.to_string())].into(),
            );
        }
        if let Some(held) = self.services.get_mut(&service) {
            held.status = ServiceStatus::Deleting;
            held.updated_at = now;
        }
        let present: Vec<Id> = self
            .tasks_of(service)
            .filter(|task| task.actual != TaskStatus::Removed)
            .filter(|task| task.desired == TaskStatus::Running)
            .map(|task| task.id)
            .collect();
        for task in present {
            self.direct(task, TaskStatus::Stopped, None);
        }
        self.finish_delete(service);
        Ok(())
    }

    /// A deleting service whose tasks are all removed is deleted.
    pub(super) fn finish_delete(&mut self, service: Id) {
        let gone = self.tasks_of(service).all(|task| task.actual == TaskStatus::Removed);
        let now = self.clock.peek();
        if let Some(held) = self.services.get_mut(&service)
            && held.status == ServiceStatus::Deleting
            && gone
        {
            held.status = ServiceStatus::Deleted;
            held.updated_at = now;
        }
    }

    pub(super) fn reconcile_all(&mut self) {
        for service in self.services.keys().copied().collect::<Vec<_>>() {
            self.reconcile(service);
        }
    }

    /// Makes the tasks of a service what its specification says, at once and with no health gate.
    /// Does nothing while a deployment holds the lock, or (strict) after a failed one.
    fn reconcile(&mut self, id: Id) {
        let Some(service) = self.services.get(&id) else { return };
        if service.status != ServiceStatus::Active || self.lock_of(id).is_some() {
            return;
        }
        let failed = |latest: &Deployment| latest.status == DeploymentStatus::Failed;
        if self.rules.has(Switch::Freeze) && self.latest_deployment(id).is_some_and(failed) {
            return;
        }
        let service = service.clone();
        let (mut right, wrong): (Vec<&Task>, Vec<&Task>) = self
            .tasks_of(id)
            .filter(|task| task.is_active())
            .partition(|task| task.version == service.version && task.image == service.spec.image);
        right.sort_by_key(|task| (keep_rank(task.actual), task.created_at, task.id));
        let wanted = usize::try_from(service.spec.replicas).unwrap_or(0);
        let surplus = right.iter().skip(wanted);
        let ends: Vec<Id> = wrong.iter().chain(surplus).map(|task| task.id).collect();
        let present = right.len();
        for task in ends {
            self.direct(task, TaskStatus::Removed, None);
        }
        let ready: Vec<Id> = self
            .nodes
            .values()
            .filter(|node| node.status == NodeStatus::Ready)
            .map(|node| node.id)
            .collect();
        if ready.is_empty() {
            return;
        }
        for count in present..wanted {
            let node = Some(ready[count % ready.len()]);
            self.add_task(&service, service.version, None, node);
        }
    }

    /// Makes a task of a service: pending without a node, assigned with one.
    pub(crate) fn add_task(
        &mut self,
        service: &Service,
        version: i64,
        deployment: Option<Id>,
        node: Option<Id>,
    ) -> Id {
        let now = self.clock.read();
        let id = self.ids.next();
        let image = match self.versions.get(&(service.id, version)) {
            Some(spec) => spec.image.clone(),
            None => service.spec.image.clone(),
        };
        let actual = if node.is_some() { TaskStatus::Assigned } else { TaskStatus::Pending };
        self.tasks.insert(
            id,
            Task {
                id,
                namespace: service.namespace.clone(),
                service: service.id,
                node,
                container: String::new(),
                desired: TaskStatus::Running,
                actual,
                image,
                version,
                deployment,
                stopped_by: None,
                ports: Vec::new(),
                restart_count: 0,
                failure_reason: String::new(),
                conditions: Vec::new(),
                exit_code: None,
                created_at: now,
                updated_at: now,
                revision: 1,
                started_at: None,
                finished_at: None,
            },
        );
        id
    }

    pub(super) fn admit(&self, image: &Image) -> Result<(), Error> {
        if self.admission.denied_registries.contains(&image.registry) {
            return Err(Error::Admission(format!("images of {:?} are refused", image.registry)));
        }
        Ok(())
    }

    fn check_quota(&self, namespace: &str, except: Option<Id>, more: i64) -> Result<(), Error> {
        let Some(most) = self.admission.replicas_max else { return Ok(()) };
        let used: i64 = self
            .services
            .values()
            .filter(|service| service.namespace == namespace && Some(service.id) != except)
            .filter(|service| service.status == ServiceStatus::Active)
            .map(|service| service.spec.replicas)
            .sum();
        if used.saturating_add(more) > most {
            return Err(Error::Quota(format!(
                "{} replicas of {most} in namespace {namespace}",
                used.saturating_add(more)
            )));
        }
        Ok(())
    }

    fn versions_of(&self, service: Id) -> impl Iterator<Item = (i64, &ServiceSpec)> {
        self.versions
            .range((service, i64::MIN)..=(service, i64::MAX))
            .map(|((_, number), spec)| (*number, spec))
    }

    /// Stores a snapshot under a number and puts it in force.
    fn take_version(&mut self, service: Id, number: i64, spec: ServiceSpec) {
        self.versions.insert((service, number), spec.clone());
        self.set_version(service, number, spec);
    }

    fn set_version(&mut self, service: Id, number: i64, spec: ServiceSpec) {
        let now = self.clock.read();
        if let Some(held) = self.services.get_mut(&service) {
            held.spec = spec;
            held.version = number;
            held.updated_at = now;
        }
    }

    /// The baseline knows one budget for every rollback: 1/0, with which it stalls from a full fleet
    /// (F3). Strict takes that of the deployment it undoes.
    fn rollback_limits(&self, service: Id) -> Limits {
        let fixed = Limits { max_unavailable: 1, max_surge: 0 };
        if self.rules.has(Switch::InheritLimits) {
            self.latest_deployment(service).map_or(fixed, |latest| latest.limits)
        } else {
            fixed
        }
    }

    fn deploy(
        &mut self,
        service: Id,
        from_version: i64,
        to_version: i64,
        limits: Limits,
        status: DeploymentStatus,
    ) -> Deployment {
        let now = self.clock.read();
        let id = self.ids.next();
        let namespace = match self.services.get(&service) {
            Some(held) => held.namespace.clone(),
            None => String::new(),
        };
        let deployment = Deployment {
            id,
            namespace,
            service,
            from_version,
            to_version,
            strategy: "rolling_update",
            status,
            limits,
            created_at: now,
            updated_at: now,
            revision: 1,
            started_at: (status == DeploymentStatus::RollingBack).then_some(now),
            completed_at: None,
            progress: Progress { at: now, healthy: 0, reported: false },
        };
        self.deployments.insert(id, deployment.clone());
        deployment
    }

    /// What a task of this service asks of a node.
    pub(crate) fn request_of(&self, service: Id) -> Resources {
        self.services.get(&service).map_or(Resources::DEFAULT, |held| held.spec.request)
    }
}

/// Which of too many tasks are kept first.
fn keep_rank(actual: TaskStatus) -> u8 {
    match actual {
        TaskStatus::Healthy | TaskStatus::Running => 0,
        TaskStatus::Starting | TaskStatus::Created | TaskStatus::Pulling => 1,
        TaskStatus::Assigned | TaskStatus::Pending => 2,
        TaskStatus::Unhealthy
        | TaskStatus::Stopping
        | TaskStatus::Stopped
        | TaskStatus::Removed
        | TaskStatus::Failed => 3,
    }
}
