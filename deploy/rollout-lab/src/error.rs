//! Why an operation was refused.

use std::fmt;

use serde::Serialize;

/// What holds the lock of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// A deployment to a higher version is pending or running.
    Rollout,
    /// A deployment to a lower version is pending or rolling back.
    Rollback,
    /// The service is deleting or deleted.
    Delete,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rollout => "rollout",
            Self::Rollback => "rollback",
            Self::Delete => "delete",
        })
    }
}

/// The kind of a refusal: what a caller branches on, and what an HTTP front would answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Kind {
    /// No such object, or it is in another namespace. 404.
    NotFound,
    /// Another operation holds the lock, the write is stale, or a window is closed. 409.
    Conflict,
    /// The request or the transition is not legal. 400.
    InvalidState,
    /// The name is taken. 409.
    Duplicate,
    /// A rule on images says no. 400.
    Admission,
    /// The namespace may not have so many replicas. 409.
    Quota,
    /// The caller gave up before the operation began. 499.
    Cancelled,
    /// The storage behind the store did not answer. 500.
    Storage,
}

impl Kind {
    /// The status an HTTP front would answer with.
    pub fn http_status(self) -> u16 {
        match self {
            Self::NotFound => 404,
            Self::Conflict | Self::Duplicate | Self::Quota => 409,
            Self::InvalidState | Self::Admission => 400,
            Self::Cancelled => 499,
            Self::Storage => 500,
        }
    }
}

/// A refused operation; nothing was changed by it, but for a bypass record (section "Maintenance").
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No such object under this id, in the namespace asked for.
    #[error("{what} {id} not found")]
    NotFound {
        /// `node`, `service`, `task` …
        what: &'static str,
        /// The id, or the name, that was asked for.
        id: String,
    },
    /// The service has a deployment in pending, running or rolling_back, or is being deleted.
    #[error("operation already in progress: {0}")]
    Busy(Operation),
    /// The object was written after the caller had read it.
    #[error("stale write: {what} {id} was changed after it was read")]
    Stale {
        /// `task` or `deployment`.
        what: &'static str,
        /// Its id.
        id: String,
    },
    /// Every relevant maintenance window is closed, and the call was not forced.
    #[error("operation {0} is outside an approved maintenance window")]
    OutsideWindow(String),
    /// Two objects claim the same thing.
    #[error("{0}")]
    Conflict(String),
    /// The request, or the step from one status to the other, is not legal.
    #[error("{0}")]
    InvalidState(String),
    /// The name is taken.
    #[error("{what} {name} exists already")]
    Duplicate {
        /// `service` or `maintenance window`.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A rule on images says no.
    #[error("admission: {0}")]
    Admission(String),
    /// The namespace may not have so many replicas.
    #[error("quota: {0}")]
    Quota(String),
    /// The caller gave up.
    #[error("cancelled by the caller")]
    Cancelled,
    /// The storage behind the store did not answer.
    #[error("storage: {0}")]
    Storage(String),
}

impl Error {
    pub(crate) fn invalid(text: impl Into<String>) -> Self {
        Self::InvalidState(text.into())
    }

    pub(crate) fn not_found(what: &'static str, id: impl fmt::Display) -> Self {
        Self::NotFound { what, id: id.to_string() }
    }

    /// The kind of this refusal.
    pub fn kind(&self) -> Kind {
        match self {
            Self::NotFound { .. } => Kind::NotFound,
            Self::Busy(_) | Self::Stale { .. } | Self::OutsideWindow(_) | Self::Conflict(_) => {
                Kind::Conflict
            }
            Self::InvalidState(_) => Kind::InvalidState,
            Self::Duplicate { .. } => Kind::Duplicate,
            Self::Admission(_) => Kind::Admission,
            Self::Quota(_) => Kind::Quota,
            Self::Cancelled => Kind::Cancelled,
            Self::Storage(_) => Kind::Storage,
        }
    }

    /// What holds the lock, if that is why.
    pub fn operation(&self) -> Option<Operation> {
        match self {
            Self::Busy(operation) => Some(*operation),
            Self::NotFound { .. }
            | Self::Stale { .. }
            | Self::OutsideWindow(_)
            | Self::Conflict(_)
            | Self::InvalidState(_)
            | Self::Duplicate { .. }
            | Self::Admission(_)
            | Self::Quota(_)
            | Self::Cancelled
            | Self::Storage(_) => None,
        }
    }
}
