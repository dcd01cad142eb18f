//! Rehearsals: a Rollout from its first commit to its end, in seconds, with real gateways, a real
//! repository and collectors that misbehave as a scenario says.
//!
//! A [`Scenario`] is a script: who connects, what goes wrong, what people commit and merge, and the
//! verdicts and branches that must come of it. [`run`] plays it and tells the first deviation, with
//! a timeline. Read in this order: [`scenario`] (the language), [`condition`] (what steps wait
//! for), `play` (the stage), `judge` (the end).

pub mod condition;
mod estate;
mod follow;
pub(crate) mod gateway;
mod judge;
mod play;
mod repo;
pub mod scenario;
pub mod sequence;
mod timeline;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::Serialize;

pub use scenario::Scenario;
pub use timeline::{Entry, Timeline};

use crate::plan::PlanError;

/// What a rehearsal is asked to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// The scenario file.
    pub scenario: PathBuf,
    /// The gateway's binary: it is started, and it verifies bundles.
    pub gateway: PathBuf,
    /// A gateway that somebody else started, in place of one that is started here.
    pub given: Option<GivenGateway>,
    /// Where the repository, the stores and the bundles stay; a temporary directory otherwise.
    pub keep: Option<PathBuf>,
    /// Tells each entry of the timeline at once, on stderr.
    pub verbose: bool,
}

/// A gateway that somebody else started, on the repository `estate.git` in the directory to keep.
#[derive(Clone, Debug)]
pub struct GivenGateway {
    /// Its operators' listener.
    pub admin: SocketAddr,
    /// Its collectors' URL.
    pub endpoint: String,
}

/// What came of a rehearsal.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// What it was to show.
    pub about: String,
    /// Everything was as the scenario says.
    pub passed: bool,
    /// The first thing that was not.
    pub deviation: Option<String>,
    /// Verdicts, repeats in a row collapsed.
    pub verdicts: Vec<String>,
    /// Branches that are there at the end.
    pub branches: Vec<String>,
    /// Evidence bundles that were verified, untouched and with a changed figure.
    pub bundles_verified: usize,
    /// Offers of the candidate, to all collectors.
    pub candidate_offers: u64,
    /// What happened.
    pub timeline: Timeline,
}

/// Why a rehearsal could not be held. Exit code 2.
#[derive(Debug, thiserror::Error)]
pub enum RehearsalError {
    /// The scenario is none.
    #[error("{0}")]
    Scenario(#[from] PlanError),
    /// A file that cannot be read.
    #[error("{path}: {error}")]
    File {
        /// As given.
        path: String,
        /// Why.
        error: String,
    },
    /// Something that it needs is not there.
    #[error("{0}")]
    Cannot(String),
}

/// Why a rehearsal ends early.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// It is not as the scenario says.
    Deviates(String),
    /// It could not go on.
    Cannot(String),
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Deviates(text) | Self::Cannot(text) => f.write_str(text),
        }
    }
}

/// Plays a scenario to its end. Bounded in time by the scenario's limit, plus a minute to clear
/// away. Runs on the caller's tokio runtime.
///
/// # Errors
///
/// Only when it cannot be played; a deviation is in the outcome.
pub async fn run(options: &Options) -> Result<Outcome, RehearsalError> {
    let file = options.scenario.display().to_string();
    let text = std::fs::read_to_string(&options.scenario)
        .map_err(|error| RehearsalError::File { path: file.clone(), error: error.to_string() })?;
    let (scenario, plan) = Scenario::parse(&text, &file)?;
    let temporary;
    let root = match &options.keep {
        Some(keep) => {
            std::fs::create_dir_all(keep).and_then(|()| keep.canonicalize()).map_err(|error| {
                RehearsalError::File { path: keep.display().to_string(), error: error.to_string() }
            })?
        }
        None => {
            temporary = scratch().map_err(|error| RehearsalError::File {
                path: std::env::temp_dir().display().to_string(),
                error: error.to_string(),
            })?;
            temporary.0.clone()
        }
    };
    if root.join("estate.git").exists() {
        return Err(RehearsalError::Cannot(format!(
            "{} holds a rehearsal already: give another directory",
            root.display()
        )));
    }
    let beside = options.scenario.parent().unwrap_or_else(|| Path::new("."));
    play::play(&scenario, plan, beside, &root, options).await
}

/// Copies an estate, without what git keeps there.
pub(crate) fn copy_estate(from: &Path, to: &Path) -> Result<(), String> {
    estate::copy(from, to).map_err(|trouble| trouble.to_string())
}

/// A directory that goes with its owner.
#[derive(Debug)]
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        // A gateway that was killed a moment ago may still hold files there: best effort.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A new directory for temporary files.
pub(crate) fn scratch() -> std::io::Result<Scratch> {
    let name = format!("rehearsal-{}-{:016x}", std::process::id(), fastrand::u64(..));
    let path = std::env::temp_dir().join(name);
    std::fs::create_dir(&path)?;
    Ok(Scratch(path))
}
