//! TLS at the front door.

use std::fs;

use super::support::estate::Estate;
use super::support::gateway::Gateway;
use super::support::pki::{Authority, connect};
use super::support::{opamp, until};

#[test]
fn collectors_are_served_over_tls_and_a_new_certificate_takes_no_restart() {
    let estate = Estate::new();
    let pki = tempfile::tempdir().unwrap();
    let (old, new) = (Authority::new(pki.path(), "old"), Authority::new(pki.path(), "new"));
    let (cert, key) = old.issue("server");
    let dir = estate.path().to_str().unwrap();
    let gateway = Gateway::serve(&["--estate", dir, "--tls-cert", &cert, "--tls-key", &key]);
    assert!(gateway.announced[2].starts_with("listen    wss://"), "{:?}", gateway.announced);
    let offered = |authority: &str| {
        let stream = connect(gateway.listen, authority, None, &[b"h2", b"http/1.1"])?;
        assert_eq!(stream.conn.alpn_protocol(), Some(&b"http/1.1"[..]));
        opamp::offered_over(stream, 1, "web")
    };
    assert!(offered(&old.pem()).unwrap().contains("text: first"));
    assert!(offered(&new.pem()).is_err(), "signed by somebody else");
    let expiry = "tidegate_certificate_expiry_timestamp_seconds";
    assert!(gateway.metrics()[expiry] > 1e9);

    fs::write(&cert, "not a certificate").unwrap();
    gateway.logged("the old one stays in force");
    assert!(offered(&old.pem()).is_ok());

    let (new_cert, new_key) = new.issue("next");
    fs::copy(new_key, &key).unwrap();
    fs::copy(new_cert, &cert).unwrap();
    until("the new certificate", || offered(&new.pem()).ok());
    assert!(offered(&old.pem()).is_err());
}

#[test]
fn a_client_certificate_is_asked_for_and_judged() {
    let estate = Estate::new();
    let pki = tempfile::tempdir().unwrap();
    let ours = Authority::new(pki.path(), "ours");
    let theirs = Authority::new(pki.path(), "theirs");
    let (cert, key) = ours.issue("server");
    let ca = pki.path().join("ours.pem");
    let gateway = Gateway::serve(&[
        "--estate",
        estate.path().to_str().unwrap(),
        "--tls-cert",
        &cert,
        "--tls-key",
        &key,
        "--client-ca",
        ca.to_str().unwrap(),
    ]);
    let offered = |certificate: Option<&(String, String)>| {
        let stream = connect(gateway.listen, &ours.pem(), certificate, &[])?;
        opamp::offered_over(stream, 1, "web")
    };
    assert!(offered(Some(&ours.issue("collector"))).unwrap().contains("text: first"));
    assert!(offered(None).is_err());
    assert!(offered(Some(&theirs.issue("stranger"))).is_err());
    let rejected = "tidegate_admission_rejected_total{reason=\"tls\"}";
    until("both to be counted", || (gateway.metrics()[rejected] == 2.0).then_some(()));
    gateway.logged("TLS handshake failed peer=Some(127.0.0.1:");
}
