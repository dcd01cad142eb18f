//! The generated documents: exact shapes (estate.md 2.4 to 2.6) and the demo estate's goldens.

use render::yaml::{Node, Value, parse};

use super::common::{Estate, demo, files, tier};

/// Keys from the root to a node; a sequence index is its number.
#[track_caller]
fn at<'n>(node: &'n Node, path: &[&str]) -> &'n Node {
    path.iter().fold(node, |node, key| match (&node.value, key.parse::<usize>()) {
        (Value::Sequence(items), Ok(index)) => &items[index],
        _ => node.get(key).unwrap_or_else(|| panic!("{path:?} has no {key}")),
    })
}

#[track_caller]
fn text<'n>(node: &'n Node, path: &[&str]) -> &'n str {
    &at(node, path).as_scalar().expect("a scalar").text
}

fn list(node: &Node) -> Vec<String> {
    match &node.value {
        Value::Sequence(items) => {
            items.iter().map(|item| item.as_scalar().expect("a scalar").text.clone()).collect()
        }
        _ => panic!("not a list"),
    }
}

fn keys(node: &Node) -> Vec<String> {
    match &node.value {
        Value::Mapping(entries) => {
            entries.iter().map(|(key, _)| key.as_scalar().expect("a scalar").text.clone()).collect()
        }
        _ => panic!("not a mapping"),
    }
}

/// Renders in place and reads a file under `rendered/`.
#[track_caller]
fn rendered(estate: &Estate, path: &str) -> Node {
    estate.rendered();
    parse(estate.read(&format!("rendered/{path}")).as_bytes()).expect("what we write can be read")
}

/// R35: the committed tree is what the sources render to, at the commit it carries.
#[test]
fn the_demo_estate_is_rendered_as_committed() {
    let estate = Estate::demo();
    let ran = estate.render(&["--check"]);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
}

/// Reviewed text: what the demo estate renders to, file by file.
#[test]
fn the_demo_estates_artefacts_are_golden() {
    for (path, contents) in files(&demo()) {
        if path.starts_with("rendered/") || path == "CODEOWNERS" {
            let name = path.replace('/', "--");
            insta::assert_snapshot!(name, String::from_utf8(contents).expect("UTF-8"));
        }
    }
}

/// R01.
#[test]
fn a_second_run_writes_the_same_bytes() {
    let estate = Estate::demo();
    estate.rendered();
    let first = files(&estate.root());
    estate.rendered();
    assert_eq!(files(&estate.root()), first);
}

const STRIP: &str = "attributes/telecraft.untrusted-hop";

/// R03.
#[test]
fn an_untrusted_hop_puts_the_strip_first_everywhere() {
    let estate = Estate::small();
    estate.blueprint("plain", 1, "", "traces: [in, work, out]; logs: [in, out]");
    let hops = "hops: [{from: a, trusted: true}, {from: b}]\n";
    estate.write("teams/a/tiers/edge.yaml", &tier("staging", "a/plain@1", hops));
    let artefact = rendered(&estate, "a/edge.yaml");
    assert_eq!(keys(at(&artefact, &["processors"])), [STRIP, "batch/work"]);
    let pipelines = at(&artefact, &["service", "pipelines"]);
    assert_eq!(list(at(pipelines, &["traces", "processors"])), [STRIP, "batch/work"]);
    assert_eq!(list(at(pipelines, &["logs", "processors"])), [STRIP]);
    let action = at(&artefact, &["processors", STRIP, "actions", "0"]);
    assert_eq!(text(action, &["action"]), "delete");
    assert_eq!(text(action, &["pattern"]), "^telecraft\\.");
}

