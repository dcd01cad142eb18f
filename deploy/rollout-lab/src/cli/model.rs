//! `rollout-lab model`

use std::io::Write as _;
use std::path::PathBuf;
use std::time::SystemTime;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use rollout_lab::lab::{self, Observation, Settings};
use rollout_lab::plot::{self, Panel, Series};
use rollout_lab::{Rules, Switch, Utc};
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::files::Files;

/// Play the lab: seven checkpoints to a CSV file, the observation document to standard output.
///
/// The same seed and mode make the same bytes. Every operation that must be refused is performed.
#[derive(Debug, Args)]
pub(super) struct Model {
    /// The timeline, as CSV.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,

    /// Seed of all ids.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// The baseline's behaviour, stalls included, or what a fleet should do.
    #[arg(long, value_enum, default_value_t = Mode::Baseline)]
    mode: Mode,

    /// Switch one of strict mode's differences on.
    #[arg(long, value_name = "SWITCH", value_parser = switch)]
    with: Vec<Switch>,

    /// Switch one of strict mode's differences off.
    #[arg(long, value_name = "SWITCH", value_parser = switch)]
    without: Vec<Switch>,

    /// A plot of the timeline, as SVG.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,

    /// A record of this run: command, times, hashes of both outputs, as JSON.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,

    /// Replace output files that exist.
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Mode {
    Baseline,
    Strict,
}

/// What cannot be part of the document: a second run must make the same one.
#[derive(Debug, Serialize)]
struct Record {
    schema: &'static str,
    command: Vec<String>,
    tool_version: &'static str,
    control_plane_sha256: String,
    utc_start: String,
    utc_end: String,
    exit_code: u8,
    timeline_sha256: String,
    document_sha256: String,
}

impl Model {
    pub(super) fn run(self) -> anyhow::Result<bool> {
        let start = now();
        let base = match self.mode {
            Mode::Baseline => Rules::baseline(),
            Mode::Strict => Rules::strict(),
        };
        let rules = self.with.iter().fold(base, |rules, switch| rules.with(*switch));
        let rules = self.without.iter().fold(rules, |rules, switch| rules.without(*switch));
        let mode = match self.mode {
            Mode::Baseline => "baseline",
            Mode::Strict => "strict",
        };
        let settings = Settings { seed: self.seed, mode: mode.to_owned(), rules };
        let mut observation = lab::run(&settings).context("the lab could not be played")?;

        let mut files = Files::new(self.force);
        let timeline = lab::write(&observation.checkpoints);
        files.write(&self.out, &timeline)?;
        lab::conclude(&mut observation, files.opened);
        let mut document = serde_json::to_string_pretty(&observation)?;
        document.push('\n');
        std::io::stdout().write_all(document.as_bytes()).context("standard output")?;

        if let Some(path) = &self.plot {
            files.write(path, &drawn(&observation))?;
        }
        let accepted = observation.acceptance.iter().all(|conclusion| conclusion.ok);
        if let Some(path) = &self.record {
            let record = Record {
                schema: "rollout-lab-record/1",
                command: std::env::args().collect(),
                tool_version: env!("CARGO_PKG_VERSION"),
                control_plane_sha256: observation.control_plane_sha256.clone(),
                utc_start: start.to_string(),
                utc_end: now().to_string(),
                exit_code: u8::from(!accepted),
                timeline_sha256: sha256(&timeline),
                document_sha256: sha256(&document),
            };
            files.write(path, &format!("{}\n", serde_json::to_string_pretty(&record)?))?;
        }
        Ok(accepted)
    }
}

fn drawn(observation: &Observation) -> String {
    let rows = &observation.checkpoints;
    let series = |name: &str, value: fn(&lab::Checkpoint) -> i64| Series {
        name: name.to_owned(),
        values: rows.iter().map(value).collect(),
    };
    let panel = Panel {
        title: format!("Modeled timeline, {} mode", observation.mode),
        note: "tasks after each checkpoint; the bound is replicas + maxSurge".to_owned(),
        labels: rows.iter().map(|row| row.checkpoint.clone()).collect(),
        series: vec![
            series("modeled available", |row| row.modeled_available),
            series("old active", |row| row.old_active),
            series("target active", |row| row.target_active),
            series("target healthy", |row| row.target_healthy),
            series("surge bound", |row| row.surge_bound),
            series("pending stop", |row| row.pending_stop),
        ],
    };
    plot::svg(&[panel], "Counts of synthetic reports. Not traffic, not removal, not durability.")
}

fn sha256(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[expect(
    clippy::disallowed_methods,
    reason = "the run record names the real time; nothing else does"
)]
fn now() -> Utc {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Utc(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

fn switch(name: &str) -> Result<Switch, String> {
    Switch::named(name).ok_or_else(|| {
        let known: Vec<&str> = Switch::ALL.iter().map(|switch| switch.as_str()).collect();
        format!("no switch {name:?}; there are {}", known.join(", "))
    })
}
