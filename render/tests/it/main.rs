//! What `render` does with whole estates.

#![expect(clippy::unwrap_used, reason = "helpers of tests, which clippy does not take for tests")]

mod broken;
mod corpus;
mod load_any;
mod load_cases;
mod load_demo;
mod proposal;

/// What the fuzz targets run, so that tests and targets check the same.
#[path = "../../../fuzz/bodies"]
mod bodies {
    pub(crate) mod estate;
    pub(crate) mod verify;
}
