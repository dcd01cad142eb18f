//! What is known of collectors, and when it changes the report.

use render::rollout::evidence::{Conn, ReportKey, Seat};
use render::rollout::report::{ProposalState, RolloutReport};
use render::rollout::verdict::Kind;

use super::*;

#[test]
fn members_are_counted_by_stage_and_arm() {
    let scene = Scene::new(&Head::new());
    members(&scene, 1, 3);
    scene.connect(1, 10, Seat::Control);
    let report = scene.report(2);
    let row = &report.tally.stages[0];
    assert_eq!((row.seen, row.to, report.tally.taken), (3, 3, 3));
    assert_eq!((report.tally.control.seen, report.tally.served_in_tier), (1, 4));
    assert_eq!(report.verdict.kind, Kind::Hold);
    assert_eq!(report.cohorts[0].cohort, "25%");
}

#[test]
fn a_failure_blocks_and_names_the_collector_until_it_applies() {
    let scene = Scene::new(&Head::new());
    let all = members(&scene, 1, 20);
    assert_eq!(scene.fails(2, all[4]), None, "without a store nobody waits");
    assert_eq!(scene.cell().failed(identity(4)), Some(0));
    let report = scene.report(3);
    assert_eq!((report.verdict.kind, report.verdict.failed), (Kind::Blocked, 1));
    let halted = &report.halted[0];
    assert_eq!((&*halted.label, &*halted.error), ("host-4", "cannot bind"));
    assert_eq!((&*halted.condition, halted.since_ms), ("failed", START + 1_000));

    let applied = all[4].session.stamp(scene.aggregator.next_n());
    scene.say(4, all[4], |change| change.applied = Some(applied));
    assert_eq!(scene.cell().failed(identity(4)), None);
    assert!(scene.report(5).halted.is_empty());
}

#[test]
fn a_member_that_took_the_candidate_and_fell_silent_turns_dark_by_time_alone() {
    let scene = Scene::new(&Head::new());
    let all = members(&scene, 1, 20);
    scene.closes(50, all[3], Conn::Lost);
    assert_eq!(scene.report(79).tally.stages[0].dark, 0);
    let report = scene.report(80);
    assert_eq!(report.tally.stages[0].dark, 1);
    assert_eq!(&*report.halted[0].label, "host-3");
    assert_eq!(report.halted[0].since_ms, START + 50_000);

    scene.connect(90, 3, Seat::Stage(0));
    assert_eq!(scene.report(91).tally.stages[0].dark, 0, "it was heard");
}

#[test]
fn who_left_is_never_dark() {
    let scene = Scene::new(&Head::new());
    let all = members(&scene, 1, 2);
    scene.closes(50, all[0], Conn::Left);
    assert_eq!(scene.report(51).tally.stages[0].left, 1);
    let report = scene.report(120);
    assert_eq!((report.tally.stages[0].seen, report.tally.stages[0].dark), (1, 0));
}

#[test]
fn an_old_close_is_harmless() {
    let scene = Scene::new(&Head::new());
    let old = members(&scene, 1, 1)[0];
    scene.connect(5, 0, Seat::Stage(0));
    scene.closes(6, old, Conn::Lost);
    assert_eq!(scene.report(200).tally.stages[0].dark, 0);
}

#[test]
fn two_live_uids_of_one_identity_are_counted_and_keep_a_failure() {
    let scene = Scene::new(&Head::new());
    let one = members(&scene, 1, 1)[0];
    let two = Collector { session: scene.aggregator.begin_session(at(20)), ..one };
    scene.say_as(20, two, 99, |_| {});
    assert_eq!(scene.report(21).tally.duplicates, 2);
    scene.fails(22, one);
    let applied = two.session.stamp(scene.aggregator.next_n());
    scene.say_as(23, two, 99, |change| change.applied = Some(applied));
    assert_eq!(scene.cell().failed(identity(0)), Some(0), "which of them failed is not known");

    scene.closes(24, one, Conn::Lost);
    assert_eq!(scene.report(25).tally.duplicates, 0);
    let applied = two.session.stamp(scene.aggregator.next_n());
    scene.say_as(26, two, 99, |change| change.applied = Some(applied));
    assert_eq!(scene.cell().failed(identity(0)), None);
}

#[test]
fn the_same_uid_on_a_newer_link_is_no_second_one() {
    let scene = Scene::new(&Head::new());
    members(&scene, 1, 1);
    scene.connect(2, 0, Seat::Stage(0));
    assert_eq!(scene.report(3).tally.duplicates, 0);
}

#[test]
fn when_the_newest_of_two_uids_closes_the_other_still_speaks_for_both() {
    let scene = Scene::new(&Head::new());
    let one = members(&scene, 1, 1)[0];
    let two = Collector { session: scene.aggregator.begin_session(at(2)), ..one };
    scene.say_as(2, two, 99, |_| {});
    scene.say_as(3, two, 99, |change| change.conn = Some((two.session, Conn::Lost)));
    let report = scene.report(300);
    assert_eq!((report.tally.stages[0].seen, report.tally.stages[0].dark), (1, 0));
}

