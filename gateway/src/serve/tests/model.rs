//! Matching, membership and offers over generated heads, against the rules said plainly.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use render::estate::{Cohort, Hosts};
use render::snapshot::served::Served;

use super::*;

const KEYS: [&str; 4] = ["tier", "region", "host.name", "zone"];
const VALUES: [&str; 3] = ["a", "b", ""];

#[derive(Clone, Debug)]
struct Described {
    /// Key, value (3 is a number instead of a string), and whether it identifies.
    attributes: Vec<(usize, usize, bool)>,
}

#[derive(Clone, Debug)]
enum Step {
    Describe(usize, Described),
    Heartbeat(usize),
    Close(usize),
    Head(Estate, bool),
}

/// What a collector's attributes are, by the matching rule.
fn flatten(described: &Described) -> BTreeMap<&'static str, &'static str> {
    let mut flat = BTreeMap::new();
    for identifying in [false, true] {
        for (key, value, identifies) in &described.attributes {
            if *identifies == identifying && *value < VALUES.len() {
                flat.insert(KEYS[*key], VALUES[*value]);
            }
        }
    }
    flat
}

/// Every attribute name that a head mentions.
fn mentioned(served: &Served) -> BTreeSet<String> {
    let selectors = served.tiers.values().flat_map(|tier| tier.selector.keys().cloned());
    let rollouts = served.rollouts.values().flat_map(|rollout| {
        let stages = rollout.stages.iter().flat_map(|stage| {
            let hosts = stage.cohort.hosts.iter().map(|hosts| hosts.attribute.clone());
            hosts.chain(stage.cohort.matches.keys().cloned())
        });
        stages.chain(rollout.hash_attributes.iter().cloned())
    });
    selectors.chain(rollouts).collect()
}

/// What a collector is meant to run: a look at every Tier.
fn meant(served: &Served, attributes: &BTreeMap<&str, &str>) -> Artefact {
    let mut best: Option<(&Box<str>, usize)> = None;
    for (id, tier) in &served.tiers {
        let matches = tier
            .selector
            .iter()
            .all(|(key, value)| attributes.get(&**key).copied().unwrap_or("") == value);
        if matches && best.is_none_or(|(_, pairs)| tier.selector.len() > pairs) {
            best = Some((id, tier.selector.len()));
        }
    }
    let Some((id, _)) = best else { return served.unmatched.clone() };
    let tier = &served.tiers[id];
    let rollout = served.rollouts.values().find(|rollout| rollout.tier == *id);
    match (rollout, &tier.next) {
        (Some(rollout), Some(next))
            if is_member(rollout, attributes)
                && next.content_hash() != tier.base.content_hash() =>
        {
            next.clone()
        }
        _ => tier.base.clone(),
    }
}

fn is_member(
    rollout: &render::snapshot::served::ServedRollout,
    attributes: &BTreeMap<&str, &str>,
) -> bool {
    rollout.stages[..=rollout.stage as usize].iter().any(|stage| {
        let Cohort { hosts, matches, percent } = &stage.cohort;
        let hosts = hosts.as_ref().is_some_and(|hosts| {
            attributes
                .get(&*hosts.attribute)
                .is_some_and(|value| hosts.values.iter().any(|host| host == value))
        });
        let matches = !matches.is_empty()
            && matches
                .iter()
                .all(|(key, value)| attributes.get(&**key).copied().unwrap_or("") == value);
        let percent = *percent > 0
            && bucket(&rollout.hash_attributes, attributes)
                .is_some_and(|bucket| bucket < u64::from(*percent) * 100);
        hosts || matches || percent
    })
}

fn bucket(names: &[String], attributes: &BTreeMap<&str, &str>) -> Option<u64> {
    let mut bytes = Vec::new();
    for name in names {
        let value = attributes.get(&**name).filter(|value| !value.is_empty())?;
        bytes.extend_from_slice(name.as_bytes());
        bytes.push(0);
        bytes.extend_from_slice(value.as_bytes());
        bytes.push(0);
    }
    let hash = xxhash_rust::xxh3::xxh3_64(&bytes);
    Some(((u128::from(hash) * 10_000) >> 64) as u64)
}

fn estates() -> impl Strategy<Value = Estate> {
    let pair = (0usize..4, 0usize..2);
    let selector = prop::collection::btree_map(0usize..4, 0usize..2, 1..4);
    let cohort = (
        prop::option::of((0usize..4, prop::collection::vec(0usize..3, 0..3))),
        prop::collection::vec(pair, 0..2),
        prop_oneof![Just(0u32), 1u32..=100],
    );
    let tier = (0usize..6, selector, 0u8..3, prop::option::weighted(0.4, (cohort, 0u8..3)));
    prop::collection::vec(tier, 0..6).prop_map(|tiers| {
        let mut estate = Estate::new();
        for (number, selector, base, rollout) in tiers {
            let id = ["a/x", "a-b/x", "a/y", "b/x", "c/x", "c/y"][number];
            let selector: Vec<_> =
                selector.iter().map(|(key, value)| (KEYS[*key], VALUES[*value])).collect();
            if estate.0.tiers.contains_key(id) {
                continue;
            }
            estate = estate.tier(id, &selector, &format!("content: {base}\n"));
            if let Some(((hosts, matches, percent), next)) = rollout {
                let cohort = Cohort {
                    hosts: hosts.map(|(key, values)| Hosts {
                        attribute: KEYS[key].into(),
                        values: values.iter().map(|value| VALUES[*value].into()).collect(),
                    }),
                    matches: matches
                        .iter()
                        .map(|(key, value)| (KEYS[*key].into(), VALUES[*value].into()))
                        .collect(),
                    percent,
                };
                estate = estate.rollout(id, cohort, &format!("content: {next}\n"));
            }
        }
        estate
    })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let attributes = prop::collection::vec((0usize..4, 0usize..4, any::<bool>()), 0..6);
    let described = attributes.prop_map(|attributes| Described { attributes });
    let step = prop_oneof![
        6 => (0usize..4, described).prop_map(|(agent, said)| Step::Describe(agent, said)),
        4 => (0usize..4).prop_map(Step::Heartbeat),
        1 => (0usize..4).prop_map(Step::Close),
        3 => (estates(), any::<bool>()).prop_map(|(estate, push)| Step::Head(estate, push)),
    ];
    prop::collection::vec(step, 1..40)
}

