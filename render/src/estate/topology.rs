//! Tiers, Services and Rollouts together: what each kind says about the others.

use std::collections::{BTreeMap, BTreeSet};

use super::decode::shown;
use super::model::{Cohort, Name, Rollout, Tier, Topology};
use super::object::read_all;
use super::report::Report;
use super::rollout::RolloutDraft;
use super::service::ServiceDraft;
use super::tier::TierDraft;
use super::{rollout, service, tier};
use crate::finding::{Finding, FindingKind, Subject};
use crate::problem::Refusal;
use crate::tree::Tree;

/// Distinct sets of selector attributes past which matching is refused: a connect costs one look-up
/// per set (estate.md, decision 17).
pub const MAX_SELECTOR_SHAPES: usize = 1_024;

/// Distinct sets of selector attributes past which there is a finding.
pub const MANY_SELECTOR_SHAPES: usize = 32;

/// Attributes that every OpAMP agent identifies itself by.
const ALWAYS_REPORTED: [&str; 2] = ["service.instance.id", "service.name"];

const HEADER: &str = "invalid topology sources:";

/// Reads every Tier, Service and Rollout (estate.md 1.8 to 1.10), with all rules between them.
///
/// # Errors
///
/// All problems of all files: Tiers, Services and Rollouts in byte order of their paths, of one file
/// those of form before those of meaning; then what Services and Rollouts say about Tiers in id
/// order. An object whose file cannot be read still counts as authored.
pub fn load_topology(tree: &Tree) -> Result<Topology, Refusal> {
    let mut report = Report::default();
    let tiers = read_all(tree, "tiers", &mut report, tier::read);
    let services = read_all(tree, "services", &mut report, service::read);
    let rollouts = read_all(tree, "rollouts", &mut report, rollout::read);
    check_services(&services, &tiers, &mut report);
    check_rollouts(&rollouts, &tiers, &mut report);

    let whole = |(id, draft): (Name, Option<TierDraft>)| Some((id, draft?.tier?));
    let topology = Topology {
        tiers: tiers.into_iter().filter_map(whole).collect(),
        services: services.into_iter().filter_map(|(id, s)| Some((id, s?.service?))).collect(),
        rollouts: rollouts.into_iter().filter_map(|(id, r)| Some((id, r?.rollout?))).collect(),
    };
    check_selector_shapes(&topology, &mut report);
    report.finish(HEADER, topology)
}

/// The objects whose files could be read.
fn read<T>(objects: &BTreeMap<Name, Option<T>>) -> impl Iterator<Item = (&Name, &T)> {
    objects.iter().filter_map(|(id, object)| Some((id, object.as_ref()?)))
}

fn check_services(
    services: &BTreeMap<Name, Option<ServiceDraft>>,
    tiers: &BTreeMap<Name, Option<TierDraft>>,
    report: &mut Report,
) {
    for (id, service) in read(services) {
        for (step, path) in &service.steps {
            if !tiers.contains_key(&step.value) {
                let text = format!(
                    "service {} passes through tier {}, which nobody authored.",
                    shown(id.as_str()),
                    shown(step.value.as_str())
                );
                let help = "author the Tier, or mend the step";
                report.add(text, &service.file, Some(step.at), path.clone(), help);
            }
        }
    }
}

/// In Rollout id order, each up to the first thing that makes the rest meaningless.
fn check_rollouts(
    rollouts: &BTreeMap<Name, Option<RolloutDraft>>,
    tiers: &BTreeMap<Name, Option<TierDraft>>,
    report: &mut Report,
) {
    let mut staged: BTreeMap<&Name, &Name> = BTreeMap::new();
    for (id, rollout) in read(rollouts) {
        let Some(target) = &rollout.tier else { continue };
        let mut add = |at, path: &str, text: String, help: &str| {
            let text = format!("rollout {} {text}", shown(id.as_str()));
            report.add(text, &rollout.file, Some(at), path.to_owned(), help);
        };
        let named = shown(target.value.as_str());
        let Some(tier) = tiers.get(&target.value) else {
            let text = format!("stages tier {named}, which nobody authored.");
            add(target.at, "tier", text, "author the Tier, or mend the name");
            continue;
        };
        if target.value.team() != id.team() {
            let text = format!("stages tier {named} of another team.");
            let help = "move the Rollout into the directory of the Tier's team";
            add(target.at, "tier", text, help);
            continue;
        }
        if let Some(tier) = tier
            && !rollout.owner.value.is_empty()
            && !tier.owner.is_empty()
            && rollout.owner.value != tier.owner
        {
            let text = format!(
                "is owned by {} but tier {named} is owned by {}.",
                shown(&rollout.owner.value),
                shown(&tier.owner)
            );
            add(rollout.owner.at, "owner", text, "name the Tier's owner");
        }
        if let Some(first) = staged.get(&target.value) {
            let text = format!(
                "stages tier {named}, which rollout {} already stages.",
                shown(first.as_str())
            );
            add(target.at, "tier", text, "complete or delete one of the two");
            continue;
        }
        staged.insert(&target.value, id);
        let bound = tier.as_ref().and_then(|tier| tier.blueprint.as_ref());
        if let (Some(from), Some(bound)) = (&rollout.from, bound)
            && from.value != *bound
        {
            let text = format!(
                "binds from {} but tier {named} binds {bound}. While a Rollout is active, the \
                 Rollout file is the only way to rebind the Tier.",
                from.value
            );
            let help = "set the Tier's `blueprint:` back, or delete the Rollout file";
            add(from.at, "from", text, help);
        }
    }
}

