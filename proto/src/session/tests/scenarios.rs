//! One test per rule; numbers are rows of the bug reports in spec/serving.md.

use super::*;
use crate::peek::Gathered;
use opamp::RemoteConfigStatuses::{Applied, Applying, Failed, Unset};

/// An agent that has described itself at second 100, reported nothing, and was offered `n`.
fn offered(n: u8) -> Link {
    let mut link = Link::at(100);
    assert_eq!(link.receive(&described(0, REPORTS), &base(n)).offered, Some(key(n)));
    link
}

#[test]
fn a_first_message_with_a_description_is_offered_and_asked_for_nothing() {
    for first in [0, 1, 7] {
        let mut link = Link::at(1);
        let outcome = link.receive(&described(first, REPORTS), &base(1));
        assert!(outcome.news.first && !outcome.news.gap);
        assert_eq!((outcome.offered, outcome.full_state), (Some(key(1)), None));
    }
}

#[test]
fn row_13_a_partial_message_of_an_unknown_agent_asks_for_full_state_once() {
    let mut link = Link::at(1);
    let first = link.receive(&message(7), &base(1));
    assert_eq!(first.full_state, Some(FullStateReason::Unknown));
    assert_eq!(first.offered, None);
    let full = link.receive(&described(8, REPORTS), &base(1));
    assert_eq!((full.full_state, full.offered), (None, Some(key(1))));
    assert_eq!(link.receive(&message(9), &base(1)).full_state, None);
}

#[test]
fn rows_11_and_75_a_gap_asks_for_full_state_once() {
    for (steps, lost) in [([0, 1, 3], 3), ([0, 1, 5], 5)] {
        let mut link = Link::at(1);
        link.receive(&described(steps[0], REPORTS), &base(1));
        assert_eq!(link.receive(&message(steps[1]), &base(1)).full_state, None);
        let gap = link.receive(&message(steps[2]), &base(1));
        assert!(gap.news.gap);
        assert_eq!(gap.full_state, Some(FullStateReason::Gap));
        link.now += 60;
        assert_eq!(link.receive(&message(lost + 1), &base(1)).full_state, None);
    }
}

#[test]
fn a_gap_in_front_of_a_description_is_a_gap() {
    let mut link = offered(1);
    let outcome = link.receive(&described(9, REPORTS), &base(1));
    assert_eq!(outcome.full_state, Some(FullStateReason::Gap));
}

#[test]
fn a_repeated_message_is_answered_and_is_no_gap() {
    let mut link = offered(1);
    link.receive(&message(1), &base(1));
    for _ in 0..3 {
        let outcome = link.receive(&message(1), &base(1));
        assert!(outcome.news.repeated && !outcome.news.gap);
        assert_eq!(outcome.full_state, None);
    }
    assert!(!link.receive(&message(2), &base(1)).news.gap);
}

#[test]
fn a_process_that_starts_anew_is_no_gap_and_is_offered_again() {
    for first in [0, 1] {
        let mut link = offered(1);
        link.receive(&message(1), &base(1));
        link.receive(&message(2), &base(1));
        let outcome = link.receive(&described(first, REPORTS), &base(1));
        assert!(outcome.news.restarted && !outcome.news.gap);
        assert_eq!((outcome.full_state, outcome.offered), (None, Some(key(1))));
    }
}

#[test]
fn a_poll_that_says_nothing_but_its_uid_is_no_gap() {
    let mut link = offered(1);
    link.receive(&message(1), &base(1));
    link.receive(&message(2), &base(1));
    assert!(!link.receive(&message(0), &base(1)).news.gap);
    assert!(!link.receive(&message(3), &base(1)).news.gap);
}

#[test]
fn full_state_is_asked_for_at_most_once_in_ten_seconds_and_ever_more_seldom() {
    let mut link = Link::at(1);
    let mut asked = Vec::new();
    for sequence in 0..400 {
        if link.receive(&message(sequence), &base(1)).full_state.is_some() {
            asked.push(link.now);
        }
        link.now += 1;
    }
    assert_eq!(asked, [1, 11, 21, 31, 51, 91, 171, 331]);
}

