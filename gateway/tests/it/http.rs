//! Plain HTTP, one message per POST.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

use crate::support::message::{Agent, offered, reply};
use crate::support::raw::{Raw, UPGRADE, header};
use crate::support::{Gateway, Setup, artefact_text};

#[tokio::test]
async fn a_collector_polls_many_times_over_one_connection() {
    let gateway = Setup { instance: Some("eu-1/0.1.0/7".into()), ..Setup::default() }.start();
    let mut raw = Raw::connect(&gateway).await;
    let mut agent = Agent::new(1);
    let (status, head, body) = post(&mut raw, "", &agent.report("kafka", 20_000)).await;
    assert_eq!(status, 200, "{head}");
    assert_eq!(header(&head, "content-type"), Some("application/x-protobuf"));
    assert_eq!(header(&head, "content-encoding"), None, "nobody asked for gzip");
    assert_eq!(header(&head, "tidegate-instance"), Some("eu-1/0.1.0/7"));
    let offer = reply(&body);
    assert_eq!(offered(&offer), Some(artefact_text("kafka", 1)));
    for message in [agent.applied(&offer), agent.heartbeat(), agent.heartbeat()] {
        let (status, _, body) = post(&mut raw, "", &message).await;
        assert_eq!((status, body.len()), (200, 20));
        assert_eq!(&*reply(&body).instance_uid, &agent.uid);
    }
    assert_eq!(gateway.front.live(), 1);
}

#[tokio::test]
async fn gzip_goes_both_ways_and_out_only_where_it_is_asked_for() {
    let gateway = Gateway::start();
    let mut raw = Raw::connect(&gateway).await;
    for (n, accept, gzipped) in
        [(1, "gzip", true), (2, "gzip;q=0", false), (3, "*;q=0.1", true), (4, "br", false)]
    {
        let body = gzip(&Agent::new(n).report("web", 20_000));
        let headers = format!("Content-Encoding: gzip\r\nAccept-Encoding: {accept}\r\n");
        let (status, head, body) = post(&mut raw, &headers, &body).await;
        assert_eq!(status, 200, "{head}");
        let body = if gzipped {
            assert_eq!(header(&head, "content-encoding"), Some("gzip"));
            let mut plain = Vec::new();
            GzDecoder::new(&body[..]).read_to_end(&mut plain).unwrap();
            plain
        } else {
            assert_eq!(header(&head, "content-encoding"), None);
            body
        };
        assert_eq!(offered(&reply(&body)), Some(artefact_text("web", 1)));
    }
}

