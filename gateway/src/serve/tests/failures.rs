//! A candidate that failed on a collector (serving.md, decision 8).

use super::*;
use opamp::RemoteConfigStatuses::{Applied, Failed};

const NEXT: &str = "one: next\n";
const BASE: &str = "one: 1\n";

fn staged() -> Estate {
    Estate::new().tier("a/one", &[("tier", "one")], BASE).rollout(
        "a/one",
        estate::hosts(&["h1"]),
        NEXT,
    )
}

fn member(sequence: u64) -> opamp::AgentToServer {
    described(1, sequence, &[("tier", "one"), ("host.name", "h1")])
}

#[test]
fn it_is_served_the_base_and_counts_as_failed() {
    let world = World::new(&staged());
    let link = world.link();
    assert_eq!(offered(&world.send(link, &member(0))).as_deref(), Some(NEXT));
    let failed = world.send(link, &with_status(message(1, 1), NEXT, Failed));
    assert_eq!(offered(&failed).as_deref(), Some(BASE));
    let back = world.send(link, &with_status(message(1, 2), BASE, Applied));
    assert_eq!(offered(&back), None);
    assert_eq!(world.census(), ["a/one from failed: 1"]);
    let unrelated = staged().tier("z/z", &[("tier", "z")], "z: 1\n");
    assert_eq!(world.install(&unrelated), [], "a later head does not bring it back");

    let recovered = world.send(link, &with_status(message(1, 3), NEXT, Applied));
    assert_eq!(offered(&recovered), None);
    assert_eq!(world.census(), ["a/one to applied: 1"]);
}

#[test]
fn the_failure_is_remembered_over_links_and_transports() {
    let mut world = World::new(&staged());
    let link = world.link();
    world.send(link, &member(0));
    world.send(link, &with_status(message(1, 1), NEXT, Failed));
    world.close(link);

    let link = world.link();
    let again = world.send(link, &with_status(member(0), BASE, Applied));
    assert_eq!(offered(&again), None, "it runs the base, and the candidate failed on it");
    world.send(link, &bye(message(1, 1)));

    assert_eq!(offered(&world.poll(&with_status(member(0), BASE, Applied))), None);
    world.now += 91;
    world.orders();
    assert_eq!(world.server.polling(), 0);
    assert_eq!(offered(&world.poll(&with_status(member(0), BASE, Applied))), None);
    let recovered = world.poll(&with_status(message(1, 1), NEXT, Applied));
    assert_eq!(offered(&recovered), None);
    assert_eq!(world.census(), ["a/one to applied: 1"]);
}

#[test]
fn it_is_remembered_while_the_link_that_was_left_looks_alive() {
    let mut world = World::new(&staged());
    let left = world.link();
    world.send(left, &member(0));
    world.send(left, &with_status(message(1, 1), NEXT, Failed));
    let link = world.link();
    assert_eq!(offered(&world.send(link, &with_status(member(2), BASE, Applied))), None);
    world.close(left);
    assert_eq!(offered(&world.poll(&with_status(member(3), BASE, Applied))), None);
    // A collector that starts may report what it remembers; so soon that is no recovery.
    world.now += 3;
    let recovered = world.poll(&with_status(message(1, 4), NEXT, Applied));
    assert_eq!(offered(&recovered), None);
    world.close(link);
    let anew = world.link();
    assert_eq!(
        offered(&world.send(anew, &with_status(member(5), BASE, Applied))).as_deref(),
        Some(NEXT)
    );
}

#[test]
fn retry_failed_is_the_rollouts_to_say() {
    let mut retried = staged();
    retried.0.rollouts.get_mut("a/one").expect("the Rollout").halt.retry_failed = 1;
    for (estate, expected) in [(staged(), None), (retried, Some(NEXT))] {
        let mut world = World::new(&estate);
        let link = world.link();
        world.send(link, &member(0));
        world.send(link, &with_status(message(1, 1), NEXT, Failed));
        world.send(link, &with_status(message(1, 2), BASE, Applied));
        world.now += 600;
        assert_eq!(offered(&world.send(link, &message(1, 3))).as_deref(), expected);
    }
}
