//! From nodes to values, strictly (estate.md 1.2 and decision 3): unknown keys and wrong types are
//! collected, so that one file's are all reported together.
//!
//! A null stands for an absent value everywhere, as it does in the reference.

use std::fmt;
use std::sync::Arc;

use super::model::Located;
use crate::problem::{Problem, Spot};
use crate::yaml::{self, Node, Pos, Scalar, Style, Value, YamlError};

/// Characters of an author's text that an error repeats.
const SHOWN_CHARS: usize = 80;

/// Path of a key, built on the stack and written out only for an error.
#[derive(Clone, Copy, Debug)]
pub(crate) enum KeyPath<'p> {
    /// The document.
    Root,
    /// A key of a mapping.
    Key(&'p Self, &'p str),
    /// An entry of a sequence, from 0.
    Index(&'p Self, usize),
}

impl fmt::Display for KeyPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_plain = |key: &str| {
            let plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
            !key.is_empty() && key.chars().all(plain)
        };
        match *self {
            KeyPath::Root => Ok(()),
            KeyPath::Key(KeyPath::Root, key) if is_plain(key) => f.write_str(key),
            KeyPath::Key(parent, key) if is_plain(key) => write!(f, "{parent}.{key}"),
            KeyPath::Key(parent, key) => write!(f, "{parent}[{}]", shown(key)),
            KeyPath::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

/// A mapping that is being read, with its path. An absent or null mapping has no entries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'n, 'p> {
    entries: &'n [(Node, Node)],
    /// Where the mapping starts.
    pub(crate) at: Pos,
    /// Its path.
    pub(crate) path: KeyPath<'p>,
}

impl<'n> Fields<'n, '_> {
    /// The value at `key`; `None` when it is absent or null.
    pub(crate) fn get(&self, key: &str) -> Option<&'n Node> {
        self.written(key).filter(|value| !value.is_null())
    }

    /// Where an error about `key` points: at its value, or at the mapping that lacks it.
    pub(crate) fn at(&self, key: &str) -> Pos {
        self.written(key).map_or(self.at, |node| node.at)
    }

    fn written(&self, key: &str) -> Option<&'n Node> {
        let is_key = |node: &Node| node.as_scalar().is_some_and(|scalar| scalar.text == key);
        self.entries.iter().find(|(name, _)| is_key(name)).map(|(_, value)| value)
    }

    /// The path of `key`, as text.
    pub(crate) fn path_of(&self, key: &str) -> String {
        KeyPath::Key(&self.path, key).to_string()
    }
}

/// Reads the values of one file and collects what is wrong with their shape.
#[derive(Debug)]
pub(crate) struct Decoder {
    /// The file as the user would write it.
    pub(crate) file: Arc<str>,
    form: Form,
}

/// What is wrong with the form of one file.
#[derive(Debug, Default)]
pub(crate) struct Form {
    /// In no order.
    pub(crate) problems: Vec<Problem>,
    /// Paths of the keys that unknown keys were probably meant to be.
    pub(crate) meant: Vec<String>,
}

impl Decoder {
    /// For the file of that name.
    pub(crate) fn new(file: Arc<str>) -> Self {
        Self { file, form: Form::default() }
    }

    /// Rules 1, 2, 5 and 6 of estate.md 1.2.
    pub(crate) fn parse(&mut self, bytes: &[u8]) -> Option<Node> {
        match yaml::parse(bytes) {
            Ok(node) => Some(node),
            Err(YamlError { kind, at }) => {
                self.problem(at, String::new(), &kind.to_string(), kind.help().to_owned());
                None
            }
        }
    }

    /// All that was wrong.
    pub(crate) fn into_form(self) -> Form {
        self.form
    }

    /// Whether something at `path` or below could not be read, or stands under a misspelt key: what
    /// was read there may not be all that its author wrote.
    pub(crate) fn is_in_doubt(&self, path: &str) -> bool {
        let of_problems = self.form.problems.iter().filter_map(|problem| problem.spot.as_ref());
        let mut paths = of_problems.map(|spot| &spot.path).chain(&self.form.meant);
        paths.any(|at| {
            at.strip_prefix(path)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        })
    }

