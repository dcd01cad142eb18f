//! The JSON document: what was observed, in the order in which it is printed.

use serde::{Deserialize, Serialize};

use crate::controller::Decision;
use crate::error::Error;

/// The layout of the document.
pub const SCHEMA: &str = "rollout-lab/1";

/// Everything that a run observed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Observation {
    /// [`SCHEMA`].
    pub schema: String,
    /// `baseline` or `strict`.
    pub mode: String,
    /// The differences from the baseline that were in force.
    pub switches: Vec<String>,
    /// Of the ids.
    pub seed: u64,
    /// Of the sources of store, scheduler and controller that ran.
    pub control_plane_sha256: String,
    /// What the lab began with.
    pub fixture: Fixture,
    /// Ids that this seed makes.
    pub ids: Labels,
    /// The seven rows of the timeline.
    pub checkpoints: Vec<Checkpoint>,
    /// Every pass of controller and scheduler in the main script.
    pub passes: Vec<PassRow>,
    /// Operations that must be refused, or must change nothing.
    pub negative: Negative,
    /// A fixture whose target fails.
    pub failure: Failure,
    /// The rollback after it.
    pub rollback: Rollback,
    /// A fixture that is deleted while a rollout is under way.
    pub delete: Delete,
    /// A fixture outside of its window.
    pub maintenance: Maintenance,
    /// What the main script left.
    pub end: End,
    /// What survives a new controller, and a new store.
    pub restart: Restart,
    /// The conclusions, derived from the above.
    pub acceptance: Vec<Acceptance>,
    /// What none of this shows.
    pub not_claimed: Vec<String>,
}

/// What the lab began with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fixture {
    /// Milli-units.
    pub node_cpu_before: i64,
    /// Milli-units, after the heartbeat.
    pub node_cpu_after: i64,
    /// Bytes.
    pub node_memory: i64,
    /// Tasks.
    pub replicas: i64,
    /// Milli-units each.
    pub request_cpu: i64,
    /// Bytes each.
    pub request_memory: i64,
    /// A label; nothing is pulled.
    pub image_from: String,
    /// A label; nothing is pulled.
    pub image_to: String,
    /// Tasks.
    pub max_unavailable: i64,
    /// Tasks.
    pub max_surge: i64,
    /// `never`.
    pub restart_policy: String,
}

/// Ids that this seed makes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Labels {
    /// The node of the main script.
    pub node: String,
    /// Its service.
    pub service: String,
    /// Its deployment.
    pub deployment: String,
    /// The deployment that fails, in a fixture of its own.
    pub failed_deployment: String,
    /// The rollback after it.
    pub rollback_deployment: String,
}

/// A row of the timeline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    /// From 1.
    pub seq: i64,
    /// Its label.
    pub checkpoint: String,
    /// By the lab's own clock, which steps a millisecond with every write.
    pub utc: String,
    /// Since the lab began, by the same clock.
    pub elapsed_us: i64,
    /// Controller passes so far.
    pub pass: i64,
    /// Of the deployment.
    pub deployment_status: String,
    /// Active tasks of the old version.
    pub old_active: i64,
    /// Active tasks of the target version.
    pub target_active: i64,
    /// Those of them that are healthy.
    pub target_healthy: i64,
    /// Old tasks told to stop and not seen to end.
    pub pending_stop: i64,
    /// Old tasks that run, and healthy targets.
    pub modeled_available: i64,
    /// Replicas and surge: the most that may be active.
    pub surge_bound: i64,
}

/// A pass of the controller or the scheduler.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PassRow {
    /// From 1, for each actor.
    pub n: i64,
    /// `controller` or `scheduler`.
    pub actor: String,
    /// Targets made.
    pub created: i64,
    /// Old tasks told to stop.
    pub stopped: i64,
    /// Tasks placed.
    pub assigned: i64,
    /// The controller's.
    pub decision: Option<Decision>,
    /// Of the deployment.
    pub status_after: String,
}

