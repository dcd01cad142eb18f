//! Small heads, written down in a test.

use std::collections::BTreeMap;
use std::time::Duration;

use render::artefact::Artefact;
use render::estate::{Cohort, Halt, Hosts};
use render::snapshot::served::{Served, ServedRollout, ServedStage, ServedTier};
use render::snapshot::{Snapshot, compile};

use crate::serve::encode_offer;

/// What is served, to be changed between heads.
#[derive(Clone, Debug)]
pub(super) struct Estate(pub(super) Served);

pub(super) fn artefact_of(text: &str) -> Artefact {
    Artefact::new(text.to_owned().into_bytes()).expect("not blank")
}

impl Estate {
    /// Nothing but what the Unmatched get: `unmatched: 1`.
    pub(super) fn new() -> Self {
        Self(Served {
            commit: "c1".into(),
            rendered_at: None,
            tiers: BTreeMap::new(),
            rollouts: BTreeMap::new(),
            unmatched: artefact_of("unmatched: 1\n"),
        })
    }

    /// Adds or replaces a Tier.
    pub(super) fn tier(mut self, id: &str, selector: &[(&str, &str)], base: &str) -> Self {
        let selector = selector.iter().map(|(key, value)| ((*key).into(), (*value).into()));
        let tier = ServedTier {
            environment: "production".into(),
            blueprint: "team/blueprint@1".into(),
            selector: selector.collect(),
            base: artefact_of(base),
            next: None,
        };
        self.0.tiers.insert(id.into(), tier);
        self
    }

    /// Stages a Tier: a Rollout of its name, in one stage.
    pub(super) fn rollout(mut self, tier: &str, cohort: Cohort, next: &str) -> Self {
        let rollout = ServedRollout {
            id: tier.into(),
            tier: tier.into(),
            owner: "team".into(),
            from: "team/blueprint@1".into(),
            to: "team/blueprint@2".into(),
            stage: 0,
            stages: vec![ServedStage { cohort, soak: Duration::ZERO }],
            hash_attributes: vec!["host.name".into()],
            hash_salt: None,
            identity: Vec::new(),
            hold: false,
            halt: Halt::default(),
            stage_started_ms: None,
            origin: None,
        };
        self.0.rollouts.insert(tier.into(), rollout);
        self.0.tiers.get_mut(tier).expect("the Tier").next = Some(artefact_of(next));
        self
    }

    pub(super) fn without_rollout(mut self, tier: &str) -> Self {
        self.0.rollouts.remove(tier);
        self.0.tiers.get_mut(tier).expect("the Tier").next = None;
        self
    }

    pub(super) fn compile(&self) -> Snapshot {
        compile(&self.0, encode_offer).expect("a head that fits together")
    }
}

pub(super) fn hosts(values: &[&str]) -> Cohort {
    let values = values.iter().map(|value| (*value).into()).collect();
    Cohort { hosts: Some(Hosts { attribute: "host.name".into(), values }), ..Cohort::default() }
}
