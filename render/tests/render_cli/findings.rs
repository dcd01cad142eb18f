//! Findings: printed after the `wrote` lines, exit 0 all the same (estate.md 2.7).

use super::common::{Estate, tier};

/// The findings of a render, without the word `finding`.
#[track_caller]
fn findings(estate: &Estate) -> Vec<String> {
    let stdout = estate.rendered().stdout;
    stdout.lines().filter_map(|line| line.strip_prefix("finding ")).map(str::to_owned).collect()
}

#[track_caller]
fn check(estate: &Estate, expect: &[&str]) {
    assert_eq!(findings(estate), expect);
}

fn service(class: &str, tier: &str) -> String {
    format!("owner: ann\nclass: {class}\npaths: [{{through: [{tier}]}}]\n")
}

#[test]
fn a_clean_estate_has_none() {
    check(&Estate::small(), &[]);
}

/// R09: judged at the strictest class, imposed only by the Services of that class.
#[test]
fn the_strictest_class_through_a_tier_sets_the_floor() {
    let estate = Estate::small();
    estate.write("teams/a/tiers/edge.yaml", &tier("production", "a/plain@1", ""));
    estate.write("teams/a/services/first.yaml", &service("C1", "a/edge"));
    estate.write("teams/a/services/third.yaml", &service("C3", "a/edge"));
    check(
        &estate,
        &[
            "floor tier=a/edge lane=traces: debug/out (exporter/debug) of Blueprint a/plain is alpha for traces, below the floor beta that class C1 has in production; imposed by a/first",
        ],
    );
    // C3 alone asks for alpha only, and staging for nothing.
    estate.remove("teams/a/services/first.yaml");
    check(&estate, &[]);
    estate.write("teams/a/services/first.yaml", &service("C1", "a/edge"));
    estate.write("teams/a/tiers/edge.yaml", &tier("staging", "a/plain@1", ""));
    check(&estate, &[]);
}

#[test]
fn off_ladder_levels_and_signals_that_are_not_listed_are_not_judged() {
    let estate = Estate::small();
    estate.write("teams/a/tiers/edge.yaml", &tier("production", "a/plain@1", ""));
    estate.write("teams/a/services/first.yaml", &service("C1", "a/edge"));
    // `debug` is stable for logs here and says nothing of metrics; a connector lists `x_to_y` only.
    estate.blueprint(
        "plain",
        1,
        "{name: join, class: connector, type: forward, version: 1}",
        "metrics: [join, work, out]; logs: [in, work, join, out]",
    );
    check(&estate, &[]);
}

#[test]
fn a_class_that_is_not_ranked_is_told_once_per_service() {
    let estate = Estate::small();
    estate.write("teams/a/services/odd.yaml", &service("gold", "a/edge"));
    check(
        &estate,
        &[
            "floor tier=a/edge: service a/odd has the class \"gold\", which is not ranked (C1, C2, C3), so it imposes no floor",
        ],
    );
}

/// R13: the artefact is head's, the header prints the pin.
#[test]
fn a_stale_pin_renders_head_and_says_so() {
    let estate = Estate::small();
    estate.blueprint("plain", 2, "", "logs: [in, work, out]");
    check(
        &estate,
        &[
            "binding tier=a/edge: binds a/plain@1, but the Blueprint's head is version 2: the artefact is rendered from head",
        ],
    );
    let artefact = estate.read("rendered/a/edge.yaml");
    assert!(artefact.contains("Blueprint a/plain@1, commit"), "{artefact}");
    assert!(artefact.contains("    logs:\n"), "{artefact}");
    assert!(!artefact.contains("    traces:\n"), "{artefact}");
}

/// R21: one definition with head's content, one finding, for the pin that is ahead.
#[test]
fn three_references_to_one_component_make_one_definition() {
    let estate = Estate::small();
    estate.write(
        "teams/a/components/scrub.yaml",
        "name: scrub\nclass: processor\ntype: attributes\nversion: 3\nowner: ann\nconfig: {level: three}\n",
    );
    estate.blueprint(
        "plain",
        1,
        "",
        "traces: [in, a/scrub@1, out]; metrics: [in, a/scrub@9, out]; logs: [in, a/scrub head, out]",
    );
    let found = findings(&estate);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("reference blueprint=a/plain lane=metrics: "), "{found:?}");
    let artefact = estate.read("rendered/a/edge.yaml");
    assert_eq!(artefact.matches("attributes/a.scrub:\n").count(), 1, "{artefact}");
    assert_eq!(artefact.matches("- attributes/a.scrub\n").count(), 3, "{artefact}");
    assert!(artefact.contains("    level: three\n"), "{artefact}");
}

