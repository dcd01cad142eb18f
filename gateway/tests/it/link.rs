//! A link that is up: messages, control frames, violations, silence, the end.

use std::collections::BTreeSet;

use proto::opamp::ServerErrorResponseType;
use tungstenite::Message;
use tungstenite::protocol::CloseFrame;
use tungstenite::protocol::frame::coding::CloseCode;

use crate::support::message::{Agent, offered, reply};
use crate::support::raw::{BINARY, CLOSE, PING, PONG, Raw, TEXT, UPGRADE, frame};
use crate::support::{Gateway, Setup, artefact_text};

#[tokio::test]
async fn a_collector_gets_its_artefact_once_and_then_short_answers() {
    let gateway = Gateway::start();
    let mut agent = Agent::new(1);
    let (mut raw, offer) = Raw::served(&gateway, &mut agent, "kafka").await;
    assert_eq!(offered(&offer), Some(artefact_text("kafka", 1)));
    assert_eq!(offer.capabilities, 7);
    for message in [agent.applied(&offer), agent.heartbeat(), agent.heartbeat()] {
        raw.send(&message).await;
        let (opcode, payload) = raw.frame().await.unwrap();
        assert_eq!((opcode, payload.len()), (BINARY, 21));
        assert_eq!(&*reply(&payload[1..]).instance_uid, &agent.uid);
    }
}

#[tokio::test]
async fn a_report_may_come_in_fragments_with_a_ping_between_them() {
    let gateway = Gateway::start();
    let mut raw = Raw::upgraded(&gateway).await;
    let message = [&[0][..], &Agent::new(1).report("web", 30_000)].concat();
    let mut pieces: Vec<&[u8]> = message.chunks(4_096).collect();
    let last = pieces.pop().unwrap();
    for (index, piece) in pieces.into_iter().enumerate() {
        raw.write(&frame(if index == 0 { BINARY } else { 0 }, false, piece)).await;
        raw.write(&frame(PING, true, &[index as u8])).await;
        assert_eq!(raw.frame().await.unwrap(), (PONG, vec![index as u8]));
    }
    raw.write(&frame(0, true, last)).await;
    assert_eq!(offered(&raw.reply().await), Some(artefact_text("web", 1)));
}

#[tokio::test]
async fn a_thousand_pipelined_heartbeats_get_a_thousand_answers_in_order() {
    let gateway = Gateway::start();
    let mut raw = Raw::upgraded(&gateway).await;
    let mut agents: Vec<Agent> = (0..1_000).map(Agent::new).collect();
    let all: Vec<u8> = agents
        .iter_mut()
        .flat_map(|agent| frame(BINARY, true, &[&[0][..], &agent.heartbeat()].concat()))
        .collect();
    raw.write(&all).await;
    for agent in &agents {
        assert_eq!(&*raw.reply().await.instance_uid, &agent.uid);
    }
    raw.write(&frame(PING, true, b"end")).await;
    assert_eq!(raw.frame().await.unwrap(), (PONG, b"end".to_vec()), "and nothing more");
}

