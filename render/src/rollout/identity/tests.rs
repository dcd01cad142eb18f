//! Golden vectors, and the rule restated plainly over another implementation of XXH3.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;

use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::rollout::tests::{demo, rollout_of};

type Pairs = Vec<(String, Option<String>)>;

struct Case {
    identifying: Pairs,
    other: BTreeMap<String, String>,
    named: Vec<String>,
    hash_attributes: Vec<String>,
    uid: [u8; 16],
}

impl Case {
    fn every(&self) -> BTreeMap<&str, &str> {
        let strings = self.identifying.iter().filter_map(|(k, v)| Some((&**k, v.as_deref()?)));
        self.other.iter().map(|(k, v)| (&**k, &**v)).chain(strings).collect()
    }

    fn fast(&self) -> Identity {
        static DEMO: LazyLock<ServedRollout> = LazyLock::new(|| rollout_of(&demo()));
        let rollout = ServedRollout {
            identity: self.named.clone(),
            hash_attributes: self.hash_attributes.clone(),
            ..DEMO.clone()
        };
        let every = self.every();
        identity(&rollout, pairs(&self.identifying), |name| every.get(name).copied(), &self.uid)
    }

    /// Decision 5 in its plainest form.
    fn slow(&self) -> Identity {
        let every = self.every();
        let all = |names: &[String]| -> Option<BTreeMap<String, String>> {
            let found = names.iter().filter_map(|name| {
                let value = every.get(&**name).filter(|value| !value.is_empty())?;
                Some((name.clone(), (*value).to_owned()))
            });
            let found: Vec<_> = found.collect();
            (!names.is_empty() && found.len() == names.len()).then(|| found.into_iter().collect())
        };
        let reported: BTreeMap<String, String> = self
            .identifying
            .iter()
            .filter_map(|(key, value)| Some((key.clone(), value.clone()?)))
            .filter(|(key, _)| key != "service.version")
            .collect();
        if self.named.is_empty() && !reported.is_empty() {
            return encode(1, &reported);
        }
        if let Some(named) = all(&self.named) {
            return encode(1, &named);
        }
        if let Some(hashed) = all(&self.hash_attributes) {
            return encode(2, &hashed);
        }
        let mut bytes = vec![3];
        bytes.extend_from_slice(&self.uid);
        Identity(twox_hash::XxHash3_128::oneshot(&bytes))
    }
}

fn pairs(pairs: &Pairs) -> impl Iterator<Item = (&str, Option<&str>)> + Clone {
    pairs.iter().map(|(key, value)| (key.as_str(), value.as_deref()))
}

fn encode(tag: u8, attributes: &BTreeMap<String, String>) -> Identity {
    let mut bytes = vec![tag];
    for (key, value) in attributes {
        bytes.extend_from_slice(key.as_bytes());
        bytes.push(0);
        bytes.extend_from_slice(value.as_bytes());
        bytes.push(0);
    }
    Identity(twox_hash::XxHash3_128::oneshot(&bytes))
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

fn case(vector: &Value) -> Case {
    let identifying = vector["identifying"].as_array().unwrap().iter().map(|pair| {
        (pair[0].as_str().unwrap().to_owned(), pair[1].as_str().map(ToOwned::to_owned))
    });
    let uid = u128::from_str_radix(vector["uid"].as_str().unwrap(), 16).unwrap();
    Case {
        identifying: identifying.collect(),
        other: serde_json::from_value(vector["other"].clone()).unwrap(),
        named: texts(&vector["named"]),
        hash_attributes: texts(&vector["hash_attributes"]),
        uid: uid.to_be_bytes(),
    }
}

#[test]
fn the_identity_does_not_depend_on_how_much_is_hashed_at_once() {
    for len in [0, 1, 239, 240, 241, AT_ONCE_BYTES - 7, AT_ONCE_BYTES - 6, AT_ONCE_BYTES, 5_000] {
        let value = Some("v".repeat(len));
        let identifying = vec![("k1".to_owned(), value), ("k".to_owned(), Some(String::new()))];
        let case = Case {
            identifying,
            other: BTreeMap::new(),
            named: vec![],
            hash_attributes: vec![],
            uid: [7; 16],
        };
        assert_eq!(case.fast(), case.slow(), "{len}");
    }
}

#[test]
fn the_golden_vectors_hold_in_two_implementations() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/vectors/identity.json");
    let vectors: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let vectors = vectors["vectors"].as_array().unwrap();
    assert!(vectors.len() >= 18);
    for vector in vectors {
        let case = case(vector);
        let expected = vector["identity"].as_str().unwrap();
        assert_eq!(case.fast().to_string(), expected, "{vector}");
        assert_eq!(case.slow().to_string(), expected, "{vector}");
        if vector["tag"] == 1 && case.named.is_empty() {
            assert_eq!(plain(pairs(&case.identifying), &case.uid).to_string(), expected);
        }
    }
}

#[test]
fn without_a_rollout_the_uid_is_all_there_is_besides_attributes() {
    let version = [("service.version", Some("1"))];
    let one = plain(version.into_iter(), &[1; 16]);
    assert_ne!(one, plain(version.into_iter(), &[2; 16]));
    assert_eq!(one, plain([].into_iter(), &[1; 16]));
}

proptest! {
    #[test]
    fn the_rule_equals_its_plain_form(
        identifying in prop::collection::vec(("[ab]|service.version|host", prop::option::of("[xy]{0,2}")), 0..6),
        more in prop_oneof![Just(0_usize), 20..50_usize],
        other in prop::collection::btree_map("[abc]|host", "[xy]{0,2}", 0..4),
        named in prop::collection::vec("[abc]|host|service.version", 0..3),
        hash_attributes in prop::collection::vec("[abc]|host", 0..3),
        uid: [u8; 16],
    ) {
        let many = (0..more).map(|n| (format!("{}", n * 7 % 31), Some(format!("{n}"))));
        let identifying = identifying.into_iter().chain(many).collect();
        let case = Case { identifying, other, named, hash_attributes, uid };
        prop_assert_eq!(case.fast(), case.slow());
    }
}
