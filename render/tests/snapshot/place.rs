//! Matching and placement against a slow, obvious model (serving.md 3.4).

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use proptest::prelude::*;
use render::artefact::{Artefact, ContentHash};
use render::estate::Cohort;
use render::snapshot::served::{Served, ServedRollout};
use render::snapshot::{Arm, CompileError, Snapshot, compile};

use crate::util::{
    Reported, any_description, any_head, artefact, borrowed, head, hosts, percent, rollout, tier,
};

fn encode(artefact: &Artefact, content: &ContentHash) -> Bytes {
    [content.to_string().as_bytes(), artefact.bytes()].concat().into()
}

fn snapshot(served: &Served) -> Snapshot {
    compile(served, encode).unwrap()
}

/// Tier, arm and the bytes to offer.
fn place<'s>(
    snapshot: &'s Snapshot,
    (non_identifying, identifying): (&[Reported], &[Reported]),
) -> (Option<&'s str>, Arm, &'s Bytes, bool) {
    let mut slots = snapshot.slots();
    slots.fill(&snapshot.symbols, borrowed(non_identifying), borrowed(identifying));
    let placement = snapshot.place(&slots);
    let tier = placement.tier.map(|tier| &*snapshot.tiers[tier as usize].id);
    (tier, placement.arm, &snapshot.offer(&placement).bytes, placement.no_bucket)
}

fn of(list: &[(&str, &str)]) -> Vec<Reported> {
    list.iter().map(|(name, value)| ((*name).to_owned(), Some((*value).to_owned()))).collect()
}

/// The rule as it is written, with a scan over everything.
mod model {
    use super::*;

    pub(super) fn flatten(
        non_identifying: &[Reported],
        identifying: &[Reported],
    ) -> BTreeMap<String, String> {
        let mut flat = BTreeMap::new();
        for (name, value) in non_identifying.iter().chain(identifying) {
            if let Some(value) = value {
                flat.insert(name.clone(), value.clone());
            }
        }
        flat
    }

    fn satisfies(pairs: &BTreeMap<String, String>, reported: &BTreeMap<String, String>) -> bool {
        pairs.iter().all(|(name, value)| reported.get(name) == Some(value))
    }

