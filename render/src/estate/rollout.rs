//! `teams/<team>/rollouts/<name>.yaml` (estate.md 1.10 and decision 10).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::decode::{Decoder, Fields, KeyPath, shown};
use super::duration;
use super::model::{Binding, Cohort, Halt, Hosts, Located, Name, Rollout, Stage};
use super::names;
use super::object::Object;
use super::report::Report;
use super::tier::pair_map;
use crate::yaml::Node;

const KEYS: [&str; 12] = [
    "name",
    "owner",
    "tier",
    "from",
    "to",
    "stage",
    "hash_attributes",
    "stages",
    "hash_salt",
    "identity",
    "hold",
    "halt",
];

/// A Rollout as far as it could be read: what is compared with other objects.
#[derive(Debug)]
pub(crate) struct RolloutDraft {
    /// Empty when missing.
    pub(crate) owner: Located<String>,
    /// The Tier it names, if it names one.
    pub(crate) tier: Option<Located<Name>>,
    /// The binding it moves from, if it is one.
    pub(crate) from: Option<Located<Binding>>,
    /// Its file.
    pub(crate) file: Arc<str>,
    /// The whole, unless something was reported.
    pub(crate) rollout: Option<Rollout>,
}

pub(crate) fn read(
    object: &Object<'_>,
    node: &Node,
    decoder: &mut Decoder,
    report: &mut Report,
) -> RolloutDraft {
    let before = report.len();
    let fields = decoder.document(node, &KEYS);
    let owner = report.name_and_owner(object, &fields, decoder);

    let mut reader = Reader { object, decoder, report };
    let tier = reader.tier(&fields);
    let from = reader.binding(&fields, "from");
    let to = reader.binding(&fields, "to");
    if let (Some(from), Some(to)) = (&from, &to)
        && from.value.blueprint == to.value.blueprint
    {
        let text = format!("binds {} on both sides", from.value.blueprint);
        let help = "author the candidate as a sibling Blueprint and name it in `to:`";
        reader.report.about(object, to.at, fields.path_of("to"), &text, help);
    }
    let stages = reader.stages(&fields);
    let stage = reader.active_stage(&fields, stages.len());
    let hash_attributes = reader.attributes(&fields, "hash_attributes");
    let fractional = stages.iter().position(|stage| stage.cohort.percent > 0);
    if let Some(index) = fractional
        && fields.get("hash_attributes").is_none_or(is_empty_list)
    {
        let text = format!("uses percent in stages[{index}] but has no hash_attributes");
        let help = "add `hash_attributes: [service.instance.id]`, or list hosts";
        let at = fields.at("hash_attributes");
        reader.report.about(object, at, fields.path_of("hash_attributes"), &text, help);
    }
    let hash_salt = reader.hash_salt(&fields);
    let identity = reader.attributes(&fields, "identity");
    let hold = reader.decoder.boolean(&fields, "hold");
    let halt = reader.halt(&fields);

    let rollout = match (&tier, &from, to) {
        (Some(tier), Some(from), Some(to)) if report.len() == before => Some(Rollout {
            id: object.id.clone(),
            owner: owner.clone(),
            tier: tier.clone(),
            from: from.clone(),
            to,
            stage,
            hash_attributes,
            stages,
            hash_salt,
            identity,
            hold,
            halt,
            file: Arc::clone(&object.file),
        }),
        _ => None,
    };
    RolloutDraft { owner, tier, from, file: Arc::clone(&object.file), rollout }
}

struct Reader<'r, 't> {
    object: &'r Object<'t>,
    decoder: &'r mut Decoder,
    report: &'r mut Report,
}

impl Reader<'_, '_> {
    fn tier(&mut self, fields: &Fields<'_, '_>) -> Option<Located<Name>> {
        let tier = self.decoder.string(fields, "tier");
        if !self.report.require(self.object, fields, "tier", &tier) {
            return None;
        }
        match names::qualified(&tier.value) {
            Ok(value) => Some(Located { value, at: tier.at }),
            Err(fault) => {
                let text = format!("has a bad tier: {fault}");
                let help = "name the Tier as team/name";
                self.report.about(self.object, tier.at, fields.path_of("tier"), &text, help);
                None
            }
        }
    }

