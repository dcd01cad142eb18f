//! What the evidence of a Rollout is told (rollouts.md, decisions 5, 7, 11 and 13).

use opamp::RemoteConfigStatuses::{Applied, Applying, Failed};
use render::rollout::evidence::{Conn, Identity, Reading, Record, Seat};
use render::rollout::identity;

use super::*;
use crate::aggregate::Cell;

const NEXT: &str = "service: {pipelines: {traces: {receivers: [a], exporters: [next]}}}\n";
const BASE: &str = "service: {pipelines: {traces: {receivers: [a], exporters: [base]}}}\n";

fn staged() -> Estate {
    Estate::new()
        .tier("a/one", &[("tier", "one")], BASE)
        .rollout("a/one", estate::hosts(&["h1", "h2"]), NEXT)
        .tier("b/two", &[("tier", "two")], "two: 1\n")
}

const MEMBER: [(&str, &str); 2] = [("tier", "one"), ("host.name", "h1")];
const CONTROL: [(&str, &str); 2] = [("tier", "one"), ("host.name", "h9")];

fn ms(seconds: u32) -> u64 {
    now(seconds).unix_ms
}

fn effective(message: opamp::AgentToServer, files: &[(&str, &str)]) -> opamp::AgentToServer {
    let files = files.iter().map(|(name, body)| {
        let file = opamp::AgentConfigFile {
            body: body.as_bytes().to_vec().into(),
            content_type: "text/yaml".into(),
            ..Default::default()
        };
        ((*name).into(), file)
    });
    let config_map = Some(opamp::AgentConfigMap { config_map: files.collect() });
    let effective_config = Some(opamp::EffectiveConfig { config_map });
    opamp::AgentToServer { effective_config, ..message }
}

