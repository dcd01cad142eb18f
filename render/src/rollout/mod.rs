//! Rollouts as they are judged: who is in a Cohort, what is known of its members, what that comes
//! to, and what is proposed.

pub mod cohort;
pub mod evidence;
pub mod explain;
pub mod plan;
pub mod proposal;
pub mod report;
pub mod running;
pub mod verdict;

#[cfg(test)]
mod tests;
