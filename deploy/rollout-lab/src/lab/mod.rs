//! The lab: a scripted rollout with seven checkpoints, every negative operation performed, and an
//! acceptance record that is derived from what was observed.

mod acceptance;
mod check;
mod document;
mod negative;
mod script;
mod sources;
mod timeline;

pub use acceptance::accept;
pub use check::{Difference, check};
pub use document::{
    Acceptance, Checkpoint, Delete, End, Failure, Fixture, Labels, Maintenance, Negative,
    Observation, PassRow, Refusal, Repeat, Restart, Rollback, SCHEMA,
};
pub use sources::control_plane_sha256;
pub use timeline::{HEADER, TimelineError, parse, write};

use crate::error::Error;
use crate::rules::{Rules, Switch};

/// What a run depends on: nothing else does it depend on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Of the ids.
    pub seed: u64,
    /// `baseline` or `strict`: the word in the document.
    pub mode: String,
    /// The rules in force.
    pub rules: Rules,
}

impl Settings {
    /// The settings that a document says it was made with.
    pub fn of(observation: &Observation) -> Option<Self> {
        let base = match observation.mode.as_str() {
            "baseline" => Rules::baseline(),
            "strict" => Rules::strict(),
            _ => return None,
        };
        let mut rules = Switch::ALL.into_iter().fold(base, Rules::without);
        for name in &observation.switches {
            rules = rules.with(Switch::named(name)?);
        }
        Some(Self { seed: observation.seed, mode: observation.mode.clone(), rules })
    }
}

/// Runs the lab twice; what it observed lacks only its conclusions.
///
/// # Errors
/// When an operation that the script needs is refused: no document without an observation.
pub fn run(settings: &Settings) -> Result<Observation, Error> {
    let mut observation = script::observe(settings)?;
    let replay = script::observe(settings)?;
    observation.end.replay_identical = observation == replay;
    Ok(observation)
}

/// Concludes a run whose timeline was written to so many files.
pub fn conclude(observation: &mut Observation, files: i64) {
    observation.end.files = files;
    observation.acceptance = accept(&observation.checkpoints, observation);
}
