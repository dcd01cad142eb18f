//! Who may come in now: a token bucket on new links and a cap on live ones (spec/serving.md 10).
//!
//! Established links are never closed to shed load: their collectors would be back at once. A
//! newcomer that does not fit is sent away before anything is built for it, with a random time to
//! wait so that a wave does not come back as a wave.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::metrics::labels::RejectReason;

/// Seconds in `Retry-After` for a peer that we know nothing of: the protocol recommends at least 30.
const RETRY_STRANGER: std::ops::RangeInclusive<u32> = 30..=90;
/// Seconds in `Retry-After` for a peer that shows a uid which lives here: it was served a moment ago
/// and only moves from one link to the next.
const RETRY_KNOWN: std::ops::RangeInclusive<u32> = 5..=30;
/// Whoever came in that recently has others behind it.
const COMING: Duration = Duration::from_millis(100);

/// The token bucket and the count of live links, without a lock.
///
/// The bucket is kept as one number, the *theoretical arrival time* of the generic cell rate
/// algorithm: each admission moves it one interval on, and it may run ahead of the clock by at most
/// the burst. That is a token bucket of `burst` tokens filled at `rate` per second.
#[derive(Debug)]
pub struct Admission {
    /// Nanoseconds since the process started at which the bucket would be full again.
    full_at: AtomicU64,
    /// Nanoseconds that one token takes to come back.
    interval: u64,
    /// Nanoseconds that `full_at` may be ahead of now: burst × interval.
    ahead_max: u64,
    live: AtomicU32,
    live_max: u32,
    rejected: AtomicU64,
}

impl Admission {
    /// `rate` new links per second (at least 1) with `burst` at once (at least 1), and at most
    /// `live_max` alive.
    pub fn new(rate: u32, burst: u32, live_max: u32) -> Self {
        let interval = 1_000_000_000 / u64::from(rate.max(1));
        Self {
            full_at: AtomicU64::new(0),
            interval,
            ahead_max: interval * u64::from(burst.max(1)),
            live: AtomicU32::new(0),
            live_max,
            rejected: AtomicU64::new(0),
        }
    }

    /// Takes a token and a place among the live links; give the place back with [`Self::leave`].
    ///
    /// # Errors
    ///
    /// [`RejectReason::Links`] or [`RejectReason::Rate`]; nothing is taken then.
    pub fn enter(&self, now: Duration) -> Result<(), RejectReason> {
        self.take_place()?;
        self.take_token(now).inspect_err(|_| self.leave())
    }

    /// Takes a place among the live links and no token.
    ///
    /// # Errors
    ///
    /// [`RejectReason::Links`].
    pub fn take_place(&self) -> Result<(), RejectReason> {
        self.live
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |live| {
                (live < self.live_max).then_some(live + 1)
            })
            .map(|_| ())
            .map_err(|_| self.reject(RejectReason::Links))
    }

    /// Takes a token only: what a first poll over HTTP costs.
    ///
    /// # Errors
    ///
    /// [`RejectReason::Rate`].
    pub fn take_token(&self, now: Duration) -> Result<(), RejectReason> {
        let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        self.full_at
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |full_at| {
                let next = full_at.max(now).saturating_add(self.interval);
                (next - now <= self.ahead_max).then_some(next)
            })
            .map(|_| ())
            .map_err(|_| self.reject(RejectReason::Rate))
    }

    /// Whether somebody is coming in: a token was taken a moment ago, or more of them than have come
    /// back since.
    pub fn is_busy(&self, now: Duration) -> bool {
        let full_at = Duration::from_nanos(self.full_at.load(Ordering::Relaxed));
        !full_at.is_zero() && now < full_at + COMING
    }

    /// Gives back the place of a link that ended.
    pub fn leave(&self) {
        let before = self.live.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "a place is given back once");
    }

    /// Links alive now, both transports.
    pub fn live(&self) -> u32 {
        self.live.load(Ordering::Relaxed)
    }

    /// Links that may be alive at once.
    pub fn live_max(&self) -> u32 {
        self.live_max
    }

    /// How many were sent away since the process started, for want of a place or a token.
    pub fn rejected(&self) -> u64 {
        self.rejected.load(Ordering::Relaxed)
    }

    fn reject(&self, reason: RejectReason) -> RejectReason {
        self.rejected.fetch_add(1, Ordering::Relaxed);
        reason
    }
}

