//! Exit codes, outputs and errors of the commands, against a listener that plays its part.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use render::rollout::bundle::Bundle;
use render::rollout::verdict::Kind;
use serde_json::Value;

use super::super::support::gateway::{Ended, command, run};
use super::super::support::report::{Act, Fake, ROLLOUT, event, report};
use super::super::support::until;

fn json(body: &impl serde::Serialize) -> Act {
    Act::Answer(200, "application/json", serde_json::to_string(body).unwrap())
}

fn rollout(fake: &Fake, arguments: &[&str]) -> Ended {
    run(&[&["rollout"], arguments, &["--admin-url", &fake.url()]].concat())
}

#[track_caller]
fn check(ended: &Ended, code: i32, out: &str, err: &str) {
    assert_eq!(ended.code, Some(code), "{}{}", ended.out, ended.err);
    assert!(ended.out.contains(out) && (!out.is_empty() || ended.out.is_empty()), "{}", ended.out);
    assert!(ended.err.contains(err) && (!err.is_empty() || ended.err.is_empty()), "{}", ended.err);
}

#[test]
fn get_tells_and_does_not_judge() {
    for kind in Kind::ALL {
        let fake = Fake::new(vec![json(&report(kind))]);
        let ended = rollout(&fake, &["get", ROLLOUT]);
        check(&ended, 0, kind.label(), "");
        assert!(!ended.out.contains('\x1b'), "no colour without a terminal: {}", ended.out);
        assert!(
            fake.requests()[0].starts_with("GET /api/v1/rollouts/data-flow/bridge-canary HTTP")
        );
    }
}

#[test]
fn json_is_the_api_s_with_rfc_3339_beside_each_moment() {
    let told = report(Kind::Blocked);
    let fake = Fake::new(vec![json(&told)]);
    let ended = rollout(&fake, &["get", ROLLOUT, "-o", "json"]);
    let mut value: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(value["times"]["now_rfc3339"], "2026-10-01T12:00:00Z");
    assert_eq!(value["halted"][0]["since_rfc3339"], "2026-10-01T11:00:00Z");
    let drop_twins = |value: &mut Value| {
        value.as_object_mut().unwrap().retain(|name, _| !name.ends_with("_rfc3339"));
    };
    drop_twins(&mut value["times"]);
    drop_twins(&mut value["halted"][0]);
    assert_eq!(value, serde_json::to_value(&told).unwrap());
}

#[test]
fn status_exits_by_the_verdict() {
    for (kind, code) in [
        (Kind::Advance, 0),
        (Kind::Complete, 0),
        (Kind::Blocked, 1),
        (Kind::Abort, 1),
        (Kind::Hold, 3),
        (Kind::Inconclusive, 4),
    ] {
        let fake = Fake::new(vec![Act::Hold(event(&report(kind)))]);
        let ended = rollout(&fake, &["status", ROLLOUT, "--timeout", "0s"]);
        assert_eq!(ended.code, Some(code), "{kind:?}: {}{}", ended.out, ended.err);
        let line = format!("{ROLLOUT}: {}: {}\n", kind.label(), report(kind).verdict.why);
        assert_eq!(ended.out, line);
    }
}

#[test]
fn status_waits_until_there_is_a_decision() {
    let events = [Kind::Inconclusive, Kind::Hold, Kind::Advance].map(|kind| event(&report(kind)));
    let fake = Fake::new(vec![Act::Hold(events.concat())]);
    let ended = rollout(&fake, &["status", ROLLOUT]);
    check(&ended, 0, "bridge-canary: advance: ", "bridge-canary: hold: ");
}

#[test]
fn a_rollout_that_leaves_head_ends_the_wait() {
    let gone = format!("{}event: gone\ndata: \"{ROLLOUT}\"\n\n", event(&report(Kind::Hold)));
    let fake = Fake::new(vec![Act::Hold(gone)]);
    check(&rollout(&fake, &["status", ROLLOUT]), 2, "", "left head");
}

#[test]
fn a_wait_survives_a_restart() {
    let fake = Fake::new(vec![
        Act::Stream(event(&report(Kind::Hold)) + "event: end\ndata: \"draining\"\n\n"),
        Act::Answer(503, "application/json", "{\"error\":\"not yet\"}".into()),
        Act::Hold(event(&report(Kind::Blocked))),
    ]);
    let ended = rollout(&fake, &["status", ROLLOUT]);
    check(&ended, 1, "blocked", "the stream ended; trying again in 500ms");
    assert!(ended.err.contains("cannot answer now: not yet; trying again in 1s"), "{}", ended.err);
    assert!(ended.err.contains("connected again"), "{}", ended.err);
    assert_eq!(fake.requests().len(), 3);
}

