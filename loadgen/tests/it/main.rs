//! loadgen against servers that tell the truth and servers that lie.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../src/testing.rs"]
mod testing;

mod liars;
mod model;
mod saturate;
mod scenarios;
mod server;
