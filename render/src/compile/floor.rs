//! The stability floor: what the Services through a Tier ask of its components (estate.md 2.7).

use super::{Arm, Compiler};
use crate::estate::{Blueprint, Service};
use crate::finding::FindingKind;
use crate::policy::Stability;

/// The ranked classes, the strictest first, with their floor in `production`. No other
/// Environment has floors.
const FLOORS: [(&str, Stability); 3] =
    [("C1", Stability::Beta), ("C2", Stability::Beta), ("C3", Stability::Alpha)];

const FLOORED_ENVIRONMENT: &str = "production";

impl<'s> Compiler<'s> {
    pub(super) fn check_floors(&mut self, arm: Arm<'s>, blueprint: &'s Blueprint) {
        let tier = arm.tier();
        let services = self.services.get(&tier.id).cloned().unwrap_or_default();
        if let Arm::Base(_) = arm {
            self.check_ranks(arm, &services);
        }
        let strictest = FLOORS.into_iter().find_map(|(class, floor)| {
            let imposers: Vec<&str> = services
                .iter()
                .filter(|service| service.class == class)
                .map(|service| service.id.as_str())
                .collect();
            (!imposers.is_empty()).then_some((class, floor, imposers))
        });
        let Some((class, floor, imposers)) = strictest else { return };
        if tier.environment.value != FLOORED_ENVIRONMENT {
            return;
        }
        for lane in &blueprint.lanes {
            for entry in &lane.entries {
                let Some((component, _, id)) = self.lookup(blueprint, entry) else { continue };
                let known = self.catalogue.get(component.class, &component.kind.value);
                let level = known.and_then(|known| known.stability.get(lane.signal.as_str()));
                let Some(level) = level.copied() else { continue };
                if level.rung().is_none_or(|rung| Some(rung) >= floor.rung()) {
                    continue;
                }
                let text = format!(
                    "{id} ({}/{}) of Blueprint {} is {} for {}, below the floor {} that class \
                     {class} has in {FLOORED_ENVIRONMENT}; imposed by {}",
                    component.class,
                    component.kind.value,
                    blueprint.id,
                    level.as_str(),
                    lane.signal,
                    floor.as_str(),
                    imposers.join(", ")
                );
                self.find(tier, FindingKind::Floor, Some(lane.signal.as_str()), text);
            }
        }
    }

    fn check_ranks(&mut self, arm: Arm<'s>, services: &[&Service]) {
        for service in services {
            if !FLOORS.iter().any(|(class, _)| service.class == *class) {
                let text = format!(
                    "service {} has the class {:?}, which is not ranked (C1, C2, C3), so it \
                     imposes no floor",
                    service.id, service.class
                );
                self.find(arm.tier(), FindingKind::Floor, None, text);
            }
        }
    }
}
