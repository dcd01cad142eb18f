//! From a socket to a link, or to a readable refusal.

use crate::support::message::Agent;
use crate::support::raw::{Raw, UPGRADE, header};
use crate::support::{Gateway, Setup};
use std::time::Duration;

#[tokio::test]
async fn an_upgrade_is_granted_without_extensions_and_names_the_replica() {
    let setup = Setup { instance: Some("eu-1/0.1.0/7".into()), ..Setup::default() };
    let gateway = setup.start();
    let mut raw = Raw::connect(&gateway).await;
    raw.write(format!("{UPGRADE}Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n").as_bytes())
        .await;
    let head = raw.head().await;
    assert!(head.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{head}");
    assert_eq!(header(&head, "sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    assert_eq!(header(&head, "sec-websocket-extensions"), None);
    assert_eq!(header(&head, "tidegate-instance"), Some("eu-1/0.1.0/7"));
}

#[tokio::test]
async fn what_is_no_upgrade_gets_its_status_and_a_text() {
    let gateway = Gateway::start();
    let good = format!("{UPGRADE}\r\n");
    let many_headers = (0..70).fold(UPGRADE.to_owned(), |head, n| head + &format!("x-{n}: 1\r\n"));
    for (request, status, says) in [
        (good.replace("/v1/opamp", "/"), 404, "/v1/opamp"),
        (good.replace("/v1/opamp", "/v1/opamp/"), 404, "/v1/opamp"),
        (good.replace("Upgrade: websocket\r\n", ""), 426, "Upgrade: websocket"),
        (good.replace("Version: 13", "Version: 7"), 426, "version 13"),
        (good.replace("Connection: Upgrade", "Connection: close"), 400, "Connection"),
        (good.replace("dGhlIHNhbXBsZSBub25jZQ==", "short"), 400, "Sec-WebSocket-Key"),
        (good.replace("Host: gw", "Content-Length: 3"), 400, "body"),
        (good.replace("GET", "DELETE"), 405, "POST"),
        (good.replace("GET", "POST"), 415, "application/x-protobuf"),
        ("GET /v1/opamp HTTP/1.1\r\nHost: gw\r\n\r\n".into(), 426, "OpAMP"),
        ("\x16\x03\x01\x02\x00\x01\x00\x01".into(), 400, "HTTP/1.1"),
        (format!("GET /v1/opamp HTTP/1.1\r\nCookie: {}", "x".repeat(20_000)), 431, "16 KiB"),
        (many_headers + "\r\n", 431, "64 headers"),
    ] {
        let mut raw = Raw::connect(&gateway).await;
        raw.write(request.as_bytes()).await;
        let (got, head, body) = raw.answer().await;
        let body = String::from_utf8(body).unwrap();
        assert_eq!(got, status, "{request}\n{head}{body}");
        assert!(body.contains(says), "{request}\n{head}{body}");
    }
    gateway.until("every place is given back", |gateway| gateway.front.live() == 0).await;
}

#[tokio::test]
async fn a_request_and_a_frame_may_come_byte_by_byte() {
    let gateway = Gateway::start();
    let mut raw = Raw::connect(&gateway).await;
    for byte in format!("{UPGRADE}\r\n").as_bytes() {
        raw.write(&[*byte]).await;
    }
    assert!(raw.head().await.starts_with("HTTP/1.1 101 "));
    let message = [&[0][..], &Agent::new(1).report("web", 10)].concat();
    for byte in crate::support::raw::frame(crate::support::raw::BINARY, true, &message) {
        raw.write(&[byte]).await;
    }
    assert!(raw.reply().await.remote_config.is_some());
}

#[tokio::test]
async fn a_frame_may_follow_the_request_at_once() {
    let gateway = Gateway::start();
    let mut raw = Raw::connect(&gateway).await;
    let message = [&[0][..], &Agent::new(1).report("web", 10)].concat();
    let frame = crate::support::raw::frame(crate::support::raw::BINARY, true, &message);
    let (now, later) = frame.split_at(frame.len() / 2);
    raw.write(&[format!("{UPGRADE}\r\n").as_bytes(), now].concat()).await;
    assert!(raw.head().await.starts_with("HTTP/1.1 101 "));
    raw.write(later).await;
    assert!(raw.reply().await.remote_config.is_some());
}

#[tokio::test]
async fn who_does_not_finish_the_handshake_is_cut_off() {
    let mut setup = Setup::default();
    setup.limits.handshake_deadline = Duration::from_millis(30);
    let gateway = setup.start();
    let mut raw = Raw::connect(&gateway).await;
    raw.write(b"GET /v1/opamp HTTP/1.1\r\n").await;
    assert!(raw.frame().await.is_none());
    let rejected = r#"tidegate_admission_rejected_total{reason="handshake_deadline"}"#;
    gateway.until("it is counted", |gateway| gateway.metric(rejected) == 1.0).await;
}

#[tokio::test]
async fn without_a_token_there_is_no_upgrade() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tokens");
    let token = gateway::tokens::new::Token::generate().unwrap();
    std::fs::write(&file, token.line("shop", &[("role".into(), "web".into())]) + "\n").unwrap();
    let credentials = gateway::tokens::Credentials::load(&file).unwrap();
    let gateway = Setup { credentials, ..Setup::default() }.start();
    for authorization in ["", "Authorization: Bearer nonsense\r\n", "Authorization: Basic eDp5\r\n"]
    {
        let mut raw = Raw::connect(&gateway).await;
        raw.write(format!("{UPGRADE}{authorization}\r\n").as_bytes()).await;
        let (status, head, body) = raw.answer().await;
        assert_eq!(status, 401, "{head}");
        assert!(header(&head, "www-authenticate").unwrap().starts_with("Bearer"), "{head}");
        assert!(!body.is_empty());
    }

    let mut raw = Raw::connect(&gateway).await;
    raw.write(format!("{UPGRADE}Authorization: Bearer {}\r\n\r\n", token.secret()).as_bytes())
        .await;
    assert!(raw.head().await.starts_with("HTTP/1.1 101 "));
    let (mut web, mut kafka) = (Agent::new(1), Agent::new(2));
    raw.send(&kafka.report("kafka", 10)).await;
    let refused = raw.reply().await;
    assert!(refused.error_response.unwrap().error_message.contains("role"));
    raw.send(&web.report("web", 10)).await;
    assert!(raw.reply().await.remote_config.is_some());
}
