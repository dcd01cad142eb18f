//! How a replica leaves: readiness first, then the listener, then its links, one by one
//! (spec/serving.md 14).
//!
//! Collectors whose link is closed reconnect at once to whatever answers, so links are closed in a
//! paced, jittered stream: the other replicas see a trickle, not a wave.

use std::time::Duration;

use tokio::sync::watch;

/// Where a replica stands on its way out. It only moves forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// In service.
    Serving,
    /// `/readyz` fails, so that balancers look elsewhere; who comes all the same is served.
    Leaving,
    /// The listener is closed; links are being closed.
    Draining,
    /// No link is left, or the time is up.
    Drained,
}

/// The phase, for everybody who has to act on it.
#[derive(Clone, Debug)]
pub struct Drain {
    phase: watch::Sender<Phase>,
}

impl Default for Drain {
    fn default() -> Self {
        Self::new()
    }
}

impl Drain {
    /// In service.
    pub fn new() -> Self {
        Self { phase: watch::Sender::new(Phase::Serving) }
    }

    /// Where the replica stands now. `/readyz` is fine only at [`Phase::Serving`].
    pub fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Moves on to `phase`; never back.
    pub fn advance(&self, phase: Phase) {
        self.phase.send_if_modified(|now| {
            let later = phase > *now;
            if later {
                *now = phase;
            }
            later
        });
    }

    /// Waits until `phase` is reached or passed.
    pub async fn reached(&self, phase: Phase) {
        let mut watch = self.phase.subscribe();
        // The sender lives in `self`, so the wait cannot end for want of one.
        let _ = watch.wait_for(|now| *now >= phase).await;
    }
}

/// When each of `links` links is closed, counted from the start of the drain: evenly over `over`,
/// each somewhere in its own share. `draw` gives a number in 0..1 for each.
pub fn schedule(
    links: usize,
    over: Duration,
    mut draw: impl FnMut() -> f64,
) -> impl Iterator<Item = Duration> {
    let share = over.div_f64(links.max(1) as f64);
    (0..links).map(move |index| share.mul_f64(index as f64 + draw()))
}

/// How long it is until `at` when `since` has passed; `None` from `at` on.
///
/// One reading of the clock answers both whether to wait and how long: of two, the second may lie
/// past `at`.
pub fn left(at: Duration, since: Duration) -> Option<Duration> {
    at.checked_sub(since).filter(|left| !left.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_never_goes_back() {
        let drain = Drain::new();
        drain.advance(Phase::Draining);
        drain.advance(Phase::Leaving);
        assert_eq!(drain.phase(), Phase::Draining);
    }

    #[tokio::test]
    async fn a_phase_that_was_passed_counts_as_reached() {
        let drain = Drain::new();
        let waiting = tokio::spawn({
            let drain = drain.clone();
            async move { drain.reached(Phase::Leaving).await }
        });
        drain.advance(Phase::Drained);
        waiting.await.unwrap();
    }

    #[test]
    fn closes_are_spread_evenly_and_jittered_within_their_share() {
        let over = Duration::from_secs(30);
        let mut draws = [0.0, 0.5, 0.999].into_iter().cycle();
        let times: Vec<_> = schedule(300, over, || draws.next().unwrap()).collect();
        assert_eq!(times.len(), 300);
        for (index, time) in times.iter().enumerate() {
            let share = Duration::from_millis(100);
            let from = share * u32::try_from(index).unwrap();
            assert!(*time >= from && *time < from + share, "{index}: {time:?}");
        }
        assert!(times.is_sorted());
        assert!(times[299] < over);
    }

    #[test]
    fn nothing_is_left_of_a_time_that_has_come_or_has_passed() {
        let ms = Duration::from_millis;
        assert_eq!(left(ms(5), ms(4)), Some(ms(1)));
        assert_eq!(left(ms(5), ms(5)), None);
        assert_eq!(left(ms(5), ms(6)), None);
    }

    #[test]
    fn nobody_to_close_takes_no_time() {
        assert_eq!(schedule(0, Duration::from_secs(30), || 0.0).count(), 0);
    }
}
