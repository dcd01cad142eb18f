//! What a scalar means to the reader that matters: a collector.
//!
//! Collectors read YAML 1.2 with some of 1.1 left in it: `010` is eight, `1_000` a thousand,
//! `0b101` five, but `yes` and `12:30:45` are texts (estate.md, decision 5 and appendix B).

use super::{Scalar, Style};

/// The value of a scalar.
#[derive(Clone, Debug, PartialEq)]
pub enum Meaning {
    /// `~`, `null`, nothing.
    Null,
    /// `true`, `false` and their capitals.
    Bool(bool),
    /// Fits 64 bits, signed or unsigned.
    Int(i128),
    /// Everything else that is a number, `.inf` and `.nan` too.
    Float(f64),
    /// A text.
    Text(String),
    /// `!!binary` whose bytes are no UTF-8; the text is the base64.
    Binary(String),
}

/// What a collector makes of a scalar.
///
/// A tag that is neither YAML's own nor known makes a text, as does `!`. A tag that does not fit
/// (`!!bool yes`) makes a text too.
pub fn meaning(scalar: &Scalar) -> Meaning {
    let text = || Meaning::Text(scalar.text.clone());
    let tag = scalar.tag.as_deref().map(|tag| {
        tag.strip_prefix("tag:yaml.org,2002:").or_else(|| tag.strip_prefix("!!")).unwrap_or("!")
    });
    match tag {
        None if scalar.style == Style::Plain => plain(&scalar.text),
        Some("null") => Meaning::Null,
        Some("bool") => match plain(&scalar.text) {
            read @ Meaning::Bool(_) => read,
            Meaning::Null
            | Meaning::Int(_)
            | Meaning::Float(_)
            | Meaning::Text(_)
            | Meaning::Binary(_) => text(),
        },
        Some("int") => match plain(&scalar.text) {
            read @ Meaning::Int(_) => read,
            Meaning::Null
            | Meaning::Bool(_)
            | Meaning::Float(_)
            | Meaning::Text(_)
            | Meaning::Binary(_) => text(),
        },
        Some("float") => match plain(&scalar.text) {
            read @ Meaning::Float(_) => read,
            Meaning::Int(read) => Meaning::Float(read as f64),
            Meaning::Null | Meaning::Bool(_) | Meaning::Text(_) | Meaning::Binary(_) => text(),
        },
        Some("binary") => match decode_base64(&scalar.text).map(String::from_utf8) {
            Some(Ok(decoded)) => Meaning::Text(decoded),
            Some(Err(_)) => Meaning::Binary(scalar.text.split_whitespace().collect()),
            None => text(),
        },
        None | Some(_) => text(),
    }
}

/// A plain scalar without a tag.
fn plain(text: &str) -> Meaning {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Meaning::Null,
        "true" | "True" | "TRUE" => return Meaning::Bool(true),
        "false" | "False" | "FALSE" => return Meaning::Bool(false),
        ".nan" | ".NaN" | ".NAN" => return Meaning::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => {
            return Meaning::Float(f64::INFINITY);
        }
        "-.inf" | "-.Inf" | "-.INF" => return Meaning::Float(f64::NEG_INFINITY),
        _ => {}
    }
    let number = match text.as_bytes().first() {
        Some(b'.') => float(text),
        Some(b'+' | b'-' | b'0'..=b'9') => {
            let digits = text.replace('_', "");
            int(&digits).or_else(|| float(&digits))
        }
        Some(_) | None => None,
    };
    number.unwrap_or_else(|| Meaning::Text(text.to_owned()))
}

fn int(text: &str) -> Option<Meaning> {
    let (negative, magnitude) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let radix = |prefixes: [&str; 2]| {
        prefixes.into_iter().find_map(|prefix| magnitude.strip_prefix(prefix))
    };
    let (digits, base) = if let Some(digits) = radix(["0x", "0X"]) {
        (digits, 16)
    } else if let Some(digits) = radix(["0b", "0B"]) {
        (digits, 2)
    } else if let Some(digits) = radix(["0o", "0O"]) {
        (digits, 8)
    } else if magnitude.len() > 1 && magnitude.starts_with('0') {
        (&magnitude[1..], 8)
    } else {
        (magnitude, 10)
    };
    // `from_str_radix` would take a second sign.
    if !digits.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return None;
    }
    let value = i128::from(u64::from_str_radix(digits, base).ok()?);
    let value = if negative { -value } else { value };
    (value >= i128::from(i64::MIN)).then_some(Meaning::Int(value))
}