    fn binding(&mut self, fields: &Fields<'_, '_>, key: &str) -> Option<Located<Binding>> {
        let binding = self.decoder.string(fields, key);
        if !self.report.require(self.object, fields, key, &binding) {
            return None;
        }
        match names::binding(&binding.value) {
            Ok(value) => Some(Located { value, at: binding.at }),
            Err(fault) => {
                let text = format!("has a bad binding in {key}: {fault}");
                let help = "bind a Blueprint as team/name@N";
                self.report.about(self.object, binding.at, fields.path_of(key), &text, help);
                None
            }
        }
    }

    /// The index of the active stage; checked against the stages only where there are any.
    fn active_stage(&mut self, fields: &Fields<'_, '_>, stages: usize) -> u32 {
        let Some(Located { value, at }) = self.decoder.integer(fields, "stage") else { return 0 };
        let index = u32::try_from(value).ok().filter(|&index| (index as usize) < stages);
        if index.is_none() && stages > 0 {
            let text = format!(
                "declares stage {value} of {stages}. The stage is a zero-based index into the \
                 stages list. To complete the rollout, delete the file instead of counting past \
                 the end."
            );
            let help = match stages {
                1 => "write 0".to_owned(),
                _ => format!("write a number from 0 to {}", stages - 1),
            };
            self.report.about(self.object, at, fields.path_of("stage"), &text, &help);
        }
        index.unwrap_or(0)
    }

    fn stages(&mut self, fields: &Fields<'_, '_>) -> Vec<Stage> {
        let nodes = self.decoder.list(fields, "stages");
        if nodes.is_empty() {
            let at = fields.at("stages");
            let help = "add at least one stage with a cohort and a soak";
            self.report.about(self.object, at, fields.path_of("stages"), "has no stages", help);
        }
        let list = KeyPath::Key(&fields.path, "stages");
        let stages = nodes.iter().enumerate();
        stages.map(|(index, node)| self.stage(node, &list, index)).collect()
    }

    fn stage(&mut self, node: &Node, list: &KeyPath<'_>, index: usize) -> Stage {
        let path = KeyPath::Index(list, index);
        let fields = self.decoder.fields(node, path, &["cohort", "soak"]);
        let cohort_path = KeyPath::Key(&path, "cohort");
        let nothing = Node::null(fields.at);
        let cohort_node = fields.get("cohort").unwrap_or(&nothing);
        let cohort = self.decoder.fields(cohort_node, cohort_path, &["hosts", "match", "percent"]);
        let hosts = cohort.get("hosts").map(|node| self.hosts(node, &cohort_path));
        let pairs = self.decoder.string_map(&cohort, "match");
        let has_match = !pairs.is_empty();
        let matches = pair_map(self.object, self.report, &cohort.path_of("match"), pairs);
        let percent = self.percent(&cohort);
        let declares_percent = percent != Some(0);
        if hosts.is_none() && !has_match && !declares_percent {
            let text = format!("has an empty cohort (stages[{index}])");
            let help = "admit somebody by hosts, match or percent";
            self.report.about(self.object, cohort.at, cohort_path.to_string(), &text, help);
        }
        let soak = self.duration(&fields, "soak").unwrap_or(Duration::ZERO);
        let cohort = Cohort { hosts, matches, percent: percent.unwrap_or(0) };
        Stage { cohort, soak, at: node.at }
    }

    fn hosts(&mut self, node: &Node, cohort: &KeyPath<'_>) -> Hosts {
        let path = KeyPath::Key(cohort, "hosts");
        let fields = self.decoder.fields(node, path, &["attribute", "values"]);
        let attribute = self.decoder.string(&fields, "attribute");
        if attribute.value.is_empty() {
            let text = format!("lists hosts without an attribute ({path})");
            let help = "name the attribute, such as `attribute: host.name`";
            let key = fields.path_of("attribute");
            self.report.about(self.object, attribute.at, key, &text, help);
        }
        let values = self.decoder.strings(&fields, "values");
        if values.is_empty() {
            let text = format!("lists hosts without values ({path})");
            let key = fields.path_of("values");
            let help = "list at least one value, or drop `hosts:`";
            self.report.about(self.object, fields.at("values"), key, &text, help);
        }
        if let Some(empty) = values.iter().find(|value| value.value.is_empty()) {
            let text = format!("lists an empty value ({path})");
            let key = fields.path_of("values");
            self.report.about(self.object, empty.at, key, &text, "drop the empty value");
        }
        let values = values.into_iter().map(|value| value.value).collect();
        Hosts { attribute: attribute.value, values }
    }

