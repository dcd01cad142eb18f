//! Bytes to [`Node`]: one YAML 1.2 document, aliases and merge keys expanded, duplicates refused.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use granit_parser::{ErrorKind, Event, Marker, Parser, ScalarStyle, ScanError, Span, Tag};

use super::{Node, Pos, Scalar, Style, Value};

/// Nesting of collections in one document, aliases expanded. A collector configuration stays
/// below twenty; every walk over a [`Node`] may recurse because of this limit.
pub const MAX_DEPTH: usize = 64;

/// Nodes that anchors and aliases may copy in one document. Ten nested aliases of ten entries
/// each would otherwise stand for ten thousand million nodes.
pub const MAX_EXPANDED_NODES: usize = 50_000;

/// Bytes of scalar text that anchors and aliases may copy in one document.
pub const MAX_EXPANDED_BYTES: usize = 1 << 20;

/// Why a file is not the one YAML document that is wanted. Displays as `<what>`, without position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind}")]
pub struct YamlError {
    /// What is wrong.
    pub kind: YamlErrorKind,
    /// Where; an empty file has no place.
    pub at: Option<Pos>,
}

/// See [`YamlError`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum YamlErrorKind {
    /// No document at all, or comments only.
    Empty,
    /// A byte that is not part of a UTF-8 character.
    NotUtf8,
    /// A character that YAML does not admit, such as NUL.
    Unprintable(char),
    /// What the scanner or the parser says, and the way out where one is known.
    Syntax(String, &'static str),
    /// A second document, a bare trailing `---`, or what is left of one.
    SecondDocument,
    /// A key that its mapping already has, and the line of the first.
    DuplicateKey(String, u32),
    /// A sequence or a mapping as a key.
    ComplexKey,
    /// `<<` with anything but a mapping or a sequence of mappings.
    MergeValue,
    /// An alias inside the node it stands for.
    AliasOfItself,
    /// Nested deeper than [`MAX_DEPTH`].
    TooDeep,
    /// Aliases stand for more than [`MAX_EXPANDED_NODES`] or [`MAX_EXPANDED_BYTES`].
    TooMuchExpansion,
}

impl YamlErrorKind {
    /// The way out, as a clause.
    pub fn help(&self) -> &'static str {
        match self {
            Self::Empty => "write the object, or delete the file",
            Self::NotUtf8 => "save the file as UTF-8",
            Self::Unprintable(_) => "remove the character, or escape it in a double-quoted string",
            Self::Syntax(_, help) => help,
            Self::SecondDocument => "keep one object per file: remove the `---` and what follows",
            Self::DuplicateKey(..) => "keep one of the two",
            Self::ComplexKey => "use a scalar as the key",
            Self::MergeValue => "merge a mapping, or a sequence of mappings",
            Self::AliasOfItself => "write the value out",
            Self::TooDeep => "flatten the document",
            Self::TooMuchExpansion => "write the values out, or use fewer aliases",
        }
    }
}

impl fmt::Display for YamlErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("empty file"),
            Self::NotUtf8 => f.write_str("expected UTF-8 text"),
            Self::Unprintable(c) => write!(f, "character U+{:04X} is not allowed", u32::from(*c)),
            Self::Syntax(what, _) => f.write_str(what),
            Self::SecondDocument => {
                f.write_str("more than one document, expected the end of the file")
            }
            Self::DuplicateKey(key, first) => {
                write!(f, "duplicate key {key:?}, first given on line {first}")
            }
            Self::ComplexKey => f.write_str("a collection as a key, expected a scalar"),
            Self::MergeValue => {
                f.write_str("merge key `<<` expects a mapping or a sequence of mappings")
            }
            Self::AliasOfItself => f.write_str("an alias inside the value that it stands for"),
            Self::TooDeep => write!(f, "nested deeper than {MAX_DEPTH} levels"),
            Self::TooMuchExpansion => write!(
                f,
                "aliases expand to more than {MAX_EXPANDED_NODES} nodes or {MAX_EXPANDED_BYTES} \
                 bytes of text"
            ),
        }
    }
}

