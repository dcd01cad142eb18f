//! When to connect again: at once, then after 0.5 s × 1.5ⁿ ± 50 %, never more than a minute
//! (serving.md 3.1).

use crate::clock::Micros;

const FIRST: f64 = 500_000.0;
const FACTOR: f64 = 1.5;
const LONGEST: f64 = 60_000_000.0;
const SPREAD: f64 = 0.5;

/// One collector's attempts since it was last connected.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Backoff {
    failures: i32,
}

impl Backoff {
    /// How long to wait before the next attempt. A `Retry-After` counts where it is longer.
    pub(crate) fn handle_failure(
        &mut self,
        retry_after: Option<Micros>,
        rng: &mut fastrand::Rng,
    ) -> Micros {
        let middle = (FIRST * FACTOR.powi(self.failures)).min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        let own = middle * (1.0 - SPREAD + 2.0 * SPREAD * rng.f64());
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 0 and 90 million"
        )]
        let own = own as Micros;
        own.max(retry_after.unwrap_or(0))
    }

    /// Forgets the failures: the next attempt after a break is made at once.
    pub(crate) fn handle_connected(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_by_half_up_to_a_minute_and_spread() {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut backoff = Backoff::default();
        let mut middle: f64 = 0.5;
        for _ in 0..20 {
            let wait = backoff.handle_failure(None, &mut rng) as f64 / 1e6;
            assert!((middle * 0.49..=middle * 1.51).contains(&wait), "{wait} for {middle}");
            middle = (middle * 1.5).min(60.0);
        }
        backoff.handle_connected();
        assert!(backoff.handle_failure(None, &mut rng) <= 750_000);
    }

    #[test]
    fn a_longer_retry_after_wins_and_a_shorter_one_does_not() {
        let mut rng = fastrand::Rng::with_seed(1);
        assert_eq!(Backoff::default().handle_failure(Some(30_000_000), &mut rng), 30_000_000);
        assert!(Backoff::default().handle_failure(Some(1), &mut rng) >= 250_000);
    }
}
