//! The outside of the gateway: command line, sources, operators' listener, TLS, tokens, metrics.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod admin;
mod certs;
mod cli;
mod flood;
mod metrics;
mod page;
mod proposals;
mod rollout;
mod saturate;
mod source_dir;
mod source_git;
mod source_history;
mod source_snapshot;
mod support;
mod tls;
mod tokens;
mod uplink;
