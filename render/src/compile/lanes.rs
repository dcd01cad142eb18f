//! From lanes to pipelines (estate.md 2.5).

use std::collections::BTreeSet;

use super::resolve::{Resolved, entry_spot};
use super::{Arm, Compiler};
use crate::estate::{Blueprint, Class, Signal};
use crate::problem::Spot;

/// A pipeline: component ids in order.
pub(super) struct Pipeline {
    pub(super) signal: Signal,
    pub(super) receivers: Vec<String>,
    pub(super) processors: Vec<String>,
    pub(super) exporters: Vec<String>,
}

/// What `service` lists.
pub(super) struct Pipelines {
    /// Authored order, each once.
    pub(super) extensions: Vec<String>,
    /// Signal order.
    pub(super) lanes: Vec<Pipeline>,
}

impl<'s> Compiler<'s> {
    pub(super) fn pipelines(
        &mut self,
        arm: Arm<'s>,
        blueprint: &'s Blueprint,
        resolved: &Resolved<'s>,
    ) -> Pipelines {
        let mut lanes = Vec::with_capacity(blueprint.lanes.len());
        for (lane, ids) in blueprint.lanes.iter().zip(&resolved.lanes) {
            let mut pipeline = Pipeline {
                signal: lane.signal,
                receivers: Vec::new(),
                processors: Vec::new(),
                exporters: Vec::new(),
            };
            let mut on_source_side = true;
            for (id, entry) in ids {
                let Some(instance) = resolved.instances.get(id) else { continue };
                let side = match instance.component.class {
                    Class::Receiver => &mut pipeline.receivers,
                    Class::Processor => {
                        on_source_side = false;
                        &mut pipeline.processors
                    }
                    Class::Exporter => {
                        on_source_side = false;
                        &mut pipeline.exporters
                    }
                    Class::Connector if on_source_side => &mut pipeline.receivers,
                    Class::Connector => &mut pipeline.exporters,
                    Class::Extension => {
                        let text = format!(
                            "{}: Blueprint {} has the extension {id} in its {} lane",
                            arm.label(),
                            blueprint.id,
                            lane.signal
                        );
                        let help = "list it under extensions";
                        self.refuse(text, Some(entry_spot(blueprint, entry)), help);
                        continue;
                    }
                };
                side.push(id.clone());
            }
            for (side, what, help) in [
                (
                    &pipeline.receivers,
                    "receiver",
                    "begin the lane with a receiver, or with a connector that another lane feeds",
                ),
                (
                    &pipeline.exporters,
                    "exporter",
                    "end the lane with an exporter, or with a connector after a processor",
                ),
            ] {
                if side.is_empty() {
                    let text = format!(
                        "{}: the {} lane of Blueprint {} has no {what} side",
                        arm.label(),
                        lane.signal,
                        blueprint.id
                    );
                    let spot = Spot {
                        file: blueprint.file.clone(),
                        pos: Some(lane.at),
                        path: format!("pipelines.{}", lane.signal),
                    };
                    self.refuse(text, Some(spot), help);
                }
            }
            lanes.push(pipeline);
        }
        Pipelines { extensions: self.extensions(arm, blueprint, resolved), lanes }
    }

    fn extensions(
        &mut self,
        arm: Arm<'s>,
        blueprint: &'s Blueprint,
        resolved: &Resolved<'s>,
    ) -> Vec<String> {
        let mut extensions: Vec<String> = Vec::new();
        let mut listed = BTreeSet::new();
        for (id, entry) in &resolved.extensions {
            let Some(instance) = resolved.instances.get(id) else { continue };
            let class = instance.component.class;
            if class != Class::Extension {
                let text = format!(
                    "{}: Blueprint {} has the {class} {id} among its extensions",
                    arm.label(),
                    blueprint.id
                );
                let spot = entry_spot(blueprint, entry);
                self.refuse(text, Some(spot), "place it in a lane");
            } else if listed.insert(id) {
                extensions.push(id.clone());
            }
        }
        extensions
    }
}
