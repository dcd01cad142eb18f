//! Who would join a Rollout's Cohort at its next stage, counted over a population: the collectors
//! that are connected, or a list of them (`gateway rollout plan`).

use serde::{Deserialize, Serialize};

use super::cohort::{Cohorts, UnknownSymbol, member};
use super::explain::{all_stages, in_words, missing, slots};
use crate::snapshot::{CompiledRollout, Snapshot};

/// Collectors that a plan names of each kind; all are counted.
pub const SAMPLE_MAX: usize = 20;

/// Who is in a Cohort, and who would be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// `team/name`.
    pub rollout: String,
    /// The Tier it stages.
    pub tier: String,
    /// The commit of the head; empty when nothing told it.
    pub commit: String,
    /// Index of the active stage.
    pub stage: u32,
    /// The next one; `None` when the active stage is the last.
    pub next: Option<u32>,
    /// Every stage, and how many collectors it is the first to admit.
    pub stages: Vec<PlanStage>,
    /// Collectors that were looked at.
    pub looked_at: u64,
    /// Of these, those on the Rollout's Tier.
    pub population: u64,
    /// Of the population: in the Cohort now.
    pub members: u64,
    /// Would join at the next stage.
    pub joining: u64,
    /// Of those who would join: Foreign ones, which are read, and offered nothing.
    pub joining_foreign: u64,
    /// Would leave at the next stage: always none, since a Cohort only ever widens.
    pub leaving: u64,
    /// Lack a hash attribute, so that no `percent` admits them, and no other form does up to the
    /// next stage.
    pub no_bucket: u64,
    /// Some of those who would join, in the order in which they were looked at.
    pub joining_sample: Vec<PlanMember>,
    /// Some of those who lack a hash attribute.
    pub no_bucket_sample: Vec<PlanMember>,
}

/// A stage, and whom it is the first to admit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanStage {
    /// Its Cohort, [in words](in_words).
    pub cohort: String,
    /// How many collectors no earlier stage admits, and this one does.
    pub admits: u64,
}

/// A collector that a plan names. Its texts are the peer's: escape them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanMember {
    /// What it is called.
    pub label: String,
    /// Its bucket, if it has one.
    pub bucket: Option<u32>,
    /// Hash attributes that it lacks.
    pub missing: Vec<String>,
}

/// Counts collectors one after the other.
#[derive(Debug)]
pub struct Planner<'s> {
    snapshot: &'s Snapshot,
    compiled: &'s CompiledRollout,
    all_stages: Cohorts,
    plan: Plan,
}

impl<'s> Planner<'s> {
    /// For one Rollout of a head, nobody counted yet.
    ///
    /// # Errors
    /// [`UnknownSymbol`] when the snapshot lacks a name that the Rollout mentions, which
    /// [`crate::snapshot::compile()`] never makes.
    pub fn new(
        snapshot: &'s Snapshot,
        compiled: &'s CompiledRollout,
    ) -> Result<Self, UnknownSymbol> {
        let rollout = &compiled.rollout;
        let next = rollout.stage.saturating_add(1);
        let stages = rollout.stages.iter();
        let stages = stages.map(|stage| PlanStage { cohort: in_words(&stage.cohort), admits: 0 });
        let plan = Plan {
            rollout: rollout.id.to_string(),
            tier: rollout.tier.to_string(),
            commit: snapshot.commit.to_string(),
            stage: rollout.stage,
            next: Some(next).filter(|next| (*next as usize) < rollout.stages.len()),
            stages: stages.collect(),
            looked_at: 0,
            population: 0,
            members: 0,
            joining: 0,
            joining_foreign: 0,
            leaving: 0,
            no_bucket: 0,
            joining_sample: Vec::new(),
            no_bucket_sample: Vec::new(),
        };
        Ok(Self { snapshot, compiled, all_stages: all_stages(snapshot, rollout)?, plan })
    }

