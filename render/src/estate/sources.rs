//! Everything that a render reads, beside Catalogue and policy.

use super::{Sources, Teams, load_blueprints, load_telemetry, load_topology};
use crate::finding::Finding;
use crate::problem::Refusal;
use crate::tree::Tree;

/// Loads Blueprints, then the topology, then `telemetry.yaml`, and joins them to the teams that were
/// loaded before them; with what is to be said about references.
///
/// # Errors
/// The first of these that is refused.
pub fn load_sources(tree: &Tree, teams: Teams) -> Result<(Sources, Vec<Finding>), Refusal> {
    let blueprints = load_blueprints(tree)?;
    let topology = load_topology(tree)?;
    let telemetry = load_telemetry(tree)?;
    let sources = Sources {
        teams,
        components: blueprints.components,
        blueprints: blueprints.blueprints,
        topology,
        telemetry,
    };
    Ok((sources, blueprints.findings))
}
