//! What is known of one collector under one Rollout, and how two reports of it become one
//! (rollouts.md, decisions 5 to 8).
//!
//! Every field of a [`Record`] is a join-semilattice, so [`Record::merge`] is commutative,
//! associative and idempotent: any number of replicas may report, in any order, repeatedly.

mod classify;
mod digest;
mod scrub;
#[cfg(test)]
mod tests;

pub use classify::{Class, Context, Owner, classify};
pub use digest::{cohort_digest, error_id, halt_digest};
pub use scrub::{ERROR_BYTES_MAX, scrub};

use std::fmt;

use crate::artefact::ContentHash;

/// Milliseconds since 1970, by the aggregator's clock.
pub type Millis = u64;

/// An APPLIED of another session clears a FAILED only when its session is younger by more than
/// this: what a restarting collector reports first may be what it remembers, not what it did.
pub const CLEARS_AFTER_MS: Millis = 2_000;

/// Which collector, across restarts and uids (decision 5).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity(pub u128);

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Evidence of which change: members are looked up below it by [`Identity`] (decision 6).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EvidenceKey {
    /// `team/name`.
    pub rollout: Box<str>,
    /// The first-parent commit that added the Rollout's file, where history tells.
    pub origin: Option<Box<str>>,
    /// Content of the candidate.
    pub candidate: ContentHash,
}

/// What a brake belongs to: edited thresholds make it another one (decision 6).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BrakeKey {
    /// The change.
    pub evidence: EvidenceKey,
    /// Digest of the resolved values of the `halt` block.
    pub halt: u64,
}

/// Replicas are judged together only where they serve the same of these (decision 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReportKey {
    /// Content of the candidate.
    pub candidate: ContentHash,
    /// Active stage.
    pub stage: u32,
    /// Digest of all Cohorts up to the active stage and of what buckets hash over.
    pub cohorts: u64,
}

/// One stretch of being connected: a WebSocket, or one HTTP exchange. Later ones are greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Session {
    /// When it began. Below 2^48.
    pub epoch_ms: Millis,
    /// Which process of which replica: random, at its start.
    pub incarnation: u32,
    /// Counts per process, never reused. Below 2^40.
    pub n: u64,
}

/// When something was said: the session it was said in, and the place in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp {
    /// When the session began. Below 2^48.
    pub epoch_ms: Millis,
    /// Which process of which replica.
    pub incarnation: u32,
    /// Counts per process, never reused. Below 2^40.
    pub n: u64,
}

/// Names an error text: its XXH3, so that every replica gives it the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ErrorId(pub u32);

/// Which artefact a collector runs, as far as it can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reading {
    /// It is being given the candidate, or applies it.
    Taking,
    /// The candidate.
    To,
    /// The base.
    From,
    /// Neither.
    Other,
    /// Not to be told.
    Unknown,
}

/// Whether a session goes on. Later states of one session are greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Conn {
    /// Its replica vouches for it.
    Open,
    /// Its replica was drained.
    Drained,
    /// Closed without a word, silent for `dark_after`, or over after one HTTP exchange.
    Lost,
    /// It said `agent_disconnect`.
    Left,
}

/// Where a collector sits in a Rollout's Tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Seat {
    /// In the Cohort; the first stage that admits it.
    Stage(u16),
    /// In the Tier, outside the Cohort.
    Control,
    /// No longer in the Tier.
    Outside,
}

/// What was last observed of a collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Observed {
    /// Where it sits.
    pub seat: Seat,
    /// It does not accept remote configuration.
    pub foreign: bool,
    /// As it last reported.
    pub healthy: Option<bool>,
}

/// All that is known of one collector under one [`EvidenceKey`] (decision 7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// It reported FAILED for the candidate. Latched.
    pub failed: Option<(Stamp, ErrorId)>,
    /// It reported APPLIED for the candidate.
    pub applied: Option<Stamp>,
    /// What it runs.
    pub arm: Option<(Stamp, Reading)>,
    /// Its newest session.
    pub conn: Option<(Session, Conn)>,
    /// What else was seen of it.
    pub observed: Option<(Stamp, Observed)>,
    /// When it was last heard; 0 = never.
    pub heard_ms: Millis,
    /// When it first took the candidate: reported APPLYING or APPLIED for it, or acknowledged the
    /// bytes of the offer.
    pub first_to_ms: Option<Millis>,
    /// How often the candidate was offered to it again after it FAILED.
    pub tries: u8,
}

impl Session {
    /// A moment in this session; `n` is the process's next number.
    pub fn stamp(&self, n: u64) -> Stamp {
        Stamp { epoch_ms: self.epoch_ms, incarnation: self.incarnation, n }
    }
}

impl Stamp {
    /// Whether both were said in one session.
    pub fn same_session(&self, other: &Self) -> bool {
        (self.epoch_ms, self.incarnation) == (other.epoch_ms, other.incarnation)
    }
}

impl Record {
    /// Takes in what another report says.
    pub fn merge(&mut self, other: &Self) {
        self.failed = self.failed.max(other.failed);
        self.applied = self.applied.max(other.applied);
        self.arm = self.arm.max(other.arm);
        self.conn = self.conn.max(other.conn);
        self.observed = self.observed.max(other.observed);
        self.heard_ms = self.heard_ms.max(other.heard_ms);
        self.first_to_ms = match (self.first_to_ms, other.first_to_ms) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        self.tries = self.tries.max(other.tries);
    }

    /// Whether its last word about the candidate is FAILED.
    ///
    /// Only the newest APPLIED is known, so one that cleared is forgotten for one of another
    /// session that came within [`CLEARS_AFTER_MS`] of the FAILED: then it counts as failed.
    pub fn failed_now(&self) -> bool {
        match (self.failed, self.applied) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some((failed, _)), Some(applied)) => {
                let cleared = applied > failed
                    && (applied.same_session(&failed)
                        || applied.epoch_ms > failed.epoch_ms.saturating_add(CLEARS_AFTER_MS));
                !cleared
            }
        }
    }

    /// Whether it may be dropped: it holds nothing that could be needed again.
    pub fn is_idle(&self) -> bool {
        self.failed.is_none() && self.first_to_ms.is_none()
    }

    /// Whether it took the candidate at some time.
    pub fn took_candidate(&self) -> bool {
        self.first_to_ms.is_some()
    }
}
