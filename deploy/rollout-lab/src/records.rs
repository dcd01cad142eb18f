//! What the store holds.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::error::Error;
use crate::image::Image;
use crate::status::{DeploymentStatus, NodeStatus, ServiceStatus, TaskStatus};
use crate::time::{Id, Utc};

/// The namespace of a call that names none.
pub const DEFAULT_NAMESPACE: &str = "default";

/// CPU and memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Resources {
    /// Thousandths of a CPU.
    pub cpu: i64,
    /// Bytes.
    pub memory: i64,
}

impl Resources {
    /// What a missing request or limit becomes: 100 milli-units, 128 MiB.
    pub const DEFAULT: Self = Self { cpu: 100, memory: 128 << 20 };

    pub(crate) fn minus(self, other: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_sub(other.cpu),
            memory: self.memory.saturating_sub(other.memory),
        }
    }

    pub(crate) fn holds(self, request: Self) -> bool {
        self.cpu >= request.cpu && self.memory >= request.memory
    }

    pub(crate) fn or_default(self) -> Self {
        Self {
            cpu: if self.cpu == 0 { Self::DEFAULT.cpu } else { self.cpu },
            memory: if self.memory == 0 { Self::DEFAULT.memory } else { self.memory },
        }
    }
}

/// What a writer shows to prove that it read the newest version of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Token {
    /// The only guard of the baseline: blind when two writes share a tick of the clock.
    pub updated_at: Utc,
    /// Goes up with every write; the guard under [`crate::rules::Switch::Monotone`].
    pub revision: u64,
}

/// A host that tasks run on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Node {
    /// Made by the store.
    pub id: Id,
    /// The natural key: registering it again updates the node.
    pub hostname: String,
    /// Where its agent is reached.
    pub advertise_address: String,
    /// What placement constraints look at.
    pub labels: BTreeMap<String, String>,
    /// What the host has.
    pub capacity: Resources,
    /// What tasks may have of it.
    pub allocatable: Resources,
    /// Only a ready node is given tasks.
    pub status: NodeStatus,
    /// When it was last heard of.
    pub last_heartbeat_at: Utc,
    /// When it registered first.
    pub created_at: Utc,
    /// When it was last written.
    pub updated_at: Utc,
    /// `major.minor.patch`, or empty.
    pub agent_version: String,
}

/// A port of a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Port {
    /// `tcp` or `udp`.
    pub protocol: String,
    /// Inside the container.
    pub target: u16,
    /// On the node; 0 for the first free one from 30000.
    pub published: u16,
}

/// What may be done when a task ends badly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RestartCondition {
    /// Nothing: an unhealthy task stays unhealthy.
    Never,
    /// An unhealthy task counts as failed.
    OnFailure,
    /// An unhealthy task counts as failed.
    Always,
    /// As `Always`.
    Unset,
}

/// Restart condition and a number that nothing in the rollout path reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct RestartPolicy {
    /// Whether an unhealthy report becomes a failure.
    pub condition: RestartCondition,
    /// Stored only.
    pub max_attempts: u32,
}

/// One rule on the labels of a node: `equals` and `not_equals` are known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Constraint {
    /// The label.
    pub key: String,
    /// The operator; an unknown one rejects every node.
    pub operator: String,
    /// The value.
    pub value: String,
}

/// What a service should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ServiceSpec {
    /// Unique in its namespace, for ever.
    pub name: String,
    /// What runs.
    pub image: Image,
    /// How many tasks.
    pub replicas: i64,
    /// What is published.
    pub ports: Vec<Port>,
    /// What the scheduler charges.
    pub request: Resources,
    /// What the container may use.
    pub limit: Resources,
    /// What happens to an unhealthy task.
    pub restart: RestartPolicy,
    /// Which nodes will do.
    pub constraints: Vec<Constraint>,
    /// A stateful service keeps its tasks when a node is lost.
    pub stateful: bool,
    /// Names of volumes; one that an active task holds ties its users to that task's node.
    pub volumes: Vec<String>,
}