#[test]
fn an_empty_budget_puts_the_question_off() {
    let mut link = Link::at(1);
    let ask = |link: &mut Link, sequence, budget| {
        link.receive_over(Exchange::Stream, &message(sequence), &base(1), budget).full_state
    };
    assert_eq!(ask(&mut link, 3, false), None);
    assert_eq!(ask(&mut link, 4, true), Some(FullStateReason::Unknown));
    link.now += 1;
    let mut asked = false;
    let (mut agent, message) = (Agent::<()>::new(uid(2)), message(0).encode_to_vec());
    let mut gathered = Gathered::default();
    let peek = Peek::parse(&message, &mut gathered).expect("fine");
    agent.handle_message(1, Exchange::Stream, true, &peek, |_| None);
    agent.poll_full_state(1, || true);
    agent.poll_full_state(2, || {
        asked = true;
        true
    });
    assert!(!asked, "the budget is not charged for a question that is not due");
}

#[test]
fn an_attribute_that_was_not_kept_is_asked_for() {
    let mut link = offered(1);
    link.session.get_mut(uid(1)).expect("agent 1").require_attributes();
    assert_eq!(link.receive(&message(1), &base(1)).full_state, Some(FullStateReason::Attributes));
    link.receive(&described(2, 0), &base(1));
    link.now += 60;
    assert_eq!(link.receive(&message(3), &base(1)).full_state, None);
}

#[test]
fn row_107_capabilities_of_zero_keep_what_was_said() {
    let mut link = offered(1);
    link.receive(&message(1), &base(1));
    assert_eq!(link.agent().capabilities().0, REPORTS);
    link.receive(&opamp::AgentToServer { capabilities: 0x1, ..message(2) }, &base(1));
    assert_eq!(link.agent().capabilities().0, 0x1, "a change is followed at any time");
}

#[test]
fn row_35_what_a_message_leaves_out_has_not_changed() {
    let mut link = Link::at(1);
    link.receive(&with_status(described(0, REPORTS), &hex(1), Applied), &base(1));
    let health = opamp::ComponentHealth { healthy: true, ..Default::default() };
    let outcome =
        link.receive(&opamp::AgentToServer { health: Some(health), ..message(1) }, &base(1));
    assert!(outcome.news.health_changed && !outcome.news.described);
    assert!(link.agent().described());
    assert_eq!(link.agent().reported(), key(1));
    link.receive(&described(2, 0), &base(1));
    assert_eq!(link.agent().healthy(), Some(true), "row 43: full state without health");
}

#[test]
fn row_25_health_that_is_older_than_the_last_is_no_news() {
    let health = |sequence, seconds: u64, healthy| opamp::AgentToServer {
        health: Some(opamp::ComponentHealth {
            healthy,
            status_time_unix_nano: seconds * 1_000_000_000,
            ..Default::default()
        }),
        ..message(sequence)
    };
    let mut link = offered(1);
    assert!(link.receive(&health(1, 100, true), &base(1)).news.health_changed);
    assert!(!link.receive(&health(2, 100, true), &base(1)).news.health_changed, "a replay");
    assert!(!link.receive(&health(3, 99, false), &base(1)).news.health_changed, "older");
    assert_eq!(link.agent().healthy(), Some(true));
    assert!(link.receive(&health(4, 101, false), &base(1)).news.health_changed);
    assert!(!link.receive(&health(5, 130, false), &base(1)).news.health_changed, "row 63");
}

#[test]
fn only_a_changed_effective_config_is_news() {
    let effective = |sequence, body: &'static str| {
        let file = opamp::AgentConfigFile { body: body.as_bytes().into(), ..Default::default() };
        let config_map = [(String::new(), file)].into();
        let config_map = Some(opamp::AgentConfigMap { config_map });
        opamp::AgentToServer {
            effective_config: Some(opamp::EffectiveConfig { config_map }),
            ..message(sequence)
        }
    };
    let mut link = offered(1);
    assert!(link.receive(&effective(1, "a"), &base(1)).news.effective_changed);
    assert!(!link.receive(&effective(2, "a"), &base(1)).news.effective_changed);
    assert!(link.receive(&effective(3, "b"), &base(1)).news.effective_changed);
}

#[test]
fn who_does_not_accept_remote_config_is_never_offered_any() {
    let mut link = Link::at(1);
    assert_eq!(link.receive(&described(0, 0x1 | 0x1000), &base(1)).offered, None);
    assert_eq!(link.push(&base(2)), None);
    assert_eq!(link.agent().delivery(1, &base(2)), Delivery::Foreign);
    let accepts = opamp::AgentToServer { capabilities: REPORTS, ..message(1) };
    assert_eq!(link.receive(&accepts, &base(2)).offered, Some(key(2)));
}

