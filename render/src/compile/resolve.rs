//! From lane entries to instances: which Components an artefact holds, under which ids, and
//! whether they may be placed (estate.md 2.3 steps 3 to 5, and 2.4).

use std::collections::BTreeMap;

use super::{Arm, Compiler};
use crate::estate::{Blueprint, Component, LaneEntry, Reference};
use crate::problem::Spot;
use crate::yaml::colliding_key;

/// The processor that strips `telecraft.*` attributes on an untrusted Tier; its id is reserved.
pub(super) const STRIP_ID: &str = "attributes/telecraft.untrusted-hop";

/// A Component placed in an artefact.
pub(super) struct Instance<'s> {
    pub(super) component: &'s Component,
    /// Whose palette it needs: the directory team of a shared Component, the Blueprint's of a
    /// local one.
    team: &'s str,
    /// The first entry that places it.
    entry: &'s LaneEntry,
}

/// The Components of a Blueprint by rendered id, in byte order.
pub(super) struct Resolved<'s> {
    pub(super) instances: BTreeMap<String, Instance<'s>>,
    /// Per lane in Blueprint order, the id of each entry that resolves.
    pub(super) lanes: Vec<Vec<(String, &'s LaneEntry)>>,
    /// The same of the extensions block.
    pub(super) extensions: Vec<(String, &'s LaneEntry)>,
}

impl<'s> Compiler<'s> {
    pub(super) fn resolve(&mut self, arm: Arm<'s>, blueprint: &'s Blueprint) -> Resolved<'s> {
        let mut resolved =
            Resolved { instances: BTreeMap::new(), lanes: Vec::new(), extensions: Vec::new() };
        for lane in &blueprint.lanes {
            let mut ids = Vec::with_capacity(lane.entries.len());
            for entry in &lane.entries {
                ids.extend(self.instance(arm, blueprint, entry, &mut resolved.instances));
            }
            resolved.lanes.push(ids);
        }
        for entry in &blueprint.extensions {
            let id = self.instance(arm, blueprint, entry, &mut resolved.instances);
            resolved.extensions.extend(id);
        }
        self.check_reserved(arm, blueprint, &resolved);
        self.check_palette(arm, blueprint, &resolved);
        self.check_configs(arm, &resolved);
        resolved
    }

    fn instance(
        &mut self,
        arm: Arm<'s>,
        blueprint: &'s Blueprint,
        entry: &'s LaneEntry,
        instances: &mut BTreeMap<String, Instance<'s>>,
    ) -> Option<(String, &'s LaneEntry)> {
        let Some((component, team, id)) = self.lookup(blueprint, entry) else {
            let (name, help) = match &entry.reference {
                Reference::Local(name) => {
                    (name.clone(), format!("declare {name} under components"))
                }
                Reference::Pinned(name, _) | Reference::Head(name) => (
                    name.to_string(),
                    format!(
                        "author teams/{}/components/{}.yaml, or reference one that exists",
                        name.team(),
                        name.name()
                    ),
                ),
            };
            let text = format!(
                "{}: Blueprint {} references Component {name}, which does not exist",
                arm.label(),
                blueprint.id
            );
            self.refuse(text, Some(entry_spot(blueprint, entry)), &help);
            return None;
        };
        match instances.get(&id) {
            Some(first) if !std::ptr::eq(first.component, component) => {
                let text = format!(
                    "{}: Blueprint {} places two Components under the id {id}: {} of {} and {} of \
                     {}",
                    arm.label(),
                    blueprint.id,
                    first.component.name.value,
                    first.component.file,
                    component.name.value,
                    component.file
                );
                let help = "rename one of the two Components";
                self.refuse(text, Some(entry_spot(blueprint, entry)), help);
                return None;
            }
            Some(_) => {}
            None => {
                instances.insert(id.clone(), Instance { component, team, entry });
            }
        }
        Some((id, entry))
    }

    /// The Component an entry points at (whatever its version), its team and its rendered id.
    pub(super) fn lookup(
        &self,
        blueprint: &'s Blueprint,
        entry: &'s LaneEntry,
    ) -> Option<(&'s Component, &'s str, String)> {
        match &entry.reference {
            Reference::Local(name) => {
                let component = blueprint.components.get(name)?;
                let id = format!("{}/{name}", component.kind.value);
                Some((component, blueprint.id.team(), id))
            }
            Reference::Pinned(name, _) | Reference::Head(name) => {
                let component = self.sources.components.get(name)?;
                let id = format!("{}/{}.{}", component.kind.value, name.team(), name.name());
                Some((component, name.team(), id))
            }
        }
    }

    fn check_reserved(&mut self, arm: Arm<'s>, blueprint: &Blueprint, resolved: &Resolved<'s>) {
        if let Some(instance) = resolved.instances.get(STRIP_ID) {
            let text = format!(
                "{}: Blueprint {} places a Component under the reserved id {STRIP_ID}",
                arm.label(),
                blueprint.id
            );
            let spot = entry_spot(blueprint, instance.entry);
            self.refuse(text, Some(spot), "rename the Component");
        }
    }

    fn check_palette(&mut self, arm: Arm<'s>, blueprint: &Blueprint, resolved: &Resolved<'s>) {
        for (id, instance) in &resolved.instances {
            let (class, kind) = (instance.component.class, &instance.component.kind.value);
            let spot = Some(Spot {
                file: instance.component.file.clone(),
                pos: Some(instance.component.kind.at),
                path: "type".to_owned(),
            });
            let placed = format!("{}: Blueprint {} places {id}", arm.label(), blueprint.id);
            let team = instance.team;
            let Some(palette) = self.palettes.of(team) else {
                let text = format!("{placed}, but its team {team} is not in teams.yaml");
                self.refuse(text, spot, "add the team to teams.yaml");
                continue;
            };
            if palette.origin(class, kind).is_some() {
                continue;
            }
            if self.catalogue.get(class, kind).is_none() {
                let text = format!(
                    "{placed}, but {class}/{kind} is not in the catalogue {}",
                    self.catalogue.reference
                );
                self.refuse(text, spot, "use a type that the distribution has");
            } else {
                let text =
                    format!("{placed}, but {class}/{kind} is not in the palette of team {team}");
                let help = format!(
                    "use an allowed component (`render palette --team {team}` lists them), or ask \
                     an owner of a team above for a Grant in grants.yaml: team: {team}, adds: \
                     [{class}/{kind}]"
                );
                self.refuse(text, spot, &help);
            }
        }
    }

    /// Two keys such as `010` and `8` would make one mapping hold the same key twice.
    fn check_configs(&mut self, arm: Arm<'s>, resolved: &Resolved<'s>) {
        for (id, instance) in &resolved.instances {
            let key = instance.component.config.as_ref().and_then(colliding_key);
            if let Some(key) = key {
                let text = format!(
                    "{}: the config of {id} has two keys that a collector reads as one",
                    arm.label()
                );
                let spot = Spot {
                    file: instance.component.file.clone(),
                    pos: Some(key.at),
                    path: "config".to_owned(),
                };
                self.refuse(text, Some(spot), "keep one of the two, or quote one");
            }
        }
    }
}

pub(super) fn entry_spot(blueprint: &Blueprint, entry: &LaneEntry) -> Spot {
    Spot { file: blueprint.file.clone(), pos: Some(entry.at), path: entry.path.clone() }
}
