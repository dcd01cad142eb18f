//! The guide "Stage a Rollout", walked from top to bottom. What it prints is the contract.

use std::fs;
use std::path::Path;

use super::common::{COMMIT, Estate, Ran, ls, run};

const ROLLOUT: &str = "teams/data-flow/rollouts/bridge-canary.yaml";
const TIER: &str = "teams/data-flow/tiers/kafka-bridge.yaml";

/// The command of the guide, flags with one dash and all.
fn render(estate: &Estate, out: &Path) -> Ran {
    run(
        &estate.bin(),
        &[
            "-estate",
            "../my-estate",
            "-catalogue",
            "../my-estate/catalogues/catalogue-v0.158.0.json",
            "-commit",
            COMMIT,
            "-out",
            out.to_str().expect("UTF-8"),
        ],
    )
}

/// Renders into a fresh directory, as the guide's reader does each time.
#[track_caller]
fn rendered(estate: &Estate) -> std::path::PathBuf {
    let out = estate.out();
    if out.exists() {
        fs::remove_dir_all(&out).expect("removable");
    }
    let ran = render(estate, &out);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(ran.stderr, "");
    out
}

#[track_caller]
fn refused(estate: &Estate, header: &str, bullet: &str) {
    let out = estate.out();
    if out.exists() {
        fs::remove_dir_all(&out).expect("removable");
    }
    let ran = render(estate, &out);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert_eq!(ran.stdout, "");
    let lines: Vec<&str> = ran.stderr.lines().collect();
    assert_eq!(lines[0], header);
    assert_eq!(lines[1], bullet);
    assert!(lines[2].starts_with("      at ../my-estate/teams/data-flow/"), "{}", lines[2]);
    assert_eq!(lines.len(), 3, "{}", ran.stderr);
    assert!(!out.exists(), "a validation failure writes nothing");
}

/// The lines of `ls` that the guide shows of the Tier.
fn of_the_bridge(out: &Path) -> Vec<String> {
    let mut names = ls(&out.join("rendered/data-flow"));
    names.retain(|name| name.starts_with("kafka-bridge"));
    names
}

fn second_line(out: &Path, file: &str) -> String {
    let text = fs::read_to_string(out.join("rendered/data-flow").join(file)).expect(file);
    text.lines().nth(1).expect("two header lines").to_owned()
}

const BASE_HEADER: &str = "# Tier data-flow/kafka-bridge (production), Blueprint data-flow/bridge-standard@2, commit 0000000000000000000000000000000000000000.";
const NEXT_HEADER: &str = "# Tier data-flow/kafka-bridge (production), Blueprint data-flow/bridge-next@1, commit 0000000000000000000000000000000000000000.";

#[test]
fn the_tier_is_dual_bound_while_the_rollout_runs() {
    let estate = Estate::demo();
    let out = rendered(&estate);
    assert_eq!(
        of_the_bridge(&out),
        ["kafka-bridge.supervisor.yaml", "kafka-bridge.yaml", "kafka-bridge@next.yaml"]
    );
    assert_eq!(second_line(&out, "kafka-bridge.yaml"), BASE_HEADER);
    assert_eq!(second_line(&out, "kafka-bridge@next.yaml"), NEXT_HEADER);
}

#[test]
fn every_file_is_announced_in_byte_order_of_its_path() {
    let estate = Estate::demo();
    let ran = render(&estate, &estate.out());
    let wrote: Vec<&str> =
        ran.stdout.lines().filter_map(|line| line.strip_prefix("wrote ")).collect();
    let out = estate.out();
    let mut expect: Vec<String> = super::common::files(&out).into_keys().collect();
    expect.sort();
    let expect: Vec<String> =
        expect.iter().map(|path| out.join(path).display().to_string()).collect();
    assert_eq!(wrote, expect);
    // Whatever is not an announcement is a finding, and findings come last.
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert!(lines[..wrote.len()].iter().all(|line| line.starts_with("wrote ")), "{}", ran.stdout);
    assert!(lines[wrote.len()..].iter().all(|l| l.starts_with("finding ")), "{}", ran.stdout);
}

#[test]
fn a_direct_rebind_fails_render_validation() {
    let estate = Estate::demo();
    estate.replace(TIER, "data-flow/bridge-standard@2", "data-flow/bridge-next@1");
    refused(
        &estate,
        "render: invalid topology sources:",
        "  - rollout \"data-flow/bridge-canary\" binds from data-flow/bridge-standard@2 but tier \"data-flow/kafka-bridge\" binds data-flow/bridge-next@1. While a Rollout is active, the Rollout file is the only way to rebind the Tier.",
    );
}

#[test]
fn an_advance_keeps_both_artefacts_as_they_are() {
    let estate = Estate::demo();
    let before = super::common::files(&rendered(&estate));
    estate.replace(ROLLOUT, "stage: 1", "stage: 2");
    let after = super::common::files(&rendered(&estate));
    assert_eq!(before, after);
}

#[test]
fn the_stage_cannot_run_past_the_end() {
    let estate = Estate::demo();
    estate.replace(ROLLOUT, "stage: 1", "stage: 5");
    refused(
        &estate,
        "render: invalid topology sources:",
        "  - ../my-estate/teams/data-flow/rollouts/bridge-canary.yaml: rollout \"data-flow/bridge-canary\" declares stage 5 of 3. The stage is a zero-based index into the stages list. To complete the rollout, delete the file instead of counting past the end.",
    );
}

#[test]
fn completing_flips_the_tier_and_retires_the_candidate() {
    let estate = Estate::demo();
    estate.replace(TIER, "data-flow/bridge-standard@2", "data-flow/bridge-next@1");
    estate.remove(ROLLOUT);
    let out = rendered(&estate);
    assert_eq!(of_the_bridge(&out), ["kafka-bridge.supervisor.yaml", "kafka-bridge.yaml"]);
    assert_eq!(second_line(&out, "kafka-bridge.yaml"), NEXT_HEADER);
}

#[test]
fn aborting_leaves_the_tier_bound_to_from() {
    let estate = Estate::demo();
    estate.remove(ROLLOUT);
    let out = rendered(&estate);
    assert_eq!(
        ls(&out.join("rendered/data-flow")),
        [
            "gateway-staging.supervisor.yaml",
            "gateway-staging.yaml",
            "gateway.supervisor.yaml",
            "gateway.yaml",
            "kafka-bridge.supervisor.yaml",
            "kafka-bridge.yaml",
        ]
    );
    assert_eq!(second_line(&out, "kafka-bridge.yaml"), BASE_HEADER);
}

/// Decision 6: rendered in place, an abort or a completion retires `@next` in the same run.
#[test]
fn an_abort_rendered_in_place_removes_the_candidate() {
    let estate = Estate::demo();
    estate.rendered();
    let next = estate.root().join("rendered/data-flow/kafka-bridge@next.yaml");
    assert!(next.exists());
    estate.remove(ROLLOUT);
    let ran = estate.rendered();
    assert!(!next.exists());
    assert!(
        ran.stdout.contains("removed ../my-estate/rendered/data-flow/kafka-bridge@next.yaml\n"),
        "{}",
        ran.stdout
    );
    assert_eq!(estate.render(&["--check"]).code, 0);
}