#[test]
fn a_watch_prints_a_block_per_change_and_ends_with_its_reader() {
    let events = [Kind::Hold, Kind::Advance].map(|kind| event(&report(kind)));
    let fake =
        Fake::new(vec![Act::Stream(events.concat()), Act::Hold(event(&report(Kind::Abort)))]);
    let mut child =
        command(&["rollout", "get", ROLLOUT, "-w", "-o", "json", "--admin-url", &fake.url()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let kinds: Vec<String> = lines
        .by_ref()
        .take(3)
        .map(|line| {
            let value: Value = serde_json::from_str(&line.unwrap()).unwrap();
            value["verdict"]["kind"].as_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!(kinds, ["hold", "advance", "abort"]);
    child.kill().unwrap();
    child.wait().unwrap();
    let mut err = String::new();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    assert!(err.contains("connected again"), "{err}");
}

#[test]
fn a_reader_that_has_gone_is_no_fault() {
    let mut told = report(Kind::Blocked);
    told.halted = vec![told.halted[0].clone(); 5_000];
    let fake = Fake::new(vec![json(&told)]);
    let mut child = command(&["rollout", "get", ROLLOUT, "-o", "json", "--admin-url", &fake.url()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let ended = until("the command's end", || child.try_wait().unwrap());
    let mut err = String::new();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    assert_eq!((ended.code(), err.as_str()), (Some(0), ""));
}

#[test]
fn the_list_is_worst_first() {
    let row = |id: &str, verdict: Option<Kind>| {
        serde_json::json!({
            "id": id, "tier": "t/x", "owner": "o", "from": "f", "to": "t", "stage": 0,
            "stages": [{"soak_seconds": 1}], "hold": false, "cells": [],
            "verdict": verdict.map(|kind| serde_json::json!({
                "kind": kind.label(), "why": format!("why {id}"), "seen": 20, "to": 19, "failed": 1,
                "dark": 0, "soaked_ms": 1_000, "soak_ms": 7_200_000, "braked": false,
                "proposal": null})),
        })
    };
    let first = serde_json::json!({"items": [
        row("a/good", Some(Kind::Advance)), row("b/new", None)], "next": "b/new"});
    let second = serde_json::json!({"items": [
        row("c/bad", Some(Kind::Abort)), row("d/bad\u{1b}[2J", Some(Kind::Blocked))]});
    let fake = Fake::new(vec![json(&first), json(&second)]);
    let ended = rollout(&fake, &["get"]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    let ids: Vec<&str> =
        ended.out.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
    assert_eq!(ids, ["TIER", "c/bad", "d/bad\\u{1b}[2J", "b/new", "a/good"], "{}", ended.out);
    assert!(fake.requests()[1].contains("limit=1000&cursor=b%2Fnew"), "{:?}", fake.requests());
}

#[test]
fn what_goes_wrong_is_told_with_a_way_out() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://{closed}");
    for more in [&["get"][..], &["get", ROLLOUT, "-w"], &["status", ROLLOUT], &["plan", ROLLOUT]] {
        let ended = run(&[&["rollout"], more, &["--admin-url", &url]].concat());
        check(&ended, 2, "", "is a gateway running there?");
    }
    let answer = |status, body: &str| vec![Act::Answer(status, "text/plain", body.to_owned())];
    let get = |acts| rollout(&Fake::new(acts), &["get", ROLLOUT]);
    check(&get(answer(401, "no token\n")), 2, "", "--admin-token-file");
    check(&get(answer(421, "wrong name; add --admin-host\n")), 2, "", "add --admin-host");
    check(&get(answer(404, "")), 2, "", "is no gateway of this version: 404");
    check(&get(answer(200, "<html>\x1b[2J")), 2, "", "is no gateway of this version");
    let unknown = "{\"error\":\"there is no Rollout\",\"known\":[\"a/b\",\"c/d\"],\"total\":9}";
    check(&get(answer(404, unknown)), 2, "", "there is no Rollout; it has a/b, c/d and 7 more");
    check(&rollout(&Fake::new(answer(200, "x")), &["get", ROLLOUT, "-w"]), 2, "", "no gateway");
    check(&run(&["rollout", "get", "nonsense"]), 2, "", "must be team/name");
    check(&run(&["rollout", "get", "--admin-url", "https://x"]), 2, "", "plain HTTP");
    check(&run(&["rollout", "explain", "nonsense"]), 2, "", "must be attribute=value");
    check(&run(&["rollout", "plan", ROLLOUT, "--estate", "x"]), 2, "", "--roster");
}

#[test]
fn the_token_of_the_file_is_sent() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    std::fs::write(&file, "# operators\n0123456789abcdef01234567\n").unwrap();
    let fake = Fake::new(vec![json(&report(Kind::Hold))]);
    rollout(&fake, &["get", ROLLOUT, "--admin-token-file", file.to_str().unwrap()]);
    let head = fake.requests()[0].to_ascii_lowercase();
    assert!(head.contains("authorization: bearer 0123456789abcdef01234567\r\n"), "{head}");
}

#[test]
fn verify_exits_by_what_it_finds() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("bundle.json");
    let verify = |text: &[u8]| {
        std::fs::write(&file, text).unwrap();
        run(&["rollout", "verify", file.to_str().unwrap()])
    };
    for kind in Kind::ALL {
        let bytes = Bundle::of(&report(kind)).unwrap().to_canonical_json().unwrap();
        check(&verify(&bytes), 0, &format!("same: {ROLLOUT}"), "");
        let text = String::from_utf8(bytes).unwrap();
        let changed = text.replacen("\"seen\":20", "\"seen\":21", 1);
        assert_ne!(text, changed);
        let ended = verify(changed.as_bytes());
        check(&ended, 1, "different: ", "");
        assert!(ended.out.contains("digest is "), "{}", ended.out);
    }
    check(&verify(b"{}"), 2, "", "is no evidence bundle");
    check(&run(&["rollout", "verify", "/nonexistent"]), 2, "", "/nonexistent: cannot be read");
}

const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/estates/demo");

fn catalogue() -> String {
    format!("{DEMO}/catalogues/catalogue-v0.158.0.json")
}

fn propose(kind: Kind, change: impl FnOnce(&mut render::rollout::report::RolloutReport)) -> Ended {
    let mut told = report(kind);
    change(&mut told);
    let fake = Fake::new(vec![json(&told)]);
    rollout(&fake, &["propose", ROLLOUT, "--estate", DEMO, "--catalogue", &catalogue()])
}

#[test]
fn propose_prints_branch_message_and_diff() {
    // The demo estate is at stage 1 of 3.
    let at_stage_1 = |told: &mut render::rollout::report::RolloutReport| {
        (told.terms.stage, told.terms.stages) = (1, 3);
    };
    let ended = propose(Kind::Advance, at_stage_1);
    check(&ended, 0, "branch tidegate/rollout/data-flow/bridge-canary/advance-3\n", "");
    assert!(ended.out.contains("\n-stage: 1\n+stage: 2\n"), "{}", ended.out);
    assert!(
        ended.out.contains("rollouts-evidence/data-flow/bridge-canary.json ("),
        "{}",
        ended.out
    );
    let edits = ended.out.lines().filter(|line| line.starts_with("diff --git")).count();
    assert_eq!(edits, 1, "an advance changes one file: {}", ended.out);

    let ended = propose(Kind::Abort, at_stage_1);
    check(&ended, 1, "bridge-canary/abort-2\n", "");
    assert!(ended.out.contains("deleted file mode"), "{}", ended.out);
    assert!(ended.out.contains("a/rendered/data-flow/kafka-bridge@next.yaml"), "{}", ended.out);
}

#[test]
fn propose_tells_when_there_is_nothing_to() {
    for (kind, code) in [(Kind::Blocked, 1), (Kind::Hold, 3), (Kind::Inconclusive, 4)] {
        check(&propose(kind, |_| {}), code, "", "nothing to propose for data-flow/bridge-canary");
    }
    check(&propose(Kind::Advance, |_| {}), 2, "", "what was judged is not what the commit holds");
}

#[test]
fn explain_and_plan_work_offline() {
    let explain = |attributes: &[&str]| {
        run(&[&["rollout", "explain", "--estate", DEMO], attributes].concat())
    };
    let ended = explain(&["service.name=otelcol-kafka-bridge", "host.name=bridge-a1"]);
    check(&ended, 0, "member, admitted by stage 1 (hosts host.name (2)), by hosts", "");
    assert!(ended.out.contains("none: it lacks service.instance.id"), "{}", ended.out);
    let ended = explain(&["service.name=otelcol-kafka-bridge", "service.instance.id=bridge-a1"]);
    check(&ended, 0, "9156 of 10000 (hash 16891263631310404753)", "");
    assert!(ended.out.contains("not yet: would be admitted by stage 3 (100%)"), "{}", ended.out);
    check(&explain(&["a=\x1b[2J"]), 0, "no selector matches", "");

    let dir = tempfile::tempdir().unwrap();
    let roster = dir.path().join("roster.yaml");
    let member = |id: &str| format!("- {{service.name: otelcol-kafka-bridge, {id}}}\n");
    let text: String = [
        member("host.name: bridge-a1"),
        member("service.instance.id: bridge-a1"),
        member("region: \"\\e[2J\""),
        "- service.name: else\n".to_owned(),
    ]
    .concat();
    std::fs::write(&roster, &text).unwrap();
    let plan = |id: &str, more: &[&str]| {
        let roster = roster.to_str().unwrap();
        let plan = ["rollout", "plan", id, "--estate", DEMO, "--roster", roster];
        run(&[&plan[..], more].concat())
    };
    let ended = plan(ROLLOUT, &[]);
    check(&ended, 0, "3 of 4 collectors are on the Tier, 1 of them in the Cohort", "");
    assert!(ended.out.contains("join      1 at stage 3\n"), "{}", ended.out);
    assert!(ended.out.contains("line 3  lacks service.instance.id"), "{}", ended.out);
    let value: Value = serde_json::from_str(&plan(ROLLOUT, &["-o", "json"]).out).unwrap();
    assert_eq!((&value["joining"], &value["leaving"]), (&1.into(), &0.into()));
    check(&plan("a/b", &[]), 2, "", "there is no Rollout 'a/b'");
    std::fs::write(&roster, "- a: 1\n").unwrap();
    check(&plan(ROLLOUT, &[]), 2, "", "roster.yaml:1: 1 is not a string");
}