/// R03, the other half.
#[test]
fn without_an_untrusted_hop_or_a_pipeline_there_is_no_strip() {
    let estate = Estate::small();
    for hops in ["", "hops: [{from: a, trusted: true}]\n"] {
        estate.write("teams/a/tiers/edge.yaml", &tier("staging", "a/plain@1", hops));
        estate.rendered();
        assert!(!estate.read("rendered/a/edge.yaml").contains(STRIP));
    }
    let health = "{name: health, class: extension, type: health_check, version: 1}";
    estate.blueprint("plain", 1, health, "extensions: [health]");
    estate.write("teams/a/tiers/edge.yaml", &tier("staging", "a/plain@1", "hops: [{from: a}]\n"));
    let artefact = rendered(&estate, "a/edge.yaml");
    assert_eq!(keys(&artefact), ["extensions", "service"]);
    assert_eq!(keys(at(&artefact, &["service"])), ["extensions", "telemetry"]);
}

/// R05.
#[test]
fn each_environment_reports_to_its_own_endpoint() {
    let estate = Estate::small();
    estate.write("teams/a/tiers/live.yaml", &tier("production", "a/plain@1", ""));
    for (path, endpoint) in [
        ("a/live.yaml", "https://production.example:4318"),
        ("a/edge.yaml", "https://all.example:4318"),
        ("_estate/unmatched.yaml", "https://all.example:4318"),
    ] {
        let artefact = rendered(&estate, path);
        let telemetry = at(&artefact, &["service", "telemetry"]);
        assert_eq!(keys(telemetry), ["resource", "metrics", "logs"]);
        assert_eq!(text(telemetry, &["metrics", "level"]), "normal");
        for exporter in [
            at(telemetry, &["metrics", "readers", "0", "periodic", "exporter", "otlp"]),
            at(telemetry, &["logs", "processors", "0", "batch", "exporter", "otlp"]),
        ] {
            assert_eq!(text(exporter, &["endpoint"]), endpoint);
            assert_eq!(text(exporter, &["protocol"]), "http/protobuf");
        }
    }
}

#[test]
fn unmatched_stamps_a_boolean_and_no_tier() {
    let artefact = rendered(&Estate::small(), "_estate/unmatched.yaml");
    assert_eq!(keys(&artefact), ["service"]);
    let resource = at(&artefact, &["service", "telemetry", "resource"]);
    assert_eq!(keys(resource), ["k8s.node.name", "telecraft.commit", "telecraft.unmatched"]);
    assert_eq!(text(resource, &["telecraft.unmatched"]), "true");
}

/// R23 and the order of sections and pipelines.
#[test]
fn sections_and_pipelines_stand_in_a_fixed_order() {
    let estate = Estate::small();
    estate.blueprint(
        "plain",
        1,
        "{name: join, class: connector, type: forward, version: 1}\n\
         {name: health, class: extension, type: health_check, version: 1}",
        "profiles: [in, out]; logs: [join, work, out]; traces: [in, work, join, out]; \
         metrics: [in, out]; extensions: [health]",
    );
    let artefact = rendered(&estate, "a/edge.yaml");
    assert_eq!(
        keys(&artefact),
        ["receivers", "processors", "exporters", "connectors", "extensions", "service"]
    );
    let service = at(&artefact, &["service"]);
    assert_eq!(keys(service), ["extensions", "pipelines", "telemetry"]);
    let pipelines = at(service, &["pipelines"]);
    assert_eq!(keys(pipelines), ["traces", "metrics", "logs", "profiles"]);
    // A connector after a processor is on the exporter side, before one on the receiver side.
    assert_eq!(list(at(pipelines, &["traces", "exporters"])), ["forward/join", "debug/out"]);
    assert_eq!(list(at(pipelines, &["logs", "receivers"])), ["forward/join"]);
    assert_eq!(keys(at(pipelines, &["metrics"])), ["receivers", "exporters"]);
}

#[test]
fn a_receiver_placed_last_is_still_a_receiver() {
    let estate = Estate::small();
    estate.blueprint(
        "plain",
        1,
        "{name: late, class: receiver, type: kafka, version: 1}",
        "traces: [in, work, out, late]",
    );
    let artefact = rendered(&estate, "a/edge.yaml");
    let traces = at(&artefact, &["service", "pipelines", "traces"]);
    assert_eq!(list(at(traces, &["receivers"])), ["otlp/in", "kafka/late"]);
}

