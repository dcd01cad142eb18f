//! The files of a drill: raw records, environment, summary, and a manifest of their hashes.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use loadgen::Report;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::criteria::{Summary, judge};
use super::records::{FILES, Recorded};
use super::{DrillError, Options, Settings};
use crate::time::Utc;

/// Bytes read of one file of a drill.
const FILE_BYTES_MAX: u64 = 512 << 20;
const ENVIRONMENT: &str = "env.json";
const SUMMARY: &str = "summary.json";
const MANIFEST: &str = "MANIFEST.sha256";
/// What the collectors found: over WebSockets, and by polling.
const REPORTS: [&str; 2] = ["collectors-websocket.json", "collectors-http.json"];

/// Where and with what a drill ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// The layout.
    pub schema: String,
    /// What was asked.
    pub settings: Settings,
    /// `uname`, as the kernel says it.
    pub kernel: String,
    /// Processors.
    pub cpus: usize,
    /// Settings of the kernel that matter here.
    pub sysctls: Vec<[String; 2]>,
    /// Of open files.
    pub descriptor_limit: String,
    /// Of the gateway's binary.
    pub gateway_sha256: String,
    /// Of this program.
    pub lab_sha256: String,
    /// The command.
    pub argv: Vec<String>,
    /// Anchors of the monotonic clock.
    pub utc_start: String,
    /// At the end.
    pub utc_end: String,
}

impl Environment {
    /// Of this process.
    pub(super) fn here(options: &Options, utc: Utc) -> Result<Self, DrillError> {
        let read = |path: &str| match fs::read_to_string(path) {
            Ok(text) => text.trim().replace('\t', " "),
            Err(error) => format!("unknown: {error}"),
        };
        let sysctls =
            ["net/core/somaxconn", "net/ipv4/tcp_migrate_req", "net/ipv4/ip_local_port_range"]
                .map(|name| [name.replace('/', "."), read(&format!("/proc/sys/{name}"))]);
        let limits = read("/proc/self/limits");
        let open_files = limits.lines().find(|line| line.starts_with("Max open files"));
        Ok(Self {
            schema: "rollout-lab-drill/1".to_owned(),
            settings: options.settings.clone(),
            kernel: read("/proc/version"),
            cpus: std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
            sysctls: sysctls.to_vec(),
            descriptor_limit: open_files.unwrap_or("unknown").to_owned(),
            gateway_sha256: sha256(&fs::read(&options.gateway)?),
            lab_sha256: sha256(&fs::read(std::env::current_exe()?)?),
            argv: std::env::args().collect(),
            utc_start: utc.to_string(),
            utc_end: String::new(),
        })
    }

    pub(super) fn ended(mut self, utc: Utc) -> Self {
        self.utc_end = utc.to_string();
        self
    }
}

/// What the criteria read of a collectors' report.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
pub struct CollectorsFound {
    /// Of the plan.
    pub collectors: u64,
    /// Connected at least once.
    pub connected: u64,
    /// Without what the newest head says.
    pub lost: u64,
    /// Things that were not as they must be, by kind.
    pub wrong_by_kind: BTreeMap<String, u64>,
    /// Offers of what was held.
    pub duplicates: u64,
    /// Every revision.
    pub heads: Vec<HeadFound>,
    /// Requests for full state.
    pub full_state_requests: u64,
    /// Messages without an answer.
    pub unanswered: u64,
    /// From the loss of a link to the next one.
    pub away: Spread,
    /// From a change to its offer.
    pub change_to_offer: Spread,
}

/// What the criteria read of a revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub struct HeadFound {
    /// Collectors that had to be offered it.
    pub offers_needed: u64,
    /// Those that were not, for no reason.
    pub offers_missing: u64,
    /// Those that were not, since a newer one came.
    pub offers_superseded: u64,
}

/// What the criteria read of a distribution.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
pub struct Spread {
    /// Values.
    pub count: u64,
    /// 99th percentile.
    pub p99_ms: f64,
    /// The most.
    pub max_ms: f64,
}

