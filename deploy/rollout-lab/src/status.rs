//! Statuses, and the only steps between them.

use serde::{Deserialize, Serialize};

use crate::error::Error;

macro_rules! statuses {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $name { $($(#[$vdoc])* #[serde(rename = $text)] $variant,)* }

        impl $name {
            /// Every status, in the order in which they are listed above.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The word in outputs.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),* }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

statuses! {
    /// Of a task: what is wanted of it (desired) and what is reported of it (actual).
    TaskStatus {
        /// Made, on no node.
        Pending = "pending",
        /// On a node, not begun.
        Assigned = "assigned",
        /// Its image is fetched.
        Pulling = "pulling",
        /// Its container exists.
        Created = "created",
        /// Its process begins.
        Starting = "starting",
        /// Its process runs; says nothing of its health.
        Running = "running",
        /// Its health check passes.
        Healthy = "healthy",
        /// Its health check fails.
        Unhealthy = "unhealthy",
        /// Its process is being ended.
        Stopping = "stopping",
        /// Its process ended.
        Stopped = "stopped",
        /// Nothing is left of it on the node.
        Removed = "removed",
        /// It ended by itself, or its node was lost.
        Failed = "failed",
    }
}

impl TaskStatus {
    /// Whether a task that is in this state has no process any more.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Stopped | Self::Removed | Self::Failed)
    }

    /// Whether an agent may report it; the others are the store's to set.
    pub fn is_reportable(self) -> bool {
        !matches!(self, Self::Pending | Self::Assigned | Self::Starting | Self::Stopping)
    }

    /// Whether a task that is `self` may become `to`.
    ///
    /// # Errors
    /// [`Error::InvalidState`] for every step that the table does not list.
    pub fn step(self, to: Self) -> Result<(), Error> {
        use TaskStatus::{
            Assigned, Created, Failed, Healthy, Pending, Pulling, Removed, Running, Starting,
            Stopped, Stopping, Unhealthy,
        };
        let allowed: &[Self] = match self {
            Pending => &[Assigned, Stopped, Removed, Failed],
            Assigned => {
                &[Pulling, Created, Running, Healthy, Unhealthy, Stopping, Stopped, Removed, Failed]
            }
            Pulling => &[Created, Running, Stopping, Stopped, Removed, Failed],
            Created => &[Starting, Running, Stopping, Stopped, Removed, Failed],
            Starting => &[Running, Stopping, Stopped, Removed, Failed],
            Running => &[Healthy, Unhealthy, Stopping, Stopped, Removed, Failed],
            Healthy => &[Running, Unhealthy, Stopping, Stopped, Removed, Failed],
            Unhealthy => &[Running, Healthy, Stopping, Stopped, Removed, Failed],
            Stopping => &[Stopped, Removed, Failed],
            Stopped | Failed => &[Removed],
            Removed => &[],
        };
        legal("task", self, to, allowed)
    }

    /// Whether the desired status `self` may become `to`.
    ///
    /// # Errors
    /// [`Error::InvalidState`] but for running → stopped | removed and stopped → removed.
    pub fn step_desired(self, to: Self) -> Result<(), Error> {
        let allowed: &[Self] = match self {
            Self::Running => &[Self::Stopped, Self::Removed],
            Self::Stopped => &[Self::Removed],
            Self::Pending
            | Self::Assigned
            | Self::Pulling
            | Self::Created
            | Self::Starting
            | Self::Healthy
            | Self::Unhealthy
            | Self::Stopping
            | Self::Removed
            | Self::Failed => &[],
        };
        legal("desired task", self, to, allowed)
    }
}

statuses! {
    /// Of a node. Only a ready one is given tasks.
    NodeStatus {
        /// Takes tasks.
        Ready = "ready",
        /// Keeps what it has.
        Draining = "draining",
        /// Not heard of, or shut down.
        Offline = "offline",
        /// Never heard of.
        Unknown = "unknown",
    }
}

impl NodeStatus {
    /// Whether a node that is `self` may become `to`.
    ///
    /// # Errors
    /// [`Error::InvalidState`] for every step that the table does not list.
    pub fn step(self, to: Self) -> Result<(), Error> {
        let allowed: &[Self] = match self {
            Self::Unknown => &[Self::Ready, Self::Offline],
            Self::Ready => &[Self::Draining, Self::Offline],
            Self::Draining => &[Self::Ready, Self::Offline],
            Self::Offline => &[Self::Ready],
        };
        legal("node", self, to, allowed)
    }
}

statuses! {
    /// Of a service. A deleted one keeps its row, and its name.
    ServiceStatus {
        /// Runs.
        Active = "active",
        /// Waits until its last task is removed.
        Deleting = "deleting",
        /// Has no tasks.
        Deleted = "deleted",
    }
}

impl ServiceStatus {
    /// Whether a service that is `self` may become `to`.
    ///
    /// # Errors
    /// [`Error::InvalidState`] but for active → deleting → deleted.
    pub fn step(self, to: Self) -> Result<(), Error> {
        let allowed: &[Self] = match self {
            Self::Active => &[Self::Deleting],
            Self::Deleting => &[Self::Deleted],
            Self::Deleted => &[],
        };
        legal("service", self, to, allowed)
    }
}

statuses! {
    /// Of a deployment.
    DeploymentStatus {
        /// Accepted, no pass has seen it.
        Pending = "pending",
        /// A rollout that a pass has begun.
        Running = "running",
        /// In the enum only: nothing sets it, nothing resumes it.
        Paused = "paused",
        /// Done.
        Succeeded = "succeeded",
        /// A task of the target version failed, or the service was deleted.
        Failed = "failed",
        /// A rollback that is under way.
        RollingBack = "rolling_back",
        /// A rollback that is done.
        RolledBack = "rolled_back",
    }
}

impl DeploymentStatus {
    /// Whether nothing may change it any more.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::RolledBack)
    }

    /// Whether a deployment in this state locks its service.
    pub fn holds_lock(self) -> bool {
        matches!(self, Self::Pending | Self::Running | Self::RollingBack)
    }

    /// Whether a deployment that is `self` may become `to`.
    ///
    /// # Errors
    /// [`Error::InvalidState`] for every step that the table does not list.
    pub fn step(self, to: Self) -> Result<(), Error> {
        use DeploymentStatus::{
            Failed, Paused, Pending, RolledBack, RollingBack, Running, Succeeded,
        };
        let allowed: &[Self] = match self {
            Pending => &[Running, RollingBack, Succeeded, Failed, RolledBack],
            Running => &[Succeeded, Failed, Paused],
            Paused => &[Running, Failed],
            RollingBack => &[RolledBack, Failed, Paused],
            Succeeded | Failed | RolledBack => &[],
        };
        legal("deployment", self, to, allowed)
    }
}

/// Standing still is always legal.
fn legal<S: Copy + PartialEq + std::fmt::Display>(
    what: &str,
    from: S,
    to: S,
    allowed: &[S],
) -> Result<(), Error> {
    if from == to || allowed.contains(&to) {
        return Ok(());
    }
    Err(Error::invalid(format!("invalid {what} transition: {from} to {to}")))
}
