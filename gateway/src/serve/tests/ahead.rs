//! Collectors that know more than this replica, or seem to.

use super::*;
use opamp::RemoteConfigStatuses::{Applied, Applying, Failed};

fn estate(base: &str) -> Estate {
    Estate::new().tier("a/one", &[("tier", "one")], base)
}

/// A replica that looks early, at the first head.
fn world() -> World {
    let world = World::new(&estate("one: 1\n"));
    world.server.ahead().enable();
    world
}

fn coming(agent: u32) -> opamp::AgentToServer {
    described(agent, 0, &[("tier", "one")])
}

/// Ends an early look: what it lets go.
fn ended(world: &World) -> Vec<(LinkId, Option<String>)> {
    world.server.ahead().begin();
    let release = |id: LinkId| {
        let mut sent = None;
        let _ = world.on(id, |link| {
            world.server.release(link, now(world.now), &mut |outgoing| {
                sent = offered(&decode(&outgoing));
                ControlFlow::Continue(())
            })
        });
        (id, sent)
    };
    world.server.ahead().end().into_iter().map(release).collect()
}

#[test]
fn who_has_what_the_next_head_says_is_not_taken_back() {
    let world = world();
    let (taken, taking) = (world.link(), world.link());
    let message = with_status(coming(1), "one: 2\n", Applied);
    assert_eq!(offered(&world.send(taken, &message)), None);
    let message = with_status(coming(2), "one: 2\n", Applying);
    assert_eq!(offered(&world.send(taking, &message)), None);
    assert_eq!(world.install(&estate("one: 2\n")), [], "they have it");
    assert_eq!(ended(&world), [(taken, None), (taking, None)]);
    assert_eq!(world.census(), ["a/one none applying: 1", "a/one none applied: 1"]);
}

#[test]
fn who_has_what_nobody_here_ever_served_is_offered_once_the_source_was_looked_at() {
    let world = world();
    let link = world.link();
    let message = with_status(coming(1), "elsewhere: 1\n", Applied);
    assert_eq!(offered(&world.send(link, &message)), None);
    let again = with_status(super::message(1, 1), "elsewhere: 1\n", Applied);
    assert_eq!(offered(&world.send(link, &again)), None, "the look has not ended");
    let released = Some("one: 1\n".to_owned());
    assert_eq!(ended(&world)[0], (link, released));
    let second = world.link();
    let message = with_status(coming(2), "elsewhere: 1\n", Applied);
    assert_eq!(offered(&world.send(second, &message)).as_deref(), Some("one: 1\n"), "at once");
    assert_eq!(ended(&world), []);
}

#[test]
fn who_is_behind_and_who_has_nothing_are_offered_at_once() {
    let world = world();
    world.install(&estate("one: 2\n"));
    let message = with_status(coming(1), "one: 1\n", Applied);
    assert_eq!(offered(&world.send(world.link(), &message)).as_deref(), Some("one: 2\n"));
    assert_eq!(offered(&world.send(world.link(), &coming(2))).as_deref(), Some("one: 2\n"));
    assert_eq!(ended(&world), []);
}

#[test]
fn a_candidate_that_this_replica_withdrew_is_taken_back_at_once() {
    let cohort = || render::estate::Cohort { percent: 100, ..Default::default() };
    let staged = || estate("one: 1\n").rollout("a/one", cohort(), "one: 2\n");
    let world = World::new(&staged());
    world.server.ahead().enable();
    world.install(&staged().without_rollout("a/one"));
    let message = with_status(coming(1), "one: 2\n", Applied);
    assert_eq!(offered(&world.send(world.link(), &message)).as_deref(), Some("one: 1\n"));
    assert_eq!(ended(&world), []);
}

#[test]
fn what_failed_elsewhere_is_remembered_while_the_offer_waits() {
    let world = world();
    let link = world.link();
    let message = with_status(coming(1), "one: 2\n", Failed);
    assert_eq!(offered(&world.send(link, &message)), None);
    assert_eq!(world.install(&estate("one: 2\n")), [], "it failed there: not offered again");
    assert_eq!(ended(&world), [(link, None)]);
}

#[test]
fn a_push_waits_for_nobody() {
    let world = world();
    let link = world.link();
    world.send(link, &with_status(coming(1), "elsewhere: 1\n", Applied));
    assert_eq!(world.install(&estate("one: 3\n")), [(uid(1), "one: 3\n".into())]);
    assert_eq!(ended(&world), [(link, None)], "it was offered already");
}

#[test]
fn a_poller_gets_the_held_offer_with_a_later_poll() {
    let mut world = world();
    let message = with_status(coming(1), "elsewhere: 1\n", Applied);
    assert_eq!(offered(&world.poll(&message)), None);
    assert_eq!(ended(&world), []);
    world.now += 30;
    let next = with_status(super::message(1, 1), "elsewhere: 1\n", Applied);
    assert_eq!(offered(&world.poll(&next)).as_deref(), Some("one: 1\n"));
}
