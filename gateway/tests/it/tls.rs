//! The same links over TLS.

use std::sync::Arc;

use gateway::config::TlsConfig;
use gateway::tls::Tls;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::support::message::{Agent, offered, reply};
use crate::support::raw::{BINARY, CLOSE, PING, PONG, Raw, UPGRADE, frame};
use crate::support::{Gateway, Setup, artefact_text, estate};

type Client = Raw<TlsStream<TcpStream>>;

#[tokio::test]
async fn a_collector_is_served_and_pushed_to_over_tls() {
    let (gateway, connector) = start();
    let mut raw = connect(&gateway, &connector).await;
    raw.upgrade().await;
    let mut agent = Agent::new(1);
    raw.send(&agent.report("web", 300_000)).await;
    let offer = raw.reply().await;
    assert_eq!(offered(&offer), Some(artefact_text("web", 1)));
    raw.send(&agent.applied(&offer)).await;
    assert_eq!(offered(&raw.reply().await), None);
    gateway.install(&estate(2));
    assert_eq!(offered(&raw.reply().await), Some(artefact_text("web", 2)));
    raw.write(&frame(PING, true, b"x")).await;
    assert_eq!(raw.frame().await.unwrap(), (PONG, b"x".to_vec()));
    raw.write(&frame(CLOSE, true, &1000_u16.to_be_bytes())).await;
    assert_eq!(raw.close_code().await, 1000);
    drop(raw);
    gateway.until("it is gone", |gateway| gateway.front.live() == 0).await;
}

#[tokio::test]
async fn who_reads_late_gets_everything_over_tls_too() {
    let (gateway, connector) = start();
    let mut raw = connect(&gateway, &connector).await;
    raw.upgrade().await;
    let rounds = 40_u32;
    for n in 0..rounds {
        raw.send(&Agent::new(n).report("web", 10)).await;
    }
    let answered = "tidegate_messages_sent_total{transport=\"ws\"}";
    gateway
        .until("all are answered", |gateway| gateway.metric(answered) == f64::from(rounds))
        .await;
    for n in 0..rounds {
        let reply = raw.reply().await;
        assert_eq!(&*reply.instance_uid, &Agent::new(n).uid);
        assert_eq!(offered(&reply), Some(artefact_text("web", 1)));
    }
}

#[tokio::test]
async fn frames_may_follow_the_request_in_records_of_their_own() {
    let (gateway, connector) = start();
    let mut raw = connect(&gateway, &connector).await;
    let mut agent = Agent::new(1);
    let first = frame(BINARY, true, &[&[0][..], &agent.report("web", 10)].concat());
    let second = frame(BINARY, true, &[&[0][..], &agent.heartbeat()].concat());
    for bytes in [format!("{UPGRADE}\r\n").as_bytes(), &first, &second] {
        raw.write(bytes).await;
    }
    assert!(raw.head().await.starts_with("HTTP/1.1 101 "));
    assert!(raw.reply().await.remote_config.is_some());
    assert!(raw.reply().await.remote_config.is_none());
}

#[tokio::test]
async fn plain_http_works_over_tls() {
    let (gateway, connector) = start();
    let mut raw = connect(&gateway, &connector).await;
    let body = Agent::new(1).report("kafka", 50_000);
    let head = format!(
        "POST /v1/opamp HTTP/1.1\r\nHost: gw\r\nContent-Type: application/x-protobuf\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    raw.write(&[head.as_bytes(), &body].concat()).await;
    let (status, _, body) = raw.answer().await;
    assert_eq!(status, 200);
    assert_eq!(offered(&reply(&body)), Some(artefact_text("kafka", 1)));
}

#[tokio::test]
async fn who_speaks_plain_text_to_a_tls_port_is_counted_and_gone() {
    let (gateway, _) = start();
    let mut raw = Raw::connect(&gateway).await;
    raw.write(b"GET /v1/opamp HTTP/1.1\r\n\r\n").await;
    while raw.skip().await {}
    let rejected = r#"tidegate_admission_rejected_total{reason="tls"}"#;
    gateway.until("it is counted", |gateway| gateway.metric(rejected) == 1.0).await;
}

async fn connect(gateway: &Gateway, connector: &TlsConnector) -> Client {
    let stream = TcpStream::connect(gateway.addr).await.unwrap();
    let name = "localhost".try_into().unwrap();
    let stream = connector.connect(name, stream).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    Raw::over(stream)
}

/// A gateway with a certificate of its own, and who trusts it. The client would rather speak
/// HTTP/2, as many do.
fn start() -> (Gateway, TlsConnector) {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let files = TlsConfig {
        cert: dir.path().join("cert.pem"),
        key: dir.path().join("key.pem"),
        client_ca: None,
    };
    std::fs::write(&files.cert, certificate.pem()).unwrap();
    std::fs::write(&files.key, key.serialize_pem()).unwrap();
    let tls = Tls::load(files).unwrap();
    let gateway = Setup { tls: Some(tls), ..Setup::default() }.start();

    let mut roots = RootCertStore::empty();
    roots.add(certificate.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    (gateway, TlsConnector::from(Arc::new(config)))
}