#[tokio::test]
async fn each_fault_of_a_request_has_its_status_and_the_connection_goes_on() {
    let gateway = Setup::message_bytes(100_000).start();
    let mut raw = Raw::connect(&gateway).await;
    let good = Agent::new(1).report("web", 100);
    let bomb = gzip(&vec![0; 5 << 20]);
    let mut lying = gzip(&good);
    let end = lying.len();
    lying[end - 4..].copy_from_slice(&u32::MAX.to_le_bytes());
    let other_uid = "OpAMP-Instance-UID: 0190a5e2-7f30-7000-8000-0000000000ff\r\n";
    let own_uid = "OpAMP-Instance-UID: 11111111-1111-1111-1111-111100000001\r\n";
    for (headers, body, status) in [
        ("", &b"this is not protobuf"[..], 400),
        ("", b"", 400),
        ("", &good[..good.len() - 3], 400),
        (other_uid, &good, 400),
        (own_uid, &good, 200),
        ("Content-Encoding: gzip\r\n", &good, 400),
        ("Content-Encoding: gzip\r\n", &lying, 400),
        ("Content-Encoding: gzip\r\n", &bomb, 413),
        ("Content-Encoding: gzip, gzip\r\n", &good, 415),
        ("Content-Encoding: br\r\n", &good, 415),
        ("Content-Encoding: identity\r\n", &good, 200),
    ] {
        let (got, head, answer) = post(&mut raw, headers, body).await;
        assert_eq!(got, status, "{headers}{head}{}", String::from_utf8_lossy(&answer));
        let protobuf = header(&head, "content-type") == Some("application/x-protobuf");
        if status == 400 && protobuf {
            let error = reply(&answer).error_response.unwrap();
            assert_eq!(error.r#type, 1);
            assert!(!error.error_message.is_empty());
        } else if status != 200 {
            assert!(answer.ends_with(b"\n"), "a line to read");
        }
    }
    assert_eq!(gateway.front.half_received(), (0, 0), "every byte is given back");
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_before_it_is_read() {
    let gateway = Setup::message_bytes(1_000).start();
    let mut raw = Raw::connect(&gateway).await;
    raw.write(request("", 1_001).as_bytes()).await;
    assert_eq!(raw.answer().await.0, 413);

    let mut chunked = Raw::connect(&gateway).await;
    let head = request("", 0).replace("Content-Length: 0", "Transfer-Encoding: chunked");
    chunked.write(head.as_bytes()).await;
    chunked.write(format!("400\r\n{}\r\n", "x".repeat(0x400)).as_bytes()).await;
    assert_eq!(chunked.answer().await.0, 413);
}

#[tokio::test]
async fn what_is_not_opamp_gets_its_status_on_a_used_connection_too() {
    let gateway = Gateway::start();
    let mut raw = Raw::connect(&gateway).await;
    let good = request("", 0);
    for (request, status) in [
        (good.replace("/v1/opamp", "/metrics"), 404),
        (good.replace("POST", "PUT"), 405),
        (good.replace("Content-Type: application/x-protobuf\r\n", ""), 415),
        (good.replace("x-protobuf", "json"), 415),
        (good.replace("x-protobuf", "x-protobuf; charset=utf-8"), 400),
        (format!("{UPGRADE}\r\n"), 400),
    ] {
        raw.write(request.as_bytes()).await;
        let (got, head, _) = raw.answer().await;
        assert_eq!(got, status, "{request}{head}");
    }
}

#[tokio::test]
async fn a_first_poll_costs_a_token_and_the_next_ones_do_not() {
    let gateway = Setup::admission(1, 1, 100).start();
    let mut raw = Raw::connect(&gateway).await;
    let (mut agent, mut other) = (Agent::new(1), Agent::new(2));
    assert_eq!(post(&mut raw, "", &agent.report("web", 10)).await.0, 200);
    for _ in 0..5 {
        assert_eq!(post(&mut raw, "", &agent.heartbeat()).await.0, 200);
    }
    let (status, head, _) = post(&mut raw, "", &other.report("web", 10)).await;
    assert_eq!(status, 503);
    let retry: u32 = header(&head, "retry-after").unwrap().parse().unwrap();
    assert!((30..=90).contains(&retry), "{retry}");
    assert_eq!(post(&mut raw, "", &agent.heartbeat()).await.0, 200);
}

#[tokio::test]
async fn bodies_share_one_budget_with_a_way_back() {
    let mut setup = Setup::default();
    setup.limits.max_bytes_in_flight = 300_000;
    let gateway = setup.start();
    let body = Agent::new(1).report("web", 250_000);
    let mut holds = Raw::connect(&gateway).await;
    holds.write(request("", body.len()).as_bytes()).await;
    holds.write(&body[..200_000]).await;
    gateway.until("it holds bytes", |gateway| gateway.front.half_received().1 == 200_000).await;
    let mut raw = Raw::connect(&gateway).await;
    let (status, head, _) = post(&mut raw, "", &Agent::new(2).report("web", 150_000)).await;
    assert_eq!(status, 503);
    assert!(header(&head, "retry-after").is_some());
    holds.write(&body[200_000..]).await;
    assert_eq!(holds.answer().await.0, 200);
    let mut raw = Raw::connect(&gateway).await;
    assert_eq!(post(&mut raw, "", &Agent::new(2).report("web", 150_000)).await.0, 200);
}

fn request(headers: &str, length: usize) -> String {
    format!(
        "POST /v1/opamp HTTP/1.1\r\nHost: gw\r\nContent-Type: application/x-protobuf\r\n\
         {headers}Content-Length: {length}\r\n\r\n"
    )
}

pub(crate) async fn post(raw: &mut Raw, headers: &str, body: &[u8]) -> (u16, String, Vec<u8>) {
    raw.write(&[request(headers, body.len()).as_bytes(), body].concat()).await;
    raw.answer().await
}

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}
