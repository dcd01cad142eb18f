//! What half-received messages may cost the whole process (spec/serving.md 10, idle-links.md).
//!
//! Two limits. *Holders*: only so many links may have a message half received; the others leave
//! their bytes in the kernel until it is their turn, and then mostly find a whole message that needs
//! no buffer at all. *Bytes*: what the holders' buffers (and HTTP bodies) may take together; past it
//! one holder at a time may still grow to the message limit, so that the process always gets on.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// Links that may hold a partial message. With 60 kB reports on 19,000 slow links, 256 kept the
/// peak 14 MB above idle and cost nothing in speed (idle-links.md, 2026-11).
pub const PARTIAL_LINKS_MAX: u32 = 256;

/// The process-wide budget.
#[derive(Debug)]
pub struct Budget {
    holders: AtomicU32,
    holders_max: u32,
    bytes: AtomicUsize,
    bytes_max: usize,
    /// Whether somebody is growing beyond `bytes_max`.
    beyond: AtomicBool,
    /// Length of `waiting`, so that the common case takes no lock.
    waiters: AtomicUsize,
    waiting: Mutex<VecDeque<Waker>>,
}

/// What one partial message holds of the budget. Give it back with [`Budget::release`].
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Held {
    bytes: usize,
    beyond: bool,
}

impl Budget {
    /// At most `holders_max` links with a partial message, and `bytes_max` bytes in all of them.
    pub fn new(holders_max: u32, bytes_max: usize) -> Self {
        Self {
            holders: AtomicU32::new(0),
            holders_max,
            bytes: AtomicUsize::new(0),
            bytes_max,
            beyond: AtomicBool::new(false),
            waiters: AtomicUsize::new(0),
            waiting: Mutex::default(),
        }
    }

    /// Whether a link without a partial message may read into one.
    pub fn is_open(&self) -> bool {
        self.holders.load(Ordering::SeqCst) < self.holders_max
    }

    /// Leaves `waker` to be woken when there may be room again. Look again afterwards: room made
    /// between the look and the wait wakes nobody.
    pub fn wait(&self, waker: &Waker) {
        let mut waiting = self.lock();
        waiting.push_back(waker.clone());
        self.waiters.store(waiting.len(), Ordering::SeqCst);
    }

    /// Wakes the longest waiting link, if any. Everybody who got past [`Self::is_open`] calls this
    /// after its read, so that the wakes go on like a chain.
    pub fn wake_one(&self) {
        if self.waiters.load(Ordering::SeqCst) == 0 {
            return;
        }
        let waker = {
            let mut waiting = self.lock();
            let waker = waiting.pop_front();
            self.waiters.store(waiting.len(), Ordering::SeqCst);
            waker
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Counts one link more with a partial message. Never refused: its bytes are read already.
    pub fn hold(&self) -> Held {
        self.holders.fetch_add(1, Ordering::SeqCst);
        Held::default()
    }

    /// Books `more` bytes for `held`; false if they do not fit now. Beyond the budget one holder at
    /// a time is let through.
    pub fn grow(&self, held: &mut Held, more: usize) -> bool {
        if !self.book(more) {
            if !held.beyond && self.beyond.swap(true, Ordering::SeqCst) {
                return false;
            }
            held.beyond = true;
            self.bytes.fetch_add(more, Ordering::SeqCst);
        }
        held.bytes += more;
        true
    }

    /// Gives back everything that a partial message held, and wakes one that waits.
    pub fn release(&self, held: Held) {
        self.unbook(held.bytes);
        if held.beyond {
            self.beyond.store(false, Ordering::SeqCst);
        }
        self.holders.fetch_sub(1, Ordering::SeqCst);
        self.wake_one();
    }

    /// Books bytes without being a holder (an HTTP body): false if they do not fit.
    pub fn book(&self, more: usize) -> bool {
        self.bytes
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |bytes| {
                bytes.checked_add(more).filter(|sum| *sum <= self.bytes_max)
            })
            .is_ok()
    }

    /// Gives back what [`Self::book`] took.
    pub fn unbook(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::SeqCst);
    }

    /// Bytes booked now.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::SeqCst)
    }

    /// Links with a partial message now.
    pub fn holders(&self) -> u32 {
        self.holders.load(Ordering::SeqCst)
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Waker>> {
        // A queue of wakers is whole after any panic: each change is one push or pop.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::task::Wake;

    use super::*;

    #[test]
    fn a_finished_message_wakes_the_longest_waiting_link() {
        let budget = Budget::new(1, 1_000);
        let held = budget.hold();
        assert!(!budget.is_open());
        let (first, second) = (Counter::new(), Counter::new());
        budget.wait(&first.clone().into());
        budget.wait(&second.clone().into());
        budget.release(held);
        assert!(budget.is_open());
        assert_eq!((first.count(), second.count()), (1, 0));
        budget.wake_one();
        assert_eq!((first.count(), second.count()), (1, 1));
        budget.wake_one();
    }

    #[test]
    fn beyond_the_bytes_only_one_holder_grows() {
        let budget = Budget::new(8, 100);
        let (mut one, mut two, mut three) = (budget.hold(), budget.hold(), budget.hold());
        assert!(budget.grow(&mut one, 60));
        assert!(budget.grow(&mut two, 40));
        assert!(budget.grow(&mut two, 500), "the first to need more gets on");
        assert!(!budget.grow(&mut one, 1));
        assert!(!budget.grow(&mut three, 1));
        assert!(budget.grow(&mut two, 500), "and stays the one");
        budget.release(two);
        assert!(budget.grow(&mut one, 10));
        budget.release(one);
        budget.release(three);
        assert_eq!((budget.bytes(), budget.holders()), (0, 0));
    }

    #[test]
    fn bodies_share_the_bytes() {
        let budget = Budget::new(8, 100);
        assert!(budget.book(100));
        assert!(!budget.book(1));
        assert!(!budget.book(usize::MAX));
        budget.unbook(100);
        assert_eq!(budget.bytes(), 0);
    }

    struct Counter(AtomicU32);

    impl Counter {
        fn new() -> Arc<Self> {
            Arc::new(Self(AtomicU32::new(0)))
        }

        fn count(&self) -> u32 {
            self.0.load(Ordering::SeqCst)
        }
    }

    impl Wake for Counter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
}
