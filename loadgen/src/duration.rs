//! Durations as people write them: `500ms`, `30s`, `1m30s`, `2h`, `0`.

use std::time::Duration;

/// Reads one.
///
/// # Errors
///
/// A sentence that says what was expected.
pub fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || {
        format!(
            "\"{text}\" is not a duration: write a number and a unit, such as 500ms, 30s, 2m or 1h"
        )
    };
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit()).ok_or_else(wrong)?;
        let number: u64 = rest[..digits].parse().map_err(|_| wrong())?;
        rest = &rest[digits..];
        let letters = rest.find(|letter: char| letter.is_ascii_digit()).unwrap_or(rest.len());
        let millis = match &rest[..letters] {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return Err(wrong()),
        };
        rest = &rest[letters..];
        let part = number.checked_mul(millis).ok_or_else(wrong)?;
        total = total.checked_add(Duration::from_millis(part)).ok_or_else(wrong)?;
    }
    if text.is_empty() { Err(wrong()) } else { Ok(total) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_written() {
        for (text, millis) in
            [("0", 0), ("0s", 0), ("500ms", 500), ("1m30s", 90_000), ("2h", 7_200_000)]
        {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "5", "s", "1d", "-1s", "1 s", "99999999999999999999s", "1s1"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