    /// 0 when absent, `None` when it was reported.
    fn percent(&mut self, cohort: &Fields<'_, '_>) -> Option<u32> {
        if cohort.get("percent").is_none() {
            return Some(0);
        }
        let Located { value, at } = self.decoder.integer(cohort, "percent")?;
        let percent = u32::try_from(value).ok().filter(|&percent| percent <= 100);
        if percent.is_none() {
            let text = format!("admits {value} percent ({})", cohort.path);
            let help = "write a whole number from 1 to 100";
            self.report.about(self.object, at, cohort.path_of("percent"), &text, help);
        }
        percent
    }

    /// A list of attributes; the first that is empty or repeated is reported.
    fn attributes(&mut self, fields: &Fields<'_, '_>, key: &str) -> Vec<String> {
        let attributes = self.decoder.strings(fields, key);
        let mut seen = BTreeSet::new();
        let fault = attributes.iter().enumerate().find_map(|(index, attribute)| {
            if attribute.value.is_empty() {
                Some((index, "an empty attribute".to_owned()))
            } else if !seen.insert(&attribute.value) {
                Some((index, format!("{} twice", shown(&attribute.value))))
            } else {
                None
            }
        });
        if let Some((index, fault)) = fault {
            let text = format!("has {fault} in {key}");
            let path = format!("{}[{index}]", fields.path_of(key));
            self.report.about(self.object, attributes[index].at, path, &text, "drop it");
        }
        attributes.into_iter().map(|attribute| attribute.value).collect()
    }

    fn hash_salt(&mut self, fields: &Fields<'_, '_>) -> Option<String> {
        fields.get("hash_salt")?;
        let salt = self.decoder.string(fields, "hash_salt");
        if salt.value.is_empty() {
            let help = "write a salt, or drop the field to hash without one";
            let path = fields.path_of("hash_salt");
            self.report.about(self.object, salt.at, path, "has an empty hash_salt", help);
        }
        Some(salt.value)
    }

    fn halt(&mut self, fields: &Fields<'_, '_>) -> Halt {
        let mut halt = Halt::default();
        let Some(node) = fields.get("halt") else { return halt };
        let keys = ["abort_at_percent", "dark_after", "min_seen", "retry_failed"];
        let block = self.decoder.fields(node, KeyPath::Key(&fields.path, "halt"), &keys);
        if let Some(percent) = self.number(&block, "abort_at_percent", 1, 100) {
            halt.abort_at_percent = percent;
        }
        if let Some(dark_after) = self.duration(&block, "dark_after") {
            halt.dark_after = dark_after;
            if dark_after.is_zero() {
                let text = "has halt.dark_after 0, which would halt every member at once";
                let path = block.path_of("dark_after");
                let help = "write how long a member may be silent, such as 90s";
                self.report.about(self.object, block.at("dark_after"), path, text, help);
            }
        }
        if let Some(least) = self.number(&block, "min_seen", 0, u32::MAX) {
            halt.min_seen = least;
        }
        if let Some(retries) = self.number(&block, "retry_failed", 0, u32::MAX) {
            halt.retry_failed = retries;
        }
        halt
    }

    fn number(&mut self, block: &Fields<'_, '_>, key: &str, min: u32, max: u32) -> Option<u32> {
        let Located { value, at } = self.decoder.integer(block, key)?;
        let number = u32::try_from(value).ok().filter(|number| (min..=max).contains(number));
        if number.is_none() {
            let path = block.path_of(key);
            let text = format!("has {path} {value}");
            let help = format!("write a whole number from {min} to {max}");
            self.report.about(self.object, at, path, &text, &help);
        }
        number
    }

    /// `None` when absent or reported. Wrong durations are problems of form, as in the reference.
    fn duration(&mut self, fields: &Fields<'_, '_>, key: &str) -> Option<Duration> {
        let node = fields.get(key)?;
        let path = KeyPath::Key(&fields.path, key);
        let Some(scalar) = node.as_scalar() else {
            self.decoder.wrong_type(node, path, "a duration");
            return None;
        };
        match duration::parse(&scalar.text) {
            Ok(duration) => Some(duration),
            Err(fault) => {
                let text = format!("expected a duration, {} {fault}", shown(&scalar.text));
                let help = "write it with units h, m, s, ms, us or ns, such as 1h30m";
                self.decoder.problem(Some(node.at), path.to_string(), &text, help.to_owned());
                None
            }
        }
    }
}

fn is_empty_list(node: &Node) -> bool {
    matches!(&node.value, crate::yaml::Value::Sequence(items) if items.is_empty())
}
