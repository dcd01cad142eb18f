//! The authored objects of an estate and their rules (estate.md, sections 1.1 to 1.10).

mod blueprint;
mod component;
pub(crate) mod decode;
mod duration;
mod model;
mod names;
pub(crate) mod object;
pub(crate) mod report;
mod rollout;
mod service;
mod sources;
mod teams;
mod telemetry;
mod tier;
mod topology;

pub use blueprint::load_blueprints;
pub use model::{
    Binding, Blueprint, Blueprints, Class, Cohort, Component, Halt, Hop, Hosts, Lane, LaneEntry,
    Located, Name, Reference, Rollout, Satisfies, SelfTelemetry, Service, Serving, Signal, Sources,
    Stage, Team, Teams, Tier, Topology,
};
pub use sources::load_sources;
pub use teams::load_teams;
pub use telemetry::load_telemetry;
pub use topology::{
    MANY_SELECTOR_SHAPES, MAX_SELECTOR_SHAPES, load_topology, rollout_findings, selector_findings,
};
