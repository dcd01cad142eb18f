//! Which line of an artefact names the commit (estate.md, decision 9).
//!
//! Found by its position in the parsed document, never by its text: a Component's configuration
//! may hold any text it likes. [`scan`] is a short cut over the shape in which `render` writes; it
//! answers only where it can tell, and then as [`parsed`] does, which a property test checks.

use std::ops::Range;

use crate::yaml::{self, Node, Value};

/// Where the commit is stamped.
const PATH: [&str; 4] = ["service", "telemetry", "resource", "telecraft.commit"];

/// The line of the commit, with its line break.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CommitLine {
    /// Bytes of the source.
    pub(super) line: Range<usize>,
    /// The value, as a string.
    pub(super) commit: String,
}

/// The line, or `None` where there is none of its own: no such key, no scalar there, or something
/// else beside it on the line, which may not go unseen.
pub(super) fn find(source: &[u8]) -> Option<CommitLine> {
    super::scan::scan(source).or_else(|| parsed(source))
}

/// As [`find`], from the parsed document alone.
pub(super) fn parsed(source: &[u8]) -> Option<CommitLine> {
    let mut node = &yaml::parse(source).ok()?;
    let (last, path) = PATH.split_last()?;
    for key in path {
        node = node.get(key)?;
    }
    let Value::Mapping(entries) = &node.value else { return None };
    let (key, value) =
        entries.iter().find(|(key, _)| key.as_scalar().is_some_and(|key| key.text == *last))?;
    let commit = value.as_scalar()?.text.clone();
    let line = own_line(source, key, value)?;
    Some(CommitLine { line, commit })
}

/// The line that holds this key and value and nothing else but a comment.
fn own_line(source: &[u8], key: &Node, value: &Node) -> Option<Range<usize>> {
    if key.span.is_empty() || value.span.is_empty() {
        return None;
    }
    let before = source.get(..key.span.start)?;
    let start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let after = source.get(value.span.end..)?;
    let end = after.iter().position(|byte| *byte == b'\n');
    let rest = &after[..end.unwrap_or(after.len())];
    let comment = rest.iter().position(|byte| !matches!(byte, b' ' | b'\t' | b'\r'));
    let alone = before[start..].iter().all(|byte| *byte == b' ')
        && source.get(key.span.end..value.span.start)?.trim_ascii() == b":"
        && !source.get(key.span.start..value.span.end)?.contains(&b'\n')
        && comment.is_none_or(|at| rest[at] == b'#');
    alone.then(|| start..end.map_or(source.len(), |end| value.span.end + end + 1))
}

/// How far along [`PATH`] a key leads: the next depth, or `None` off the path.
pub(super) fn step(depth: Option<usize>, key: &str) -> Option<usize> {
    let depth = depth?;
    (PATH.get(depth) == Some(&key)).then_some(depth + 1)
}

/// The depth of the commit's value.
pub(super) const LEAF: usize = PATH.len();
