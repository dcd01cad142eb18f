//! What of an estate is served, and whether its rendered tree may be (serving.md 3.3; estate.md,
//! decision 15).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::artefact::Artefact;
use crate::estate::{self, Cohort, Halt, Name, Topology};
use crate::finding::{Finding, FindingKind, Subject};
use crate::problem::{Problem, Refusal, Spot};
use crate::tree::Tree;

/// Where the Unmatched artefact is.
pub const UNMATCHED_PATH: &str = "rendered/_estate/unmatched.yaml";

/// Everything that is served of a head: the reviewed bytes and who gets which. Names no path and
/// no machine, so that it can travel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// The commit it was read at: the one the reader was told, else the one stamped into the
    /// Unmatched artefact, else empty.
    pub commit: Box<str>,
    /// The commit string stamped into the Unmatched artefact, which is older than the commit that
    /// holds it.
    pub rendered_at: Option<Box<str>>,
    /// Tiers with a selector, by id. Others cannot be served.
    pub tiers: BTreeMap<Box<str>, ServedTier>,
    /// Rollouts of those Tiers, by id.
    pub rollouts: BTreeMap<Box<str>, ServedRollout>,
    /// For a collector that no selector matches.
    pub unmatched: Artefact,
}

/// A Tier with a selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedTier {
    /// As authored.
    pub environment: Box<str>,
    /// The Blueprint it binds, `team/name@N`.
    pub blueprint: Box<str>,
    /// Attribute to value; not empty.
    pub selector: BTreeMap<String, String>,
    /// `rendered/<team>/<tier>.yaml`.
    pub base: Artefact,
    /// `rendered/<team>/<tier>@next.yaml`, when a Rollout stages the Tier.
    pub next: Option<Artefact>,
}

/// A Rollout of a Tier with a selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedRollout {
    /// `team/name`.
    pub id: Box<str>,
    /// The Tier it stages.
    pub tier: Box<str>,
    /// Owner id.
    pub owner: Box<str>,
    /// The Tier's binding, `team/name@N`.
    pub from: Box<str>,
    /// The candidate, `team/name@N`.
    pub to: Box<str>,
    /// Index of the active stage, from 0.
    pub stage: u32,
    /// All stages, at least one.
    pub stages: Vec<ServedStage>,
    /// In authored order.
    pub hash_attributes: Vec<String>,
    /// Seeds the bucket hash.
    pub hash_salt: Option<String>,
    /// Attributes that identify a collector in evidence; empty = the default rule.
    pub identity: Vec<String>,
    /// Never propose while true.
    pub hold: bool,
    /// Thresholds.
    pub halt: Halt,
    /// When its active stage began, in milliseconds since 1970, where history tells.
    pub stage_started_ms: Option<u64>,
    /// The commit that added its file, where history tells.
    pub origin: Option<Box<str>>,
}

/// One stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedStage {
    /// Whom it admits.
    pub cohort: Cohort,
    /// Least time before its advance may be proposed.
    pub soak: Duration,
}

impl Served {
    /// What decision 9 of estate.md wants told, in Tier id order, Unmatched last: artefacts that
    /// each merge delivers again, and candidates that are none.
    pub fn findings(&self) -> Vec<Finding> {
        let finding =
            |subject, text| Finding { kind: FindingKind::Artefact, subject, lane: None, text };
        let unstamped = |which: &str| {
            format!(
                "{which} has no service.telemetry.resource telecraft.commit on a line of its own, \
                 so whatever changes its bytes delivers it again"
            )
        };
        let mut findings = Vec::new();
        for (id, tier) in &self.tiers {
            let (team, name) = id.split_once('/').unwrap_or((id, ""));
            let subject = || Subject::Tier(Name::new(team, name));
            if tier.base.commit().is_none() {
                findings.push(finding(subject(), unstamped("the artefact")));
            }
            if tier.next.as_ref().is_some_and(|next| next.commit().is_none()) {
                findings.push(finding(subject(), unstamped("the @next artefact")));
            }
            if tier.has_no_candidate() {
                let text = "candidate and base have equal content, so nothing is staged: everybody \
                            is served the base";
                findings.push(finding(subject(), text.to_owned()));
            }
        }
        if self.unmatched.commit().is_none() {
            findings.push(finding(Subject::Estate, unstamped("the Unmatched artefact")));
        }
        findings
    }
}