    pub(super) fn tier<'s>(
        served: &'s Served,
        reported: &BTreeMap<String, String>,
    ) -> Option<&'s str> {
        let mut best: Option<(&str, usize)> = None;
        // By id in byte order, so only more pairs take the place of an earlier Tier.
        for (id, tier) in &served.tiers {
            let pairs = tier.selector.len();
            if satisfies(&tier.selector, reported) && best.is_none_or(|(_, most)| pairs > most) {
                best = Some((id, pairs));
            }
        }
        best.map(|(id, _)| id)
    }

    pub(super) fn member(rollout: &ServedRollout, reported: &BTreeMap<String, String>) -> bool {
        let active = &rollout.stages[..=rollout.stage as usize];
        active.iter().any(|stage| admits(rollout, &stage.cohort, reported))
    }

    fn admits(
        rollout: &ServedRollout,
        cohort: &Cohort,
        reported: &BTreeMap<String, String>,
    ) -> bool {
        let by_host = cohort.hosts.as_ref().is_some_and(|hosts| {
            reported.get(&hosts.attribute).is_some_and(|value| hosts.values.contains(value))
        });
        let by_match = !cohort.matches.is_empty() && satisfies(&cohort.matches, reported);
        by_host || by_match || bucket(rollout, reported).is_some_and(|of| of < cohort.percent * 100)
    }

    fn bucket(rollout: &ServedRollout, reported: &BTreeMap<String, String>) -> Option<u32> {
        use twox_hash::XxHash3_64;
        let mut bytes = Vec::new();
        for name in &rollout.hash_attributes {
            let value = reported.get(name).filter(|value| !value.is_empty())?;
            bytes.extend_from_slice(format!("{name}\0{value}\0").as_bytes());
        }
        let salt = rollout.hash_salt.as_ref();
        let seed = salt.map_or(0, |salt| XxHash3_64::oneshot(salt.as_bytes()));
        let hash = XxHash3_64::oneshot_with_seed(seed, &bytes);
        Some(((u128::from(hash) * 10_000) >> 64) as u32)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn placement_equals_the_model(
        served in any_head(),
        descriptions in prop::collection::vec(any_description(), 1..6),
    ) {
        let snapshot = snapshot(&served);
        for (non_identifying, identifying) in &descriptions {
            let reported = model::flatten(non_identifying, identifying);
            let (tier, arm, offer, no_bucket) = place(&snapshot, (non_identifying, identifying));
            prop_assert_eq!(tier, model::tier(&served, &reported));
            let Some(tier) = tier else {
                prop_assert_eq!(arm, Arm::Unmatched);
                prop_assert_eq!(offer, &encode(&served.unmatched, &served.unmatched.content_hash()));
                continue;
            };
            let entry = &served.tiers[tier];
            let rollout = served.rollouts.values().find(|rollout| &*rollout.tier == tier);
            let member = rollout.is_some_and(|rollout| model::member(rollout, &reported));
            let (expected_arm, expected) = match &entry.next {
                Some(next) if next.content_hash() != entry.base.content_hash() => {
                    if member { (Arm::To, next) } else { (Arm::From, &entry.base) }
                }
                _ => (Arm::None, &entry.base),
            };
            prop_assert_eq!(arm, expected_arm);
            prop_assert_eq!(offer, &encode(expected, &expected.content_hash()));
            prop_assert!(!(no_bucket && member));
        }
    }

    #[test]
    fn only_names_that_head_mentions_have_symbols(served in any_head()) {
        let snapshot = snapshot(&served);
        let names: Vec<&str> = snapshot.symbols.names().collect();
        prop_assert!(names.is_sorted());
        for (index, name) in names.iter().enumerate() {
            prop_assert_eq!(snapshot.symbols.get(name), Some(index as u32));
        }
        let mut mentioned = BTreeSet::new();
        for tier in served.tiers.values() {
            mentioned.extend(tier.selector.keys().map(String::as_str));
        }
        for rollout in served.rollouts.values() {
            mentioned.extend(rollout.hash_attributes.iter().map(String::as_str));
            for stage in &rollout.stages {
                mentioned.extend(stage.cohort.matches.keys().map(String::as_str));
                mentioned.extend(stage.cohort.hosts.iter().map(|hosts| hosts.attribute.as_str()));
            }
        }
        prop_assert_eq!(names, mentioned.into_iter().collect::<Vec<_>>());
        prop_assert_eq!(snapshot.symbols.get("nobody asks for this"), None);
    }
}

#[test]
fn most_pairs_win_and_ties_go_to_the_first_id_in_byte_order() {
    let served = head(
        vec![
            ("a/x", tier(&[("k", "1"), ("l", "1")], "a/x")),
            ("a-b/x", tier(&[("k", "1"), ("m", "1")], "a-b/x")),
            ("0/wide", tier(&[("k", "1")], "0/wide")),
            ("z/same", tier(&[("k", "2")], "z/same")),
            ("y/same", tier(&[("k", "2")], "y/same")),
        ],
        vec![],
    );
    let snapshot = snapshot(&served);
    assert_eq!(snapshot.shapes(), 3);
    let tier = |list: &[(&str, &str)]| place(&snapshot, (&[], &of(list))).0;
    assert_eq!(tier(&[("k", "1")]), Some("0/wide"));
    assert_eq!(tier(&[("k", "1"), ("l", "1")]), Some("a/x"));
    assert_eq!(tier(&[("k", "1"), ("l", "1"), ("m", "1")]), Some("a-b/x"), "`-` sorts before `/`");
    assert_eq!(tier(&[("k", "2")]), Some("y/same"));
    assert_eq!(tier(&[("k", "3")]), None);
    assert_eq!(tier(&[]), None);
}

#[test]
fn identifying_attributes_win_and_only_strings_count() {
    let tiers = vec![("a/one", tier(&[("k", "1")], "one")), ("a/two", tier(&[("k", "2")], "two"))];
    let snapshot = snapshot(&head(tiers, vec![]));
    let number = || vec![("k".to_owned(), None)];
    let tier = |non_identifying: &[Reported], identifying: &[Reported]| {
        place(&snapshot, (non_identifying, identifying)).0
    };
    assert_eq!(tier(&of(&[("k", "1")]), &of(&[("k", "2")])), Some("a/two"));
    assert_eq!(tier(&of(&[("k", "1")]), &number()), Some("a/one"), "a number hides nothing");
    assert_eq!(tier(&of(&[("k", "1"), ("k", "2")]), &[]), Some("a/two"), "the last one wins");
    assert_eq!(tier(&[], &of(&[("k", "2"), ("k", "1")])), Some("a/one"));
    assert_eq!(tier(&of(&[("k", "1")]), &of(&[("k", "")])), None, "an empty string hides");
}

