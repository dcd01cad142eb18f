//! The authored objects of an estate and their rules (estate.md, sections 1.1 to 1.10).

mod model;

pub use model::{
    Binding, Blueprint, Class, Cohort, Component, Halt, Hop, Hosts, Lane, LaneEntry, Located, Name,
    Reference, Rollout, Satisfies, SelfTelemetry, Service, Serving, Signal, Sources, Stage, Team,
    Teams, Tier, Topology,
};
