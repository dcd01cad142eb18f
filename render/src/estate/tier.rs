//! `teams/<team>/tiers/<name>.yaml` (estate.md 1.8).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::decode::{Decoder, KeyPath, shown};
use super::model::{Binding, Hop, Located, Serving, Tier};
use super::names;
use super::object::Object;
use super::report::Report;
use crate::yaml::Node;

const KEYS: [&str; 8] =
    ["name", "owner", "environment", "blueprint", "selector", "min_expected", "serving", "hops"];

/// A Tier as far as it could be read: what Rollouts are compared with also when the rest is wrong.
#[derive(Debug)]
pub(crate) struct TierDraft {
    /// Empty when missing.
    pub(crate) owner: String,
    /// The binding, if it is one.
    pub(crate) blueprint: Option<Binding>,
    /// The whole, unless something was reported.
    pub(crate) tier: Option<Tier>,
}

pub(crate) fn read(
    object: &Object<'_>,
    node: &Node,
    decoder: &mut Decoder,
    report: &mut Report,
) -> TierDraft {
    let before = report.len();
    let fields = decoder.document(node, &KEYS);
    let owner = report.name_and_owner(object, &fields, decoder);
    let environment = decoder.string(&fields, "environment");
    report.require(object, &fields, "environment", &environment);
    let blueprint = decoder.string(&fields, "blueprint");
    let blueprint = if report.require(object, &fields, "blueprint", &blueprint) {
        let read = names::binding(&blueprint.value).map_err(|fault| {
            let text = format!("has a bad binding: {fault}");
            let help = "bind a Blueprint as team/name@N";
            report.about(object, blueprint.at, fields.path_of("blueprint"), &text, help);
        });
        read.ok().map(|value| Located { value, at: blueprint.at })
    } else {
        None
    };

    let pairs = decoder.string_map(&fields, "selector");
    let has_selector = !pairs.is_empty() || decoder.is_in_doubt(&fields.path_of("selector"));
    let selector_at = fields.get("selector").map(|node| node.at);
    let selector = pair_map(object, report, &fields.path_of("selector"), pairs);

    let min_expected = decoder.integer(&fields, "min_expected");
    let mut least = 0;
    if let Some(Located { value, at }) = min_expected {
        let path = || fields.path_of("min_expected");
        match u32::try_from(value) {
            Ok(value) => least = value,
            Err(_) => {
                let text = format!("has min_expected {value}");
                let help = format!("write a number from 0 to {}", u32::MAX);
                report.about(object, at, path(), &text, &help);
            }
        }
        if least > 0 && !has_selector {
            let text = "expects collectors but has no selector";
            report.about(object, at, path(), text, "add `selector:`, or drop min_expected");
        }
    }

    let serving = fields.get("serving").map(|node| {
        let path = KeyPath::Key(&fields.path, "serving");
        let serving = decoder.fields(node, path, &["endpoint"]);
        let endpoint = decoder.string(&serving, "endpoint");
        if endpoint.value.is_empty() {
            let text = "is served but has no serving.endpoint";
            let help = "add the OpAMP endpoint of the gateway";
            report.about(object, endpoint.at, serving.path_of("endpoint"), text, help);
        }
        if !has_selector {
            let text = "is served but has no selector";
            let help = "add `selector:`, or no collector can match the Tier";
            report.about(object, node.at, path.to_string(), text, help);
        }
        Serving { endpoint: endpoint.value }
    });

    let list = KeyPath::Key(&fields.path, "hops");
    let mut hops = Vec::new();
    for (index, node) in decoder.list(&fields, "hops").iter().enumerate() {
        let hop = decoder.fields(node, KeyPath::Index(&list, index), &["from", "trusted"]);
        let from = decoder.string(&hop, "from");
        if from.value.is_empty() {
            let text = format!("has a hop without from (hops[{index}])");
            report.about(object, from.at, hop.path_of("from"), &text, "say who sends");
        }
        hops.push(Hop { from: from.value, trusted: decoder.boolean(&hop, "trusted") });
    }

    TierDraft {
        owner: owner.value.clone(),
        blueprint: blueprint.as_ref().map(|blueprint| blueprint.value.clone()),
        tier: blueprint.filter(|_| report.len() == before).map(|blueprint| Tier {
            id: object.id.clone(),
            owner,
            environment,
            blueprint,
            selector,
            selector_at,
            min_expected: least,
            serving,
            hops,
            file: Arc::clone(&object.file),
        }),
    }
}

/// Attribute to value, both sides non-empty.
pub(crate) fn pair_map(
    object: &Object<'_>,
    report: &mut Report,
    path: &str,
    pairs: Vec<(Located<String>, Located<String>)>,
) -> BTreeMap<String, String> {
    let mut map = BTreeMap::new();
    for (key, value) in pairs {
        if key.value.is_empty() || value.value.is_empty() {
            let (side, at) =
                if key.value.is_empty() { ("attribute", key.at) } else { ("value", value.at) };
            let text = format!(
                "has a pair with an empty {side} in {path}: {}: {}",
                shown(&key.value),
                shown(&value.value)
            );
            let help = "give both an attribute and a value";
            report.about(object, at, path.to_owned(), &text, help);
        } else {
            map.insert(key.value, value.value);
        }
    }
    map
}
