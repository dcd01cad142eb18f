//! Go's duration syntax (estate.md 1.10): `1h30m`, `1.5h`, `300ms`, `0`.

use std::time::Duration;

/// The largest that Go can hold, in nanoseconds (2^63); about 292 years.
const MAX_NANOS: u64 = 1 << 63;

/// Reads a duration as Go's `time.ParseDuration` does, and refuses a negative one.
///
/// # Errors
///
/// What is wrong, as a clause that follows the text.
pub(crate) fn parse(text: &str) -> Result<Duration, &'static str> {
    const TOO_LONG: &str = "is longer than 292 years";
    let (negative, mut rest) = match text.strip_prefix(['-', '+']) {
        Some(rest) => (text.starts_with('-'), rest),
        None => (false, text),
    };
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err("is empty");
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (whole, after) = digits(rest);
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => digits(after),
            None => ("", after),
        };
        if whole.is_empty() && fraction.is_empty() {
            return Err("lacks a number");
        }
        let end = after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let unit: u64 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            "" => return Err("lacks a unit"),
            _ => return Err("has an unknown unit"),
        };
        let whole = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| TOO_LONG)? };
        total = unit
            .checked_mul(whole)
            .and_then(|nanos| nanos.checked_add(fraction_of(fraction, unit)))
            .and_then(|nanos| total.checked_add(nanos))
            .filter(|&total| total <= MAX_NANOS)
            .ok_or(TOO_LONG)?;
        rest = after;
    }
    if negative && total > 0 {
        return Err("is negative");
    }
    // 2^63 itself is only a number when it is negative.
    if total == MAX_NANOS { Err(TOO_LONG) } else { Ok(Duration::from_nanos(total)) }
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// `0.<digits>` of a unit, cut to whole nanoseconds. Digits past the eighteenth cannot matter.
fn fraction_of(digits: &str, unit: u64) -> u64 {
    let mut nanos: u128 = 0;
    let mut scale: u128 = 1;
    for digit in digits.bytes().take(18) {
        nanos = nanos * 10 + u128::from(digit - b'0');
        scale *= 10;
    }
    u64::try_from(nanos * u128::from(unit) / scale).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_read_as_go_reads_them() {
        for (text, nanos) in [
            ("24h", 86_400_000_000_000),
            ("90m", 5_400_000_000_000),
            ("1h30m", 5_400_000_000_000),
            ("1.5h", 5_400_000_000_000),
            (".5h", 1_800_000_000_000),
            ("1.h", 3_600_000_000_000),
            ("300ms", 300_000_000),
            ("+5m", 300_000_000_000),
            ("5us", 5_000),
            ("5µs", 5_000),
            ("5μs", 5_000),
            ("5ns", 5),
            ("0", 0),
            ("-0", 0),
            ("+0", 0),
            ("0s", 0),
            ("-0s", 0),
            ("0.3333333333333333333h", 1_199_999_999_999),
            ("9223372036854775807ns", i64::MAX as u64),
            ("1s1s", 2_000_000_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_nanos(nanos)), "{text}");
        }
        for text in [
            "",
            "-",
            "+",
            "2d",
            "10",
            "-5m",
            "5M",
            "1h 30m",
            " 1h",
            "1h ",
            "1e3s",
            "9999999h",
            "true",
            ".",
            ".s",
            "1",
            "1.5",
            "h",
            "--5m",
            "9223372036854775808ns",
            "1..5h",
            "5 m",
            "١h",
            "3000000h3000000h",
            "18446744073709551.999us",
            "9223372036854775807.9ns9223372036854775807ns",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[-+]?[0-9.]{0,25}(ns|us|ms|s|m|h|é)?[0-9hms.]{0,6}") {
            let _ = parse(&text);
        }

        #[test]
        fn whole_parts_add_up(h in 0..1000u64, m in 0..1000u64, ms in 0..1_000_000u64) {
            let expected = Duration::from_secs(h * 3600 + m * 60) + Duration::from_millis(ms);
            prop_assert_eq!(parse(&format!("{h}h{m}m{ms}ms")), Ok(expected));
        }
    }
}
