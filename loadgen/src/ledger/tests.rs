//! The books against what servers may send, good and bad.

use std::collections::BTreeMap;

use prost::Message;
use render::tree::Tree;

use super::*;
use crate::heads::Head;
use crate::model::{Model, short};
use crate::plan::Plan;
use crate::testing::Estate;

const WINDOW: Micros = 1_000;

#[test]
fn the_expected_offer_is_right_once_and_a_duplicate_the_second_time() {
    let mut desk = Desk::new();
    desk.sent(0, Sent::Full);
    assert!(desk.offer(5, &desk.expected(0)).right.is_some());
    desk.sent(6, Sent::Delta);
    assert_eq!(desk.ack(7).wrong, 0);
    desk.offer(8, &desk.expected(0));
    desk.check(&[(Wrong::Duplicate, 1)]);
}

#[test]
fn other_bytes_are_wrong_and_explained() {
    let mut desk = Desk::new();
    desk.sent(0, Sent::Full);
    let mut offer = desk.expected(0);
    offer.body = String::from_utf8(offer.body.to_vec()).unwrap().replace("from", "fro_").into();
    desk.offer(5, &offer);
    let closed = desk.close();
    assert_eq!(closed.wrongs, [(Wrong::Offer, 1)]);
    let text = &closed.findings[0].text;
    assert!(text.contains("rendered/team/one.yaml"), "{text}");
    assert!(
        text.contains("line 2: expected \"# Tier team/one (production), Blueprint team/from@1"),
        "{text}"
    );
    assert_eq!(closed.held, None);
}

#[test]
fn another_hash_over_the_right_bytes_is_wrong() {
    let mut desk = Desk::new();
    desk.sent(0, Sent::Full);
    let mut offer = desk.expected(0);
    offer.hash = Bytes::from("0".repeat(64));
    desk.offer(5, &offer);
    desk.check(&[(Wrong::Offer, 1)]);
}

#[test]
fn an_offer_of_another_form_is_wrong_whatever_it_holds() {
    let check = |change: &dyn Fn(&mut wire::AgentRemoteConfig)| {
        let mut desk = Desk::new();
        desk.sent(0, Sent::Full);
        let mut message = offer_message(&desk.expected(0));
        change(message.remote_config.as_mut().unwrap());
        desk.message(5, &message);
        desk.check(&[(Wrong::Shape, 1)]);
    };
    let file = |offer: &mut wire::AgentRemoteConfig| {
        offer.config.as_mut().unwrap().config_map.remove("").unwrap()
    };
    check(&|offer| offer.config = None);
    check(&|offer| offer.config_hash = Bytes::from_static(&[7; 32]));
    check(&|offer| offer.config_hash = Bytes::from("A".repeat(64)));
    check(&|offer| {
        let file = file(offer);
        offer.config.as_mut().unwrap().config_map.insert("collector.yaml".to_owned(), file);
    });
    check(&|offer| {
        let mut file = file(offer);
        file.content_type = String::new();
        offer.config.as_mut().unwrap().config_map.insert(String::new(), file);
    });
    check(&|offer| {
        let mut file = file(offer);
        file.body = Bytes::from_static(b" \n");
        offer.config.as_mut().unwrap().config_map.insert(String::new(), file);
    });
}

#[test]
fn an_offer_to_who_accepts_none_is_wrong() {
    let mut desk = Desk::new();
    desk.ledger = Ledger::new(0, false);
    desk.sent(0, Sent::Full);
    desk.offer(5, &desk.expected(0));
    desk.check(&[(Wrong::Unasked, 1)]);
}

#[test]
fn a_reply_to_nothing_is_extra_but_a_push_is_not() {
    let mut desk = Desk::new();
    desk.sent(0, Sent::Full);
    desk.ack(1);
    assert_eq!(desk.offer(5, &desk.expected(0)).wrong, 0);
    assert_eq!(desk.ack(6).wrong, 1);
    desk.check(&[(Wrong::Extra, 1)]);
}

