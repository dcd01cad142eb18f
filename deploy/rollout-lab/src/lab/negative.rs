//! What must be refused, or change nothing: performed, not assumed.

use super::Settings;
use super::document::{Delete, Failure, Maintenance, Refusal, Repeat, Rollback};
use super::script::{CPU_BEFORE, LIMITS, REPLICAS, first, len, seed_of};
use crate::error::Error;
use crate::fleet::{BEGINNING, Fleet, IMAGE_TO, Setup};
use crate::records::{Context, Deployment};
use crate::scheduler;
use crate::status::{DeploymentStatus, TaskStatus};
use crate::store::{MemoryStore, NewWindow, Report};

/// N1 to N5, on the main script while its rollout is under way.
pub(super) struct During {
    pub(super) repeat_same: Repeat,
    pub(super) changed_image: Refusal,
    pub(super) scale_during: Refusal,
    pub(super) rollback_during: Refusal,
    pub(super) stale_status_write: Refusal,
}

pub(super) fn during(fleet: &mut Fleet, requested: &Deployment) -> Result<During, Error> {
    let again = fleet.rollout(LIMITS)?;
    let service = fleet.service;
    let repeat_same = Repeat {
        same_id: again.id == requested.id,
        deployments: len(fleet.store.deployments().count()),
        version: fleet.store.service(&fleet.context, service)?.version,
    };
    let other = |store: &mut MemoryStore, context: &Context| {
        store.rollout_service(context, service, "nginx:1.29-alpine", LIMITS)
    };
    Ok(During {
        repeat_same,
        changed_image: refused(fleet, other),
        scale_during: refused(fleet, |store, context| {
            store.scale_service(context, service, REPLICAS + 2)
        }),
        rollback_during: refused(fleet, |store, context| store.rollback_service(context, service)),
        stale_status_write: refused(fleet, |store, context| {
            let stale = Some(requested.token());
            let status = DeploymentStatus::Succeeded;
            store.update_deployment_status(context, requested.id, status, stale)
        }),
    })
}

/// Tries an operation, and looks whether any object is another afterwards.
fn refused<T>(
    fleet: &mut Fleet,
    operation: impl FnOnce(&mut MemoryStore, &Context) -> Result<T, Error>,
) -> Refusal {
    let objects = |store: &MemoryStore| {
        let tasks: Vec<_> = store.tasks().cloned().collect();
        let services: Vec<_> = store.services().cloned().collect();
        let deployments: Vec<_> = store.deployments().cloned().collect();
        (tasks, services, deployments)
    };
    let before = objects(&fleet.store);
    let result = operation(&mut fleet.store, &fleet.context);
    Refusal::of(&result, before == objects(&fleet.store))
}

/// N6 to N11, each on a fixture of its own.
pub(super) struct Fixtures {
    pub(super) failure: Failure,
    pub(super) late_healthy: Refusal,
    pub(super) rollback: Rollback,
    pub(super) rollback_untouched: Refusal,
    pub(super) delete: Delete,
    pub(super) maintenance: Maintenance,
}

pub(super) fn observe(settings: &Settings) -> Result<Fixtures, Error> {
    let (failure, late_healthy, rollback) = failing(settings)?;
    let mut untouched = fixture(settings, 2, REPLICAS)?;
    let service = untouched.service;
    Ok(Fixtures {
        failure,
        late_healthy,
        rollback,
        rollback_untouched: refused(&mut untouched, |store, context| {
            store.rollback_service(context, service)
        }),
        delete: deleting(settings)?,
        maintenance: outside_of_its_window(settings)?,
    })
}

fn fixture(settings: &Settings, number: u64, replicas: i64) -> Result<Fleet, Error> {
    let setup = Setup::of(replicas, seed_of(settings, number), settings.rules);
    Fleet::healthy(Setup { node_cpu: CPU_BEFORE, ..setup })
}

fn failing(settings: &Settings) -> Result<(Failure, Refusal, Rollback), Error> {
    let mut fleet = fixture(settings, 1, REPLICAS)?;
    let rollout = fleet.rollout(LIMITS)?;
    fleet.pass();
    let target = first(&fleet, |task| task.actual == TaskStatus::Pending)?;
    let node = fleet.node;
    let free = scheduler::free_on(&fleet.store, node).map_or(0, |free| free.cpu);
    let token = fleet.store.task(&fleet.context, target)?.token();
    fleet.store.assign_task(&fleet.context, target, node, Vec::new(), token)?;
    fleet.report(target, TaskStatus::Failed)?;
    fleet.pass();
    let late = refused(&mut fleet, |store, context| {
        let report = Report::of(target, node, TaskStatus::Healthy);
        store.report_task_status(context, report)
    });
    let failed = fleet.store.deployment(&fleet.context, rollout.id)?.clone();
    let failure = Failure {
        deployment_id: failed.id.to_string(),
        status: failed.status.to_string(),
        completed_at: failed.completed_at.map(|at| at.to_string()),
        target_status: fleet.store.task(&fleet.context, target)?.actual.to_string(),
        free_cpu_at_assignment: free,
    };
    let back = fleet.store.rollback_service(&fleet.context, fleet.service)?;
    fleet.pass();
    let rollback = Rollback {
        deployment_id: back.id.to_string(),
        from: back.from_version,
        to: back.to_version,
        status: back.status.to_string(),
        status_after_pass: fleet.deployment()?.status.to_string(),
        image: fleet.store.service(&fleet.context, fleet.service)?.spec.image.requested.clone(),
        failed_record_unchanged: *fleet.store.deployment(&fleet.context, failed.id)? == failed,
    };
    Ok((failure, late, rollback))
}

fn deleting(settings: &Settings) -> Result<Delete, Error> {
    let mut fleet = fixture(settings, 3, REPLICAS)?;
    let rollout = fleet.rollout(LIMITS)?;
    fleet.store.delete_service(&fleet.context, fleet.service)?;
    let status = |fleet: &Fleet| {
        let service = fleet.store.service(&fleet.context, fleet.service)?;
        Ok::<_, Error>(service.status.to_string())
    };
    let service_status = status(&fleet)?;
    fleet.acknowledge()?;
    Ok(Delete {
        deployment_status: fleet.store.deployment(&fleet.context, rollout.id)?.status.to_string(),
        service_status,
        service_status_at_last: status(&fleet)?,
    })
}

fn outside_of_its_window(settings: &Settings) -> Result<Maintenance, Error> {
    let mut fleet = fixture(settings, 4, 0)?;
    fleet.store.create_window(
        &Context::default(),
        NewWindow {
            name: "nightly".to_owned(),
            namespace: None,
            schedule: "0 2 * * *".to_owned(),
            timezone: "UTC".to_owned(),
            duration_seconds: 3600,
            operations: vec!["rollout".to_owned()],
            enabled: true,
        },
    )?;
    fleet.store.clock_mut().set(BEGINNING.plus_seconds(4 * 3600));
    let plain = fleet.rollout(LIMITS).map(|deployment| deployment.id);
    let deployments_after_refusal = len(fleet.store.deployments().count());
    let records_after_refusal = len(fleet.store.audit().len());
    let forced = Context::forced("lab operator", "the lab shows the bypass", "lab-1");

    let forced = fleet.store.rollout_service(&forced, fleet.service, IMAGE_TO, LIMITS);
    Ok(Maintenance {
        refused_kind: Refusal::of(&plain, true).kind,
        deployments_after_refusal,
        records_after_refusal,
        forced_ok: forced.is_ok(),
        audit_actions: fleet.store.audit().iter().map(|record| record.action.to_owned()).collect(),
    })
}
