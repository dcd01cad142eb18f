//! The only place that asks for the time; everything else takes it as an argument.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Whole seconds since the process started, counted from 1 so that 0 can mean "never".
///
/// Four bytes per link instead of sixteen; lasts 136 years.
pub type Seconds = u32;

/// One reading of the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Monotonic, for every interval.
    pub seconds: Seconds,
    /// Wall clock, milliseconds since 1970 (new instance uids, API answers); may jump.
    pub unix_ms: u64,
}

/// Reads the time. Copied freely; made once per process so that all [`Seconds`] share an origin.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// A clock whose first second begins now.
    #[expect(clippy::disallowed_methods, reason = "the clock module is where time is asked for")]
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }

    /// Both clocks.
    pub fn now(&self) -> Now {
        Now { seconds: self.seconds(), unix_ms: self.unix_ms() }
    }

    /// Whole seconds since the start, from 1.
    pub fn seconds(&self) -> Seconds {
        u32::try_from(self.elapsed().as_secs()).unwrap_or(u32::MAX - 1).saturating_add(1)
    }

    /// Time since the start, for latencies: subtract two of them.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Milliseconds since 1970; 0 on a machine whose clock stands before that.
    #[expect(clippy::disallowed_methods, reason = "the clock module is where time is asked for")]
    pub fn unix_ms(&self) -> u64 {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_start_at_one() {
        assert_eq!(Clock::start().seconds(), 1);
    }
}
