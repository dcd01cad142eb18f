//! Scenarios in virtual time.

use std::collections::BTreeMap;
use std::time::Duration;

use prost::Message;

use super::*;
use crate::faults::{Does, Fault};
use crate::model::Value;

const SECOND: Micros = 1_000_000;

#[test]
fn the_first_report_is_complete_and_says_that_nothing_was_offered() {
    let mut pair = Pair::connected();
    let (sent, message) = pair.next().unwrap();
    assert_eq!(sent, Sent::Full);
    assert_eq!((message.sequence_num, message.capabilities), (0, 0x3807));
    let description = message.agent_description.unwrap();
    assert_eq!(description.identifying_attributes[0].key, "service.name");
    assert_eq!(description.non_identifying_attributes[0].key, "process.pid");
    let status = message.remote_config_status.unwrap();
    assert_eq!((status.status, status.last_remote_config_hash.len()), (0, 0));
    assert!(!message.health.unwrap().healthy);
    let config = message.effective_config.unwrap().config_map.unwrap().config_map;
    assert_eq!(config[""].body.len(), 2_048);
    assert!(pair.next().is_none());
}

#[test]
fn an_offer_is_applying_at_once_and_applied_after_the_delay() {
    let mut pair = Pair::reported();
    pair.offer(b"h1", b"body");
    let (sent, message) = pair.next().unwrap();
    assert_eq!((sent, message.remote_config_status.unwrap().status), (Sent::Delta, 2));
    assert!(message.effective_config.is_none());
    assert_eq!(pair.agent.poll_timeout(), Some(SECOND / 2));

    pair.advance_to(SECOND / 2);
    let (_, message) = pair.next().unwrap();
    let status = message.remote_config_status.unwrap();
    assert_eq!((status.status, &status.last_remote_config_hash[..]), (1, &b"h1"[..]));
    let config = message.effective_config.unwrap().config_map.unwrap().config_map;
    assert_eq!(&config[""].body[..], b"body");
    assert!(message.health.unwrap().healthy);
    assert_eq!(pair.agent.applied().unwrap(), &b"h1"[..]);
    assert!(pair.agent.is_settled());
}

#[test]
fn an_offer_during_an_apply_takes_its_place() {
    let mut pair = Pair::reported();
    pair.offer(b"h1", b"one");
    pair.offer(b"h2", b"two");
    pair.next().unwrap();
    pair.advance_to(SECOND);
    let (_, message) = pair.next().unwrap();
    assert_eq!(&message.remote_config_status.unwrap().last_remote_config_hash[..], b"h2");
    assert!(pair.next().is_none());
}

#[test]
fn the_same_offer_again_changes_nothing() {
    let mut pair = Pair::reported();
    pair.offer(b"h1", b"one");
    pair.next().unwrap();
    pair.offer(b"h1", b"one");
    assert!(pair.next().is_none());
}

#[test]
fn an_idle_collector_sends_a_heartbeat_after_each_interval() {
    let mut pair = Pair::reported();
    for round in 1..=3 {
        assert_eq!(pair.agent.poll_timeout(), Some(round * 30 * SECOND));
        pair.advance_to(round * 30 * SECOND);
        let (sent, message) = pair.next().unwrap();
        assert_eq!(sent, Sent::Heartbeat);
        let expected = wire::AgentToServer {
            instance_uid: message.instance_uid.clone(),
            sequence_num: round,
            capabilities: 0x3807,
            ..wire::AgentToServer::default()
        };
        assert_eq!(message, expected);
    }
}

#[test]
fn heartbeats_spread_by_the_share_that_the_plan_says() {
    let behaviour = Behaviour { heartbeat_jitter_percent: 10, ..Behaviour::default() };
    let mut pair = Pair::with(&behaviour);
    let mut waits = Vec::new();
    for _ in 0..50 {
        pair.next();
        let at = pair.agent.poll_timeout().unwrap();
        waits.push(at - pair.now);
        pair.advance_to(at);
    }
    assert!(waits.iter().all(|wait| (27 * SECOND..=33 * SECOND).contains(wait)));
    assert!(waits.iter().any(|wait| *wait != waits[0]));
}

