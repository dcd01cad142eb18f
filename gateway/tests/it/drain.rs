//! How a replica leaves.

use std::time::Duration;

use gateway::config::DrainConfig;
use gateway::drain::Phase;
use tokio::net::TcpStream;

use crate::support::message::Agent;
use crate::support::raw::{Raw, UPGRADE, header};
use crate::support::{Gateway, PATIENCE, Setup};

#[tokio::test]
async fn links_are_closed_with_1001_and_then_the_replica_is_done() {
    let mut gateway = Gateway::start();
    let mut links = Vec::new();
    for n in 0..20 {
        links.push(Raw::served(&gateway, &mut Agent::new(n), "web").await.0);
    }
    gateway.stop();
    for raw in &mut links {
        assert_eq!(raw.close_code().await, 1001);
    }
    drop(links);
    tokio::time::timeout(PATIENCE, &mut gateway.run).await.unwrap().unwrap();
    assert_eq!(gateway.front.phase(), Phase::Drained);
    assert_eq!((gateway.front.live(), gateway.server.agents()), (0, 0));
    assert!(TcpStream::connect(gateway.addr).await.is_err(), "the listener is closed");
    let drained = r#"tidegate_disconnects_total{transport="ws",reason="drain"}"#;
    assert_eq!(gateway.metric(drained), 20.0);
}

#[tokio::test]
async fn accepting_goes_on_while_readiness_fails() {
    let drain = DrainConfig { delay: Duration::from_secs(3_600), over: Duration::ZERO };
    let mut gateway = Setup { drain, ..Setup::default() }.start();
    gateway.stop();
    gateway.reached(Phase::Leaving).await;
    let (_raw, offer) = Raw::served(&gateway, &mut Agent::new(1), "web").await;
    assert!(offer.remote_config.is_some());
    assert_eq!(gateway.front.phase(), Phase::Leaving);
}

#[tokio::test]
async fn a_poller_is_answered_and_its_connection_ends() {
    let mut gateway = Gateway::start();
    let mut idle = Raw::connect(&gateway).await;
    let body = Agent::new(1).report("web", 10);
    let head = format!(
        "POST /v1/opamp HTTP/1.1\r\nHost: gw\r\nContent-Type: application/x-protobuf\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    idle.write(&[head.as_bytes(), &body].concat()).await;
    let (status, answer_head, _) = idle.answer().await;
    assert_eq!((status, header(&answer_head, "connection")), (200, None));
    let mut busy = Raw::connect(&gateway).await;
    busy.write(head.as_bytes()).await;
    gateway.until("both are there", |gateway| gateway.front.live() == 2).await;
    gateway.stop();
    assert!(idle.frame().await.is_none());
    busy.write(&body).await;
    let (status, answer_head, _) = busy.answer().await;
    assert_eq!((status, header(&answer_head, "connection")), (200, Some("close")));
    tokio::time::timeout(PATIENCE, &mut gateway.run).await.unwrap().unwrap();
    assert_eq!(gateway.front.live(), 0);
}

#[tokio::test]
async fn who_is_in_the_handshake_when_the_drain_begins_is_told_so_too() {
    let mut gateway = Gateway::start();
    let mut early = Raw::connect(&gateway).await;
    let (first, rest) = UPGRADE.as_bytes().split_at(30);
    early.write(first).await;
    gateway.stop();
    gateway.reached(Phase::Draining).await;
    early.write(&[rest, b"\r\n"].concat()).await;
    assert!(early.head().await.starts_with("HTTP/1.1 101"));
    assert_eq!(early.close_code().await, 1001);
    drop(early);
    tokio::time::timeout(PATIENCE, &mut gateway.run).await.unwrap().unwrap();
    assert_eq!(gateway.front.live(), 0);
}
