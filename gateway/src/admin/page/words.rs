//! Numbers, ages and moments as people read them.

use render::rollout::words::moment;

use super::html::Html;

/// A number in groups of three: `12,345`.
pub(super) fn number(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 collector`, `12 collectors`.
pub(super) fn count(n: u64, one: &str, many: &str) -> String {
    format!("{} {}", number(n), if n == 1 { one } else { many })
}

/// How long something takes, in its two largest units: `3 hours 5 minutes`, `12 seconds`.
pub(super) fn duration(ms: u64) -> String {
    let seconds = ms / 1_000;
    let units = [
        ("day", seconds / 86_400),
        ("hour", seconds / 3_600 % 24),
        ("minute", seconds / 60 % 60),
        ("second", seconds % 60),
    ];
    let largest = units.iter().position(|(_, n)| *n > 0).unwrap_or(units.len() - 1);
    let shown = units.iter().skip(largest).take(2).filter(|(_, n)| *n > 0);
    let mut text = String::new();
    for (unit, n) in shown {
        let gap = if text.is_empty() { "" } else { " " };
        let plural = if *n == 1 { "" } else { "s" };
        text.push_str(&format!("{gap}{} {unit}{plural}", number(*n)));
    }
    if text.is_empty() { "0 seconds".to_owned() } else { text }
}

/// How long ago: `12 seconds ago`, `just now`.
pub(super) fn ago(ms: u64) -> String {
    if ms < 1_000 { "just now".to_owned() } else { format!("{} ago", duration(ms)) }
}

/// A moment with its age for people and itself for programs.
pub(super) fn since(h: &mut Html, at_ms: u64, now_ms: u64) {
    time(h, at_ms, &ago(now_ms.saturating_sub(at_ms)));
}

/// A moment in words of the caller's.
pub(super) fn time(h: &mut Html, at_ms: u64, words: &str) {
    let exact = moment(at_ms);
    h.line("time", &[("datetime", &exact), ("title", &exact)], words);
}

/// The first 12 characters of a hash; `(unknown)` for none.
pub(super) fn short(hash: &str) -> String {
    if hash.is_empty() { "(unknown)".to_owned() } else { hash.chars().take(12).collect() }
}

/// `part` of `whole` in thousandths, at most 1,000; 0 of 0 is 0.
pub(super) fn thousandths(part: u64, whole: u64) -> u64 {
    let share = (u128::from(part) * 1_000).checked_div(u128::from(whole)).unwrap_or(0);
    u64::try_from(share).unwrap_or(u64::MAX).min(1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_words_in_two_units() {
        for (ms, text) in [
            (0, "0 seconds"),
            (1_999, "1 second"),
            (61_000, "1 minute 1 second"),
            (3_600_000, "1 hour"),
            (3_601_000, "1 hour"),
            (11_100_000, "3 hours 5 minutes"),
            (90_061_000, "1 day 1 hour"),
            (u64::MAX, "213,503,982,334 days 14 hours"),
        ] {
            assert_eq!(duration(ms), text);
        }
        assert_eq!(ago(999), "just now");
        assert_eq!(ago(2_000), "2 seconds ago");
    }

    #[test]
    fn numbers_are_grouped() {
        for (n, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(number(n), text);
        }
        assert_eq!(count(1, "collector", "collectors"), "1 collector");
        assert_eq!(count(0, "collector", "collectors"), "0 collectors");
        assert_eq!((thousandths(1, 3), thousandths(0, 0), thousandths(9, 3)), (333, 0, 1_000));
    }
}