#[test]
fn full_state_is_reported_when_asked_for_with_the_status_as_it_is() {
    let mut pair = Pair::reported();
    pair.offer(b"h1", b"one");
    pair.next().unwrap();
    pair.message(&wire::ServerToAgent { flags: 1, ..wire::ServerToAgent::default() });
    let (sent, message) = pair.next().unwrap();
    assert_eq!(sent, Sent::Full);
    assert!(message.agent_description.is_some());
    assert_eq!(message.remote_config_status.unwrap().status, 2);
}

#[test]
fn after_a_break_a_hello_goes_first_and_the_sequence_goes_on() {
    let mut pair = Pair::reported();
    pair.agent.handle_disconnected();
    assert!(pair.next().is_none());
    pair.agent.handle_connected(&pair.habits);
    let (sent, message) = pair.next().unwrap();
    assert_eq!((sent, message.sequence_num), (Sent::Hello, 1));
    assert!(message.agent_description.is_none() && message.remote_config_status.is_none());
}

#[test]
fn an_apply_that_ends_while_the_link_is_down_is_told_on_the_next_one() {
    let mut pair = Pair::reported();
    pair.offer(b"h1", b"one");
    pair.next().unwrap();
    pair.agent.handle_disconnected();
    pair.advance_to(SECOND);
    assert!(pair.next().is_none());
    pair.agent.handle_connected(&pair.habits);
    let (sent, message) = pair.next().unwrap();
    assert_eq!((sent, message.remote_config_status.unwrap().status), (Sent::Hello, 1));
}

#[test]
fn older_clients_report_everything_on_every_link() {
    let behaviour = Behaviour { reconnect_report: ReconnectReport::Full, ..Behaviour::default() };
    let mut pair = Pair::with(&behaviour);
    pair.next().unwrap();
    pair.agent.handle_disconnected();
    pair.agent.handle_connected(&pair.habits);
    assert_eq!(pair.next().unwrap().0, Sent::Full);
}

#[test]
fn a_report_only_collector_takes_no_offer_and_says_so() {
    let mut pair = Pair::reported();
    pair.agent.report_only = true;
    pair.offer(b"h1", b"one");
    assert!(pair.next().is_none());
    pair.advance_to(30 * SECOND);
    let (_, message) = pair.next().unwrap();
    assert_eq!(message.capabilities & 0x2, 0);
}

#[test]
fn a_new_uid_is_taken_over() {
    let mut pair = Pair::reported();
    let new = wire::AgentIdentification { new_instance_uid: Bytes::from(vec![7; 16]) };
    pair.message(&wire::ServerToAgent {
        agent_identification: Some(new),
        ..wire::ServerToAgent::default()
    });
    assert_eq!(pair.agent.uid(), InstanceUid([7; 16]));
    pair.advance_to(30 * SECOND);
    assert_eq!(pair.next().unwrap().1.instance_uid, vec![7; 16]);
}

#[test]
fn the_last_message_says_goodbye() {
    let mut pair = Pair::reported();
    pair.agent.handle_stop();
    let (sent, message) = pair.next().unwrap();
    assert_eq!(sent, Sent::Disconnect);
    assert!(message.agent_disconnect.is_some());
}

#[test]
fn an_error_response_is_only_taken_note_of() {
    let mut pair = Pair::reported();
    pair.message(&wire::ServerToAgent {
        error_response: Some(wire::ServerErrorResponse::default()),
        flags: 1,
        ..wire::ServerToAgent::default()
    });
    assert!(pair.next().is_none());
}