#[test]
fn only_idle_records_are_dropped() {
    let scene = Scene::new(&Head::new());
    let all = members(&scene, 1, 1);
    let idle = scene.connect(1, 50, Seat::Control);
    let dark = scene.connect(1, 52, Seat::Control);
    scene.closes(2, dark, Conn::Lost);
    scene.closes(2, idle, Conn::Left);
    scene.closes(2, all[0], Conn::Left);
    scene.report(61);
    assert_eq!(scene.cell().len(), 3);
    let report = scene.report(62);
    assert_eq!(scene.cell().len(), 2);
    assert_eq!(report.tally.control.dark, 1, "who counts stays");
    assert!(scene.cell().record(identity(0)).is_some(), "it took the candidate once");
    scene.connect(70, 51, Seat::Control);
    assert_eq!(scene.cell().len(), 3);
}

#[test]
fn a_foreign_member_is_read_and_never_judged() {
    let scene = Scene::new(&Head::new());
    let session = scene.aggregator.begin_session(at(1));
    let foreign = Collector { number: 0, session, seat: Seat::Stage(0), foreign: true };
    scene.fails(1, foreign);
    let report = scene.report(2);
    assert_eq!((report.tally.foreign.seen, report.verdict.failed), (1, 0));
}

#[test]
fn changes_tell_of_content_and_not_of_time() {
    let scene = Scene::new(&Head::new());
    let all = members(&scene, 1, 20);
    scene.report(2);
    let mut changes = scene.aggregator.changes();
    changes.mark_unchanged();
    scene.report(3);
    scene.say(4, all[0], |_| {});
    scene.report(5);
    assert!(!changes.has_changed().unwrap(), "a heartbeat is no news");
    scene.fails(6, all[0]);
    scene.report(7);
    assert!(changes.has_changed().unwrap());
    changes.mark_unchanged();
    let state = ProposalState {
        kind: "abort".to_owned(),
        branch: "b".to_owned(),
        state: "pushed".to_owned(),
        commit: None,
        url: None,
        error: None,
        attempts: 1,
    };
    scene.aggregator.set_proposal(ROLLOUT, Some(state.clone()));
    assert_eq!(scene.report(8).proposal, Some(state));
    assert!(changes.has_changed().unwrap());
}

/// What a bundle is checked for must hold of every report.
pub(super) fn verified(report: &RolloutReport) {
    use render::rollout::bundle::{Bundle, verify};
    let bundle = Bundle::of(report).and_then(|bundle| bundle.to_canonical_json()).unwrap();
    let verified = verify(&bundle).unwrap();
    assert!(verified.same, "{:?}\n{report:#?}", verified.differences);
}

#[test]
fn a_report_can_be_verified() {
    let scene = Scene::new(&Head::new());
    let all = members(&scene, 1, 200);
    scene.connect(1, 999, Seat::Control);
    verified(&scene.report(2));
    for collector in &all[..30] {
        scene.fails(50, *collector);
    }
    for collector in &all[30..60] {
        scene.closes(50, *collector, Conn::Lost);
    }
    verified(&scene.report(81));
}

#[test]
fn a_vanished_replica_leaves_its_collectors_unobserved_until_another_has_them() {
    let mut settings = settings();
    settings.expect_replicas = 2;
    let aggregator = Aggregator::in_memory(settings, Metrics::leak(), at(0));
    let mut scene = Scene { aggregator, cell: None };
    scene.head(0, &Head::new());
    let key = {
        let report = scene.report(1);
        assert_eq!(report.verdict.kind, Kind::Inconclusive, "one of two reports");
        let snapshot = Head::new().snapshot();
        let rollout = &snapshot.rollouts[0].rollout;
        ReportKey {
            candidate: scene.cell().key().candidate,
            stage: 0,
            cohorts: render::rollout::evidence::cohort_digest(rollout),
        }
    };
    scene.aggregator.replica_hello(at(1), 8, "other");
    scene.aggregator.replica_vouch(at(1), 8, [(ROLLOUT.into(), key)].into(), [].into());
    let session = Session { epoch_ms: START + 1_000, incarnation: 8, n: 1 };
    let theirs = Collector { number: 0, session, seat: Seat::Stage(0), foreign: false };
    scene.takes(1, theirs, Reading::To);
    assert_eq!(scene.report(2).verdict.kind, Kind::Hold);

    scene.aggregator.replica_bye(at(50), 8, false);
    let report = scene.report(200);
    assert_eq!((report.tally.stages[0].unobserved, report.tally.stages[0].dark), (1, 0));
    assert_eq!(report.verdict.kind, Kind::Inconclusive);
    assert!(report.replicas.iter().any(|line| !line.reporting));

    scene.aggregator.replica_hello(at(210), 9, "another");
    assert_eq!(scene.report(249).tally.stages[0].dark, 0);
    assert_eq!(scene.report(250).tally.stages[0].dark, 1, "dark_after and grace later");
}

#[test]
fn evidence_starts_with_the_first_head() {
    let aggregator = Aggregator::in_memory(settings(), Metrics::leak(), at(0));
    let mut scene = Scene { aggregator, cell: None };
    scene.head(120, &Head::new());
    assert_eq!(scene.report(121).times.evidence_since_ms, START + 120_000);
    scene.head(130, &Head::new());
    assert_eq!(scene.report(131).times.evidence_since_ms, START + 120_000);
}
