//! Two links under one uid (serving.md, decision 13).

use super::*;

fn world() -> World {
    World::new(&Estate::new().tier("a/one", &[("tier", "one")], "one: 1\n"))
}

fn first(sequence: u64) -> opamp::AgentToServer {
    described(1, sequence, &[("tier", "one")])
}

/// Agent 1 on an old link with a few heartbeats, and again on a new one.
fn contested(world: &World, newcomer: &opamp::AgentToServer) -> (LinkId, LinkId) {
    let (old, new) = (world.link(), world.link());
    world.send(old, &first(0));
    for sequence in 1..=40 {
        world.send(old, &message(1, sequence));
    }
    let reply = world.send(new, newcomer);
    assert_eq!(reply.agent_identification, None, "the newcomer is served at once, as it is");
    (old, new)
}

fn ping(world: &World, link: LinkId) {
    assert_eq!(world.orders(), [Order::Ping { link, uid: uid(1) }]);
    world.on(link, |link| world.server.handle_pinged(link, uid(1), now(world.now)));
}

#[test]
fn a_half_open_link_is_dropped_and_nobody_is_renamed() {
    let mut world = world();
    let (old, new) = contested(&world, &first(0));
    ping(&world, old);
    world.now += 5;
    assert_eq!(world.orders(), []);
    world.now += 1;
    assert_eq!(world.orders(), [Order::Drop { link: old }]);
    world.close(old);
    assert!(world.server.knows(&uid(1)), "the old close is harmless");
    assert_eq!(world.send(new, &message(1, 1)).agent_identification, None);
    assert_eq!(world.census(), ["a/one none pending: 1"]);
}

#[test]
fn row_37_two_living_clones_get_one_new_uid_and_do_not_fight() {
    let mut world = world();
    let (old, new) = contested(&world, &first(0));
    ping(&world, old);
    world.on(old, |link| world.server.handle_alive(link, now(world.now)));
    assert_eq!(world.send(old, &message(1, 41)).agent_identification, None);
    let reply = world.send(new, &message(1, 1));
    let given = reply.agent_identification.expect("a new uid").new_instance_uid;
    assert_eq!(world.send(new, &message(1, 2)).agent_identification, None, "said once");

    let mut renamed = message(1, 3);
    renamed.instance_uid = given;
    assert_eq!(world.send(new, &renamed).flags, 0);
    world.orders();
    assert_eq!(world.metric("tidegate_duplicate_identities"), Some(1.0));

    // A third clone within the hour keeps the uid: serving both is better than a war.
    let third = world.link();
    world.send(third, &first(0));
    world.now += 1;
    world.orders();
    for _ in 0..100 {
        world.now += 30;
        world.on(old, |link| world.server.handle_alive(link, now(world.now)));
        world.orders();
    }
    assert_eq!(world.send(third, &message(1, 1)).agent_identification, None);
}

#[test]
fn a_message_of_the_old_link_answers_as_well_as_a_pong() {
    let world = world();
    let (old, new) = contested(&world, &first(0));
    ping(&world, old);
    world.send(old, &message(1, 41));
    assert!(world.send(new, &message(1, 1)).agent_identification.is_some());
}

#[test]
fn the_same_process_on_a_second_link_keeps_its_uid() {
    let world = world();
    let (old, new) = contested(&world, &message(1, 41));
    ping(&world, old);
    world.on(old, |link| world.server.handle_alive(link, now(world.now)));
    assert_eq!(world.send(new, &message(1, 42)).agent_identification, None);
}

#[test]
fn a_bridge_on_either_side_keeps_its_uids() {
    for bridge_is_old in [true, false] {
        let world = world();
        let (old, new) = contested(&world, &first(0));
        world.send(if bridge_is_old { old } else { new }, &described(2, 0, &[]));
        ping(&world, old);
        world.on(old, |link| world.server.handle_alive(link, now(world.now)));
        assert_eq!(world.send(new, &message(1, 1)).agent_identification, None);
    }
}

#[test]
fn over_http_the_newest_wins() {
    let world = world();
    let link = world.link();
    world.send(link, &first(0));
    world.poll(&first(0));
    assert_eq!(world.server.owner(&uid(1)), Some(Owner::Http));
    ping(&world, link);
    world.on(link, |link| world.server.handle_alive(link, now(world.now)));
    assert_eq!(world.poll(&message(1, 1)).agent_identification, None);

    let newer = world.link();
    world.send(newer, &first(0));
    assert_eq!(world.server.owner(&uid(1)), Some(Owner::Link(newer)));
    assert_eq!(world.server.polling(), 0, "its session has nothing more to say");
    assert_eq!(world.orders(), []);
}

#[test]
fn a_link_that_closes_ends_its_contest_before_its_name_is_used_again() {
    let mut world = world();
    let (old, _) = contested(&world, &first(0));
    ping(&world, old);
    world.close(old);
    assert_eq!(world.link(), old);
    world.now += 60;
    assert_eq!(world.orders(), []);
}