/// R25, second half, and a type that is an alias stays as authored.
#[test]
fn top_level_keys_of_a_config_become_texts() {
    let estate = Estate::small();
    estate.blueprint(
        "plain",
        1,
        "{name: send, class: exporter, type: otlphttp, version: 1, config: {b: 1.0, 2: x, true: {1: y}}}",
        "traces: [in, send]",
    );
    estate.rendered();
    let artefact = estate.read("rendered/a/edge.yaml");
    let config = "  otlphttp/send:\n    \"2\": x\n    b: 1.0\n    \"true\":\n      1: \"y\"\n";
    assert!(artefact.contains(config), "{artefact}");
}

/// R27, and the Supervisor's capabilities.
#[test]
fn only_the_base_of_a_served_tier_has_a_supervisor_file() {
    let estate = Estate::demo();
    estate.rendered();
    assert!(!estate.root().join("rendered/data-flow/kafka-bridge@next.supervisor.yaml").exists());
    assert!(!estate.root().join("rendered/storefront/edge.supervisor.yaml").exists());
    let supervisor = rendered(&estate, "data-flow/kafka-bridge.supervisor.yaml");
    assert_eq!(keys(&supervisor), ["server", "capabilities", "agent", "storage"]);
    let capabilities = at(&supervisor, &["capabilities"]);
    for key in keys(capabilities) {
        assert_eq!(text(capabilities, &[&key]), "true");
    }
    assert_eq!(
        keys(capabilities),
        [
            "accepts_remote_config",
            "reports_effective_config",
            "reports_health",
            "reports_remote_config",
            "reports_heartbeat",
        ]
    );
}

/// R31, first half: a Tier alone does not need its team in `teams.yaml`.
#[test]
fn a_tier_of_an_unlisted_team_may_bind_a_listed_teams_blueprint() {
    let estate = Estate::small();
    estate.write("teams/ghost/tiers/lone.yaml", &tier("staging", "a/plain@1", ""));
    let artefact = rendered(&estate, "ghost/lone.yaml");
    assert_eq!(
        text(&artefact, &["service", "telemetry", "resource", "telecraft.tier"]),
        "ghost/lone"
    );
}

/// R33: always quoted, so that no reader takes it for a number.
#[test]
fn the_commit_is_always_quoted() {
    let estate = Estate::small();
    for commit in ["1234567", "12e4567", "deadbeef"] {
        assert_eq!(estate.render(&["--commit", commit]).code, 0);
        for path in ["a/edge.yaml", "_estate/unmatched.yaml"] {
            let artefact = estate.read(&format!("rendered/{path}"));
            assert!(artefact.contains(&format!("telecraft.commit: \"{commit}\"\n")), "{artefact}");
            assert!(artefact.contains(&format!(", commit {commit}.\n")), "{artefact}");
        }
    }
}

#[test]
fn codeowners_lists_each_chain_once_and_roots_own_unmatched() {
    let estate = Estate::small();
    estate.write(
        "teams.yaml",
        "teams:\n  - id: a\n    owners: [ann, bob]\n    teams:\n      - id: b\n        owners: [cat]\n\
         \x20       teams:\n          - id: c\n  - id: alone\n  - id: 0root\n    owners: [zoe]\n",
    );
    estate.rendered();
    let codeowners = estate.read("CODEOWNERS");
    let lines: Vec<&str> = codeowners.lines().collect();
    assert!(lines[..3].iter().all(|line| line.starts_with("# ")), "{codeowners}");
    assert_eq!(
        lines[3..].join("\n"),
        "\n/teams/0root/ @zoe\n/rendered/0root/ @zoe\n\
         \n/teams/a/ @ann @bob\n/rendered/a/ @ann @bob\n\
         \n/teams/b/ @cat @ann @bob\n/rendered/b/ @cat @ann @bob\n\
         \n/teams/c/ @cat @ann @bob\n/rendered/c/ @cat @ann @bob\n\
         \n/rendered/_estate/ @zoe @ann @bob"
    );
}
