//! A new head reaches the links that are connected, and only those that it concerns.

use crate::support::message::{Agent, offered};
use crate::support::raw::{PING, PONG, Raw, frame};
use crate::support::{Gateway, artefact, artefact_text, estate};

#[tokio::test]
async fn only_links_whose_content_changed_are_pushed_to() {
    let gateway = Gateway::start();
    let (mut web_agent, mut kafka_agent) = (Agent::new(1), Agent::new(2));
    let (mut web, offer) = Raw::served(&gateway, &mut web_agent, "web").await;
    web.send(&web_agent.applied(&offer)).await;
    web.reply().await;
    let (mut kafka, offer) = Raw::served(&gateway, &mut kafka_agent, "kafka").await;
    kafka.send(&kafka_agent.applied(&offer)).await;
    kafka.reply().await;

    let mut changed = estate(1);
    changed.tiers.get_mut("shop/kafka").unwrap().base = artefact("kafka", 2);
    gateway.install(&changed);
    let push = kafka.reply().await;
    assert_eq!(offered(&push), Some(artefact_text("kafka", 2)));
    assert_eq!(&*push.instance_uid, &kafka_agent.uid);
    assert_eq!(push.capabilities, 7);

    gateway
        .until("the walk is over", |gateway| gateway.metric("tidegate_push_pending") == 0.0)
        .await;
    web.write(&frame(PING, true, b"anything?")).await;
    assert_eq!(web.frame().await.unwrap(), (PONG, b"anything?".to_vec()), "not a byte before it");
}

#[tokio::test]
async fn a_head_that_changes_nothing_sends_nothing_and_the_newest_of_many_wins() {
    let gateway = Gateway::start();
    let mut agent = Agent::new(1);
    let (mut raw, offer) = Raw::served(&gateway, &mut agent, "web").await;
    raw.send(&agent.applied(&offer)).await;
    raw.reply().await;
    gateway.install(&estate(1));
    for version in 2..30 {
        gateway.install(&estate(version));
    }
    let mut last = String::new();
    while last != artefact_text("web", 29) {
        let next = offered(&raw.reply().await).unwrap();
        assert_ne!(next, last, "nothing is sent twice");
        last = next;
    }
    raw.write(&frame(PING, true, b"")).await;
    assert_eq!(raw.frame().await.unwrap().0, PONG);
}

#[tokio::test]
async fn an_offer_pushed_is_an_offer_answered_but_for_the_uid() {
    let gateway = Gateway::start();
    let (mut pushed, mut asked) = (Agent::new(1), Agent::new(2));
    let (mut raw, _) = Raw::served(&gateway, &mut pushed, "web").await;
    gateway.install(&estate(2));
    let (_, push) = raw.frame().await.unwrap();
    let mut other = Raw::upgraded(&gateway).await;
    other.send(&asked.report("web", 10)).await;
    let (_, answer) = other.frame().await.unwrap();
    assert_eq!(push[19..], answer[19..], "one encoder for both");
    assert_eq!((&push[3..19], &answer[3..19]), (&pushed.uid[..], &asked.uid[..]));
}

#[tokio::test]
async fn every_link_of_many_gets_its_push() {
    let gateway = Gateway::start();
    let mut links = Vec::new();
    for n in 0..200 {
        links.push(Raw::served(&gateway, &mut Agent::new(n), "web").await.0);
    }
    gateway.install(&estate(2));
    for raw in &mut links {
        assert_eq!(offered(&raw.reply().await), Some(artefact_text("web", 2)));
    }
}

#[tokio::test]
async fn a_bridge_that_reads_late_gets_every_push() {
    let gateway = Gateway::start();
    let mut bridge = Raw::upgraded(&gateway).await;
    socket2::SockRef::from(&bridge.stream).set_recv_buffer_size(65_536).unwrap();
    let agents = 400;
    for n in 0..agents {
        bridge.send(&Agent::new(n).report("web", 10)).await;
        assert!(offered(&bridge.reply().await).is_some());
    }
    gateway.install(&estate(2));
    // 1.6 MB of offers, many times what may wait for a link.
    gateway.until("some are sent", |gateway| gateway.metric("tidegate_push_pending") == 1.0).await;
    let mut told = std::collections::BTreeSet::new();
    for _ in 0..agents {
        let push = bridge.reply().await;
        assert_eq!(offered(&push), Some(artefact_text("web", 2)));
        assert!(told.insert(push.instance_uid), "nobody is told twice");
    }
    assert_eq!(gateway.front.live(), 1);
}
