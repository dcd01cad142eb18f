//! What a collector says of an error, made fit to be stored, shown and committed.

use std::ops::Range;

/// Bytes of an error text that are kept.
pub const ERROR_BYTES_MAX: usize = 256;

/// Bytes of an error text that are looked at.
const READ_BYTES_MAX: usize = 4_096;

/// What stands for something hidden.
const HIDDEN: &str = "***";

/// Names, in lower case, whose values are hidden.
const SECRET_NAMES: [&str; 12] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "api_key",
    "api-key",
    "apikey",
    "access_key",
    "private_key",
    "credential",
    "authorization",
];

/// Words after which a secret follows without further sign.
const SCHEMES: [&str; 2] = ["bearer ", "basic "];

/// Letters and digits in one go, mixed, from this many on are taken for a key.
const KEY_LENGTH_MIN: usize = 24;

/// One line of at most [`ERROR_BYTES_MAX`] bytes without control characters and without what looks
/// like a secret: values after names such as `password` or `token`, what follows `Bearer`, a URL's
/// user and password, PEM blocks, and long runs of mixed letters and digits. A best effort: what
/// does not look like a secret is kept.
pub fn scrub(text: &str) -> String {
    let line = one_line(&text[..text.floor_char_boundary(READ_BYTES_MAX)]);
    let mut hidden = hide(&line);
    hidden.truncate(hidden.floor_char_boundary(ERROR_BYTES_MAX));
    hidden.truncate(hidden.trim_end().len());
    hidden
}

/// White space and control characters become single spaces.
fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for word in text.split(|c: char| c.is_whitespace() || c.is_control() || is_invisible(c)) {
        if !word.is_empty() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    line
}

/// Characters that reorder or hide text around them.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

fn hide(line: &str) -> String {
    // ASCII only, so that places in both are the same.
    let lower = line.to_ascii_lowercase();
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for name in SECRET_NAMES {
        ranges.extend(places(&lower, name).filter_map(|at| value_of(&lower, at + name.len())));
    }
    for scheme in SCHEMES {
        ranges.extend(places(&lower, scheme).map(|at| value_at(&lower, at + scheme.len())));
    }
    ranges.extend(places(&lower, "://").filter_map(|at| userinfo(&lower, at + 3)));
    ranges.extend(places(&lower, "-----begin").map(|at| pem(&lower, at)));
    ranges.extend(keys(line));
    ranges.retain(|range| !range.is_empty());
    ranges.sort_unstable_by_key(|range| range.start);

    let mut text = String::with_capacity(line.len());
    let mut done = 0;
    for range in ranges {
        if range.start >= done {
            text.push_str(&line[done..range.start]);
            text.push_str(HIDDEN);
        }
        done = done.max(range.end);
    }
    text.push_str(&line[done..]);
    text
}

fn places<'l>(line: &'l str, what: &'l str) -> impl Iterator<Item = usize> + 'l {
    line.match_indices(what).map(|(at, _)| at)
}

/// The value that follows a name which ends before `at`, when one does: `name=value`,
/// `"name": "value"`, `name: bearer value`.
fn value_of(line: &str, at: usize) -> Option<Range<usize>> {
    let rest = &line[at..];
    let rest = rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || "_-".contains(c));
    let rest = rest.trim_start_matches(['"', '\'', '\\', ' ']);
    let rest = rest.strip_prefix(['=', ':'])?.trim_start_matches(['\\', ' ']);
    if let Some(quote) = rest.chars().next().filter(|first| matches!(first, '"' | '\'')) {
        let at = line.len() - rest.len() + 1;
        return Some(at..line[at..].find(quote).map_or(line.len(), |length| at + length));
    }
    let mut rest = rest;
    for scheme in SCHEMES {
        rest = rest.strip_prefix(scheme).unwrap_or(rest);
    }
    Some(value_at(line, line.len() - rest.len()))
}

fn value_at(line: &str, at: usize) -> Range<usize> {
    let ends = |c: char| c.is_whitespace() || "\"'\\,;&)}]".contains(c);
    at..line[at..].find(ends).map_or(line.len(), |length| at + length)
}

/// `user:password` of a URL whose authority begins at `at`.
fn userinfo(line: &str, at: usize) -> Option<Range<usize>> {
    let ends = |c: char| c.is_whitespace() || "/\"'".contains(c);
    let authority = &line[at..];
    let authority = &authority[..authority.find(ends).unwrap_or(authority.len())];
    authority.rfind('@').map(|length| at..at + length)
}

fn pem(line: &str, at: usize) -> Range<usize> {
    const END: &str = "-----end";
    let end = line[at..].find(END).map_or(line.len(), |end| {
        let after = at + end + END.len();
        line[after..].find("-----").map_or(line.len(), |end| after + end + 5)
    });
    at..end
}

/// Long runs of mixed letters and digits.
fn keys(line: &str) -> impl Iterator<Item = Range<usize>> + '_ {
    let mut at = 0;
    line.split(|c: char| !c.is_ascii_alphanumeric()).filter_map(move |run| {
        // Runs end at one character; `split` gives slices of `line`, so their place is known.
        let start = line[at..].find(run).map_or(at, |found| at + found);
        at = start + run.len();
        let mixed =
            run.bytes().any(|b| b.is_ascii_digit()) && run.bytes().any(|b| b.is_ascii_alphabetic());
        (run.len() >= KEY_LENGTH_MIN && mixed).then_some(start..at)
    })
}
