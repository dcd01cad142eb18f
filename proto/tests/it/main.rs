//! Behaviour of `proto` as its users see it.

#![expect(clippy::unwrap_used, reason = "helpers of tests, which clippy does not take for tests")]

mod corpus;
mod generated;
mod peek;
mod uplink;
mod ws;
mod ws_peer;

/// What the fuzz targets run, so that tests and targets check the same.
#[path = "../../../fuzz/bodies"]
mod bodies {
    pub(crate) mod frame;
    pub(crate) mod peek;
    pub(crate) mod session;
    pub(crate) mod uplink;
    pub(crate) mod ws;
}