#[test]
fn what_is_reported_is_not_offered_under_whichever_of_its_hashes() {
    let raw_hash = {
        let mut raw = [0xee; 32];
        raw[1] = 1;
        raw
    };
    for reported in [&hex(1)[..], &raw_hash] {
        for status in [Unset, Applied, Applying, Failed] {
            let mut link = Link::at(1);
            let first = with_status(described(0, REPORTS), reported, status);
            assert_eq!(link.receive(&first, &base(1)).offered, None, "row 89: {status:?}");
        }
    }
    let mut link = Link::at(1);
    let unknown = with_status(described(0, REPORTS), &[0xdd; 32], Applied);
    assert_eq!(link.receive(&unknown, &base(1)).offered, Some(key(1)));
}

#[test]
fn an_unanswered_offer_is_not_repeated() {
    let mut link = offered(1);
    for sequence in 1..100 {
        link.now += 30;
        assert_eq!(link.receive(&message(sequence), &base(1)).offered, None, "row 45");
    }
    // Its status as it was before the offer, once more: it has not read the offer yet.
    let old = with_status(message(100), &hex(0), Applied);
    assert_eq!(link.receive(&old, &base(1)).offered, None);
    assert_eq!(link.agent().believed(), key(1));
}

#[test]
fn a_head_that_goes_back_is_offered_although_it_was_reported() {
    let mut link = Link::at(1);
    link.receive(&with_status(described(0, REPORTS), &hex(0), Applied), &base(0));
    assert_eq!(link.push(&base(1)), Some(key(1)));
    assert_eq!(link.push(&base(1)), None);
    assert_eq!(link.push(&base(0)), Some(key(0)), "believed to be on its way to 1");
    let late = with_status(message(1), &hex(1), Applying);
    assert_eq!(link.receive(&late, &base(0)).offered, None, "the answer to 0 is still to come");
    let done = with_status(message(2), &hex(0), Applied);
    assert_eq!(link.receive(&done, &base(0)).offered, None);
}

#[test]
fn who_does_not_report_is_believed_to_have_taken_the_last_offer() {
    let mut link = Link::at(1);
    assert_eq!(link.receive(&described(0, ACCEPTS), &base(1)).offered, Some(key(1)));
    for sequence in 1..50 {
        link.now += 30;
        assert_eq!(link.receive(&message(sequence), &base(1)).offered, None);
    }
    assert_eq!(link.receive(&message(50), &base(2)).offered, Some(key(2)));
    assert_eq!(link.push(&base(1)), Some(key(1)));
}

#[test]
fn row_101_a_candidate_that_was_rolled_back_is_not_offered_again() {
    let mut link = Link::at(1);
    link.receive(&with_status(described(0, REPORTS), &hex(1), Applied), &base(1));
    assert_eq!(link.push(&staged(1, 2)), Some(key(2)));
    let failed = link.receive(&with_status(message(1), &hex(2), Failed), &staged(1, 2));
    assert_eq!(failed.news.failed, Some(key(2)));
    assert_eq!(failed.serving, Some(Serving::Base));
    assert_eq!(failed.offered, Some(key(1)), "it reports the candidate: back to the base");
    let back = link.receive(&with_status(message(2), &hex(1), Applied), &staged(1, 2));
    assert_eq!((back.offered, back.serving), (None, Some(Serving::Base)));
    for sequence in 3..2_000 {
        link.now += 3_600;
        let outcome = link.receive(&message(sequence), &staged(1, 2));
        assert_eq!((outcome.offered, outcome.serving), (None, Some(Serving::Base)));
    }
    assert_eq!(link.agent().delivery(link.now, &staged(1, 2)), Delivery::Failed);
    assert_eq!(link.push(&staged(1, 3)), Some(key(3)), "other content is another candidate");
}

#[test]
fn row_53_a_failure_is_over_when_the_same_hash_is_applied() {
    let mut link = Link::at(1);
    link.receive(&with_status(described(0, REPORTS), &hex(1), Applied), &base(1));
    link.push(&staged(1, 2));
    link.receive(&with_status(message(1), &hex(2), Failed), &staged(1, 2));
    let recovered = link.receive(&with_status(message(2), &hex(2), Applied), &staged(1, 2));
    assert!(recovered.news.recovered);
    assert_eq!(recovered.serving, Some(Serving::Candidate));
    assert!(!link.agent().has_failed(key(2)));
}

