//! The one place of this crate that asks for the time.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Microseconds since the start of a run: the time argument of everything sans-IO here.
pub type Micros = u64;

/// A run's clock. Copied freely; all copies agree.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// Starts at zero.
    #[expect(clippy::disallowed_methods, reason = "this is the clock module")]
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }

    /// Microseconds since [`Clock::start`].
    pub fn now(&self) -> Micros {
        micros(self.start.elapsed())
    }

    /// Milliseconds since the Unix epoch, for version 7 uids and health timestamps.
    pub fn unix_ms() -> u64 {
        Self::unix_us() / 1_000
    }

    /// Microseconds since the Unix epoch, for what several processes compare.
    #[expect(clippy::disallowed_methods, reason = "this is the clock module")]
    pub fn unix_us() -> u64 {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
    }
}

/// A duration in the unit of [`Micros`]; saturates after half a million years.
pub fn micros(duration: Duration) -> Micros {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