/// As the Rollout's own rule names a collector of these non-identifying attributes.
fn identity_of(world: &World, agent: u32, attributes: &[(&str, &'static str)]) -> Identity {
    let head = world.server.head();
    let lookup = |name: &str| attributes.iter().find(|(key, _)| *key == name).map(|(_, v)| *v);
    let rollout = &head.snapshot.rollouts[0].rollout;
    identity::identity(rollout, std::iter::empty(), lookup, &uid(agent).0)
}

impl World {
    fn cell(&self) -> Arc<Cell> {
        Arc::clone(&self.server.head().evidence[0])
    }

    fn record(&self, agent: u32, attributes: &[(&str, &'static str)]) -> Option<Record> {
        self.cell().record(identity_of(self, agent, attributes))
    }

    fn member(&self) -> Record {
        self.record(1, &MEMBER).expect("a record of the member")
    }

    fn silence(&self, link: LinkId, heard: u32) {
        let now = now(self.now);
        self.on(link, |link| self.server.handle_silence(link, now, heard, &|| false));
    }

    /// As [`Self::silence`] while something of the link lies unread.
    fn unread(&self, link: LinkId, heard: u32) {
        let now = now(self.now);
        self.on(link, |link| self.server.handle_silence(link, now, heard, &|| true));
    }
}

#[test]
fn a_member_takes_the_candidate_and_runs_it() {
    let mut world = World::new(&staged());
    let link = world.link();
    world.send(link, &described(1, 0, &MEMBER));
    let offered = world.member();
    assert_eq!(offered.arm.map(|(_, arm)| arm), Some(Reading::Taking));
    assert_eq!(offered.observed.map(|(_, seen)| seen.seat), Some(Seat::Stage(0)));
    assert_eq!(offered.conn.map(|(_, conn)| conn), Some(Conn::Open));
    assert_eq!((offered.heard_ms, offered.first_to_ms), (ms(1), None), "it may not have arrived");

    world.now = 2;
    world.send(link, &with_status(message(1, 1), NEXT, Applying));
    assert_eq!(world.member().first_to_ms, Some(ms(2)));
    world.now = 3;
    world.send(link, &with_status(message(1, 2), NEXT, Applied));
    let runs = world.member();
    assert_eq!(runs.arm.map(|(_, arm)| arm), Some(Reading::To));
    assert_eq!((runs.first_to_ms, runs.failed), (Some(ms(2)), None));
    assert!(runs.applied.is_some());

    world.now = 30;
    world.send(link, &with_status(message(1, 3), NEXT, Applied));
    world.send(link, &message(1, 4));
    assert_eq!(world.member(), runs, "a message without news tells nothing");
}

#[test]
fn the_control_group_is_tracked_and_other_tiers_are_not() {
    let world = World::new(&staged());
    let link = world.link();
    world.send(link, &with_status(described(1, 0, &CONTROL), BASE, Applied));
    let control = world.record(1, &CONTROL).expect("a record");
    assert_eq!(control.arm.map(|(_, arm)| arm), Some(Reading::From));
    assert_eq!(control.observed.map(|(_, seen)| seen.seat), Some(Seat::Control));
    let other = world.link();
    world.send(other, &described(2, 0, &[("tier", "two"), ("host.name", "h1")]));
    world.send(other, &described(3, 0, &[]));
    assert_eq!(world.cell().len(), 1);
}

#[test]
fn health_is_told_when_it_changes() {
    let world = World::new(&staged());
    let link = world.link();
    world.send(link, &described(1, 0, &MEMBER));
    let healthy = |world: &World| world.member().observed.and_then(|(_, seen)| seen.healthy);
    assert_eq!(healthy(&world), None);
    let health = opamp::ComponentHealth { healthy: false, ..Default::default() };
    world.send(link, &opamp::AgentToServer { health: Some(health), ..message(1, 1) });
    assert_eq!(healthy(&world), Some(false));
}

#[test]
fn how_it_went_is_told() {
    let mut world = World::new(&staged());
    let link = world.link();
    world.send(link, &described(1, 0, &MEMBER));
    world.now = 20;
    world.send(link, &message(1, 1));
    world.now = 50;
    world.close(link);
    let lost = world.member();
    assert_eq!(lost.conn.map(|(_, conn)| conn), Some(Conn::Lost));
    assert_eq!(lost.heard_ms, ms(20), "a closed link is silence");

    let link = world.link();
    world.send(link, &described(1, 0, &MEMBER));
    let back = world.member();
    assert_eq!(back.conn.map(|(_, conn)| conn), Some(Conn::Open));
    assert!(back.conn.map(|(session, _)| session) > lost.conn.map(|(session, _)| session));
    world.now = 80;
    let parting = Parting { heard: 79, drained: true };
    world.on(link, |link| world.server.handle_closed(link, now(80), parting));
    let drained = world.member();
    assert_eq!(drained.conn.map(|(_, conn)| conn), Some(Conn::Drained));
    assert_eq!(drained.heard_ms, ms(79));

    let link = world.link();
    world.send(link, &described(1, 0, &MEMBER));
    world.send(link, &bye(message(1, 1)));
    world.close(link);
    assert_eq!(world.member().conn.map(|(_, conn)| conn), Some(Conn::Left));
}

#[test]
fn an_old_links_end_says_nothing_of_the_new_one() {
    let mut world = World::new(&staged());
    let old = world.link();
    world.send(old, &described(1, 0, &MEMBER));
    world.now = 2;
    let new = world.link();
    world.send(new, &described(1, 1, &MEMBER));
    world.close(old);
    assert_eq!(world.member().conn.map(|(_, conn)| conn), Some(Conn::Open));
}

#[test]
fn who_leaves_the_tier_is_outside_until_it_is_back() {
    let mut world = World::new(&staged());
    let link = world.link();
    world.send(link, &described(1, 0, &MEMBER));
    let seat = |world: &World| world.member().observed.map(|(_, seen)| seen.seat);
    world.send(link, &described(1, 1, &[("tier", "two"), ("host.name", "h1")]));
    assert_eq!(seat(&world), Some(Seat::Outside));
    world.now = 5;
    world.send(link, &described(1, 2, &MEMBER));
    assert_eq!(seat(&world), Some(Seat::Stage(0)));
    assert_eq!(world.member().conn.map(|(_, conn)| conn), Some(Conn::Open));

    let before = world.cell();
    world.install(&staged().without_rollout("a/one"));
    let record = before.record(identity_under(&staged(), 1, &MEMBER)).expect("a record");
    assert_eq!(record.observed.map(|(_, seen)| seen.seat), Some(Seat::Outside));
    world.install(&staged());
    assert_eq!(seat(&world), Some(Seat::Stage(0)));
}

fn identity_under(estate: &Estate, agent: u32, attributes: &[(&str, &'static str)]) -> Identity {
    identity_of(&World::new(estate), agent, attributes)
}

#[test]
fn a_stage_edit_moves_members_without_a_word_from_them() {
    let world = World::new(&staged());
    let link = world.link();
    world.send(link, &described(1, 0, &CONTROL));
    let wider = staged().rollout("a/one", estate::hosts(&["h1", "h2", "h9"]), NEXT);
    assert_eq!(world.install(&wider), [(uid(1), NEXT.into())]);
    let record = world.record(1, &CONTROL).expect("a record");
    assert_eq!(record.observed.map(|(_, seen)| seen.seat), Some(Seat::Stage(0)));
    assert_eq!(record.arm.map(|(_, arm)| arm), Some(Reading::Taking));
}

#[test]
fn silence_is_told_and_so_is_its_end() {
    let mut world = World::new(&staged());
    let link = world.link();
    world.send(link, &described(1, 0, &MEMBER));
    let open = world.member();
    world.now = 90;
    world.silence(link, 0);
    assert_eq!(world.member(), open, "89 seconds are no silence");
    world.now = 91;
    world.silence(link, 30);
    assert_eq!(world.member(), open, "a pong vouches for the only agent of a link");
    world.unread(link, 1);
    assert_eq!(world.member(), open, "what nobody has read yet may vouch for it");
    world.silence(link, 1);
    let silent = world.member();
    assert_eq!(silent.conn.map(|(_, conn)| conn), Some(Conn::Lost));
    assert_eq!(silent.heard_ms, ms(1));

    world.now = 100;
    world.send(link, &message(1, 1));
    let heard = world.member();
    assert_eq!(heard.conn.map(|(_, conn)| conn), Some(Conn::Open));
    assert_eq!(heard.heard_ms, ms(100));
    world.now = 190;
    world.silence(link, 0);
    world.silence(link, 185);
    assert_eq!(world.member().conn.map(|(_, conn)| conn), Some(Conn::Open), "a pong ends it too");
    assert_eq!(world.member().heard_ms, ms(185));
}

#[test]
fn a_bridge_vouches_for_none_of_its_agents() {
    let mut world = World::new(&staged());
    let link = world.link();
    world.send(link, &described(1, 0, &MEMBER));
    world.send(link, &described(2, 0, &[("tier", "one"), ("host.name", "h2")]));
    world.now = 91;
    world.send(link, &message(2, 1));
    world.silence(link, 91);
    assert_eq!(world.member().conn.map(|(_, conn)| conn), Some(Conn::Lost));
    let other = world.record(2, &[("tier", "one"), ("host.name", "h2")]).expect("a record");
    assert_eq!(other.conn.map(|(_, conn)| conn), Some(Conn::Open));
}

#[test]
fn an_offer_counts_as_taken_once_something_comes_after_it() {
    let mut world = World::new(&staged());
    let link = world.link();
    world.send(link, &described(1, 0, &MEMBER));
    world.now = 1 + OFFER_ARRIVES_SECONDS - 1;
    world.send(link, &message(1, 1));
    assert_eq!(world.member().first_to_ms, None, "they may have crossed");
    world.now = 1 + OFFER_ARRIVES_SECONDS;
    world.send(link, &message(1, 2));
    assert_eq!(world.member().first_to_ms, Some(ms(world.now)));

    let attributes = [("tier", "one"), ("host.name", "h2")];
    let link = world.link();
    let offered = world.now;
    world.send(link, &described(2, 0, &attributes));
    world.now += 45;
    world.on(link, |link| world.server.handle_alive(link, now(world.now)));
    let ponged = world.record(2, &attributes).expect("a record");
    assert_eq!(ponged.first_to_ms, Some(ms(offered)), "its silence may have begun then");
    world.close(link);
    let closed = world.record(2, &attributes).expect("a record");
    assert_eq!(closed.first_to_ms, Some(ms(offered)));
}

#[test]
fn an_offer_that_the_peers_kernel_acknowledged_was_taken() {
    let mut world = World::new(&staged());
    let (member, control) = (world.link(), world.link());
    world.send(member, &described(1, 0, &MEMBER));
    world.send(control, &described(2, 0, &CONTROL));
    let awaits = |link| world.on(link, |link| world.server.awaits_arrival(link));
    assert!(awaits(member));
    assert!(!awaits(control), "it was sent the base");
    assert_eq!(world.member().first_to_ms, None);
    world.now = 5;
    for link in [member, control] {
        world.on(link, |link| world.server.handle_arrived(link, now(5)));
    }
    assert_eq!(world.member().first_to_ms, Some(ms(1)));
    assert_eq!(world.record(2, &CONTROL).expect("a record").first_to_ms, None);
    assert!(!world.on(member, |link| world.server.awaits_arrival(link)));
}

#[test]
fn an_offer_into_a_dead_socket_was_not_taken() {
    let mut world = World::new(&staged());
    let link = world.link();
    world.send(link, &described(1, 0, &MEMBER));
    world.now = 200;
    world.silence(link, 0);
    world.close(link);
    let record = world.member();
    assert_eq!((record.first_to_ms, record.heard_ms), (None, ms(1)));
}

#[test]
fn a_poller_is_told_at_every_third_of_dark_after_and_with_news() {
    let mut world = World::new(&staged());
    world.poll(&described(1, 0, &MEMBER));
    let first = world.member();
    assert_eq!(first.conn.map(|(_, conn)| conn), Some(Conn::Lost), "an exchange is over at once");
    assert_eq!(first.heard_ms, ms(1));
    world.now = 30;
    world.poll(&message(1, 1));
    assert_eq!(world.member(), first);
    world.now = 31;
    world.poll(&message(1, 2));
    let vouched = world.member();
    assert_eq!(vouched.heard_ms, ms(31));
    assert!(vouched.conn > first.conn);
    assert_eq!(vouched.first_to_ms, None, "a reply may be lost while the polls go on");
    world.now = 35;
    world.poll(&with_status(message(1, 3), NEXT, Failed));
    let failed = world.member();
    assert!(failed.failed_now());
    assert_eq!(failed.heard_ms, ms(35));
    world.now = 50;
    world.poll(&message(1, 4));
    world.now = 141;
    world.orders();
    assert_eq!((world.server.polling(), world.member().heard_ms), (0, ms(50)));
    world.poll(&described(1, 0, &MEMBER));
    world.poll(&bye(message(1, 1)));
    assert_eq!(world.member().conn.map(|(_, conn)| conn), Some(Conn::Left));
}

#[test]
fn a_failure_of_another_configuration_is_another_deliverys() {
    let world = World::new(&staged());
    let link = world.link();
    world.send(link, &described(1, 0, &MEMBER));
    world.send(link, &with_status(message(1, 1), "another: 1\n", Failed));
    world.send(link, &with_status(message(1, 2), BASE, Failed));
    assert_eq!(world.member().failed, None);
}

#[test]
fn a_rollback_leaves_the_failure_where_it_is() {
    let mut world = World::new(&staged());
    let link = world.link();
    world.send(link, &described(1, 0, &MEMBER));
    world.send(link, &with_status(message(1, 1), NEXT, Failed));
    let failed = world.member();
    assert!(failed.failed_now());
    world.now = 2;
    world.send(link, &with_status(message(1, 2), BASE, Applied));
    let back = world.member();
    assert!(back.failed_now());
    assert_eq!(back.failed, failed.failed);
    assert_eq!(back.arm.map(|(_, arm)| arm), Some(Reading::From));
    world.send(link, &with_status(message(1, 3), NEXT, Failed));
    assert_eq!(world.member().failed, failed.failed, "repeated, it is no news");
    world.send(link, &with_status(message(1, 4), NEXT, Applied));
    assert!(!world.member().failed_now());
}

#[test]
fn a_head_that_asks_for_more_changes_nothing_until_it_is_answered() {
    let mut world = World::new(&staged());
    let (one, other) = (world.link(), world.link());
    world.send(one, &with_status(described(1, 0, &CONTROL), BASE, Applied));
    world.send(other, &with_status(described(2, 0, &MEMBER), NEXT, Applied));
    let (before, member) = (world.record(1, &CONTROL), world.record(2, &MEMBER));
    world.now = 20;
    world.install(&staged().tier("z/z", &[("zone", "z")], "z: 1\n"));
    assert_eq!(world.send(one, &message(1, 1)).flags, 1);
    assert_eq!(world.send(other, &message(2, 1)).flags, 1);
    assert_eq!(world.record(1, &CONTROL), before);
    assert_eq!(world.record(2, &MEMBER), member);
    let failed = with_status(message(2, 2), NEXT, Failed);
    world.send(other, &failed);
    assert!(world.record(2, &MEMBER).expect("a record").failed_now());
}

fn foreign(sequence: u64, attributes: &[(&str, &str)]) -> opamp::AgentToServer {
    opamp::AgentToServer { capabilities: 0x1 | 0x4, ..described(1, sequence, attributes) }
}

#[test]
fn what_a_foreign_collector_runs_is_read_from_its_pipelines() {
    let mut world = World::new(&staged());
    let link = world.link();
    let arm = |world: &World| world.member().arm.map(|(_, arm)| arm);
    let first = world.send(link, &effective(foreign(0, &MEMBER), &[("", BASE)]));
    assert_eq!(offered(&first), None, "it is read, never offered");
    assert_eq!(arm(&world), Some(Reading::From));
    assert_eq!(world.member().observed.map(|(_, seen)| seen.foreign), Some(true));
    assert_eq!(world.census(), ["a/one from foreign: 1"]);

    let next = format!("# another comment\nprocessors: {{x: 1}}\n{NEXT}");
    world.send(link, &effective(message(1, 1), &[("a", &next), ("b", " \n")]));
    assert_eq!(arm(&world), Some(Reading::To));
    assert_eq!(world.census(), ["a/one to foreign: 1"]);
    for (files, expected) in [
        (&[("a", NEXT), ("b", NEXT)][..], Reading::Unknown),
        (&[("", "service: {}\n")], Reading::Other),
        (&[("", "not: [yaml")], Reading::Unknown),
        (&[("", NEXT)], Reading::To),
        (&[("", "\n")], Reading::Unknown),
    ] {
        let sequence = world.now.into();
        world.now += 1;
        world.send(link, &effective(message(1, sequence), files));
        assert_eq!(arm(&world), Some(expected), "{files:?}");
    }
    let page = world.server.collectors(&world.links, now(world.now), Cursor::default(), 1);
    assert_eq!(page.rows[0].running, Some(Reading::Unknown));
}

#[test]
fn a_foreign_collector_that_acknowledges_is_believed() {
    let world = World::new(&staged());
    let link = world.link();
    world.send(link, &effective(foreign(0, &MEMBER), &[("", BASE)]));
    world.send(link, &with_status(message(1, 1), NEXT, Applying));
    assert_eq!(world.member().arm.map(|(_, arm)| arm), Some(Reading::From), "it is not there yet");
    world.send(link, &with_status(message(1, 2), NEXT, Applied));
    assert_eq!(world.member().arm.map(|(_, arm)| arm), Some(Reading::To));
}

#[test]
fn who_does_not_report_status_is_read_from_its_pipelines() {
    let world = World::new(&staged());
    let link = world.link();
    let silent = opamp::AgentToServer { capabilities: ACCEPTS | 0x4, ..described(1, 0, &MEMBER) };
    assert!(offered(&world.send(link, &effective(silent, &[("", BASE)]))).is_some());
    let arm = |world: &World| world.member().arm.map(|(_, arm)| arm);
    assert_eq!(arm(&world), Some(Reading::Taking));
    world.send(link, &effective(message(1, 1), &[("", NEXT)]));
    assert_eq!(arm(&world), Some(Reading::To));
    assert!(world.member().took_candidate());
}

#[test]
fn a_rollout_that_begins_asks_who_is_there_already_what_it_runs() {
    let mut world = World::new(&staged().without_rollout("a/one"));
    let link = world.link();
    let attributes = [("tier", "one"), ("host.name", "h1")];
    world.send(link, &effective(foreign(0, &attributes), &[("", BASE)]));
    world.now = 20;
    // The host's name was not kept: no head asked for it.
    let kept = staged().without_rollout("a/one").tier("z/z", &[("host.name", "nobody")], "z: 1\n");
    world.install(&kept);
    world.send(link, &effective(foreign(1, &attributes), &[("", BASE)]));
    world.install(&staged().tier("z/z", &[("host.name", "nobody")], "z: 1\n"));
    let asked = world.send(link, &message(1, 2));
    assert_eq!(asked.flags, 1);
    world.send(link, &effective(foreign(3, &attributes), &[("", BASE)]));
    assert_eq!(world.member().arm.map(|(_, arm)| arm), Some(Reading::From));
}

#[test]
fn the_label_and_the_version_of_a_failure_are_told_with_it() {
    let mut world = World::new(&staged());
    let link = world.link();
    let mut attributes = MEMBER.to_vec();
    attributes.push(("service.version", "0.158.0"));
    world.send(link, &described(1, 0, &attributes));
    world.send(link, &with_status(message(1, 1), NEXT, Failed));
    world.now = 2;
    world.server.aggregator().handle_timeout(now(world.now));
    let reports = world.server.aggregator().reports();
    let halted = &reports["a/one"].halted;
    assert_eq!(halted.len(), 1);
    assert_eq!((&*halted[0].label, &*halted[0].version), ("h1", "0.158.0"));
    assert!(halted[0].error.contains("says"), "{:?}", halted[0].error);
}
