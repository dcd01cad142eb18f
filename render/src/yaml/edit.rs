//! One scalar of a document's root mapping put in place of another, every other byte kept
//! (rollouts.md, decision 20).
//!
//! The edit is made on the text and then proved: what is written is parsed again, and it is an
//! error when anything but that one field means something else than before.

use std::ops::Range;

use super::{Node, Pos, Scalar, Style, Value, YamlError, parse};

/// Why a scalar cannot be replaced where it stands. Says what a person has to do instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EditError {
    /// The file is no YAML document.
    #[error("{error}")]
    Yaml {
        /// What the parser says.
        error: YamlError,
    },
    /// The root is not a mapping, or has neither the key nor the one to put it after.
    #[error("there is neither `{key}:` nor a place to put it")]
    NoPlace {
        /// The key.
        key: String,
    },
    /// The value is written in a way that cannot be edited alone.
    #[error("line {line}: {why}; edit `{key}:` there by hand")]
    NotInPlace {
        /// The key.
        key: String,
        /// Line of the value, from 1.
        line: u32,
        /// Such as `the value comes from an alias`.
        why: &'static str,
    },
}

/// `source` with `value` at the top-level `key`. Comments, blank lines, quotes, line ends and order
/// stay. A key that is not there is inserted after the line of the key `after`, written as that one
/// is.
///
/// `value` is written as it is in plain style and between the quotes of a quoted one: it must be
/// text that needs neither quotes nor escapes, such as a number or a binding.
///
/// # Errors
///
/// See [`EditError`]; a value behind an alias or a merge key is refused.
pub fn set(source: &[u8], key: &str, value: &str, after: &str) -> Result<Vec<u8>, EditError> {
    let root = parse(source).map_err(|error| EditError::Yaml { error })?;
    let no_place = || EditError::NoPlace { key: key.to_owned() };
    let Value::Mapping(entries) = &root.value else { return Err(no_place()) };
    let find = |wanted: &str| {
        let same = |(key, _): &&(Node, Node)| key.as_scalar().is_some_and(|k| k.text == wanted);
        entries.iter().find(same)
    };
    let edit = match (find(key), find(after)) {
        (Some((node, old)), _) => replace(source, node, old, value),
        (None, Some((node, old))) => insert(source, &root, node, old, key, value),
        (None, None) => return Err(no_place()),
    };
    let refused = |(line, why)| EditError::NotInPlace { key: key.to_owned(), line, why };
    let Edit { at, text, line } = edit.map_err(refused)?;
    let mut edited = Vec::with_capacity(source.len() + text.len());
    edited.extend_from_slice(&source[..at.start]);
    edited.extend_from_slice(text.as_bytes());
    edited.extend_from_slice(&source[at.end..]);

    if differs_only_in(&root, &edited, key, value) {
        Ok(edited)
    } else {
        Err(refused((line, "the value cannot be changed without changing something else")))
    }
}

/// Bytes of the source and what is put there.
struct Edit {
    at: Range<usize>,
    text: String,
    line: u32,
}