#[test]
fn a_push_that_overtakes_a_reply_is_told_from_it() {
    let mut desk = Desk::new();
    desk.sent(0, Sent::Full);
    desk.ack(1);
    desk.sent(2, Sent::Heartbeat);
    assert_eq!(desk.offer(5, &desk.expected(0)).wrong, 0);
    assert_eq!(desk.ack(6).wrong, 0);
    assert_eq!(desk.ack(7).wrong, 1);
}

#[test]
fn the_first_answer_on_a_link_is_no_push_so_that_a_second_one_is_extra() {
    let mut desk = Desk::new();
    desk.sent(0, Sent::Full);
    assert_eq!(desk.offer(5, &desk.expected(0)).wrong, 0);
    assert_eq!(desk.ack(6).wrong, 1);
}

#[test]
fn a_missing_reply_is_told_at_the_end_unless_the_link_broke() {
    let mut desk = Desk::new();
    desk.sent(0, Sent::Heartbeat);
    let Desk { ledger, heads, .. } = desk;
    let closed = ledger.close(500, true, &heads);
    assert_eq!(closed.wrongs, [(Wrong::Unanswered, 1)]);

    let mut desk = Desk::new();
    desk.sent(0, Sent::Heartbeat);
    let Desk { ledger, heads, .. } = desk;
    assert_eq!(ledger.close(500, false, &heads).wrongs, []);
}

#[test]
fn a_goodbye_excuses_no_missing_reply_and_may_be_answered_once() {
    let mut desk = Desk::new();
    desk.sent(0, Sent::Delta);
    desk.sent(500, Sent::Disconnect);
    assert_eq!(desk.ack(501).wrong, 0);
    assert_eq!(desk.ack(502).wrong, 1);
    desk.check(&[(Wrong::Unanswered, 1), (Wrong::Extra, 1)]);
}

#[test]
fn an_offer_that_answers_a_goodbye_saves_nobody() {
    let mut desk = Desk::new();
    desk.sent(0, Sent::Full);
    desk.ack(1);
    desk.sent(500, Sent::Disconnect);
    desk.offer(501, &desk.expected(0));
    assert_eq!(desk.close().held, None);
}

#[test]
fn full_state_may_be_asked_for_after_a_hello_and_only_once() {
    let mut desk = Desk::new();
    let request = wire::ServerToAgent { flags: 1, ..ack_message() };
    desk.sent(0, Sent::Hello);
    assert_eq!(desk.message(1, &request).wrong, 0);
    desk.sent(2, Sent::Full);
    desk.ack(3);
    desk.sent(4, Sent::Heartbeat);
    assert_eq!(desk.message(5, &request).wrong, 1);
    let closed = desk.close();
    assert_eq!((closed.sums.full_state_requests, closed.wrongs), (2, vec![(Wrong::Unexpected, 1)]));
    assert!(closed.sums.bytes_beyond_acks > 0);
}

#[test]
fn every_other_field_is_more_than_an_ack() {
    let check = |wrong: Wrong, message: wire::ServerToAgent| {
        let mut desk = Desk::new();
        desk.sent(0, Sent::Heartbeat);
        assert!(desk.message(1, &message).wrong > 0, "{message:?}");
        let closed = desk.close();
        assert_eq!(closed.wrongs[0].0, wrong);
        assert_eq!(closed.sums.bytes_beyond_acks, closed.sums.bytes_received);
    };
    check(
        Wrong::Misaddressed,
        wire::ServerToAgent { instance_uid: Bytes::from(vec![9; 16]), ..ack_message() },
    );
    check(Wrong::Capabilities, wire::ServerToAgent { capabilities: 3, ..ack_message() });
    check(
        Wrong::Refused,
        wire::ServerToAgent {
            error_response: Some(wire::ServerErrorResponse::default()),
            ..ack_message()
        },
    );
    check(Wrong::Unexpected, wire::ServerToAgent { flags: 2, ..ack_message() });
    check(
        Wrong::Unexpected,
        wire::ServerToAgent {
            agent_identification: Some(wire::AgentIdentification::default()),
            ..ack_message()
        },
    );
    check(
        Wrong::Unexpected,
        wire::ServerToAgent {
            custom_capabilities: Some(wire::CustomCapabilities::default()),
            ..ack_message()
        },
    );
    check(
        Wrong::Unexpected,
        wire::ServerToAgent {
            command: Some(wire::ServerToAgentCommand::default()),
            ..ack_message()
        },
    );
    check(
        Wrong::Unexpected,
        wire::ServerToAgent {
            connection_settings: Some(wire::ConnectionSettingsOffers::default()),
            ..ack_message()
        },
    );
}

