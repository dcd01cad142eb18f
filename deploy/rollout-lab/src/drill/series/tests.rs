//! Runs as they are counted.

use super::*;
use crate::drill::criteria::tests::{at_change, good, settings};
use crate::drill::records::{Outcome, Recorded};
use crate::drill::{CollectorsFound, judge};

/// A run whose records are good but for what `spoil` did.
fn played(
    seed: u64,
    against: &[&str],
    spoil: impl FnOnce(&mut Recorded, &mut CollectorsFound),
) -> Played {
    let (mut all, mut found) = good();
    spoil(&mut all, &mut found[0]);
    let Summary { verdict, void, criteria, levels, .. } = judge(&all, &settings(None), &found);
    let against = against.iter().map(|text| (*text).to_owned()).collect();
    let (name, variant) = (format!("rollout-{seed:03}"), Variant::Rollout);
    Played { name, variant, seed, verdict, void, criteria, levels, against }
}

fn refuse(all: &mut Recorded, _: &mut CollectorsFound) {
    at_change(all).outcome = Outcome::Refused;
}

fn blind(all: &mut Recorded, _: &mut CollectorsFound) {
    all.control.clear();
    at_change(all).outcome = Outcome::Refused;
}

fn whole(runs: Vec<Played>) -> Series {
    Series {
        schema: String::new(),
        settings: settings(None),
        kernel: "Linux".to_owned(),
        cpus: 2,
        gateway_sha256: "ab".to_owned(),
        parts: Part::of(Variant::Rollout, &runs).into_iter().collect(),
        runs,
        cut: vec!["rollout-009.cut-1".to_owned()],
        not_claimed: vec!["much".to_owned()],
    }
}

#[test]
fn void_runs_are_counted_and_judge_nothing() {
    let runs = vec![
        played(1, &[], |_, _| {}),
        played(2, &[], refuse),
        played(3, &[], blind),
        played(4, &["probes.csv is not what the manifest says"], |_, _| {}),
    ];
    let part = Part::of(Variant::Rollout, &runs).unwrap();
    assert_eq!((part.runs, part.passed, part.failed, part.void, part.unverified), (4, 1, 1, 1, 1));
    let held = part.criteria.iter().find(|held| held.id == "P2").unwrap();
    assert_eq!((held.holds, held.of, &held.broken_in[..]), (1, 2, &["rollout-002".to_owned()][..]));
    assert_eq!((part.worst.probes, part.worst.failures), (8000, 1));
    assert!(part.statement.starts_with("1 of 4 runs passed, 1 failed, 1 were void"));
    assert!(part.statement.contains("1 of 8000 probes"));
    assert_eq!(Part::of(Variant::Rollback, &runs), None);
}

#[test]
fn the_worst_figure_is_the_worst_of_any_run() {
    let slow = |_: &mut Recorded, found: &mut CollectorsFound| found.away.max_ms = 900.0;
    let quick = |_: &mut Recorded, found: &mut CollectorsFound| found.away.max_ms = 3.0;
    let runs = [played(1, &[], quick), played(2, &[], slow)];
    let worst = Worst::of(&[&runs[0], &runs[1]]);
    assert_eq!((worst.away_max_ms, worst.links_lost, worst.modeled_min), (900.0, 96, 3));
}

#[test]
fn a_series_passes_when_none_failed_and_one_passed() {
    let outcome = |runs| whole(runs).outcome();
    assert_eq!(outcome(vec![played(1, &[], |_, _| {}), played(2, &[], blind)]), Verdict::Passed);
    assert_eq!(outcome(vec![played(1, &[], |_, _| {}), played(2, &[], refuse)]), Verdict::Failed);
    assert_eq!(outcome(vec![played(1, &[], blind)]), Verdict::Void);
    assert_eq!(outcome(vec![played(1, &["changed"], |_, _| {})]), Verdict::Failed);
}

#[test]
fn nothing_is_hidden_from_the_text() {
    let text = whole(vec![played(1, &[], refuse), played(2, &[], blind)]).markdown();
    for part in [
        "| rollout-001 | failed | P2 |",
        "| rollout-002 | void | steady-1 has no control probe",
        "| P2 | none during the change, successes close together | 0 of 1 | rollout-001 |",
        "1 did not come to an end, and are not counted: rollout-009.cut-1.",
        "- rollout-001, P2: no route failure during the change",
        "- much",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
}
