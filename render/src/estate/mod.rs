//! The authored objects of an estate and their rules (estate.md, sections 1.1 to 1.10).

mod model;

pub use model::{
    Binding, Blueprint, Blueprints, Class, Cohort, Component, Halt, Hop, Hosts, Lane, LaneEntry,
    Located, Name, Reference, Rollout, Satisfies, SelfTelemetry, Service, Serving, Signal, Sources,
    Stage, Team, Teams, Tier, Topology,
};

use crate::finding::Finding;
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

/// Reads every Tier, Service and Rollout (estate.md 1.8 to 1.10), with all rules between them.
pub fn load_topology(tree: &Tree) -> Result<Topology, Refusal> {
    Err(unread(tree, "invalid topology sources:"))
}

/// What decision 11 says about each Rollout, in Rollout id order.
pub fn rollout_findings(topology: &Topology) -> Vec<Finding> {
    let _ = topology;
    Vec::new()
}

fn unread(tree: &Tree, header: &str) -> Refusal {
    Refusal { header: format!("{header} {}", tree.label), problems: Vec::new() }
}
