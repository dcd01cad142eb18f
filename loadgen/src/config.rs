//! What a run is asked to do.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::endpoint::Transport;

/// Collectors that one process can hold: a descriptor each, of the 20,000 that hosts commonly give,
/// less some for itself (performance.md).
pub const COLLECTORS_MAX: u32 = 19_900;

/// All choices of a run.
#[derive(Clone, Debug)]
pub struct Config {
    /// How many collectors, 1..=[`COLLECTORS_MAX`].
    pub collectors: u32,
    /// `ws://host:port/path`, `http://…`, `wss://…` or `https://…`.
    pub endpoint: String,
    /// Overrides what the URL's scheme says.
    pub transport: Option<Transport>,
    /// Whom to believe, PEM; needed for `wss://` and `https://`, and only for those.
    pub ca: Option<PathBuf>,
    /// Local address to connect from.
    pub source: Option<IpAddr>,
    /// The estate, authored and rendered, that the server serves.
    pub estate: PathBuf,
    /// A plan file; without one a plan is derived from the estate.
    pub plan: Option<PathBuf>,
    /// Overrides the plan's heartbeat.
    pub heartbeat: Option<Duration>,
    /// Collectors started per second.
    pub connect_rate: f64,
    /// How long to stay after all have settled.
    pub duration: Duration,
    /// Changes of the estate to wait for before leaving; less is a failure.
    pub expect_changes: u32,
    /// How long the first settling, and each expected change, may take.
    pub timeout: Duration,
    /// How far the server's sight of a change may be from ours (see [`crate::heads`]).
    pub head_window: Duration,
    /// How long a reply may take.
    pub reply_timeout: Duration,
    /// Compress HTTP requests.
    pub gzip: bool,
    /// Links that break are no failure as long as their collectors come back.
    pub allow_lost_links: bool,
    /// Longest wait before another attempt to connect; a minute and a half, as opamp-go's, if absent.
    pub reconnect_within: Option<Duration>,
}

impl Config {
    /// A run with the defaults of the command line.
    pub fn new(collectors: u32, endpoint: impl Into<String>, estate: impl Into<PathBuf>) -> Self {
        Self {
            collectors,
            endpoint: endpoint.into(),
            transport: None,
            source: None,
            ca: None,
            estate: estate.into(),
            plan: None,
            heartbeat: None,
            connect_rate: 2_000.0,
            duration: Duration::ZERO,
            expect_changes: 0,
            timeout: Duration::from_secs(120),
            head_window: Duration::from_secs(10),
            reply_timeout: Duration::from_secs(10),
            gzip: false,
            allow_lost_links: false,
            reconnect_within: None,
        }
    }
}

/// A run that cannot even start. The command line answers all of them with exit code 2.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// A value that makes no sense.
    #[error("{0}")]
    Usage(String),
    /// The estate cannot be read or served.
    #[error("the estate cannot be used: {0}")]
    Estate(String),
    /// The plan is not one, or does not fit the estate.
    #[error("{0}")]
    Plan(#[from] crate::plan::PlanError),
    /// The plan file cannot be read.
    #[error("{path}: {error}")]
    PlanFile {
        /// As given.
        path: String,
        /// Why.
        error: String,
    },
}

impl Config {
    pub(crate) fn check(&self) -> Result<(), RunError> {
        let usage = |text: String| Err(RunError::Usage(text));
        if self.collectors == 0 {
            return usage("--collectors must be at least 1".to_owned());
        }
        if self.collectors > COLLECTORS_MAX {
            return usage(format!(
                "--collectors {}: one process holds at most {COLLECTORS_MAX}; run several, each with a --source of its own (127.0.1.1, 127.0.1.2, ...)",
                self.collectors
            ));
        }
        if !(self.connect_rate.is_finite() && self.connect_rate > 0.0) {
            return usage("--connect-rate must be greater than 0".to_owned());
        }
        for (flag, value) in [
            ("--timeout", self.timeout),
            ("--head-window", self.head_window),
            ("--reply-timeout", self.reply_timeout),
        ] {
            if value.is_zero() {
                return usage(format!("{flag} must be longer than 0"));
            }
        }
        if self.heartbeat.is_some_and(|heartbeat| heartbeat.is_zero()) {
            return usage("--heartbeat must be longer than 0".to_owned());
        }
        Ok(())
    }
}
