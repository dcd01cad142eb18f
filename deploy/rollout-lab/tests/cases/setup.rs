//! What the cases share.

use rollout_lab::Rules;
use rollout_lab::controller::{Counts, Decision, Handled};
use rollout_lab::error::{Error, Kind};
use rollout_lab::fleet::{Fleet, Setup};
use rollout_lab::records::{Context, Limits, RestartCondition, Task};
use rollout_lab::status::{DeploymentStatus, TaskStatus};
use rollout_lab::store::Report;
use rollout_lab::time::Id;

pub(crate) const LIMITS: Limits = Limits { max_unavailable: 0, max_surge: 1 };

pub(crate) fn limits(max_unavailable: i64, max_surge: i64) -> Limits {
    Limits { max_unavailable, max_surge }
}

/// W(R,…): R healthy tasks of version 1, and room for as many again.
pub(crate) fn fleet(replicas: i64, rules: Rules) -> Fleet {
    Fleet::healthy(Setup::of(replicas, 7, rules)).unwrap()
}

pub(crate) fn baseline(replicas: i64) -> Fleet {
    fleet(replicas, Rules::baseline())
}

pub(crate) fn restarting(replicas: i64, restart: RestartCondition) -> Fleet {
    Fleet::healthy(Setup { restart, ..Setup::of(replicas, 7, Rules::baseline()) }).unwrap()
}

/// P.
pub(crate) fn pass(fleet: &mut Fleet) -> Handled {
    let pass = fleet.pass();
    assert_eq!(pass.errors, []);
    pass.handled.into_iter().next().expect("a deployment holds the lock")
}

/// H: every pending target placed and healthy.
pub(crate) fn heal(fleet: &mut Fleet) {
    fleet.schedule().unwrap();
    fleet.settle().unwrap();
}

pub(crate) fn status(fleet: &Fleet) -> DeploymentStatus {
    fleet.deployment().unwrap().status
}

pub(crate) fn counts(fleet: &Fleet) -> Counts {
    fleet.counts().unwrap()
}

/// old, target, healthy target, pending stop, available.
pub(crate) fn row(fleet: &Fleet) -> [i64; 5] {
    let seen = counts(fleet);
    [seen.old, seen.new, seen.new_healthy, seen.pending_stop, seen.available()]
}

pub(crate) fn active(fleet: &Fleet, version: i64) -> usize {
    fleet.ids(|task| task.version == version && task.is_active()).len()
}

pub(crate) fn only(fleet: &Fleet, wanted: impl Fn(&Task) -> bool) -> Id {
    let found = fleet.ids(wanted);
    assert_eq!(found.len(), 1);
    found[0]
}

pub(crate) fn task(fleet: &Fleet, id: Id) -> Task {
    fleet.store.task(&fleet.context, id).unwrap().clone()
}

pub(crate) fn report(fleet: &mut Fleet, id: Id, status: TaskStatus) -> Result<(), Error> {
    let node = fleet.node;
    fleet.store.report_task_status(&Context::default(), Report::of(id, node, status))
}

#[track_caller]
pub(crate) fn refused<T: std::fmt::Debug>(result: Result<T, Error>, kind: Kind) -> Error {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    error
}

#[track_caller]
pub(crate) fn busy<T: std::fmt::Debug>(result: Result<T, Error>, with: &str) {
    let error = refused(result, Kind::Conflict);
    assert_eq!(error.to_string(), format!("operation already in progress: {with}"));
}

/// Passes until the end or three without change, every step prompt; the least available on the way.
pub(crate) fn play(fleet: &mut Fleet, acknowledge: bool) -> Played {
    let mut played = Played {
        passes: 0,
        min_available: counts(fleet).available(),
        max_active: 0,
        max_processes: counts(fleet).processes,
    };
    let mut still = 0;
    while still < 3 && status(fleet).holds_lock() {
        let handled = pass(fleet);
        let moved = handled.created + handled.stopped > 0 || handled.decision == Decision::Complete;
        played.passes += usize::from(moved);
        still = if moved { 0 } else { still + 1 };
        played.see(fleet);
        if acknowledge {
            fleet.acknowledge().unwrap();
        }
        heal(fleet);
        played.see(fleet);
    }
    played
}

pub(crate) struct Played {
    pub(crate) passes: usize,
    pub(crate) min_available: i64,
    pub(crate) max_active: i64,
    pub(crate) max_processes: i64,
}

impl Played {
    fn see(&mut self, fleet: &Fleet) {
        let seen = counts(fleet);
        self.min_available = self.min_available.min(seen.available());
        self.max_active = self.max_active.max(seen.old + seen.new);
        self.max_processes = self.max_processes.max(seen.processes);
    }
}
