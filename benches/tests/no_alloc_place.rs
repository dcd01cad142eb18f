//! P3 and P3b: to fill the slots of a description, to match it, to decide its membership and to tell
//! the collector apart takes no allocation, however many Tiers there are.
#![expect(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

use benches::counting::{Counting, allocations};
use benches::synthetic::{self, Size};
use render::rollout::cohort::{Cohorts, member};
use render::rollout::identity::{INLINE_ATTRIBUTES, identity, plain};
use render::snapshot::{Arm, Snapshot, compile, served};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn snapshot(tiers: usize) -> Snapshot {
    let tree = synthetic::committed(Size::of(tiers)).unwrap();
    let served = served::from_tree(&tree, None).unwrap();
    compile(&served, |artefact, _| artefact.bytes().clone()).unwrap()
}

fn borrowed(list: &[(String, String)]) -> impl Iterator<Item = (&str, Option<&str>)> + Clone {
    list.iter().map(|(name, value)| (name.as_str(), Some(value.as_str())))
}

#[test]
fn placing_a_collector_allocates_nothing() {
    let mut arms = [0; 4];
    for tiers in [10, 200] {
        let snapshot = snapshot(tiers);
        for number in 0..600 {
            let (non_identifying, identifying) = synthetic::description(number % tiers, number);
            let (count, placement) = allocations(|| {
                let mut slots = snapshot.slots();
                let listed = (borrowed(&non_identifying), borrowed(&identifying));
                slots.fill(&snapshot.symbols, listed.0, listed.1);
                let placement = snapshot.place(&slots);
                let offer = snapshot.offer(&placement);
                assert_eq!(snapshot.content_of_raw(&offer.raw), Some(offer.content));
                placement
            });
            assert_eq!(count, 0, "collector {number} of {tiers} tiers");
            let tier = &snapshot.tiers[placement.tier.unwrap() as usize];
            assert!(tier.id.ends_with(&format!("/t-{:05}", number % tiers)), "{}", tier.id);
            arms[placement.arm as usize] += 1;
        }
    }
    for arm in [Arm::None, Arm::To, Arm::From] {
        assert!(arms[arm as usize] > 0, "{arm:?} of {arms:?}");
    }
}

#[test]
fn membership_allocates_nothing_also_where_the_hash_is_streamed() {
    let snapshot = snapshot(20);
    let rollout = &snapshot.rollouts[0].rollout;
    let (host, instance) = ("h".repeat(4_000), "i".repeat(4_000));
    let mut slots = snapshot.slots();
    for (name, value) in [("host.name", &host), ("service.instance.id", &instance)] {
        slots.set(snapshot.symbols.get(name).unwrap(), Some(value));
    }
    for salt in [None, Some("2026-q4")] {
        let cohorts: Vec<_> = rollout.stages.iter().map(|stage| &stage.cohort).collect();
        let names = &rollout.hash_attributes;
        let cohorts = Cohorts::new(&snapshot.symbols, cohorts, 2, names, salt).unwrap();
        let (count, membership) = allocations(|| member(&cohorts, &slots));
        assert_eq!(count, 0, "salt {salt:?}");
        assert!(membership.is_member());
    }
}

#[test]
fn telling_a_collector_apart_allocates_nothing_up_to_32_attributes() {
    let mut rollout = snapshot(20).rollouts[0].rollout.clone();
    let reported = |count: usize| -> Vec<(String, String)> {
        (0..count).map(|n| (format!("key-{}", n * 7 % count), "v".repeat(100))).collect()
    };
    let few = reported(INLINE_ATTRIBUTES);
    let find = |name: &str| few.iter().find(|(key, _)| key == name).map(|(_, value)| &**value);
    let uid = [7; 16];
    let (count, by_attributes) = allocations(|| identity(&rollout, borrowed(&few), find, &uid));
    assert_eq!(count, 0);
    assert_eq!(allocations(|| plain(borrowed(&few), &uid)), (0, by_attributes));
    rollout.identity = vec!["key-3".to_owned(), "key-1".to_owned()];
    let (count, by_list) = allocations(|| identity(&rollout, borrowed(&few), find, &uid));
    assert_eq!(count, 0);
    assert_ne!(by_list, by_attributes);
    let many = reported(INLINE_ATTRIBUTES + 1);
    assert!(allocations(|| plain(borrowed(&many), &uid)).0 > 0, "the limit is where it is said");
}

#[test]
fn the_counter_counts() {
    assert_eq!(allocations(|| Vec::<u8>::with_capacity(1)).0, 1);
    assert_eq!(allocations(|| Box::new(1_u64)).0, 1);
    assert_eq!(allocations(|| 1).0, 0);
}
