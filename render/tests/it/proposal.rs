//! What verdicts turn the demo estate into.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use render::rollout::proposal::{
    Change, Key, Kind, ProposalError, Request, bundle_path, markdown, propose,
};
use render::rollout::report::{HaltedMember, RolloutReport};
use render::rollout::verdict::{self, Counts, Tally, Terms, Times, Told, Verdict};
use render::snapshot::served;
use render::tree::Tree;

const ROLLOUT: &str = "teams/data-flow/rollouts/bridge-canary.yaml";
const TIER: &str = "teams/data-flow/tiers/kafka-bridge.yaml";
const BASE: &str = "rendered/data-flow/kafka-bridge.yaml";
const NEXT: &str = "rendered/data-flow/kafka-bridge@next.yaml";
const BUNDLE: &str = "rollouts-evidence/data-flow/bridge-canary.json";

fn demo() -> Tree {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/estates/demo");
    Tree::read_dir(&root, "").unwrap()
}

fn catalogue() -> Vec<u8> {
    let path = "../fixtures/estates/demo/catalogues/catalogue-v0.158.0.json";
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

fn put(tree: &mut Tree, path: &str, text: &str) {
    tree.files.insert(path.to_owned(), Arc::from(text.as_bytes()));
}

fn text(tree: &Tree, path: &str) -> String {
    String::from_utf8(tree.get(path).unwrap().to_vec()).unwrap()
}

/// The demo estate, its Rollout at this stage.
fn at_stage(stage: u32) -> Tree {
    let mut tree = demo();
    let rollout = text(&tree, ROLLOUT).replace("stage: 1\n", &format!("stage: {stage}\n"));
    put(&mut tree, ROLLOUT, &rollout);
    tree
}

fn report(stage: u32, kind: verdict::Kind) -> RolloutReport {
    RolloutReport {
        rollout: "data-flow/bridge-canary".to_owned(),
        tier: "data-flow/kafka-bridge".to_owned(),
        owner: "gateway-owners".to_owned(),
        from: "data-flow/bridge-standard@2".to_owned(),
        to: "data-flow/bridge-next@1".to_owned(),
        head: "c0ffee".to_owned(),
        origin: None,
        base: "0a".repeat(32),
        candidate: "0b".repeat(32),
        cohorts: Vec::new(),
        terms: Terms {
            stage,
            stages: 3,
            soak_ms: 7_200_000,
            abort_at_percent: 10,
            dark_after_ms: 90_000,
            min_seen: 0,
            hold: false,
            same_content: false,
            expect_replicas: 1,
            grace_ms: 60_000,
        },
        times: Times {
            now_ms: 20_000_000,
            evidence_since_ms: 0,
            stage_since_ms: 10_000_000,
            stage_since: Told::History,
            candidate_since_ms: None,
            soak_since_ms: 10_000_000,
        },
        tally: Tally {
            stages: vec![Counts { seen: 20, to: 18, from: 2, ..Counts::default() }],
            replicas: 1,
            ..Tally::default()
        },
        verdict: Verdict {
            kind,
            seen: 20,
            failed: 0,
            dark: 0,
            dark_beyond_control: 0,
            aborts_at: 2,
            soaked_ms: 10_000_000,
            due_ms: None,
            why: "the soak has passed and nobody is halted".to_owned(),
        },
        braked_since_ms: None,
        halted: Vec::new(),
        replicas: Vec::new(),
        proposal: None,
        notices: Vec::new(),
    }
}

fn key(kind: Kind, report: &RolloutReport) -> Key {
    Key {
        kind,
        rollout: report.rollout.clone(),
        stage: report.terms.stage,
        candidate: report.candidate.clone(),
        origin: report.origin.clone(),
        since_ms: Some(report.times.stage_since_ms),
    }
}

fn change(kind: Kind, tree: &Tree, report: &RolloutReport) -> Result<Change, ProposalError> {
    change_in(kind, tree, report, "")
}

fn change_in(
    kind: Kind,
    tree: &Tree,
    report: &RolloutReport,
    folder: &str,
) -> Result<Change, ProposalError> {
    let (catalogue, key) = (catalogue(), key(kind, report));
    propose(&Request {
        kind,
        report,
        tree,
        folder,
        catalogue: ("catalogue.json", &catalogue),
        key: &key,
        evidence: b"{}",
    })
}

fn paths(change: &Change) -> Vec<&str> {
    change.files.keys().map(String::as_str).collect()
}

fn applied(tree: &Tree, change: &Change) -> Tree {
    let mut tree = tree.clone();
    for (path, contents) in &change.files {
        match contents {
            Some(contents) => drop(tree.files.insert(path.clone(), Arc::from(&contents[..]))),
            None => drop(tree.files.remove(path)),
        }
    }
    tree
}

#[test]
fn an_advance_is_one_line_and_the_evidence() {
    let tree = demo();
    let change = change(Kind::Advance, &tree, &report(1, verdict::Kind::Advance)).unwrap();
    assert_eq!(change.branch, "tidegate/rollout/data-flow/bridge-canary/advance-3");
    assert_eq!(change.title, "Advance data-flow/bridge-canary to stage 3 of 3");
    assert_eq!(paths(&change), [BUNDLE, ROLLOUT]);
    let edited = change.files[ROLLOUT].as_deref().unwrap();
    let wanted = text(&tree, ROLLOUT).replace("stage: 1\n", "stage: 2\n");
    assert_eq!(std::str::from_utf8(edited).unwrap(), wanted);
    assert_eq!(change.files[BUNDLE].as_deref(), Some(&b"{}"[..]));
    assert_eq!(bundle_path("data-flow/bridge-canary"), BUNDLE);

    let mut advanced = report(2, verdict::Kind::Complete);
    advanced.verdict.kind = verdict::Kind::Complete;
    let after = applied(&tree, &change);
    let served = served::from_tree(&after, None).unwrap();
    assert_eq!(served.rollouts["data-flow/bridge-canary"].stage, 2);
    assert!(self::change(Kind::Complete, &after, &advanced).is_ok());
}

#[test]
fn a_complete_rebinds_the_tier_and_ends_the_rollout() {
    let tree = at_stage(2);
    let change = change(Kind::Complete, &tree, &report(2, verdict::Kind::Complete)).unwrap();
    assert_eq!(change.branch, "tidegate/rollout/data-flow/bridge-canary/advance-4");
    assert_eq!(paths(&change), [BASE, NEXT, BUNDLE, ROLLOUT, TIER]);
    assert_eq!((&change.files[NEXT], &change.files[ROLLOUT]), (&None, &None));
    let line = "blueprint: data-flow/bridge-standard@2";
    let rebound = text(&tree, TIER).replace(line, "blueprint: data-flow/bridge-next@1");
    assert_eq!(change.files[TIER].as_deref(), Some(rebound.as_bytes()));
    // What the Cohort ran is what the Tier runs.
    assert_eq!(change.files[BASE].as_deref(), Some(&**tree.get(NEXT).unwrap()));
    let served = served::from_tree(&applied(&tree, &change), None).unwrap();
    assert!(served.rollouts.is_empty());
}

#[test]
fn an_abort_deletes_the_rollout_and_its_candidate() {
    for stage in 0..3 {
        let tree = at_stage(stage);
        let report = report(stage, verdict::Kind::Abort);
        let change = change(Kind::Abort, &tree, &report).unwrap();
        let branch = format!("tidegate/rollout/data-flow/bridge-canary/abort-{}", stage + 1);
        assert_eq!(change.branch, branch);
        assert_eq!(paths(&change), [NEXT, BUNDLE, ROLLOUT]);
        assert_eq!((&change.files[NEXT], &change.files[ROLLOUT]), (&None, &None));
    }
}

#[test]
fn nothing_is_delivered_but_the_proposal() {
    let mut tree = at_stage(2);
    // Somebody edited a Component and did not render: that is not ours to deliver.
    let other = "rendered/data-flow/gateway.yaml";
    let stale = text(&tree, other).replace("timeout", "tijdout") + "# by hand\n";
    put(&mut tree, other, &stale);
    put(&mut tree, "rendered/notes.yaml", "by: hand\n");
    for (kind, verdict) in
        [(Kind::Complete, verdict::Kind::Complete), (Kind::Abort, verdict::Kind::Abort)]
    {
        let change = change(kind, &tree, &report(2, verdict)).unwrap();
        let rendered: Vec<&str> =
            paths(&change).into_iter().filter(|path| path.starts_with("rendered/")).collect();
        assert!(!rendered.contains(&other) && !rendered.contains(&"rendered/notes.yaml"));
    }
}

#[test]
fn real_file_names_and_the_folder_are_kept() {
    let mut tree = at_stage(2);
    for path in [ROLLOUT, TIER] {
        let bytes = tree.files.remove(path).unwrap();
        tree.files.insert(path.replace(".yaml", ".yml"), bytes);
    }
    let report = report(2, verdict::Kind::Complete);
    let change = change_in(Kind::Complete, &tree, &report, "estates/demo").unwrap();
    let expected = [
        "estates/demo/rendered/data-flow/kafka-bridge.yaml",
        "estates/demo/rendered/data-flow/kafka-bridge@next.yaml",
        "estates/demo/rollouts-evidence/data-flow/bridge-canary.json",
        "estates/demo/teams/data-flow/rollouts/bridge-canary.yml",
        "estates/demo/teams/data-flow/tiers/kafka-bridge.yml",
    ];
    assert_eq!(paths(&change), expected);
    assert!(change.body.contains(expected[2]), "{}", change.body);
}

#[test]
fn what_was_not_judged_is_not_changed() {
    let moved = |result: Result<Change, ProposalError>| {
        let error = result.unwrap_err();
        assert!(matches!(error, ProposalError::Moved { .. }), "{error}");
        error.to_string()
    };
    let advance = report(1, verdict::Kind::Advance);
    assert!(moved(change(Kind::Advance, &at_stage(0), &advance)).contains("at stage 0 of 3"));
    let other = RolloutReport { to: "data-flow/other@1".to_owned(), ..advance.clone() };
    moved(change(Kind::Advance, &demo(), &other));
    let mut gone = demo();
    gone.files.remove(ROLLOUT);
    moved(change(Kind::Advance, &gone, &advance));
    moved(change(Kind::Complete, &demo(), &advance));
    moved(change(Kind::Advance, &at_stage(2), &report(2, verdict::Kind::Advance)));
}

#[test]
fn what_cannot_be_changed_names_the_line() {
    let mut tree = demo();
    let anchored = text(&tree, ROLLOUT)
        .replace("stage: 1\n", "stage: *one\n")
        .replace("hash_attributes:", "halt: {min_seen: &one 1}\nhash_attributes:");
    // An anchor must stand above its alias.
    let (alias, rest) = (String::from("stage: *one\n"), anchored.replace("stage: *one\n", ""));
    put(&mut tree, ROLLOUT, &format!("{rest}{alias}"));
    let error = change(Kind::Advance, &tree, &report(1, verdict::Kind::Advance)).unwrap_err();
    let line = format!("{rest}{alias}").lines().count();
    assert!(error.to_string().contains(&format!("line {line}: ")), "{error}");
    assert!(error.to_string().starts_with(ROLLOUT), "{error}");

    let mut tree = at_stage(2);
    let unmatched = "rendered/_estate/unmatched.yaml";
    let bare = text(&tree, unmatched).replace("telecraft.commit", "other");
    put(&mut tree, unmatched, &bare);
    let error = change(Kind::Abort, &tree, &report(2, verdict::Kind::Abort)).unwrap_err();
    assert!(matches!(error, ProposalError::NoCommit { .. }), "{error}");

    let mut tree = at_stage(2);
    tree.files.retain(|path, _| !path.contains("blueprints/bridge-next"));
    let error = change(Kind::Complete, &tree, &report(2, verdict::Kind::Complete)).unwrap_err();
    assert!(matches!(error, ProposalError::Refused(_)), "{error}");
}

#[test]
fn the_texts_are_these() {
    let mut report = report(1, verdict::Kind::Abort);
    report.verdict.why = "2 of 20 members are halted, 10 % or more".to_owned();
    report.halted.push(HaltedMember {
        condition: "failed".to_owned(),
        error: "| @all `rm` <b>\nfixes #1".to_owned(),
        version: "0.158.0".to_owned(),
        label: "bridge-a1".to_owned(),
        identity: "00".to_owned(),
        stage: 0,
        since_ms: 1,
    });
    let change = change(Kind::Abort, &demo(), &report).unwrap();
    assert!(!change.message().contains("fixes"), "a collector wrote into the message");
    assert_eq!(Key::from_message(&change.message()).as_ref(), Some(&change.key));
    insta::assert_snapshot!("message", change.message());
    insta::assert_snapshot!("markdown", markdown(Kind::Abort, &report, BUNDLE));
}

#[test]
fn branches_of_every_stage_differ() {
    let mut seen = BTreeMap::new();
    for stage in 0..5 {
        for kind in [Kind::Advance, Kind::Abort] {
            assert_eq!(seen.insert(kind.branch("t/r", stage), (kind, stage)), None);
        }
        assert_eq!(Kind::Complete.branch("t/r", stage), Kind::Advance.branch("t/r", stage));
    }
}
