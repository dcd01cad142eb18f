//! When what failed is tried again.

use std::time::Duration;

/// After the first failure.
const FIRST: Duration = Duration::from_secs(1);

/// However often it failed.
const LONGEST: Duration = Duration::from_secs(5 * 60);

/// Doubles from [`FIRST`] to [`LONGEST`]; `jitter` (0 to 1) takes up to half of it away, so that
/// replicas that failed together do not try together.
pub fn after(failures: u32, jitter: f64) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    let full = FIRST.saturating_mul(1 << doublings).min(LONGEST);
    full.mul_f64(1.0 - jitter.clamp(0.0, 1.0) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_doubles_up_to_five_minutes() {
        let seconds = |failures| after(failures, 0.0).as_secs();
        let waits: Vec<u64> = (1..=10).map(seconds).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]);
        assert_eq!(seconds(u32::MAX), 300);
    }

    #[test]
    fn jitter_shortens_it_by_half_at_most() {
        assert_eq!(after(1, 1.0), Duration::from_millis(500));
        assert_eq!(after(3, 0.5), Duration::from_secs(3));
        assert_eq!(after(1, 7.0), Duration::from_millis(500));
    }
}
