//! Brakes, soaks and dormancy: what a head changes.

use render::rollout::evidence::{Conn, Seat};
use render::rollout::verdict::{Kind, Told};

use super::super::DORMANT_MS;
use super::*;

/// Past it, an abort may be newly reached: `dark_after` and grace after the start.
const SETTLED: u32 = 40;

#[test]
fn the_brake_is_on_when_the_observation_returns() {
    let scene = Scene::new(&Head::new());
    let all = members(&scene, 1, 20);
    scene.fails(SETTLED, all[0]);
    assert!(!scene.cell().is_braked(), "5 percent");
    scene.fails(SETTLED, all[1]);
    assert!(scene.cell().is_braked(), "10 percent");
    let report = scene.report(SETTLED + 1);
    assert_eq!(report.verdict.kind, Kind::Abort);
    assert_eq!(report.braked_since_ms, Some(START + u64::from(SETTLED) * 1_000));
}

#[test]
fn no_brake_is_newly_reached_while_evidence_gathers() {
    let scene = Scene::new(&Head::new());
    let all = members(&scene, 1, 2);
    scene.fails(SETTLED - 1, all[0]);
    assert_eq!(scene.report(SETTLED - 1).verdict.kind, Kind::Blocked);
    assert!(!scene.cell().is_braked());
    assert_eq!(scene.report(SETTLED).verdict.kind, Kind::Abort);
    assert!(scene.cell().is_braked());
}

#[test]
fn silence_brakes_at_the_verdict_that_finds_it() {
    let scene = Scene::new(&Head::new());
    let all = members(&scene, 1, 5);
    scene.closes(40, all[0], Conn::Lost);
    scene.report(69);
    assert!(!scene.cell().is_braked());
    scene.report(70);
    assert!(scene.cell().is_braked());
}

fn braked() -> Scene {
    let scene = Scene::new(&Head::new());
    let all = members(&scene, 1, 5);
    scene.fails(SETTLED, all[0]);
    assert!(scene.cell().is_braked());
    scene
}

#[test]
fn neither_a_merge_nor_a_stage_releases_the_brake() {
    let mut scene = braked();
    scene.head(50, &Head::new());
    assert!(scene.cell().is_braked());
    scene.head(51, &Head::new().with(|rollout| rollout.stage = 1));
    assert!(scene.cell().is_braked());
    // Nor does the failure's end.
    let again = scene.connect(60, 0, Seat::Stage(0));
    scene.takes(60, again, Reading::To);
    let report = scene.report(61);
    assert_ne!(report.verdict.kind, Kind::Abort);
    assert!(scene.cell().is_braked() && report.braked_since_ms.is_some());
}

#[test]
fn a_brake_leaves_with_its_candidate_and_is_found_again() {
    let mut scene = braked();
    scene.head(50, &Head::new().next("next: 2\n"));
    assert!(!scene.cell().is_braked());
    assert_eq!(scene.cell().failed(identity(0)), None);
    scene.report(51);
    scene.head(60, &Head::new());
    assert!(scene.cell().is_braked(), "before anything is judged");
    assert_eq!(scene.cell().failed(identity(0)), Some(0));
}

#[test]
fn evidence_that_slept_a_week_is_forgotten() {
    let mut scene = braked();
    scene.head(50, &Head::new().without_rollout());
    scene.aggregator.handle_timeout(at(51));
    assert!(scene.aggregator.reports().is_empty());
    let week = u32::try_from(DORMANT_MS / 1_000).unwrap();
    scene.aggregator.handle_timeout(at(50 + week));
    scene.head(51 + week, &Head::new());
    assert!(!scene.cell().is_braked() && scene.cell().is_empty());
}

#[test]
fn edited_thresholds_brake_until_a_verdict_under_them() {
    let mut scene = Scene::new(&Head::new());
    members(&scene, 1, 5);
    scene.report(50);
    let edited = Head::new().with(|rollout| rollout.halt.abort_at_percent = 50);
    scene.head(51, &edited);
    assert!(scene.cell().is_braked());
    assert_eq!(scene.report(52).braked_since_ms, None);
    assert!(!scene.cell().is_braked());
    scene.head(53, &edited);
    assert!(!scene.cell().is_braked(), "nothing was edited");
}