#[test]
fn what_failed_as_base_is_tried_again_slowly() {
    let mut link = offered(1);
    link.receive(&with_status(message(1), &hex(1), Failed), &base(1));
    // The rollback of the supervisor: without the latch this would loop.
    link.receive(&with_status(message(2), &hex(0), Applied), &base(1));
    let mut tries = Vec::new();
    let mut sequence = 3;
    while link.now < 100 + 7_000 {
        link.now += 10;
        if link.receive(&message(sequence), &base(1)).offered.is_some() {
            tries.push(link.now);
            sequence += 1;
            link.receive(&with_status(message(sequence), &hex(1), Failed), &base(1));
            sequence += 1;
            link.receive(&with_status(message(sequence), &hex(0), Applied), &base(1));
        }
        sequence += 1;
    }
    assert_eq!(tries, [700, 700 + 1_200, 700 + 1_200 + 2_400]);
}

#[test]
fn retry_failed_gives_a_candidate_another_chance() {
    let mut desired = staged(1, 2);
    desired.candidate.as_mut().expect("staged").retries = 1;
    let mut link = Link::at(100);
    link.receive(&with_status(described(0, REPORTS), &hex(1), Applied), &base(1));
    link.push(&desired);
    link.receive(&with_status(message(1), &hex(2), Failed), &desired);
    link.receive(&with_status(message(2), &hex(1), Applied), &desired);
    link.now += 599;
    assert_eq!(link.receive(&message(3), &desired).offered, None);
    link.now += 1;
    assert_eq!(link.receive(&message(4), &desired).offered, Some(key(2)));
    let applying = link.receive(&with_status(message(5), &hex(2), Applying), &desired);
    assert_eq!(applying.serving, Some(Serving::Candidate), "while its outcome is awaited");
    let failed = link.receive(&with_status(message(6), &hex(2), Failed), &desired);
    assert_eq!((failed.offered, failed.serving), (Some(key(1)), Some(Serving::Base)));
    link.now += 1_000_000;
    assert_eq!(link.receive(&message(7), &desired).serving, Some(Serving::Base));
}

#[test]
fn row_85_an_agent_that_takes_and_reverts_cannot_make_a_loop() {
    let mut link = offered(1);
    let mut offers = 0;
    let mut sequence = 1;
    for _ in 0..1_000 {
        for (n, status) in [(1, Applying), (0, Applied)] {
            let message = with_status(message(sequence), &hex(n), status);
            offers += u32::from(link.receive(&message, &base(1)).offered.is_some());
            sequence += 1;
        }
    }
    assert_eq!(offers, 0);
    link.now += REOFFER_SECONDS;
    assert_eq!(link.receive(&message(sequence), &base(1)).offered, Some(key(1)));
}

#[test]
fn over_http_an_offer_whose_reply_was_lost_is_made_again() {
    let mut link = Link::at(100);
    let poll = |link: &mut Link, message| {
        link.receive_over(Exchange::Poll, &message, &base(1), true).offered
    };
    assert_eq!(poll(&mut link, described(0, REPORTS)), Some(key(1)));
    assert_eq!(poll(&mut link, described(0, REPORTS)), Some(key(1)), "the request is repeated");
    assert_eq!(poll(&mut link, message(1)), None);
    assert_eq!(poll(&mut link, message(1)), None, "that reply held no offer");
    link.now += UNANSWERED_POLL_SECONDS - 1;
    assert_eq!(poll(&mut link, message(2)), None);
    link.now += 1;
    assert_eq!(poll(&mut link, message(3)), Some(key(1)), "nothing came of it");
    assert_eq!(poll(&mut link, with_status(message(4), &hex(1), Applied)), None);
    link.now += 1_000;
    assert_eq!(poll(&mut link, message(5)), None);
}

#[test]
fn polls_that_say_nothing_repeat_nothing() {
    // Its first message has number 0, and so has a poll that gives none.
    for capabilities in [REPORTS, ACCEPTS] {
        let mut link = Link::at(100);
        let poll = |link: &mut Link, message| {
            link.receive_over(Exchange::Poll, &message, &base(1), true).offered
        };
        assert_eq!(poll(&mut link, described(0, capabilities)), Some(key(1)));
        for _ in 0..3 {
            link.now += 30;
            assert_eq!(poll(&mut link, message(0)), None);
        }
    }
}

