//! The operators' API of Rollouts, and the commands, against a real gateway.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use rustix::process::Signal;
use serde_json::Value;

use super::super::support::gateway::{Gateway, run};
use super::super::support::report::ROLLOUT;
use super::super::support::{PATIENCE, opamp, until};

const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/estates/demo");

const CATALOGUE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../fixtures/estates/demo/catalogues/catalogue-v0.158.0.json"
);

fn rollout(gateway: &Gateway, arguments: &[&str]) -> super::super::support::gateway::Ended {
    let url = format!("http://{}", gateway.admin);
    run(&[&["rollout"], arguments, &["--admin-url", &url]].concat())
}

#[test]
fn explain_answers_from_the_head_that_is_served() {
    let gateway = Gateway::serve(&["--estate", DEMO]);
    let told =
        gateway.json("/api/v1/explain?service.name=otelcol-kafka-bridge&host.name=bridge-a1");
    assert_eq!((&told["arm"], &told["tier"]), (&"to".into(), &"data-flow/kafka-bridge".into()));
    assert_eq!(told["rollout"]["admitted"]["stage"], 0);
    let head = gateway.json("/api/v1/head");
    assert_eq!(told["commit"], head["commit"]);
    let tiers = gateway.json("/api/v1/tiers");
    let bridge = tiers["items"].as_array().unwrap().iter().find(|tier| tier["id"] == told["tier"]);
    assert_eq!(told["artefact"]["content_hash"], bridge.unwrap()["candidate"]["content_hash"]);

    let ended = rollout(&gateway, &["explain", "service.name=otelcol-kafka-bridge", "k=&é=\x1b"]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert!(ended.out.contains("outside: no stage admits it"), "{}", ended.out);
    assert_eq!(gateway.get("/api/v1/explain").status, 400);
    let many: Vec<String> = (0..129).map(|n| format!("k{n}=v")).collect();
    assert_eq!(gateway.get(&format!("/api/v1/explain?{}", many.join("&"))).status, 400);
}

#[test]
fn a_plan_counts_who_is_connected() {
    let gateway = Gateway::serve(&["--estate", DEMO]);
    for uid in 1..=40 {
        let id = format!("bridge-{uid}");
        let attributes = [("service.name", "otelcol-kafka-bridge"), ("service.instance.id", &*id)];
        opamp::request(opamp::report(uid, &attributes)).send(gateway.listen);
    }
    let nameless = [("service.name", "otelcol-kafka-bridge"), ("host.name", "x\x1b[2J")];
    opamp::request(opamp::report(41, &nameless)).send(gateway.listen);
    opamp::request(opamp::report(42, &[("service.name", "else")])).send(gateway.listen);
    let plan = gateway.json(&format!("/api/v1/rollouts/{ROLLOUT}/plan"));
    let count = |name: &str| plan[name].as_u64().unwrap();
    assert_eq!((count("looked_at"), count("population"), count("no_bucket")), (42, 41, 1));
    assert_eq!(count("members") + count("joining"), 40);
    assert!(count("members") > 0 && count("joining") > 0, "{plan}");
    let ended = rollout(&gateway, &["plan", ROLLOUT]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert!(ended.out.contains("41 of 42 collectors are on the Tier"), "{}", ended.out);
    assert!(ended.out.contains("x\\u{1b}[2J  lacks service.instance.id"), "{}", ended.out);
}

#[test]
fn a_rollout_that_is_not_there_is_answered_with_those_that_are() {
    let gateway = Gateway::serve(&["--estate", DEMO]);
    for path in ["", "/events", "/plan", "/bundle"] {
        let answer = gateway.get(&format!("/api/v1/rollouts/no/such{path}"));
        assert_eq!(answer.status, 404, "{path}");
        let body: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!((&body["known"][0], &body["total"]), (&ROLLOUT.into(), &1.into()), "{path}");
    }
    let ended = rollout(&gateway, &["status", "no/such", "--timeout", "0s"]);
    assert_eq!(ended.code, Some(2));
    assert!(ended.err.contains("it has data-flow/bridge-canary"), "{}", ended.err);
}

/// Lines of a stream of events, after its head.
fn stream(gateway: &Gateway, path: &str) -> (String, impl Iterator<Item = String> + use<>) {
    let mut stream = TcpStream::connect(gateway.admin).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // Of HTTP/1.0, so that the body is not cut into chunks.
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").unwrap();
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    let head: Vec<String> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
    (head.join("\n"), lines)
}

/// The next event's name and data.
fn event(lines: &mut impl Iterator<Item = String>) -> Option<(String, Value)> {
    let name = lines.find_map(|line| line.strip_prefix("event: ").map(str::to_owned))?;
    let data = lines.next().unwrap();
    Some((name, serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap()))
}

fn judged(gateway: &Gateway) -> Value {
    until("a verdict", || {
        let answer = gateway.get(&format!("/api/v1/rollouts/{ROLLOUT}"));
        (answer.status == 200).then(|| serde_json::from_slice(&answer.body).unwrap())
    })
}

#[test]
fn a_rollout_is_told_alike_by_report_list_bundle_and_command() {
    let gateway = Gateway::serve(&["--estate", DEMO]);
    let report = judged(&gateway);
    assert_eq!((&report["rollout"], &report["terms"]["stage"]), (&ROLLOUT.into(), &1.into()));
    let list = gateway.json("/api/v1/rollouts");
    let verdict = &list["items"][0]["verdict"];
    assert_eq!(
        (&verdict["kind"], &verdict["why"]),
        (&report["verdict"]["kind"], &report["verdict"]["why"])
    );

    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("bundle.json");
    let bundle = gateway.get(&format!("/api/v1/rollouts/{ROLLOUT}/bundle"));
    assert_eq!(bundle.status, 200);
    std::fs::write(&file, bundle.body).unwrap();
    let ended = run(&["rollout", "verify", file.to_str().unwrap()]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.out, ended.err);

    let kind = report["verdict"]["kind"].as_str().unwrap();
    let ended = rollout(&gateway, &["get", ROLLOUT]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert!(
        ended.out.starts_with(&format!("{ROLLOUT}  ")) && ended.out.contains(kind),
        "{}",
        ended.out
    );
    let ended = rollout(&gateway, &["status", ROLLOUT, "--timeout", "0s"]);
    assert_eq!((ended.code, kind), (Some(3), "hold"), "{}{}", ended.out, ended.err);
    let ended = rollout(&gateway, &["get"]);
    assert!(ended.out.lines().nth(1).unwrap().contains(ROLLOUT), "{}", ended.out);
}

#[test]
fn a_stream_tells_the_report_its_changes_and_the_end() {
    let mut gateway = Gateway::serve(&["--estate", DEMO]);
    judged(&gateway);
    let (head, mut one) = stream(&gateway, &format!("/api/v1/rollouts/{ROLLOUT}/events"));
    assert!(head.starts_with("HTTP/1.0 200") && head.contains("text/event-stream"), "{head}");
    let (_, mut all) = stream(&gateway, "/api/v1/events");
    for lines in [&mut one as &mut dyn Iterator<Item = String>, &mut all] {
        let (name, report) = event(&mut &mut *lines).unwrap();
        assert_eq!((name.as_str(), &report["rollout"]), ("report", &ROLLOUT.into()));
        assert_eq!(report["verdict"]["seen"], 0);
    }
    let member = [("service.name", "otelcol-kafka-bridge"), ("host.name", "bridge-a1")];
    opamp::request(opamp::report(1, &member)).send(gateway.listen);
    let seen = |lines: &mut dyn Iterator<Item = String>| {
        let mut lines = lines;
        std::iter::from_fn(|| event(&mut lines)).any(|(_, report)| report["verdict"]["seen"] == 1)
    };
    assert!(seen(&mut one) && seen(&mut all));

    gateway.signal(Signal::TERM);
    for lines in [&mut one as &mut dyn Iterator<Item = String>, &mut all] {
        let mut lines = lines;
        let last = std::iter::from_fn(|| event(&mut lines)).last().unwrap();
        assert_eq!(last, ("end".to_owned(), "draining".into()));
    }
    assert_eq!(gateway.wait().code(), Some(0));
}

#[test]
fn a_brief_stream_says_which_rollout_changed_and_nothing_else() {
    let gateway = Gateway::serve(&["--estate", DEMO]);
    let kind = judged(&gateway)["verdict"]["kind"].clone();
    for path in ["/api/v1/events".to_owned(), format!("/api/v1/rollouts/{ROLLOUT}/events")] {
        let (_, mut lines) = stream(&gateway, &format!("{path}?brief=true"));
        let (name, data) = event(&mut lines).unwrap();
        let brief = serde_json::json!({ "rollout": ROLLOUT, "verdict": kind });
        assert_eq!((name.as_str(), data), ("report", brief));
        assert_eq!(gateway.get(&format!("{path}?short=true")).status, 400);
    }
}

#[test]
fn streams_are_counted_and_given_back() {
    let gateway = Gateway::serve(&["--estate", DEMO]);
    judged(&gateway);
    let path = "/api/v1/events";
    let open: Vec<_> = (0..64).map(|_| stream(&gateway, path)).collect();
    assert!(open.iter().all(|(head, _)| head.starts_with("HTTP/1.0 200")));
    let refused = gateway.get(path);
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(refused.head.contains("retry-after: 5"), "{refused:?}");
    assert_eq!(gateway.get("/metrics").status, 200, "watchers keep no scrape out");
    drop(open);
    until("a stream to be given back", || {
        stream(&gateway, path).0.starts_with("HTTP/1.0 200").then_some(())
    });
}

#[test]
fn a_failed_on_the_wire_ends_the_wait_and_is_shown_harmless() {
    let gateway = Gateway::serve(&["--estate", DEMO]);
    judged(&gateway);
    let member = [("service.name", "otelcol-kafka-bridge"), ("host.name", "bridge-a1")];
    let answer = opamp::request(opamp::report(1, &member)).send(gateway.listen);
    let hash = opamp::reply(&answer).remote_config.unwrap().config_hash.to_vec();
    let why = "no such exporter \x1b[2J\u{202e}kafka2";
    opamp::request(opamp::failed(1, &member, hash, why)).send(gateway.listen);
    let ended = rollout(&gateway, &["status", ROLLOUT, "--timeout", "30s"]);
    assert_eq!(ended.code, Some(1), "{}{}", ended.out, ended.err);
    assert!(ended.out.contains("1 of 1 member failed"), "{}", ended.out);
    let ended = rollout(&gateway, &["get", ROLLOUT]);
    assert!(ended.out.contains("failed × 1") && ended.out.contains("bridge-a1"), "{}", ended.out);
    assert!(ended.out.contains("no such exporter"), "{}", ended.out);
    assert!(!ended.out.contains(['\x1b', '\u{202e}']), "{:?}", ended.out);
    let told = rollout(&gateway, &["propose", ROLLOUT, "--estate", DEMO, "--catalogue", CATALOGUE]);
    assert_eq!(told.code, Some(1), "{}{}", told.out, told.err);
    assert!(told.err.contains("nothing to propose"), "a young gateway blocks: {}", told.err);
}