/// Writes raw records and environment, reads them back, judges what was read, and writes summary and
/// manifest.
///
/// # Errors
/// When a file cannot be written, or read back.
pub fn write(
    out: &Path,
    recorded: &Recorded,
    environment: &Environment,
    reports: &[Report; 2],
) -> Result<Summary, DrillError> {
    for (name, text) in recorded.files()? {
        fs::write(out.join(name), text)?;
    }
    for (name, report) in REPORTS.iter().zip(reports) {
        fs::write(out.join(name), pretty(report)?)?;
    }
    fs::write(out.join(ENVIRONMENT), pretty(environment)?)?;
    let summary = derive(out)?;
    fs::write(out.join(SUMMARY), pretty(&summary)?)?;
    let mut manifest = String::new();
    for name in listed() {
        manifest.push_str(&format!("{}  {name}\n", sha256(&fs::read(out.join(name))?)));
    }
    fs::write(out.join(MANIFEST), manifest)?;
    Ok(summary)
}

/// Verifies the manifest, derives the summary from the raw files alone, and compares it with the one
/// that is there. Returns it, with everything that speaks against the files.
///
/// # Errors
/// When a file cannot be read.
pub fn recompute(out: &Path) -> Result<(Summary, Vec<String>), DrillError> {
    let mut against = Vec::new();
    let manifest = text(out, MANIFEST)?;
    let expected: Vec<(&str, &str)> =
        manifest.lines().filter_map(|line| line.split_once("  ")).collect();
    for name in listed() {
        let actual = sha256(&fs::read(out.join(name))?);
        match expected.iter().find(|(_, listed)| *listed == name) {
            Some((hash, _)) if *hash == actual => {}
            Some(_) => against.push(format!("{name} is not what the manifest says")),
            None => against.push(format!("{name} is not in the manifest")),
        }
    }
    let summary = derive(out)?;
    if text(out, SUMMARY)? != pretty(&summary)? {
        against.push(format!("{SUMMARY} does not follow from the raw files"));
    }
    Ok((summary, against))
}

/// What a folder of a drill holds, read back.
#[derive(Debug, Clone)]
pub struct Raw {
    /// The records.
    pub recorded: Recorded,
    /// Where and with what.
    pub environment: Environment,
    /// What the collectors found: over WebSockets, and by polling.
    pub found: [CollectorsFound; 2],
}

/// Whether a drill in this folder came to its end: its manifest is written last.
pub fn is_finished(out: &Path) -> bool {
    out.join(MANIFEST).is_file()
}

/// Where and with what a drill ran.
pub(super) fn environment(out: &Path) -> Result<Environment, DrillError> {
    Ok(serde_json::from_str(&text(out, ENVIRONMENT)?)?)
}

/// Reads the raw files of a drill.
///
/// # Errors
/// When a file cannot be read, or is not one.
pub fn read(out: &Path) -> Result<Raw, DrillError> {
    let mut texts = Vec::new();
    for name in FILES {
        texts.push(text(out, name)?);
    }
    let [a, b, c, d, e] = &texts[..] else {
        return Err(DrillError::Cannot("a raw file is missing".to_owned()));
    };
    let recorded = Recorded::parse([a, b, c, d, e])?;
    let environment = environment(out)?;
    let [websocket, http] = REPORTS;
    let found =
        [serde_json::from_str(&text(out, websocket)?)?, serde_json::from_str(&text(out, http)?)?];
    Ok(Raw { recorded, environment, found })
}

fn derive(out: &Path) -> Result<Summary, DrillError> {
    let Raw { recorded, environment, found } = read(out)?;
    Ok(judge(&recorded, &environment.settings, &found))
}

fn listed() -> impl Iterator<Item = &'static str> {
    FILES.into_iter().chain(REPORTS).chain([ENVIRONMENT, SUMMARY])
}

fn text(out: &Path, name: &str) -> Result<String, DrillError> {
    let path = out.join(name);
    let length = fs::metadata(&path)
        .map_err(|error| DrillError::Cannot(format!("{}: {error}", path.display())))?
        .len();
    if length > FILE_BYTES_MAX {
        return Err(DrillError::Cannot(format!("{name} has more than 512 MiB")));
    }
    Ok(fs::read_to_string(path)?)
}

pub(crate) fn pretty(value: &impl Serialize) -> Result<String, serde_json::Error> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
