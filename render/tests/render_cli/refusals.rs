//! What is refused, with which words, and that nothing is written then.

use std::path::{Path, PathBuf};

use super::common::{COMMIT, Estate, files, run, tier};

fn broken() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/estates/broken")
}

/// Every `fixtures/estates/broken/render-*` loads, is refused by the renderer with exit 1, and
/// says so in golden words.
#[test]
fn each_broken_estate_is_refused_in_golden_words() {
    let mut estates: Vec<String> = std::fs::read_dir(broken())
        .expect("the fixtures")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with("render-"))
        .collect();
    estates.sort();
    assert!(estates.len() >= 13, "{estates:?}");
    for name in estates {
        let before = files(&broken().join(&name));
        let catalogue = format!("{name}/catalogue.json");
        let arguments = ["--estate", &name, "--catalogue", &catalogue, "--commit", COMMIT];
        let ran = run(&broken(), &arguments);
        assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{name}: {ran:?}");
        assert_eq!(files(&broken().join(&name)), before, "{name}: nothing is written");
        insta::assert_snapshot!(name, ran.stderr);
    }
}

/// R29 and the two other ways to one path: names that could collide do not load.
#[test]
fn names_that_could_meet_in_one_path_are_refused() {
    for name in ["edge@next", "edge.supervisor"] {
        let estate = Estate::small();
        estate.write(&format!("teams/a/tiers/{name}.yaml"), &tier("staging", "a/plain@1", ""));
        assert!(estate.refused(2).contains(name), "{name}");
    }
    let estate = Estate::small();
    estate.write("teams/_estate/tiers/unmatched.yaml", &tier("staging", "a/plain@1", ""));
    assert!(estate.refused(2).contains("_estate"));
}

/// R25, first half.
#[test]
fn a_config_with_a_complex_key_does_not_load() {
    let estate = Estate::small();
    estate.write(
        "teams/a/components/odd.yaml",
        "name: odd\nclass: processor\ntype: batch\nversion: 1\nowner: ann\nconfig:\n  ? [a, b]\n  : c\n",
    );
    assert!(estate.refused(2).contains("../my-estate/teams/a/components/odd.yaml"));
}

/// R33: hex of 7 to 64 digits only.
#[test]
fn a_commit_that_is_none_is_refused() {
    let estate = Estate::small();
    for commit in ["true", "null", "1e1", "0x12", "DEADBEEF", "123456", ""] {
        let ran = estate.render(&["--commit", commit]);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{commit}");
        assert!(ran.stderr.starts_with(&format!("render: --commit: {commit:?} is not a commit")));
    }
    assert!(!estate.root().join("rendered").exists());
}

#[test]
fn wrong_usage_exits_2_and_says_how_it_is_used() {
    let estate = Estate::small();
    for arguments in [
        &["--estate", "../my-estate", "--commit", COMMIT][..],
        &["--estate", "../my-estate", "--catalogue", "x"],
        &["-nonsense"],
        &["--estate"],
        &["palette", "--estate", "../my-estate"],
        &[],
    ] {
        let ran = run(&estate.bin(), arguments);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{arguments:?}");
        assert!(ran.stderr.starts_with("render: "), "{}", ran.stderr);
        assert!(ran.stderr.contains("try '--help'"), "{}", ran.stderr);
    }
}

#[test]
fn help_is_printed_on_stdout_and_exits_2() {
    let estate = Estate::small();
    for arguments in [&["-h"][..], &["-help"], &["palette", "--help"], &["check", "-h"]] {
        let ran = run(&estate.bin(), arguments);
        assert_eq!((ran.code, ran.stderr.as_str()), (2, ""), "{arguments:?}");
        assert!(ran.stdout.contains("Usage: render"), "{}", ran.stdout);
    }
}

/// Load errors come in the order teams, catalogue, policy, Blueprints, topology, telemetry.
#[test]
fn the_first_loader_that_fails_is_the_one_that_is_heard() {
    let estate = Estate::small();
    let breakages = [
        ("telemetry.yaml", "self_telemetry: {}\n", "telemetry.yaml"),
        ("teams/a/tiers/edge.yaml", "owner: ann\n", "tiers/edge.yaml"),
        ("teams/a/blueprints/plain.yaml", "owner: ann\n", "blueprints/plain.yaml"),
        ("allow-lists.yaml", "allow_lists: []\n", "allow-lists.yaml"),
        (super::common::CATALOGUE, "{}", "catalogue-v0.158.0.json"),
        ("teams.yaml", "teams: []\n", "teams.yaml"),
    ];
    for (path, text, heard) in breakages {
        estate.write(path, text);
        let stderr = estate.refused(2);
        assert!(stderr.contains(heard), "after {path}: {stderr}");
    }
}

#[test]
fn a_refusal_as_json_names_file_line_column_and_key() {
    let estate = Estate::small();
    estate.replace("teams/a/tiers/edge.yaml", "a/plain@1", "a/gone@1");
    let ran = estate.render(&["-o", "json"]);
    assert_eq!(ran.code, 1);
    let json: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let problem = &json["problems"][0];
    assert_eq!(problem["file"], "../my-estate/teams/a/tiers/edge.yaml");
    assert_eq!(problem["line"], 3);
    assert_eq!(problem["column"], 12);
    assert_eq!(problem["key"], "blueprint");
    assert!(ran.stderr.contains(problem["text"].as_str().expect("a text")));
}

/// To a reader of YAML 1.1 U+2028 ends the comment, so that the rest would be configuration.
#[test]
fn an_environment_cannot_break_out_of_the_header() {
    let estate = Estate::small();
    let environment = r#""staging\u2028receivers: {}""#;
    estate.write("teams/a/tiers/edge.yaml", &tier(environment, "a/plain@1", ""));
    assert!(estate.refused(1).contains("cannot stand in a comment"));
}

#[test]
fn an_error_outside_of_the_sources_is_json_too() {
    let estate = Estate::small();
    for (arguments, code) in [
        (["--commit", "main"], 2),
        (["--out", "../my-estate/teams.yaml"], 1),
        (["--check", "--out=nowhere"], 1),
    ] {
        let ran = estate.render(&[arguments[0], arguments[1], "-o", "json"]);
        assert_eq!(ran.code, code, "{ran:?}");
        let json: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
        let error = json["error"].as_str().expect("a text");
        assert_eq!(ran.stderr, format!("render: {error}\n"));
        assert_eq!(json["problems"], serde_json::json!([]));
    }
}

#[test]
fn a_load_error_as_json_does_too() {
    let estate = Estate::small();
    estate.write("teams/a/tiers/edge.yaml", "owner: ann\nenvironment: staging\nblueprint: nope\n");
    let ran = estate.render(&["-o", "json"]);
    assert_eq!(ran.code, 2);
    let json: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
    assert_eq!(json["error"], "invalid topology sources");
    assert_eq!(json["problems"][0]["line"], 3);
    assert_eq!(json["problems"][0]["key"], "blueprint");
}
