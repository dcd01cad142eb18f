//! When a certificate ends: the one date that an alert needs, without a parser for all of X.509.

/// Seconds since 1970 of the `notAfter` in a DER certificate; `None` where the structure is not
/// what RFC 5280 (section 4.1) says.
pub fn not_after(certificate: &[u8]) -> Option<i64> {
    let (SEQUENCE, certificate, _) = element(certificate)? else { return None };
    let (SEQUENCE, mut rest, _) = element(certificate)? else { return None };
    // [0] version (optional), serialNumber, signature, issuer, then validity.
    if let (VERSION, _, after) = element(rest)? {
        rest = after;
    }
    for _ in ["serialNumber", "signature", "issuer"] {
        (_, _, rest) = element(rest)?;
    }
    let (SEQUENCE, validity, _) = element(rest)? else { return None };
    let (_, _, after_begin) = element(validity)?;
    let (tag, text, _) = element(after_begin)?;
    let text = std::str::from_utf8(text).ok()?;
    match tag {
        // Two digits: 1950 to 2049 (RFC 5280, 4.1.2.5.1).
        UTC_TIME => {
            let short: i64 = text.get(..2)?.parse().ok()?;
            seconds(if short < 50 { 2000 + short } else { 1900 + short }, text.get(2..)?)
        }
        GENERALISED_TIME => seconds(text.get(..4)?.parse().ok()?, text.get(4..)?),
        _ => None,
    }
}

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALISED_TIME: u8 = 0x18;

/// Tag, contents and what follows of the first DER element.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
        if digits.len() > 4 {
            return None;
        }
        (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
    };
    let (contents, rest) = rest.split_at_checked(length)?;
    Some((tag, contents, rest))
}

/// `MMDDhhmmssZ` of a year, as seconds since 1970.
fn seconds(year: i64, text: &str) -> Option<i64> {
    let part = |at: usize| text.get(at..at + 2)?.parse::<i64>().ok();
    let (month, day) = (part(0)?, part(2)?);
    let (hour, minute, second) = (part(4)?, part(6)?, part(8)?);
    let in_range = (1..=12).contains(&month) && (1..=31).contains(&day) && hour < 24;
    if !in_range || minute > 59 || second > 60 || text.get(10..)? != "Z" {
        return None;
    }
    // Days from civil, years beginning in March.
    let shifted = year - i64::from(month <= 2);
    let era = shifted.div_euclid(400);
    let of_era = shifted.rem_euclid(400);
    let of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    Some(days * 86_400 + hour * 3_600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn both_forms_of_a_date_are_read() {
        assert_eq!(seconds(1970, "0101000000Z"), Some(0));
        assert_eq!(seconds(2000, "0229235959Z"), Some(951_868_799));
        assert_eq!(seconds(2000, "0229235959"), None);
        assert_eq!(seconds(2000, "1329235959Z"), None);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            not_after(&bytes);
        }
    }
}
