//! Cohort membership, computed plainly and with an XXH3 of another crate (rollouts.md, decisions
//! 1 and 2).

use std::collections::BTreeMap;

use render::estate::{Cohort, Rollout};
use twox_hash::XxHash3_64;

/// Whether a stage up to and including the active one admits these attributes.
pub fn member(rollout: &Rollout, flat: &BTreeMap<&str, &str>) -> bool {
    let active = usize::try_from(rollout.stage).unwrap_or(usize::MAX);
    let bucket = bucket(rollout, flat);
    rollout
        .stages
        .iter()
        .take(active.saturating_add(1))
        .any(|stage| admits(&stage.cohort, bucket, flat))
}

/// 0..10,000, or `None` where a hash attribute is missing or empty.
pub fn bucket(rollout: &Rollout, flat: &BTreeMap<&str, &str>) -> Option<u64> {
    if rollout.hash_attributes.is_empty() {
        return None;
    }
    let mut input = Vec::new();
    for key in &rollout.hash_attributes {
        let value = flat.get(key.as_str()).filter(|value| !value.is_empty())?;
        input.extend_from_slice(key.as_bytes());
        input.push(0);
        input.extend_from_slice(value.as_bytes());
        input.push(0);
    }
    let hash = match &rollout.hash_salt {
        Some(salt) => XxHash3_64::oneshot_with_seed(XxHash3_64::oneshot(salt.as_bytes()), &input),
        None => XxHash3_64::oneshot(&input),
    };
    u64::try_from((u128::from(hash) * 10_000) >> 64).ok()
}

fn admits(cohort: &Cohort, bucket: Option<u64>, flat: &BTreeMap<&str, &str>) -> bool {
    let by_host = cohort.hosts.as_ref().is_some_and(|hosts| {
        flat.get(hosts.attribute.as_str())
            .is_some_and(|value| hosts.values.iter().any(|admitted| admitted == value))
    });
    let by_match = !cohort.matches.is_empty()
        && cohort
            .matches
            .iter()
            .all(|(key, value)| flat.get(key.as_str()) == Some(&value.as_str()));
    let by_percent =
        cohort.percent > 0 && bucket.is_some_and(|bucket| bucket < u64::from(cohort.percent) * 100);
    by_host || by_match || by_percent
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use render::estate::{Binding, Halt, Hosts, Located, Name, Stage};
    use render::yaml::Pos;

    use super::*;

    #[test]
    fn buckets_are_those_of_the_specification() {
        let check = |keys: &[&str], values: &[&str], salt: Option<&str>, expected: u64| {
            let mut rollout = rollout(0, vec![]);
            rollout.hash_attributes = keys.iter().map(|key| (*key).to_owned()).collect();
            rollout.hash_salt = salt.map(str::to_owned);
            let flat = keys.iter().copied().zip(values.iter().copied()).collect();
            assert_eq!(bucket(&rollout, &flat), Some(expected), "{keys:?} {values:?}");
        };
        check(&["host.name"], &["bridge-a1"], None, 4658);
        check(&["host.name"], &["bridge-a2"], None, 9791);
        check(&["service.instance.id"], &["bridge-a1"], None, 9156);
        check(&["host.name", "region"], &["h", "eu"], None, 1148);
        check(&["region", "host.name"], &["eu", "h"], None, 1769);
        check(&["k"], &["é日本"], None, 5518);
        check(&["host.name"], &["bridge-a1"], Some("2026-q4"), 4407);
    }

    #[test]
    fn a_thousand_hosts_fall_as_the_specification_counts() {
        let below = |percent| {
            let rollout = rollout(0, vec![Cohort { percent, ..Cohort::default() }]);
            let hosts: Vec<_> = (0..1000).map(|n| format!("host-{n:03}")).collect();
            hosts
                .iter()
                .filter(|host| member(&rollout, &BTreeMap::from([("host.name", host.as_str())])))
                .count()
        };
        assert_eq!((below(5), below(25), below(50), below(100)), (54, 261, 512, 1000));
    }

    #[test]
    fn without_its_hash_attribute_nobody_is_a_fractional_member() {
        let rollout = rollout(0, vec![Cohort { percent: 100, ..Cohort::default() }]);
        assert!(!member(&rollout, &BTreeMap::new()));
        assert!(!member(&rollout, &BTreeMap::from([("host.name", "")])));
    }

    #[test]
    fn stages_accumulate_and_later_ones_wait() {
        let hosts = Hosts { attribute: "host.name".to_owned(), values: vec!["a".to_owned()] };
        let stages = vec![
            Cohort { hosts: Some(hosts), ..Cohort::default() },
            Cohort {
                matches: BTreeMap::from([("zone".to_owned(), "eu".to_owned())]),
                ..Cohort::default()
            },
        ];
        let (a, eu) = (BTreeMap::from([("host.name", "a")]), BTreeMap::from([("zone", "eu")]));
        assert!(member(&rollout(0, stages.clone()), &a));
        assert!(!member(&rollout(0, stages.clone()), &eu));
        assert!(member(&rollout(1, stages.clone()), &a));
        assert!(member(&rollout(1, stages), &eu));
    }

    fn rollout(stage: u32, cohorts: Vec<Cohort>) -> Rollout {
        let at = Pos::default();
        let binding = |name: &str| Located {
            value: Binding { blueprint: Name::new("t", name), version: 1 },
            at,
        };
        Rollout {
            id: Name::new("t", "r"),
            owner: Located { value: "o".to_owned(), at },
            tier: Located { value: Name::new("t", "tier"), at },
            from: binding("from"),
            to: binding("to"),
            stage,
            hash_attributes: vec!["host.name".to_owned()],
            stages: cohorts
                .into_iter()
                .map(|cohort| Stage { cohort, soak: Duration::ZERO, at })
                .collect(),
            hash_salt: None,
            identity: Vec::new(),
            hold: false,
            halt: Halt::default(),
            file: "r.yaml".into(),
        }
    }
}
