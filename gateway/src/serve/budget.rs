//! How many times full state may be asked for, of all agents together.

use std::sync::atomic::{AtomicU64, Ordering};

use proto::session::Seconds;

/// Full states asked for per second and replica, by default. One is 2 to 20 kB; 5,000 of them are
/// what a cold restart of everything brings at the default rate of admission.
pub const FULL_STATE_PER_SECOND: u32 = 5_000;

/// So many per second, without a lock.
#[derive(Debug)]
pub(super) struct Budget {
    per_second: u32,
    /// The second in the upper half, what was taken in it in the lower one.
    taken: AtomicU64,
}

impl Budget {
    pub(super) fn new(per_second: u32) -> Self {
        Self { per_second, taken: AtomicU64::new(0) }
    }

    /// Takes one; `false` when this second has none left.
    pub(super) fn take(&self, now: Seconds) -> bool {
        let taken = self.taken.try_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
            let used = if (taken >> 32) as u32 == now { taken as u32 } else { 0 };
            (used < self.per_second).then(|| u64::from(now) << 32 | u64::from(used + 1))
        });
        taken.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_second_has_as_many_and_nothing_is_saved_up() {
        let budget = Budget::new(3);
        let take = |now, times| (0..times).filter(|_| budget.take(now)).count();
        assert_eq!(take(1, 5), 3);
        assert_eq!(take(2, 2), 2);
        assert_eq!(take(9, 10), 3);
        assert!(!Budget::new(0).take(1));
    }
}
