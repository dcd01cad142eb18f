//! A closed loop: what does one message cost a server, and how many does it answer per second?
//!
//! Each link says who it is, takes its offer and tells APPLIED, so that nothing is left to be
//! offered; then it keeps so many messages under way, and sends the next one when one is answered.
//! Every reply is looked at. It is for any OpAMP server, so that several can be laid side by side.

mod link;
mod messages;
mod outcome;
mod reply;
mod run;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use proto::ids::InstanceUid;
use serde::Serialize;

use crate::clock::Clock;
use crate::config::{COLLECTORS_MAX, RunError};
use crate::endpoint::{Endpoint, Transport};
use crate::host;
use crate::model::Model;
use crate::plan::Plan;
use crate::watch::Watcher;
use messages::Speaker;
pub use outcome::{Cost, Outcome};
use reply::Expected;
use run::{Pump, Run};

/// Descriptors that the process needs for itself.
const SPARE_DESCRIPTORS: u64 = 64;
/// Collectors of a derived plan for each Tier, of which the links are some.
const PER_TIER: u32 = 4;

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Uid, number, capabilities, the whole agent description, and APPLIED with the offered hash; no
    /// effective config and no health.
    Described,
    /// Uid, number and capabilities.
    Heartbeat,
}

/// How long messages are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// That many in all, and all of them are measured.
    Messages(u64),
    /// For some time, of which the first part is not measured.
    For {
        /// Before it is measured.
        warm_up: Duration,
        /// While it is.
        duration: Duration,
    },
}

/// What is asked of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// `ws://host:port/path` of the server.
    pub endpoint: String,
    /// The estate that it serves.
    pub estate: PathBuf,
    /// Who the collectors are; derived from the estate when absent.
    pub plan: Option<PathBuf>,
    /// How many links.
    pub links: u32,
    /// How many messages are under way on each.
    pub in_flight: u32,
    /// What is sent.
    pub message: Kind,
    /// How long.
    pub length: Length,
    /// The server's process, whose processor time is looked at.
    pub server_pid: Option<u32>,
    /// Local address to connect from.
    pub source: Option<IpAddr>,
    /// How long no reply at all may come.
    pub reply_timeout: Duration,
}

impl Options {
    /// 64 links with 16 described messages under way on each, for 10 s after 2 s.
    pub fn new(endpoint: impl Into<String>, estate: impl Into<PathBuf>) -> Self {
        Self {
            endpoint: endpoint.into(),
            estate: estate.into(),
            plan: None,
            links: 64,
            in_flight: 16,
            message: Kind::Described,
            length: Length::For {
                warm_up: Duration::from_secs(2),
                duration: Duration::from_secs(10),
            },
            server_pid: None,
            source: None,
            reply_timeout: Duration::from_secs(10),
        }
    }

    fn check(&self) -> Result<(), RunError> {
        let usage = |text: String| Err(RunError::Usage(text));
        if !(1..=COLLECTORS_MAX).contains(&self.links) {
            return usage(format!("--links must be from 1 to {COLLECTORS_MAX}"));
        }
        if !(1..=IN_FLIGHT_MAX).contains(&self.in_flight) {
            return usage(format!("--in-flight must be from 1 to {IN_FLIGHT_MAX}"));
        }
        for (flag, empty) in [
            ("--messages", self.length == Length::Messages(0)),
            (
                "--duration",
                matches!(self.length, Length::For { duration, .. } if duration.is_zero()),
            ),
            ("--reply-timeout", self.reply_timeout.is_zero()),
        ] {
            if empty {
                return usage(format!("{flag} must be more than 0"));
            }
        }
        if let Some(pid) = self.server_pid.filter(|pid| host::usage_of(*pid).is_none()) {
            return usage(format!("--server-pid {pid}: there is no such process"));
        }
        let needed = u64::from(self.links) + SPARE_DESCRIPTORS;
        match host::raise_descriptors() {
            Some(limit) if limit < needed => usage(format!(
                "{} links need {needed} open files, and {limit} are allowed: ask for fewer",
                self.links
            )),
            _ => Ok(()),
        }
    }
}

/// Messages under way on a link, at most: what it keeps of them is bounded.
pub const IN_FLIGHT_MAX: u32 = 1_024;

