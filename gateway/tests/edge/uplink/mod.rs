//! Replicas and aggregators: real processes, real sockets, real certificates.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;

use super::proposals::{copy, demo};
use super::support::gateway::{Gateway, command, run};
use super::support::{opamp, report, until};

mod fleet;
mod peer;
mod proposals;
mod refusals;

/// Certificates that `gateway certs init` made.
struct Certs(TempDir);

impl Certs {
    fn new(replicas: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let shown = dir.path().to_str().unwrap();
        let replicas = replicas.join(",");
        let made = run(&["certs", "init", shown, "--aggregator", "--replica", &replicas]);
        assert_eq!(made.code, Some(0), "{}", made.err);
        Self(dir)
    }

    fn file(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    fn flags(&self, who: &str) -> Vec<String> {
        let file = |flag: &str, name: &str| [flag.to_owned(), self.file(name)];
        [
            file("--uplink-ca", "uplink-ca.crt"),
            file("--uplink-cert", &format!("{who}.crt")),
            file("--uplink-key", &format!("{who}.key")),
        ]
        .concat()
    }
}

/// The demo estate, impatient: silence counts after 2 s.
struct Estate(TempDir);

impl Estate {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        copy(&demo(), dir.path());
        impatient(dir.path());
        Self(dir)
    }

    fn path(&self) -> &str {
        self.0.path().to_str().unwrap()
    }
}

fn impatient(root: &Path) {
    let file: PathBuf = root.join(super::proposals::ROLLOUT);
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{text}halt: {{dark_after: 2s}}\n")).unwrap();
}

/// Starts an aggregator for so many replicas.
fn aggregator(certs: &Certs, source: &[&str], more: &[&str]) -> Gateway {
    let flags = certs.flags("aggregator");
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let free = ["--listen-uplink", "127.0.0.1:0"];
    let free: &[&str] = if more.contains(&"--listen-uplink") { &[] } else { &free };
    Gateway::start(
        command(&["aggregate", "--evidence-grace", "0s"]),
        &[source, free, &flags, more].concat(),
    )
}

/// Starts a replica that reports to these.
fn replica(certs: &Certs, name: &str, source: &[&str], to: &[SocketAddr]) -> Gateway {
    let flags = certs.flags(&format!("replica-{name}"));
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let to: Vec<String> = to.iter().map(ToString::to_string).collect();
    let to = to.join(",");
    let uplink = ["--instance-label", name, "--uplink", &to, "--uplink-name", "localhost"];
    Gateway::serve(&[source, &flags, &uplink, &["--drain", "0s"]].concat())
}

/// Waits until a replica has so many uplinks.
#[track_caller]
fn connected(replica: &Gateway, count: f64) {
    until("the uplink", || {
        (replica.metrics().get("tidegate_uplink_connected") == Some(&count)).then_some(())
    });
}

/// A Cohort member by its host.
fn member(host: &str) -> [(&'static str, String); 2] {
    [("service.name", "otelcol-kafka-bridge".to_owned()), ("host.name", host.to_owned())]
}

/// The hash that a member is offered in its first poll under this uid.
fn offered(gateway: &Gateway, uid: u8, host: &str) -> Option<Vec<u8>> {
    let attributes = member(host);
    let attributes: Vec<(&str, &str)> = attributes.iter().map(|(k, v)| (*k, &**v)).collect();
    let answer = opamp::request(opamp::report(uid, &attributes)).send(gateway.listen);
    opamp::reply(&answer).remote_config.map(|config| config.config_hash.to_vec())
}

/// Says that the candidate failed on this host.
fn fail(gateway: &Gateway, uid: u8, host: &str) {
    let attributes = member(host);
    let attributes: Vec<(&str, &str)> = attributes.iter().map(|(k, v)| (*k, &**v)).collect();
    let candidate = hash(gateway, "candidate");
    let failed = opamp::failed(uid, &attributes, candidate, "no such exporter");
    assert_eq!(opamp::request(failed).send(gateway.listen).status, 200);
}

/// The hash, as it is on the wire, of what the Rollout's Tier is served: `artefact` or `candidate`.
fn hash(gateway: &Gateway, which: &str) -> Vec<u8> {
    let tiers = gateway.json("/api/v1/tiers");
    let tier = tiers["items"]
        .as_array()
        .unwrap()
        .iter()
        .find(|tier| !tier[which].is_null() && tier["rollout"] == report::ROLLOUT);
    tier.unwrap()[which]["content_hash"].as_str().unwrap().as_bytes().to_vec()
}

/// Waits until a member is offered this, under one uid after another.
#[track_caller]
fn comes_to_be_offered(gateway: &Gateway, uids: std::ops::Range<u8>, host: &str, which: &str) {
    let wanted = hash(gateway, which);
    let mut uids = uids;
    until(&format!("{host} to be offered the {which}"), || {
        // A poll a time is plenty, and each has an identity of its own.
        let uid = uids.next().expect("more uids");
        std::thread::sleep(std::time::Duration::from_millis(200));
        (offered(gateway, uid, host).as_ref() == Some(&wanted)).then_some(())
    });
}

/// What the aggregator says of the Rollout, once it says so.
#[track_caller]
fn comes_to_say(aggregator: &Gateway, what: &str, says: impl Fn(&Value) -> bool) -> Value {
    let path = format!("/api/v1/rollouts/{}", report::ROLLOUT);
    let mut last = Value::Null;
    let said = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        until(what, || {
            let answer = aggregator.get(&path);
            if answer.status == 200 {
                last = serde_json::from_slice(&answer.body).unwrap();
            }
            (answer.status == 200 && says(&last)).then_some(())
        });
    }));
    assert!(said.is_ok(), "never said: {what}; {last:#}; {}", aggregator.log());
    last
}

/// Names of the replicas in a report, and whether they report.
fn replicas(report: &Value) -> Vec<(&str, bool)> {
    let lines = report["replicas"].as_array().unwrap();
    let line = |line: &'_ Value| line["reporting"].as_bool().unwrap();
    lines.iter().map(|l| (l["name"].as_str().unwrap(), line(l))).collect()
}