/// Parses exactly one document (estate.md 1.2, rules 1, 2, 5 and 6).
///
/// A leading byte-order mark, CRLF and a trailing `...` are fine. An explicit but empty document
/// (`---`, `~`) is a null scalar, not an empty file.
///
/// # Errors
///
/// The first thing that is wrong, with its place.
pub fn parse(bytes: &[u8]) -> Result<Node, YamlError> {
    let source = text(bytes)?;
    let options = granit_parser::options! {
        emit_comments: false,
        flow_nesting_limit: MAX_DEPTH,
        block_nesting_limit: MAX_DEPTH,
    };
    let mut builder = Builder::default();
    let mut root = None;
    let mut first_ended_at = None;
    for event in Parser::new_from_str_with_options(source, options) {
        let (event, span) = match event {
            Ok(event) => event,
            Err(error) => return Err(scan_error(&error, source, first_ended_at)),
        };
        match event {
            Event::DocumentStart(..) if first_ended_at.is_some() => {
                return Err(YamlErrorKind::SecondDocument.at(span.start));
            }
            Event::DocumentEnd => first_ended_at = Some(span.start),
            _ => {
                if let Some(node) = builder.take(event, &span)? {
                    root = Some(node);
                }
            }
        }
    }
    root.ok_or(YamlError { kind: YamlErrorKind::Empty, at: None })
}

impl YamlErrorKind {
    fn at(self, marker: Marker) -> YamlError {
        YamlError { kind: self, at: Some(pos(&marker)) }
    }

    fn at_pos(self, at: Pos) -> YamlError {
        YamlError { kind: self, at: Some(at) }
    }
}

/// Checks what the parser takes on trust: the encoding, and the characters that YAML excludes (a
/// NUL would end the document silently).
fn text(bytes: &[u8]) -> Result<&str, YamlError> {
    let place = |before: &[u8]| {
        let before = String::from_utf8_lossy(before);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        Pos {
            line: narrow(before.matches('\n').count() + 1),
            column: narrow(before[line_start..].chars().count() + 1),
        }
    };
    let source = std::str::from_utf8(bytes)
        .map_err(|error| YamlErrorKind::NotUtf8.at_pos(place(&bytes[..error.valid_up_to()])))?;
    let unprintable = |c: char| {
        !matches!(c, '\t' | '\n' | '\r' | '\u{85}')
            && (c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}'))
    };
    match source.char_indices().find(|&(_, c)| unprintable(c)) {
        Some((at, c)) => Err(YamlErrorKind::Unprintable(c).at_pos(place(&bytes[..at]))),
        None => Ok(source),
    }
}

/// What the parser reports, in our terms. Past the end of the first document whatever is wrong is
/// wrong with a second one, if a marker line announces one.
fn scan_error(error: &ScanError, source: &str, first_ended_at: Option<Marker>) -> YamlError {
    let announced = |end: &Marker| {
        let rest = end.byte_offset().and_then(|at| source.get(at..)).unwrap_or_default();
        rest.lines().find(|line| line.starts_with("---") || line.starts_with("...")).is_some()
    };
    if first_ended_at.as_ref().is_some_and(announced) {
        return YamlErrorKind::SecondDocument.at(*error.marker());
    }
    if *error.kind() == ErrorKind::RecursionLimitExceeded {
        return YamlErrorKind::TooDeep.at(*error.marker());
    }
    let help = match error.kind() {
        ErrorKind::TabNotAllowed
        | ErrorKind::TabInBlockIndentation
        | ErrorKind::TabAtBlockScalarStart
        | ErrorKind::TabInIndentation
        | ErrorKind::TabInPlainScalar => "indent with spaces",
        ErrorKind::UnclosedQuotedScalar => "close the quote",
        ErrorKind::UnclosedFlowCollection { .. }
        | ErrorKind::UnexpectedEofFlowMapping
        | ErrorKind::UnexpectedEofFlowSequence => "close the bracket",
        ErrorKind::MappingValueNotAllowed => {
            "quote a text that contains `: `, and check the indentation"
        }
        ErrorKind::UnknownAnchor => "define the anchor (`&name`) above the alias (`*name`)",
        ErrorKind::UnexpectedCharacter { .. } => "quote a text that begins with this character",
        ErrorKind::UnknownQuotedScalarEscape => {
            "write `\\\\` for a backslash, or use single quotes"
        }
        _ => "check the syntax and the indentation here",
    };
    YamlErrorKind::Syntax(error.kind().to_string(), help).at(*error.marker())
}

/// Collections that are still open, and what anchors stand for.
#[derive(Default)]
struct Builder {
    open: Vec<Open>,
    anchors: BTreeMap<usize, Node>,
    expanded_nodes: usize,
    expanded_bytes: usize,
}