#[test]
fn a_failed_offer_is_told_and_what_ran_before_is_applied_again() {
    let mut pair = Pair::failing(Does::Fail(Failure {
        text: "no such exporter".into(),
        rollback: true,
        after: None,
    }));
    pair.offer(b"h2", b"two");
    pair.next().unwrap();
    pair.advance_to(2 * SECOND);
    let status = pair.next().unwrap().1.remote_config_status.unwrap();
    assert_eq!((status.status, &status.last_remote_config_hash[..]), (3, &b"h2"[..]));
    assert_eq!(status.error_message, "no such exporter");
    assert_eq!(pair.agent.failed().unwrap(), &b"h2"[..]);
    let at = pair.agent.poll_timeout().unwrap();
    pair.advance_to(at);
    let status = pair.next().unwrap().1.remote_config_status.unwrap();
    assert_eq!((status.status, &status.last_remote_config_hash[..]), (1, &b"h1"[..]));
    assert_eq!(pair.agent.failed(), None);
}

#[test]
fn a_failed_offer_without_rollback_stays_failed() {
    let mut pair =
        Pair::failing(Does::Fail(Failure { text: "no".into(), rollback: false, after: None }));
    pair.offer(b"h2", b"two");
    pair.next().unwrap();
    pair.advance_to(2 * SECOND);
    let (_, message) = pair.next().unwrap();
    assert_eq!(message.remote_config_status.unwrap().status, 3);
    let config = message.effective_config.unwrap().config_map.unwrap().config_map;
    assert_eq!(&config[""].body[..], b"one");
    pair.advance_to(60 * SECOND);
    assert_eq!(pair.next().unwrap().0, Sent::Heartbeat);
}

#[test]
fn a_collector_goes_dark_as_far_into_an_offer_as_its_fault_says() {
    let check = |once: Once, statuses: &[i32]| {
        let mut pair = Pair::failing(Does::GoDark(once, Vanishing::Kill));
        pair.offer(b"h2", b"two");
        let mut told = Vec::new();
        for round in 0..10 {
            while let Some((_, message)) = pair.next() {
                told.extend(message.remote_config_status.map(|status| status.status));
            }
            pair.advance_to((2 + round) * SECOND);
        }
        assert_eq!(told, statuses, "{once:?}");
        assert_eq!(pair.agent.gone(), Some(Gone { how: Vanishing::Kill, until: None }));
        assert_eq!(pair.agent.poll_timeout(), None);
        pair.agent.come_back();
        pair.advance_to(20 * SECOND);
        let (_, message) = pair.next().unwrap();
        if once != Once::Applied {
            // What it was about to say.
            assert!(message.remote_config_status.is_some());
        }
    };
    check(Once::Offered, &[]);
    check(Once::Applying, &[2]);
    check(Once::Applied, &[2, 1]);
}

#[test]
fn a_flapping_collector_goes_and_comes_back_by_itself() {
    let mut pair = Pair::profile(Profile { flap: Some(5 * SECOND), ..Profile::default() });
    pair.next().unwrap();
    let at = pair.agent.poll_timeout().unwrap();
    assert_eq!(at, 5 * SECOND);
    pair.advance_to(at);
    assert!(pair.next().is_none());
    let gone = pair.agent.gone().unwrap();
    assert_eq!(gone.how, Vanishing::Close);
    pair.advance_to(gone.until.unwrap());
    assert_eq!(pair.agent.gone(), None);
    assert!(pair.next().is_some());
}

#[test]
fn a_restarted_collector_has_another_uid_and_remembers_nothing() {
    let mut pair = Pair::reported();
    pair.offer(b"h1", b"one");
    pair.next().unwrap();
    let fresh = pair.agent.restarted(1_700_000_001_000);
    assert_ne!(fresh.uid(), pair.agent.uid());
    pair.agent = fresh;
    pair.agent.handle_connected(&pair.habits);
    let (sent, message) = pair.next().unwrap();
    assert_eq!((sent, message.sequence_num), (Sent::Full, 0));
    assert_eq!(message.remote_config_status.unwrap().status, 0);
}

