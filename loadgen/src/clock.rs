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

    /// The same clock once so much more time has gone by.
    #[cfg(test)]
    pub(crate) fn later(self, by: Duration) -> Self {
        Self { start: self.start.checked_sub(by).unwrap() }
    }

    /// Microseconds since [`Clock::start`].
    pub fn now(&self) -> Micros {
        micros(self.start.elapsed())
    }

    /// Nanoseconds since [`Clock::start`], for what takes some microseconds.
    pub fn nanos(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// What this clock shows at a time in microseconds since the Unix epoch, before or after now.
    pub fn at_unix_us(&self, unix_us: u64) -> Micros {
        let (now, unix_now) = (self.now(), Self::unix_us());
        let (gone, to_come) = (unix_now.saturating_sub(unix_us), unix_us.saturating_sub(unix_now));
        now.saturating_sub(gone).saturating_add(to_come)
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
