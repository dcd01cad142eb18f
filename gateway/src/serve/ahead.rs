//! A collector that comes with a configuration of which this replica has never heard: perhaps another
//! replica saw a newer head, and this one has not looked yet (`docs/adr/0009`).
//!
//! To offer it what this replica has would take it back, and forward again a moment later. So the
//! source is looked at early, and the offer is held until that look has ended. A configuration that
//! is still unknown then is not a newer one, as far as anybody here can tell, and holds nothing up
//! any more. Pushes are never held: they follow a look.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use proto::session::{ContentKey, Seconds};
use tokio::sync::Notify;

use super::LinkId;
use super::registry::Owner;

/// Longest that an early look may take before offers go out without it. A collector that comes
/// while one is under way waits for the next as well: twice this, at most.
pub const EARLY_LOOK_MAX: Duration = Duration::from_secs(2);
/// Early looks that may follow one another at once …
pub const EARLY_LOOKS_BURST: Seconds = 10;
/// … and seconds after which there may be one more.
pub const EARLY_LOOK_SECONDS: Seconds = 5;
/// Unknown configurations that are remembered; past it the oldest that was looked for makes room,
/// and where none was, nothing is held.
pub const UNKNOWN_MAX: usize = 256;
/// Links with an agent whose offer is held; past it offers are not held.
pub const HELD_LINKS_MAX: usize = 1_024;

/// Who is held, and what for.
#[derive(Debug)]
pub struct Ahead {
    /// Somebody looks early: without that nothing is held.
    enabled: AtomicBool,
    asked: Notify,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// Oldest first.
    unknown: VecDeque<(ContentKey, Look)>,
    held: Vec<(LinkId, ContentKey)>,
    /// When all early looks so far are paid for.
    paid: Seconds,
}

/// Where the search for an unknown configuration stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// Asked for.
    Due,
    /// Under way.
    Begun,
    /// Over; this is not a newer one.
    Ended,
}

impl Default for Ahead {
    fn default() -> Self {
        let inner = Inner {
            unknown: VecDeque::with_capacity(UNKNOWN_MAX),
            held: Vec::with_capacity(HELD_LINKS_MAX),
            paid: 0,
        };
        Self { enabled: AtomicBool::new(false), asked: Notify::new(), inner: Mutex::new(inner) }
    }
}

impl Ahead {
    /// Somebody looks early from now on, and calls [`Ahead::begin`] and [`Ahead::end`].
    pub fn enable(&self) {
        self.enabled.store(true, Ordering::Relaxed);
    }

    /// Waits until an early look is asked for.
    pub async fn asked(&self) {
        self.asked.notified().await;
    }

    /// An early look begins: it answers for all that was asked so far.
    pub fn begin(&self) {
        for (_, look) in &mut self.lock().unknown {
            if *look == Look::Due {
                *look = Look::Begun;
            }
        }
    }

    /// The early look has ended, or nobody waits for it any longer. Returns the links whose offers
    /// it held.
    pub fn end(&self) -> Vec<LinkId> {
        let mut inner = self.lock();
        let Inner { unknown, held, .. } = &mut *inner;
        for (_, look) in unknown.iter_mut() {
            if *look == Look::Begun {
                *look = Look::Ended;
            }
        }
        let mut free = Vec::new();
        held.retain(|(link, content)| {
            let waits = unknown.iter().any(|(key, look)| key == content && *look != Look::Ended);
            if !waits {
                free.push(*link);
            }
            waits
        });
        free
    }

    /// Whether an offer has to wait that would replace `reported`, which no head of this replica
    /// has. An agent that polls gets it with a later poll.
    // Reached only where an offer is due to an agent with an unknown configuration; allocates nothing.
    pub(super) fn holds(&self, now: Seconds, reported: ContentKey, owner: Owner) -> bool {
        if !self.enabled.load(Ordering::Relaxed) {
            return false;
        }
        let mut inner = self.lock();
        match owner {
            Owner::Link(_) if inner.held.len() >= HELD_LINKS_MAX => return false,
            Owner::Link(_) | Owner::Http => {}
        }
        let known = inner.unknown.iter().find(|(key, _)| *key == reported).map(|(_, look)| *look);
        let waits = match known {
            Some(Look::Ended) => false,
            Some(Look::Due | Look::Begun) => true,
            None => self.ask(&mut inner, now, reported),
        };
        if waits && let Owner::Link(link) = owner {
            inner.held.push((link, reported));
        }
        waits
    }

