//! loadgen against servers that tell the truth and servers that lie.

#[path = "../../src/testing.rs"]
mod testing;

mod liars;
mod model;
mod server;
