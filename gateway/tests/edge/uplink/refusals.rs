//! Who is not listened to, and how that is told.

use std::net::UdpSocket;

use proto::uplink::{FORMATS, Frame, encode};

use super::peer::{Peer, Shown};
use super::*;
use crate::support::pki::Authority;

fn refused(aggregator: &Gateway, reason: &str) -> f64 {
    aggregator.metrics()[&format!("tidegate_uplink_refused_total{{reason=\"{reason}\"}}")]
}

#[track_caller]
fn comes_to_be_refused(aggregator: &Gateway, reason: &str, count: f64) {
    until(reason, || (refused(aggregator, reason) == count).then_some(()));
}

#[test]
fn certificates_that_are_missing_foreign_expired_or_a_collectors_are_refused() {
    let (certs, estate) = (Certs::new(&["edge-1"]), Estate::new());
    let pki = tempfile::tempdir().unwrap();
    let ours = Authority::new(pki.path(), "ours");
    let theirs = Authority::new(pki.path(), "theirs");
    let (cert, key) = ours.issue("aggregator");
    let file = |name: &str| pki.path().join(name).to_str().unwrap().to_owned();
    let ca = file("ours.pem");
    let aggregator = Gateway::start(
        command(&["aggregate", "--listen-uplink", "127.0.0.1:0", "--expect-replicas", "1"]),
        &[
            "--estate",
            estate.path(),
            "--uplink-ca",
            &ca,
            "--uplink-cert",
            &cert,
            "--uplink-key",
            &key,
        ],
    );
    let at = aggregator.listen;
    let sent_away = |shown: &Shown<'_>| match Peer::connect(at, shown) {
        Err(why) => why,
        Ok(mut peer) => {
            peer.hello("edge-1");
            assert!(!peer.welcomed());
            peer.closed()
        }
    };
    let none = Shown { certificate: None, ..Shown::new(&ca, "", "") };
    assert!(sent_away(&none).contains("certificate"), "{}", sent_away(&none));
    let (foreign, foreign_key) = theirs.issue_until("foreign", "edge-1", 2099);
    sent_away(&Shown::new(&ca, &foreign, &foreign_key));
    let (old, old_key) = ours.issue_until("old", "edge-1", 2020);
    let expired = sent_away(&Shown::new(&ca, &old, &old_key));
    assert!(expired.to_ascii_lowercase().contains("expired"), "{expired}");
    let (collector, collector_key) = (certs.file("collector.crt"), certs.file("collector.key"));
    sent_away(&Shown::new(&ca, &collector, &collector_key));
    until("all to be counted", || (refused(&aggregator, "tls") >= 4.0).then_some(()));
    aggregator.logged("a replica is refused peer=127.0.0.1:");
    aggregator.logged("handshake: ");

    // The right one is let in, and not under another's name.
    let (good, good_key) = ours.issue_until("good", "edge-1", 2099);
    let shown = Shown::new(&ca, &good, &good_key);
    let mut peer = Peer::connect(at, &shown).unwrap();
    peer.hello("edge-1");
    assert!(peer.welcomed());
    for other in ["edge-2", "127.0.0.1", "edge-1.", "", "a b"] {
        let mut liar = Peer::connect(at, &shown).unwrap();
        liar.hello(other);
        let why = liar.refusal().unwrap();
        assert!(why.contains("which its certificate is not for"), "{why}");
    }
    comes_to_be_refused(&aggregator, "name", 5.0);
    aggregator.logged("it calls itself edge-2, which its certificate is not for");

    let alien = Shown { alpn: b"h3", ..Shown::new(&ca, &good, &good_key) };
    let why = Peer::connect(at, &alien).err().unwrap();
    assert!(why.contains("known protocol"), "{why}");
    drop(theirs);
}

#[test]
fn who_speaks_another_format_is_told_so() {
    let (certs, estate) = (Certs::new(&["edge-1"]), Estate::new());
    let aggregator = aggregator(&certs, &["--estate", estate.path()], &["--expect-replicas", "1"]);
    let files = ["uplink-ca.crt", "replica-edge-1.crt", "replica-edge-1.key"];
    let [ca, cert, key] = files.map(|name| certs.file(name));
    let mut peer = Peer::connect(aggregator.listen, &Shown::new(&ca, &cert, &key)).unwrap();
    peer.hello_in("edge-1", 999);
    assert!(peer.refusal().is_some());
    comes_to_be_refused(&aggregator, "refused", 1.0);
}

#[test]
fn what_cannot_be_read_ends_its_connection_and_no_other() {
    let (certs, estate) = (Certs::new(&["edge-1", "edge-2"]), Estate::new());
    let source = ["--estate", estate.path()];
    let aggregator = aggregator(&certs, &source, &["--expect-replicas", "1"]);
    let one = replica(&certs, "edge-1", &source, &[aggregator.listen]);
    connected(&one, 1.0);
    let files = ["uplink-ca.crt", "replica-edge-2.crt", "replica-edge-2.key"];
    let [ca, cert, key] = files.map(|name| certs.file(name));
    let shown = Shown::new(&ca, &cert, &key);
    let connect = || Peer::connect(aggregator.listen, &shown).unwrap();

    // No QUIC at all.
    let noise = UdpSocket::bind("127.0.0.1:0").unwrap();
    for length in [0_usize, 1, 20, 1_200] {
        noise.send_to(&vec![0x5a; length], aggregator.listen).unwrap();
    }
    // No Hello.
    let mut peer = connect();
    peer.send(b"GET / HTTP/1.1\r\n\r\n");
    assert!(peer.closed().contains("no Hello"), "{}", peer.closed());
    let mut peer = connect();
    peer.send(&[1, 0, 0, 0, 0xee]);
    assert!(!peer.welcomed());
    comes_to_be_refused(&aggregator, "unreadable", 2.0);
    // Nonsense behind a Hello.
    let mut peer = connect();
    peer.hello("edge-2");
    assert!(peer.welcomed());
    peer.send(&[0xff; 4_096]);
    peer.closed();
    comes_to_be_refused(&aggregator, "unreadable", 3.0);
    // A flood of frames that say nothing.
    let mut peer = connect();
    peer.hello("edge-2");
    assert!(peer.welcomed());
    let mut alive = Vec::new();
    encode(&Frame::Alive, FORMATS[0], &mut alive);
    peer.send(&alive.repeat(60_000));
    assert!(peer.closed().contains("more frames than"), "{}", peer.closed());
    comes_to_be_refused(&aggregator, "flood", 1.0);

    assert_eq!(one.metrics()["tidegate_uplink_connected"], 1.0, "nobody else was harmed");
    assert_eq!(aggregator.metrics()["tidegate_uplink_replicas"], 1.0);
}