impl ServiceSpec {
    /// A specification of `replicas` tasks of this image, everything else at its default.
    ///
    /// # Errors
    /// [`Error::InvalidState`] when the image is malformed.
    pub fn new(name: &str, image: &str, replicas: i64) -> Result<Self, Error> {
        Ok(Self {
            name: name.to_owned(),
            image: Image::parse(image)?,
            replicas,
            ports: Vec::new(),
            request: Resources::default(),
            limit: Resources::default(),
            restart: RestartPolicy { condition: RestartCondition::Unset, max_attempts: 0 },
            constraints: Vec::new(),
            stateful: false,
            volumes: Vec::new(),
        })
    }
}

/// A service: its specification and the number of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Service {
    /// Made by the store.
    pub id: Id,
    /// Where it lives.
    pub namespace: String,
    /// The version in force.
    pub spec: ServiceSpec,
    /// A deleted service keeps its row.
    pub status: ServiceStatus,
    /// The number of the version in force; a rollback lowers it.
    pub version: i64,
    /// When it was made.
    pub created_at: Utc,
    /// When it was last written.
    pub updated_at: Utc,
}

/// A port that a task has on its node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Publication {
    /// `tcp` or `udp`.
    pub protocol: String,
    /// On the node.
    pub published: u16,
    /// Inside the container.
    pub target: u16,
}

/// One instance of a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Task {
    /// Made by the store.
    pub id: Id,
    /// That of its service.
    pub namespace: String,
    /// Whose instance it is.
    pub service: Id,
    /// Where it runs; none until it is placed.
    pub node: Option<Id>,
    /// As the agent calls it.
    pub container: String,
    /// What the server wants: running, stopped or removed.
    pub desired: TaskStatus,
    /// What the agent reported, or the store put there (assignment, loss of a node).
    pub actual: TaskStatus,
    /// What it runs.
    pub image: Image,
    /// Which version of the service it is.
    pub version: i64,
    /// Which deployment made it; none for the first tasks and the reconciler's.
    pub deployment: Option<Id>,
    /// Which deployment directed its stop.
    pub stopped_by: Option<Id>,
    /// Its ports on the node.
    pub ports: Vec<Publication>,
    /// How often it was restarted.
    pub restart_count: u32,
    /// Why it failed.
    pub failure_reason: String,
    /// What befell it, such as `node_lost`.
    pub conditions: Vec<String>,
    /// How its process ended.
    pub exit_code: Option<i32>,
    /// When it was made.
    pub created_at: Utc,
    /// When it was last written.
    pub updated_at: Utc,
    /// Goes up with every write.
    pub revision: u64,
    /// First running or healthy report.
    pub started_at: Option<Utc>,
    /// Report of its end.
    pub finished_at: Option<Utc>,
}

impl Task {
    /// Whether it counts: not told to end, and not ended.
    pub fn is_active(&self) -> bool {
        !self.is_directed() && !self.actual.is_terminal()
    }

    /// Whether it was told to end.
    pub fn is_directed(&self) -> bool {
        matches!(self.desired, TaskStatus::Stopped | TaskStatus::Removed)
    }

    /// Whether a process may exist: on a node and not seen to end.
    pub fn has_process(&self) -> bool {
        self.node.is_some() && !self.actual.is_terminal()
    }

    /// What a guarded write must show.
    pub fn token(&self) -> Token {
        Token { updated_at: self.updated_at, revision: self.revision }
    }
}

/// How many tasks a deployment may lack, and how many it may have beyond the replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// maxUnavailable, tasks.
    pub max_unavailable: i64,
    /// maxSurge, tasks.
    pub max_surge: i64,
}