struct Open {
    at: Pos,
    start: usize,
    anchor: usize,
    kind: OpenKind,
}

enum OpenKind {
    Sequence(Vec<Node>),
    Mapping(Vec<(Node, Node)>, Option<Node>),
}

impl Builder {
    /// Takes one event; returns the root once it is whole.
    fn take(&mut self, event: Event<'_>, span: &Span) -> Result<Option<Node>, YamlError> {
        let range = span.byte_range().unwrap_or_default();
        let at = pos(&span.start);
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                // Where nothing is written the parser says `~`; we keep what is written.
                let absent = style == ScalarStyle::Plain && range.is_empty();
                let scalar = Scalar {
                    text: if absent { String::new() } else { text.into_owned() },
                    style: style_of(style),
                    tag: tag.map(|tag| tag_text(&tag)),
                };
                self.finish(Node { value: Value::Scalar(scalar), at, span: range }, anchor)
            }
            Event::SequenceStart(_, anchor, _) => {
                self.push(at, range.start, anchor, OpenKind::Sequence(Vec::new()))
            }
            Event::MappingStart(_, anchor, _) => {
                self.push(at, range.start, anchor, OpenKind::Mapping(Vec::new(), None))
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(Open { at, start, anchor, kind }) = self.open.pop() else {
                    return Ok(None);
                };
                let value = match kind {
                    OpenKind::Sequence(items) => Value::Sequence(items),
                    OpenKind::Mapping(entries, _) => Value::Mapping(mapping(entries)?),
                };
                self.finish(Node { value, at, span: start..range.end.max(start) }, anchor)
            }
            Event::Alias(id) => {
                let Some(target) = self.anchors.remove(&id) else {
                    return Err(YamlErrorKind::AliasOfItself.at_pos(at));
                };
                let copy = self.copy(&target, self.open.len(), at);
                self.anchors.insert(id, target);
                self.finish(Node { at, ..copy? }, 0)
            }
            _ => Ok(None),
        }
    }

    fn push(
        &mut self,
        at: Pos,
        start: usize,
        anchor: usize,
        kind: OpenKind,
    ) -> Result<Option<Node>, YamlError> {
        if self.open.len() >= MAX_DEPTH {
            return Err(YamlErrorKind::TooDeep.at_pos(at));
        }
        self.open.push(Open { at, start, anchor, kind });
        Ok(None)
    }

    /// Puts a whole node where it belongs; a node with no parent is the root.
    fn finish(&mut self, node: Node, anchor: usize) -> Result<Option<Node>, YamlError> {
        if anchor != 0 {
            let copy = self.copy(&node, self.open.len(), node.at)?;
            self.anchors.insert(anchor, copy);
        }
        match self.open.last_mut().map(|open| &mut open.kind) {
            None => return Ok(Some(node)),
            Some(OpenKind::Sequence(items)) => items.push(node),
            Some(OpenKind::Mapping(entries, key)) => match key.take() {
                Some(key) => entries.push((key, node)),
                None if matches!(node.value, Value::Scalar(_)) => *key = Some(node),
                None => return Err(YamlErrorKind::ComplexKey.at_pos(node.at)),
            },
        }
        Ok(None)
    }

    /// A copy without spans, paid for out of the expansion budget. Recursion is bounded: nothing
    /// deeper than [`MAX_DEPTH`] was ever built.
    fn copy(&mut self, node: &Node, depth: usize, blame: Pos) -> Result<Node, YamlError> {
        self.expanded_nodes += 1;
        let value = match &node.value {
            Value::Scalar(scalar) => {
                self.expanded_bytes += scalar.text.len();
                Value::Scalar(scalar.clone())
            }
            _ if depth >= MAX_DEPTH => return Err(YamlErrorKind::TooDeep.at_pos(blame)),
            Value::Sequence(items) => Value::Sequence(
                items
                    .iter()
                    .map(|item| self.copy(item, depth + 1, blame))
                    .collect::<Result<_, _>>()?,
            ),
            Value::Mapping(entries) => Value::Mapping(
                entries
                    .iter()
                    .map(|(key, value)| {
                        Ok((self.copy(key, depth + 1, blame)?, self.copy(value, depth + 1, blame)?))
                    })
                    .collect::<Result<_, _>>()?,
            ),
        };
        if self.expanded_nodes > MAX_EXPANDED_NODES || self.expanded_bytes > MAX_EXPANDED_BYTES {
            return Err(YamlErrorKind::TooMuchExpansion.at_pos(blame));
        }
        Ok(Node { value, at: node.at, span: 0..0 })
    }
}

