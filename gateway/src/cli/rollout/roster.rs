//! A list of collectors in a file: a YAML list of mappings from attribute to value, or one JSON
//! object per line.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use render::yaml::{self, Meaning, Node, Pos, Value, meaning};

/// Bytes of a YAML roster, which is held as a whole; past it, write JSON lines.
pub const YAML_BYTES_MAX: u64 = 64 << 20;
/// Bytes of one line of JSON.
pub const LINE_BYTES_MAX: u64 = 64 << 10;
/// Attributes of one collector.
pub const ATTRIBUTES_MAX: usize = 128;

/// What is wrong with a roster.
#[derive(Debug, thiserror::Error)]
pub enum RosterError {
    /// It cannot be read.
    #[error("cannot read the roster {}: {error}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Why.
        #[source]
        error: std::io::Error,
    },
    /// Something in it is not a collector.
    #[error("{}:{line}: {why}", file.display())]
    Unfit {
        /// The file.
        file: PathBuf,
        /// From 1.
        line: u32,
        /// What, and the way out.
        why: String,
    },
}

/// Attributes and values of one collector.
pub type Attributes = [(String, String)];

/// Hands every collector of `file` to `take`, with its line. A file that begins with `{` has JSON
/// on its lines, any other is YAML.
///
/// # Errors
/// The first line that is wrong; those before it were handed on.
pub fn read(file: &Path, take: &mut dyn FnMut(u32, &Attributes)) -> Result<(), RosterError> {
    let unreadable = |error| RosterError::Unreadable { file: file.to_owned(), error };
    let mut reader = BufReader::new(File::open(file).map_err(unreadable)?);
    // What the first read brings is enough: nobody begins a roster with kilobytes of blanks.
    let ahead = reader.fill_buf().map_err(unreadable)?;
    let first = ahead.iter().copied().find(|byte| !byte.is_ascii_whitespace());
    let parsed = match first {
        Some(b'{') => json_lines(reader, take),
        _ => yaml_list(reader, take),
    };
    parsed.map_err(|fault| match fault {
        Fault::Io(error) => unreadable(error),
        Fault::At(line, why) => RosterError::Unfit { file: file.to_owned(), line, why },
    })
}

enum Fault {
    Io(std::io::Error),
    At(u32, String),
}

fn json_lines(
    mut reader: impl BufRead,
    take: &mut dyn FnMut(u32, &Attributes),
) -> Result<(), Fault> {
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let read = reader.by_ref().take(LINE_BYTES_MAX + 1).read_until(b'\n', &mut line);
        if read.map_err(Fault::Io)? == 0 {
            break;
        }
        let at = |why: String| Fault::At(number, why);
        if line.len() as u64 > LINE_BYTES_MAX {
            return Err(at(format!("the line has more than {LINE_BYTES_MAX} bytes")));
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        let object: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(&line)
            .map_err(|error| at(format!("not one JSON object on one line: {error}")))?;
        let attributes = object.into_iter().map(|(name, value)| match value {
            serde_json::Value::String(value) => Ok((name, value)),
            other => Err(at(format!("{name:?} is {other}, not a string; put it in quotes"))),
        });
        let attributes: Vec<_> = attributes.collect::<Result<_, _>>()?;
        check_count(attributes.len()).map_err(at)?;
        take(number, &attributes);
    }
    Ok(())
}

