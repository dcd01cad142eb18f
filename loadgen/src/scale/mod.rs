//! A run over many processes: more collectors than one process has descriptors for, against gateways
//! that are started for it.
//!
//! [`run`] is the coordinator. It starts gateways and workers ([`worker`]; the `swarm` of a worker
//! plays its share of one plan), talks to the workers over their pipes, kills, replaces and pushes
//! what it is asked to, and adds up the books of all. Read in this order: [`options`], `protocol`,
//! `coordinator`, `hold`, [`outcome`].

mod chart;
mod coordinator;
mod crew;
mod heads;
mod hold;
pub mod leash;
mod merge;
pub mod options;
pub mod outcome;
mod plot;
mod protocol;
mod text;
mod usage;
mod view;
pub mod worker;

pub use crate::swarm::Ends;
pub use coordinator::run;
pub use options::{Options, ScaleError};
pub use outcome::Outcome;
