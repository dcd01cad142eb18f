//! A bundle is the same, different, or unreadable.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::rollout::report::{CohortLine, HaltedMember, ProposalState, ReplicaLine};
use crate::rollout::verdict::{Control, Counts, Tally, Terms, Times, Told};

const HOUR: u64 = 3_600_000;
const START: u64 = 1_790_000_000_000;

/// One failed and one dark of 40, the second stage of three, half-way through its soak.
fn report() -> RolloutReport {
    let terms = Terms {
        stage: 1,
        stages: 3,
        soak_ms: 24 * HOUR,
        abort_at_percent: 10,
        dark_after_ms: 90_000,
        min_seen: 10,
        hold: false,
        same_content: false,
        expect_replicas: 2,
        grace_ms: 60_000,
    };
    let times = Times {
        now_ms: START + 12 * HOUR,
        evidence_since_ms: START - HOUR,
        stage_since_ms: START,
        stage_since: Told::History,
        candidate_since_ms: Some(START - 100 * HOUR),
        soak_since_ms: START,
    };
    let first = Counts { seen: 10, to: 8, from: 1, taking: 1, failed: 1, ..Counts::default() };
    let second = Counts {
        seen: 30,
        to: 25,
        from: 3,
        other: 1,
        unknown: 1,
        dark: 1,
        left: 1,
        ..Counts::default()
    };
    let tally = Tally {
        stages: vec![first, second],
        taken: 34,
        long_dark: 1,
        control: Control { seen: 60, dark: 1, unobserved: 0 },
        foreign: Counts { seen: 3, to: 1, from: 2, ..Counts::default() },
        served_in_tier: 100,
        no_bucket: 2,
        duplicates: 1,
        awaited: 0,
        overflow: 0,
        replicas: 2,
        braked: false,
    };
    let halted = |condition: &str, identity: u128, stage| HaltedMember {
        condition: condition.to_owned(),
        error: "bind: \"address\" already in use, é".to_owned(),
        version: "0.158.0".to_owned(),
        label: "bridge-a1".to_owned(),
        identity: format!("{identity:032x}"),
        stage,
        since_ms: START + HOUR,
    };
    let replica = |name: &str, same_head, age_ms| ReplicaLine {
        name: name.to_owned(),
        incarnation: "00c0ffee".to_owned(),
        reporting: true,
        same_head,
        age_ms,
    };
    let cohort = |cohort: &str| CohortLine { cohort: cohort.to_owned(), soak_ms: 24 * HOUR };
    let verdict = judge(&terms, &tally, &times);
    RolloutReport {
        rollout: "data-flow/bridge-canary".to_owned(),
        tier: "data-flow/kafka-bridge".to_owned(),
        owner: "gateway-owners".to_owned(),
        from: "data-flow/bridge-standard@2".to_owned(),
        to: "data-flow/bridge-next@1".to_owned(),
        head: "0".repeat(40),
        origin: None,
        base: "0a".repeat(32),
        candidate: "0b".repeat(32),
        cohorts: vec![cohort("hosts host.name (2)"), cohort("25%"), cohort("100%")],
        terms,
        times,
        tally,
        verdict,
        braked_since_ms: None,
        halted: vec![halted("failed", 1, 0), halted("went_dark", 2, 1)],
        replicas: vec![replica("a", true, 100), replica("b", true, 900), replica("c", false, 5)],
        notices: vec!["without a store, halts end with the process".to_owned()],
        proposal: Some(ProposalState {
            kind: "abort".to_owned(),
            branch: "b".to_owned(),
            state: "pushed".to_owned(),
            commit: None,
            url: None,
            error: None,
            attempts: 1,
        }),
    }
}

fn bytes_of(report: &RolloutReport) -> Vec<u8> {
    Bundle::of(report).unwrap().to_canonical_json().unwrap()
}

/// The same figures under a right digest, as a forger would write them.
fn signed(report: &Value) -> Vec<u8> {
    bytes_of(&serde_json::from_value(report.clone()).unwrap())
}

