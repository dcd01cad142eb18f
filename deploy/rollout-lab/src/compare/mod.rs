//! The same upgrade under three arithmetics: the baseline's, strict mode's, and that of a Kubernetes
//! Deployment.

mod kubernetes;
mod simulate;
mod text;

pub use kubernetes::{Cluster, fenceposts};
pub use simulate::{compare, simulate};
pub use text::{svg, table};

use serde::Serialize;

/// Replicas that can be compared: the simulation is stepwise, and this is far beyond any set of
/// gateways.
pub const REPLICAS_MAX: i64 = 200;

/// A number of tasks, or a percentage of the replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Amount {
    /// Tasks.
    Tasks(i64),
    /// Hundredths of the replicas.
    Percent(i64),
}

impl Amount {
    fn is_zero(self) -> bool {
        matches!(self, Self::Tasks(0) | Self::Percent(0))
    }
}

impl std::str::FromStr for Amount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (digits, percent) = match text.strip_suffix('%') {
            Some(digits) => (digits, true),
            None => (text, false),
        };
        let number: i64 =
            digits.parse().map_err(|_| format!("{text:?} is neither a number nor a percentage"))?;
        if !(0..=1_000_000).contains(&number) {
            return Err(format!("{text:?} is not between 0 and 1000000"));
        }
        Ok(if percent { Self::Percent(number) } else { Self::Tasks(number) })
    }
}

impl std::fmt::Display for Amount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tasks(number) => write!(f, "{number}"),
            Self::Percent(number) => write!(f, "{number}%"),
        }
    }
}

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Question {
    /// R.
    pub replicas: i64,
    /// U.
    pub max_unavailable: Amount,
    /// S.
    pub max_surge: Amount,
    /// Old replicas that are unhealthy and stay so. They have the smallest ids, which is where the
    /// baseline looks last.
    pub unhealthy_old: i64,
    /// Whether ended processes are reported.
    pub acknowledge: bool,
    /// Of the ids.
    pub seed: u64,
}

/// Why a question cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuestionError {
    /// R out of range.
    #[error("replicas must be 1 to {REPLICAS_MAX}")]
    Replicas,
    /// Refused as given by all three.
    #[error("maxUnavailable and maxSurge must not both be zero")]
    BothZero,
    /// More unhealthy old replicas than replicas.
    #[error("unhealthy old replicas must be 0 to the number of replicas")]
    Unhealthy,
    /// A model refused the question.
    #[error("the model refuses: {0}")]
    Model(#[from] crate::error::Error),
}

/// The state after a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step {
    /// 0 is the state before the first pass.
    pub step: i64,
    /// What the pass did.
    pub action: String,
    /// Old tasks that count.
    pub old: i64,
    /// Targets.
    pub new: i64,
    /// Available by the arithmetic of the mode.
    pub available: i64,
    /// Processes that may exist before their end is acknowledged.
    pub processes: i64,
}

/// How one arithmetic answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// `baseline`, `strict` or `kubernetes`.
    pub mode: String,
    /// `succeeded`, or `stalls`.
    pub outcome: String,
    /// Why it stalls.
    pub why: Vec<String>,
    /// Passes that changed something. The baseline's and strict's passes may create and stop in one;
    /// Kubernetes does one kind in each.
    pub passes: i64,
    /// The least that was available, the beginning included.
    pub min_available: i64,
    /// The most tasks that counted.
    pub max_active: i64,
    /// The most processes.
    pub max_processes: i64,
    /// Every step.
    pub steps: Vec<Step>,
}

/// A question and its three answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Comparison {
    /// The layout.
    pub schema: &'static str,
    /// R.
    pub replicas: i64,
    /// U as asked.
    pub max_unavailable_asked: String,
    /// S as asked.
    pub max_surge_asked: String,
    /// U in tasks, rounded down.
    pub max_unavailable: i64,
    /// S in tasks, rounded up.
    pub max_surge: i64,
    /// Whether both were rounded to zero, and U became 1.
    pub raised_to_one: bool,
    /// Old replicas that stay unhealthy.
    pub unhealthy_old: i64,
    /// Whether ended processes are reported.
    pub acknowledged: bool,
    /// The three.
    pub answers: Vec<Answer>,
    /// What none of this shows.
    pub not_claimed: Vec<&'static str>,
}
