//! A head change: who hears of it, and who does not.

use super::*;
use opamp::RemoteConfigStatuses::Applied;

fn estate() -> Estate {
    Estate::new().tier("b/one", &[("tier", "one")], "one: 1\n").tier(
        "b/two",
        &[("tier", "two")],
        "two: 1\n",
    )
}

/// Four collectors on four links: two of Tier one, one of Tier two, one Unmatched.
fn populated() -> World {
    let world = World::new(&estate());
    for (agent, tier) in [(1, "one"), (2, "one"), (3, "two"), (4, "?")] {
        let attributes = [("tier", tier), ("region", "eu"), ("host.name", "h1")];
        world.send(world.link(), &described(agent, 0, &attributes));
    }
    world
}

#[test]
fn only_those_whose_content_changed_hear_of_it_and_without_a_word_from_them() {
    let world = populated();
    let pushed = world.install(&estate().tier("b/one", &[("tier", "one")], "one: 2\n"));
    assert_eq!(pushed, [(uid(1), "one: 2\n".into()), (uid(2), "one: 2\n".into())]);
    assert_eq!(world.push(), [], "once");
}

#[test]
fn a_bridge_is_told_a_part_at_a_time_and_each_of_its_agents_once() {
    let world = World::new(&estate());
    let bridge = world.link();
    for agent in 1..=5 {
        world.send(bridge, &described(agent, 0, &[("tier", "one")]));
    }
    let next = estate().tier("b/one", &[("tier", "one")], "one: 2\n");
    world.server.install(next.compile(), HeadMeta::default(), now(world.now));
    let mut told = Vec::new();
    let mut visits = 0;
    let mut left = true;
    while left {
        visits += 1;
        let room = told.len() + 2;
        let visit = world.on(bridge, |link| {
            world.server.redecide(link, now(1), &mut |outgoing| {
                told.push(InstanceUid::from_slice(&decode(&outgoing).instance_uid).expect("uid"));
                if told.len() == room { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
        });
        left = visit.is_break();
    }
    told.sort_unstable();
    assert_eq!(told, (1..=5).map(uid).collect::<Vec<_>>());
    assert_eq!(visits, 3);
}

#[test]
fn a_commit_that_changes_nothing_sends_nothing() {
    let world = populated();
    let mut head = estate();
    head.0.commit = "c2".into();
    assert_eq!(world.install(&head), []);
    // The comment at the top names the commit; content is what is below it.
    let head = head.tier("b/one", &[("tier", "one")], "# commit c3\none: 1\n");
    assert_eq!(world.install(&head), []);
    let same = world.server.install(head.compile(), HeadMeta::default(), now(world.now));
    assert!(!same.changed);
}

#[test]
fn watchers_hear_of_heads_that_have_to_be_pushed() {
    let world = populated();
    let mut heads = world.server.heads();
    let before = *heads.borrow_and_update();
    let meta = HeadMeta { commit: "c9".into(), ..HeadMeta::default() };
    world.server.install(estate().compile(), meta, now(world.now));
    assert!(!heads.has_changed().expect("the server lives"));
    assert_eq!(&*world.server.head().meta.commit, "c9");
    let next = estate().tier("b/two", &[("tier", "two")], "two: 2\n");
    world.server.install(next.compile(), HeadMeta::default(), now(world.now));
    assert!(heads.has_changed().expect("the server lives"));
    assert_eq!(*heads.borrow_and_update(), before + 1);
}

#[test]
fn tiers_that_come_and_go_move_their_collectors() {
    let world = populated();
    let head = estate().tier("a/before", &[("tier", "?")], "before: 1\n");
    assert_eq!(world.install(&head), [(uid(4), "before: 1\n".into())]);
    let mut head = head;
    head.0.tiers.remove("b/one");
    let gone = "unmatched: 1\n";
    assert_eq!(world.install(&head), [(uid(1), gone.into()), (uid(2), gone.into())]);
    assert_eq!(
        world.census(),
        ["a/before none pending: 1", "b/two none pending: 1", "- unmatched pending: 2"]
    );
}

#[test]
fn a_heartbeat_between_swap_and_push_takes_the_offer_with_it() {
    let world = populated();
    let head = estate().tier("b/one", &[("tier", "one")], "one: 2\n");
    world.server.install(head.compile(), HeadMeta::default(), now(world.now));
    let reply = world.send(LinkId(0), &message(1, 1));
    assert_eq!(offered(&reply).as_deref(), Some("one: 2\n"));
    assert_eq!(world.push(), [(uid(2), "one: 2\n".into())]);
}

#[test]
fn an_attribute_that_was_kept_needs_no_question_and_another_one_does() {
    let mut world = populated();
    let staged = estate().rollout("b/one", estate::hosts(&["h1"]), "one: next\n");
    assert_eq!(world.install(&staged), [], "host.name was not kept: nothing is decided");
    world.now += 30;
    let asked = world.send(LinkId(0), &message(1, 1));
    assert_eq!((asked.flags, offered(&asked)), (1, None));
    let series = r#"tidegate_full_state_requests_total{reason="attributes"}"#;
    assert_eq!(world.metric(series), Some(1.0));
    let full = described(1, 2, &[("tier", "one"), ("host.name", "h1")]);
    assert_eq!(offered(&world.send(LinkId(0), &full)).as_deref(), Some("one: next\n"));

    // Agent 1 kept host.name now, and needs no question when it is gone and comes back.
    let back = world.install(&estate());
    assert_eq!(back, [(uid(1), "one: 1\n".into())]);
    let again = world.install(&staged);
    assert_eq!(again, [(uid(1), "one: next\n".into())]);
    assert_eq!(world.send(LinkId(0), &message(1, 3)).flags, 0);
}

#[test]
fn a_question_that_a_later_head_makes_needless_is_not_asked() {
    let world = populated();
    world.install(&estate().rollout("b/one", estate::hosts(&["h1"]), "one: next\n"));
    world.install(&estate());
    assert_eq!(world.send(LinkId(0), &message(1, 1)).flags, 0);
}

#[test]
fn a_stage_that_widens_moves_only_its_new_members() {
    let staged = |hosts: &[&str]| estate().rollout("b/one", estate::hosts(hosts), "one: next\n");
    let world = World::new(&staged(&["h1"]));
    for agent in 1..=3 {
        let host = format!("h{agent}");
        let attributes = [("tier", "one"), ("host.name", &host)];
        let reply = world.send(world.link(), &described(agent, 0, &attributes));
        let expected = if agent == 1 { "one: next\n" } else { "one: 1\n" };
        assert_eq!(offered(&reply).as_deref(), Some(expected));
        world.send(LinkId(agent - 1), &with_status(message(agent, 1), expected, Applied));
    }
    assert_eq!(world.census(), ["b/one to applied: 1", "b/one from applied: 2"]);
    assert_eq!(world.install(&staged(&["h1", "h2"])), [(uid(2), "one: next\n".into())]);
    assert_eq!(
        world.census(),
        ["b/one to pending: 1", "b/one to applied: 1", "b/one from applied: 1"]
    );
    let completed = estate().tier("b/one", &[("tier", "one")], "one: next\n");
    assert_eq!(world.install(&completed), [(uid(3), "one: next\n".into())]);
    let aborted = world.install(&staged(&[]).without_rollout("b/one"));
    assert_eq!(aborted.len(), 3);
    let series = r#"tidegate_offers_total{tier="b/one",rollout="b/one",arm="to"}"#;
    assert_eq!(world.metric(series), None, "its series go when the Rollout does");
}

#[test]
fn row_103_offers_that_some_clients_cannot_take_are_named() {
    let long = format!("one: {}\n", "x".repeat(128 * 1024));
    let head = estate().tier("b/one", &[("tier", "one")], &long).compile();
    let found: Vec<_> = long_offers(&head).map(|(tier, _)| tier).collect();
    assert_eq!(found, [Some("b/one")]);
    assert_eq!(long_offers(&estate().compile()).count(), 0);
}