type Refused = (u32, &'static str);

fn replace(source: &[u8], key: &Node, old: &Node, value: &str) -> Result<Edit, Refused> {
    let Pos { line, .. } = old.at;
    if key.span.is_empty() {
        return Err((key.at.line, "the value comes from a merge key"));
    }
    let Value::Scalar(scalar) = &old.value else { return Err((line, "the value is no scalar")) };
    if old.span.is_empty() {
        return fill(source, key, value).ok_or((line, "the value comes from an alias"));
    }
    let written = source.get(old.span.clone()).unwrap_or_default();
    let within = match scalar.style {
        Style::Plain => Some(0..written.len()),
        Style::SingleQuoted | Style::DoubleQuoted => Some(1..written.len().saturating_sub(1)),
        Style::Literal | Style::Folded => block_line(written, scalar),
    };
    let within = within.ok_or((line, "the value is a block of several lines"))?;
    let at = old.span.start + within.start..old.span.start + within.end;
    Ok(Edit { at, text: value.to_owned(), line })
}

/// A key with nothing behind its colon: the value goes there.
fn fill(source: &[u8], key: &Node, value: &str) -> Option<Edit> {
    let rest = source.get(key.span.end..)?;
    let blank = |bytes: &[u8]| bytes.iter().take_while(|b| matches!(b, b' ' | b'\t')).count();
    let colon = blank(rest);
    let behind = rest.get(colon..)?.strip_prefix(b":")?;
    let nothing = match behind.get(blank(behind)) {
        None | Some(b'\n' | b'\r' | b',' | b'}') => true,
        Some(b'#') => blank(behind) > 0,
        Some(_) => false,
    };
    let at = key.span.end + colon + 1;
    nothing.then(|| Edit { at: at..at, text: format!(" {value}"), line: key.at.line })
}

/// The only line of text of a block scalar, within what is written of it below its header.
fn block_line(written: &[u8], scalar: &Scalar) -> Option<Range<usize>> {
    let text = scalar.text.trim_end_matches('\n').as_bytes();
    let fits = !text.is_empty() && !text.contains(&b'\n') && written.starts_with(text);
    fits.then_some(0..text.len())
}

/// A new entry behind `after`, whose value is `neighbour`.
fn insert(
    source: &[u8],
    root: &Node,
    after: &Node,
    neighbour: &Node,
    key: &str,
    value: &str,
) -> Result<Edit, Refused> {
    let line = after.at.line;
    if after.span.is_empty() {
        return Err((line, "the mapping comes from a merge key"));
    }
    let quote = match after.as_scalar().map(|scalar| scalar.style) {
        Some(Style::SingleQuoted) => "'",
        Some(Style::DoubleQuoted) => "\"",
        Some(Style::Plain | Style::Literal | Style::Folded) | None => "",
    };
    let entry = format!("{quote}{key}{quote}: {value}");
    let end = neighbour.span.end.max(after.span.end);
    if source.get(root.span.start) == Some(&b'{') {
        if neighbour.span.is_empty() {
            return Err((line, "the value before it comes from an alias"));
        }
        return Ok(Edit { at: end..end, text: format!(", {entry}"), line });
    }
    let line_start =
        source[..after.span.start].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let lead = source.get(line_start..after.span.start).unwrap_or_default();
    // A byte-order mark is no indentation.
    let lead = lead.strip_prefix("\u{feff}".as_bytes()).unwrap_or(lead);
    let Some(indent) = std::str::from_utf8(lead).ok().filter(|lead| lead.trim().is_empty()) else {
        return Err((line, "something else stands before the key on its line"));
    };
    // A block scalar ends at the start of the line behind it.
    let ended = end > after.span.end && source.get(end - 1) == Some(&b'\n');
    let rest = source.get(end..).unwrap_or_default();
    let (at, text) = match rest.iter().position(|byte| *byte == b'\n') {
        _ if ended => (end, format!("{indent}{entry}{}", line_end(&source[..end]))),
        Some(length) => {
            let at = end + length + 1;
            (at, format!("{indent}{entry}{}", line_end(&source[..at])))
        }
        None => {
            let first = source.iter().position(|byte| *byte == b'\n');
            let line_end = first.map_or("\n", |at| line_end(&source[..=at]));
            (source.len(), format!("{line_end}{indent}{entry}"))
        }
    };
    Ok(Edit { at: at..at, text, line })
}

/// How the last line of `text` ends.
fn line_end(text: &[u8]) -> &'static str {
    if text.ends_with(b"\r\n") { "\r\n" } else { "\n" }
}

/// Whether `edited` is `before` with `value` at `key`, and nothing else.
fn differs_only_in(before: &Node, edited: &[u8], key: &str, value: &str) -> bool {
    let Ok(after) = parse(edited) else { return false };
    let (Value::Mapping(before), Value::Mapping(after)) = (&before.value, &after.value) else {
        return false;
    };
    let is_key = |(k, _): &&(Node, Node)| k.as_scalar().is_some_and(|k| k.text == key);
    let now = after.iter().find(is_key).and_then(|(_, v)| v.as_scalar());
    let others = |entries| -> Vec<(Node, Node)> {
        let entries: &Vec<(Node, Node)> = entries;
        entries.iter().filter(|entry| !is_key(entry)).map(|(k, v)| (bare(k), bare(v))).collect()
    };
    now.is_some_and(|now| now.text.trim_end_matches('\n') == value)
        && others(before) == others(after)
}

/// The node without its place. No deeper than the parser allows.
fn bare(node: &Node) -> Node {
    let value = match &node.value {
        Value::Scalar(scalar) => Value::Scalar(scalar.clone()),
        Value::Sequence(items) => Value::Sequence(items.iter().map(bare).collect()),
        Value::Mapping(entries) => {
            Value::Mapping(entries.iter().map(|(k, v)| (bare(k), bare(v))).collect())
        }
    };
    Node { value, at: Pos::default(), span: 0..0 }
}

#[cfg(test)]
mod tests;
