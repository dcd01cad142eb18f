//! Two links that claim one uid (spec/serving.md 13).

use crate::support::Gateway;
use crate::support::message::{Agent, offered};
use crate::support::raw::{PING, PONG, Raw, frame};

#[tokio::test]
async fn an_old_link_that_answers_keeps_the_uid() {
    let gateway = Gateway::start();
    let (mut old_agent, mut new_agent) = (Agent::new(1), Agent::new(1));
    let (mut old, _) = Raw::served(&gateway, &mut old_agent, "web").await;
    old_agent.sequence += 100;
    let (mut new, offer) = Raw::served(&gateway, &mut new_agent, "web").await;
    assert!(offered(&offer).is_some(), "the newcomer is served at once");
    gateway.tick(10);
    assert_eq!(old.frame().await.unwrap().0, PING);
    old.write(&frame(PONG, true, b"")).await;
    old.write(&frame(PING, true, b"handled?")).await;
    assert_eq!(old.frame().await.unwrap().0, PONG);
    new.send(&new_agent.heartbeat()).await;
    let told = new.reply().await;
    assert_eq!(&*told.instance_uid, &new_agent.uid, "still addressed to the old uid");
    let uid = told.agent_identification.unwrap().new_instance_uid;
    assert_eq!(uid.len(), 16);
    assert_ne!(&*uid, &new_agent.uid);
    gateway.tick(30);
    old.send(&old_agent.heartbeat()).await;
    assert_eq!(old.reply().await.agent_identification, None);
}

#[tokio::test]
async fn an_old_link_that_does_not_answer_is_dropped() {
    let gateway = Gateway::start();
    let (mut old, _) = Raw::served(&gateway, &mut Agent::new(1), "web").await;
    let mut agent = Agent::new(1);
    let (mut new, _) = Raw::served(&gateway, &mut agent, "web").await;
    gateway.tick(10);
    gateway.tick(16);
    assert_eq!(old.frame().await.unwrap().0, PING);
    assert!(old.frame().await.is_none());
    gateway.until("it is gone", |gateway| gateway.front.live() == 1).await;
    let duplicate = r#"tidegate_disconnects_total{transport="ws",reason="duplicate"}"#;
    assert_eq!(gateway.metric(duplicate), 1.0);
    new.send(&agent.heartbeat()).await;
    assert_eq!(new.reply().await.agent_identification, None);
    assert_eq!(gateway.server.agents(), 1);
}
