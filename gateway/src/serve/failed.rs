//! What failed on agents that are not connected at the moment (serving.md, decision 8): without it,
//! a candidate that a supervisor rolled back would be offered again after every reconnect.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use proto::ids::InstanceUid;
use proto::session::Failures;

/// Agents whose failures are remembered past their link; the oldest are forgotten past it.
pub const FAILED_AGENTS_MAX: usize = 65_536;

/// Failures by uid, as long as no link holds them.
#[derive(Debug, Default)]
pub(super) struct FailedMemory {
    len: AtomicUsize,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    failures: HashMap<InstanceUid, (Box<Failures>, u64)>,
    /// Oldest first; an entry counts only while its number is that of the map.
    order: VecDeque<(InstanceUid, u64)>,
    next: u64,
}

impl FailedMemory {
    /// Keeps what failed on an agent that leaves.
    pub(super) fn put(&self, uid: InstanceUid, failures: Box<Failures>) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let number = inner.next;
        inner.next += 1;
        inner.failures.insert(uid, (failures, number));
        inner.order.push_back((uid, number));
        while inner.failures.len() > FAILED_AGENTS_MAX || inner.order.len() > 2 * FAILED_AGENTS_MAX
        {
            let Some((uid, number)) = inner.order.pop_front() else { break };
            if inner.failures.get(&uid).is_some_and(|(_, newest)| *newest == number) {
                inner.failures.remove(&uid);
            }
        }
        self.len.store(inner.failures.len(), Ordering::Relaxed);
    }

    /// Gives it back when the agent returns.
    pub(super) fn take(&self, uid: InstanceUid) -> Option<Box<Failures>> {
        // Nearly always empty, and asked at every connect.
        if self.len.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let (failures, _) = inner.failures.remove(&uid)?;
        self.len.store(inner.failures.len(), Ordering::Relaxed);
        Some(failures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_forgotten_past_the_limit() {
        let memory = FailedMemory::default();
        let uid = |n: usize| InstanceUid((n as u128).to_be_bytes());
        for n in 0..=FAILED_AGENTS_MAX {
            memory.put(uid(n), Box::default());
        }
        assert!(memory.take(uid(0)).is_none());
        assert!(memory.take(uid(1)).is_some());
        assert!(memory.take(uid(1)).is_none(), "a link holds it now");
        for _ in 0..3 * FAILED_AGENTS_MAX {
            memory.put(uid(2), Box::default());
        }
        let inner = memory.inner.lock().expect("not poisoned");
        assert!(inner.order.len() <= 2 * FAILED_AGENTS_MAX);
        assert!(inner.failures.contains_key(&uid(2)));
    }
}
