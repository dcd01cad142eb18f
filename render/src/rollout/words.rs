//! Times as verdicts, reports and every answer write them.

use std::fmt::Write as _;

use super::evidence::Millis;

/// A span as Rollout files write it: `24h`, `1h30m`, `1m30s`, `500ms`, `0s`.
pub fn span(ms: Millis) -> String {
    let mut text = String::new();
    let mut rest = ms;
    for (unit, size) in [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)] {
        if rest >= size {
            // Writing to a String cannot fail.
            let _ = write!(text, "{}{unit}", rest / size);
            rest %= size;
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

/// A moment as RFC 3339 in UTC, to the second: `2026-10-01T12:30:00Z`.
pub fn moment(ms: Millis) -> String {
    let seconds = ms / 1_000;
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Year, month and day of a day since 1970-01-01 (Howard Hinnant's `civil_from_days`).
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_read_as_they_are_authored() {
        for (ms, text) in [
            (0, "0s"),
            (1, "1ms"),
            (90_000, "1m30s"),
            (5_400_000, "1h30m"),
            (86_400_000, "24h"),
            (3_600_500, "1h500ms"),
        ] {
            assert_eq!(span(ms), text);
        }
    }

    #[test]
    fn moments_know_leap_days() {
        assert_eq!(moment(0), "1970-01-01T00:00:00Z");
        assert_eq!(moment(951_782_399_999), "2000-02-28T23:59:59Z");
        assert_eq!(moment(951_782_400_000), "2000-02-29T00:00:00Z");
        assert_eq!(moment(1_709_251_199_999), "2024-02-29T23:59:59Z");
        assert_eq!(moment(4_107_542_400_000), "2100-03-01T00:00:00Z");
        assert!(moment(u64::MAX).ends_with('Z'), "any number is some moment");
    }
}