#[tokio::test]
async fn a_message_that_makes_no_sense_is_answered_and_the_link_stays() {
    let gateway = Gateway::start();
    let mut agent = Agent::new(1);
    let (mut raw, _) = Raw::served(&gateway, &mut agent, "web").await;
    let cut = agent.report("web", 100);
    let no_uid = [0x10, 0x01];
    for payload in [
        [&[0][..], b"\xff\xff\xff not protobuf"].concat(),
        [&[0][..], &cut[..cut.len() - 50]].concat(),
        [&[0][..], &no_uid].concat(),
        vec![0],
        vec![],
        vec![0x05, 0x0a],
        vec![0x80; 11],
    ] {
        raw.write(&frame(BINARY, true, &payload)).await;
        let error = raw.reply().await.error_response.unwrap();
        assert_eq!(error.r#type, ServerErrorResponseType::BadRequest as i32, "{payload:?}");
        assert!(!error.error_message.is_empty(), "{payload:?}");
    }
    raw.send(&agent.heartbeat()).await;
    assert_eq!(raw.reply().await.error_response, None);
}

#[tokio::test]
async fn violations_close_with_the_code_that_names_them() {
    let gateway = Setup::message_bytes(1_000).start();
    let unmasked = [&[0x82, 2][..], b"\0\0"].concat();
    let mut reserved = frame(BINARY, true, b"\0");
    reserved[0] |= 0x40;
    let fragments_too_big = [frame(BINARY, false, &[0; 600]), frame(0, true, &[0; 401])].concat();
    for (bytes, code, reason) in [
        (frame(TEXT, true, b"hi"), 1003, "protocol"),
        (frame(BINARY, true, &[0; 1_001]), 1009, "oversize"),
        (fragments_too_big, 1009, "oversize"),
        (unmasked, 1002, "protocol"),
        (reserved, 1002, "protocol"),
        (frame(0, true, b"x"), 1002, "protocol"),
        (frame(3, true, b"x"), 1002, "protocol"),
        (frame(PING, false, b"x"), 1002, "protocol"),
        (frame(PING, true, &[0; 126]), 1002, "protocol"),
        (frame(CLOSE, true, b"x"), 1002, "protocol"),
    ] {
        let sample = format!("tidegate_disconnects_total{{transport=\"ws\",reason=\"{reason}\"}}");
        let before = gateway.metric(&sample);
        let mut raw = Raw::upgraded(&gateway).await;
        raw.write(&bytes).await;
        assert_eq!(raw.close_code().await, code, "{bytes:?}");
        drop(raw);
        gateway.until("it is counted", |gateway| gateway.metric(&sample) == before + 1.0).await;
    }
    let mut raw = Raw::upgraded(&gateway).await;
    raw.write(&frame(BINARY, true, &[0; 1_000])).await;
    assert!(raw.reply().await.error_response.is_some(), "the limit itself is allowed");
}

#[tokio::test]
async fn a_message_larger_than_every_buffer_arrives() {
    let gateway = Setup::message_bytes(4 << 20).start();
    let mut raw = Raw::upgraded(&gateway).await;
    raw.send(&Agent::new(1).report("web", 3 << 20)).await;
    assert_eq!(offered(&raw.reply().await), Some(artefact_text("web", 1)));
}

#[tokio::test]
async fn another_library_upgrades_talks_and_closes_in_peace() {
    let gateway = Gateway::start();
    let addr = gateway.addr;
    let client = move || {
        let stream = std::net::TcpStream::connect(addr).unwrap();
        let (mut socket, _) = tungstenite::client(format!("ws://{addr}/v1/opamp"), stream).unwrap();
        let mut agent = Agent::new(1);
        let mut exchange = |message: Vec<u8>| {
            let message = [&[0][..], &message].concat();
            socket.send(Message::binary(message)).unwrap();
            match socket.read().unwrap() {
                Message::Binary(bytes) => reply(&bytes[1..]),
                other => panic!("{other:?}"),
            }
        };
        let offer = exchange(agent.report("kafka", 100_000));
        assert_eq!(offered(&offer), Some(artefact_text("kafka", 1)));
        assert_eq!(offered(&exchange(agent.applied(&offer))), None);
        let bye = CloseFrame { code: CloseCode::Normal, reason: "".into() };
        socket.close(Some(bye.clone())).unwrap();
        assert_eq!(socket.read().unwrap(), Message::Close(Some(bye)));
        assert!(matches!(socket.read(), Err(tungstenite::Error::ConnectionClosed)));
    };
    tokio::task::spawn_blocking(client).await.unwrap();
    gateway.until("it is gone", |gateway| gateway.front.live() == 0).await;
    let by_peer = r#"tidegate_disconnects_total{transport="ws",reason="peer"}"#;
    assert_eq!(gateway.metric(by_peer), 1.0);
}

#[tokio::test]
async fn links_that_break_are_forgotten_exactly_once() {
    let gateway = Gateway::start();
    let mut links = Vec::new();
    for n in 0..40 {
        links.push(Raw::served(&gateway, &mut Agent::new(n), "web").await.0);
    }
    assert_eq!((gateway.server.agents(), gateway.front.live()), (40, 40));
    for (index, raw) in links.drain(..).enumerate() {
        if index % 2 == 0 {
            // As when a process is killed: a reset in place of an end.
            raw.stream.set_zero_linger().unwrap();
        }
    }
    gateway.until("all are gone", |gateway| gateway.front.live() == 0).await;
    assert_eq!(gateway.server.agents(), 0);
    let lost = r#"tidegate_disconnects_total{transport="ws",reason="lost"}"#;
    assert_eq!(gateway.metric(lost), 40.0);
    assert_eq!(gateway.metric(r#"tidegate_connections{transport="ws"}"#), 0.0);
}

#[tokio::test]
async fn a_silent_link_is_pinged_and_dropped_unless_it_answers() {
    let gateway = Gateway::start();
    let mut answers = Raw::upgraded(&gateway).await;
    let mut is_dead = Raw::upgraded(&gateway).await;
    gateway.sweep(40);
    gateway.sweep(60);
    assert_eq!(answers.frame().await.unwrap().0, PING);
    answers.write(&frame(PONG, true, b"")).await;
    // The answer to this ping comes after the pong was handled.
    answers.write(&frame(PING, true, b"heard?")).await;
    assert_eq!(answers.frame().await.unwrap(), (PONG, b"heard?".to_vec()));
    gateway.sweep(74);
    assert_eq!(gateway.front.live(), 2, "it still has a second");
    gateway.sweep(75);
    assert_eq!(is_dead.frame().await.unwrap().0, PING);
    assert!(is_dead.frame().await.is_none());
    gateway.until("the dead one is gone", |gateway| gateway.front.live() == 1).await;
    let silent = r#"tidegate_disconnects_total{transport="ws",reason="silent"}"#;
    assert_eq!(gateway.metric(silent), 1.0);
}

#[tokio::test]
async fn who_spoke_and_was_not_read_yet_is_not_silent() {
    let gateway = Gateway::start();
    let mut agent = Agent::new(1);
    let (mut raw, _) = Raw::served(&gateway, &mut agent, "web").await;
    let message = frame(BINARY, true, &[&[0][..], &agent.heartbeat()].concat());
    // Nothing is awaited from here on, so nobody reads it.
    assert_eq!(raw.stream.try_write(&message).unwrap(), message.len());
    gateway.sweep(1_000);
    gateway.sweep(2_000);
    // Its answer, and neither a ping before that nor the end.
    raw.reply().await;
}

#[tokio::test]
async fn half_a_message_may_not_stay_for_ever_and_a_chatty_link_may() {
    let gateway = Gateway::start();
    let mut stalls = Raw::upgraded(&gateway).await;
    let mut chats = Raw::upgraded(&gateway).await;
    let mut agent = Agent::new(1);
    let message = frame(BINARY, true, &[&[0][..], &agent.report("web", 10_000)].concat());
    stalls.write(&message[..5_000]).await;
    chats.write(&message[..5_000]).await;
    gateway.until("both hold a part", |gateway| gateway.front.half_received().0 == 2).await;
    // What is left after this read is half a message too, but another one.
    chats.write(&[&message[5_000..], &message[..5_000]].concat()).await;
    assert!(chats.reply().await.remote_config.is_some());
    gateway.sweep(1 + 29);
    assert_eq!(gateway.front.half_received().0, 2);
    gateway.sweep(1 + 31);
    assert!(stalls.frame().await.is_none());
    gateway.until("both are gone", |gateway| gateway.front.half_received() == (0, 0)).await;
    let stalled = r#"tidegate_disconnects_total{transport="ws",reason="stalled"}"#;
    gateway.until("both are counted", |gateway| gateway.metric(stalled) == 2.0).await;
}

#[tokio::test]
async fn any_mix_of_ends_at_once_is_one_end() {
    let gateway = Gateway::start();
    for round in 0..200 {
        let mut raw = Raw::upgraded(&gateway).await;
        raw.send(&Agent::new(round).report("web", 100)).await;
        let close = frame(CLOSE, true, &1000_u16.to_be_bytes());
        let front = std::sync::Arc::clone(&gateway.front);
        let sweeping = tokio::task::spawn_blocking(move || {
            front.sweep(gateway::clock::Now { seconds: 1_000, unix_ms: 1_800_000_000_000 });
            front.sweep(gateway::clock::Now { seconds: 2_000, unix_ms: 1_800_000_000_000 });
        });
        raw.write(&close).await;
        drop(raw);
        sweeping.await.unwrap();
    }
    gateway.until("all are gone", |gateway| gateway.front.live() == 0).await;
    assert_eq!(gateway.server.agents(), 0);
    assert_eq!(gateway.metric(r#"tidegate_connections{transport="ws"}"#), 0.0);
    let ends: f64 = ["peer", "lost", "silent", "slow_reader", "protocol"]
        .map(|reason| format!("tidegate_disconnects_total{{transport=\"ws\",reason=\"{reason}\"}}"))
        .iter()
        .map(|sample| gateway.metric(sample))
        .sum();
    assert_eq!(ends, 200.0);
}

#[tokio::test]
async fn many_agents_share_a_link_and_leave_it_one_by_one() {
    let gateway = Gateway::start();
    let mut raw = Raw::upgraded(&gateway).await;
    let mut offers = BTreeSet::new();
    for n in 0..50 {
        let role = if n % 2 == 0 { "web" } else { "kafka" };
        raw.send(&Agent::new(n).report(role, 100)).await;
        offers.insert(offered(&raw.reply().await).unwrap());
    }
    assert_eq!(offers.len(), 2);
    assert_eq!((gateway.server.agents(), gateway.front.live()), (50, 1));
    drop(raw);
    gateway.until("all are gone", |gateway| gateway.server.agents() == 0).await;
}

#[tokio::test]
async fn a_link_whose_request_was_cut_off_leaves_nothing() {
    let gateway = Gateway::start();
    for length in [1, 20, UPGRADE.len()] {
        let mut raw = Raw::connect(&gateway).await;
        raw.write(&UPGRADE.as_bytes()[..length]).await;
    }
    let mut raw = Raw::upgraded(&gateway).await;
    raw.send(&Agent::new(1).heartbeat()).await;
    raw.reply().await;
    assert_eq!(gateway.front.live(), 1);
}
