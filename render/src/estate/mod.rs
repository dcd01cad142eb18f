//! The authored objects of an estate and their rules (estate.md, sections 1.1 to 1.10).

mod decode;
mod duration;
mod model;
mod names;
mod object;
mod rollout;
mod service;
mod tier;
mod topology;

pub use model::{
    Binding, Blueprint, Blueprints, Class, Cohort, Component, Halt, Hop, Hosts, Lane, LaneEntry,
    Located, Name, Reference, Rollout, Satisfies, SelfTelemetry, Service, Serving, Signal, Sources,
    Stage, Team, Teams, Tier, Topology,
};
pub use topology::{
    MANY_SELECTOR_SHAPES, MAX_SELECTOR_SHAPES, load_topology, rollout_findings, selector_findings,
};

use crate::problem::Refusal;
use crate::tree::Tree;

/// Reads `teams.yaml` (estate.md 1.3).
pub fn load_teams(tree: &Tree) -> Result<Teams, Refusal> {
    Err(unread(tree, "invalid teams:"))
}

/// Reads `telemetry.yaml` (estate.md 1.4).
pub fn load_telemetry(tree: &Tree) -> Result<SelfTelemetry, Refusal> {
    Err(unread(tree, "invalid self-telemetry:"))
}

/// Reads every shared Component and Blueprint (estate.md 1.6, 1.7), with the `reference` findings
/// between them.
pub fn load_blueprints(tree: &Tree) -> Result<Blueprints, Refusal> {
    Err(unread(tree, "invalid blueprint sources:"))
}

fn unread(tree: &Tree, header: &str) -> Refusal {
    Refusal { header: format!("{header} {}", tree.label), problems: Vec::new() }
}
