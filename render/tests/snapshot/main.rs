//! Cohorts, matching, what of an estate is served, and the snapshot file.
#![expect(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

mod cohort;
mod file;
mod place;
mod served;
mod util;
