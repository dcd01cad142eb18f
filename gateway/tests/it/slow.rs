//! Peers that do not read, and many that are half way through a message.

use gateway::transport::budget::PARTIAL_LINKS_MAX;

use crate::support::message::Agent;
use crate::support::raw::{BINARY, Raw, frame};
use crate::support::{Gateway, estate};

const SLOW: &str = r#"tidegate_disconnects_total{transport="ws",reason="slow_reader"}"#;

#[tokio::test]
async fn who_asks_without_reading_is_slowed_down_and_then_dropped() {
    let gateway = Gateway::start();
    let (mut raw, _) = Raw::served(&gateway, &mut Agent::new(1), "web").await;
    socket2::SockRef::from(&raw.stream).set_recv_buffer_size(4_096).unwrap();
    // Bad messages: the answer is longer than the question.
    let questions = frame(BINARY, true, &[0]).repeat(100);
    // The gateway stops reading, so that this cannot be written for ever.
    let asking = tokio::spawn(async move {
        use tokio::io::AsyncWriteExt;
        while raw.stream.write_all(&questions).await.is_ok() {}
        raw
    });
    let mut bad = 0.0;
    let mut same = 0;
    gateway
        .until("it is no longer read from", |gateway| {
            let now = gateway.metric("tidegate_bad_messages_total{reason=\"no_uid\"}")
                + gateway.metric("tidegate_messages_received_total{transport=\"ws\"}");
            same = if now == bad { same + 1 } else { 0 };
            bad = now;
            same > 2_000
        })
        .await;
    assert_eq!((gateway.front.live(), gateway.metric(SLOW)), (1, 0.0));
    gateway.sweep(1_000);
    gateway.until("it is dropped", |gateway| gateway.metric(SLOW) == 1.0).await;
    asking.await.unwrap();
}

#[tokio::test]
async fn who_does_not_read_pushes_is_dropped_at_the_limit() {
    let gateway = Gateway::start();
    let mut agent = Agent::new(1);
    let (raw, _) = Raw::served(&gateway, &mut agent, "web").await;
    let (mut reader, _) = Raw::served(&gateway, &mut Agent::new(2), "web").await;
    for version in 2.. {
        gateway.install(&estate(version));
        let reply = reader.reply().await;
        assert!(reply.remote_config.is_some());
        if gateway.metric(SLOW) == 1.0 {
            break;
        }
        assert!(version < 10_000, "40 MB are queued for a peer that does not read");
    }
    assert_eq!(gateway.front.live(), 1, "the one that reads is still there");
    drop(raw);
}

#[tokio::test]
async fn who_reads_late_gets_everything_in_order() {
    let gateway = Gateway::start();
    let mut raw = Raw::upgraded(&gateway).await;
    let rounds = 40_u32;
    let mut all = Vec::new();
    for n in 0..rounds {
        let message = [&[0][..], &Agent::new(n).report("web", 10)].concat();
        all.extend(frame(BINARY, true, &message));
    }
    raw.write(&all).await;
    let answered = "tidegate_messages_sent_total{transport=\"ws\"}";
    gateway
        .until("all are answered", |gateway| gateway.metric(answered) == f64::from(rounds))
        .await;
    for n in 0..rounds {
        let reply = raw.reply().await;
        assert_eq!(&*reply.instance_uid, &Agent::new(n).uid);
        assert!(reply.remote_config.is_some());
    }
}

#[tokio::test]
async fn only_so_many_links_hold_half_a_message_and_the_others_lose_nothing() {
    let gateway = Gateway::start();
    let half_way = |n: u32| {
        let message = [&[0][..], &Agent::new(n).report("web", 3_000)].concat();
        let frame = frame(BINARY, true, &message);
        let rest = frame[2_000..].to_vec();
        (frame, rest)
    };
    let mut links = Vec::new();
    for n in 0..PARTIAL_LINKS_MAX + 44 {
        let mut raw = Raw::upgraded(&gateway).await;
        let (frame, rest) = half_way(n);
        raw.write(&frame[..2_000]).await;
        links.push((raw, rest));
    }
    let full = |gateway: &Gateway| gateway.front.half_received().0 == PARTIAL_LINKS_MAX;
    gateway.until("the budget is used up", full).await;
    for (raw, rest) in &mut links {
        raw.write(rest).await;
    }
    for (raw, _) in &mut links {
        assert!(raw.reply().await.remote_config.is_some());
    }
    assert_eq!(gateway.front.half_received(), (0, 0));
}

#[tokio::test]
async fn peers_that_stop_half_way_do_not_silence_the_others() {
    let gateway = Gateway::start();
    let mut agent = Agent::new(9_999);
    let (mut other, _) = Raw::served(&gateway, &mut agent, "web").await;
    let half = frame(BINARY, true, &[0; 3_000])[..2_000].to_vec();
    let mut links = Vec::new();
    for _ in 0..PARTIAL_LINKS_MAX {
        let mut raw = Raw::upgraded(&gateway).await;
        raw.write(&half).await;
        links.push(raw);
    }
    let full = |gateway: &Gateway| gateway.front.half_received().0 == PARTIAL_LINKS_MAX;
    gateway.until("the budget is used up", full).await;
    for _ in 0..3 {
        other.send(&agent.heartbeat()).await;
        other.reply().await;
    }
    let (_late, offer) = Raw::served(&gateway, &mut Agent::new(1), "kafka").await;
    assert!(offer.remote_config.is_some());
    assert!(full(&gateway));
}
