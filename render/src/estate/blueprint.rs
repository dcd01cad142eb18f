//! `teams/<team>/blueprints/<name>.yaml` (estate.md 1.7), and what Blueprints and shared
//! Components say about each other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::component;
use super::decode::{Decoder, Fields, KeyPath, shown};
use super::model::{
    Blueprint, Blueprints, Class, Component, Lane, LaneEntry, Name, Reference, Satisfies, Signal,
};
use super::names;
use super::object::{Object, read_all};
use super::report::Report;
use crate::finding::{Finding, FindingKind, Subject};
use crate::problem::Refusal;
use crate::tree::Tree;
use crate::yaml::{Node, Pos};

const HEADER: &str = "invalid blueprint sources:";

const KEYS: [&str; 7] =
    ["name", "version", "owner", "satisfies", "components", "pipelines", "extensions"];

/// Reads every shared Component and Blueprint (estate.md 1.6, 1.7), with the `reference` findings
/// between them.
///
/// # Errors
///
/// All problems of all files, in byte order of the paths, Components first; of one file those of
/// form before those of meaning. An estate with neither kind is refused.
pub fn load_blueprints(tree: &Tree) -> Result<Blueprints, Refusal> {
    let mut report = Report::default();
    let components = read_all(tree, "components", &mut report, component::read);
    let blueprints = read_all(tree, "blueprints", &mut report, read);
    if components.is_empty() && blueprints.is_empty() {
        let teams = tree.display("teams");
        let text = format!("{teams}: no Component and no Blueprint in any team");
        let help = "give the root of an estate, the folder that holds teams/";
        report.add(text, &teams, None, String::new(), help);
    }
    let components = components.into_iter().filter_map(|(id, c)| Some((id, c??))).collect();
    let blueprints = blueprints.into_iter().filter_map(|(id, b)| Some((id, b??))).collect();
    let findings = reference_findings(&components, &blueprints);
    report.finish(HEADER, Blueprints { components, blueprints, findings })
}

fn read(
    object: &Object<'_>,
    node: &Node,
    decoder: &mut Decoder,
    report: &mut Report,
) -> Option<Blueprint> {
    let before = report.len();
    let fields = decoder.document(node, &KEYS);
    let name = decoder.string(&fields, "name");
    if report.require(object, &fields, "name", &name) {
        report.own_name(object, &fields, &name);
    }
    let version = component::version(object, &fields, "", decoder, report);
    let owner = decoder.string(&fields, "owner");
    report.require(object, &fields, "owner", &owner);

    let mut reader = Reader {
        object,
        decoder,
        report,
        used: BTreeSet::new(),
        wires: false,
        locals_are_read: true,
    };
    let satisfies = reader.satisfies(&fields);
    let components = reader.components(&fields);
    reader.locals_are_read = !reader.decoder.is_in_doubt("components");
    let lanes = reader.lanes(&fields, &components);
    let extensions = reader.entries(&fields, "extensions", &components);
    // An entry that could not be read may be what uses a Component.
    let in_doubt = |key| reader.decoder.is_in_doubt(key);
    let entries_are_read = !in_doubt("pipelines") && !in_doubt("extensions");
    if !reader.wires && entries_are_read {
        let text = "wires nothing: no lane has an entry, and there are no extensions";
        let help = "add a lane under `pipelines:`, or `extensions:`";
        reader.report.about(object, fields.at, "pipelines".to_owned(), text, help);
    }
    if entries_are_read {
        reader.unused(&components);
    }

    let components: Option<BTreeMap<_, _>> =
        components.into_iter().map(|(name, local)| Some((name, local.component?))).collect();
    let (version, components) = (version?, components?);
    (report.len() == before).then(|| Blueprint {
        id: object.id.clone(),
        version,
        owner: owner.value,
        satisfies,
        components,
        lanes,
        extensions,
        file: Arc::clone(&object.file),
    })
}

struct Local {
    at: Pos,
    path: String,
    /// `None` if something was reported about it.
    component: Option<Component>,
}

