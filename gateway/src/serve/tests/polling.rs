//! Agents that poll over HTTP.

use super::*;
use opamp::RemoteConfigStatuses::Applied;

fn world() -> World {
    World::new(&Estate::new().tier("a/one", &[("tier", "one")], "one: 1\n"))
}

fn first(agent: u32) -> opamp::AgentToServer {
    described(agent, 0, &[("tier", "one")])
}

#[test]
fn a_poller_gets_a_new_head_with_its_next_poll() {
    let mut world = world();
    assert_eq!(offered(&world.poll(&first(1))).as_deref(), Some("one: 1\n"));
    world.now += 30;
    assert_eq!(offered(&world.poll(&with_status(message(1, 1), "one: 1\n", Applied))), None);
    let head = Estate::new().tier("a/one", &[("tier", "one")], "one: 2\n");
    assert_eq!(world.install(&head), []);
    world.now += 30;
    assert_eq!(offered(&world.poll(&message(1, 2))).as_deref(), Some("one: 2\n"));
    assert_eq!(offered(&world.poll(&message(1, 3))), None, "not twice");
}

#[test]
fn who_was_silent_for_ninety_seconds_is_a_stranger_that_moved() {
    let mut world = world();
    world.poll(&first(1));
    world.now += 90;
    assert_eq!(world.poll(&message(1, 1)).flags, 0);
    assert!(world.server.polls(&uid(1), now(world.now)));
    world.now += 91;
    assert!(!world.server.polls(&uid(1), now(world.now)));
    assert_eq!(world.poll(&message(1, 2)).flags, 1);
    let series = r#"tidegate_full_state_requests_total{reason="moved"}"#;
    assert_eq!(world.metric(series), Some(1.0));
    let full = opamp::AgentToServer { sequence_num: 3, ..first(1) };
    assert_eq!(offered(&world.poll(&full)).as_deref(), Some("one: 1\n"));
}

#[test]
fn row_21_a_farewell_ends_the_session_at_once() {
    let world = world();
    world.poll(&first(1));
    assert_eq!(world.metric(r#"tidegate_connections{transport="http"}"#), Some(1.0));
    world.poll(&bye(message(1, 1)));
    assert_eq!((world.server.polling(), world.server.agents()), (0, 0));
    assert_eq!(world.census(), Vec::<String>::new());
    assert_eq!(world.metric(r#"tidegate_connections{transport="http"}"#), Some(0.0));
    assert_eq!(offered(&world.poll(&first(1))).as_deref(), Some("one: 1\n"), "it is back");
}

#[test]
fn past_the_cap_the_one_silent_for_longest_makes_room() {
    let settings = Settings { http_sessions_max: 64, ..Settings::default() };
    let mut world = World::with(&Estate::new(), settings);
    for agent in 0..1_000 {
        world.poll(&described(agent, 0, &[]));
        world.now += u32::from(agent % 100 == 0);
    }
    assert!(world.server.polling() <= 64);
    assert!(world.server.polls(&uid(999), now(world.now)));
    assert_eq!(world.server.agents(), world.server.polling());
    let count: u64 = world.server.tiers().iter().map(TierCount::total).sum();
    assert_eq!(count, world.server.polling() as u64);
}

#[test]
fn a_refused_poll_leaves_no_session() {
    let world = world();
    let long = "x".repeat(KEPT_BYTES_MAX);
    assert!(world.poll(&described(1, 0, &[("tier", &long)])).error_response.is_some());
    let outgoing = world.poll_bytes(&Grant::default(), b"\xff");
    assert!(outgoing.refused);
    assert_eq!((world.server.polling(), world.server.agents()), (0, 0));
}

#[test]
fn an_agent_that_asks_for_a_uid_keeps_its_session() {
    let world = world();
    let reply = world.poll(&opamp::AgentToServer { flags: 1, ..first(1) });
    let new = reply.agent_identification.expect("a new uid").new_instance_uid;
    let mut next = message(1, 1);
    next.instance_uid = new;
    assert_eq!(world.poll(&next).flags, 0);
    assert_eq!((world.server.polling(), world.server.agents()), (1, 1));
}

#[test]
fn a_session_is_not_told_to_another_credential() {
    let world = world();
    let (one, other) = (grant("tier=one"), grant("tier=other"));
    assert!(offered(&world.poll_with(&one, &first(1))).is_some());
    world.install(&Estate::new().tier("a/one", &[("tier", "one")], "one: 2\n"));
    let spied = world.poll_with(&other, &message(1, 1));
    assert_eq!((offered(&spied), spied.flags), (None, 1), "a stranger is asked who it is");
    assert!(world.poll_with(&other, &first(1)).error_response.is_some());
    let back = opamp::AgentToServer { sequence_num: 2, ..first(1) };
    assert_eq!(offered(&world.poll_with(&one, &back)).as_deref(), Some("one: 2\n"));
    let rotated = grant("tier=one");
    assert_eq!(world.poll_with(&rotated, &message(1, 3)).flags, 0, "a token of equal rights");
    assert_eq!((world.server.polling(), world.server.agents()), (1, 1));
}

#[test]
fn an_agent_that_polls_is_given_a_uid_while_others_contest_theirs() {
    let world = world();
    let (old, new) = (world.link(), world.link());
    world.send(old, &first(2));
    world.send(new, &first(2));
    let reply = world.poll(&opamp::AgentToServer { flags: 1, ..first(1) });
    assert!(reply.agent_identification.is_some());
}
