//! Membership: golden vectors, and what holds for all Rollouts (rollouts.md, decisions 1 to 3).

use std::path::Path;

use proptest::prelude::*;
use render::attrs::{Slots, Symbols};
use render::estate::Cohort;
use render::rollout::cohort::{Cohorts, Membership, bucket, hash, member, seed};
use serde_json::Value;

use crate::util::{any_stages, hosts, pairs, percent};

fn vectors() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/vectors/cohort.json");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn attributes(list: &Value) -> Vec<(&str, Option<&str>)> {
    list.as_array()
        .unwrap()
        .iter()
        .map(|pair| (pair[0].as_str().unwrap(), pair[1].as_str()))
        .collect()
}

/// The same hash by another implementation, from bytes gathered in the plainest way.
fn independent(salt: Option<&str>, attributes: &[(&str, Option<&str>)]) -> u64 {
    use twox_hash::XxHash3_64;
    let seed = salt.map_or(0, |salt| XxHash3_64::oneshot(salt.as_bytes()));
    let mut bytes = Vec::new();
    for (key, value) in attributes {
        bytes.extend_from_slice(key.as_bytes());
        bytes.push(0);
        bytes.extend_from_slice(value.unwrap().as_bytes());
        bytes.push(0);
    }
    XxHash3_64::oneshot_with_seed(seed, &bytes)
}

#[test]
fn the_golden_vectors_hold_in_two_implementations() {
    let vectors = vectors();
    let all = vectors["vectors"].as_array().unwrap();
    assert!(all.len() >= 7);
    for vector in all {
        let attributes = attributes(&vector["attributes"]);
        let salt = vector["salt"].as_str();
        let expected: u64 = vector["hash"].as_str().unwrap().parse().unwrap();
        let found = hash(seed(salt), attributes.iter().copied());
        assert_eq!(found, Some(expected), "{vector}");
        assert_eq!(independent(salt, &attributes), expected, "{vector}");
        assert_eq!(u64::from(bucket(expected)), vector["bucket"].as_u64().unwrap(), "{vector}");
    }
}

#[test]
fn a_thousand_hosts_divide_as_recorded() {
    let vectors = vectors();
    let population = vectors["population"]["members"].as_object().unwrap();
    assert_eq!(population.len(), 4);
    let symbols = Symbols::new(["host.name"]);
    for (percent_text, count) in population {
        let cohort = percent(percent_text.parse().unwrap());
        let names = ["host.name".to_owned()];
        let cohorts = Cohorts::new(&symbols, [&cohort], 0, &names, None).unwrap();
        let members = (0..1000).filter(|number| {
            let host = format!("host-{number:03}");
            let mut slots = Slots::new(&symbols);
            slots.set(0, Some(&host));
            member(&cohorts, &slots).is_member()
        });
        assert_eq!(Some(members.count() as u64), count.as_u64(), "{percent_text} percent");
    }
}

#[test]
fn without_all_hash_attributes_there_is_no_bucket() {
    let vectors = vectors();
    for list in vectors["without_bucket"].as_array().unwrap() {
        assert_eq!(hash(0, attributes(list).into_iter()), None, "{list}");
    }
}

/// What a collector that reports `reported` is to a Rollout at `stage`.
fn judge(stages: &[Cohort], stage: u32, reported: &[(&str, &str)]) -> Membership {
    let symbols = Symbols::new(["host.name", "cluster", "instance"]);
    let names = ["instance".to_owned()];
    let cohorts = Cohorts::new(&symbols, stages, stage, &names, None).unwrap();
    let mut slots = Slots::new(&symbols);
    slots.fill(&symbols, [], reported.iter().map(|(name, value)| (*name, Some(*value))));
    member(&cohorts, &slots)
}

#[test]
fn an_enumerated_value_may_have_any_length() {
    let name = |length: usize| "h".repeat(length);
    let names: Vec<String> = [0, 9, 62, 63, 64, 200].into_iter().map(name).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let stages = [hosts("host.name", &names)];
    for length in 0..220 {
        let host = name(length);
        let admitted = judge(&stages, 0, &[("host.name", &host)]).is_member();
        assert_eq!(admitted, names.contains(&host.as_str()), "{length}");
    }
}

