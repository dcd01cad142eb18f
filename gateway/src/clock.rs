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

/// `unix_ms` as RFC 3339 in UTC with whole seconds, such as `2026-03-01T12:00:00Z`.
pub fn rfc3339(unix_ms: u64) -> String {
    let seconds = unix_ms / 1_000;
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
        rest / 3_600,
        rest / 60 % 60,
        rest % 60
    )
}

/// Days since 1970-01-01 to year, month, day (proleptic Gregorian; years begin in March inside).
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let of_era = shifted % 146_097;
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_start_at_one() {
        assert_eq!(Clock::start().seconds(), 1);
    }

    #[test]
    fn rfc3339_knows_leap_days_and_centuries() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(951_782_400_000), "2000-02-29T00:00:00Z");
        assert_eq!(rfc3339(1_709_251_199_999), "2024-02-29T23:59:59Z");
        assert_eq!(rfc3339(4_107_542_400_000), "2100-03-01T00:00:00Z");
    }
}
