//! The shell around `proto` and `render`: sockets, time, git, threads.
//!
//! Read in this order: [`start`] (how the parts fit), [`cli`] (flags), [`config`] (what they
//! resolve to), [`source`] (where a head comes from), [`listen`] (the front door), [`transport`]
//! (links), [`serve`] (bytes in, replies out), [`push`] and [`drain`] (a new head, the end),
//! [`catch_up`] (a collector that knows a newer head), [`admission`], [`tokens`], [`tls`] and
//! [`certs`] (who may connect), [`admin`] (what an operator sees), [`aggregate`] (the evidence of
//! Rollouts and what it comes to), [`uplink`] (evidence to aggregators and back), [`propose`]
//! (verdicts as branches), [`metrics`] (every name), [`clock`] (the only place that asks for time).

pub mod admin;
pub mod admission;
pub mod aggregate;
pub mod catch_up;
pub mod certs;
pub mod cli;
pub mod clock;
pub mod config;
pub mod drain;
pub mod listen;
pub mod metrics;
pub mod peer_log;
pub mod propose;
pub mod push;
pub mod reload;
pub mod runtime;
pub mod scratch;
pub mod serve;
pub mod shutdown;
pub mod source;
pub mod start;
pub mod tls;
pub mod tokens;
pub mod transport;
pub mod uplink;