/// R19, first half: misplaced entries of a Blueprint that nobody binds are findings only.
#[test]
fn misplaced_entries_of_an_unbound_blueprint_are_findings() {
    let estate = Estate::small();
    estate.blueprint(
        "unbound",
        1,
        "{name: health, class: extension, type: health_check, version: 1}",
        "traces: [in, health, out]; extensions: [work]",
    );
    let found = findings(&estate);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].starts_with("reference blueprint=a/unbound lane=traces: "), "{found:?}");
    assert!(found[1].starts_with("reference blueprint=a/unbound lane=extensions: "), "{found:?}");
}

fn rollout(stages: &str) -> String {
    format!(
        "owner: ann\ntier: a/edge\nfrom: a/plain@1\nto: a/next@1\nhash_attributes: [host.name]\n\
         stages:\n{stages}"
    )
}

/// Decision 9: a candidate that renders to its base's content stages nothing.
#[test]
fn a_candidate_equal_to_its_base_is_a_finding() {
    let estate = Estate::small();
    estate.write(
        "teams/a/tiers/edge.yaml",
        &tier("staging", "a/plain@1", "selector: {host.name: edge}\n"),
    );
    estate.blueprint("next", 1, "", "traces: [in, work, out]");
    estate.write("teams/a/rollouts/canary.yaml", &rollout("  - cohort: {percent: 100}\n"));
    check(
        &estate,
        &[
            "artefact tier=a/edge: rollout \"a/canary\" stages nothing: a/plain@1 and a/next@1 render to the same content, so everybody is served the base",
        ],
    );
    estate.blueprint("next", 1, "", "traces: [in, out]");
    check(&estate, &[]);
}

/// Decision 11, and the order: load findings, then per Tier binding, floors, those of `@next`,
/// the Rollout's.
#[test]
fn findings_come_in_a_stable_order() {
    let estate = Estate::small();
    estate.write(
        "teams/a/tiers/edge.yaml",
        &tier("production", "a/plain@7", "selector: {service.name: edge}\n"),
    );
    estate.write("teams/a/services/first.yaml", &service("C1", "a/edge"));
    estate.blueprint("next", 3, "", "traces: [in, out]");
    estate.blueprint("unbound", 1, "", "traces: [in, a/gone@1, out]");
    let rollout = rollout("  - cohort: {percent: 25}\n").replace("a/plain@1", "a/plain@7");
    estate.write("teams/a/rollouts/canary.yaml", &rollout);
    let begin: Vec<String> = findings(&estate)
        .iter()
        .map(|finding| finding.split(": ").next().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(
        begin,
        [
            "reference blueprint=a/unbound lane=traces",
            "binding tier=a/edge",
            "floor tier=a/edge lane=traces",
            "binding tier=a/edge",
            "floor tier=a/edge lane=traces",
            "rollout tier=a/edge",
            "rollout tier=a/edge",
        ]
    );
}

#[test]
fn check_prints_the_findings_and_writes_nothing() {
    let estate = Estate::small();
    estate.write("teams/a/services/odd.yaml", &service("gold", "a/edge"));
    let catalogue = format!("../my-estate/{}", super::common::CATALOGUE);
    let arguments = ["check", "--estate", "../my-estate", "--catalogue", &catalogue];
    let ran = super::common::run(&estate.bin(), &arguments);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    assert!(ran.stdout.starts_with("finding floor tier=a/edge: "), "{}", ran.stdout);
    assert!(ran.stdout.ends_with("\nok: 1 finding\n"), "{}", ran.stdout);
    assert!(!estate.root().join("rendered").exists());

    estate.write("teams/a/services/even.yaml", &service("silver", "a/edge"));
    let ran = super::common::run(&estate.bin(), &arguments);
    assert!(ran.stdout.ends_with("\nok: 2 findings of one kind\n"), "{}", ran.stdout);

    let json = [&arguments[..], &["-o", "json"]].concat();
    let ran = super::common::run(&estate.bin(), &json);
    let json: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
    assert_eq!(json["findings"][0]["kind"], "floor");
    assert_eq!(json["findings"][0]["tier"], "a/edge");

    estate.replace("teams/a/tiers/edge.yaml", "a/plain@1", "a/gone@1");
    assert_eq!(super::common::run(&estate.bin(), &arguments).code, 1);
    estate.write("teams/a/tiers/edge.yaml", "owner: ann\n");
    assert_eq!(super::common::run(&estate.bin(), &arguments).code, 2);
}