fn yaml_list(reader: impl Read, take: &mut dyn FnMut(u32, &Attributes)) -> Result<(), Fault> {
    let mut bytes = Vec::new();
    reader.take(YAML_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(Fault::Io)?;
    if bytes.len() as u64 > YAML_BYTES_MAX {
        let why =
            format!("more than {YAML_BYTES_MAX} bytes of YAML; write one JSON object per line");
        return Err(Fault::At(1, why));
    }
    let root = yaml::parse(&bytes).map_err(|error| {
        let line = error.at.map_or(1, |at| at.line);
        Fault::At(line, format!("{error}; {}", error.kind.help()))
    })?;
    let Value::Sequence(items) = &root.value else {
        return Err(fault(root.at, "not a list; begin each collector with '- '"));
    };
    for item in items {
        let Value::Mapping(entries) = &item.value else {
            return Err(fault(item.at, "not a mapping from attribute to value"));
        };
        let attributes: Vec<(String, String)> = entries
            .iter()
            .map(|(name, value)| Ok((text(name)?, text(value)?)))
            .collect::<Result<_, _>>()?;
        check_count(attributes.len()).map_err(|why| Fault::At(item.at.line, why))?;
        take(item.at.line, &attributes);
    }
    Ok(())
}

fn text(node: &Node) -> Result<String, Fault> {
    match node.as_scalar().map(|scalar| (scalar, meaning(scalar))) {
        Some((scalar, Meaning::Text(_))) => Ok(scalar.text.clone()),
        Some((scalar, _)) => {
            Err(fault(node.at, &format!("{} is not a string; put it in quotes", scalar.text)))
        }
        None => Err(fault(node.at, "not a string")),
    }
}

fn fault(at: Pos, why: &str) -> Fault {
    Fault::At(at.line, why.to_owned())
}

fn check_count(count: usize) -> Result<(), String> {
    match count {
        0 => Err("no attribute".to_owned()),
        1..=ATTRIBUTES_MAX => Ok(()),
        _ => Err(format!("more than {ATTRIBUTES_MAX} attributes")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Collector = (u32, Vec<(String, String)>);

    fn all(text: &str) -> Result<Vec<Collector>, String> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("roster");
        std::fs::write(&file, text).unwrap();
        let mut all = Vec::new();
        let read = read(&file, &mut |line, attributes| all.push((line, attributes.to_vec())));
        let name = format!("{}:", file.display());
        read.map(|()| all).map_err(|error| error.to_string().replace(&name, ""))
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
    }

    #[test]
    fn yaml_and_json_lines_say_the_same() {
        let expected = vec![pairs(&[("a", "1"), ("b", "é")]), pairs(&[("a", "x")])];
        let told = |text| all(text).unwrap().into_iter().unzip::<_, _, Vec<_>, Vec<_>>();
        assert_eq!(told("# who\n- a: '1'\n  b: é\n- {a: x}\n"), (vec![2, 4], expected.clone()));
        assert_eq!(told("\n{\"a\":\"1\",\"b\":\"é\"}\n\n{\"a\":\"x\"}"), (vec![2, 4], expected));
        assert_eq!(all("[]"), Ok(vec![]));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        let long = format!("{{\"a\":\"{}\"}}\n", "x".repeat(LINE_BYTES_MAX as usize));
        let many: String = (0..=ATTRIBUTES_MAX).map(|n| format!("  k{n}: v\n")).collect();
        for (text, why) in [
            ("- a: x\n- a: 1\n", "2: 1 is not a string; put it in quotes"),
            ("- a: x\n- b\n", "2: not a mapping"),
            ("a: x\n", "1: not a list"),
            ("- a: x\n  a: y\n", "2: duplicate key"),
            ("- a: [x]\n", "1: not a string"),
            ("- {}\n", "1: no attribute"),
            ("{\"a\":\"x\"}\n{\"a\":1}\n", "2: \"a\" is 1, not a string"),
            ("{\"a\":\"x\"}\nnonsense\n", "2: not one JSON object"),
            (&long, "1: the line has more than"),
            (&format!("-\n{many}"), ": more than 128 attributes"),
            ("", "1: empty file"),
        ] {
            let error = all(text).unwrap_err();
            assert!(error.contains(why), "{why}: {error}");
        }
        let missing = read(Path::new("/nonexistent/roster"), &mut |_, _| {}).unwrap_err();
        assert!(missing.to_string().contains("cannot read the roster /nonexistent/roster"));
    }
}
