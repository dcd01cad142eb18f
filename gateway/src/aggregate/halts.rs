//! On an aggregator: who is halted under a change, in the order in which that changed, so that each
//! replica can be told everything once and then what is new (rollouts.md, decisions 16 and 17).

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use render::rollout::evidence::Identity;

use super::{Shared, lock};

/// What of a cell replicas are told.
#[derive(Debug, Default)]
pub(super) struct Halts {
    /// Of the newest change of who is halted; 0: nobody ever was.
    version: AtomicU64,
    /// Counts changes of brakes and of what was judged.
    state_version: AtomicU64,
    journal: Mutex<Journal>,
}

/// Each collector that was ever halted, once: at its newest change. What it is now is looked up
/// when it is told, so this is bounded by the records that hold a FAILED.
#[derive(Debug, Default)]
struct Journal {
    by_version: BTreeMap<u64, Identity>,
    of: HashMap<Identity, u64>,
}

impl Halts {
    /// Whether a collector is halted has changed. To be called before it can change again.
    #[cold]
    pub(super) fn note(&self, shared: &Shared, identity: Identity) {
        if !shared.tells() {
            return;
        }
        let mut journal = lock(&self.journal);
        let version = self.version.load(Ordering::Relaxed) + 1;
        if let Some(before) = journal.of.insert(identity, version) {
            journal.by_version.remove(&before);
        }
        journal.by_version.insert(version, identity);
        self.version.store(version, Ordering::Release);
        drop(journal);
        shared.halts.send_modify(|changes| *changes += 1);
    }

    /// A brake was put on, or something was judged by a `halt` block for the first time.
    pub(super) fn note_state(&self, shared: &Shared) {
        if shared.tells() {
            self.state_version.fetch_add(1, Ordering::Release);
            shared.halts.send_modify(|changes| *changes += 1);
        }
    }

    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    pub(super) fn state_version(&self) -> u64 {
        self.state_version.load(Ordering::Acquire)
    }

    /// Up to `most` collectors that changed after `version`, oldest first, and when each did.
    pub(super) fn since(&self, version: u64, most: usize) -> Vec<(u64, Identity)> {
        let journal = lock(&self.journal);
        let changed = journal.by_version.range(version + 1..).take(most);
        changed.map(|(version, identity)| (*version, *identity)).collect()
    }
}
