//! What a gateway serves: immutable, compiled from head, swapped whole.
//!
//! [`served`] reads it out of an estate's tree, [`mod@file`] out of one self-checking file;
//! [`compile()`] makes the [`Snapshot`] that the connect path looks things up in.

pub mod file;
pub mod served;

mod compile;
mod digest;

use std::sync::OnceLock;

use bytes::Bytes;

pub use compile::{CompileError, compile};

use crate::artefact::{Artefact, ContentHash, RawHash};
use crate::attrs::{Slots, Symbols};
use crate::rollout::cohort::{Cohorts, Membership, member};
use crate::rollout::running::Wiring;
use crate::select::SelectorIndex;

/// All that the connect path needs of a head.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The commit it was read at; empty when nothing told it.
    pub commit: Box<str>,
    /// What it was compiled from, by hash: equal digests serve every collector alike.
    pub digest: [u8; 32],
    /// Tiers with a selector, in byte order of their ids. A [`Placement`] holds indices into it.
    pub tiers: Box<[TierEntry]>,
    /// For a collector that no selector matches.
    pub unmatched: Offer,
    /// Rollouts of the Tiers above, in byte order of their ids.
    pub rollouts: Box<[CompiledRollout]>,
    /// The attribute names that selectors and Rollouts mention.
    pub symbols: Symbols,
    index: SelectorIndex,
    /// Sorted by the first half.
    raw_to_content: Box<[(RawHash, ContentHash)]>,
}

/// A Tier that can be served.
#[derive(Clone, Debug)]
pub struct TierEntry {
    /// `team/name`.
    pub id: Box<str>,
    /// As authored.
    pub environment: Box<str>,
    /// Attribute and value, in byte order of the attribute; not empty.
    pub selector: Box<[(Box<str>, Box<str>)]>,
    /// For everybody outside a Cohort.
    pub base: Offer,
    /// Index into [`Snapshot::rollouts`]; `None` when no Rollout stages this Tier.
    pub rollout: Option<u32>,
    /// For the Cohort. `None` without a Rollout, and when the Rollout's candidate has the base's
    /// content: that is no candidate (estate.md 9).
    pub candidate: Option<Candidate>,
}

/// What a Cohort is offered.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The `@next` artefact.
    pub offer: Offer,
    /// Index into [`Snapshot::rollouts`].
    pub rollout: u32,
}

/// An artefact, encoded once and shared by every link. Cloning shares the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// As the caller of [`compile`] encoded it; not empty.
    pub bytes: Bytes,
    /// What it is offered under.
    pub content: ContentHash,
    /// SHA-256 of the artefact's bytes.
    pub raw: RawHash,
    /// Bytes of the artefact itself.
    pub artefact_len: usize,
}

/// A Rollout as the connect path sees it.
#[derive(Clone, Debug)]
pub struct CompiledRollout {
    /// What was authored.
    pub rollout: served::ServedRollout,
    /// Index into [`Snapshot::tiers`].
    pub tier: u32,
    /// Its active stages, compiled.
    pub cohorts: Cohorts,
    /// The pipelines of its Tier's artefacts.
    pub wirings: Wirings,
}

/// The wiring of base and candidate. Both are read when somebody first asks: most heads never are.
#[derive(Clone, Debug)]
pub struct Wirings {
    from: Artefact,
    to: Artefact,
    read: OnceLock<[Option<Wiring>; 2]>,
}

impl Wirings {
    pub(super) fn new(from: Artefact, to: Artefact) -> Self {
        Self { from, to, read: OnceLock::new() }
    }

    /// Base and candidate; `None` where the artefact cannot be read as pipelines.
    pub fn read(&self) -> [Option<Wiring>; 2] {
        *self.read.get_or_init(|| [&self.from, &self.to].map(|side| Wiring::of(side.bytes())))
    }
}

/// Which artefact a collector is meant to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Arm {
    /// The candidate, as a member of the Cohort.
    To,
    /// The base of a Tier under a Rollout, as one outside the Cohort.
    From,
    /// The base of a Tier without a Rollout, or whose Rollout has no candidate of its own.
    None,
    /// No selector matches.
    #[default]
    Unmatched,
}

/// Where a collector's attributes lead. Holds for the [`Snapshot`] that made it, and no other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// Index into [`Snapshot::tiers`]; `None` is Unmatched.
    pub tier: Option<u32>,
    /// Which artefact.
    pub arm: Arm,
    /// Index into [`Snapshot::rollouts`], when the Tier is under one.
    pub rollout: Option<u32>,
    /// The first active stage that admits it; `None` for who is outside the Cohort.
    pub stage: Option<u32>,
    /// No active form but `percent` could admit this collector, and it lacks a hash attribute.
    pub no_bucket: bool,
}

impl Snapshot {
    /// Room for a collector's attributes, all absent.
    pub fn slots<'m>(&self) -> Slots<'m> {
        Slots::new(&self.symbols)
    }

    /// Matches a collector to its Tier and decides its membership. Allocates nothing; costs one
    /// probe per distinct set of selector keys, and at most one hash.
    pub fn place(&self, slots: &Slots<'_>) -> Placement {
        let Some(tier) = self.index.find(slots) else { return Placement::default() };
        let entry = &self.tiers[tier as usize];
        let Some(rollout) = entry.rollout else {
            return Placement { tier: Some(tier), arm: Arm::None, ..Placement::default() };
        };
        let Membership { stage, no_bucket } =
            member(&self.rollouts[rollout as usize].cohorts, slots);
        let arm = match (&entry.candidate, stage) {
            (None, _) => Arm::None,
            (Some(_), Some(_)) => Arm::To,
            (Some(_), None) => Arm::From,
        };
        Placement { tier: Some(tier), arm, rollout: Some(rollout), stage, no_bucket }
    }

    /// What to offer there.
    pub fn offer(&self, placement: &Placement) -> &Offer {
        let Some(entry) = placement.tier.and_then(|tier| self.tiers.get(tier as usize)) else {
            return &self.unmatched;
        };
        match (placement.arm, &entry.candidate) {
            (Arm::To, Some(candidate)) => &candidate.offer,
            _ => &entry.base,
        }
    }

    /// The content hash of the artefact in this head whose bytes hash to `raw`: a collector that
    /// took it from the reference implementation reports that (estate.md 9).
    pub fn content_of_raw(&self, raw: &RawHash) -> Option<ContentHash> {
        let at = self.raw_to_content.binary_search_by(|(known, _)| known.cmp(raw)).ok()?;
        Some(self.raw_to_content[at].1)
    }

    /// How many distinct sets of selector keys there are: what a match costs.
    pub fn shapes(&self) -> usize {
        self.index.shapes()
    }
}
