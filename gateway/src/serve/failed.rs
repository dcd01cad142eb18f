//! What failed on which agent, beyond its link (serving.md, decision 8): without it, a candidate that a
//! supervisor rolled back would be offered again after every reconnect. Kept up to date while the
//! agent is connected, since the link that it left may look alive when it comes back on the next.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use proto::ids::InstanceUid;
use proto::session::Failures;

/// Agents whose failures are remembered past their link; the oldest are forgotten past it.
pub const FAILED_AGENTS_MAX: usize = 65_536;

/// Failures by uid.
#[derive(Debug, Default)]
pub(super) struct FailedMemory {
    len: AtomicUsize,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    failures: HashMap<InstanceUid, (Failures, u64)>,
    /// Oldest first, by the number in the map.
    order: BTreeMap<u64, InstanceUid>,
    next: u64,
}

impl FailedMemory {
    /// Keeps what failed on an agent: nothing any more, if so.
    pub(super) fn keep(&self, uid: InstanceUid, failures: Option<&Failures>) {
        if failures.is_none() && self.is_empty() {
            return;
        }
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, number)) = inner.failures.remove(&uid) {
            inner.order.remove(&number);
        }
        if let Some(failures) = failures {
            let number = inner.next;
            inner.next += 1;
            inner.failures.insert(uid, (failures.clone(), number));
            inner.order.insert(number, uid);
            if inner.failures.len() > FAILED_AGENTS_MAX
                && let Some((_, oldest)) = inner.order.pop_first()
            {
                inner.failures.remove(&oldest);
            }
        }
        self.len.store(inner.failures.len(), Ordering::Relaxed);
    }

    /// What is known to have failed on an agent that comes.
    pub(super) fn get(&self, uid: InstanceUid) -> Option<Failures> {
        if self.is_empty() {
            return None;
        }
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.failures.get(&uid).map(|(failures, _)| failures.clone())
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
        let uid = |n: usize| InstanceUid((n as u128).to_be_bytes());
        let some = Failures::default();
        for n in 0..=FAILED_AGENTS_MAX {
            memory.keep(uid(n), Some(&some));
        }
        assert!(memory.get(uid(0)).is_none());
        for _ in 0..FAILED_AGENTS_MAX {
            memory.keep(uid(2), Some(&some));
        }
        assert!(memory.get(uid(1)).is_some());
        memory.keep(uid(1), None);
        assert!(memory.get(uid(1)).is_none());
        let inner = memory.inner.lock().expect("not poisoned");
        assert_eq!(
            (inner.failures.len(), inner.order.len()),
            (FAILED_AGENTS_MAX - 1, FAILED_AGENTS_MAX - 1)
        );
    }
}