    /// Rule 3: the document is a mapping, of these keys.
    pub(crate) fn document<'n>(&mut self, node: &'n Node, known: &[&str]) -> Fields<'n, 'static> {
        if node.is_null() {
            self.wrong_type(node, KeyPath::Root, "a mapping");
        }
        self.fields(node, KeyPath::Root, known)
    }

    /// A mapping of these keys; any other is a problem.
    pub(crate) fn fields<'n, 'p>(
        &mut self,
        node: &'n Node,
        path: KeyPath<'p>,
        known: &[&str],
    ) -> Fields<'n, 'p> {
        let fields = self.open(node, path);
        for (key, _) in fields.entries {
            let name = key.as_scalar().map_or("", |key| &key.text);
            if !known.contains(&name) {
                let near = nearest(name, known);
                let help = match near {
                    Some(key) => format!("did you mean {key}?"),
                    None => format!("known keys here: {}", known.join(", ")),
                };
                self.form.meant.extend(near.map(|key| fields.path_of(key)));
                let path = fields.path_of(name);
                self.problem(Some(key.at), path, &format!("unknown key {}", shown(name)), help);
            }
        }
        fields
    }

    fn open<'n, 'p>(&mut self, node: &'n Node, path: KeyPath<'p>) -> Fields<'n, 'p> {
        let entries: &[(Node, Node)] = match &node.value {
            Value::Mapping(entries) => entries,
            _ => {
                if !node.is_null() {
                    self.wrong_type(node, path, "a mapping");
                }
                &[]
            }
        };
        Fields { entries, at: node.at, path }
    }

    /// The source text of a scalar; empty when absent.
    pub(crate) fn string(&mut self, fields: &Fields<'_, '_>, key: &str) -> Located<String> {
        match fields.get(key) {
            Some(node) => self.text(node, KeyPath::Key(&fields.path, key)),
            None => Located { value: String::new(), at: fields.at(key) },
        }
    }

    fn text(&mut self, node: &Node, path: KeyPath<'_>) -> Located<String> {
        let value = match node.as_scalar() {
            _ if node.is_null() => String::new(),
            Some(scalar) => scalar.text.clone(),
            None => {
                self.wrong_type(node, path, "a string");
                String::new()
            }
        };
        Located { value, at: node.at }
    }

    /// A list; empty when absent.
    pub(crate) fn list<'n>(&mut self, fields: &Fields<'n, '_>, key: &str) -> &'n [Node] {
        let Some(node) = fields.get(key) else { return &[] };
        match &node.value {
            Value::Sequence(items) => items,
            _ => {
                self.wrong_type(node, KeyPath::Key(&fields.path, key), "a list");
                &[]
            }
        }
    }

    /// A list of strings; empty when absent.
    pub(crate) fn strings(&mut self, fields: &Fields<'_, '_>, key: &str) -> Vec<Located<String>> {
        let path = KeyPath::Key(&fields.path, key);
        let items = self.list(fields, key).iter().enumerate();
        items.map(|(index, item)| self.text(item, KeyPath::Index(&path, index))).collect()
    }

    /// A mapping of strings to strings, in authored order; empty when absent.
    pub(crate) fn string_map(
        &mut self,
        fields: &Fields<'_, '_>,
        key: &str,
    ) -> Vec<(Located<String>, Located<String>)> {
        let Some(node) = fields.get(key) else { return Vec::new() };
        let map = self.open(node, KeyPath::Key(&fields.path, key));
        let entries = map.entries.iter();
        entries
            .map(|(key, value)| {
                let key = self.text(key, map.path);
                let value = self.text(value, KeyPath::Key(&map.path, &key.value));
                (key, value)
            })
            .collect()
    }

    /// An integer, nothing else: no fraction, no quotes. `None` when absent (or wrong).
    pub(crate) fn integer(&mut self, fields: &Fields<'_, '_>, key: &str) -> Option<Located<i64>> {
        let node = fields.get(key)?;
        let path = KeyPath::Key(&fields.path, key);
        let scalar = node.as_scalar().filter(|scalar| is_untyped(scalar, "!!int"));
        match scalar.map(|scalar| integer(&scalar.text)) {
            Some(Ok(value)) => return Some(Located { value, at: node.at }),
            Some(Err(NotAnInteger::LeadingZero)) => {
                let help = "drop the leading zero: YAML 1.1 reads such a number as octal and \
                            YAML 1.2 does not";
                let text = format!("expected an integer, found {}", describe(node));
                self.problem(Some(node.at), path.to_string(), &text, help.to_owned());
            }
            _ => self.wrong_type(node, path, "an integer"),
        }
        None
    }

    /// `true` or `false`, nothing else; false when absent.
    pub(crate) fn boolean(&mut self, fields: &Fields<'_, '_>, key: &str) -> bool {
        let Some(node) = fields.get(key) else { return false };
        let scalar = node.as_scalar().filter(|scalar| is_untyped(scalar, "!!bool"));
        match scalar.map(|scalar| scalar.text.as_str()) {
            Some("true") => true,
            Some("false") => false,
            _ => {
                self.wrong_type(node, KeyPath::Key(&fields.path, key), "true or false");
                false
            }
        }
    }

    /// A mapping that is carried over as it is; `None` when absent.
    pub(crate) fn body(&mut self, fields: &Fields<'_, '_>, key: &str) -> Option<Node> {
        let node = fields.get(key)?;
        if matches!(node.value, Value::Mapping(_)) {
            return Some(node.clone());
        }
        self.wrong_type(node, KeyPath::Key(&fields.path, key), "a mapping");
        None
    }

    /// Says that `node` is not what belongs there.
    pub(crate) fn wrong_type(&mut self, node: &Node, path: KeyPath<'_>, expected: &str) {
        let text = format!("expected {expected}, found {}", describe(node));
        let help = format!("write {expected} here");
        self.problem(Some(node.at), path.to_string(), &text, help);
    }

    /// Adds a problem of this file.
    pub(crate) fn problem(&mut self, pos: Option<Pos>, path: String, text: &str, help: String) {
        self.form.problems.push(Problem {
            text: format!("{}: {text}", self.file),
            spot: Some(Spot { file: Arc::clone(&self.file), pos, path }),
            help,
        });
    }
}

