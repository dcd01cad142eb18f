//! What failed on which collector, beyond its link (serving.md, decision 8; rollouts.md, decision 17):
//! without it, what a supervisor rolled back would be offered again after every reconnect. Kept up
//! to date while the collector is connected, since the link that it left may look alive when it
//! comes back on the next.
//!
//! By the identity that a collector has under no Rollout, so that a new uid does not make it another
//! one. What failed under a Rollout is in that Rollout's evidence as well, which outlives the process
//! and names the collector by the Rollout's own rule.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use proto::session::Failures;
use render::rollout::evidence::Identity;

/// Collectors whose failures are remembered past their link; the oldest are forgotten past it.
pub const FAILED_AGENTS_MAX: usize = 65_536;

/// Failures by identity.
#[derive(Debug, Default)]
pub(super) struct FailedMemory {
    len: AtomicUsize,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    failures: HashMap<Identity, (Failures, u64)>,
    /// Oldest first, by the number in the map.
    order: BTreeMap<u64, Identity>,
    next: u64,
}

impl FailedMemory {
    /// Keeps what failed on a collector: nothing any more, if so.
    pub(super) fn keep(&self, who: Identity, failures: Option<&Failures>) {
        if failures.is_none() && self.is_empty() {
            return;
        }
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, number)) = inner.failures.remove(&who) {
            inner.order.remove(&number);
        }
        if let Some(failures) = failures {
            let number = inner.next;
            inner.next += 1;
            inner.failures.insert(who, (failures.clone(), number));
            inner.order.insert(number, who);
            if inner.failures.len() > FAILED_AGENTS_MAX
                && let Some((_, oldest)) = inner.order.pop_first()
            {
                inner.failures.remove(&oldest);
            }
        }
        self.len.store(inner.failures.len(), Ordering::Relaxed);
    }

    /// What is known to have failed on a collector that comes.
    pub(super) fn get(&self, who: Identity) -> Option<Failures> {
        if self.is_empty() {
            return None;
        }
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.failures.get(&who).map(|(failures, _)| failures.clone())
    }

    /// Nearly always, and asked at every connect.
    fn is_empty(&self) -> bool {
        self.len.load(Ordering::Relaxed) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_forgotten_past_the_limit_and_nobody_else_by_repeats() {
        let memory = FailedMemory::default();
        let who = |n: usize| Identity(n as u128);
        let some = Failures::default();
        for n in 0..=FAILED_AGENTS_MAX {
            memory.keep(who(n), Some(&some));
        }
        assert!(memory.get(who(0)).is_none());
        for _ in 0..FAILED_AGENTS_MAX {
            memory.keep(who(2), Some(&some));
        }
        assert!(memory.get(who(1)).is_some());
        memory.keep(who(1), None);
        assert!(memory.get(who(1)).is_none());
        let inner = memory.inner.lock().expect("not poisoned");
        assert_eq!(
            (inner.failures.len(), inner.order.len()),
            (FAILED_AGENTS_MAX - 1, FAILED_AGENTS_MAX - 1)
        );
    }
}