impl ServedTier {
    /// Whether a Rollout's artefact configures a collector just as the base does.
    pub fn has_no_candidate(&self) -> bool {
        let base = self.base.content_hash();
        self.next.as_ref().is_some_and(|next| next.content_hash() == base)
    }
}

/// Reads what a tree serves: the topology (the other authored files are not needed) and the
/// committed bytes under `rendered/`. `commit` is the tree's own commit, where its reader knows.
///
/// # Errors
/// The topology's refusal, or one that lists every artefact that is missing, blank, or rendered
/// from another binding than is authored: one bad Tier keeps the whole head from being served.
pub fn from_tree(tree: &Tree, commit: Option<&str>) -> Result<Served, Refusal> {
    from_topology(&estate::load_topology(tree)?, tree, commit)
}

/// As [`from_tree`], with the topology loaded already.
///
/// # Errors
/// As [`from_tree`], but for the topology's own.
pub fn from_topology(
    topology: &Topology,
    tree: &Tree,
    commit: Option<&str>,
) -> Result<Served, Refusal> {
    let mut reader = Reader { tree, problems: Vec::new() };
    let rollouts: BTreeMap<&str, &estate::Rollout> =
        topology.rollouts.values().map(|rollout| (rollout.tier.value.as_str(), rollout)).collect();

    let mut served_tiers = BTreeMap::new();
    let mut served_rollouts = BTreeMap::new();
    for tier in topology.tiers.values().filter(|tier| !tier.selector.is_empty()) {
        let base = reader.artefact(tier, &tier.blueprint.value, "");
        let rollout = rollouts.get(tier.id.as_str());
        let next = rollout.map(|rollout| reader.artefact(tier, &rollout.to.value, "@next"));
        if let Some(rollout) = rollout {
            served_rollouts.insert(rollout.id.as_str().into(), served_rollout(rollout));
        }
        if let (Some(base), next @ (None | Some(Some(_)))) = (base, next) {
            let entry = ServedTier {
                environment: tier.environment.value.as_str().into(),
                blueprint: tier.blueprint.value.to_string().into(),
                selector: tier.selector.clone(),
                base,
                next: next.flatten(),
            };
            served_tiers.insert(tier.id.as_str().into(), entry);
        }
    }
    let unmatched = reader.read(UNMATCHED_PATH);
    match unmatched {
        Some(unmatched) if reader.problems.is_empty() => {
            let rendered_at: Option<Box<str>> = unmatched.commit().map(Into::into);
            let commit = commit.map(Into::into).or_else(|| rendered_at.clone());
            Ok(Served {
                commit: commit.unwrap_or_default(),
                rendered_at,
                tiers: served_tiers,
                rollouts: served_rollouts,
                unmatched,
            })
        }
        _ => Err(Refusal {
            header: "the rendered tree cannot be served:".to_owned(),
            problems: reader.problems,
        }),
    }
}

fn served_rollout(rollout: &estate::Rollout) -> ServedRollout {
    ServedRollout {
        id: rollout.id.as_str().into(),
        tier: rollout.tier.value.as_str().into(),
        owner: rollout.owner.value.as_str().into(),
        from: rollout.from.value.to_string().into(),
        to: rollout.to.value.to_string().into(),
        stage: rollout.stage,
        stages: rollout
            .stages
            .iter()
            .map(|stage| ServedStage { cohort: stage.cohort.clone(), soak: stage.soak })
            .collect(),
        hash_attributes: rollout.hash_attributes.clone(),
        hash_salt: rollout.hash_salt.clone(),
        identity: rollout.identity.clone(),
        hold: rollout.hold,
        halt: rollout.halt.clone(),
        stage_started_ms: None,
        origin: None,
    }
}

