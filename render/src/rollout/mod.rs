//! Rollouts as they are judged: who is in a Cohort, what is known of its members, what that comes
//! to, and what is proposed.
//!
//! Pure: a record of what was heard goes in ([`evidence`]), [`evidence::classify`] says what it
//! means at a moment, a [`verdict::Tally`] counts that, and [`verdict::judge`] decides.

pub mod bundle;
pub mod cohort;
pub mod evidence;
pub mod explain;
pub mod halt;
pub mod identity;
pub mod plan;
pub mod proposal;
pub mod report;
pub mod running;
pub mod verdict;
pub mod words;

#[cfg(test)]
mod tests;
