//! The two modes: the baseline's behaviour bit for bit, and what a fleet should do.

use std::fmt;

/// One difference between the baseline and strict mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Switch {
    /// Version numbers are never used twice, a write is guarded by the object's revision, and a
    /// task knows its deployment: only the deployment's own tasks can fail it, and every task of
    /// another version is an old one.
    Monotone,
    /// The health gate counts the stops of this deployment, not every old task that ever ended;
    /// old tasks beyond the replicas need no healthy target in exchange.
    OwnStops,
    /// Resources and surge count processes until their end is acknowledged. A task that was never
    /// placed has none: its stop needs no acknowledgement.
    Processes,
    /// Unavailable old tasks are stopped first, and cost no availability.
    UnhealthyFirst,
    /// Without surge, old tasks may be stopped first, within maxUnavailable.
    StopFirst,
    /// A rollback takes the limits of the deployment it undoes.
    InheritLimits,
    /// After a failed deployment the reconciler leaves the service alone until a rollback or a new
    /// rollout.
    Freeze,
    /// A deployment is done when every old process has been seen to end.
    Acknowledge,
    /// An error in one deployment does not end the pass for the others.
    Isolate,
    /// A deployment that makes no progress for a while is reported, and nothing more.
    Deadline,
}

impl Switch {
    /// All ten.
    pub const ALL: [Self; 10] = [
        Self::Monotone,
        Self::OwnStops,
        Self::Processes,
        Self::UnhealthyFirst,
        Self::StopFirst,
        Self::InheritLimits,
        Self::Freeze,
        Self::Acknowledge,
        Self::Isolate,
        Self::Deadline,
    ];

    /// The word on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Monotone => "monotone",
            Self::OwnStops => "own-stops",
            Self::Processes => "processes",
            Self::UnhealthyFirst => "unhealthy-first",
            Self::StopFirst => "stop-first",
            Self::InheritLimits => "inherit-limits",
            Self::Freeze => "freeze",
            Self::Acknowledge => "acknowledge",
            Self::Isolate => "isolate",
            Self::Deadline => "deadline",
        }
    }

    /// The switch with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|switch| switch.as_str() == name)
    }
}

impl fmt::Display for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Seconds without progress after which [`Switch::Deadline`] reports; Kubernetes' default.
pub const PROGRESS_SECONDS: i64 = 600;

/// Which rules a store, its scheduler and its controller follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    switches: u16,
    /// Whether a bypass names who did it and why, and is completed with what came of it. Not one of
    /// the ten: it changes what is recorded, never what is allowed but for a missing reason.
    pub audit_principal: bool,
    /// Seconds without progress before a report, with [`Switch::Deadline`].
    pub progress_seconds: i64,
}

impl Rules {
    /// The baseline: no switch is on.
    pub fn baseline() -> Self {
        Self { switches: 0, audit_principal: false, progress_seconds: PROGRESS_SECONDS }
    }

    /// Every switch is on.
    pub fn strict() -> Self {
        Switch::ALL.into_iter().fold(Self { audit_principal: true, ..Self::baseline() }, Self::with)
    }

    /// These rules with one more difference.
    #[must_use]
    pub fn with(self, switch: Switch) -> Self {
        Self { switches: self.switches | 1 << switch as u16, ..self }
    }

    /// These rules with one difference less.
    #[must_use]
    pub fn without(self, switch: Switch) -> Self {
        Self { switches: self.switches & !(1 << switch as u16), ..self }
    }

    /// Whether the difference is in force.
    pub fn has(self, switch: Switch) -> bool {
        self.switches & 1 << switch as u16 != 0
    }

    /// The differences in force, in their order.
    pub fn switches(self) -> impl Iterator<Item = Switch> {
        Switch::ALL.into_iter().filter(move |switch| self.has(*switch))
    }
}
