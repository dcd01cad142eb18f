//! Simulated collectors that check every offer against a plain model of their own.
//!
//! Read in this order: [`model`] (what must be offered, decided plainly), [`heads`] (how that
//! changes while a run goes on), [`plan`] (who the collectors are), [`agent`] (how one behaves),
//! [`ledger`] (how what it receives is judged), [`collector`] (both together, sans-IO), [`fleet`]
//! (sockets, schedule, the run), [`report`]; and [`rehearse`], which plays a whole Rollout with all of
//! them; [`scale`], which is a run over many processes; and [`saturate`], which asks what a message
//! costs a server.
//!
//! ```no_run
//! # async fn example() -> Result<(), loadgen::RunError> {
//! let config = loadgen::Config::new(5_000, "ws://127.0.0.1:4320/v1/opamp", "fixtures/estates/demo");
//! let report = loadgen::run(config).await?;
//! assert!(report.all_right, "{report}");
//! # Ok(())
//! # }
//! ```

pub mod agent;
pub mod clock;
pub mod collector;
pub mod config;
pub mod doctor;
pub mod duration;
pub mod endpoint;
pub mod faults;
pub mod fleet;
pub mod flood;
pub mod floor;
pub mod heads;
mod histogram;
pub mod host;
pub mod ledger;
mod link;
pub mod model;
pub mod plan;
pub mod progress;
pub mod rehearse;
pub mod report;
pub mod saturate;
pub mod scale;
mod shared;
mod source;
mod swarm;
#[cfg(test)]
mod testing;
pub mod tls;
mod watch;
mod wheel;

pub use config::{COLLECTORS_MAX, Config, RunError};
pub use endpoint::Transport;
pub use fleet::{Progress, Running, run};
pub use report::Report;