#[test]
fn a_ping_is_due_to_silent_links_only() {
    let mut desk = Desk::new();
    desk.sent(0, Sent::Heartbeat);
    desk.ack(1);
    assert_eq!(desk.ledger.handle_ping(45_000_000, 2, &desk.heads).wrong, 0);
    assert_eq!(desk.ledger.handle_ping(3_000_000, 2, &desk.heads).wrong, 1);
    desk.sent(46_000_000, Sent::Heartbeat);
    let crossed = desk.ledger.handle_ping(46_100_000, 2, &desk.heads);
    assert_eq!(crossed.wrong, 0, "our message may have crossed it");
    desk.ack(46_200_000);
    desk.sent(92_000_000, Sent::Disconnect);
    let crossed = desk.ledger.handle_ping(92_081_000, 2, &desk.heads);
    assert_eq!(crossed.wrong, 0, "nor does an answer tell whether the goodbye did");
    desk.check(&[(Wrong::Unexpected, 1)]);
}

#[test]
fn an_offer_of_a_head_that_is_seen_later_waits_for_it() {
    let mut desk = Desk::new();
    desk.sent(0, Sent::Full);
    let (old, new) = (desk.expected(0), desk.change(900, |estate| estate.set_stage(1)));
    assert_ne!(old.hash, new.hash);
    // Before the change is seen, at 100 and not yet explained:
    let mut early = Desk { heads: desk.heads_of(&[0]), ..Desk::new() };
    early.sent(0, Sent::Full);
    assert_eq!(early.offer(100, &new).wrong, 0);
    assert!(early.ledger.held().is_none());
    assert_eq!(early.ledger.waits_until(&early.heads), Some(100 + WINDOW));
    early.heads = desk.heads_of(&[0, 900]);
    assert!(early.ledger.handle_heads(950, &early.heads).right.is_some());
    early.check(&[]);
}

#[test]
fn an_offer_that_no_head_explains_within_the_window_is_wrong() {
    let mut desk = Desk::new();
    desk.sent(0, Sent::Full);
    let new = desk.change(5_000, |estate| estate.set_stage(1));
    desk.heads = desk.heads_of(&[0]);
    desk.offer(100, &new);
    desk.heads = desk.heads_of(&[0, 5_000]);
    assert_eq!(desk.ledger.handle_heads(100 + WINDOW, &desk.heads).wrong, 1);
    desk.check(&[(Wrong::Offer, 1)]);
}

#[test]
fn the_old_content_is_right_for_a_window_after_a_change_and_wrong_later() {
    let check = |at: Micros, wrongs: &[(Wrong, u32)]| {
        let mut desk = Desk::new();
        let old = desk.expected(0);
        desk.change(1_000, |estate| estate.set_stage(1));
        desk.sent(0, Sent::Full);
        desk.offer(at, &old);
        desk.check(wrongs);
    };
    check(1_000 + WINDOW, &[]);
    check(1_001 + WINDOW, &[(Wrong::Offer, 1)]);
}

#[test]
fn an_old_offer_after_the_new_one_is_a_step_back() {
    let mut desk = Desk::new();
    let old = desk.expected(0);
    desk.sent(0, Sent::Full);
    desk.offer(1, &old);
    let new = desk.change(1_000, |estate| estate.set_stage(1));
    let noted = desk.offer(1_100, &new);
    assert_eq!(noted.right.unwrap().0.epoch, 1);
    desk.offer(1_200, &old);
    desk.check(&[(Wrong::Regression, 1)]);
}

#[test]
fn a_head_that_changes_nothing_explains_no_second_offer() {
    let mut desk = Desk::new();
    desk.sent(0, Sent::Full);
    desk.offer(1, &desk.expected(0));
    let same = desk.change(1_000, |estate| estate.render("1111111"));
    assert_eq!(same.hash, desk.expected(0).hash);
    assert_ne!(same.body, desk.expected(0).body);
    desk.offer(1_100, &same);
    desk.check(&[(Wrong::Duplicate, 1)]);
}

