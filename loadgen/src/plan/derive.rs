//! A plan out of an estate, for those who bring none.

use std::collections::BTreeMap;

use render::estate::Rollout;

use super::{Group, Size, Source, Template};
use crate::model::{Model, Value};

/// Shares: of each Tier's collectors, those that lack its hash attributes, those that a Cohort's
/// `match` admits, and those that match nothing.
const TIER: f64 = 10.0;
const LACKING: f64 = 1.0;
const MATCHED: f64 = 2.0;
const STRAY: f64 = 2.0;

pub(super) fn groups(model: &Model) -> Vec<Group> {
    let mut groups = Vec::new();
    for (id, selector, rollout) in model.tiers() {
        let stem = id.replace('/', "-");
        let mut attributes = common(&stem);
        if let Some(rollout) = rollout {
            name_hosts(&mut attributes, rollout, &stem);
        }
        // The selector last: nothing may move a collector off its Tier.
        let with_selector = |mut attributes: BTreeMap<String, Source>| {
            for (key, value) in selector {
                attributes.insert(key.clone(), fixed(value));
            }
            attributes
        };
        groups.push(group(id.to_owned(), TIER, with_selector(attributes.clone())));
        let Some(rollout) = rollout else { continue };
        let stages = rollout.stages.iter().map(|stage| &stage.cohort);
        for (number, cohort) in stages.enumerate().filter(|(_, cohort)| !cohort.matches.is_empty())
        {
            let mut admitted = attributes.clone();
            for (key, value) in &cohort.matches {
                admitted.insert(key.clone(), fixed(value));
            }
            let name = format!("{id}, admitted by stages[{number}]");
            groups.push(group(name, MATCHED, with_selector(admitted)));
        }
        if !rollout.hash_attributes.is_empty()
            && rollout.hash_attributes.iter().any(|key| !selector.contains_key(key))
        {
            attributes.retain(|key, _| !rollout.hash_attributes.contains(key));
            let name = format!("{id}, without hash attributes");
            groups.push(group(name, LACKING, with_selector(attributes)));
        }
    }
    let mut stray = common("stray");
    stray.insert("service.name".to_owned(), fixed("stray"));
    groups.push(group("unmatched".to_owned(), STRAY, stray));
    groups
}

/// What a Supervisor's collector says about itself beside what selects it.
fn common(stem: &str) -> BTreeMap<String, Source> {
    let numbered = format!("{stem}-{{n}}");
    BTreeMap::from([
        ("service.name".to_owned(), fixed("otelcol")),
        ("service.version".to_owned(), fixed("0.158.0")),
        ("service.instance.id".to_owned(), template(&[&numbered])),
        ("host.name".to_owned(), template(&[&numbered])),
        ("host.arch".to_owned(), fixed("amd64")),
        ("os.type".to_owned(), fixed("linux")),
        ("process.pid".to_owned(), Source::Fixed(Value::Integer(1))),
    ])
}

/// The first collectors are those that enumerated Cohorts name; hash attributes vary.
fn name_hosts(attributes: &mut BTreeMap<String, Source>, rollout: &Rollout, stem: &str) {
    let numbered = format!("{stem}-{{n}}");
    for key in &rollout.hash_attributes {
        attributes.insert(key.clone(), template(&[&numbered]));
    }
    let mut named: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for hosts in rollout.stages.iter().filter_map(|stage| stage.cohort.hosts.as_ref()) {
        named.entry(&hosts.attribute).or_default().extend(hosts.values.iter().map(String::as_str));
    }
    for (attribute, mut values) in named {
        values.push(&numbered);
        attributes.insert(attribute.to_owned(), template(&values));
    }
}

fn group(name: String, weight: f64, attributes: BTreeMap<String, Source>) -> Group {
    let (identifying, non_identifying) =
        attributes.into_iter().partition(|(key, _)| key.starts_with("service."));
    Group {
        name,
        size: Size::Weight(weight),
        claim: None,
        report_only: false,
        identifying,
        non_identifying,
    }
}

fn fixed(text: &str) -> Source {
    Source::Fixed(Value::Text(text.to_owned()))
}

/// Hosts that an estate names have no placeholder in them; one with braces stands for itself.
fn template(texts: &[&str]) -> Source {
    Source::Text(texts.iter().map(|text| Template::parse_or_literal(text)).collect())
}
