//! The operators' API of Rollouts, and the commands, against a real gateway.

use serde_json::Value;

use super::super::support::gateway::{Gateway, run};
use super::super::support::opamp;
use super::super::support::report::ROLLOUT;

const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/estates/demo");

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