#[test]
fn a_failure_of_something_that_nobody_offers_can_be_the_first_word() {
    let mut pair =
        Pair::profile(Profile { failed_before: Some("old".into()), ..Profile::default() });
    let status = pair.next().unwrap().1.remote_config_status.unwrap();
    assert_eq!((status.status, &*status.error_message), (3, "old"));
    assert_eq!(pair.agent.failed(), None);
    pair.offer(b"h1", b"one");
    assert_eq!(pair.next().unwrap().1.remote_config_status.unwrap().status, 2);
}

#[test]
fn a_foreign_collector_reports_what_it_runs() {
    let mut pair = Pair::reported();
    pair.agent.report_only = true;
    pair.agent.run_foreign(Bytes::from_static(b"theirs"));
    let (_, message) = pair.next().unwrap();
    assert!(message.remote_config_status.is_none());
    let config = message.effective_config.unwrap().config_map.unwrap().config_map;
    assert_eq!(&config[""].body[..], b"theirs");
    pair.agent.run_foreign(Bytes::from_static(b"theirs"));
    assert!(pair.next().is_none());
}

/// An agent and the time.
struct Pair {
    agent: Agent,
    habits: Habits,
    now: Micros,
}

impl Pair {
    fn with(behaviour: &Behaviour) -> Self {
        let habits = Habits::new(behaviour);
        let mut agent = Agent::new(1_700_000_000_000, false, fastrand::Rng::with_seed(3));
        agent.handle_connected(&habits);
        Self { agent, habits, now: 0 }
    }

    fn connected() -> Self {
        Self::with(&Behaviour {
            apply_delay: Duration::from_millis(500)..Duration::from_millis(500),
            ..Behaviour::default()
        })
    }

    fn profile(profile: Profile) -> Self {
        let mut pair = Self::connected();
        pair.agent = pair.agent.with_profile(Arc::new(profile));
        pair
    }

    /// Runs `h1`, and does that with the next offer.
    fn failing(does: Does) -> Self {
        let arm = Some(Arm::Candidate);
        let mut pair = Self::profile(Profile {
            faults: vec![Fault { arm, times: 1, does }],
            ..Profile::default()
        });
        pair.agent.running = Running::Applied(Arc::new(Content {
            hash: Bytes::from_static(b"h1"),
            body: Bytes::from_static(b"one"),
        }));
        pair.next().unwrap();
        pair
    }

    fn reported() -> Self {
        let mut pair = Self::connected();
        pair.next().unwrap();
        pair
    }

    fn advance_to(&mut self, now: Micros) {
        self.now = now;
        self.agent.handle_timeout(now);
    }

    fn message(&mut self, message: &wire::ServerToAgent) {
        self.agent.handle_message(self.now, message, Arm::Candidate, &self.habits);
    }

    fn offer(&mut self, hash: &'static [u8], body: &'static [u8]) {
        let file = wire::AgentConfigFile {
            body: Bytes::from_static(body),
            ..wire::AgentConfigFile::default()
        };
        self.message(&wire::ServerToAgent {
            remote_config: Some(wire::AgentRemoteConfig {
                config: Some(wire::AgentConfigMap {
                    config_map: BTreeMap::from([(String::new(), file)]),
                }),
                config_hash: Bytes::from_static(hash),
            }),
            ..wire::ServerToAgent::default()
        });
    }

    fn next(&mut self) -> Option<(Sent, wire::AgentToServer)> {
        let attributes = || Attributes {
            identifying: vec![("service.name".to_owned(), Value::Text("otelcol".to_owned()))],
            non_identifying: vec![("process.pid".to_owned(), Value::Integer(4))],
        };
        let (sent, bytes) = self.agent.poll_transmit(self.now, &self.habits, attributes)?;
        Some((sent, wire::AgentToServer::decode(bytes).unwrap()))
    }
}
