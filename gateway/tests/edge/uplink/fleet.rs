//! Several replicas and an aggregator, and what becomes of evidence when one of them goes.

use rustix::process::Signal;

use super::*;

const BOTH: [&str; 2] = ["edge-1", "edge-2"];

#[test]
fn evidence_of_all_replicas_is_in_one_report_and_a_failure_on_one_halts_it_on_the_other() {
    let (certs, estate) = (Certs::new(&BOTH), Estate::new());
    let source = ["--estate", estate.path()];
    let aggregator = aggregator(&certs, &source, &["--expect-replicas", "2"]);
    let [one, two] = BOTH.map(|name| replica(&certs, name, &source, &[aggregator.listen]));
    connected(&one, 1.0);
    connected(&two, 1.0);
    assert_eq!(aggregator.metrics()["tidegate_uplink_replicas"], 2.0);
    comes_to_be_offered(&one, 1..50, "bridge-a1", "candidate");
    comes_to_be_offered(&two, 51..99, "bridge-a2", "candidate");
    let report = comes_to_say(&aggregator, "both members", |told| told["verdict"]["seen"] == 2);
    assert_eq!(replicas(&report), [("edge-1", true), ("edge-2", true)]);

    fail(&one, 100, "bridge-a1");
    let report = comes_to_say(&aggregator, "the failure", |told| told["verdict"]["failed"] == 1);
    assert_eq!(report["halted"][0]["label"], "bridge-a1", "{report:#}");
    assert_eq!(report["halted"][0]["error"], "no such exporter");
    comes_to_be_offered(&two, 101..160, "bridge-a1", "artefact");
    // It has not come here as news of somebody else's.
    assert_eq!(offered(&two, 161, "bridge-a1"), Some(hash(&two, "artefact")));
}

#[test]
fn a_brake_reaches_every_replica() {
    let (certs, estate) = (Certs::new(&BOTH), Estate::new());
    let source = ["--estate", estate.path()];
    let aggregator = aggregator(&certs, &source, &["--expect-replicas", "2"]);
    let [one, two] = BOTH.map(|name| replica(&certs, name, &source, &[aggregator.listen]));
    comes_to_be_offered(&one, 1..50, "bridge-a1", "candidate");
    fail(&one, 60, "bridge-a1");
    comes_to_say(&aggregator, "an abort", |told| !told["braked_since_ms"].is_null());
    // Nothing failed on this one.
    comes_to_be_offered(&two, 61..120, "bridge-a2", "artefact");
    comes_to_be_offered(&one, 121..180, "bridge-a2", "artefact");
}

#[test]
fn an_aggregator_that_was_killed_comes_back_with_what_is_halted() {
    let (certs, estate) = (Certs::new(&BOTH), Estate::new());
    let source = ["--estate", estate.path()];
    let store = tempfile::tempdir().unwrap();
    let store = store.path().join("evidence.redb");
    let keeps = ["--expect-replicas", "1", "--store", store.to_str().unwrap()];
    let mut first = aggregator(&certs, &source, &keeps);
    let at = first.listen;
    let mut one = replica(&certs, "edge-1", &source, &[at]);
    comes_to_be_offered(&one, 1..50, "bridge-a1", "candidate");
    fail(&one, 60, "bridge-a1");
    comes_to_say(&first, "the failure", |told| told["verdict"]["failed"] == 1);

    first.signal(Signal::KILL);
    first.wait();
    connected(&one, 0.0);
    assert_eq!(one.get("/readyz").status, 200, "serving is unharmed");
    assert_eq!(offered(&one, 61, "bridge-a1"), Some(hash(&one, "artefact")), "still halted");
    one.signal(Signal::KILL);
    one.wait();

    // A replica that has not heard what is halted offers nothing new.
    let two = replica(&certs, "edge-2", &source, &[at]);
    assert_eq!(offered(&two, 62, "bridge-a2"), Some(hash(&two, "artefact")));
    two.logged("no uplink: this gateway serves on, and tries again");

    let listen = at.to_string();
    let again = [&keeps[..], &["--listen-uplink", &listen]].concat();
    let second = aggregator(&certs, &source, &again);
    connected(&two, 1.0);
    comes_to_say(&second, "what was stored", |told| told["verdict"]["failed"] == 1);
    assert_eq!(offered(&two, 63, "bridge-a1"), Some(hash(&two, "artefact")));
}

#[test]
fn an_aggregator_that_was_killed_and_is_back_tells_its_replicas_that_their_connections_are_gone() {
    let (certs, estate) = (Certs::new(&BOTH), Estate::new());
    let source = ["--estate", estate.path()];
    let mut first = aggregator(&certs, &source, &["--expect-replicas", "1"]);
    let one = replica(&certs, "edge-1", &source, &[first.listen]);
    connected(&one, 1.0);
    first.signal(Signal::KILL);
    first.wait();
    let listen = first.listen.to_string();
    let again = ["--expect-replicas", "1", "--listen-uplink", &listen];
    let second = aggregator(&certs, &source, &again);
    // And not: timed out.
    one.logged("reset by peer");
    connected(&one, 1.0);
    comes_to_say(&second, "its replica", |told| replicas(told) == [("edge-1", true)]);
}

