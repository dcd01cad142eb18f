//! A flood: does a crowd of hostile peers harm honest collectors?
//!
//! The same honest collectors connect, are offered, and send heartbeats twice, beside nobody and
//! beside [`peers`] that never finish a handshake, never read, or send garbage. Their figures are
//! laid side by side: the 99th percentile beside the crowd may be [`RATIO_MAX`] times the one
//! without it, and the gateway may grow by [`growth_max`].

mod peers;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use crate::config::Config;
use crate::fleet::run;
use crate::host;
use crate::rehearse::gateway::{Log, Process};
use crate::report::Report;
use peers::{Crowd, Kind, Tally};

/// How much slower honest collectors may be served beside the crowd (issue of the flood test).
pub const RATIO_MAX: f64 = 3.0;
/// Times below this are as good as none: the schedulers of two processes alone are that exact.
const FLOOR_MS: f64 = 20.0;
/// What one peer that never reads may make the gateway keep: `docs/limits.md`, a link's outbox.
const SLOW_READER_BYTES_MAX: u64 = 128 * 1024;
/// What any other peer may make it keep: a task and the beginnings of a head.
const OTHER_BYTES_MAX: u64 = 4 * 1024;
/// How often the crowd's size and the gateway's memory are looked at.
const LOOK: Duration = Duration::from_millis(200);
/// Longest that the crowd takes to come.
const GATHERING_MAX: Duration = Duration::from_secs(30);

/// What is asked of a flood.
#[derive(Clone, Debug)]
pub struct Options {
    /// The gateway's binary, which is started.
    pub gateway: PathBuf,
    /// The estate that it serves.
    pub estate: PathBuf,
    /// Honest collectors.
    pub honest: u32,
    /// Connections that never finish their handshake.
    pub half_open: u32,
    /// Links that ask and never read.
    pub slow_readers: u32,
    /// Peers that send what is neither HTTP nor WebSocket nor OpAMP, again and again.
    pub garbage: u32,
    /// How long the honest stay once all have their offer, in each of the two runs.
    pub duration: Duration,
    /// What the gateway is started with besides.
    pub arguments: Vec<String>,
}

/// What came of it.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Every figure is within its bound.
    pub passed: bool,
    /// What is not, a sentence each.
    pub problems: Vec<String>,
    /// The honest alone.
    pub alone: Figures,
    /// The honest beside the crowd.
    pub beside: Figures,
    /// The gateway's memory before the crowd came, at most while it was there, and the bound of the
    /// difference, in bytes.
    pub resident_before: u64,
    /// See `resident_before`.
    pub resident_most: u64,
    /// See `resident_before`.
    pub growth_max: u64,
    /// What the crowd did.
    pub crowd: Tally,
}

/// Of one run of the honest.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// All were offered what they must be, and answered.
    pub all_right: bool,
    /// Why not.
    pub problems: Vec<String>,
    /// 99th percentile from the intended connect to the offer, in milliseconds.
    pub connect_to_offer_p99_ms: f64,
    /// 99th percentile from a message to its reply, in milliseconds.
    pub reply_p99_ms: f64,
    /// loadgen's own share of all processors.
    pub own_share: f64,
}

/// Why there was no flood.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct FloodError(String);

/// How much the gateway may grow under a crowd, in bytes: what `docs/limits.md` allows its peers.
pub fn growth_max(half_open: u32, slow_readers: u32, garbage: u32) -> u64 {
    u64::from(slow_readers) * SLOW_READER_BYTES_MAX
        + (u64::from(half_open) + u64::from(garbage)) * OTHER_BYTES_MAX
}

/// Starts a gateway, lets the honest come alone and beside the crowd, and compares.
///
/// # Errors
/// When nothing could be measured.
pub async fn flood(options: &Options) -> Result<Outcome, FloodError> {
    let arguments: Vec<String> = [
        "serve",
        "--estate",
        &options.estate.display().to_string(),
        "--listen",
        "127.0.0.1:0",
        "--admin",
        "127.0.0.1:0",
        "--drain",
        "300ms",
        "--drain-delay",
        "0s",
    ]
    .map(str::to_owned)
    .into_iter()
    .chain(options.arguments.iter().cloned())
    .collect();
    let log = Log::default();
    let gateway = Process::start(&options.gateway, &arguments, &log)
        .await
        .map_err(|trouble| FloodError(trouble.to_string()))?;
    let pid = gateway.pid().ok_or_else(|| FloodError("the gateway has ended".to_owned()))?;
    let address: SocketAddr = gateway
        .endpoint
        .split_once("://")
        .and_then(|(_, rest)| rest.split('/').next())
        .and_then(|address| address.parse().ok())
        .ok_or_else(|| FloodError(format!("{} is no address", gateway.endpoint)))?;

    let alone = honest(options, &gateway.endpoint).await?;
    let resident_before = resident(pid)?;
    let crowd = Crowd::gather(
        [
            (Kind::HalfOpen, options.half_open),
            (Kind::SlowReader, options.slow_readers),
            (Kind::Garbage, options.garbage),
        ],
        address,
    );
    let came = async {
        while crowd.present() < u64::from(options.half_open + options.slow_readers) {
            tokio::time::sleep(LOOK).await;
        }
    };
    let gathered = tokio::time::timeout(GATHERING_MAX, came).await.is_ok();
    let mut resident_most = resident(pid)?;
    let beside = {
        let honest = honest(options, &gateway.endpoint);
        tokio::pin!(honest);
        loop {
            tokio::select! {
                report = &mut honest => break report?,
                () = tokio::time::sleep(LOOK) => resident_most = resident_most.max(resident(pid)?),
            }
        }
    };
    let crowd = crowd.leave().await;
    gateway.drain().await.map_err(|trouble| {
        FloodError(format!("{trouble}; the gateway said:\n{}", log.text().trim()))
    })?;

    let growth_max = growth_max(options.half_open, options.slow_readers, options.garbage);
    let mut outcome = Outcome {
        passed: false,
        problems: Vec::new(),
        alone: Figures::of(&alone),
        beside: Figures::of(&beside),
        resident_before,
        resident_most,
        growth_max,
        crowd,
    };
    outcome.problems = outcome.judge(gathered);
    outcome.passed = outcome.problems.is_empty();
    Ok(outcome)
}

