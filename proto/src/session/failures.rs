//! What failed on this agent, and when it may be tried again.
//!
//! Supervisors roll back on failure and then report APPLIED for the *old* hash. A server that only
//! compares hashes loops for ever, and one that only keeps the latest status forgets the failure.

use super::{ContentKey, Seconds};

/// Failed configurations remembered per agent; the oldest is forgotten past it.
pub const FAILURES_MAX: usize = 8;
/// What failed is tried again this long after it failed, where it may be tried again at all.
pub const RETRY_SECONDS_MIN: Seconds = 10 * 60;
/// The wait doubles with each try up to this.
pub const RETRY_SECONDS_MAX: Seconds = 24 * 60 * 60;

/// The configurations that FAILED on one agent, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failures(Vec<Failure>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Failure {
    content: ContentKey,
    /// Not offered again before.
    retry_at: Seconds,
    /// How often it was offered again since it first failed.
    tries: u8,
    /// It was offered again, and what became of that is not known yet.
    retrying: bool,
}

impl Failures {
    /// Remembers that `content` failed. Reports repeat themselves (some clients send their status
    /// with every heartbeat), so one that is remembered already changes nothing, unless it was
    /// offered again meanwhile. Returns whether this is news.
    pub(super) fn latch(&mut self, now: Seconds, content: ContentKey) -> bool {
        if let Some(failure) = self.find_mut(content) {
            return std::mem::take(&mut failure.retrying);
        }
        if self.0.len() == FAILURES_MAX {
            self.0.remove(0);
        }
        let retry_at = now.saturating_add(RETRY_SECONDS_MIN);
        self.0.push(Failure { content, retry_at, tries: 0, retrying: false });
        true
    }

    /// Forgets a failure: `content` was applied after all. Returns whether there was one.
    pub(super) fn clear(&mut self, content: ContentKey) -> bool {
        let before = self.0.len();
        self.0.retain(|failure| failure.content != content);
        self.0.len() != before
    }

    /// Adds failures that are known from elsewhere; what is known here already stays as it is.
    pub(super) fn merge(&mut self, others: &Self) {
        for failure in &others.0 {
            if self.contains(failure.content) {
                continue;
            }
            if self.0.len() == FAILURES_MAX {
                self.0.remove(0);
            }
            self.0.push(*failure);
        }
    }

    /// Remembers a failure that is known from elsewhere, where it was offered again `tries` times;
    /// what is known here already stays as it is. The wait for the next try begins now.
    pub(super) fn remember(&mut self, now: Seconds, content: ContentKey, tries: u8) {
        if self.contains(content) {
            return;
        }
        if self.0.len() == FAILURES_MAX {
            self.0.remove(0);
        }
        let retry_at = now.saturating_add(wait(tries));
        self.0.push(Failure { content, retry_at, tries, retrying: false });
    }

    /// How often `content` was offered again since it first failed; `None` if it never did.
    pub fn tries(&self, content: ContentKey) -> Option<u8> {
        self.find(content).map(|failure| failure.tries)
    }

    /// Notes that `content` is offered again, which moves its next try twice as far away.
    pub(super) fn handle_offered(&mut self, now: Seconds, content: ContentKey) {
        if let Some(failure) = self.find_mut(content) {
            failure.tries = failure.tries.saturating_add(1);
            failure.retrying = true;
            failure.retry_at = now.saturating_add(wait(failure.tries));
        }
    }

    /// Whether `content` is remembered as failed.
    pub fn contains(&self, content: ContentKey) -> bool {
        self.find(content).is_some()
    }

    /// Whether there is nothing to remember.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a candidate that may be tried `retries` times more is still meant for the agent:
    /// it is being tried again, or it is due for another try.
    pub(super) fn admits_candidate(&self, now: Seconds, content: ContentKey, retries: u8) -> bool {
        self.find(content).is_none_or(|failure| {
            let due = now >= failure.retry_at;
            if due { failure.tries < retries } else { failure.retrying }
        })
    }

    /// Whether `content` never failed, or its next try is due.
    pub(super) fn admits_offer(&self, now: Seconds, content: ContentKey) -> Option<bool> {
        self.find(content).map(|failure| now >= failure.retry_at)
    }

    fn find(&self, content: ContentKey) -> Option<&Failure> {
        self.0.iter().find(|failure| failure.content == content)
    }

    fn find_mut(&mut self, content: ContentKey) -> Option<&mut Failure> {
        self.0.iter_mut().find(|failure| failure.content == content)
    }
}

/// How long to wait after the last of `tries`.
fn wait(tries: u8) -> Seconds {
    (RETRY_SECONDS_MIN << u32::from(tries).min(8)).min(RETRY_SECONDS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u8) -> ContentKey {
        ContentKey::new(&[n; 32])
    }

    #[test]
    fn the_wait_doubles_to_a_day_and_no_further() {
        let mut failures = Failures::default();
        assert!(failures.latch(1, key(1)));
        let mut waits = Vec::new();
        let mut now = 1;
        for _ in 0..10 {
            let mut due = now;
            while failures.admits_offer(due, key(1)) == Some(false) {
                due += 1;
            }
            waits.push((due - now) / 60);
            now = due;
            failures.handle_offered(now, key(1));
            assert!(failures.latch(now, key(1)), "a try that failed is news");
            assert!(!failures.latch(now, key(1)), "the same report again is not");
        }
        assert_eq!(waits, [10, 20, 40, 80, 160, 320, 640, 1280, 1440, 1440]);
    }

    #[test]
    fn the_oldest_is_forgotten_past_the_limit() {
        let mut failures = Failures::default();
        for n in 1..=9 {
            failures.latch(1, key(n));
        }
        assert!(!failures.contains(key(1)));
        assert!((2..=9).all(|n| failures.contains(key(n))));
        assert!(failures.clear(key(9)));
        assert!(!failures.clear(key(9)));
    }

    #[test]
    fn a_failure_known_from_elsewhere_waits_as_long_as_its_tries_say() {
        let mut failures = Failures::default();
        failures.remember(1, key(1), 2);
        assert_eq!(failures.tries(key(1)), Some(2));
        assert!(!failures.admits_candidate(2_400, key(1), 3));
        assert!(failures.admits_candidate(2_401, key(1), 3));
        assert!(!failures.admits_candidate(2_401, key(1), 2));
        failures.remember(5, key(1), 0);
        assert_eq!(failures.tries(key(1)), Some(2), "what is known here stays");
        assert_eq!(failures.tries(key(2)), None);
    }

    #[test]
    fn a_candidate_is_tried_again_only_as_often_as_its_rollout_allows() {
        let mut failures = Failures::default();
        assert!(failures.admits_candidate(1, key(1), 0));
        failures.latch(1, key(1));
        assert!(!failures.admits_candidate(600, key(1), 1), "not due yet");
        assert!(!failures.admits_candidate(601, key(1), 0), "never");
        assert!(failures.admits_candidate(601, key(1), 1));
        failures.handle_offered(601, key(1));
        assert!(failures.admits_candidate(602, key(1), 1), "its outcome is awaited");
        failures.latch(603, key(1));
        assert!(!failures.admits_candidate(604, key(1), 1));
        assert!(!failures.admits_candidate(100_000, key(1), 1), "it has had its one try");
        assert!(failures.admits_candidate(100_000, key(1), 2));
    }
}
