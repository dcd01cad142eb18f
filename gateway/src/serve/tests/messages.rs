//! One message, one reply.

use super::*;

fn estate() -> Estate {
    Estate::new().tier("a/one", &[("tier", "one")], "one: 1\n").tier(
        "a/two",
        &[("tier", "two"), ("region", "eu")],
        "two: 1\n",
    )
}

#[test]
fn a_collector_is_offered_what_its_attributes_lead_to() {
    let world = World::new(&estate());
    for (agent, attributes, expected) in [
        (1, &[("tier", "one")][..], "one: 1\n"),
        (2, &[("tier", "two"), ("region", "eu")], "two: 1\n"),
        (3, &[("tier", "two"), ("region", "us")], "unmatched: 1\n"),
        (4, &[], "unmatched: 1\n"),
    ] {
        let link = world.link();
        let reply = world.send(link, &described(agent, 0, attributes));
        assert_eq!(offered(&reply).as_deref(), Some(expected));
        assert_eq!(reply.flags, 0);
    }
    assert_eq!(
        world.census(),
        ["a/one none pending: 1", "a/two none pending: 1", "- unmatched pending: 2"]
    );
    let series = r#"tidegate_offers_total{tier="a/one",rollout="",arm="none"}"#;
    assert_eq!(world.metric(series), Some(1.0));
}

#[test]
fn identifying_attributes_win_and_so_does_the_last_of_several() {
    let world = World::new(&estate());
    let mut first = described(1, 0, &[("tier", "two"), ("tier", "none"), ("region", "eu")]);
    let description = first.agent_description.as_mut().expect("described");
    description.identifying_attributes = vec![attribute("tier", "two"), attribute("tier", "one")];
    // A value that is no string hides nothing.
    let value = opamp::any_value::Value::IntValue(7);
    description.identifying_attributes.push(opamp::KeyValue {
        key: "tier".into(),
        value: Some(opamp::AnyValue { value: Some(value) }),
    });
    let reply = world.send(world.link(), &first);
    assert_eq!(offered(&reply).as_deref(), Some("one: 1\n"));
}

#[test]
fn row_7_every_message_gets_one_reply_and_a_heartbeat_twenty_bytes() {
    let world = World::new(&estate());
    let link = world.link();
    world.send(link, &described(1, 0, &[]));
    for sequence in 1..=1_000 {
        let heartbeat = message(1, sequence).encode_to_vec();
        let reply = world.on(link, |link| world.server.handle_message(link, now(2), &heartbeat));
        assert_eq!(reply.len(), 20);
        assert_eq!(decode(&reply).instance_uid[..], uid(1).0);
    }
}

#[test]
fn row_87_a_push_and_a_reply_share_their_bytes() {
    let world = World::new(&estate());
    let link = world.link();
    world.send(link, &described(1, 0, &[("tier", "one")]));
    world.server.install(
        estate().tier("a/one", &[("tier", "one")], "one: 2\n").compile(),
        HeadMeta::default(),
        now(1),
    );
    let mut pushed = Vec::new();
    let all = world.on(link, |link| {
        world.server.redecide(link, now(1), &mut |outgoing| {
            pushed.push(outgoing);
            ControlFlow::Continue(())
        })
    });
    assert!(all.is_continue());
    let first = described(2, 0, &[("tier", "one")]).encode_to_vec();
    let reply = world.on(world.link(), |link| world.server.handle_message(link, now(1), &first));
    let (pushed, replied) = (pushed[0].body.clone().expect("an offer"), reply.body.expect("too"));
    assert_eq!(pushed.as_ptr(), replied.as_ptr());
    assert_eq!(pushed, replied);
}

