//! The plain model against the fast one that a gateway serves from. They share no code beyond the
//! reading of authored files, so that agreement over many collectors says something about both.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use loadgen::model::{Arm, Attributes, Model, Value};
use loadgen::plan::Plan;
use proptest::prelude::*;
use render::snapshot::{self, Snapshot};
use render::tree::Tree;

use crate::testing::estate;

#[test]
fn both_agree_on_every_collector_of_a_plan_for_the_demo_estate() {
    let both = Both::read(&demo());
    for index in 0..2_000 {
        both.check(&both.plan.attributes(index));
    }
}

#[test]
fn both_agree_at_every_stage() {
    let estate = estate();
    for stage in 0..2 {
        estate.set_stage(stage);
        let both = Both::read(estate.path());
        let arms: Vec<Arm> =
            (0..2_000).map(|index| both.check(&both.plan.attributes(index))).collect();
        assert!(arms.contains(&Arm::Candidate) && arms.contains(&Arm::Base));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn both_agree_on_any_attributes(
        identifying in attributes(),
        non_identifying in attributes(),
    ) {
        thread_local!(static BOTH: Both = Both::read(&demo()));
        BOTH.with(|both| both.check(&Attributes { identifying, non_identifying }));
    }
}

/// Names and values that the demo estate mentions, and some that it does not.
fn attributes() -> impl Strategy<Value = Vec<(String, Value)>> {
    let names = prop::sample::select(vec![
        "service.name",
        "service.namespace",
        "service.instance.id",
        "deployment.environment.name",
        "payments.zone",
        "host.name",
        "other",
    ]);
    let texts = prop::sample::select(vec![
        "otelcol-gateway",
        "otelcol-kafka-bridge",
        "otelcol-agent",
        "otelcol-edge",
        "production",
        "staging",
        "payments",
        "card",
        "bridge-a1",
        "bridge-7",
        "",
    ]);
    let value = prop_oneof![
        9 => texts.prop_map(|text| Value::Text(text.to_owned())),
        1 => any::<i64>().prop_map(Value::Integer),
        1 => any::<bool>().prop_map(Value::Truth),
    ];
    prop::collection::vec((names.prop_map(str::to_owned), value), 0..6)
}

struct Both {
    plain: Model,
    fast: Snapshot,
    plan: Plan,
}

impl Both {
    fn read(path: &Path) -> Self {
        let tree = Tree::read_dir(path, "estate").unwrap();
        let plain = Model::read(&tree).unwrap();
        let served = snapshot::served::from_tree(&tree, None).unwrap();
        let encode =
            |artefact: &render::artefact::Artefact, _: &_| -> Bytes { artefact.bytes().clone() };
        let fast = snapshot::compile(&served, encode).unwrap();
        let plan = Plan::derive(&plain, 2_000).unwrap();
        Self { plain, fast, plan }
    }

    fn check(&self, attributes: &Attributes) -> Arm {
        let mut slots = self.fast.slots();
        slots.fill(
            &self.fast.symbols,
            texts(&attributes.non_identifying),
            texts(&attributes.identifying),
        );
        let placement = self.fast.place(&slots);
        let offer = self.fast.offer(&placement);
        let place = self.plain.place(attributes);
        let artefact = self.plain.artefact(place);
        let tier = placement.tier.map(|tier| &*self.fast.tiers[tier as usize].id);
        assert_eq!(self.plain.tier(place), tier, "{attributes:?}");
        assert_eq!(artefact.bytes, offer.bytes, "{attributes:?}");
        assert_eq!(artefact.hash, offer.content.to_string(), "{attributes:?}");
        self.plain.arm(place)
    }
}

fn texts(list: &[(String, Value)]) -> impl Iterator<Item = (&str, Option<&str>)> {
    list.iter().map(|(key, value)| match value {
        Value::Text(text) => (key.as_str(), Some(text.as_str())),
        Value::Integer(_) | Value::Truth(_) => (key.as_str(), None),
    })
}

fn demo() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/estates/demo")
}
