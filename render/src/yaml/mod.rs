//! YAML with its positions: a tree of nodes that remembers how each scalar was written.

pub mod edit;
mod emit;
mod meaning;
mod parse;

pub(crate) use emit::is_printable;
pub use emit::{Out, colliding_key, emit};
pub use meaning::{Meaning, meaning};
pub use parse::{
    MAX_DEPTH, MAX_EXPANDED_BYTES, MAX_EXPANDED_NODES, YamlError, YamlErrorKind, parse,
};

/// A place in a file, both counted from 1; columns count characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pos {
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
}

/// How a scalar was written; decides what it means and how it is written again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// No quotes: resolved by the YAML 1.2 core schema.
    Plain,
    /// `'…'`: always a string.
    SingleQuoted,
    /// `"…"`: always a string.
    DoubleQuoted,
    /// `|`: always a string.
    Literal,
    /// `>`: always a string.
    Folded,
}

/// A scalar: its text after unescaping, how it was written, and its tag if it carried one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scalar {
    /// The value's text (for a plain scalar: the source text).
    pub text: String,
    /// How it was written.
    pub style: Style,
    /// Such as `!!binary` or `!custom`, if authored.
    pub tag: Option<String>,
}

/// A node and where it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// What it is.
    pub value: Value,
    /// Where it starts.
    pub at: Pos,
    /// Byte range in the source, for edits that keep every other byte; empty where an alias or a
    /// merge key brought the node in.
    pub span: std::ops::Range<usize>,
}

/// Aliases and merge keys are expanded (under a budget); duplicate keys are refused while parsing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Leaf.
    Scalar(Scalar),
    /// In authored order.
    Sequence(Vec<Node>),
    /// In authored order; keys may be any scalar (a complex key is refused while parsing).
    Mapping(Vec<(Node, Node)>),
}

impl Node {
    /// A null that stands where nothing is written.
    pub fn null(at: Pos) -> Self {
        let scalar = Scalar { text: String::new(), style: Style::Plain, tag: None };
        Self { value: Value::Scalar(scalar), at, span: 0..0 }
    }

    /// The scalar, if it is one.
    pub fn as_scalar(&self) -> Option<&Scalar> {
        match &self.value {
            Value::Scalar(scalar) => Some(scalar),
            Value::Sequence(_) | Value::Mapping(_) => None,
        }
    }

    /// Whether it is null in the YAML 1.2 core schema: plain `~`, `null`, `Null`, `NULL` or
    /// nothing at all, or anything tagged `!!null`.
    pub fn is_null(&self) -> bool {
        self.as_scalar().is_some_and(Scalar::is_null)
    }

    /// The value at `key`, if this is a mapping that has it.
    pub fn get(&self, key: &str) -> Option<&Self> {
        let Value::Mapping(entries) = &self.value else { return None };
        entries.iter().find(|(k, _)| k.as_scalar().is_some_and(|k| k.text == key)).map(|(_, v)| v)
    }
}

impl Scalar {
    /// See [`Node::is_null`].
    pub fn is_null(&self) -> bool {
        match self.tag.as_deref() {
            None => {
                self.style == Style::Plain
                    && matches!(self.text.as_str(), "" | "~" | "null" | "Null" | "NULL")
            }
            Some(tag) => tag == "!!null",
        }
    }
}
