//! Lanes of workers: in each, one connects at a time, and at the end one leaves at a time.

use super::{Layout, Options, Run, Stop};
use crate::host;
use crate::scale::protocol::ToWorker;

/// What workers do one after the other in their lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// They connect, or have.
    Coming,
    /// They say goodbye.
    Leaving,
    /// All do, before the planned end.
    LeavingAtOnce,
}

/// How many workers connect at a time. Where gateways run beside them, as many as there are
/// processors: what a connect touches at both ends stays in a cache then, and all are there sooner.
/// Gateways elsewhere are met by all workers at once.
pub(super) fn lanes(options: &Options, layout: Layout) -> u32 {
    if let Some(lanes) = options.lanes {
        lanes
    } else if options.endpoints.is_empty() {
        u32::try_from(host::processors()).unwrap_or(u32::MAX)
    } else {
        layout.workers
    }
}

impl Run<'_> {
    pub(super) fn lane(&self, worker: u32) -> Option<u32> {
        let at = usize::try_from(worker).unwrap_or(usize::MAX);
        self.schedule.get(at).map(|turn| turn.lane)
    }

    pub(super) fn first_of_lanes(&self) -> Vec<u32> {
        let first = |worker: &u32| *worker == 0 || self.lane(*worker) != self.lane(*worker - 1);
        (0..self.layout.workers).filter(first).collect()
    }

    /// Tells a worker when its first collector was to start, or is.
    pub(super) async fn begin(&mut self, number: u32) -> Result<(), Stop> {
        let at = usize::try_from(number).unwrap_or(usize::MAX);
        let Some(turn) = self.schedule.get(at) else { return Ok(()) };
        let unix_us = self.go_unix.saturating_add(turn.after);
        self.tell(number, &ToWorker::Go { unix_us }).await
    }

    /// The next of a lane begins, or leaves.
    pub(super) async fn pass_turn(&mut self, number: u32) -> Result<(), Stop> {
        let next = number + 1;
        if self.lane(next) != self.lane(number) {
            return Ok(());
        }
        let at = usize::try_from(number).unwrap_or(usize::MAX);
        let has_left = self.parts.get(at).is_some_and(Option::is_some);
        match self.phase {
            Phase::Coming => self.begin(next).await,
            Phase::Leaving if has_left => self.tell(next, &ToWorker::Finish { early: false }).await,
            Phase::Leaving | Phase::LeavingAtOnce => Ok(()),
        }
    }
}
