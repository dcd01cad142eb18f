//! Rollouts as they are judged: who is in a Cohort.

pub mod cohort;
