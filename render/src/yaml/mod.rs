//! YAML with its positions: a tree of nodes that remembers how each scalar was written.

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
