//! Values with units.

use std::time::Duration;

/// A duration in Go's form, such as `30s`, `1m30s`, `250ms` or `1h`; `0s` is one, `30` is not.
///
/// # Errors
///
/// Says what form is wanted.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wanted = || format!("'{text}' is not a duration such as 30s, 1m30s or 500ms");
    if text.starts_with('-') {
        return Err(format!("'{text}' is negative; {}", wanted()));
    }
    let mut rest = text;
    let mut total = Duration::ZERO;
    while !rest.is_empty() || text.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: u64 = rest[..digits].parse().map_err(|_| wanted())?;
        rest = &rest[digits..];
        let unit = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
        let part = match &rest[..unit] {
            "ms" => Some(Duration::from_millis(number)),
            "s" => Some(Duration::from_secs(number)),
            "m" => number.checked_mul(60).map(Duration::from_secs),
            "h" => number.checked_mul(3_600).map(Duration::from_secs),
            _ => return Err(wanted()),
        };
        rest = &rest[unit..];
        total = part
            .and_then(|part| total.checked_add(part))
            .filter(|total| *total <= DURATION_MAX)
            .ok_or_else(|| format!("'{text}' is longer than a year"))?;
    }
    Ok(total)
}

/// Past this a duration is a typing mistake, and deadlines could overflow.
const DURATION_MAX: Duration = Duration::from_secs(366 * 86_400);

/// A [`duration`] that is not zero.
///
/// # Errors
///
/// Says what form is wanted.
pub fn interval(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err(format!("'{text}' must be longer than zero")),
        some => Ok(some),
    }
}

/// A number of bytes, such as `65536`, `64KiB`, `64MiB` or `1GiB`.
///
/// # Errors
///
/// Says what form is wanted.
pub fn bytes(text: &str) -> Result<usize, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let shift = match &text[digits..] {
        "" => Some(0),
        "KiB" => Some(10),
        "MiB" => Some(20),
        "GiB" => Some(30),
        _ => None,
    };
    let number: Option<usize> = text[..digits].parse().ok();
    number
        .zip(shift)
        .and_then(|(number, shift)| number.checked_mul(1 << shift))
        .ok_or_else(|| format!("'{text}' is not a number of bytes such as 65536, 64KiB or 64MiB"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_carry_a_unit() {
        assert_eq!(duration("1h1m30s"), Ok(Duration::from_secs(3_690)));
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("0s"), Ok(Duration::ZERO));
        for bad in
            ["", "5", "s", "5x", "-5s", "5s5", "1.5s", "99999999999h", "99999999999999999999s", "é"]
        {
            assert!(duration(bad).is_err(), "{bad}");
        }
        assert!(interval("0s").is_err());
    }

    #[test]
    fn bytes_take_binary_units() {
        assert_eq!(bytes("65536"), Ok(65_536));
        assert_eq!(bytes("64MiB"), Ok(64 << 20));
        for bad in ["", "MiB", "64MB", "-1", "1.5MiB", "99999999999999999999", "99999999999999GiB"]
        {
            assert!(bytes(bad).is_err(), "{bad}");
        }
    }
}
