//! What the evidence of a Rollout comes to (rollouts.md, decisions 14 and 15): a pure function of
//! terms, tally and times.

mod count;
mod judge;
#[cfg(test)]
mod tests;

pub use judge::{judge, unexplained};

use serde::{Deserialize, Serialize};

use super::evidence::Millis;

/// Control groups smaller than this say nothing about an outage.
pub const CONTROL_MIN: u64 = 20;

/// What a Rollout's author and the operator demand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Terms {
    /// Index of the active stage.
    pub stage: u32,
    /// How many there are.
    pub stages: u32,
    /// How long the active stage must soak.
    pub soak_ms: Millis,
    /// 1..=100.
    pub abort_at_percent: u32,
    /// Silence past this is dark.
    pub dark_after_ms: Millis,
    /// Fewer members prove nothing.
    pub min_seen: u32,
    /// Never propose while true.
    pub hold: bool,
    /// Candidate and base have equal content: nothing is staged.
    pub same_content: bool,
    /// Replicas that must report (`--expect-replicas`), at least 1.
    pub expect_replicas: u32,
    /// What a drained or vanished replica's members get on top (`--evidence-grace`).
    pub grace_ms: Millis,
}

/// The times that a verdict depends on, in milliseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Times {
    /// The moment of the verdict.
    pub now_ms: Millis,
    /// When evidence started: process start, or first full sync.
    pub evidence_since_ms: Millis,
    /// When the active stage began, by history or by first sight.
    pub stage_since_ms: Millis,
    /// Where `stage_since_ms` is from.
    pub stage_since: Told,
    /// When the candidate's content last changed, as far as it was seen here.
    pub candidate_since_ms: Option<Millis>,
    /// When the soak began: the latest of all that restarts it.
    pub soak_since_ms: Millis,
}

/// How a time is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Told {
    /// Git history says so.
    History,
    /// First seen here.
    Sight,
}

/// Members by what they run and what halts them. `seen` = served ones that count; a member is in
/// exactly one of the five arms, and in at most one of `failed` and `dark`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    /// Members that count.
    pub seen: u64,
    /// Being given the candidate.
    pub taking: u64,
    /// On the candidate.
    pub to: u64,
    /// On the base.
    pub from: u64,
    /// On neither.
    pub other: u64,
    /// Not to be told.
    pub unknown: u64,
    /// Failed now.
    pub failed: u64,
    /// Dark, not failed.
    pub dark: u64,
    /// Their replica does not report: they are as last known.
    pub unobserved: u64,
    /// Said farewell.
    pub left: u64,
}

/// The control group: served collectors of the Tier outside the Cohort, heard since the stage began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Control {
    /// All of them.
    pub seen: u64,
    /// Of these, those whose silence began in the window.
    pub dark: u64,
    /// Of these, those whose replica does not report.
    pub unobserved: u64,
}

/// The evidence of a Rollout, counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tally {
    /// Served members by the first stage that admits them, stages `0..=stage`.
    pub stages: Vec<Counts>,
    /// Served members on the candidate or taking it, dark ones included.
    pub taken: u64,
    /// Of the dark members, those that were dark for a third of `dark_after` already. An outage
    /// reaches everybody at one moment, but who is silent since its last heartbeat turns dark up to
    /// one heartbeat sooner than another: these are compared with the control group.
    pub long_dark: u64,
    /// The control group.
    pub control: Control,
    /// Foreign members: read, never judged.
    pub foreign: Counts,
    /// Collectors of the Tier that count, Foreign ones aside: members and control group.
    pub served_in_tier: u64,
    /// Collectors of the Tier that lack a hash attribute, so that no `percent` admits them.
    pub no_bucket: u64,
    /// Live uids that share a collector's identity with another live one.
    pub duplicates: u64,
    /// Collectors that were on the Tier before a head brought this Rollout, and have no place under
    /// it yet: nobody knows which of them are members.
    pub awaited: u64,
    /// Collectors that found no room, see `docs/limits.md`.
    pub overflow: u64,
    /// Distinct replicas that report the same report key as the judge, itself included.
    pub replicas: u32,
    /// The brake of this change is on.
    pub braked: bool,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Too many are halted: back to the base.
    Abort,
    /// Somebody is halted: no further.
    Blocked,
    /// The evidence is not whole.
    Inconclusive,
    /// Not yet.
    Hold,
    /// The next stage may be proposed.
    Advance,
    /// The last stage has proved itself.
    Complete,
}

/// A verdict, the numbers it rests on, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Verdict {
    /// What is to be done.
    pub kind: Kind,
    /// |M|.
    pub seen: u64,
    /// |F|.
    pub failed: u64,
    /// |D|.
    pub dark: u64,
    /// e: what went dark beyond the control group's rate and two deviations.
    pub dark_beyond_control: u64,
    /// So many halted members abort; 0 when none are seen. Of members that are awaited too.
    pub aborts_at: u64,
    /// How long the stage has soaked. This alone changes with every tick.
    pub soaked_ms: Millis,
    /// When an advance is due, if nothing but time is missing.
    pub due_ms: Option<Millis>,
    /// One plain sentence.
    pub why: String,
}

impl Kind {
    /// Every kind, worst first.
    pub const ALL: [Self; 6] =
        [Self::Abort, Self::Blocked, Self::Inconclusive, Self::Hold, Self::Advance, Self::Complete];

    /// As it is written in metrics, JSON and text.
    pub fn label(self) -> &'static str {
        match self {
            Self::Abort => "abort",
            Self::Blocked => "blocked",
            Self::Inconclusive => "inconclusive",
            Self::Hold => "hold",
            Self::Advance => "advance",
            Self::Complete => "complete",
        }
    }
}