fn is_same(bytes: &[u8]) -> bool {
    let verified = verify(bytes).unwrap();
    assert_eq!(verified.same, verified.differences.is_empty());
    verified.same
}

/// Where the numbers are.
fn numbers(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Number(_) => found.push(at.to_owned()),
        Value::Array(values) => {
            for (index, value) in values.iter().enumerate() {
                numbers(value, &format!("{at}/{index}"), found);
            }
        }
        Value::Object(members) => {
            for (name, value) in members {
                numbers(value, &format!("{at}/{name}"), found);
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

fn all_numbers(value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    numbers(value, "", &mut found);
    found
}

#[test]
fn a_bundle_is_the_same_as_long_as_nobody_touches_it() {
    let bytes = bytes_of(&report());
    let verified = verify(&bytes).unwrap();
    assert_eq!(verified.differences, [""; 0]);
    assert!(verified.same);
    assert_eq!(verified.verdict, report().verdict);
    assert_eq!(verified.report, RolloutReport { proposal: None, ..report() });

    let text = String::from_utf8(bytes.clone()).unwrap();
    assert!(text.starts_with("{\"digest\":\"") && text.ends_with("}\n"), "sorted, on one line");
    let pretty =
        serde_json::to_vec_pretty(&serde_json::from_slice::<Value>(&bytes).unwrap()).unwrap();
    assert!(is_same(&pretty), "how it is laid out is no figure");
}

/// Whoever adds a field finds them stale: a bundle that nobody can read is no input.
#[test]
fn the_fuzz_corpus_holds_bundles_of_today() {
    let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/verify");
    let mut huge = serde_json::to_value(report()).unwrap();
    for at in all_numbers(&huge) {
        // Some are narrower.
        let before = huge.pointer(&at).unwrap().clone();
        for number in [NUMBER_MAX, u64::from(u32::MAX), u64::from(u16::MAX), u64::from(u8::MAX)] {
            *huge.pointer_mut(&at).unwrap() = number.into();
            if serde_json::from_value::<RolloutReport>(huge.clone()).is_ok() {
                break;
            }
            *huge.pointer_mut(&at).unwrap() = before.clone();
        }
    }
    let mut stale = Vec::new();
    for (name, fresh) in [("same", bytes_of(&report())), ("huge-figures", signed(&huge))] {
        let file = corpus.join(name);
        if std::env::var_os("UPDATE_GEN").is_some() {
            std::fs::write(&file, &fresh).unwrap();
        }
        if std::fs::read(&file).unwrap_or_default() != fresh {
            stale.push(name);
        }
    }
    assert_eq!(stale, [""; 0], "run this test with UPDATE_GEN=1");
}

#[test]
fn the_digest_is_that_of_the_rest() {
    let mut rest: Value = serde_json::from_slice(&bytes_of(&report())).unwrap();
    let digest = rest.as_object_mut().unwrap().remove("digest").unwrap();
    // Keys are ASCII and numbers whole, so serde_json's own order and form are the canonical ones.
    let expected = Sha256::digest(serde_json::to_vec(&rest).unwrap());
    let hex: String = expected.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(digest, hex);
}

#[test]
fn one_changed_figure_anywhere_is_a_difference() {
    let bundle: Value = serde_json::from_slice(&bytes_of(&report())).unwrap();
    let all = all_numbers(&bundle);
    assert!(all.len() > 60, "{}", all.len());
    for at in all {
        for change in [1_i64, -1] {
            let mut changed = bundle.clone();
            let number = changed.pointer_mut(&at).unwrap();
            let Some(other) = number.as_u64().unwrap().checked_add_signed(change) else { continue };
            *number = json!(other);
            let bytes = serde_json::to_vec(&changed).unwrap();
            match verify(&bytes) {
                Ok(verified) => assert!(!verified.same, "{at}"),
                Err(error) => {
                    assert_eq!((at.as_str(), error), ("/format", BundleError::Format(other as u32)))
                }
            }
        }
    }
    let mut changed = bundle.clone();
    changed["report"]["halted"][0]["label"] = json!("bridge-a2");
    assert!(!is_same(&serde_json::to_vec(&changed).unwrap()));
    changed = bundle;
    changed["report"]["verdict"]["kind"] = json!("hold");
    assert!(!is_same(&serde_json::to_vec(&changed).unwrap()));
}

/// With a right digest only sums and verdict can tell.
#[test]
fn invented_counts_do_not_pass_with_a_right_digest() {
    let report = serde_json::to_value(RolloutReport { proposal: None, ..report() }).unwrap();
    // Stated nowhere else, and one more of them comes to the same verdict.
    let free = [
        "/tally/no_bucket",
        "/tally/duplicates",
        "/tally/overflow",
        "/tally/taken",
        "/tally/control/unobserved",
        "/tally/foreign/left",
        "/tally/foreign/unobserved",
        "/tally/stages/0/left",
        "/tally/stages/0/unobserved",
        "/tally/stages/1/left",
        "/tally/stages/1/unobserved",
    ];
    for at in all_numbers(&report) {
        if !at.starts_with("/tally") && !at.starts_with("/verdict") {
            continue;
        }
        let mut changed = report.clone();
        let number = changed.pointer_mut(&at).unwrap();
        *number = json!(number.as_u64().unwrap() + 1);
        assert_eq!(is_same(&signed(&changed)), free.contains(&at.as_str()), "{at}");
    }
}

#[test]
fn each_thing_that_does_not_add_up_is_named() {
    let check = |change: &dyn Fn(&mut RolloutReport), named: &str| {
        let mut report = report();
        change(&mut report);
        report.verdict = judge(&report.terms, &report.tally, &report.times);
        let differences = verify(&bytes_of(&report)).unwrap().differences;
        assert!(differences.iter().any(|said| said.contains(named)), "{named:?}: {differences:?}");
    };
    check(&|report| report.terms.stages = 4, "3 Cohorts for 4 stages");
    check(&|report| report.terms.stage = 3, "stage 3 is none of 3");
    check(&|report| report.terms.soak_ms = 1, "the active Cohort soaks 86400000 ms");
    check(&|report| report.terms.abort_at_percent = 0, "abort_at_percent 0");
    check(&|report| report.terms.abort_at_percent = 101, "abort_at_percent 101");
    check(&|report| report.terms.expect_replicas = 0, "no replica is expected");
    check(&|report| report.terms.same_content = true, "same_content is true");
    check(&|report| report.candidate = report.base.clone(), "same_content is false");
    check(&|report| report.candidate.make_ascii_uppercase(), "is no content hash");
    check(&|report| report.times.soak_since_ms -= 1, "before what restarted it");
    check(&|report| report.times.soak_since_ms = u64::MAX >> 11, "soak_since_ms is after now_ms");
    check(&|report| report.tally.braked = true, "braked is true");
    check(&|report| report.braked_since_ms = Some(1), "braked is false");
    check(&|report| report.tally.stages[1].to += 1, "the arms add up to 31, seen is 30");
    check(&|report| report.tally.foreign.dark = 1, "Foreign members are judged");
    check(&|report| report.tally.taken = 33, "taken is 33");
    check(&|report| report.tally.taken = 36, "taken is 36");
    check(&|report| report.tally.long_dark = 2, "long_dark is 2");
    check(&|report| report.tally.control.dark = 61, "more of the control group");
    check(&|report| report.tally.served_in_tier = 99, "served_in_tier is 99");
    check(&|report| report.tally.stages[0].failed = 11, "11 failed and 0 dark of 10 seen");
    check(&|report| report.tally.stages[0].left = 11, "11 left of 10 seen");
    check(&|report| drop(report.halted.pop()), "1 failed and 0 dark members are listed");
    check(&|report| report.halted.reverse(), "is listed after dark members");
    check(&|report| report.halted[0].condition = "odd".to_owned(), "is no halt condition");
    check(&|report| report.halted[0].stage = 1, "stage 0: 1 failed and 0 dark, 0 and 0 are listed");
    check(&|report| report.halted[0].stage = 2, "is of a later stage");
    check(&|report| report.halted[0].identity = "x".to_owned(), "is no identity");
    check(
        &|report| report.halted[0].identity = report.halted[1].identity.clone(),
        "is listed twice",
    );
    check(&|report| report.replicas[1].reporting = false, "replicas is 2, 1 are listed");
    check(&|report| report.replicas[1].name = "a".to_owned(), "replicas is 2, 1 are listed");
    check(&|report| report.tally.control.seen = u64::MAX >> 11, "more than 1073741824 collectors");
}

#[test]
fn members_past_the_list_are_counted_but_not_named() {
    let mut report = report();
    let many = crate::rollout::report::HALTED_MAX as u64 + 5;
    report.tally.stages[0] = Counts { seen: many, to: many, failed: many, ..Counts::default() };
    report.tally.taken = many + 25;
    report.tally.served_in_tier = many + 30 + 60;
    report.verdict = judge(&report.terms, &report.tally, &report.times);
    let line = report.halted[0].clone();
    report.halted = (0..HALTED)
        .map(|n| HaltedMember { identity: format!("{n:032x}"), ..line.clone() })
        .collect();
    assert_eq!(verify(&bytes_of(&report)).unwrap().differences, [""; 0]);
    report.halted.pop();
    assert!(!is_same(&bytes_of(&report)));
}

const HALTED: usize = crate::rollout::report::HALTED_MAX;

#[test]
fn what_is_no_bundle_is_unreadable() {
    let good = String::from_utf8(bytes_of(&report())).unwrap();
    let shape = |bytes: &str| {
        let error = verify(bytes.as_bytes()).unwrap_err();
        assert!(matches!(error, BundleError::Shape(_)), "{error:?}");
    };
    shape("");
    shape("{}");
    shape("[]");
    shape(&good[..good.len() / 2]);
    shape(&format!("{good}{good}"));
    shape(&good.replacen("{\"digest\"", "{\"more\":1,\"digest\"", 1));
    shape(&good.replacen("\"format\":1", "\"format\":1,\"format\":1", 1));
    shape(&good.replacen("\"seen\":10", "\"seen\":10,\"seen\":10", 1));
    shape(&good.replacen("\"seen\":10", "\"seen\":10.0", 1));
    shape(&good.replacen("\"seen\":10", "\"seen\":-10", 1));
    shape(&good.replacen("\"seen\":10", "\"seen\":\"10\"", 1));
    shape(&good.replacen("\"origin\":null,", "", 1));
    shape(&good.replacen("\"kind\":\"blocked\"", "\"kind\":\"odd\"", 1));
    shape(&"[".repeat(100_000));
    let value: Value = serde_json::from_str(&good).unwrap();
    let parts = [value["digest"].clone(), value["format"].clone(), value["report"].clone()];
    shape(&Value::from(parts.to_vec()).to_string());
    assert_eq!(
        verify(good.replacen("\"format\":1", "\"format\":2", 1).as_bytes()),
        Err(BundleError::Format(2))
    );
    assert_eq!(
        verify(good.replacen("\"seen\":10", "\"seen\":9007199254740992", 1).as_bytes()),
        Err(BundleError::Number(NUMBER_MAX + 1))
    );
    assert_eq!(verify(&vec![b' '; BUNDLE_BYTES_MAX + 1]), Err(BundleError::TooLong));
    let mut huge = report();
    huge.times.now_ms = u64::MAX;
    assert_eq!(Bundle::of(&huge), Err(BundleError::Number(u64::MAX)));
}

proptest! {
    #[test]
    fn one_changed_byte_is_never_the_same_but_for_white_space(at: prop::sample::Index, byte: u8) {
        let good = bytes_of(&report());
        let mut bytes = good.clone();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let is_same_text = serde_json::from_slice::<Value>(&bytes)
            .is_ok_and(|value| value == serde_json::from_slice::<Value>(&good).unwrap());
        let same = verify(&bytes).is_ok_and(|verified| verified.same);
        prop_assert_eq!(same, is_same_text, "byte {} of {}", at, String::from_utf8_lossy(&bytes));
    }
}
