//! The measured half: the same upgrade on real gateway processes, under a real probe stream.
//!
//! The model's store, scheduler and controller decide (strict mode); a supervisor starts, checks,
//! drains and ends gateways for its tasks and reports what it sees; a small route forwards
//! connections by an epoch-numbered table; loadgen's collectors stay connected through it; probes ask
//! on a fixed schedule. Raw records are written first, the summary is derived from them alone.

mod certificates;
mod clock;
mod collectors;
mod criteria;
mod exchange;
mod fault;
mod files;
mod picture;
mod probing;
mod process;
mod records;
mod route;
mod run;
mod series;
mod supervise;
mod view;

use std::path::PathBuf;
use std::time::Duration;

pub use certificates::Target;
pub use clock::{Clock, Nanos};
pub use criteria::{Criterion, Levels, Summary, judge};
pub use exchange::{ANSWER_MAX, Seen, exchange};
pub use fault::{Expected, Fault};
pub use files::{
    CollectorsFound, Environment, HeadFound, Raw, Spread, is_finished, read, recompute, write,
};
pub use picture::picture;
pub use probing::{DIRECT_PERIOD, PERIOD, Probing, SOURCE, STREAMS};
pub use records::{
    Change, FILES, Outcome, Passage, Probe, ROWS_MAX, RecordError, Recorded, Row, Tape,
};
pub use route::{CONNECTIONS_MAX, Choice, Route, Table};
pub use run::run;
use serde::{Deserialize, Serialize};
pub use series::{Held, Part, Played, Series, Worst, summarise};

/// Gateways.
pub const REPLICAS: i64 = 3;
/// Links that a drained gateway closes in a second.
pub const DRAIN_PER_SECOND: u32 = 50;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Variant {
    /// From v1 to v2.
    Rollout,
    /// A rollout that is not measured, then the way back.
    Rollback,
}

/// The word for it on the command line, and in names of folders.
pub fn variant_name(variant: Variant) -> &'static str {
    match variant {
        Variant::Rollout => "rollout",
        Variant::Rollback => "rollback",
    }
}

/// What a drill comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Every criterion holds.
    Passed,
    /// A criterion does not hold.
    Failed,
    /// The instrument was not good enough for a verdict.
    Void,
    /// The change could not go on; nothing failed, and it was reported.
    Waiting,
}

/// How long each part takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// Before anything counts.
    pub warm_up_s: u64,
    /// Before and after the change: no failure may fall into it.
    pub steady_s: u64,
    /// For how long the fourth slot is held back.
    pub slot_s: u64,
    /// Between two revisions of the configuration.
    pub push_s: u64,
    /// Whether revisions go on coming during the change.
    pub push_in_change: bool,
    /// Longest that the change may take.
    pub change_s: u64,
}

impl Times {
    /// Of a run that is worth keeping: about three minutes.
    pub const FULL: Self = Self {
        warm_up_s: 20,
        steady_s: 30,
        slot_s: 5,
        push_s: 5,
        push_in_change: true,
        change_s: 180,
    };
    /// Of a run in CI: under a minute. Its revisions come before the change.
    pub const SHORT: Self = Self {
        warm_up_s: 3,
        steady_s: 5,
        slot_s: 2,
        push_s: 3,
        push_in_change: false,
        change_s: 60,
    };
}

/// What a drill depends on; part of the records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Collectors: four fifths on WebSockets, the rest polling.
    pub collectors: u32,
    /// Of ids, uids and jitter.
    pub seed: u64,
    /// What is measured.
    pub variant: Variant,
    /// What is done wrong.
    pub fault: Option<Fault>,
    /// How long each part takes.
    pub times: Times,
    /// Whether collectors and probes speak TLS to the gateways; the route forwards it unread.
    pub tls: bool,
}

impl Settings {
    /// Sessions that one gateway may hold: half as many again as its share.
    pub fn budget(&self) -> i64 {
        i64::from(self.collectors) * 3 / (2 * REPLICAS)
    }

    /// Sessions of a gateway when all have the same.
    fn share(&self) -> f64 {
        f64::from(self.collectors) / REPLICAS as f64
    }

    /// Links that a gateway should close in a second: its share over the time that a drain takes.
    pub(crate) fn pace(&self) -> f64 {
        self.share().min(f64::from(DRAIN_PER_SECOND))
    }

    /// For how long a gateway closes its links.
    pub(crate) fn drain(&self) -> Duration {
        if self.fault == Some(Fault::CloseAllAtOnce) {
            return Duration::from_millis(1);
        }
        Duration::from_secs_f64((self.share() / f64::from(DRAIN_PER_SECOND)).max(1.0))
    }

    /// For how long a gateway goes on accepting after it said that it is not ready.
    pub(crate) fn drain_delay(&self) -> Duration {
        if self.fault == Some(Fault::CloseBeforeUnroute) {
            return Duration::ZERO;
        }
        Duration::from_secs(1)
    }
}

/// What a drill is given.
#[derive(Debug, Clone)]
pub struct Options {
    /// The gateway's binary.
    pub gateway: PathBuf,
    /// An estate with its rendered files; copied, never changed.
    pub estate: PathBuf,
    /// A folder that does not exist.
    pub out: PathBuf,
    /// The rest.
    pub settings: Settings,
}

/// Why there is no verdict at all.
#[derive(Debug, thiserror::Error)]
pub enum DrillError {
    /// Something that a drill needs could not be done.
    #[error("{0}")]
    Cannot(String),
    /// The system refused.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The model refused.
    #[error("the model: {0}")]
    Model(#[from] crate::error::Error),
    /// A raw file is not one.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A JSON file is not one.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// The collectors could not start.
    #[error("the collectors: {0}")]
    Collectors(#[from] loadgen::RunError),
}
