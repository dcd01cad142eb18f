//! The outside of the gateway: command line, sources, operators' listener, TLS, tokens, metrics.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod metrics;
mod support;