#[test]
fn failures_outlive_a_link() {
    let mut link = offered(1);
    link.receive(&with_status(message(1), &hex(2), Failed), &base(1));
    let old = link.session.handle_disconnect(uid(1)).expect("agent 1");
    let failures = old.failures().expect("one").clone();

    let mut link = Link::at(200);
    link.receive(&with_status(described(0, REPORTS), &hex(1), Applied), &base(1));
    link.session.get_mut(uid(1)).expect("agent 1").restore_failures(failures.clone());
    assert_eq!(link.push(&staged(1, 2)), None);

    let mut link = Link::at(200);
    link.receive(&with_status(described(0, REPORTS), &hex(2), Applied), &base(1));
    link.session.get_mut(uid(1)).expect("agent 1").restore_failures(failures);
    assert!(!link.agent().has_failed(key(2)), "it was applied meanwhile");
}

#[test]
fn row_49_many_agents_share_a_connection_up_to_the_limit() {
    let mut link = Link::at(1);
    let from = |n: u16, message: opamp::AgentToServer| opamp::AgentToServer {
        instance_uid: uid(n).0.to_vec().into(),
        ..message
    };
    for n in 0..10_000 {
        let outcome = link.receive(&from(n, described(0, REPORTS)), &base(1));
        assert_eq!(outcome.offered, Some(key(1)));
    }
    assert!(!link.receive(&from(77, message(1)), &base(1)).news.gap);
    assert!(link.receive(&from(78, message(2)), &base(1)).news.gap, "each has its own sequence");
    assert!(link.session.ever_many());

    for n in 10_000..AGENTS_MAX as u16 {
        link.receive(&from(n, message(0)), &base(1));
    }
    assert_eq!(link.session.len(), AGENTS_MAX);
    let over = from(AGENTS_MAX as u16, message(0)).encode_to_vec();
    let mut gathered = Gathered::default();
    let over = Peek::parse(&over, &mut gathered).expect("fine");
    let refused = link.session.handle_message(1, Exchange::Stream, &over, |_| None);
    assert_eq!(refused.err(), Some(TooManyAgents));
    assert!(!link.receive(&from(77, message(2)), &base(1)).news.gap, "the others are unharmed");
}

#[test]
fn row_21_a_farewell_forgets_its_agent_alone() {
    let mut link = offered(1);
    let other =
        opamp::AgentToServer { instance_uid: uid(2).0.to_vec().into(), ..described(0, REPORTS) };
    link.receive(&other, &base(1));
    let bye =
        opamp::AgentToServer { agent_disconnect: Some(opamp::AgentDisconnect {}), ..message(1) };
    assert!(link.receive(&bye, &base(1)).news.disconnect);
    assert!(link.session.handle_disconnect(uid(1)).is_some());
    assert!(link.session.handle_disconnect(uid(1)).is_none());
    assert_eq!(link.session.agents().map(Agent::uid).collect::<Vec<_>>(), [uid(2)]);
    assert!(link.receive(&described(0, REPORTS), &base(1)).news.first, "it comes back");
}

#[test]
fn an_agent_that_takes_its_new_uid_is_recognised() {
    for others in [0, 3] {
        let mut link = Link::at(1);
        for n in 10..10 + others {
            let uid = uid(n).0.to_vec().into();
            link.receive(
                &opamp::AgentToServer { instance_uid: uid, ..described(0, REPORTS) },
                &base(1),
            );
        }
        link.receive(&described(0, REPORTS), &base(1));
        assert_eq!(link.session.assign_uid(uid(1), uid(2)), uid(2));
        assert_eq!(link.session.assign_uid(uid(1), uid(3)), uid(2), "asked twice, told once");
        let mut renamed = message(1);
        renamed.instance_uid = uid(2).0.to_vec().into();
        let outcome = link.receive(&renamed, &base(1));
        assert_eq!((outcome.news.first, outcome.full_state), (false, None));
        assert!(link.session.get(uid(1)).is_none());
        assert_eq!(link.session.len(), 1 + usize::from(others));
        assert_eq!(link.session.ever_many(), others > 0);
        assert_eq!(link.session.assigned_uid(uid(1)), None);
    }
}

#[test]
fn a_second_agent_after_the_first_makes_it_a_shared_connection() {
    let mut link = offered(1);
    assert!(!link.session.ever_many());
    link.session.handle_disconnect(uid(1));
    link.receive(&described(0, REPORTS), &base(1));
    assert!(link.session.ever_many());
}
