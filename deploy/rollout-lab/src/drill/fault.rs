//! What is done wrong on purpose: a drill that cannot fail shows nothing.

use serde::{Deserialize, Serialize};

use super::{Summary, Verdict};

/// One thing done wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// SIGKILL in place of a drain.
    KillInsteadOfDrain,
    /// The listener closes before the route knows.
    CloseBeforeUnroute,
    /// A second listener on a gateway's port closes with connections in its accept queue.
    SharedPort,
    /// A target is routable before it listens.
    ReadyBeforeBind,
    /// A target dies a second after it was healthy.
    CrashAfterReady,
    /// A drained gateway closes all its links at once.
    CloseAllAtOnce,
    /// The route draws evenly in place of taking the least loaded.
    UniformRouting,
    /// The prober is held for 200 ms: void, neither passed nor failed.
    ProberPaused,
    /// Somebody else answers on the route for a while.
    ForgedAnswer,
    /// The fourth slot never comes: waits, and is reported.
    NoSurgeSlot,
    /// No target ever becomes healthy, two deployments in a row fail, then it is rolled back; by the
    /// baseline's rules, which take every old gateway away meanwhile.
    TwoFailuresBaseline,
    /// The same by strict rules, which touch no old gateway.
    TwoFailuresStrict,
}

/// How a drill with a fault must end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expected {
    /// The verdict.
    pub verdict: Verdict,
    /// Criteria that must not hold.
    pub broken: &'static [&'static str],
    /// Criteria that must hold all the same.
    pub holds: &'static [&'static str],
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::KillInsteadOfDrain,
        Self::CloseBeforeUnroute,
        Self::SharedPort,
        Self::ReadyBeforeBind,
        Self::CrashAfterReady,
        Self::CloseAllAtOnce,
        Self::UniformRouting,
        Self::ProberPaused,
        Self::ForgedAnswer,
        Self::NoSurgeSlot,
        Self::TwoFailuresBaseline,
        Self::TwoFailuresStrict,
    ];

    /// The word on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::KillInsteadOfDrain => "kill-instead-of-drain",
            Self::CloseBeforeUnroute => "close-before-unroute",
            Self::SharedPort => "shared-port",
            Self::ReadyBeforeBind => "ready-before-bind",
            Self::CrashAfterReady => "crash-after-ready",
            Self::CloseAllAtOnce => "close-all-at-once",
            Self::UniformRouting => "uniform-routing",
            Self::ProberPaused => "prober-paused",
            Self::ForgedAnswer => "forged-answer",
            Self::NoSurgeSlot => "no-surge-slot",
            Self::TwoFailuresBaseline => "two-failures-baseline",
            Self::TwoFailuresStrict => "two-failures-strict",
        }
    }

    /// How a drill with this fault must end.
    pub fn expected(self) -> Expected {
        let failed = |broken| Expected { verdict: Verdict::Failed, broken, holds: &[] };
        match self {
            Self::KillInsteadOfDrain | Self::CloseBeforeUnroute | Self::CrashAfterReady => {
                failed(&["P3"])
            }
            Self::ReadyBeforeBind => failed(&["P2", "P3"]),
            Self::CloseAllAtOnce => failed(&["P8"]),
            Self::UniformRouting => failed(&["P5"]),
            Self::ForgedAnswer | Self::SharedPort => failed(&["P2"]),
            Self::ProberPaused => Expected { verdict: Verdict::Void, broken: &[], holds: &[] },
            Self::NoSurgeSlot => {
                Expected { verdict: Verdict::Waiting, broken: &["P7"], holds: &["P1", "P2"] }
            }
            Self::TwoFailuresBaseline => failed(&["P2", "P7"]),
            // The model's rows are those of a change that succeeds: they cannot be there.
            Self::TwoFailuresStrict => Expected {
                verdict: Verdict::Failed,
                broken: &["P7"],
                holds: &["P1", "P2", "P3", "P4", "P5", "P6", "P8"],
            },
        }
    }

    /// Whether a drill with this fault has seen it, and has seen nothing that it must not.
    pub fn is_seen_in(self, summary: &Summary) -> bool {
        let Expected { verdict, broken, holds } = self.expected();
        let all = |ids: &[&str], ok: bool| {
            ids.iter().all(|id| summary.criteria.iter().any(|one| one.id == *id && one.ok == ok))
        };
        summary.verdict == verdict && all(broken, false) && all(holds, true)
    }

    /// Whether its targets never become healthy.
    pub(super) fn has_failing_targets(self) -> bool {
        matches!(self, Self::TwoFailuresBaseline | Self::TwoFailuresStrict)
    }
}