/// Refuses duplicates and expands merge keys: own keys first, then what is merged in, in order;
/// an own key beats a merged one, an earlier source beats a later one.
fn mapping(entries: Vec<(Node, Node)>) -> Result<Vec<(Node, Node)>, YamlError> {
    if let Some((first, second)) = duplicate(&entries) {
        let kind = YamlErrorKind::DuplicateKey(key_text(second).to_owned(), first.at.line);
        return Err(kind.at_pos(second.at));
    }
    if !entries.iter().any(|(key, _)| is_merge(key)) {
        return Ok(entries);
    }
    let mut merged = Vec::with_capacity(entries.len());
    let mut sources = Vec::new();
    for (key, value) in entries {
        if !is_merge(&key) {
            merged.push((key, value));
            continue;
        }
        match value.value {
            Value::Mapping(source) => sources.push(source),
            Value::Sequence(items) => {
                for item in items {
                    let Value::Mapping(source) = item.value else {
                        return Err(YamlErrorKind::MergeValue.at_pos(item.at));
                    };
                    sources.push(source);
                }
            }
            Value::Scalar(_) => return Err(YamlErrorKind::MergeValue.at_pos(value.at)),
        }
    }
    let mut taken: BTreeSet<Option<String>> =
        merged.iter().map(|(key, _)| identity(key).map(str::to_owned)).collect();
    for (mut key, mut value) in sources.into_iter().flatten() {
        if taken.insert(identity(&key).map(str::to_owned)) {
            forget_span(&mut key);
            forget_span(&mut value);
            merged.push((key, value));
        }
    }
    Ok(merged)
}

/// The first key (in authored order) that repeats an earlier one, with that earlier one.
fn duplicate(entries: &[(Node, Node)]) -> Option<(&Node, &Node)> {
    let mut order: Vec<usize> = (0..entries.len()).collect();
    order.sort_by_key(|&index| (identity(&entries[index].0), index));
    order
        .windows(2)
        .filter(|pair| identity(&entries[pair[0]].0) == identity(&entries[pair[1]].0))
        .min_by_key(|pair| pair[1])
        .map(|pair| (&entries[pair[0]].0, &entries[pair[1]].0))
}

/// Two keys are the same key when they have the same text, however they are quoted; every way to
/// write null is one key.
fn identity(key: &Node) -> Option<&str> {
    if key.is_null() { None } else { Some(key_text(key)) }
}

fn key_text(key: &Node) -> &str {
    match &key.value {
        Value::Scalar(scalar) => &scalar.text,
        Value::Sequence(_) | Value::Mapping(_) => "",
    }
}

fn is_merge(key: &Node) -> bool {
    matches!(&key.value, Value::Scalar(Scalar { text, style: Style::Plain, tag })
        if text == "<<" && tag.as_deref().is_none_or(|tag| tag == "!!merge"))
}

fn forget_span(node: &mut Node) {
    node.span = 0..0;
    match &mut node.value {
        Value::Scalar(_) => {}
        Value::Sequence(items) => items.iter_mut().for_each(forget_span),
        Value::Mapping(entries) => entries.iter_mut().for_each(|(key, value)| {
            forget_span(key);
            forget_span(value);
        }),
    }
}

fn style_of(style: ScalarStyle) -> Style {
    match style {
        ScalarStyle::Plain => Style::Plain,
        ScalarStyle::SingleQuoted => Style::SingleQuoted,
        ScalarStyle::DoubleQuoted => Style::DoubleQuoted,
        ScalarStyle::Literal => Style::Literal,
        ScalarStyle::Folded => Style::Folded,
    }
}

/// `!!str` for every spelling of a tag in YAML's own namespace, else as authored.
fn tag_text(tag: &Tag) -> String {
    match tag.suffix_in_namespace("tag:yaml.org,2002:") {
        Some(name) => format!("!!{name}"),
        None => tag.original(),
    }
}

fn pos(marker: &Marker) -> Pos {
    Pos { line: narrow(marker.line()), column: narrow(marker.col() + 1) }
}

fn narrow(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
