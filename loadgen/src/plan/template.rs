//! Attribute values with numbers in them: `bridge-{n}`.

use std::fmt::Write as _;

/// A text with placeholders: `{n}` is the collector's number within its group, `{i}` its number
/// among all; `{n%4}` and `{i%4}` are those modulo 4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Number { of_all: bool, modulo: Option<u32> },
}

impl Template {
    /// Takes a template apart.
    ///
    /// # Errors
    ///
    /// A brace that is not one of the placeholders.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let Some((name, after)) = after.split_once('}') else {
                return Err(format!("\"{{\" without \"}}\" in \"{text}\""));
            };
            if !before.is_empty() {
                parts.push(Part::Text(before.to_owned()));
            }
            let (name, modulo) = match name.split_once('%') {
                Some((name, modulo)) => {
                    let modulo = modulo.parse().ok().filter(|modulo| *modulo > 0);
                    (name, Some(modulo.ok_or_else(|| unknown(text))?))
                }
                None => (name, None),
            };
            let of_all = match name {
                "n" => false,
                "i" => true,
                _ => return Err(unknown(text)),
            };
            parts.push(Part::Number { of_all, modulo });
            rest = after;
        }
        if !rest.is_empty() || parts.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        Ok(Self(parts))
    }

    /// As [`Template::parse`], but a text with other braces stands for itself.
    pub(super) fn parse_or_literal(text: &str) -> Self {
        Self::parse(text).unwrap_or_else(|_| Self(vec![Part::Text(text.to_owned())]))
    }

    /// The text for one collector.
    pub fn fill(&self, number: u32, index: u32) -> String {
        const NUMBER_MAX: usize = 10; // digits of a `u32`
        let size = |part: &Part| match part {
            Part::Text(part) => part.len(),
            Part::Number { .. } => NUMBER_MAX,
        };
        let mut text = String::with_capacity(self.0.iter().map(size).sum());
        for part in &self.0 {
            match part {
                Part::Text(part) => text.push_str(part),
                Part::Number { of_all, modulo } => {
                    let value = if *of_all { index } else { number };
                    // Writing into a text does not fail.
                    let _ = write!(text, "{}", modulo.map_or(value, |modulo| value % modulo));
                }
            }
        }
        text
    }
}

fn unknown(text: &str) -> String {
    format!("unknown placeholder in \"{text}\": there are {{n}}, {{i}}, {{n%4}} and {{i%4}}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_filled() {
        let check = |text: &str, expected: &str| {
            assert_eq!(Template::parse(text).unwrap().fill(7, 31), expected);
        };
        check("plain", "plain");
        check("", "");
        check("bridge-{n}", "bridge-7");
        check("{i}-{n%4}-{i%10}!", "31-3-1!");
    }

    #[test]
    fn other_braces_are_refused() {
        for text in ["{x}", "{n", "{n%0}", "{n%}", "{}"] {
            assert!(Template::parse(text).is_err(), "{text}");
        }
    }
}