#[test]
fn a_change_and_its_undoing_allow_the_first_content_again() {
    let mut desk = Desk::new();
    let old = desk.expected(0);
    desk.sent(0, Sent::Full);
    desk.offer(1, &old);
    let new = desk.change(1_000, |estate| estate.set_stage(1));
    desk.offer(1_100, &new);
    desk.change(9_000, |estate| estate.set_stage(0));
    let noted = desk.offer(9_100, &old);
    assert_eq!(noted.right.unwrap().0.epoch, 2);
    desk.check(&[]);
}

#[test]
fn an_offer_belongs_to_the_head_that_brought_the_change() {
    let mut desk = Desk::new();
    desk.sent(0, Sent::Full);
    desk.offer(1, &desk.expected(0));
    desk.change(1_000, |estate| estate.set_stage(1));
    let stamped = desk.change(1_100, |estate| estate.render("1111111"));
    let noted = desk.offer(1_200, &stamped);
    assert_eq!(noted.right.unwrap().0.epoch, 1);
}

#[test]
fn bytes_beyond_acks_are_counted_for_the_head_in_force() {
    let mut desk = Desk::new();
    desk.sent(0, Sent::Full);
    desk.ack(1);
    desk.change(1_000, |estate| estate.set_stage(1));
    desk.ledger.handle_ack(1_100, 23, &desk.heads);
    assert_eq!(desk.close().beyond_by_epoch, [(1, 23)]);
}

#[test]
fn a_member_on_which_the_candidate_failed_is_told_the_base_and_never_the_candidate_again() {
    let mut desk = Desk::new();
    let candidate = desk.change(0, |estate| estate.set_stage(1));
    let base = desk.expected(0);
    desk.sent(0, Sent::Full);
    assert!(desk.offer(1, &candidate).right.is_some());
    desk.sent(2, Sent::Delta);
    desk.ledger.handle_failed(short(&candidate.hash));
    assert_eq!(desk.ledger.failed(), 0);
    assert!(desk.offer(3, &base).right.is_some(), "of this head, not of the one before");
    assert_eq!(desk.ledger.failed(), 1, "the offer was the reply");
    desk.offer(22 * WINDOW, &candidate);
    let closed = desk.close();
    assert_eq!(closed.candidate_offers, 2);
    assert_eq!(closed.wrongs, [(Wrong::OfferedAgain, 1)]);
}

#[test]
fn a_failure_that_was_not_acknowledged_need_not_be_known() {
    let mut desk = Desk::new();
    let candidate = desk.change(0, |estate| estate.set_stage(1));
    desk.sent(0, Sent::Full);
    desk.offer(20 * WINDOW, &candidate);
    desk.sent(20 * WINDOW, Sent::Delta);
    desk.ledger.handle_failed(short(&candidate.hash));
    desk.ledger.handle_restarted();
    desk.sent(21 * WINDOW, Sent::Full);
    desk.offer(21 * WINDOW, &candidate);
    desk.check(&[]);
}

#[test]
fn a_braked_candidate_is_kept_from_members_and_must_not_come_late() {
    let mut desk = Desk::new();
    let candidate = desk.change(0, |estate| estate.set_stage(1));
    let base = desk.expected(0);
    let brake = 20 * WINDOW;
    desk.heads.set_brake(short(&candidate.hash), true, brake);
    desk.sent(0, Sent::Full);
    assert!(desk.offer(brake, &base).right.is_some());
    desk.offer(brake + BRAKE_LATE, &candidate);
    desk.ledger.handle_restarted();
    desk.sent(brake, Sent::Full);
    desk.offer(brake + BRAKE_LATE + 1, &candidate);
    desk.check(&[(Wrong::Braked, 1)]);
}

#[test]
fn a_member_is_not_told_the_base_for_no_reason() {
    let mut desk = Desk::new();
    desk.change(0, |estate| estate.set_stage(1));
    let base = desk.expected(0);
    desk.sent(0, Sent::Full);
    desk.offer(20 * WINDOW, &base);
    desk.check(&[(Wrong::Offer, 1)]);
}

