use std::collections::BTreeMap;
use std::sync::Arc;

use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::aws_lc_rs;
use rustls::server::WebPkiClientVerifier;
use rustls::{CertificateError, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime};

use super::*;

/// 2026-10-01T12:00:00Z.
const NOON_MS: u64 = 1_790_856_000_000;

fn request() -> Request {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    Request {
        names: words(&["localhost", "gw.example.com", "127.0.0.1", "::1"]),
        collectors: words(&["collector", "bridge-a1"]),
        replicas: words(&["edge-1", "*.edge.example"]),
        aggregator: true,
        days: 30,
    }
}

struct Made {
    texts: BTreeMap<String, String>,
}

impl Made {
    fn new() -> Self {
        let plan = plan(&request(), NOON_MS).unwrap();
        Self { texts: plan.files.into_iter().map(|file| (file.name, file.text)).collect() }
    }

    fn certificate(&self, name: &str) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(self.texts[name].as_bytes()).unwrap()
    }

    fn roots(&self, name: &str) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate(name)).unwrap();
        Arc::new(roots)
    }

    fn serves(&self, ca: &str, certificate: &str, name: &str, at_ms: u64) -> Result<(), String> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let roots = self.roots(ca);
        let verifier = rustls::client::WebPkiServerVerifier::builder_with_provider(roots, provider)
            .build()
            .unwrap();
        let at = UnixTime::since_unix_epoch(Duration::from_millis(at_ms));
        let name = ServerName::try_from(name).unwrap();
        verifier
            .verify_server_cert(&self.certificate(certificate), &[], &name, &[], at)
            .map(drop)
            .map_err(|error| error.to_string())
    }

    fn connects(&self, ca: &str, certificate: &str, at_ms: u64) -> Result<(), rustls::Error> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(self.roots(ca), provider).build().unwrap();
        let at = UnixTime::since_unix_epoch(Duration::from_millis(at_ms));
        verifier.verify_client_cert(&self.certificate(certificate), &[], at).map(drop)
    }
}

#[test]
fn chains_hold_for_their_purpose_their_names_and_their_days() {
    let made = Made::new();
    for name in ["localhost", "gw.example.com", "127.0.0.1", "::1"] {
        assert_eq!(made.serves("ca.crt", "server.crt", name, NOON_MS), Ok(()), "{name}");
        assert_eq!(made.serves("uplink-ca.crt", "aggregator.crt", name, NOON_MS), Ok(()));
    }
    assert!(made.serves("ca.crt", "server.crt", "other.example.com", NOON_MS).is_err());
    assert!(made.serves("ca.crt", "collector.crt", "collector", NOON_MS).is_err(), "a client");
    let day = 86_400_000;
    assert!(made.serves("ca.crt", "server.crt", "localhost", NOON_MS + 30 * day - 1_000).is_ok());
    assert!(made.serves("ca.crt", "server.crt", "localhost", NOON_MS + 30 * day + 1_000).is_err());
    assert!(
        made.serves("ca.crt", "server.crt", "localhost", NOON_MS - 3_500_000).is_ok(),
        "a skew"
    );

    for collector in ["collector.crt", "collector-bridge-a1.crt"] {
        assert_eq!(made.connects("ca.crt", collector, NOON_MS), Ok(()));
    }
    for replica in ["replica-edge-1.crt", "replica-any.edge.example.crt"] {
        assert_eq!(made.connects("uplink-ca.crt", replica, NOON_MS), Ok(()));
    }
    let purpose = made.connects("ca.crt", "server.crt", NOON_MS).unwrap_err();
    let refused = matches!(
        purpose,
        rustls::Error::InvalidCertificate(
            CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. }
        )
    );
    assert!(refused, "{purpose:?}");
}

#[test]
fn a_collector_cannot_speak_for_a_replica() {
    let unknown = rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
    let made = Made::new();
    assert_eq!(made.connects("uplink-ca.crt", "collector.crt", NOON_MS), Err(unknown.clone()));
    assert_eq!(made.connects("ca.crt", "replica-edge-1.crt", NOON_MS), Err(unknown));
}

#[test]
fn each_key_is_that_of_its_certificate() {
    let made = Made::new();
    let provider = aws_lc_rs::default_provider();
    for (name, text) in made.texts.iter().filter(|(name, _)| name.ends_with(".key")) {
        let key = PrivateKeyDer::from_pem_slice(text.as_bytes()).unwrap();
        let certificate = made.certificate(&name.replace(".key", ".crt"));
        let pair = rustls::sign::CertifiedKey::from_der(vec![certificate], key, &provider).unwrap();
        pair.keys_match().unwrap();
    }
}

#[test]
fn keys_are_their_owners_and_nothing_is_replaced_unasked() {
    let dir = tempfile::tempdir().unwrap();
    let (dir, mode) = (dir.path().join("a/b"), |path: &Path| {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    });
    let first = plan(&request(), NOON_MS).unwrap();
    first.write(&dir, false).unwrap();
    assert_eq!(mode(&dir), 0o700);
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 16, "and nothing half-written");
    for file in &first.files {
        let wanted = if file.kind == Kind::Key { 0o600 } else { 0o644 };
        assert_eq!(mode(&dir.join(&file.name)), wanted, "{}", file.name);
    }

    let ca = dir.join("ca.crt");
    let before = std::fs::read(&ca).unwrap();
    let second = plan(&request(), NOON_MS).unwrap();
    std::fs::remove_file(dir.join("server.key")).unwrap();
    let error = second.write(&dir, false).unwrap_err();
    assert!(matches!(&error, CertsError::Present(path) if *path == ca), "{error}");
    assert!(!dir.join("server.key").exists(), "all or nothing");
    assert_eq!(std::fs::read(&ca).unwrap(), before);
    second.write(&dir, true).unwrap();
    assert_ne!(std::fs::read(&ca).unwrap(), before);
    assert_eq!(mode(&dir.join("server.key")), 0o600);
}

#[test]
fn only_what_was_asked_for_is_made() {
    let few = Request { replicas: vec![], aggregator: false, ..request() };
    let plan = plan(&few, NOON_MS).unwrap();
    assert!(plan.files.iter().all(|file| !file.name.contains("uplink")), "{:?}", plan.files);
    let twice = Request { replicas: vec!["a".into(), "A".into()], ..request() };
    assert!(matches!(super::plan(&twice, NOON_MS), Err(CertsError::Twice(_))));
}

#[test]
fn names_are_those_that_tls_can_check() {
    for good in ["localhost", "a_b", "gw.example.com", "127.0.0.1", "::1", "*.edge.example"] {
        assert_eq!(server_name(good).as_deref(), Ok(good));
    }
    for bad in ["", "a b", "a/b", "*", "*.example", "a.*.b", "-", "ä", "../x", "1.2.3.4.5", "a."] {
        assert!(dns_name(bad).is_err(), "{bad}");
    }
    assert!(dns_name("127.0.0.1").is_err(), "a replica is no address");
    assert!(dns_name(&"a".repeat(65)).is_err());
}
