//! What follows the reports: when it acts, when it tries again, and what it tells.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use gateway::aggregate::{Aggregator, Settings};
use gateway::clock::Clock;
use gateway::metrics::Metrics;
use gateway::propose::forge::Forge;
use gateway::propose::{Parts, Proposer};
use render::rollout::report::{ProposalState, RolloutReport};
use render::rollout::verdict;

use super::{ADVANCE, demo_in, human_commit, report, tip, worker};
use crate::support::git::{Remote, git};
use crate::support::until;

/// A proposer whose turns the test makes.
pub(super) struct Follower {
    pub(super) proposer: Proposer,
    pub(super) metrics: &'static Metrics,
    runtime: tokio::runtime::Runtime,
}

impl Follower {
    pub(super) fn of(remote: &Remote, forge: Option<Arc<dyn Forge>>) -> Self {
        let (metrics, clock) = (Metrics::leak(), Clock::start());
        let aggregator = Aggregator::in_memory(Settings::default(), metrics, clock.now());
        let proposer =
            Proposer::new(Parts { worker: worker(remote), forge }, aggregator, metrics, clock);
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        Self { proposer, metrics, runtime }
    }

    pub(super) fn turn(&mut self, report: Option<&RolloutReport>) -> Option<ProposalState> {
        let reports: BTreeMap<Box<str>, Arc<RolloutReport>> = report
            .map(|report| (Box::from(&*report.rollout), Arc::new(report.clone())))
            .into_iter()
            .collect();
        self.runtime.block_on(self.proposer.turn(&reports));
        self.proposer.state("data-flow/bridge-canary").cloned()
    }

    pub(super) fn count(&self, kind: &str, outcome: &str) -> u64 {
        self.metrics.proposals.value(&[kind, outcome])
    }
}

#[test]
fn a_verdict_is_acted_upon_once() {
    let remote = demo_in("");
    let mut follower = Follower::of(&remote, None);
    let hold = report(&remote, 1, verdict::Kind::Hold);
    assert_eq!(follower.turn(Some(&hold)), None);
    let mut advance = report(&remote, 1, verdict::Kind::Advance);
    let state = follower.turn(Some(&advance)).unwrap();
    assert_eq!((&*state.kind, &*state.state, &*state.branch), ("advance", "pushed", ADVANCE));
    assert_eq!(state.commit, tip(&remote, ADVANCE));
    assert_eq!(follower.count("advance", "pushed"), 1);

    // Counts that change are no reason to ask the remote again, which is gone.
    fs::rename(remote.bare(), remote.bare().with_extension("away")).unwrap();
    advance.verdict.seen += 1;
    assert_eq!(follower.turn(Some(&advance)), Some(state));
    assert_eq!(follower.count("advance", "failed"), 0);
    assert_eq!(follower.turn(None), None, "a Rollout that is gone has no proposal");
}

#[test]
fn a_remote_that_is_down_is_asked_again() {
    let remote = demo_in("");
    let mut follower = Follower::of(&remote, None);
    let away = remote.bare().with_extension("away");
    fs::rename(remote.bare(), &away).unwrap();
    let advance = report(&remote, 1, verdict::Kind::Advance);
    let state = follower.turn(Some(&advance)).unwrap();
    assert_eq!((&*state.state, state.attempts), ("retrying", 1));
    assert!(state.error.unwrap().starts_with("git fetch failed"));
    assert_eq!(follower.count("advance", "failed"), 1);
    // Not before its time.
    assert_eq!(follower.turn(Some(&advance)).unwrap().attempts, 1);

    fs::rename(&away, remote.bare()).unwrap();
    let state = until("the proposal", || {
        follower.turn(Some(&advance)).filter(|state| state.state == "pushed")
    });
    assert_eq!(state.error, None);
    assert_eq!(state.commit, tip(&remote, ADVANCE));
}

#[test]
fn what_needs_a_person_is_told_until_the_head_changes() {
    let remote = demo_in("");
    let mut follower = Follower::of(&remote, None);
    let wrong = RolloutReport {
        to: "data-flow/other@1".to_owned(),
        ..report(&remote, 1, verdict::Kind::Advance)
    };
    for _ in 0..3 {
        let state = follower.turn(Some(&wrong)).unwrap();
        assert_eq!((&*state.state, state.attempts), ("refused", 1));
    }
    assert_eq!(follower.count("advance", "refused"), 1);
    remote.push("another head");
    let state = follower.turn(Some(&report(&remote, 1, verdict::Kind::Advance))).unwrap();
    assert_eq!(state.state, "pushed");
}

#[test]
fn a_stale_proposal_is_counted_once() {
    let remote = demo_in("");
    let mut follower = Follower::of(&remote, None);
    follower.turn(Some(&report(&remote, 1, verdict::Kind::Advance)));
    let human = human_commit(&remote, ADVANCE, "notes.md");
    for head in ["one", "two"] {
        let state = follower.turn(Some(&report(&remote, 1, verdict::Kind::Blocked))).unwrap();
        assert_eq!((&*state.state, state.commit.as_ref()), ("stale", Some(&human)), "{head}");
        git(&remote.work(), &["checkout", "--quiet", "main"]);
        remote.push(head);
    }
    assert_eq!(follower.count("advance", "stale"), 1);
}

#[test]
fn the_end_of_the_rollouts_first_silence_is_waited_for() {
    let remote = demo_in("");
    let mut follower = Follower::of(&remote, None);
    follower.turn(Some(&report(&remote, 1, verdict::Kind::Advance)));
    // The gateway has just started: nobody was heard yet, so a hold tells nothing.
    let mut hold = report(&remote, 1, verdict::Kind::Hold);
    hold.times.evidence_since_ms = Clock::start().unix_ms();
    (hold.terms.dark_after_ms, hold.terms.grace_ms) = (200, 50);
    assert_eq!(follower.turn(Some(&hold)), None);
    assert!(tip(&remote, ADVANCE).is_some());
    let state = until("the withdrawal", || follower.turn(Some(&hold)));
    assert_eq!(state.state, "withdrawn");
    assert_eq!(tip(&remote, ADVANCE), None);
}
