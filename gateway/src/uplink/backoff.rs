//! How long to wait before an aggregator is dialled again.

use std::time::Duration;

/// After the first failure.
const FIRST: Duration = Duration::from_millis(250);
/// At most.
pub const MOST: Duration = Duration::from_secs(15);

/// Doubles from a quarter of a second to [`MOST`]; a connection that was welcomed begins anew.
#[derive(Clone, Copy, Debug, Default)]
pub struct Backoff {
    failures: u32,
}

impl Backoff {
    /// It worked.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// It did not: the wait before the next try. `jitter` is random: it takes away up to half, so
    /// that replicas do not come back in step.
    pub fn next_wait(&mut self, jitter: u32) -> Duration {
        let doubled = FIRST.saturating_mul(1 << self.failures.min(16)).min(MOST);
        self.failures = self.failures.saturating_add(1);
        doubled - doubled.mul_f64(f64::from(jitter) / f64::from(u32::MAX) / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_limit_and_never_fall_below_half() {
        let mut backoff = Backoff::default();
        let full: Vec<Duration> = (0..9).map(|_| backoff.next_wait(0)).collect();
        assert_eq!(full[..3], [250, 500, 1_000].map(Duration::from_millis));
        assert_eq!(full[8], MOST);
        for _ in 0..100 {
            assert_eq!(backoff.next_wait(u32::MAX), MOST / 2);
        }
        backoff.reset();
        assert_eq!(backoff.next_wait(0), FIRST);
    }
}
