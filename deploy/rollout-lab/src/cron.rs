//! Five-field cron expressions of the baseline's dialect.
//!
//! No cron library reads this dialect: all five fields must match (no either-or of the two day
//! fields), only numbers are names, the week has days 0 to 6, and a single value with a step is just
//! that value. A parser that allowed more would open windows that the baseline keeps closed.

use jiff::civil::DateTime;

use crate::error::Error;

/// Bytes of an expression.
const EXPRESSION_BYTES_MAX: usize = 1024;

/// Name, least and greatest value of each field.
const FIELDS: [(&str, u8, u8); 5] = [
    ("minute", 0, 59),
    ("hour", 0, 23),
    ("day of month", 1, 31),
    ("month", 1, 12),
    ("weekday", 0, 6),
];

/// The minutes that an expression names: one bit for each value of each field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cron([u64; 5]);

impl Cron {
    /// Reads an expression.
    ///
    /// # Errors
    /// [`Error::InvalidState`], which names the field.
    pub fn parse(text: &str) -> Result<Self, Error> {
        if text.len() > EXPRESSION_BYTES_MAX {
            return Err(Error::invalid("cron expression longer than 1024 bytes"));
        }
        let mut fields = text.split_whitespace();
        let mut bits = [0; 5];
        for (slot, (name, least, most)) in bits.iter_mut().zip(FIELDS) {
            let field = fields.next().ok_or_else(|| {
                Error::invalid(format!("cron {text:?} has fewer than five fields"))
            })?;
            *slot = field_bits(field, least, most)
                .ok_or_else(|| Error::invalid(format!("cron {text:?}: bad {name} {field:?}")))?;
        }
        if fields.next().is_some() {
            return Err(Error::invalid(format!("cron {text:?} has more than five fields")));
        }
        Ok(Self(bits))
    }

    /// Whether the minute that `at` lies in is named. All five fields must match.
    pub fn matches(&self, at: DateTime) -> bool {
        let values =
            [at.minute(), at.hour(), at.day(), at.month(), at.weekday().to_sunday_zero_offset()];
        self.0
            .iter()
            .zip(values)
            .all(|(bits, value)| u8::try_from(value).is_ok_and(|value| bits & 1 << value != 0))
    }
}

fn field_bits(field: &str, least: u8, most: u8) -> Option<u64> {
    field.split(',').try_fold(0, |bits, part| Some(bits | part_bits(part, least, most)?))
}

fn part_bits(part: &str, least: u8, most: u8) -> Option<u64> {
    let (range, step) = match part.split_once('/') {
        Some((range, step)) => (range, number(step)?),
        None => (part, 1),
    };
    let (from, to) = if range == "*" {
        (least, most)
    } else if let Some((from, to)) = range.split_once('-') {
        (number(from)?, number(to)?)
    } else {
        let value = number(range)?;
        (value, value)
    };
    if step == 0 || from < least || to > most || from > to {
        return None;
    }
    Some((from..=to).step_by(usize::from(step)).fold(0, |bits, value| bits | 1 << value))
}

fn number(text: &str) -> Option<u8> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::*;

    fn matches(text: &str, at: DateTime) -> bool {
        Cron::parse(text).unwrap().matches(at)
    }

    #[test]
    fn lists_ranges_and_steps() {
        let at = |minute| date(2026, 3, 4).at(5, minute, 59, 0);
        let named = |text: &str| -> Vec<i8> {
            (0..60).filter(|minute| matches(text, at(*minute))).collect()
        };
        assert_eq!(named("*/20 * * * *"), [0, 20, 40]);
        assert_eq!(named("3,10-16/3 * * * *"), [3, 10, 13, 16]);
        assert_eq!(named("7/5 * * * *"), [7], "a single value with a step is that value");
        assert_eq!(named("0 6 * * *"), [0; 0]);
    }

    #[test]
    fn both_day_fields_must_match() {
        let noon = |month, day| date(2026, month, day).at(2, 0, 0, 0);
        assert!(matches("0 2 13 * 5", noon(2, 13)), "a Friday");
        assert!(!matches("0 2 13 * 5", noon(1, 13)), "a Tuesday");
        assert!(!matches("0 2 13 * 5", noon(2, 20)), "a Friday, the 20th");
    }

    #[test]
    fn what_the_dialect_does_not_know_is_refused() {
        for text in [
            "60 * * * *",
            "* * * *",
            "* * * * 7",
            "* * * * * *",
            "",
            "a * * * *",
            "* * * JAN *",
            "*/0 * * * *",
            "5-3 * * * *",
            "-1 * * * *",
            "1-2-3 * * * *",
            "* * 0 * *",
            ", * * * *",
            "+1 * * * *",
            "300 * * * *",
            "1/2/3 * * * *",
        ] {
            assert!(Cron::parse(text).is_err(), "{text:?}");
        }
    }
}
