//! Our own YAML emitter: its bytes are a contract.
//!
//! Block style, two spaces, sequences indented under their key, nothing ever folded. A scalar is
//! written so that a YAML 1.1 reader and a YAML 1.2 reader both find what a collector would have
//! read in the authored file ([`meaning`]); where that is possible, as the text that was authored
//! (estate.md, decision 5).

mod style;

use std::borrow::Cow;
use std::fmt::Write as _;

pub(crate) use self::style::is_printable;
use self::style::{TextStyle, is_literal, style};
use super::meaning::{Meaning, meaning};
use super::{Node, Scalar, Value};

/// A document to be written. Mappings are written in the order given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Out<'a> {
    /// A text, quoted only where it must be.
    Text(Cow<'a, str>),
    /// A text in double quotes, whatever it is.
    Quoted(Cow<'a, str>),
    /// Written as it is: `null`, `true`, a number.
    Plain(Cow<'a, str>),
    /// In order.
    Sequence(Vec<Self>),
    /// Key (a scalar) to value, in order.
    Mapping(Vec<(Self, Self)>),
}

impl<'a> Out<'a> {
    /// A mapping with text keys.
    pub fn mapping<const N: usize>(entries: [(&'a str, Self); N]) -> Self {
        Self::Mapping(entries.into_iter().map(|(key, value)| (Self::text(key), value)).collect())
    }

    /// A text.
    pub fn text(text: impl Into<Cow<'a, str>>) -> Self {
        Self::Text(text.into())
    }

    /// An authored node: scalars keep their meaning, mapping keys are sorted by bytes.
    pub fn from_node(node: &'a Node) -> Self {
        match &node.value {
            Value::Scalar(scalar) => scalar_out(scalar),
            Value::Sequence(items) => Self::Sequence(items.iter().map(Self::from_node).collect()),
            Value::Mapping(entries) => Self::Mapping(sorted(entries, scalar_out)),
        }
    }

    /// The body of a Component: as [`Self::from_node`], but its own keys are texts whatever they
    /// look like (a collector's sections have text keys only).
    pub fn from_config(node: &'a Node) -> Self {
        match &node.value {
            Value::Mapping(entries) => {
                Self::Mapping(sorted(entries, |key| Self::text(key.text.as_str())))
            }
            Value::Scalar(_) | Value::Sequence(_) => Self::from_node(node),
        }
    }
}

/// The document as YAML, with one newline at its end.
pub fn emit(document: &Out<'_>) -> String {
    let mut writer = Writer { out: String::new() };
    match document {
        Out::Mapping(entries) if !entries.is_empty() => writer.mapping(entries, 0, true),
        Out::Sequence(items) if !items.is_empty() => writer.sequence(items, 0, true),
        // A literal block at the root has no parent to be indented under.
        Out::Text(text) if text.contains('\n') => {
            writer.double_quoted(text);
            writer.out.push('\n');
        }
        Out::Text(_) | Out::Quoted(_) | Out::Plain(_) | Out::Sequence(_) | Out::Mapping(_) => {
            writer.inline(document, 0);
        }
    }
    writer.out
}

/// The first key that would be written like another of its mapping (`010` and `8`), though they
/// were authored differently.
pub fn colliding_key(node: &Node) -> Option<&Node> {
    fn walk(node: &Node, is_top: bool) -> Option<&Node> {
        match &node.value {
            Value::Scalar(_) => None,
            Value::Sequence(items) => items.iter().find_map(|item| walk(item, false)),
            Value::Mapping(entries) => {
                let mut seen = std::collections::BTreeSet::new();
                entries.iter().find_map(|(key, value)| {
                    let scalar = key.as_scalar()?;
                    let written =
                        if is_top { Out::text(scalar.text.as_str()) } else { scalar_out(scalar) };
                    let mut writer = Writer { out: String::new() };
                    writer.key(&written, 0);
                    if seen.insert(writer.out) { walk(value, false) } else { Some(key) }
                })
            }
        }
    }
    walk(node, true)
}

fn sorted<'a>(
    entries: &'a [(Node, Node)],
    key_out: impl Fn(&'a Scalar) -> Out<'a>,
) -> Vec<(Out<'a>, Out<'a>)> {
    let mut written: Vec<(Out<'a>, Out<'a>)> = entries
        .iter()
        // The parser refuses keys that are not scalars.
        .filter_map(|(key, value)| Some((key_out(key.as_scalar()?), Out::from_node(value))))
        .collect();
    // By what is written, not by what was authored: `~` is written as `null`, and a document must
    // come out the same when it is read again.
    written.sort_by(|(a, _), (b, _)| key_text(a).cmp(key_text(b)));
    written
}

fn key_text<'o>(key: &'o Out<'_>) -> &'o str {
    match key {
        Out::Text(text) | Out::Quoted(text) | Out::Plain(text) => text,
        Out::Sequence(_) | Out::Mapping(_) => "",
    }
}

fn scalar_out(scalar: &Scalar) -> Out<'_> {
    match meaning(scalar) {
        Meaning::Null => Out::Plain("null".into()),
        Meaning::Bool(value) => Out::Plain(own_text_or(scalar, is_bool, || value.to_string())),
        Meaning::Int(value) => Out::Plain(own_text_or(scalar, is_common_int, || value.to_string())),
        Meaning::Float(value) => Out::Plain(float_text(&scalar.text, value)),
        Meaning::Text(text) if text == scalar.text => Out::text(scalar.text.as_str()),
        Meaning::Text(text) => Out::text(text),
        Meaning::Binary(text) => Out::Plain(format!("!!binary \"{text}\"").into()),
    }
}

fn own_text_or(
    scalar: &Scalar,
    is_common: impl Fn(&str) -> bool,
    other: impl Fn() -> String,
) -> Cow<'_, str> {
    if is_common(&scalar.text) { scalar.text.as_str().into() } else { other().into() }
}

fn is_bool(text: &str) -> bool {
    matches!(text, "true" | "True" | "TRUE" | "false" | "False" | "FALSE")
}

/// An integer on which YAML 1.1, 1.2 and a collector agree: decimal without a leading zero, or
/// `0x`.
fn is_common_int(text: &str) -> bool {
    if let Some(hex) = text.strip_prefix("0x") {
        return !hex.is_empty() && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
    }
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    digits == "0"
        || (digits.starts_with(|c: char| matches!(c, '1'..='9'))
            && digits.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The authored text of a float, changed only as far as YAML 1.1 needs: a digit before the dot of
/// a signed number, a dot before an exponent, a sign in it, no `_`, no leading zero of an integer.
fn float_text(authored: &str, value: f64) -> Cow<'_, str> {
    if value.is_nan() || value.is_infinite() {
        return authored.into();
    }
    let digits = authored.replace('_', "");
    if digits.parse() != Ok(value) {
        // `!!float 0x1F`: an integer whose text is not decimal.
        return float_text(&format!("{value:?}"), value).into_owned().into();
    }
    let (sign, unsigned) = match digits.as_bytes().first() {
        Some(b'-' | b'+') => digits.split_at(1),
        Some(_) | None => ("", digits.as_str()),
    };
    let (mantissa, exponent) = match unsigned.find(['e', 'E']) {
        Some(at) => unsigned.split_at(at),
        None => (unsigned, ""),
    };
    let mantissa: Cow<'_, str> = if mantissa.contains('.') {
        if mantissa.starts_with('.') && !sign.is_empty() {
            format!("0{mantissa}").into()
        } else {
            mantissa.into()
        }
    } else if mantissa.len() > 1 && mantissa.starts_with('0') {
        let trimmed = mantissa.trim_start_matches('0');
        format!("{}.0", if trimmed.is_empty() { "0" } else { trimmed }).into()
    } else if exponent.is_empty() && value.abs() >= 9_223_372_036_854_775_808.0 {
        // An integer that fits no 64 bits: every reader takes the text as well as it can.
        mantissa.into()
    } else {
        // `!!float 1`, or an exponent that YAML 1.1 would take for a text.
        format!("{mantissa}.0").into()
    };
    let mut text = format!("{sign}{mantissa}");
    if let Some(power) = exponent.get(1..) {
        text.push_str(&exponent[..1]);
        if !power.starts_with(['-', '+']) {
            text.push('+');
        }
        text.push_str(power);
    }
    if text == authored { authored.into() } else { text.into() }
}

struct Writer {
    out: String,
}

impl Writer {
    /// Writes entries whose keys stand at `indent`; the first key's indentation is there already
    /// when it is `inline`.
    fn mapping(&mut self, entries: &[(Out<'_>, Out<'_>)], indent: usize, mut inline: bool) {
        for (key, value) in entries {
            if !inline {
                self.indent(indent);
            }
            inline = false;
            self.key(key, indent);
            self.value(value, indent);
        }
    }

    /// Writes items whose dashes stand at `indent`.
    fn sequence(&mut self, items: &[Out<'_>], indent: usize, mut inline: bool) {
        for item in items {
            if !inline {
                self.indent(indent);
            }
            inline = false;
            self.out.push('-');
            match item {
                Out::Mapping(entries) if !entries.is_empty() => {
                    self.out.push(' ');
                    self.mapping(entries, indent + 2, true);
                }
                Out::Sequence(items) if !items.is_empty() => {
                    self.out.push(' ');
                    self.sequence(items, indent + 2, true);
                }
                Out::Text(_)
                | Out::Quoted(_)
                | Out::Plain(_)
                | Out::Sequence(_)
                | Out::Mapping(_) => {
                    self.out.push(' ');
                    self.inline(item, indent);
                }
            }
        }
    }

    /// What follows a key that stands at `indent`, to the end of its last line.
    fn value(&mut self, value: &Out<'_>, indent: usize) {
        match value {
            Out::Mapping(entries) if !entries.is_empty() => {
                self.out.push('\n');
                self.mapping(entries, indent + 2, false);
            }
            Out::Sequence(items) if !items.is_empty() => {
                self.out.push('\n');
                self.sequence(items, indent + 2, false);
            }
            Out::Text(_) | Out::Quoted(_) | Out::Plain(_) | Out::Sequence(_) | Out::Mapping(_) => {
                self.out.push(' ');
                self.inline(value, indent);
            }
        }
    }

    /// A scalar or an empty collection under a parent at `indent`, and the end of its line.
    fn inline(&mut self, value: &Out<'_>, indent: usize) {
        match value {
            Out::Text(text) if is_literal(text) => {
                self.literal(text, indent + 2);
                return;
            }
            Out::Text(text) => self.text(text),
            Out::Quoted(text) => self.double_quoted(text),
            Out::Plain(text) => self.out.push_str(text),
            Out::Sequence(_) => self.out.push_str("[]"),
            Out::Mapping(_) => self.out.push_str("{}"),
        }
        self.out.push('\n');
    }

    fn key(&mut self, key: &Out<'_>, indent: usize) {
        let start = self.out.len();
        match key {
            Out::Text(text) => self.text(text),
            Out::Quoted(text) => self.double_quoted(text),
            Out::Plain(text) => self.out.push_str(text),
            // A key is a scalar by construction; an empty collection is the nearest to none.
            Out::Sequence(_) | Out::Mapping(_) => self.out.push_str("{}"),
        }
        if self.out.len() - start > MAX_SIMPLE_KEY {
            self.out.insert_str(start, "? ");
            self.out.push('\n');
            self.indent(indent);
        }
        self.out.push(':');
    }

    fn text(&mut self, text: &str) {
        match style(text) {
            TextStyle::Plain => self.out.push_str(text),
            TextStyle::Single => {
                self.out.push('\'');
                self.out.push_str(&text.replace('\'', "''"));
                self.out.push('\'');
            }
            TextStyle::Double => self.double_quoted(text),
        }
    }

    fn double_quoted(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\0' => self.out.push_str("\\0"),
                c if is_printable(c) => self.out.push(c),
                c => {
                    let code = u32::from(c);
                    // Writing to a String cannot fail.
                    let _ = match code {
                        0..=0xff => write!(self.out, "\\x{code:02x}"),
                        0x100..=0xffff => write!(self.out, "\\u{code:04x}"),
                        _ => write!(self.out, "\\U{code:08x}"),
                    };
                }
            }
        }
        self.out.push('"');
    }

    fn literal(&mut self, text: &str, indent: usize) {
        self.out.push('|');
        if text.starts_with([' ', '\n']) {
            self.out.push('2');
        }
        let body = match text.strip_suffix('\n') {
            None => {
                self.out.push('-');
                text
            }
            Some(body) if body.ends_with('\n') => {
                self.out.push('+');
                body
            }
            Some(body) => body,
        };
        self.out.push('\n');
        for line in body.split('\n') {
            if !line.is_empty() {
                self.indent(indent);
                self.out.push_str(line);
            }
            self.out.push('\n');
        }
    }

    fn indent(&mut self, indent: usize) {
        self.out.extend(std::iter::repeat_n(' ', indent));
    }
}

/// A key longer than this is written after `? `: readers look for the colon of a simple key within
/// 1,024 characters (YAML 1.2, 7.4.2).
const MAX_SIMPLE_KEY: usize = 1000;

#[cfg(test)]
mod tests;
