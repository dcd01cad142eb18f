//! The token file: a line each `NAME SHA256HEX [attribute=value ...]`; blank lines and lines that
//! begin with `#` are skipped.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use subtle::ConstantTimeEq;

/// Largest token file read; some 400,000 lines.
pub const FILE_BYTES_MAX: u64 = 64 << 20;

/// One line of a token file.
#[derive(Debug, PartialEq, Eq)]
pub struct TokenLine {
    /// What logs call it; the token itself is never kept.
    pub name: Box<str>,
    /// SHA-256 of the token.
    pub sha256: [u8; 32],
    /// Attributes that every agent under this token must report with exactly these values.
    pub required: Box<[(Box<str>, Box<str>)]>,
}

/// What is wrong with a token file.
#[derive(Debug, thiserror::Error)]
pub enum TokenFileError {
    /// It cannot be read.
    #[error("cannot read the token file {}: {error}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Why.
        #[source]
        error: std::io::Error,
    },
    /// It is larger than [`FILE_BYTES_MAX`].
    #[error("the token file {} is larger than {FILE_BYTES_MAX} bytes", file.display())]
    TooLarge {
        /// The file.
        file: PathBuf,
    },
    /// A line does not say what it must.
    #[error("{}:{line}: {fault}; a line is NAME SHA256HEX [attribute=value ...], as 'gateway token new' prints it", file.display())]
    Line {
        /// The file.
        file: PathBuf,
        /// From 1.
        line: usize,
        /// What is wrong with it; never the line itself, which may hold a token by mistake.
        fault: String,
    },
}

/// Reads `file` into lines sorted by hash, ready for [`find`].
///
/// # Errors
///
/// The first line that is wrong, by number.
pub fn read(file: &Path) -> Result<Vec<Arc<TokenLine>>, TokenFileError> {
    let unreadable = |error| TokenFileError::Unreadable { file: file.to_owned(), error };
    let mut text = String::new();
    std::fs::File::open(file)
        .map_err(unreadable)?
        .take(FILE_BYTES_MAX + 1)
        .read_to_string(&mut text)
        .map_err(unreadable)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(TokenFileError::TooLarge { file: file.to_owned() });
    }

    let mut lines: BTreeMap<[u8; 32], (usize, Arc<TokenLine>)> = BTreeMap::new();
    for (index, text) in text.lines().enumerate() {
        let number = index + 1;
        let fault = |fault| TokenFileError::Line { file: file.to_owned(), line: number, fault };
        let Some(line) = parse(text).map_err(fault)? else { continue };
        let sha256 = line.sha256;
        if let Some((first, _)) = lines.insert(sha256, (number, Arc::new(line))) {
            return Err(fault(format!("the same token as line {first}")));
        }
    }
    Ok(lines.into_values().map(|(_, line)| line).collect())
}

fn parse(text: &str) -> Result<Option<TokenLine>, String> {
    let text = text.trim();
    if text.is_empty() || text.starts_with('#') {
        return Ok(None);
    }
    let mut words = text.split_whitespace();
    let name = words.next().unwrap_or_default();
    let digest = words.next().ok_or("no hash after the name")?;
    let sha256 = unhex(digest).ok_or("the second word is not 64 hex digits")?;
    let mut required: Vec<(Box<str>, Box<str>)> = Vec::new();
    for word in words {
        let (attribute, value) = word
            .split_once('=')
            .filter(|(attribute, value)| !attribute.is_empty() && !value.is_empty())
            .ok_or("a word after the hash is not attribute=value")?;
        if required.iter().any(|(seen, _)| &**seen == attribute) {
            return Err(format!("attribute '{attribute}' twice"));
        }
        required.push((attribute.into(), value.into()));
    }
    Ok(Some(TokenLine { name: name.into(), sha256, required: required.into() }))
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let text: &[u8; 64] = text.as_bytes().try_into().ok()?;
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|d| u8::try_from(d).ok());
    let mut out = [0; 32];
    for (byte, pair) in out.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(out)
}

/// The line with this hash, among lines sorted by hash.
///
/// The search goes by the hash's first eight bytes, which tell nothing about a token that is not
/// already known; the hashes that share them (one, in practice) are compared in constant time.
pub fn find<'l>(lines: &'l [Arc<TokenLine>], sha256: &[u8; 32]) -> Option<&'l Arc<TokenLine>> {
    let begin = lines.partition_point(|line| line.sha256[..8] < sha256[..8]);
    lines[begin..]
        .iter()
        .take_while(|line| line.sha256[..8] == sha256[..8])
        .find(|line| bool::from(line.sha256.ct_eq(sha256)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

    fn check(text: &str, expect: &str) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tokens");
        std::fs::write(&file, text).unwrap();
        let error = read(&file).unwrap_err().to_string();
        let error = error.replace(&format!("{}", dir.path().display()), "DIR");
        assert!(error.starts_with(expect), "{error}");
    }

    #[test]
    fn a_wrong_line_is_named_and_never_echoed() {
        check("# ok\n\nname\n", "DIR/tokens:3: no hash after the name");
        check("name tidegate_secret", "DIR/tokens:1: the second word is not 64 hex digits");
        check(&format!("a {HASH} team"), "DIR/tokens:1: a word after the hash is not");
        check(&format!("a {HASH} team=a team=b"), "DIR/tokens:1: attribute 'team' twice");
        check(&format!("a {HASH}\nb {HASH}"), "DIR/tokens:2: the same token as line 1");
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = read(Path::new("/nonexistent/tokens")).unwrap_err().to_string();
        assert!(error.starts_with("cannot read the token file /nonexistent/tokens: "), "{error}");
    }
}