/// An agent as the model knows it: all that it ever said counts, and who pays for the memory?
#[derive(Default)]
struct Known {
    link: Option<LinkId>,
    sequence: u64,
    attributes: Option<BTreeMap<&'static str, &'static str>>,
    /// The names that head mentioned when it described itself.
    kept: BTreeSet<String>,
    offered: Option<String>,
}

impl Known {
    /// What it has to be offered now, if anything.
    fn owed(&mut self, estate: &Estate) -> Option<String> {
        let attributes = self.attributes.as_ref()?;
        if !mentioned(&estate.0).is_subset(&self.kept) {
            return None;
        }
        let meant = String::from_utf8(meant(&estate.0, attributes).bytes().to_vec()).expect("text");
        let owed = self.offered.as_ref() != Some(&meant);
        self.offered = Some(meant.clone());
        owed.then_some(meant)
    }
}

fn to_message(agent: usize, sequence: u64, described: &Described) -> opamp::AgentToServer {
    let mut sent = super::described(agent as u32, sequence, &[]);
    let description = sent.agent_description.as_mut().expect("described");
    for (key, value, identifies) in &described.attributes {
        let mut said = attribute(KEYS[*key], VALUES.get(*value).unwrap_or(&""));
        if *value == VALUES.len() {
            let number = opamp::any_value::Value::DoubleValue(1.5);
            said.value = Some(opamp::AnyValue { value: Some(number) });
        }
        let list = if *identifies {
            &mut description.identifying_attributes
        } else {
            &mut description.non_identifying_attributes
        };
        list.push(said);
    }
    sent
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn everybody_is_offered_what_the_model_says(first in estates(), steps in steps()) {
        let mut world = World::new(&first);
        let mut estate = first;
        let mut known: [Known; 4] = Default::default();
        for step in steps {
            // Far apart, so that an offer may be made again.
            world.now += 100;
            match step {
                Step::Head(next, push) => {
                    world.server.install(next.compile(), HeadMeta::default(), now(world.now));
                    estate = next;
                    if push {
                        let mut expected = Vec::new();
                        for (agent, known) in known.iter_mut().enumerate() {
                            if known.link.is_some()
                                && let Some(owed) = known.owed(&estate)
                            {
                                expected.push((uid(agent as u32), owed));
                            }
                        }
                        let mut pushed = world.push();
                        pushed.sort();
                        prop_assert_eq!(pushed, expected);
                    }
                }
                Step::Describe(agent, described) => {
                    let known = &mut known[agent];
                    let link = *known.link.get_or_insert_with(|| world.link());
                    let reply = world.send(link, &to_message(agent, known.sequence, &described));
                    known.sequence += 1;
                    known.attributes = Some(flatten(&described));
                    known.kept = mentioned(&estate.0);
                    prop_assert_eq!(offered(&reply), known.owed(&estate));
                    prop_assert_eq!(reply.flags, 0);
                }
                Step::Heartbeat(agent) => {
                    let known = &mut known[agent];
                    let Some(link) = known.link else { continue };
                    let reply = world.send(link, &message(agent as u32, known.sequence));
                    known.sequence += 1;
                    prop_assert_eq!(offered(&reply), known.owed(&estate));
                    let asked = !mentioned(&estate.0).is_subset(&known.kept);
                    // It is asked ever more seldom; that it is asked only then is what counts here.
                    prop_assert!(asked || reply.flags == 0);
                }
                Step::Close(agent) => {
                    if let Some(link) = std::mem::take(&mut known[agent]).link {
                        world.close(link);
                    }
                }
            }
            let counted: u64 = world.server.tiers().iter().map(TierCount::total).sum();
            let living = known.iter().filter(|known| known.link.is_some()).count();
            prop_assert_eq!(counted, living as u64);
            prop_assert_eq!(recount(&world), world.census());
        }
    }
}

/// The census, by looking at every collector. Those whose place is not decided yet are counted
/// where they were, so that there is nothing to compare while there are any.
fn recount(world: &World) -> Vec<String> {
    let page = world.server.collectors(&world.links, now(world.now), Cursor::default(), 1_000);
    if page.rows.iter().any(|row| row.arm.is_none()) {
        return world.census();
    }
    let mut counts = BTreeMap::new();
    for row in &page.rows {
        let (arm, delivery) = (row.arm.expect("placed"), row.delivery.expect("placed"));
        let arm = ARMS.iter().position(|known| *known == arm);
        let delivery = DELIVERIES.iter().position(|known| *known == delivery);
        let key = (row.tier.is_none(), row.tier.clone(), arm, delivery);
        *counts.entry(key).or_insert(0) += 1;
    }
    let lines = counts.into_iter().map(|((_, tier, arm, delivery), count)| {
        let arm = arm_label(ARMS[arm.expect("known")]);
        let delivery = delivery_label(DELIVERIES[delivery.expect("known")]);
        format!("{} {arm} {delivery}: {count}", tier.as_deref().unwrap_or("-"))
    });
    lines.collect()
}