/// An operation that was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refusal {
    /// `Conflict`, `InvalidState` …; `accepted` when it was not refused.
    pub kind: String,
    /// What held the lock.
    pub operation: Option<String>,
    /// The words.
    pub text: String,
    /// Whether every object was afterwards as it was before.
    pub unchanged: bool,
}

impl Refusal {
    pub(super) fn of<T>(result: &Result<T, Error>, unchanged: bool) -> Self {
        match result {
            Ok(_) => Self {
                kind: "accepted".to_owned(),
                operation: None,
                text: String::new(),
                unchanged,
            },
            Err(error) => Self {
                kind: format!("{:?}", error.kind()),
                operation: error.operation().map(|operation| operation.to_string()),
                text: error.to_string(),
                unchanged,
            },
        }
    }
}

/// The same rollout asked for again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Repeat {
    /// Whether it is the same deployment.
    pub same_id: bool,
    /// Deployments of the service afterwards.
    pub deployments: i64,
    /// Version of the service afterwards.
    pub version: i64,
}

/// Operations that must be refused, or must change nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Negative {
    /// N1.
    pub repeat_same: Repeat,
    /// N2.
    pub changed_image: Refusal,
    /// N3.
    pub scale_during: Refusal,
    /// N4.
    pub rollback_during: Refusal,
    /// N5.
    pub stale_status_write: Refusal,
    /// N6.
    pub late_healthy: Refusal,
    /// N9.
    pub rollback_untouched: Refusal,
}

/// N7: a target that was injected on a full node, and failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failure {
    /// Its deployment.
    pub deployment_id: String,
    /// Of the deployment, after the pass.
    pub status: String,
    /// Of the deployment.
    pub completed_at: Option<String>,
    /// Of the target, at the end.
    pub target_status: String,
    /// CPU that the node had left when the target was assigned by hand.
    pub free_cpu_at_assignment: i64,
}

/// N8: the rollback after the failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rollback {
    /// A deployment of its own.
    pub deployment_id: String,
    /// The version it leaves.
    pub from: i64,
    /// The version it goes to.
    pub to: i64,
    /// When it was accepted.
    pub status: String,
    /// After one pass.
    pub status_after_pass: String,
    /// Of the service, afterwards.
    pub image: String,
    /// Whether the failed deployment is afterwards what it was, in every field.
    pub failed_record_unchanged: bool,
}

/// N10: deletion while a rollout is under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delete {
    /// Of the deployment, afterwards.
    pub deployment_status: String,
    /// Of the service, afterwards.
    pub service_status: String,
    /// Of the service, once its tasks are reported removed.
    pub service_status_at_last: String,
}

/// N11: a closed window, and the way past it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Maintenance {
    /// Of the plain rollout.
    pub refused_kind: String,
    /// Deployments after the refusal.
    pub deployments_after_refusal: i64,
    /// Bypass records after the refusal.
    pub records_after_refusal: i64,
    /// Whether the forced one was accepted.
    pub forced_ok: bool,
    /// Of the audit log, afterwards.
    pub audit_actions: Vec<String>,
}

/// What the main script left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct End {
    /// Tasks in the store, history included.
    pub stored_tasks: i64,
    /// Active ones.
    pub active_tasks: i64,
    /// Deployments that succeeded.
    pub succeeded_deployments: i64,
    /// Desired and actual status of the last old task at the last checkpoint.
    pub last_old_task: [String; 2],
    /// Files that the program opened until it printed the document. A plot or a run record that was
    /// asked for comes after.
    pub files: i64,
    /// Whether a second run of the same seed observed the same.
    pub replay_identical: bool,
}

/// What survives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Restart {
    /// Objects before a new controller runs over the same store.
    pub objects_before: i64,
    /// Objects that it finds.
    pub same_store_objects: i64,
    /// Objects in a new store.
    pub fresh_store_objects: i64,
}

/// One conclusion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Acceptance {
    /// A1 to A10.
    pub id: String,
    /// Whether it holds.
    pub ok: bool,
    /// What it says, and what was seen.
    pub detail: String,
}