#[test]
fn thresholds_that_are_edited_back_find_their_brake() {
    let mut scene = braked();
    let edited = Head::new().with(|rollout| rollout.halt.abort_at_percent = 50);
    scene.head(51, &edited);
    scene.report(52);
    assert!(!scene.cell().is_braked());
    scene.head(53, &Head::new());
    scene.report(54);
    assert!(scene.cell().is_braked());
}

#[test]
fn a_stage_soaks_from_when_it_was_seen_and_keeps_its_failures() {
    let mut scene = Scene::new(&Head::new());
    let all = members(&scene, 1, 20);
    scene.fails(10, all[0]);
    scene.head(100, &Head::new().with(|rollout| rollout.stage = 1));
    let report = scene.report(101);
    assert_eq!(report.times.soak_since_ms, START + 100_000);
    assert_eq!(report.times.stage_since, Told::Sight);
    assert_eq!((report.tally.stages.len(), report.verdict.failed), (2, 1));
}

#[test]
fn history_tells_when_the_stage_began_but_not_before_it_is_seen_to_change() {
    let told = |rollout: &mut ServedRollout| rollout.stage_started_ms = Some(START - 9_000);
    let mut scene = Scene::new(&Head::new().with(told));
    let report = scene.report(1);
    assert_eq!(
        (report.times.soak_since_ms, report.times.stage_since),
        (START - 9_000, Told::History)
    );
    scene.head(100, &Head::new().with(told).with(|rollout| rollout.stage = 1));
    assert_eq!(scene.report(101).times.soak_since_ms, START + 100_000);
}

#[test]
fn history_that_cannot_be_told_any_more_or_not_yet_changes_nothing() {
    let mut scene = braked();
    let told = Head::new().with(|rollout| rollout.origin = Some("abc".into()));
    scene.head(50, &told);
    assert!(scene.cell().is_braked());
    assert_eq!(scene.cell().failed(identity(0)), Some(0));
    assert_eq!(scene.cell().key().origin.as_deref(), Some("abc"));
    scene.head(51, &Head::new());
    assert!(scene.cell().is_braked());
    let other = Head::new().with(|rollout| rollout.origin = Some("def".into()));
    scene.head(52, &other);
    assert!(!scene.cell().is_braked(), "written anew, it starts clean");
}

#[test]
fn nothing_is_staged_when_candidate_and_base_are_equal() {
    let scene = Scene::new(&Head::new().next("base: 1\n"));
    let report = scene.report(1);
    assert!(report.terms.same_content);
    assert_eq!(report.verdict.kind, Kind::Hold);
}

#[test]
fn series_of_a_rollout_leave_with_it() {
    let metrics = Metrics::leak();
    let aggregator = Aggregator::in_memory(settings(), metrics, at(0));
    let mut scene = Scene { aggregator, cell: None };
    scene.head(0, &Head::new());
    members(&scene, 1, 2);
    scene.cell().converged(1_500, render::snapshot::Arm::To);
    scene.report(2);
    let text = metrics.render();
    for series in [
        "tidegate_rollout_members{rollout=\"team/canary\",arm=\"to\"} 2",
        "tidegate_rollout_verdict{rollout=\"team/canary\",verdict=\"hold\"} 1",
        "tidegate_rollout_halted_members{rollout=\"team/canary\",condition=\"failed\"} 0",
        "tidegate_rollout_abort_ratio{rollout=\"team/canary\"} 0.1",
        "tidegate_rollout_convergence_seconds_bucket{rollout=\"team/canary\",arm=\"to\",le=\"5\"} 1",
    ] {
        assert!(text.contains(series), "{series}\n{text}");
    }
    scene.head(3, &Head::new().without_rollout());
    scene.aggregator.handle_timeout(at(4));
    assert!(!metrics.render().contains("team/canary"));
}
