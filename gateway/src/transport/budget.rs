//! What half-received messages may cost the whole process (spec/serving.md 10, idle-links.md).
//!
//! Two limits. *Holders*: only so many links may have a message half received; the others read whole
//! messages only and leave the rest in the kernel until it is their turn, when they mostly find a
//! whole message that needs no buffer at all. *Bytes*: what the holders' buffers (and HTTP bodies) may take together; past it
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
    /// Links without a partial message that wait until there are fewer with one.
    starting: Line,
    /// Links with a partial message that wait for bytes.
    growing: Line,
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
            starting: Line::default(),
            growing: Line::default(),
        }
    }

    /// Whether a link without a partial message may read, and so perhaps into one.
    pub fn may_start(&self) -> bool {
        self.holders.load(Ordering::SeqCst) < self.holders_max
    }

    /// Whether a link with a partial message may read more of it. Beyond the bytes of the budget one
    /// link at a time is let through, up to the message limit.
    pub fn may_grow(&self, held: &mut Held) -> bool {
        if !held.beyond && self.is_short() {
            held.beyond = !self.beyond.swap(true, Ordering::SeqCst);
            return held.beyond;
        }
        true
    }

    /// Leaves `waker` for when [`Self::may_start`] may say yes. Look again afterwards: room made
    /// between the look and the wait wakes nobody.
    pub fn wait_to_start(&self, waker: &Waker) {
        self.starting.push(waker);
    }

    /// As [`Self::wait_to_start`], for [`Self::may_grow`].
    pub fn wait_to_grow(&self, waker: &Waker) {
        self.growing.push(waker);
    }

    /// Wakes the longest waiting links while there is room. Whoever was woken calls this when it is
    /// done for now, whatever it found, so that the wakes go on like a chain.
    pub fn wake_next(&self) {
        if self.starting.is_waited_in() && self.may_start() {
            self.starting.wake_one();
        }
        if self.growing.is_waited_in() && (!self.is_short() || !self.beyond.load(Ordering::SeqCst))
        {
            self.growing.wake_one();
        }
    }

    /// Counts one link more with a partial message. Never refused: its bytes are read already.
    pub fn hold(&self) -> Held {
        self.holders.fetch_add(1, Ordering::SeqCst);
        Held::default()
    }

    /// Says how many bytes a partial message takes now. Never refused: they are read already.
    pub fn account(&self, held: &mut Held, bytes: usize) {
        if bytes >= held.bytes {
            self.bytes.fetch_add(bytes - held.bytes, Ordering::SeqCst);
        } else {
            self.bytes.fetch_sub(held.bytes - bytes, Ordering::SeqCst);
        }
        held.bytes = bytes;
    }

    /// Gives back everything that a partial message held, and wakes who waited for it.
    pub fn release(&self, held: Held) {
        self.bytes.fetch_sub(held.bytes, Ordering::SeqCst);
        if held.beyond {
            self.beyond.store(false, Ordering::SeqCst);
        }
        self.holders.fetch_sub(1, Ordering::SeqCst);
        self.wake_next();
    }

    /// Books bytes without being a link (an HTTP body): false if they do not fit.
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
        self.wake_next();
    }

    /// Bytes held now.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::SeqCst)
    }

    /// Links with a partial message now.
    pub fn holders(&self) -> u32 {
        self.holders.load(Ordering::SeqCst)
    }

    /// Whether the bytes are used up.
    pub fn is_short(&self) -> bool {
        self.bytes() >= self.bytes_max
    }
}

/// Who waits, in order.
#[derive(Debug, Default)]
struct Line {
    /// Length of `wakers`, so that the common case takes no lock.
    len: AtomicUsize,
    wakers: Mutex<VecDeque<Waker>>,
}

impl Line {
    fn is_waited_in(&self) -> bool {
        self.len.load(Ordering::SeqCst) > 0
    }

    fn push(&self, waker: &Waker) {
        let mut wakers = self.lock();
        wakers.push_back(waker.clone());
        self.len.store(wakers.len(), Ordering::SeqCst);
    }

    fn wake_one(&self) {
        let first = {
            let mut wakers = self.lock();
            let first = wakers.pop_front();
            self.len.store(wakers.len(), Ordering::SeqCst);
            first
        };
        if let Some(waker) = first {
            waker.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Waker>> {
        // A queue of wakers is whole after any panic: each change is one push or pop.
        self.wakers.lock().unwrap_or_else(PoisonError::into_inner)
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
        assert!(!budget.may_start());
        let (first, second) = (Counter::new(), Counter::new());
        budget.wait_to_start(&first.clone().into());
        budget.wait_to_start(&second.clone().into());
        budget.wake_next();
        assert_eq!((first.count(), second.count()), (0, 0), "there is no room yet");
        budget.release(held);
        assert!(budget.may_start());
        assert_eq!((first.count(), second.count()), (1, 0));
        budget.wake_next();
        assert_eq!((first.count(), second.count()), (1, 1));
        budget.wake_next();
    }

    #[test]
    fn beyond_the_bytes_only_one_link_grows() {
        let budget = Budget::new(8, 100);
        let (mut one, mut two) = (budget.hold(), budget.hold());
        budget.account(&mut one, 60);
        assert!(budget.may_grow(&mut one));
        budget.account(&mut two, 40);
        assert!(budget.may_grow(&mut two), "the first to need more gets on");
        assert!(!budget.may_grow(&mut one));
        budget.account(&mut two, 5_000);
        assert!(budget.may_grow(&mut two), "and stays the one");
        let waiting = Counter::new();
        budget.wait_to_grow(&waiting.clone().into());
        budget.wake_next();
        assert_eq!(waiting.count(), 0);
        budget.release(two);
        assert_eq!(waiting.count(), 1);
        assert!(budget.may_grow(&mut one));
        budget.release(one);
        assert_eq!((budget.bytes(), budget.holders()), (0, 0));
    }

    #[test]
    fn bodies_share_the_bytes() {
        let budget = Budget::new(8, 100);
        assert!(budget.book(100));
        assert!(!budget.book(1));
        assert!(!budget.book(usize::MAX));
        let (mut held, waiting) = (budget.hold(), Counter::new());
        assert!(budget.may_grow(&mut held), "the one that gets on");
        let mut other = budget.hold();
        assert!(!budget.may_grow(&mut other));
        budget.wait_to_grow(&waiting.clone().into());
        budget.unbook(100);
        assert_eq!((budget.bytes(), waiting.count()), (0, 1));
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