/// `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`, within the range of a double.
fn float(text: &str) -> Option<Meaning> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let mantissa_is_good = match mantissa.split_once('.') {
        Some((whole, fraction)) => {
            digits(whole) && digits(fraction) && !(whole.is_empty() && fraction.is_empty())
        }
        None => !mantissa.is_empty() && digits(mantissa),
    };
    let exponent_is_good = exponent.is_none_or(|exponent| {
        let exponent = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        !exponent.is_empty() && digits(exponent)
    });
    if !mantissa_is_good || !exponent_is_good {
        return None;
    }
    let value: f64 = text.parse().ok()?;
    value.is_finite().then_some(Meaning::Float(value))
}

fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut held, mut padding) = (0u32, 0u32, 0usize);
    let mut symbols = 0usize;
    for byte in text.bytes().filter(|byte| !byte.is_ascii_whitespace()) {
        symbols += 1;
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            b'=' => {
                padding += 1;
                continue;
            }
            _ => return None,
        };
        if padding > 0 {
            return None;
        }
        bits = (bits << 6) | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            out.push((bits >> held) as u8);
            bits &= (1 << held) - 1;
        }
    }
    (symbols.is_multiple_of(4) && padding <= 2).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: Meaning) {
        assert_eq!(plain(text), expect, "{text}");
    }

    #[test]
    fn plain_scalars_mean_what_a_collector_reads() {
        for text in ["", "~", "null", "NULL"] {
            check(text, Meaning::Null);
        }
        check("TRUE", Meaning::Bool(true));
        for text in ["yes", "on", "n", "tRUE", "12:30:45", "1:30", "2024-01-01", "0x", "+", "-"] {
            check(text, Meaning::Text(text.to_owned()));
        }
        for (text, value) in [
            ("010", 8),
            ("0x1F", 31),
            ("-0x1F", -31),
            ("0o17", 15),
            ("0b101", 5),
            ("1_000", 1000),
            ("+5", 5),
            ("-0", 0),
            ("18446744073709551615", i128::from(u64::MAX)),
            ("-9223372036854775808", i128::from(i64::MIN)),
        ] {
            check(text, Meaning::Int(value));
        }
        for (text, value) in [
            ("1e3", 1000.0),
            (".5", 0.5),
            ("-.5", -0.5),
            ("1.", 1.0),
            ("08", 8.0),
            ("1_0.5", 10.5),
            ("18446744073709551616", 18_446_744_073_709_551_616.0),
            (".inf", f64::INFINITY),
            ("-.INF", f64::NEG_INFINITY),
        ] {
            check(text, Meaning::Float(value));
        }
        for text in [".", "1e", "1e999", ".5_0", "--1", "+-1", "0x+1", "1.2.3", "e3", "_1"] {
            check(text, Meaning::Text(text.to_owned()));
        }
    }

    #[test]
    fn tags_decide_before_the_text_does() {
        let tagged = |tag: &str, text: &str, style| {
            meaning(&Scalar { text: text.to_owned(), style, tag: Some(tag.to_owned()) })
        };
        let text = |text: &str| Meaning::Text(text.to_owned());
        assert_eq!(tagged("!!str", "1", Style::Plain), text("1"));
        assert_eq!(tagged("!!int", "3", Style::DoubleQuoted), Meaning::Int(3));
        assert_eq!(tagged("!!float", "1", Style::Plain), Meaning::Float(1.0));
        assert_eq!(tagged("!x", "5", Style::Plain), text("5"));
        assert_eq!(tagged("!!bool", "yes", Style::Plain), text("yes"));
        assert_eq!(tagged("!!binary", "aGVs\n bG8=", Style::Plain), text("hello"));
        assert_eq!(tagged("!!binary", "/w==", Style::Plain), Meaning::Binary("/w==".to_owned()));
        assert_eq!(tagged("!!binary", "not base64", Style::Plain), text("not base64"));
    }
}