fn resident(pid: u32) -> Result<u64, FloodError> {
    let usage = host::usage_of(pid);
    usage.map(|(resident, _)| resident).ok_or_else(|| FloodError("the gateway died".to_owned()))
}

async fn honest(options: &Options, endpoint: &str) -> Result<Report, FloodError> {
    let mut config = Config::new(options.honest, endpoint, &options.estate);
    config.duration = options.duration;
    config.heartbeat = Some(Duration::from_secs(2));
    config.connect_rate = 1_000.0;
    run(config).await.map_err(|error| FloodError(error.to_string()))
}

impl Figures {
    fn of(report: &Report) -> Self {
        Self {
            all_right: report.all_right,
            problems: report.problems.clone(),
            connect_to_offer_p99_ms: report.connect_to_offer.p99_ms,
            reply_p99_ms: report.reply.p99_ms,
            own_share: report.own.cpu_share,
        }
    }
}

impl Outcome {
    fn judge(&self, gathered: bool) -> Vec<String> {
        let mut problems = Vec::new();
        if !gathered {
            let max = GATHERING_MAX.as_secs();
            problems.push(format!("the crowd was not whole within {max} s: {}", self.crowd));
        }
        for (when, figures) in [("alone", &self.alone), ("beside the crowd", &self.beside)] {
            if !figures.all_right {
                problems.push(format!("{when}: {}", figures.problems.join("; ")));
            }
        }
        for (what, alone, beside) in [
            (
                "connect to offer",
                self.alone.connect_to_offer_p99_ms,
                self.beside.connect_to_offer_p99_ms,
            ),
            ("message to reply", self.alone.reply_p99_ms, self.beside.reply_p99_ms),
        ] {
            if beside > RATIO_MAX * alone.max(FLOOR_MS) {
                problems.push(format!(
                    "{what}: p99 {beside:.1} ms beside the crowd, {alone:.1} ms without it; {RATIO_MAX} times as much is allowed"
                ));
            }
        }
        let growth = self.resident_most.saturating_sub(self.resident_before);
        if growth > self.growth_max {
            problems.push(format!(
                "the gateway grew by {growth} bytes, {} are allowed",
                self.growth_max
            ));
        }
        problems
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mega = |bytes: u64| bytes as f64 / 1e6;
        writeln!(f, "crowd       {}", self.crowd)?;
        for (name, alone, beside) in [
            ("to offer", self.alone.connect_to_offer_p99_ms, self.beside.connect_to_offer_p99_ms),
            ("to reply", self.alone.reply_p99_ms, self.beside.reply_p99_ms),
        ] {
            writeln!(f, "{name:<10}  p99 {alone:.1} ms alone, {beside:.1} ms beside the crowd")?;
        }
        writeln!(
            f,
            "memory      {:.1} MB before the crowd, {:.1} MB at most beside it; {:.1} MB more are allowed",
            mega(self.resident_before),
            mega(self.resident_most),
            mega(self.growth_max)
        )?;
        writeln!(
            f,
            "loadgen     {:.0} % of the processors alone, {:.0} % beside the crowd",
            100.0 * self.alone.own_share,
            100.0 * self.beside.own_share
        )?;
        for problem in &self.problems {
            writeln!(f, "NOT         {problem}")?;
        }
        writeln!(f, "{}", if self.passed { "unharmed" } else { "harmed" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(connect: f64, reply: f64) -> Figures {
        Figures {
            all_right: true,
            problems: Vec::new(),
            connect_to_offer_p99_ms: connect,
            reply_p99_ms: reply,
            own_share: 0.1,
        }
    }

    fn outcome(beside: Figures, growth: u64) -> Outcome {
        Outcome {
            passed: false,
            problems: Vec::new(),
            alone: figures(100.0, 1.0),
            beside,
            resident_before: 1_000,
            resident_most: 1_000 + growth,
            growth_max: 500,
            crowd: Tally::default(),
        }
    }

    #[test]
    fn three_times_as_slow_is_allowed_and_what_is_fast_anyway() {
        assert_eq!(outcome(figures(300.0, 60.0), 500).judge(true), [""; 0]);
        assert_eq!(outcome(figures(300.1, 60.0), 500).judge(true).len(), 1);
        assert_eq!(outcome(figures(300.0, 60.1), 500).judge(true).len(), 1);
        assert_eq!(outcome(figures(300.0, 60.0), 501).judge(true).len(), 1);
        assert_eq!(outcome(figures(300.0, 60.0), 0).judge(false).len(), 1);
        let wrong = Figures { all_right: false, ..figures(1.0, 1.0) };
        assert_eq!(outcome(wrong, 0).judge(true).len(), 1);
    }

    #[test]
    fn what_a_crowd_may_cost_is_what_its_members_may() {
        assert_eq!(growth_max(10_000, 1_000, 1_000), 1_000 * 131_072 + 11_000 * 4_096);
    }
}