/// Whole seconds for `Retry-After`: an integer (old clients do not read dates), never zero.
pub fn retry_after_seconds(known: bool) -> u32 {
    fastrand::u32(if known { RETRY_KNOWN } else { RETRY_STRANGER })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_burst_is_let_in_at_once_and_then_one_per_interval() {
        let admission = Admission::new(5_000, 3, 100);
        let start = Duration::from_secs(7);
        for _ in 0..3 {
            assert_eq!(admission.take_token(start), Ok(()));
        }
        assert_eq!(admission.take_token(start), Err(RejectReason::Rate));
        assert_eq!(
            admission.take_token(start + Duration::from_micros(199)),
            Err(RejectReason::Rate)
        );
        assert_eq!(admission.take_token(start + Duration::from_micros(200)), Ok(()));
        assert_eq!(
            admission.take_token(start + Duration::from_micros(200)),
            Err(RejectReason::Rate)
        );
    }

    #[test]
    fn a_link_that_ended_makes_room() {
        let admission = Admission::new(1_000, 1_000, 1);
        assert_eq!(admission.enter(Duration::ZERO), Ok(()));
        assert_eq!(admission.enter(Duration::ZERO), Err(RejectReason::Links));
        admission.leave();
        assert_eq!(admission.enter(Duration::ZERO), Ok(()));
        assert_eq!(admission.live(), 1);
    }

    #[test]
    fn a_refusal_for_the_rate_takes_no_place() {
        let admission = Admission::new(1, 1, 10);
        assert_eq!(admission.enter(Duration::ZERO), Ok(()));
        assert_eq!(admission.enter(Duration::ZERO), Err(RejectReason::Rate));
        assert_eq!(admission.live(), 1);
    }

    #[test]
    fn it_is_busy_for_a_moment_after_each_newcomer_and_while_a_wave_is_paid_for() {
        let admission = Admission::new(10, 50, 100);
        let start = Duration::from_secs(7);
        assert!(!admission.is_busy(Duration::ZERO) && !admission.is_busy(start));
        admission.take_token(start).unwrap();
        assert!(admission.is_busy(start));
        assert!(!admission.is_busy(start + Duration::from_millis(201)));
        for _ in 0..50 {
            admission.take_token(start + Duration::from_secs(1)).unwrap();
        }
        assert!(admission.is_busy(start + Duration::from_secs(6)));
        assert!(!admission.is_busy(start + Duration::from_millis(6_101)));
    }

    #[test]
    fn retry_after_keeps_to_its_range() {
        let (mut least, mut most) = (u32::MAX, 0);
        for _ in 0..2_000 {
            assert!((1..=30).contains(&retry_after_seconds(true)));
            let stranger = retry_after_seconds(false);
            assert!((30..=90).contains(&stranger));
            (least, most) = (least.min(stranger), most.max(stranger));
        }
        assert!(most - least > 40, "spread, so that a wave does not come back as a wave");
    }

    /// The textbook bucket: whole tokens, refilled by the time that went by.
    struct Bucket {
        /// In billionths of a token, so that nothing is rounded.
        parts: u128,
        at: u128,
    }

    impl Bucket {
        fn take(&mut self, now: u128, interval: u128, burst: u128) -> bool {
            self.parts = (self.parts + (now - self.at)).min(burst * interval);
            self.at = now;
            if self.parts >= interval {
                self.parts -= interval;
                true
            } else {
                false
            }
        }
    }

    proptest! {
        #[test]
        fn agrees_with_the_textbook_bucket(
            rate in 1_u32..50_000,
            burst in 1_u32..50,
            waits in proptest::collection::vec(0_u64..2_000_000_000, 1..200),
        ) {
            let admission = Admission::new(rate, burst, u32::MAX);
            let interval = u128::from(1_000_000_000 / rate);
            let mut bucket = Bucket { parts: u128::from(burst) * interval, at: 0 };
            let mut now = 0_u64;
            for wait in waits {
                now += wait >> (wait % 32);
                prop_assert_eq!(
                    admission.take_token(Duration::from_nanos(now)).is_ok(),
                    bucket.take(u128::from(now), interval, u128::from(burst))
                );
            }
        }
    }
}
