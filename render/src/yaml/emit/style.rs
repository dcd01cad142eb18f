//! Which texts need quotes, and which.

/// How a text of one line is written.
pub(super) enum TextStyle {
    Plain,
    Single,
    Double,
}

/// Double quotes where there is something to escape or where a reader might find more than a
/// text; single quotes where plain would break the syntax.
pub(super) fn style(text: &str) -> TextStyle {
    if !text.chars().all(is_printable) || looks_typed(text) {
        return TextStyle::Double;
    }
    let indicator = |c: char| "-?:,[]{}#&*!|>'\"%@`".contains(c);
    let needs_quotes = text.starts_with(|c: char| indicator(c) || c == ' ')
        || text.ends_with([' ', ':'])
        || text.contains(": ")
        || text.contains(" #")
        || text.starts_with("...");
    if needs_quotes { TextStyle::Single } else { TextStyle::Plain }
}

/// Whether some reader of YAML 1.1 or 1.2 might take the plain text for anything but a text.
/// Errs on the side of quotes.
fn looks_typed(text: &str) -> bool {
    const WORDS: [&str; 14] =
        ["", "~", "null", "true", "false", "yes", "no", "on", "off", "y", "n", "=", "<<", ".nan"];
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    WORDS.iter().any(|word| text.eq_ignore_ascii_case(word))
        || unsigned.eq_ignore_ascii_case(".inf")
        || is_prefixed_int(unsigned)
        || is_decimal(unsigned)
        || is_sexagesimal(unsigned)
        || is_date(text)
}

fn is_prefixed_int(unsigned: &str) -> bool {
    let bytes = unsigned.as_bytes();
    bytes.len() > 2
        && bytes[0] == b'0'
        && matches!(bytes[1], b'x' | b'X' | b'o' | b'O' | b'b' | b'B')
        && bytes[2..].iter().all(|byte| byte.is_ascii_hexdigit() || matches!(byte, b'_' | b','))
}

/// Digits with `_` or `,` among them, at most one dot, maybe an exponent.
fn is_decimal(unsigned: &str) -> bool {
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let digits =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'_' | b','));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    mantissa.bytes().any(|byte| byte.is_ascii_digit())
        && digits(whole)
        && digits(fraction)
        && exponent.is_none_or(|e| digits(e.strip_prefix(['-', '+']).unwrap_or(e)))
}

/// `1:30`, `12:30:45.5`: digits, then parts of at most two digits, the last maybe with a fraction.
fn is_sexagesimal(unsigned: &str) -> bool {
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_');
    let mut parts = unsigned.split(':');
    let whole = parts.next().is_some_and(|part| !part.is_empty() && digits(part));
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return false };
    let (last, fraction) = last.split_once('.').unwrap_or((last, ""));
    let is_part = |part: &str| matches!(part.len(), 1 | 2) && digits(part);
    whole && middle.iter().all(|part| is_part(part)) && is_part(last) && digits(fraction)
}

/// `2024-01-01` and all that begins like it.
fn is_date(text: &str) -> bool {
    let mut parts = text.splitn(3, '-');
    let number = |part: Option<&str>, lengths: std::ops::RangeInclusive<usize>| {
        part.is_some_and(|part| {
            lengths.contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit())
        })
    };
    number(parts.next(), 4..=4)
        && number(parts.next(), 1..=2)
        && parts.next().is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// Whether a text of several lines can stand in a literal block and come out whole in any reader.
pub(super) fn is_literal(text: &str) -> bool {
    text.contains('\n')
        && text.chars().all(|c| c == '\n' || is_printable(c))
        // Lines of blanks only, and a block of nothing else, are read differently by readers.
        && text.split('\n').all(|line| line.is_empty() || !line.trim_matches(' ').is_empty())
        && text.chars().any(|c| c != '\n')
}

/// Printable in YAML 1.1 and 1.2 alike, and neither a line break nor a tab in any of them.
pub(crate) fn is_printable(c: char) -> bool {
    matches!(c, ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}')
        && !matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}')
}