    /// Counts one collector. `foreign`: it does not accept remote configuration. `label` is asked
    /// only for those who are named.
    pub fn count<'a>(
        &mut self,
        attributes: impl IntoIterator<Item = (&'a str, &'a str)>,
        foreign: bool,
        label: impl FnOnce() -> String,
    ) {
        self.plan.looked_at += 1;
        let slots = slots(self.snapshot, attributes);
        if self.snapshot.place(&slots).tier != Some(self.compiled.tier) {
            return;
        }
        self.plan.population += 1;
        let membership = member(&self.all_stages, &slots);
        if let Some(stage) = membership.stage
            && let Some(stage) = self.plan.stages.get_mut(stage as usize)
        {
            stage.admits += 1;
        }
        let named = |missing| PlanMember {
            label: label(),
            bucket: self.all_stages.bucket(&slots),
            missing,
        };
        match membership.stage {
            Some(stage) if stage <= self.plan.stage => self.plan.members += 1,
            Some(stage) if Some(stage) == self.plan.next => {
                self.plan.joining += 1;
                self.plan.joining_foreign += u64::from(foreign);
                if self.plan.joining_sample.len() < SAMPLE_MAX {
                    let named = named(Vec::new());
                    self.plan.joining_sample.push(named);
                }
            }
            _ => {
                let missing = missing(self.snapshot, &self.compiled.rollout, &slots);
                if missing.is_empty() {
                    return;
                }
                self.plan.no_bucket += 1;
                if self.plan.no_bucket_sample.len() < SAMPLE_MAX {
                    let named = named(missing);
                    self.plan.no_bucket_sample.push(named);
                }
            }
        }
    }

    /// What it came to.
    pub fn finish(self) -> Plan {
        self.plan
    }
}

/// What a collector is called by its attributes: `host.name`, else `service.instance.id`.
pub fn label<'a>(attributes: impl IntoIterator<Item = (&'a str, &'a str)>) -> Option<&'a str> {
    let mut instance = None;
    for (name, value) in attributes {
        match name {
            "host.name" if !value.is_empty() => return Some(value),
            "service.instance.id" if !value.is_empty() => instance = Some(value),
            _ => {}
        }
    }
    instance
}

#[cfg(test)]
mod tests {
    use super::super::tests::demo;
    use super::*;

    #[test]
    fn a_population_is_counted_by_the_stage_that_admits_it_first() {
        let snapshot = demo();
        let compiled = &snapshot.rollouts[0];
        let mut planner = Planner::new(&snapshot, compiled).unwrap();
        let bridge = ("service.name", "otelcol-kafka-bridge");
        for n in 0..1_000 {
            let id = format!("host-{n:03}");
            planner.count([bridge, ("service.instance.id", &id)], n % 2 == 1, || id.clone());
        }
        planner.count([bridge, ("host.name", "bridge-a1")], false, || "named".into());
        planner.count([bridge], false, || "nameless".into());
        planner.count([("service.name", "else")], false, || "other".into());
        let plan = planner.finish();
        assert_eq!((plan.stage, plan.next), (1, Some(2)));
        assert_eq!((plan.looked_at, plan.population), (1_003, 1_002));
        let admits: Vec<u64> = plan.stages.iter().map(|stage| stage.admits).collect();
        let quarter = (0..1_000)
            .filter(|n| {
                let id = format!("host-{n:03}");
                let pairs = [("service.instance.id", Some(id.as_str()))];
                let hash = super::super::cohort::hash(0, pairs.into_iter()).unwrap();
                super::super::cohort::bucket(hash) < 2_500
            })
            .count() as u64;
        assert_eq!(admits, [1, quarter, 1_000 - quarter]);
        assert_eq!(plan.members, 1 + quarter);
        assert_eq!(plan.joining, 1_000 - quarter);
        assert_eq!(plan.members + plan.joining + plan.no_bucket, plan.population);
        assert!(plan.joining_foreign > 0 && plan.joining_foreign < plan.joining);
        assert_eq!(plan.leaving, 0);
        assert_eq!(plan.joining_sample.len(), SAMPLE_MAX);
        assert_eq!(plan.no_bucket, 1);
        assert_eq!(plan.no_bucket_sample[0].label, "nameless");
        assert_eq!(plan.no_bucket_sample[0].missing, ["service.instance.id"]);
    }

    #[test]
    fn a_host_name_is_a_better_label_than_an_instance_id() {
        assert_eq!(label([("service.instance.id", "i"), ("host.name", "h")]), Some("h"));
        assert_eq!(label([("service.instance.id", "i"), ("host.name", "")]), Some("i"));
        assert_eq!(label([("region", "eu")]), None);
    }
}