#[test]
fn a_cohort_is_the_union_of_its_forms() {
    let cohort = Cohort {
        matches: pairs(&[("cluster", "eu-west-1"), ("host.name", "c")]),
        percent: 47,
        ..hosts("host.name", &["a", "b", ""])
    };
    let stages = [cohort];
    let admitted = |reported: &[(&str, &str)]| judge(&stages, 0, reported).is_member();
    assert!(admitted(&[("host.name", "a")]));
    assert!(admitted(&[("host.name", "")]), "an empty value is a value to the enumerated form");
    assert!(!admitted(&[]), "a missing one is none");
    assert!(!admitted(&[("host.name", "A")]));
    assert!(admitted(&[("host.name", "c"), ("cluster", "eu-west-1")]));
    assert!(!admitted(&[("host.name", "c")]), "all pairs must match");
    let bucket_of = |instance| bucket(hash(0, [("instance", Some(instance))].into_iter()).unwrap());
    let instances: Vec<String> = (0..50).map(|number| format!("i-{number}")).collect();
    for instance in &instances {
        assert_eq!(admitted(&[("instance", instance)]), bucket_of(instance) < 4700);
    }
}

#[test]
fn stages_to_come_admit_nobody() {
    let stages = [hosts("host.name", &["a"]), percent(100)];
    let reported = [("host.name", "b"), ("instance", "1")];
    assert_eq!(judge(&stages, 0, &reported), Membership::default());
    assert_eq!(judge(&stages, 1, &reported).stage, Some(1));
    assert_eq!(judge(&stages, 1, &[("host.name", "a")]).stage, Some(0));
}

#[test]
fn who_lacks_a_hash_attribute_is_no_member_at_100_percent_and_is_told_apart() {
    let stages = [percent(100)];
    for reported in [&[][..], &[("instance", "")], &[("host.name", "a")]] {
        let membership = judge(&stages, 0, reported);
        assert_eq!(membership, Membership { stage: None, no_bucket: true }, "{reported:?}");
    }
    assert_eq!(
        judge(&stages, 0, &[("instance", "1")]),
        Membership { stage: Some(0), no_bucket: false }
    );
    let both = [Cohort { percent: 100, ..hosts("host.name", &["a"]) }];
    let by_host = judge(&both, 0, &[("host.name", "a")]);
    assert_eq!(by_host, Membership { stage: Some(0), no_bucket: false });
    let not_asked = judge(&[hosts("host.name", &["a"]), percent(100)], 0, &[]);
    assert!(!not_asked.no_bucket, "no active stage asks for a bucket");
}

proptest! {
    /// However keys and values are cut up, the hash on the stack, the streamed one and the other
    /// implementation agree.
    #[test]
    fn the_hash_does_not_depend_on_how_it_is_computed(
        list in prop::collection::vec(("[a-zé.]{0,40}", "[a-z日]{1,150}"), 1..5),
        salt in prop::option::of("[a-z]{1,300}"),
    ) {
        let list: Vec<(&str, Option<&str>)> =
            list.iter().map(|(key, value)| (key.as_str(), Some(value.as_str()))).collect();
        let found = hash(seed(salt.as_deref()), list.iter().copied());
        prop_assert_eq!(found, Some(independent(salt.as_deref(), &list)));
    }

    #[test]
    fn a_later_stage_only_widens(
        (stages, _, names, salt) in any_stages(),
        reported in prop::collection::btree_map("[abc]|host.name|region|service.name", "[12]|eu|x{1,3}", 0..6),
    ) {
        let symbols = Symbols::new(["a", "b", "c", "host.name", "region", "service.name"]);
        let mut slots = Slots::new(&symbols);
        slots.fill(&symbols, [], reported.iter().map(|(name, value)| (name.as_str(), Some(value.as_str()))));
        let mut before = Membership::default();
        for stage in 0..stages.len() as u32 {
            let cohorts = Cohorts::new(&symbols, &stages, stage, &names, salt.as_deref()).unwrap();
            let now = member(&cohorts, &slots);
            prop_assert!(!before.is_member() || now == before, "who is in stays, by the same stage");
            prop_assert!(now.stage.is_none_or(|admitting| admitting <= stage));
            before = now;
        }
    }

    #[test]
    fn a_higher_percent_holds_every_lower_one(value in "[a-z0-9-]{1,20}", low in 1..=100_u32, more in 0..=99_u32) {
        let symbols = Symbols::new(["host.name"]);
        let mut slots = Slots::new(&symbols);
        slots.set(0, Some(&value));
        let admits = |of: u32| {
            let names = ["host.name".to_owned()];
            let cohorts = Cohorts::new(&symbols, [&percent(of)], 0, &names, None).unwrap();
            member(&cohorts, &slots).is_member()
        };
        prop_assert!(!admits(low) || admits((low + more).min(100)));
        prop_assert!(admits(100));
    }
}
