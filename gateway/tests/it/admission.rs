//! Who is let in, and what the others are told.

use crate::support::Setup;
use crate::support::message::Agent;
use crate::support::raw::{Raw, UPGRADE, header};

#[tokio::test]
async fn past_the_burst_newcomers_are_told_to_come_back_later() {
    let gateway = Setup::admission(1, 2, 100).start();
    let mut agent = Agent::new(1);
    let (mut first, _) = Raw::served(&gateway, &mut agent, "web").await;
    let _second = Raw::upgraded(&gateway).await;
    let mut refused = Raw::connect(&gateway).await;
    refused.write(format!("{UPGRADE}\r\n").as_bytes()).await;
    let (status, head, _) = refused.answer().await;
    assert_eq!(status, 503);
    let retry: u32 = header(&head, "retry-after").unwrap().parse().unwrap();
    assert!((30..=90).contains(&retry), "{retry}");

    let mut known = Raw::connect(&gateway).await;
    let uid = "OpAMP-Instance-UID: 11111111-1111-1111-1111-111100000001";
    known.write(format!("{UPGRADE}{uid}\r\n\r\n").as_bytes()).await;
    let (status, head, _) = known.answer().await;
    assert_eq!(status, 503);
    let retry: u32 = header(&head, "retry-after").unwrap().parse().unwrap();
    assert!((1..=30).contains(&retry), "{retry}");

    first.send(&agent.heartbeat()).await;
    first.reply().await;
    assert_eq!(gateway.metric(r#"tidegate_admission_rejected_total{reason="rate"}"#), 2.0);
    assert_eq!(gateway.front.live(), 2);
}

#[tokio::test]
async fn a_full_replica_takes_one_in_when_one_leaves() {
    let gateway = Setup::admission(1_000, 1_000, 2).start();
    let first = Raw::upgraded(&gateway).await;
    let _second = Raw::upgraded(&gateway).await;
    let mut refused = Raw::connect(&gateway).await;
    refused.write(format!("{UPGRADE}\r\n").as_bytes()).await;
    assert_eq!(refused.answer().await.0, 503);
    assert_eq!(gateway.metric(r#"tidegate_admission_rejected_total{reason="links"}"#), 1.0);
    drop(first);
    gateway.until("one left", |gateway| gateway.front.live() == 1).await;
    let _third = Raw::upgraded(&gateway).await;
}