struct Reader<'r, 't> {
    object: &'r Object<'t>,
    decoder: &'r mut Decoder,
    report: &'r mut Report,
    /// Local Components that some entry points at.
    used: BTreeSet<String>,
    /// Whether there is any entry, good or not.
    wires: bool,
    /// Whether every local Component's name could be read.
    locals_are_read: bool,
}

impl Reader<'_, '_> {
    fn satisfies(&mut self, fields: &Fields<'_, '_>) -> Vec<Satisfies> {
        let mut seen = BTreeSet::new();
        let mut all = Vec::new();
        for (index, entry) in self.decoder.strings(fields, "satisfies").into_iter().enumerate() {
            let path = format!("{}[{index}]", fields.path_of("satisfies"));
            let read = match entry.value.rsplit_once('@') {
                Some(("", _)) => Err(format!("{} names no requirement", shown(&entry.value))),
                Some((requirement, stamp)) => names::version(&entry.value, stamp)
                    .map(|version| Satisfies { requirement: requirement.to_owned(), version }),
                None => Err(format!("{} has no version stamp", shown(&entry.value))),
            };
            match read {
                Ok(claim) => {
                    if !seen.insert(claim.requirement.clone()) {
                        let text = format!("satisfies {} twice", shown(&claim.requirement));
                        self.report.about(
                            self.object,
                            entry.at,
                            path,
                            &text,
                            "keep one of the two",
                        );
                    }
                    all.push(claim);
                }
                Err(fault) => {
                    let help = "write <requirement-id>@<version>".to_owned();
                    self.decoder.problem(Some(entry.at), path, &fault, help);
                }
            }
        }
        all
    }

    fn components(&mut self, fields: &Fields<'_, '_>) -> BTreeMap<String, Local> {
        let list = KeyPath::Key(&fields.path, "components");
        let mut locals: BTreeMap<String, Local> = BTreeMap::new();
        for (index, node) in self.decoder.list(fields, "components").iter().enumerate() {
            let path = KeyPath::Index(&list, index);
            let fields = self.decoder.fields(node, path, &component::KEYS);
            let name = self.decoder.string(&fields, "name");
            let text = name.value.clone();
            let whose = match text.as_str() {
                "" => format!("{path} "),
                name => format!("component {} ", shown(name)),
            };
            let before = self.report.len();
            let mut about = |at, key: &str, text: &str, help: &str| {
                let text = format!("{whose}{text}");
                self.report.about(self.object, at, fields.path_of(key), &text, help);
            };
            if text.is_empty() {
                about(name.at, "name", "has no name", "add `name:`");
            } else if let Some(fault) = names::fault(&text) {
                about(name.at, "name", fault, "rename the Component");
            }
            if fields.get("owner").is_some() {
                let help = "drop `owner:`; the Blueprint's owner owns what is local to it";
                about(fields.at("owner"), "owner", "is local and has an owner", help);
            }
            if locals.contains_key(&text) && !text.is_empty() {
                about(name.at, "name", "is declared twice", "keep one of the two");
                continue;
            }
            let at = name.at;
            let component = component::body(
                self.object,
                &fields,
                &whose,
                name,
                None,
                self.decoder,
                self.report,
            );
            if !text.is_empty() {
                let component = component.filter(|_| self.report.len() == before);
                locals.insert(text, Local { at, path: fields.path_of("name"), component });
            }
        }
        locals
    }

    fn lanes(
        &mut self,
        fields: &Fields<'_, '_>,
        components: &BTreeMap<String, Local>,
    ) -> Vec<Lane> {
        let Some(node) = fields.get("pipelines") else { return Vec::new() };
        let path = KeyPath::Key(&fields.path, "pipelines");
        let pipelines = self.decoder.fields(node, path, &Signal::ALL.map(Signal::as_str));
        let mut lanes = Vec::new();
        for signal in Signal::ALL {
            let entries = self.entries(&pipelines, signal.as_str(), components);
            if !entries.is_empty() {
                lanes.push(Lane { signal, entries, at: pipelines.at(signal.as_str()) });
            }
        }
        lanes
    }

