//! What is told about a Rollout: the body of `/api/v1/rollouts/{team}/{name}`, what the commands
//! print, and what an evidence bundle holds (rollouts.md, decision 22).

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::evidence::Millis;
use super::verdict::{Tally, Terms, Times, Verdict};

/// A Rollout as it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RolloutReport {
    /// `team/name`.
    pub rollout: String,
    /// The Tier it stages.
    pub tier: String,
    /// Owner id.
    pub owner: String,
    /// The Tier's binding, `team/name@N`.
    pub from: String,
    /// The candidate, `team/name@N`.
    pub to: String,
    /// The commit of the head; empty when nothing told it.
    pub head: String,
    /// The first-parent commit that added the Rollout's file, where history tells.
    pub origin: Option<String>,
    /// Content hash of the base artefact, hex.
    pub base: String,
    /// Content hash of the candidate, hex.
    pub candidate: String,
    /// Each stage's Cohort in a few words, and its soak.
    pub cohorts: Vec<CohortLine>,
    /// What is demanded.
    pub terms: Terms,
    /// When what began.
    pub times: Times,
    /// What was seen.
    pub tally: Tally,
    /// What it comes to.
    pub verdict: Verdict,
    /// When the brake was put on, if it is.
    pub braked_since_ms: Option<Millis>,
    /// Halted members, those that no outage explains first, at most [`HALTED_MAX`].
    pub halted: Vec<HaltedMember>,
    /// Who reports.
    pub replicas: Vec<ReplicaLine>,
    /// What a reader must know about the evidence itself, a sentence each: a store that was lost,
    /// or cannot be written.
    pub notices: Vec<String>,
    /// The proposal, once there is one. Never in a bundle: it comes after the verdict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proposal: Option<ProposalState>,
}

/// Halted members that a report names; all are counted.
pub const HALTED_MAX: usize = 10_000;

/// A stage in a few words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CohortLine {
    /// Such as `hosts host.name (2)`, `match k8s.cluster.name=eu-west-1`, `25%`.
    pub cohort: String,
    /// How long it must soak.
    pub soak_ms: Millis,
}

/// A member that blocks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HaltedMember {
    /// The halt condition, such as `failed` or `went_dark`.
    pub condition: String,
    /// What it said, scrubbed; empty when it said nothing.
    pub error: String,
    /// `service.version`, where it reports one.
    pub version: String,
    /// `host.name` or `service.instance.id`, else its identity.
    pub label: String,
    /// Its identity, 32 hex digits; no two entries share one.
    pub identity: String,
    /// The first stage that admits it.
    pub stage: u32,
    /// Since when it is silent, or when the session began in which it failed.
    pub since_ms: Millis,
}

/// A replica that reports, or did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplicaLine {
    /// What it calls itself.
    pub name: String,
    /// Which process of it, hex.
    pub incarnation: String,
    /// Whether it reports now.
    pub reporting: bool,
    /// Whether it serves what the judge serves: the same report key.
    pub same_head: bool,
    /// How long ago its newest word came.
    pub age_ms: Millis,
}

/// What became of a proposal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProposalState {
    /// `advance`, `complete` or `abort`.
    pub kind: String,
    /// Its branch.
    pub branch: String,
    /// `pushed`, `present` (somebody else's push), `retrying`, `stale`, `refused`, `withdrawn`.
    pub state: String,
    /// The branch's tip, where it is known.
    pub commit: Option<String>,
    /// The pull request, where there is one.
    pub url: Option<String>,
    /// What went wrong last, if it did.
    pub error: Option<String>,
    /// Tries so far.
    pub attempts: u32,
}

/// Halted members that share condition, error and version.
pub type Cluster<'r> = ((&'r str, &'r str, &'r str), Vec<&'r HaltedMember>);

impl RolloutReport {
    /// Halted members by what halts them, worst first.
    pub fn clusters(&self) -> Vec<Cluster<'_>> {
        let mut clusters: BTreeMap<(&str, &str, &str), Vec<&HaltedMember>> = BTreeMap::new();
        for member in &self.halted {
            let key = (&*member.condition, &*member.error, &*member.version);
            clusters.entry(key).or_default().push(member);
        }
        let mut clusters: Vec<_> = clusters.into_iter().collect();
        // `failed` is before `went_dark`, and any other condition, in order of its name between them.
        clusters.sort_by_key(|((condition, ..), members)| {
            (*condition != "failed", Reverse(members.len()))
        });
        clusters
    }
}
