//! The rollout lab: the upgrade of a set of replicas as a model, exact and repeatable.
//!
//! Nothing here orchestrates anything: in production, Kubernetes rolls the gateway's replicas. The lab
//! shows what a controller's arithmetic does and does not say, stalls included. No module but
//! `drill` opens a socket or a file, starts a process, or asks for the time; `drill` measures the same
//! upgrade on real gateways, and is behind a feature of its name.

pub mod cron;
pub mod error;
pub mod image;
pub mod records;
pub mod rules;
pub mod status;
pub mod time;

pub mod compare;
pub mod controller;
pub mod fleet;
pub mod lab;
pub mod plot;
pub mod scheduler;
pub mod store;

#[cfg(feature = "drill")]
pub mod drill;

pub use error::{Error, Kind, Operation};
pub use rules::{Rules, Switch};
pub use store::MemoryStore;
pub use time::{Clock, Id, Utc};
