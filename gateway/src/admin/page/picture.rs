//! Everything that the page shows, at one moment; what it is taken from goes on changing.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use render::rollout::report::RolloutReport;

use crate::aggregate::Role;
use crate::drain::Phase;
use crate::serve::TierCount;
use crate::source::status::Report;

/// What [`view::page`](super::view::page) draws.
#[derive(Debug)]
pub(super) struct Picture<'a> {
    /// The wall clock, in milliseconds since 1970.
    pub(super) unix_ms: u64,
    /// The aggregator's time, which reports are told in.
    pub(super) now_ms: u64,
    /// What is served.
    pub(super) head: HeadFacts<'a>,
    /// Ids of the Rollouts of the head, in byte order.
    pub(super) rollouts: Vec<&'a str>,
    /// What is known of each, once it was judged.
    pub(super) reports: &'a BTreeMap<Box<str>, Arc<RolloutReport>>,
    /// Tiers of the head, in byte order.
    pub(super) tiers: Vec<TierFacts<'a>>,
    /// Who is where, by Tier id, the Unmatched last.
    pub(super) counts: &'a [TierCount],
    /// This process.
    pub(super) replica: ReplicaFacts<'a>,
    /// Whether an admin token is asked for, so that there is something to sign out of.
    pub(super) signed_in: bool,
}

/// The head and where it comes from.
#[derive(Debug)]
pub(super) struct HeadFacts<'a> {
    /// Empty when nothing told it.
    pub(super) commit: &'a str,
    /// When it was made, where the source says so.
    pub(super) committed_unix_ms: Option<u64>,
    /// When it was put in force here.
    pub(super) loaded_unix_ms: u64,
    /// What the looks at the source came to.
    pub(super) source: &'a Report,
}

/// A Tier of the head.
#[derive(Clone, Copy, Debug)]
pub(super) struct TierFacts<'a> {
    pub(super) id: &'a str,
    pub(super) environment: &'a str,
    /// The Rollout that stages it.
    pub(super) rollout: Option<&'a str>,
}

/// This process.
#[derive(Debug)]
pub(super) struct ReplicaFacts<'a> {
    /// What it calls itself.
    pub(super) name: &'a str,
    /// What it is to the evidence.
    pub(super) role: Role,
    pub(super) phase: Phase,
    /// Collectors with a session here, both transports.
    pub(super) agents: u64,
    /// Of these, those that poll over HTTP.
    pub(super) polling: u64,
    /// Where links stand; `None` where collectors do not connect.
    pub(super) links: Option<LinkFacts>,
    /// Where evidence outlives the process.
    pub(super) store: Option<&'a Path>,
    /// What must be known about the evidence itself.
    pub(super) notices: &'a [String],
    /// Replicas that must report.
    pub(super) expect_replicas: u32,
}

/// Links and their limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkFacts {
    /// Alive now.
    pub(super) live: u64,
    /// `--max-links`, or what the limit of open files allows.
    pub(super) max: u64,
    /// Sent away for want of room or of a token since the process started.
    pub(super) rejected: u64,
}