#[test]
fn a_candidate_with_the_content_of_its_base_is_none() {
    let mut under = tier(&[("k", "1")], "same");
    under.next = Some(artefact("fffffff", "same"));
    let served = head(vec![("a/t", under)], vec![rollout("a/r", "a/t", 0, vec![percent(100)])]);
    let snapshot = snapshot(&served);
    assert!(snapshot.tiers[0].candidate.is_none());
    assert_eq!(snapshot.tiers[0].rollout, Some(0));
    let (tier, arm, _, _) = place(&snapshot, (&[], &of(&[("k", "1"), ("host.name", "h")])));
    assert_eq!((tier, arm), (Some("a/t"), Arm::None));
    let findings = served.findings();
    assert_eq!(findings.len(), 1);
    assert_eq!(
        findings[0].to_string(),
        "finding artefact tier=a/t: candidate and base have equal content, so nothing is staged: \
         everybody is served the base"
    );
}

#[test]
fn a_collector_without_the_hash_attribute_is_told_apart() {
    let mut under = tier(&[("k", "1")], "base");
    under.next = Some(artefact("fffffff", "next"));
    let served = head(vec![("a/t", under)], vec![rollout("a/r", "a/t", 0, vec![percent(100)])]);
    let snapshot = snapshot(&served);
    let (_, arm, _, no_bucket) = place(&snapshot, (&[], &of(&[("k", "1")])));
    assert_eq!((arm, no_bucket), (Arm::From, true));
    let (_, arm, _, no_bucket) = place(&snapshot, (&[], &of(&[("k", "1"), ("host.name", "h")])));
    assert_eq!((arm, no_bucket), (Arm::To, false));
}

#[test]
fn equal_artefacts_share_their_bytes_and_raw_hashes_lead_to_content() {
    let one = tier(&[("k", "1")], "same");
    let two = tier(&[("k", "2")], "same");
    let (raw, content) = (one.base.raw_hash(), one.base.content_hash());
    let snapshot = snapshot(&head(vec![("a/one", one), ("a/two", two)], vec![]));
    let [one, two] = &*snapshot.tiers else { panic!("two tiers") };
    assert_eq!(one.base.bytes.as_ptr(), two.base.bytes.as_ptr());
    assert_eq!(snapshot.content_of_raw(&raw), Some(content));
    assert_eq!(snapshot.content_of_raw(&content.0), None);
    assert_eq!(one.base.artefact_len + 64, one.base.bytes.len());
}

#[test]
fn what_does_not_fit_together_is_refused() {
    let served = head(vec![("a/t", tier(&[("k", "1")], "base"))], vec![]);
    let blank = compile(&served, |_, _| Bytes::new());
    assert!(matches!(blank, Err(CompileError::EmptyOffer { .. })), "{blank:?}");

    let stages = || vec![hosts("host.name", &["h"])];
    let astray = head(vec![], vec![rollout("a/r", "a/t", 0, stages())]);
    let mut without = served.clone();
    without.rollouts = astray.rollouts.clone();
    let mut alone = served;
    alone.tiers.get_mut("a/t").unwrap().next = Some(artefact("fffffff", "next"));
    for broken in [astray, without, alone] {
        let error = compile(&broken, encode).unwrap_err();
        assert!(
            matches!(&error, CompileError::Mismatch { tier, .. } if &**tier == "a/t"),
            "{error}"
        );
    }
}

#[test]
fn past_1024_sets_of_names_there_is_no_index() {
    let of_shapes = |count: usize| {
        let names: Vec<String> = (0..count).map(|number| format!("name-{number:04}")).collect();
        let ids: Vec<String> = (0..count).map(|number| format!("a/t{number:04}")).collect();
        let tiers = ids.iter().zip(&names);
        head(tiers.map(|(id, name)| (id.as_str(), tier(&[(name, "1")], id))).collect(), vec![])
    };
    assert_eq!(snapshot(&of_shapes(1024)).shapes(), 1024);
    let error = compile(&of_shapes(1025), encode).unwrap_err().to_string();
    assert!(error.starts_with("selectors use 1025 different sets of attribute names"), "{error}");
}