/// A change of a service from one version to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Deployment {
    /// Made by the store.
    pub id: Id,
    /// That of its service.
    pub namespace: String,
    /// Whose versions change.
    pub service: Id,
    /// The version that ends.
    pub from_version: i64,
    /// The version that begins; lower than `from_version` for a rollback.
    pub to_version: i64,
    /// Always `rolling_update`.
    pub strategy: &'static str,
    /// How far it is.
    pub status: DeploymentStatus,
    /// Its budget.
    pub limits: Limits,
    /// When it was accepted.
    pub created_at: Utc,
    /// When it was last written.
    pub updated_at: Utc,
    /// Goes up with every write.
    pub revision: u64,
    /// First running or rolling_back.
    pub started_at: Option<Utc>,
    /// First succeeded, failed, rolled_back or paused.
    pub completed_at: Option<Utc>,
    /// For [`crate::rules::Switch::Deadline`]: when it last got on, and how many targets were healthy.
    pub progress: Progress,
}

/// What the progress deadline remembers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Progress {
    /// When a pass last created, stopped or saw one more healthy target.
    pub at: Utc,
    /// The most healthy targets seen.
    pub healthy: i64,
    /// Whether this standstill was reported.
    pub reported: bool,
}

impl Deployment {
    /// What a guarded write must show.
    pub fn token(&self) -> Token {
        Token { updated_at: self.updated_at, revision: self.revision }
    }

    /// Whether it goes back to a lower version.
    pub fn is_rollback(&self) -> bool {
        self.to_version < self.from_version
    }
}

/// How much an event matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// As meant.
    Info,
    /// Somebody should look.
    Warning,
    /// Something went wrong.
    Error,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Event {
    /// Made by the store.
    pub id: Id,
    /// That of the object.
    pub namespace: String,
    /// `task.assigned`, `rollout.failed` …
    pub kind: &'static str,
    /// How much it matters.
    pub severity: Severity,
    /// `store`, `scheduler` or `rollout`.
    pub source: &'static str,
    /// For people.
    pub message: String,
    /// `task`, `deployment` …
    pub object: &'static str,
    /// Its id.
    pub object_id: Id,
    /// For programs.
    pub details: BTreeMap<&'static str, String>,
    /// When.
    pub at: Utc,
}

/// What became of an audited call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Allowed (baseline: said before the operation is tried).
    Success,
    /// Not allowed.
    Failure,
    /// The bypass was used, the operation is under way.
    Attempted,
    /// The operation was carried out.
    Applied,
    /// The operation was refused for another reason.
    Rejected,
}

/// Who did what to what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuditLog {
    /// Made by the store.
    pub id: Id,
    /// That of the call.
    pub namespace: String,
    /// `user`, `agent` or `system`.
    pub actor_type: &'static str,
    /// Who; a fixed word in the baseline.
    pub actor_id: String,
    /// `maintenance.bypass`.
    pub action: &'static str,
    /// `operation`.
    pub target_type: &'static str,
    /// The name of the operation.
    pub target_id: String,
    /// The id that the caller gave its call.
    pub operation_id: String,
    /// What became of it.
    pub outcome: Outcome,
    /// Values of keys that look like secrets are replaced.
    pub metadata: BTreeMap<String, String>,
    /// When.
    pub at: Utc,
}

/// Who calls, for what, and whether a closed window may be passed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Context {
    /// Only objects of this namespace are seen; all when none is named.
    pub namespace: Option<String>,
    /// Passes a closed maintenance window, and nothing else.
    pub force: bool,
    /// Who calls; strict mode demands it of a forced call.
    pub actor: String,
    /// Why; strict mode demands it of a forced call.
    pub reason: String,
    /// The caller's id of this call: strict mode writes one bypass record for each.
    pub operation_id: String,
    /// The caller gave up.
    pub cancelled: bool,
    /// Goes into the audit record.
    pub metadata: BTreeMap<String, String>,
}

impl Context {
    /// A call that passes closed windows.
    pub fn forced(actor: &str, reason: &str, operation_id: &str) -> Self {
        Self {
            force: true,
            actor: actor.to_owned(),
            reason: reason.to_owned(),
            operation_id: operation_id.to_owned(),
            ..Self::default()
        }
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.cancelled { Err(Error::Cancelled) } else { Ok(()) }
    }

    pub(crate) fn sees(&self, namespace: &str) -> bool {
        self.namespace.as_deref().is_none_or(|own| own == namespace)
    }

    pub(crate) fn namespace_or_default(&self) -> &str {
        self.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE)
    }
}