#[test]
fn bad_input_gets_a_readable_error_and_harms_nobody_else() {
    let world = World::new(&estate());
    let link = world.link();
    world.send(link, &described(1, 0, &[]));
    let mut cut = described(2, 0, &[("tier", "one")]).encode_to_vec();
    cut.truncate(cut.len() - 1);
    for (bytes, uid_known) in
        [(&b""[..], false), (b"\x0a\x03abc", false), (&[0xff; 40], false), (&cut, true)]
    {
        let outgoing = world.on(link, |link| world.server.handle_message(link, now(1), bytes));
        assert!(outgoing.refused);
        let reply = decode(&outgoing);
        let error = reply.error_response.expect("an error");
        assert_eq!(error.r#type, i32::from(opamp::ServerErrorResponseType::BadRequest));
        assert!(!error.error_message.is_empty());
        assert_eq!(!reply.instance_uid.is_empty(), uid_known);
    }
    assert_eq!(world.send(link, &message(1, 1)).flags, 0);
    assert_eq!(world.server.agents(), 1);
    let text = world.metrics.render();
    let reasons = text.lines().filter(|line| line.starts_with("tidegate_bad_messages_total{"));
    assert!(reasons.count() > 1, "counted by reason");
}

#[test]
fn what_we_do_not_serve_gets_a_plain_answer() {
    let world = World::new(&estate());
    let link = world.link();
    let mut first = described(1, 0, &[("tier", "one")]);
    first.package_statuses = Some(opamp::PackageStatuses::default());
    first.connection_settings_request = Some(opamp::ConnectionSettingsRequest::default());
    first.custom_capabilities = Some(opamp::CustomCapabilities::default());
    first.custom_message = Some(opamp::CustomMessage::default());
    first.available_components = Some(opamp::AvailableComponents::default());
    assert_eq!(offered(&world.send(link, &first)).as_deref(), Some("one: 1\n"), "row 71");
}

#[test]
fn an_agent_that_asks_for_a_uid_gets_one_and_is_recognised() {
    let world = World::new(&estate());
    let link = world.link();
    let first = opamp::AgentToServer { flags: 1, ..described(1, 0, &[("tier", "one")]) };
    let reply = world.send(link, &first);
    assert_eq!(offered(&reply).as_deref(), Some("one: 1\n"));
    let new = reply.agent_identification.expect("a new uid").new_instance_uid;
    assert_eq!(new[6] >> 4, 7, "version 7");

    let mut next = message(1, 1);
    next.instance_uid = new.clone();
    let reply = world.send(link, &next);
    assert_eq!((reply.flags, reply.agent_identification), (0, None));
    let new = InstanceUid::from_slice(&new).expect("16 bytes");
    assert!(world.server.knows(&new) && !world.server.knows(&uid(1)));
    assert_eq!(world.server.agents(), 1);
}

#[test]
fn a_credential_binds_every_agent_of_its_link_before_matching() {
    let grant = grant("tier=one");
    let world = World::new(&estate());
    let link = world.link_with(grant);
    assert!(offered(&world.send(link, &described(1, 0, &[("tier", "one")]))).is_some());
    for attributes in
        [&[][..], &[("tier", "two"), ("region", "eu")], &[("tier", "one"), ("tier", "")]]
    {
        let reply = world.send(link, &described(2, 0, attributes));
        let error = reply.error_response.expect("refused");
        assert!(error.error_message.contains("tier"), "{}", error.error_message);
    }
    assert!(!world.server.knows(&uid(2)));
    assert_eq!(world.send(link, &message(1, 1)).flags, 0, "the other one is served");
    assert_eq!(world.metric(r#"tidegate_bad_messages_total{reason="binding"}"#), Some(3.0));
}

#[test]
fn values_too_long_to_keep_are_refused() {
    let world = World::new(&estate());
    let long = "x".repeat(KEPT_BYTES_MAX);
    let reply = world.send(world.link(), &described(1, 0, &[("tier", &long)]));
    assert!(reply.error_response.is_some());
    let reply = world.send(world.link(), &described(1, 0, &[("unmentioned", &long)]));
    assert_eq!(offered(&reply).as_deref(), Some("unmatched: 1\n"));
}

#[test]
fn past_the_cap_strangers_are_refused_until_somebody_leaves() {
    let mut world = World::with(&estate(), Settings { agents_max: 3, ..Settings::default() });
    let (bridge, link) = (world.link(), world.link());
    let refused = |reply: &opamp::ServerToAgent| reply.error_response.is_some();
    assert!(!refused(&world.send(bridge, &described(1, 0, &[]))));
    assert!(!refused(&world.send(bridge, &described(2, 0, &[]))));
    assert!(!refused(&world.poll(&described(3, 0, &[]))));
    let reply = world.send(link, &described(4, 0, &[]));
    assert!(reply.error_response.unwrap().error_message.contains("3 agents already"));
    assert!(refused(&world.poll(&described(5, 0, &[]))), "over HTTP too");
    assert!(!refused(&world.send(bridge, &message(2, 1))), "who is known is served");

    world.send(bridge, &bye(message(2, 2)));
    assert!(!refused(&world.send(link, &described(4, 1, &[]))), "a farewell makes room");
    assert!(refused(&world.send(link, &described(5, 0, &[]))));
    world.close(bridge);
    assert!(!refused(&world.send(link, &described(5, 1, &[]))), "so does the end of a link");
    assert!(refused(&world.send(link, &described(6, 0, &[]))));
    world.now += 91;
    world.server.handle_timeout(now(world.now), &mut |_| {});
    assert!(!refused(&world.send(link, &described(6, 1, &[]))), "and that of a silent session");
}

#[test]
fn a_cold_restart_asks_no_faster_than_its_budget() {
    let settings = Settings { full_state_per_second: 3, ..Settings::default() };
    let mut world = World::with(&estate(), settings);
    let links: Vec<_> = (0..10).map(|_| world.link()).collect();
    for (sequence, expected) in (7..).zip([3, 3, 3, 1, 0]) {
        let asked: u64 = (0..10)
            .map(|agent| world.send(links[agent as usize], &message(agent, sequence)).flags)
            .sum();
        assert_eq!(asked, expected);
        world.now += 1;
    }
    let series = r#"tidegate_full_state_requests_total{reason="unknown"}"#;
    assert_eq!(world.metric(series), Some(10.0));
}

#[test]
fn a_farewell_is_answered_and_leaves_no_trace() {
    let world = World::new(&estate());
    let link = world.link();
    world.send(link, &described(1, 0, &[("tier", "one")]));
    world.send(link, &described(2, 0, &[("tier", "one")]));
    let reply = world.send(link, &bye(message(1, 1)));
    assert_eq!((reply.flags, reply.remote_config), (0, None));
    assert_eq!(world.census(), ["a/one none pending: 1"]);
    let stranger = world.send(link, &bye(message(3, 9)));
    assert_eq!(stranger.flags, 0, "nobody is asked for anything on the way out");
    world.close(link);
    assert_eq!((world.server.agents(), world.census()), (0, vec![]));
}