fn check_selector_shapes(topology: &Topology, report: &mut Report) {
    let mut shapes = BTreeSet::new();
    for tier in topology.tiers.values().filter(|tier| !tier.selector.is_empty()) {
        if shapes.insert(tier.selector.keys().collect::<Vec<_>>())
            && shapes.len() == MAX_SELECTOR_SHAPES + 1
        {
            let text = format!(
                "tier {} brings the selectors past {MAX_SELECTOR_SHAPES} distinct sets of \
                 attributes.",
                shown(tier.id.as_str())
            );
            let help = "let Tiers select by the same attributes";
            report.add(text, &tier.file, tier.selector_at, "selector".to_owned(), help);
        }
    }
}

/// One finding when the selectors have many distinct sets of attributes (decision 17).
pub fn selector_findings(topology: &Topology) -> Vec<Finding> {
    let selectors = topology.tiers.values().map(|tier| &tier.selector);
    let shapes: BTreeSet<Vec<&String>> = selectors
        .filter(|selector| !selector.is_empty())
        .map(|selector| selector.keys().collect())
        .collect();
    if shapes.len() <= MANY_SELECTOR_SHAPES {
        return Vec::new();
    }
    vec![Finding {
        kind: FindingKind::Selector,
        subject: Subject::Estate,
        lane: None,
        text: format!(
            "selectors use {} distinct sets of attributes; each costs every connect a look-up, \
             more than {MANY_SELECTOR_SHAPES} are slow and more than {MAX_SELECTOR_SHAPES} refused",
            shapes.len()
        ),
    }]
}

/// What decision 11 says about each Rollout, in Rollout id order: a last stage that cannot reach
/// everybody, and fractions over attributes that a collector of the Tier may lack.
pub fn rollout_findings(topology: &Topology) -> Vec<Finding> {
    let mut findings = Vec::new();
    for rollout in topology.rollouts.values() {
        let Some(tier) = topology.tiers.get(&rollout.tier.value) else { continue };
        let mut add = |text: String| {
            findings.push(Finding {
                kind: FindingKind::Rollout,
                subject: Subject::Tier(tier.id.clone()),
                lane: None,
                text: format!("rollout {} {text}", shown(rollout.id.as_str())),
            });
        };
        let mut cohorts = rollout.stages.iter().map(|stage| &stage.cohort);
        if !cohorts.any(|cohort| reaches_all(cohort, tier)) {
            add("cannot reach everybody: no stage has percent: 100".to_owned());
        }
        let lacking = may_lack(rollout, tier);
        if !lacking.is_empty() {
            add(format!(
                "hashes over {}, which a collector of the tier may lack; one that does is in no \
                 fraction, not even 100 percent",
                lacking.join(", ")
            ));
        }
    }
    findings
}

/// Whether every collector of the Tier is a member: all of them carry the Tier's selector.
fn reaches_all(cohort: &Cohort, tier: &Tier) -> bool {
    let selected = |key: &String| tier.selector.get(key);
    let by_match = !cohort.matches.is_empty()
        && cohort.matches.iter().all(|(key, value)| selected(key) == Some(value));
    let by_hosts = cohort.hosts.as_ref().is_some_and(|hosts| {
        selected(&hosts.attribute).is_some_and(|value| hosts.values.contains(value))
    });
    cohort.percent == 100 || by_match || by_hosts
}

fn may_lack<'r>(rollout: &'r Rollout, tier: &Tier) -> Vec<&'r str> {
    if rollout.stages.iter().all(|stage| stage.cohort.percent == 0) {
        return Vec::new();
    }
    let attributes = rollout.hash_attributes.iter().map(String::as_str);
    attributes
        .filter(|&key| !tier.selector.contains_key(key) && !ALWAYS_REPORTED.contains(&key))
        .collect()
}
