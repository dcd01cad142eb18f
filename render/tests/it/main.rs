//! What `render` does with whole estates.

#![expect(clippy::unwrap_used, reason = "helpers of tests, which clippy does not take for tests")]

mod broken;
mod load_any;
mod load_cases;
mod load_demo;