    /// The entries of a lane or of `extensions`, without those that were reported.
    fn entries(
        &mut self,
        fields: &Fields<'_, '_>,
        key: &str,
        components: &BTreeMap<String, Local>,
    ) -> Vec<LaneEntry> {
        let list = KeyPath::Key(&fields.path, key);
        let mut seen = BTreeSet::new();
        let mut entries = Vec::new();
        for (index, node) in self.decoder.list(fields, key).iter().enumerate() {
            self.wires = true;
            let path = KeyPath::Index(&list, index);
            let entry = self.decoder.fields(node, path, &["component", "track"]);
            let component = self.decoder.string(&entry, "component");
            let track = self.decoder.string(&entry, "track");
            let path = entry.path_of("component");
            let mut about = |text: &str, help: &str| {
                self.report.about(self.object, component.at, path.clone(), text, help);
            };
            let reference = match names::reference(&component.value, &track.value) {
                Ok(reference) => reference,
                Err(fault) => {
                    let help = "write a local name, team/name@N, or team/name with `track: head`";
                    about(&format!("has a bad reference in {key}: {fault}"), help);
                    continue;
                }
            };
            let id = match &reference {
                Reference::Local(name) => name.clone(),
                Reference::Pinned(id, _) | Reference::Head(id) => id.to_string(),
            };
            if let Reference::Local(name) = &reference {
                self.used.insert(name.clone());
                if !components.contains_key(name) {
                    if !self.locals_are_read {
                        continue;
                    }
                    let text = format!("refers in {key} to {}, which is not local", shown(name));
                    about(&text, "declare it under `components:`, or name it as team/name@N");
                    continue;
                }
            }
            if !seen.insert(id.clone()) {
                about(&format!("refers to {} twice in {key}", shown(&id)), "keep one of the two");
                continue;
            }
            entries.push(LaneEntry { reference, at: component.at, path });
        }
        entries
    }

    fn unused(&mut self, components: &BTreeMap<String, Local>) {
        for (name, local) in components {
            if !self.used.contains(name) {
                let text = format!("declares component {}, which no entry uses", shown(name));
                let help = "put it into a lane or into extensions, or drop it";
                self.report.about(self.object, local.at, local.path.clone(), &text, help);
            }
        }
    }
}

/// The four `reference` findings, by Blueprint id, lane, entry.
fn reference_findings(
    components: &BTreeMap<Name, Component>,
    blueprints: &BTreeMap<Name, Blueprint>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for blueprint in blueprints.values() {
        let lanes = blueprint.lanes.iter().map(|lane| (lane.signal.as_str(), &lane.entries));
        for (lane, entries) in lanes.chain([("extensions", &blueprint.extensions)]) {
            for entry in entries {
                for text in faults(&entry.reference, lane, blueprint, components) {
                    findings.push(Finding {
                        kind: FindingKind::Reference,
                        subject: Subject::Blueprint(blueprint.id.clone()),
                        lane: Some(lane),
                        text,
                    });
                }
            }
        }
    }
    findings
}

fn faults(
    reference: &Reference,
    lane: &str,
    blueprint: &Blueprint,
    components: &BTreeMap<Name, Component>,
) -> Vec<String> {
    let component = match reference {
        Reference::Local(name) => blueprint.components.get(name),
        Reference::Pinned(id, _) | Reference::Head(id) => components.get(id),
    };
    let Some(component) = component else {
        return vec![format!("component {reference} is not provided by anybody")];
    };
    let mut faults = Vec::new();
    if let Reference::Pinned(_, pin) = reference
        && *pin > component.version
    {
        let version = component.version;
        faults.push(format!("component {reference} is pinned ahead: its version is {version}"));
    }
    match (lane, component.class) {
        ("extensions", Class::Extension) => {}
        ("extensions", class) => {
            faults.push(format!("component {reference} has class {class}, not extension"));
        }
        (_, Class::Extension) => {
            faults
                .push(format!("component {reference} is an extension, and belongs in extensions"));
        }
        _ => {}
    }
    faults
}
