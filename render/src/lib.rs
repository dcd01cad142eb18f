//! The estate as data and functions: load, validate, render, compile, decide membership.
//!
//! Pure but for reading the tree: nothing here asks for the time, opens a socket or spawns.
//! Read in this order: [`tree`] (the files), [`yaml`] (positions kept), [`estate`] (the authored
//! objects and their rules), [`policy`] (catalogue and palette), [`artefact`] (bytes and their two
//! identities), [`compile`] (what `render` writes), [`snapshot`] (what a gateway serves),
//! [`history`] (what git tells of Rollouts), [`rollout`] (how they are judged and proposed).

pub mod args;
pub mod artefact;
pub mod attrs;
pub mod compile;
pub mod estate;
pub mod finding;
pub mod history;
pub mod policy;
pub mod problem;
pub mod rollout;
pub mod select;
pub mod snapshot;
pub mod tree;
pub mod write;
pub mod yaml;