/// What an offer carries.
#[derive(Clone)]
struct Offer {
    hash: Bytes,
    body: Bytes,
}

/// One ledger, of a collector that stage 1 admits to the candidate, and the heads it is judged by.
struct Desk {
    estate: Estate,
    plan: Plan,
    models: Vec<Model>,
    heads: Heads,
    ledger: Ledger,
}

impl Desk {
    fn new() -> Self {
        let estate = crate::testing::estate();
        // bucket("host.name=bridge-a1") is 4,658 of 10,000: within the 50 percent of stage 1.
        let plan = "[[group]]\nname = \"g\"\ncount = 1\nidentifying = { \"service.name\" = \"one\", \"host.name\" = \"bridge-a1\" }\n";
        let plan = Plan::parse(plan, "p.toml", 1).unwrap();
        let models = vec![model(&estate)];
        let heads = Heads::new(Head::new(models[0].clone(), 0, &plan, None), WINDOW);
        Self { estate, plan, models, heads, ledger: Ledger::new(0, true) }
    }

    /// Changes the estate, as seen at that time; returns what is expected from then on.
    fn change(&mut self, seen_at: Micros, change: impl FnOnce(&Estate)) -> Offer {
        change(&self.estate);
        self.models.push(model(&self.estate));
        let head = Head::new(self.models[self.models.len() - 1].clone(), seen_at, &self.plan, None);
        assert!(self.heads.push(head));
        self.expected(self.heads.latest_epoch())
    }

    /// The first of its models, as seen at those times.
    fn heads_of(&self, seen_at: &[Micros]) -> Heads {
        let head = |at: usize| Head::new(self.models[at].clone(), seen_at[at], &self.plan, None);
        let heads = Heads::new(head(0), WINDOW);
        for at in 1..seen_at.len() {
            assert!(heads.push(head(at)));
        }
        heads
    }

    fn expected(&self, epoch: Epoch) -> Offer {
        let heads = self.heads.all();
        let artefact = heads[epoch as usize].expected(0);
        Offer { hash: artefact.hash.clone(), body: artefact.bytes.clone() }
    }

    fn sent(&mut self, now: Micros, sent: Sent) {
        self.ledger.handle_sent(now, sent);
    }

    fn ack(&mut self, now: Micros) -> Noted {
        self.ledger.handle_ack(now, 23, &self.heads)
    }

    fn offer(&mut self, now: Micros, offer: &Offer) -> Noted {
        self.message(now, &offer_message(offer))
    }

    fn message(&mut self, now: Micros, message: &wire::ServerToAgent) -> Noted {
        let bytes = message.encoded_len() + 3;
        self.ledger.handle_message(now, UID, message, bytes, &self.heads)
    }

    fn check(self, wrongs: &[(Wrong, u32)]) {
        assert_eq!(self.close().wrongs, wrongs);
    }

    fn close(self) -> Closed {
        self.ledger.close(Micros::MAX, false, &self.heads)
    }
}

const UID: InstanceUid = InstanceUid([1; 16]);

fn model(estate: &Estate) -> Model {
    Model::read(&Tree::read_dir(estate.path(), "estate").unwrap()).unwrap()
}

fn ack_message() -> wire::ServerToAgent {
    wire::ServerToAgent {
        instance_uid: Bytes::copy_from_slice(&UID.0),
        capabilities: SERVER_CAPABILITIES,
        ..wire::ServerToAgent::default()
    }
}

fn offer_message(offer: &Offer) -> wire::ServerToAgent {
    let file = wire::AgentConfigFile {
        body: offer.body.clone(),
        content_type: "text/yaml".to_owned(),
        ..wire::AgentConfigFile::default()
    };
    wire::ServerToAgent {
        remote_config: Some(wire::AgentRemoteConfig {
            config: Some(wire::AgentConfigMap {
                config_map: BTreeMap::from([(String::new(), file)]),
            }),
            config_hash: offer.hash.clone(),
        }),
        ..ack_message()
    }
}
