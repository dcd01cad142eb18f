//! The commit's line, found without building a document: ten times as fast, which counts when ten
//! thousand Tiers are loaded.
//!
//! Reads the block style in which `render` writes: two kinds of collection told by columns, scalars
//! on one line, literal blocks. At anything else (a comment, an anchor, a flow collection, a
//! character beyond ASCII, a doubtful indentation) it gives up and says nothing.

use smallvec::SmallVec;

use super::commit_line::{CommitLine, LEAF, step};

/// Open collections at once; the parser's own limit is higher.
const MAX_OPEN: usize = 32;

/// Bytes of a key; YAML's own limit for a key on one line is 1,024 characters.
const MAX_KEY: usize = 512;

/// Keys of one mapping, each compared with those before it.
const MAX_KEYS: usize = 256;

/// The commit's line, or `None` where this reader cannot tell.
pub(super) fn scan(source: &[u8]) -> Option<CommitLine> {
    let ascii = |byte: &u8| matches!(byte, b'\n' | b' '..=b'~');
    if !source.iter().all(ascii) {
        return None;
    }
    let source = std::str::from_utf8(source).ok()?;
    let mut scan = Scan {
        source,
        at: super::comment_block(source.as_bytes()),
        open: SmallVec::new(),
        keys: Vec::new(),
        pending: Some(Some(0)),
        found: None,
    };
    while let Some(line) = scan.next_line() {
        scan.take(line)?;
    }
    // A key without a value at the end would be null, which `render` writes out.
    if scan.pending.is_some() {
        return None;
    }
    scan.found
}

struct Scan<'s> {
    source: &'s str,
    /// Start of the next line.
    at: usize,
    open: SmallVec<[Level; 16]>,
    /// Keys of all open mappings; each level knows where its own begin.
    keys: Vec<&'s str>,
    /// Set after `key:` and at the very start: the next line opens a collection, at this depth of
    /// the path.
    pending: Option<Option<usize>>,
    found: Option<CommitLine>,
}

struct Level {
    column: usize,
    sequence: bool,
    depth: Option<usize>,
    keys_from: usize,
}

#[derive(Clone, Copy)]
struct Line<'s> {
    start: usize,
    column: usize,
    text: &'s str,
}