    /// Asks for a look, if there may be one.
    fn ask(&self, inner: &mut Inner, now: Seconds, reported: ContentKey) -> bool {
        let is_due = inner.unknown.iter().any(|(_, look)| *look == Look::Due);
        let paid = inner.paid.max(now);
        let spent = paid - now > EARLY_LOOK_SECONDS * (EARLY_LOOKS_BURST - 1);
        if !is_due && spent {
            return false;
        }
        if inner.unknown.len() >= UNKNOWN_MAX {
            let ended = inner.unknown.iter().position(|(_, look)| *look == Look::Ended);
            let Some(oldest) = ended else { return false };
            inner.unknown.remove(oldest);
        }
        inner.unknown.push_back((reported, Look::Due));
        if !is_due {
            inner.paid = paid + EARLY_LOOK_SECONDS;
            self.asked.notify_one();
        }
        true
    }

    /// Every change is whole, so that a panic elsewhere leaves nothing half done.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u32) -> ContentKey {
        let mut hash = [1; 32];
        hash[..4].copy_from_slice(&n.to_be_bytes());
        ContentKey::new(&hash)
    }

    fn enabled() -> Ahead {
        let ahead = Ahead::default();
        ahead.enable();
        ahead
    }

    fn link(n: u32) -> Owner {
        Owner::Link(LinkId(n))
    }

    #[test]
    fn one_look_answers_for_all_that_was_asked_before_it_began() {
        let ahead = enabled();
        assert!(ahead.holds(1, key(1), link(1)) && ahead.holds(1, key(2), link(2)));
        ahead.begin();
        assert!(ahead.holds(2, key(3), link(3)), "asked while it was under way");
        assert!(ahead.holds(2, key(1), link(4)));
        assert_eq!(ahead.end(), [LinkId(1), LinkId(2), LinkId(4)]);
        assert!(!ahead.holds(3, key(1), link(5)), "looked for, and not a newer one");
        assert!(ahead.holds(3, key(3), link(6)));
        ahead.begin();
        assert_eq!(ahead.end(), [LinkId(3), LinkId(6)]);
        assert_eq!(ahead.end(), []);
    }

    #[test]
    fn nothing_is_held_where_nobody_looks() {
        assert!(!Ahead::default().holds(1, key(1), link(1)));
    }

    #[test]
    fn looks_are_rationed_and_past_them_nothing_is_held() {
        let ahead = enabled();
        let ask = |now: Seconds, n: u32| {
            let held = ahead.holds(now, key(n), Owner::Http);
            ahead.begin();
            ahead.end();
            held
        };
        for n in 0..EARLY_LOOKS_BURST {
            assert!(ask(100, n), "{n}");
        }
        assert!(!ask(100, 50));
        assert!(!ask(100, 50), "was not looked for, so it is not known to be old");
        assert!(ask(100 + EARLY_LOOK_SECONDS, 50) && !ask(100 + EARLY_LOOK_SECONDS, 51));
    }

    #[test]
    fn links_and_configurations_are_limited() {
        let ahead = enabled();
        for n in 0..HELD_LINKS_MAX as u32 {
            assert!(ahead.holds(1, key(1), link(n)));
        }
        assert!(!ahead.holds(1, key(1), link(9_999)));
        ahead.begin();
        assert_eq!(ahead.end().len(), HELD_LINKS_MAX);

        let ahead = enabled();
        for n in 0..UNKNOWN_MAX as u32 {
            assert!(ahead.holds(1, key(n), Owner::Http));
        }
        assert!(!ahead.holds(1, key(9_999), Owner::Http), "all are still looked for");
        ahead.begin();
        ahead.end();
        assert!(ahead.holds(1, key(9_999), Owner::Http));
        assert!(ahead.holds(1, key(0), Owner::Http), "forgotten, so it is asked for once more");
        assert!(!ahead.holds(1, key(5), Owner::Http));
    }
}