/// Runs to the end.
///
/// # Errors
///
/// Only when the run cannot start. What goes wrong later is in the outcome.
pub async fn run(options: Options) -> Result<Outcome, RunError> {
    options.check()?;
    let endpoint = Endpoint::resolve(&options.endpoint, None, options.source)
        .await
        .map_err(|text| RunError::Usage(format!("--endpoint: {text}")))?;
    if endpoint.secure || endpoint.transport != Transport::Ws {
        let text = format!("--endpoint: {} does not begin with ws://", options.endpoint);
        return Err(RunError::Usage(text));
    }
    let ran = tokio::task::spawn_blocking(move || {
        let who = who(&options)?;
        let run = Run::new(&options, endpoint);
        Pump::new(&options, run, who)
            .and_then(Pump::run)
            .map_err(|error| RunError::Usage(format!("epoll: {error}")))
    });
    ran.await.map_err(|error| RunError::Usage(format!("the run broke off: {error}")))?
}

/// Who speaks on each link, what it must be told, and whether it takes offers.
fn who(options: &Options) -> Result<Vec<(Speaker, Expected, bool)>, RunError> {
    let (_, model) =
        Watcher::open(&options.estate).map_err(|error| RunError::Estate(error.to_string()))?;
    let plan = plan(options, &model)?;
    let mut rng = fastrand::Rng::new();
    let who = (0..plan.len()).map(|index| {
        let mut random = [0; 10];
        rng.fill(&mut random);
        let uid = InstanceUid::v7(Clock::unix_ms(), random);
        let attributes = plan.attributes(index);
        let accepts = !plan.is_report_only(index);
        let place = model.place(&attributes);
        // Which of the two is for whom is the question of the other runs.
        let artefacts = [Some(model.base(place)), model.candidate(place)];
        let artefacts = artefacts.into_iter().flatten().filter(|_| accepts).map(Arc::clone);
        let expected = Expected::new(uid, artefacts.collect());
        (Speaker::new(uid, accepts, attributes), expected, accepts)
    });
    Ok(who.collect())
}

fn plan(options: &Options, model: &Model) -> Result<Plan, RunError> {
    let Some(path) = &options.plan else {
        // In a plan for few collectors, many Tiers would all be the first ones.
        let tiers = u32::try_from(model.tiers().count()).unwrap_or(u32::MAX);
        let all = options.links.max(tiers.saturating_mul(PER_TIER));
        return Ok(Plan::derive(model, all)?.slice(0..options.links));
    };
    let file = path.display().to_string();
    let text = std::fs::read_to_string(path)
        .map_err(|error| RunError::PlanFile { path: file.clone(), error: error.to_string() })?;
    let plan = Plan::parse(&text, &file, options.links)?;
    plan.check_claims(model)?;
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_no_sense_is_refused_with_a_way_out() {
        let check = |change: fn(&mut Options), expected: &str| {
            let mut options = Options::new("ws://127.0.0.1:1/v1/opamp", "e");
            change(&mut options);
            let error = options.check().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        check(|options| options.links = 0, "--links must be from 1");
        check(|options| options.in_flight = 0, "--in-flight must be from 1");
        check(|options| options.in_flight = 2_000, "--in-flight must be from 1 to 1024");
        check(|options| options.length = Length::Messages(0), "--messages must be more than 0");
        check(|options| options.server_pid = Some(u32::MAX), "there is no such process");
        check(|options| options.reply_timeout = Duration::ZERO, "--reply-timeout must be more");
    }

    #[test]
    fn links_are_spread_over_all_tiers() {
        let estate = crate::testing::estate();
        let (_, model) = Watcher::open(estate.path()).unwrap();
        let mut options = Options::new("ws://127.0.0.1:1/v1/opamp", estate.path());
        options.links = 5;
        let plan = plan(&options, &model).unwrap();
        assert_eq!(plan.len(), 5);
        let tiers: std::collections::BTreeSet<_> = (0..5)
            .map(|index| model.tier(model.place(&plan.attributes(index))).map(str::to_owned))
            .collect();
        assert!(tiers.len() > 1, "{tiers:?}");
        assert_eq!(who(&options).unwrap().len(), 5);
    }
}