impl<'s> Scan<'s> {
    /// The next line that is not empty.
    fn next_line(&mut self) -> Option<Line<'s>> {
        while self.at < self.source.len() {
            let start = self.at;
            let rest = &self.source[start..];
            let line = rest.split_once('\n').map_or(rest, |(line, _)| line);
            self.at = start + (line.len() + 1).min(rest.len());
            let text = line.trim_start_matches(' ');
            if !text.is_empty() {
                return Some(Line { start, column: line.len() - text.len(), text });
            }
        }
        None
    }

    /// Takes one line; `None` gives up.
    fn take(&mut self, line: Line<'s>) -> Option<()> {
        let Line { mut column, mut text, .. } = line;
        let marker = column == 0 && (text.starts_with("---") || text.starts_with("..."));
        if marker || text.ends_with(' ') {
            return None;
        }
        let mut opens = self.pending.take();
        if opens.is_some() {
            // The document itself starts at column 0; a value is indented under its key.
            let deeper = self.open.last().map_or(column == 0, |top| column > top.column);
            if !deeper {
                return None;
            }
        } else {
            while self.open.last()?.column > column {
                self.close();
            }
        }
        while let Some(item) = text.strip_prefix("- ") {
            self.enter(column, true, opens)?;
            (column, text, opens) = (column + 2, item, Some(None));
        }
        match key(text)? {
            Some((key, value)) => {
                self.enter(column, false, opens)?;
                let depth = self.key(key)?;
                match value {
                    "" => self.pending = Some(depth),
                    value => {
                        let text = self.value(column, value.strip_prefix(' ')?)?;
                        if depth == Some(LEAF) {
                            let line = line.start..self.at;
                            self.found = Some(CommitLine { line, commit: text?.to_owned() });
                        }
                    }
                }
            }
            // A bare scalar is only an item of a sequence.
            None => {
                let item_of = self.open.last().filter(|top| top.sequence)?.column;
                if opens != Some(None) || item_of + 2 != column {
                    return None;
                }
                self.value(item_of, text)?;
            }
        }
        Some(())
    }

    /// Into the collection at this column: a new one where `opens` says so, else the open one.
    fn enter(&mut self, column: usize, sequence: bool, opens: Option<Option<usize>>) -> Option<()> {
        let Some(depth) = opens else {
            let top = self.open.last()?;
            return (top.column == column && top.sequence == sequence).then_some(());
        };
        if self.open.len() == MAX_OPEN {
            return None;
        }
        let depth = if sequence { None } else { depth };
        self.open.push(Level { column, sequence, depth, keys_from: self.keys.len() });
        Some(())
    }

    fn close(&mut self) {
        if let Some(level) = self.open.pop() {
            self.keys.truncate(level.keys_from);
        }
    }

    /// Notes a key of the innermost mapping; gives up on one that repeats.
    fn key(&mut self, key: &'s str) -> Option<Option<usize>> {
        let top = self.open.last()?;
        let keys = &self.keys[top.keys_from..];
        if keys.len() == MAX_KEYS || keys.contains(&key) {
            return None;
        }
        let depth = step(top.depth, key);
        self.keys.push(key);
        Some(depth)
    }

    /// Checks a value whose parent sits at `parent`; gives its text where it is a plain or a
    /// quoted scalar without escapes. The outer `None` gives up.
    fn value(&mut self, parent: usize, text: &'s str) -> Option<Option<&'s str>> {
        match text.as_bytes() {
            b"{}" | b"[]" => Some(None),
            [b'|', header @ ..] => {
                let (digit, chomp) = match header {
                    [digit @ b'1'..=b'9', chomp @ ..] => (Some(usize::from(digit - b'0')), chomp),
                    chomp => (None, chomp),
                };
                if !matches!(chomp, b"" | b"-" | b"+") {
                    return None;
                }
                self.literal(parent, digit)?;
                Some(None)
            }
            [b'"' | b'\'', ..] => {
                let (inner, rest) = quoted(text)?;
                let escaped = inner.contains(['\\', '\'']);
                rest.is_empty().then_some(Some(inner).filter(|_| !escaped))
            }
            _ => {
                let plain = starts_plain(text)
                    && !text.contains(": ")
                    && !text.contains(" #")
                    && !text.ends_with(':');
                plain.then_some(Some(text))
            }
        }
    }

    /// Skips the lines of a literal block.
    fn literal(&mut self, parent: usize, indicator: Option<usize>) -> Option<()> {
        let mut indent = indicator.map(|digit| parent + digit);
        loop {
            let before = self.at;
            let Some(line) = self.next_line() else { return Some(()) };
            if line.column <= parent {
                self.at = before;
                return Some(());
            }
            // Blank lines that hold spaces may decide the indentation before any text does.
            let blank = &self.source[before..line.start];
            if indent.is_none() && blank.contains(' ') {
                return None;
            }
            if line.column < *indent.get_or_insert(line.column) {
                return None;
            }
        }
    }
}

/// Splits `key:` or `key: value`; the inner `None` is a scalar alone, the outer one gives up. The
/// value keeps its leading space.
fn key(text: &str) -> Option<Option<(&str, &str)>> {
    let (key, rest) = if text.starts_with(['"', '\'']) {
        let (key, rest) = quoted(text)?;
        if rest.is_empty() {
            return Some(None);
        }
        if key.contains(['\\', '\'']) {
            return None;
        }
        (key, rest.strip_prefix(':')?)
    } else {
        let end = text.find(": ").or_else(|| text.ends_with(':').then(|| text.len() - 1));
        let Some(end) = end else { return Some(None) };
        let key = &text[..end];
        if !starts_plain(key) || key.contains(" #") || key.ends_with(' ') {
            return None;
        }
        (key, &text[end + 1..])
    };
    // All ways to write null are one key.
    let odd = matches!(key, "" | "~" | "null" | "Null" | "NULL") || key.len() > MAX_KEY;
    (!odd && (rest.is_empty() || rest.starts_with(' '))).then_some(Some((key, rest)))
}

/// What is between the quotes, and what follows them.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let bytes = text.as_bytes();
    let quote = *bytes.first()?;
    let mut at = 1;
    loop {
        match *bytes.get(at)? {
            byte if byte == quote => {
                if quote == b'\'' && bytes.get(at + 1) == Some(&quote) {
                    at += 2;
                    continue;
                }
                return Some((&text[1..at], &text[at + 1..]));
            }
            b'\\' if quote == b'"' => {
                if !b"0abtnvfre\"/\\".contains(bytes.get(at + 1)?) {
                    return None;
                }
                at += 2;
            }
            _ => at += 1,
        }
    }
}

/// Whether a plain scalar may start like this, by a set smaller than YAML's.
fn starts_plain(text: &str) -> bool {
    match text.as_bytes() {
        [b'-', next, ..] => next.is_ascii_alphanumeric() || *next == b'.',
        [first, ..] => first.is_ascii_alphanumeric() || b"_/.$^(+=\\;".contains(first),
        [] => false,
    }
}