/// An author's text in an error: quoted, escaped, and cut when it is long.
pub(crate) fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}

/// Whether a scalar may be read as the core type that `tag` names: plain, or tagged so.
fn is_untyped(scalar: &Scalar, tag: &str) -> bool {
    match &scalar.tag {
        None => scalar.style == Style::Plain,
        Some(found) => found == tag,
    }
}

fn describe(node: &Node) -> String {
    match &node.value {
        Value::Scalar(scalar) if scalar.style == Style::Plain && !node.is_null() => {
            let text = shown(&scalar.text);
            text.trim_matches('"').to_owned()
        }
        Value::Scalar(_) if node.is_null() => "nothing".to_owned(),
        Value::Scalar(scalar) => format!("the string {}", shown(&scalar.text)),
        Value::Sequence(_) => "a list".to_owned(),
        Value::Mapping(_) => "a mapping".to_owned(),
    }
}

enum NotAnInteger {
    LeadingZero,
    Other,
}

/// An integer as both YAML versions read it: decimal (with `_` between digits, as 1.1 and the
/// reference allow), `0x`, `0o`, `0b`. A decimal with a leading zero is octal in one of them.
fn integer(text: &str) -> Result<i64, NotAnInteger> {
    let (negative, digits) = match text.strip_prefix(['-', '+']) {
        Some(digits) => (text.starts_with('-'), digits),
        None => (false, text),
    };
    let (radix, digits) = match digits.get(..2) {
        Some("0x") => (16, &digits[2..]),
        Some("0o") => (8, &digits[2..]),
        Some("0b") => (2, &digits[2..]),
        _ => (10, digits),
    };
    let first_is_digit = digits.chars().next().is_some_and(|c| c.is_digit(radix));
    if !first_is_digit || !digits.chars().all(|c| c == '_' || c.is_digit(radix)) {
        return Err(NotAnInteger::Other);
    }
    if radix == 10 && digits.len() > 1 && digits.starts_with('0') {
        return Err(NotAnInteger::LeadingZero);
    }
    let magnitude =
        i128::from_str_radix(&digits.replace('_', ""), radix).map_err(|_| NotAnInteger::Other)?;
    i64::try_from(if negative { -magnitude } else { magnitude }).map_err(|_| NotAnInteger::Other)
}

/// The known key that an unknown one was probably meant to be.
fn nearest<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    let near = known
        .iter()
        .map(|&key| (distance(&name.to_lowercase(), key), key))
        .filter(|&(distance, key)| distance <= 2 && distance < key.len())
        .min();
    near.map(|(_, key)| key)
}

/// Edits (insert, delete, replace) from one to the other; keys longer than any of ours are far.
fn distance(from: &str, to: &str) -> usize {
    const LONGEST: usize = 40;
    if from.len() > LONGEST {
        return LONGEST;
    }
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &b) in to.iter().enumerate() {
            let replace = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = replace.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_what_both_yaml_versions_call_so() {
        let read = |text| integer(text).ok();
        for (text, value) in [
            ("0", 0),
            ("-1", -1),
            ("+5", 5),
            ("1_000", 1000),
            ("0x1F", 31),
            ("0o17", 15),
            ("0b101", 5),
            ("9223372036854775807", i64::MAX),
            ("-9223372036854775808", i64::MIN),
        ] {
            assert_eq!(read(text), Some(value), "{text}");
        }
        for text in [
            "",
            "-",
            "1.9",
            "1e3",
            "010",
            "00",
            "_1",
            "0x",
            "0xg",
            "1 0",
            "--1",
            "9223372036854775808",
            "١",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn a_near_miss_is_suggested() {
        let known = ["owner", "tier", "stage", "stages"];
        assert_eq!(nearest("Owner", &known), Some("owner"));
        assert_eq!(nearest("stagse", &known), Some("stage"));
        assert_eq!(nearest("teir", &known), Some("tier"));
        assert_eq!(nearest("blueprint", &known), None);
        assert_eq!(nearest(&"x".repeat(1_000_000), &["a"]), None);
    }

    #[test]
    fn paths_read_like_the_document() {
        let root = KeyPath::Root;
        let stages = KeyPath::Key(&root, "stages");
        let first = KeyPath::Index(&stages, 0);
        let matches = KeyPath::Key(&first, "match");
        assert_eq!(KeyPath::Key(&first, "soak").to_string(), "stages[0].soak");
        let dotted = KeyPath::Key(&matches, "host.name");
        assert_eq!(dotted.to_string(), "stages[0].match[\"host.name\"]");
    }
}
