//! What the coordinator and a worker say to each other: a JSON object a line, on the worker's stdin
//! and stdout.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::histogram;
use crate::report::Report;
use crate::shared::Timings;
pub(crate) use crate::swarm::{Ends, Interval};

/// What a worker has to know before it starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Task {
    /// Collectors of the whole run.
    pub(crate) collectors: u32,
    /// The first of this worker.
    pub(crate) first: u32,
    /// How many of them are its.
    pub(crate) count: u32,
    pub(crate) estate: PathBuf,
    pub(crate) plan: Option<PathBuf>,
    /// In place of the plan's.
    pub(crate) heartbeat_us: Option<u64>,
    /// Shortest and longest, in place of the plan's.
    pub(crate) apply_delay_us: Option<(u64, u64)>,
    pub(crate) no_applying: bool,
    pub(crate) targets: Vec<SocketAddr>,
    /// Whether neighbours connect to the same target, in place of one after the other.
    pub(crate) blocks: bool,
    /// Path and query.
    pub(crate) path: String,
    pub(crate) sources: Vec<IpAddr>,
    /// Between two starts of this worker.
    pub(crate) every_us: f64,
    pub(crate) head_window_us: u64,
    pub(crate) reply_timeout_us: u64,
    pub(crate) reconnect_within_us: Option<u64>,
}

/// To a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub(crate) enum ToWorker {
    /// The first line.
    Prepare(Box<Task>),
    /// The first collector starts at that time, or was to start then.
    Go { unix_us: u64 },
    /// The estate on disk does not look as it did, since about that time.
    Look { since_unix_us: u64 },
    /// Collectors of that target connect there from now on.
    Target { target: u16, address: SocketAddr },
    /// Links to that target may break from now on.
    Condemn { target: u16 },
    /// Every link is reset and opened again.
    Storm,
    /// Everybody says goodbye; then the part of the report, and the end.
    Finish {
        /// Not the planned end of the run.
        early: bool,
    },
}

/// From a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub(crate) enum FromWorker {
    /// It is prepared.
    Ready,
    /// Every one of its collectors has tried to connect.
    Begun,
    /// Answers [`ToWorker::Condemn`].
    Condemned { target: u16 },
    /// About twice a second.
    Progress { progress: Interval },
    /// The last line.
    Done { part: Box<Part> },
    /// The last line of one that cannot go on.
    Failed { why: String },
}

/// A worker's share of the report.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Part {
    pub(crate) report: Report,
    /// What it complains about beside what the figures say.
    pub(crate) complaints: Vec<String>,
    pub(crate) distributions: Distributions,
    pub(crate) expected_ends: Ends,
    pub(crate) other_ends: Ends,
    pub(crate) storm_resets: u64,
    /// By fingerprint of a head: when its last offer came, in microseconds since the Unix epoch.
    pub(crate) last_offers: Vec<(u64, Option<u64>)>,
    /// Resident bytes before the first collector.
    pub(crate) rss_before: u64,
    /// And with all of them settled for the first time.
    pub(crate) rss_settled: Option<u64>,
}

/// A value and how often.
type Pairs = Vec<(u64, u64)>;

/// Distributions as pairs of a value and how often.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Distributions {
    connect_to_offer: Pairs,
    change_to_offer: Pairs,
    reply: Pairs,
    away: Pairs,
    connect_lateness: Pairs,
    timer_lateness: Pairs,
}

impl Distributions {
    pub(crate) fn of(timings: &Timings) -> Self {
        Self {
            connect_to_offer: histogram::pairs(&timings.connect_to_offer),
            change_to_offer: histogram::pairs(&timings.change_to_offer),
            reply: histogram::pairs(&timings.reply),
            away: histogram::pairs(&timings.away),
            connect_lateness: histogram::pairs(&timings.connect_lateness),
            timer_lateness: histogram::pairs(&timings.timer_lateness),
        }
    }

    /// Adds them to those of other workers.
    pub(crate) fn add_to(&self, timings: &mut Timings) {
        let both: [(&mut Histogram<u64>, &Pairs); 6] = [
            (&mut timings.connect_to_offer, &self.connect_to_offer),
            (&mut timings.change_to_offer, &self.change_to_offer),
            (&mut timings.reply, &self.reply),
            (&mut timings.away, &self.away),
            (&mut timings.connect_lateness, &self.connect_lateness),
            (&mut timings.timer_lateness, &self.timer_lateness),
        ];
        for (histogram, pairs) in both {
            histogram::add(histogram, pairs);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_survives_a_line() {
        let task = Task {
            collectors: 500_000,
            first: 19_000,
            count: 19_000,
            estate: "estate".into(),
            plan: Some("plan.toml".into()),
            heartbeat_us: None,
            apply_delay_us: Some((1, 2)),
            no_applying: true,
            targets: vec!["127.0.0.1:4320".parse().unwrap()],
            blocks: true,
            path: "/v1/opamp".to_owned(),
            sources: vec!["127.1.0.1".parse().unwrap()],
            every_us: 2_800.25,
            head_window_us: 10_000_000,
            reply_timeout_us: 10_000_000,
            reconnect_within_us: None,
        };
        for command in [
            ToWorker::Prepare(Box::new(task)),
            ToWorker::Go { unix_us: 1_790_000_000_000_000 },
            ToWorker::Look { since_unix_us: 1_790_000_000_000_000 },
            ToWorker::Target { target: 3, address: "127.0.0.1:1".parse().unwrap() },
            ToWorker::Condemn { target: 3 },
            ToWorker::Storm,
            ToWorker::Finish { early: true },
        ] {
            let line = serde_json::to_string(&command).unwrap();
            assert!(!line.contains('\n'));
            assert_eq!(serde_json::from_str::<ToWorker>(&line).unwrap(), command);
        }
        let line = serde_json::to_string(&FromWorker::Condemned { target: 3 }).unwrap();
        assert_eq!(line, r#"{"is":"condemned","target":3}"#);
        assert!(serde_json::from_str::<FromWorker>("{\"is\":\"nothing\"}").is_err());
    }
}
