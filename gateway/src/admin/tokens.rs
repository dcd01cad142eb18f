//! The operators' tokens: one per line, as text; blank lines and lines that begin with `#` are
//! skipped. Several at once, so that they can be rotated.

use std::io::Read;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

/// Tokens in one file.
pub const TOKENS_MAX: usize = 100;

/// Characters that 128 random bits need in the densest usual writing (base64).
const TOKEN_CHARS_MIN: usize = 22;

const FILE_BYTES_MAX: u64 = 1 << 20;

/// One reading of the file; keeps hashes only.
#[derive(Debug)]
pub struct AdminTokens(Option<Vec<[u8; 32]>>);

/// What is wrong with the file.
#[derive(Debug, thiserror::Error)]
pub enum AdminTokenError {
    /// It cannot be read.
    #[error("cannot read the admin token file {}: {error}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Why.
        #[source]
        error: std::io::Error,
    },
    /// It would let nobody, anybody or too many in.
    #[error("{}: {why}; 'gateway token new' prints a good one", file.display())]
    Unfit {
        /// The file.
        file: PathBuf,
        /// Why.
        why: String,
    },
}

impl AdminTokens {
    /// Asks for no token: the listener is on loopback and no file was given.
    pub const OPEN: Self = Self(None);

    /// The tokens in `file`.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, holds no token, or one that could be guessed.
    pub fn load(file: &Path) -> Result<Self, AdminTokenError> {
        let mut text = String::new();
        std::fs::File::open(file)
            .and_then(|open| open.take(FILE_BYTES_MAX).read_to_string(&mut text))
            .map_err(|error| AdminTokenError::Unreadable { file: file.to_owned(), error })?;
        let unfit = |why| AdminTokenError::Unfit { file: file.to_owned(), why };
        let mut hashes = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if line.len() < TOKEN_CHARS_MIN || line.contains(char::is_whitespace) {
                let line = index + 1;
                return Err(unfit(format!(
                    "line {line} is not one word of at least {TOKEN_CHARS_MIN} characters"
                )));
            }
            hashes.push(Sha256::digest(line.as_bytes()).into());
        }
        if hashes.is_empty() || hashes.len() > TOKENS_MAX {
            return Err(unfit(format!("it holds {} tokens, not 1 to {TOKENS_MAX}", hashes.len())));
        }
        Ok(Self(Some(hashes)))
    }

    /// Whether a token is asked for.
    pub fn required(&self) -> bool {
        self.0.is_some()
    }

    /// Whether `token` is one of them, in constant time over all.
    pub fn contains(&self, token: &[u8]) -> bool {
        self.contains_hash(&hash(token))
    }

    /// As [`contains`](Self::contains), of what [`hash`] made of a token.
    pub fn contains_hash(&self, hash: &[u8; 32]) -> bool {
        let known = self.0.as_deref().unwrap_or_default();
        known.iter().fold(Choice::from(0), |found, known| found | known.ct_eq(hash)).into()
    }
}

/// What is kept of a token.
pub fn hash(token: &[u8]) -> [u8; 32] {
    Sha256::digest(token).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_a_token_and_short_ones_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("admin");
        let load = |text: &str| {
            std::fs::write(&file, text).unwrap();
            AdminTokens::load(&file)
        };
        let tokens = load("# one\n0123456789abcdef01234567\n\nabcdef0123456789abcdef01\n").unwrap();
        assert!(tokens.contains(b"0123456789abcdef01234567"));
        assert!(tokens.contains(b"abcdef0123456789abcdef01"));
        assert!(!tokens.contains(b"# one"));
        assert!(!tokens.contains(b""));
        let error = load("secret\n").unwrap_err().to_string();
        assert!(error.contains("line 1 is not one word"), "{error}");
        assert!(load("").unwrap_err().to_string().contains("it holds 0 tokens"));
    }
}