/// Reads rendered files and collects what is wrong with them.
struct Reader<'t> {
    tree: &'t Tree,
    problems: Vec<Problem>,
}

impl Reader<'_> {
    /// The artefact of a Tier; `suffix` is `@next` or empty.
    fn artefact(
        &mut self,
        tier: &estate::Tier,
        binding: &estate::Binding,
        suffix: &str,
    ) -> Option<Artefact> {
        let path = format!("rendered/{}{suffix}.yaml", tier.id);
        let artefact = self.read(&path)?;
        let line = second_line(artefact.bytes());
        let stamped = line.and_then(Stamp::parse);
        let text = match stamped {
            Some(stamp) if stamp.tier != tier.id.as_str() => {
                format!("{path} is the artefact of tier {}, not of {}", stamp.tier, tier.id)
            }
            Some(stamp) if stamp.blueprint != binding.to_string() => {
                let binds =
                    if suffix.is_empty() { "the Tier binds" } else { "its Rollout moves to" };
                format!("{path} is stale: it renders {} but {binds} {binding}", stamp.blueprint)
            }
            Some(_) => return Some(artefact),
            None => format!("{path} does not say on its second line which Blueprint it renders"),
        };
        self.problem(&path, text);
        None
    }

    fn read(&mut self, path: &str) -> Option<Artefact> {
        let text = match self.tree.get(path) {
            None => format!("{path} is missing"),
            Some(bytes) if holds_conflict(bytes) => {
                format!("{path} holds the markers of a merge conflict that nobody resolved")
            }
            Some(bytes) => match Artefact::new(Bytes::from_owner(Arc::clone(bytes))) {
                Ok(artefact) => return Some(artefact),
                Err(blank) => format!("{path} {blank}"),
            },
        };
        self.problem(path, text);
        None
    }

    fn problem(&mut self, path: &str, text: String) {
        let estate = if self.tree.label.is_empty() { "DIR" } else { &self.tree.label };
        self.problems.push(Problem {
            text,
            spot: Some(Spot { file: self.tree.display(path), pos: None, path: String::new() }),
            help: format!(
                "run `render --estate {estate} --catalogue FILE --commit SHA` and commit what it \
                 writes"
            ),
        });
    }
}

/// Whether git left its markers: such a file is no configuration, however good its first lines are.
fn holds_conflict(bytes: &[u8]) -> bool {
    let marks = |line: &[u8]| line.starts_with(b"<<<<<<< ") || line.starts_with(b">>>>>>> ");
    bytes.split(|byte| *byte == b'\n').any(marks)
}

fn second_line(bytes: &[u8]) -> Option<&str> {
    let line = bytes.split(|byte| *byte == b'\n').nth(1)?;
    std::str::from_utf8(line).ok().map(|line| line.trim_end_matches('\r'))
}

/// What a Tier's artefact says about itself on line 2 (estate.md 2.6):
/// `# Tier <id> (<environment>), Blueprint <binding>, commit <commit>.`
struct Stamp<'l> {
    tier: &'l str,
    blueprint: &'l str,
}

impl<'l> Stamp<'l> {
    fn parse(line: &'l str) -> Option<Self> {
        let rest = line.strip_prefix("# Tier ")?;
        // An Environment is free text, so what follows it is looked for from the end.
        let (rest, _commit) = rest.rsplit_once(", commit ")?;
        let (rest, blueprint) = rest.rsplit_once("), Blueprint ")?;
        let (tier, _environment) = rest.split_once(" (")?;
        Some(Self { tier, blueprint })
    }
}