#[test]
fn who_drains_says_bye_and_who_is_killed_is_unobserved() {
    let (certs, estate) = (Certs::new(&BOTH), Estate::new());
    let source = ["--estate", estate.path()];
    let aggregator = aggregator(&certs, &source, &["--expect-replicas", "1"]);
    let [mut one, mut two] = BOTH.map(|name| replica(&certs, name, &source, &[aggregator.listen]));
    let both = [("edge-1", true), ("edge-2", true)];
    comes_to_say(&aggregator, "both", |told| replicas(told) == both);

    two.signal(Signal::TERM);
    assert_eq!(two.wait().code(), Some(0));
    comes_to_say(&aggregator, "a Bye", |told| replicas(told) == [("edge-1", true)]);
    aggregator.logged("a replica was drained, and said Bye replica=edge-2");

    one.signal(Signal::KILL);
    one.wait();
    comes_to_say(&aggregator, "a silence", |told| replicas(told) == [("edge-1", false)]);
    aggregator.logged("a replica is gone replica=edge-1");
}

#[test]
fn an_aggregator_ends_at_once_and_its_replicas_know() {
    let (certs, estate) = (Certs::new(&BOTH), Estate::new());
    let source = ["--estate", estate.path()];
    let mut aggregator = aggregator(&certs, &source, &["--expect-replicas", "1"]);
    assert!(aggregator.announced[0].starts_with("gathering estate "), "{:?}", aggregator.announced);
    let one = replica(&certs, "edge-1", &source, &[aggregator.listen]);
    connected(&one, 1.0);
    aggregator.signal(Signal::TERM);
    assert_eq!(aggregator.wait().code(), Some(0));
    connected(&one, 0.0);
    one.logged("the aggregator ends");
}

#[test]
fn a_store_that_cannot_be_written_is_said_loudly_and_judging_goes_on() {
    let (certs, estate) = (Certs::new(&BOTH), Estate::new());
    let source = ["--estate", estate.path()];
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("evidence.redb");
    let keeps = ["--expect-replicas", "1", "--store", file.to_str().unwrap()];
    let mut sound = aggregator(&certs, &source, &keeps);
    sound.signal(Signal::TERM);
    sound.wait();

    // A disk that takes nothing: every write past byte 0 of any file is refused.
    let mut full = std::process::Command::new("sh");
    full.args([
        "-c",
        "trap '' XFSZ; ulimit -f 0; exec \"$0\" \"$@\"",
        env!("CARGO_BIN_EXE_gateway"),
    ])
    .args(["aggregate", "--listen-uplink", "127.0.0.1:0", "--evidence-grace", "0s"]);
    let flags = certs.flags("aggregator");
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let aggregator = Gateway::start(full, &[&source[..], &flags, &keeps].concat());
    let one = replica(&certs, "edge-1", &source, &[aggregator.listen]);
    comes_to_be_offered(&one, 1..50, "bridge-a1", "candidate");
    fail(&one, 60, "bridge-a1");
    let told = comes_to_say(&aggregator, "the failure", |told| told["verdict"]["failed"] == 1);
    until("the store to be given up for now", || {
        (aggregator.metrics()["tidegate_evidence_store_up"] == 0.0).then_some(())
    });
    assert!(aggregator.log().contains("ERROR"), "{}", aggregator.log());
    comes_to_say(&aggregator, "why", |told| !told["notices"].as_array().unwrap().is_empty());
    assert_eq!(offered(&one, 61, "bridge-a1"), Some(hash(&one, "artefact")), "{told:#}");
}

#[test]
fn certificates_are_read_again_and_a_bad_one_leaves_the_old_in_force() {
    let (certs, other, estate) = (Certs::new(&BOTH), Certs::new(&BOTH), Estate::new());
    let source = ["--estate", estate.path()];
    let aggregator = aggregator(&certs, &source, &["--expect-replicas", "1"]);
    let ca = certs.file("uplink-ca.crt");
    let right = fs::read(&ca).unwrap();
    let (mine, theirs) = (certs.file("replica-ca.crt"), other.file("uplink-ca.crt"));
    fs::copy(&theirs, &mine).unwrap();
    let to = aggregator.listen.to_string();
    let (cert, key) = (certs.file("replica-edge-1.crt"), certs.file("replica-edge-1.key"));
    let one = Gateway::serve(
        &[
            &source[..],
            &["--instance-label", "edge-1", "--uplink", &to, "--uplink-name", "localhost"],
            &["--uplink-ca", &mine, "--uplink-cert", &cert, "--uplink-key", &key],
        ]
        .concat(),
    );
    one.logged("no uplink: this gateway serves on");
    assert!(one.log().contains("UnknownIssuer"), "{}", one.log());
    connected(&one, 0.0);
    fs::write(&mine, "no certificate").unwrap();
    one.logged("the old one stays in force");
    fs::write(&mine, right).unwrap();
    connected(&one, 1.0);
    assert!(one.metrics()["tidegate_certificate_expiry_timestamp_seconds"] > 1e9);
}
