//! Heads made by hand and by chance, and collectors to match them with.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use render::artefact::Artefact;
use render::estate::{Cohort, Halt, Hosts};
use render::snapshot::served::{Served, ServedRollout, ServedStage, ServedTier};

/// A reported attribute; `None` is a value that is no string.
pub(crate) type Reported = (String, Option<String>);

pub(crate) fn pairs(of: &[(&str, &str)]) -> BTreeMap<String, String> {
    of.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// An artefact whose content hash depends on `body` alone.
pub(crate) fn artefact(commit: &str, body: &str) -> Artefact {
    let text = format!(
        "# one\n# two\nreceivers:\n  nop: {{}}\nservice:\n  telemetry:\n    resource:\n      \
         telecraft.commit: \"{commit}\"\n      body: {body}\n"
    );
    Artefact::new(text.into_bytes()).unwrap()
}

pub(crate) fn tier(selector: &[(&str, &str)], base: &str) -> ServedTier {
    ServedTier {
        environment: "production".into(),
        blueprint: "a/base@1".into(),
        selector: pairs(selector),
        base: artefact("0123456", base),
        next: None,
    }
}

pub(crate) fn rollout(id: &str, tier: &str, stage: u32, stages: Vec<Cohort>) -> ServedRollout {
    ServedRollout {
        id: id.into(),
        tier: tier.into(),
        owner: "owners".into(),
        from: "a/base@1".into(),
        to: "a/next@1".into(),
        stage,
        stages: stages
            .into_iter()
            .map(|cohort| ServedStage { cohort, soak: Duration::from_secs(60) })
            .collect(),
        hash_attributes: vec!["host.name".to_owned()],
        hash_salt: None,
        identity: Vec::new(),
        hold: false,
        halt: Halt::default(),
        stage_started_ms: None,
        origin: None,
    }
}

pub(crate) fn hosts(attribute: &str, values: &[&str]) -> Cohort {
    let values = values.iter().map(|value| (*value).to_owned()).collect();
    Cohort { hosts: Some(Hosts { attribute: attribute.to_owned(), values }), ..Cohort::default() }
}

pub(crate) fn percent(percent: u32) -> Cohort {
    Cohort { percent, ..Cohort::default() }
}

pub(crate) fn head(tiers: Vec<(&str, ServedTier)>, rollouts: Vec<ServedRollout>) -> Served {
    Served {
        commit: "89abcde".into(),
        rendered_at: Some("0123456".into()),
        tiers: tiers.into_iter().map(|(id, tier)| (id.into(), tier)).collect(),
        rollouts: rollouts.into_iter().map(|rollout| (rollout.id.clone(), rollout)).collect(),
        unmatched: artefact("0123456", "unmatched"),
    }
}

/// Few names and few values, so that selectors overlap, tie and shadow each other.
const NAMES: [&str; 6] = ["a", "b", "c", "host.name", "region", "service.name"];
const VALUES: [&str; 4] = ["1", "2", "eu", "é日本"];

fn name() -> impl Strategy<Value = String> {
    prop::sample::select(&NAMES[..]).prop_map(str::to_owned)
}

fn value() -> impl Strategy<Value = String> {
    prop::sample::select(&VALUES[..]).prop_map(str::to_owned)
}

fn some_pairs(size: std::ops::Range<usize>) -> impl Strategy<Value = BTreeMap<String, String>> {
    prop::collection::btree_map(name(), value(), size)
}

pub(crate) fn any_cohort() -> impl Strategy<Value = Cohort> {
    let values = prop::collection::vec(prop_oneof![value(), Just(String::new())], 1..4);
    let hosts = prop::option::of((name(), values))
        .prop_map(|hosts| hosts.map(|(attribute, values)| Hosts { attribute, values }));
    (hosts, some_pairs(0..3), prop_oneof![Just(0), 1..=100_u32])
        .prop_map(|(hosts, matches, percent)| Cohort { hosts, matches, percent })
}

/// Stages, the active one, hash attributes, a salt.
pub(crate) type Staged = (Vec<Cohort>, u32, Vec<String>, Option<String>);

pub(crate) fn any_stages() -> impl Strategy<Value = Staged> {
    (
        prop::collection::vec(any_cohort(), 1..4),
        any::<prop::sample::Index>(),
        prop::sample::subsequence(NAMES.to_vec(), 1..3).prop_shuffle(),
        prop::option::of("[a-z0-9-]{1,8}"),
    )
        .prop_map(|(stages, stage, names, salt)| {
            let stage = stage.index(stages.len()) as u32;
            (stages, stage, names.into_iter().map(str::to_owned).collect(), salt)
        })
}

/// Up to a dozen Tiers; most of them under a Rollout, some of which have no candidate of their own.
pub(crate) fn any_head() -> impl Strategy<Value = Served> {
    let id = ("[ab]{1,2}(-b)?", "[a-c]{1,2}").prop_map(|(team, name)| format!("{team}/{name}"));
    let entry = (some_pairs(1..4), prop::option::weighted(0.6, any_stages()), 0..4_u8);
    prop::collection::btree_map(id, entry, 0..12).prop_map(|entries| {
        let (mut tiers, mut rollouts) = (Vec::new(), Vec::new());
        for (id, (selector, staged, alike)) in &entries {
            let mut entry = tier(&[], &format!("base of {id}"));
            entry.selector = selector.clone();
            if let Some((stages, stage, hash_attributes, hash_salt)) = staged {
                let body = if *alike == 0 { "base" } else { "next" };
                entry.next = Some(artefact("fedcba9", &format!("{body} of {id}")));
                rollouts.push(ServedRollout {
                    hash_attributes: hash_attributes.clone(),
                    hash_salt: hash_salt.clone(),
                    ..rollout(&format!("{id}-r"), id, *stage, stages.clone())
                });
            }
            tiers.push((id.as_str(), entry));
        }
        head(tiers, rollouts)
    })
}

/// A description: non-identifying and identifying attributes, with repeated names, values that are
/// no strings, empty ones, and names that nobody asks for.
pub(crate) fn any_description() -> impl Strategy<Value = (Vec<Reported>, Vec<Reported>)> {
    let name = prop_oneof![4 => name(), 1 => "[a-z.]{0,12}"];
    let value =
        prop_oneof![5 => value().prop_map(Some), 1 => Just(None), 1 => Just(Some(String::new()))];
    let list = prop::collection::vec((name, value), 0..8);
    (list.clone(), list)
}

pub(crate) fn borrowed(list: &[Reported]) -> impl Iterator<Item = (&str, Option<&str>)> {
    list.iter().map(|(name, value)| (name.as_str(), value.as_deref()))
}
