//! Which bytes a collector is given, and by which two names they are known (estate.md, decision 9).

mod commit_line;
mod scan;

use std::fmt;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use commit_line::CommitLine;

/// SHA-256 of an artefact's bytes as they are.
pub type RawHash = [u8; 32];

/// SHA-256 of an artefact's bytes without what changes at every commit.
///
/// Two artefacts with one content hash configure a collector alike; the gateway offers under this
/// hash. Displays as 64 lower-case hex characters, which is also how it goes over the wire.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContentHash(pub [u8; 32]);

impl ContentHash {
    /// The 64 lower-case hex characters, without allocating.
    pub fn to_hex(self) -> [u8; 64] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut hex = [0; 64];
        for (pair, byte) in hex.chunks_exact_mut(2).zip(self.0) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 0xf)];
        }
        hex
    }

    /// Reads 64 lower-case hex characters; `None` for anything else.
    pub fn from_hex(hex: &[u8]) -> Option<Self> {
        if hex.len() != 64 {
            return None;
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(hex.chunks_exact(2)) {
            *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
        }
        Some(Self(bytes))
    }
}

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

impl fmt::Display for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A rendered configuration. Never blank: there is no way to make one from white space only, so
/// that no empty config can ever be offered (serving.md 7).
///
/// Cloning shares the bytes. Both hashes are computed once, when it is made.
#[derive(Clone, PartialEq, Eq)]
pub struct Artefact {
    bytes: Bytes,
    raw: RawHash,
    content: ContentHash,
    commit: Option<Box<str>>,
}

/// What was to become an [`Artefact`] is empty or holds nothing but white space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is empty")]
pub struct BlankArtefact;

impl Artefact {
    /// Takes the bytes as they are.
    ///
    /// # Errors
    /// [`BlankArtefact`] when there is nothing in them but white space.
    pub fn new(bytes: impl Into<Bytes>) -> Result<Self, BlankArtefact> {
        let bytes = bytes.into();
        if bytes.iter().all(|byte| byte.is_ascii_whitespace() || *byte == 0x0b) {
            return Err(BlankArtefact);
        }
        let raw = Sha256::digest(&bytes).into();
        let body = comment_block(&bytes);
        let (content, commit) = match commit_line::find(&bytes) {
            Some(CommitLine { line, commit }) if line.start >= body => {
                let content = Sha256::new_with_prefix(&bytes[body..line.start])
                    .chain_update(&bytes[line.end..])
                    .finalize();
                (content, Some(commit.into()))
            }
            _ => (Sha256::digest(&bytes[body..]), None),
        };
        Ok(Self { bytes, raw, content: ContentHash(content.into()), commit })
    }

    /// The bytes a collector gets, unchanged.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// SHA-256 of all bytes: what the reference implementation offers under.
    pub fn raw_hash(&self) -> RawHash {
        self.raw
    }

    /// The hash that the gateway offers under.
    pub fn content_hash(&self) -> ContentHash {
        self.content
    }

    /// The value at `service.telemetry.resource.telecraft.commit`. `None` where the document has
    /// no such line of its own: then only the comment block is left out of the content hash, each
    /// merge may change it, and that is a finding.
    pub fn commit(&self) -> Option<&str> {
        self.commit.as_deref()
    }
}

impl fmt::Debug for Artefact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Artefact({} bytes, {})", self.bytes.len(), self.content)
    }
}

/// Where the leading comment block ends: the first line that does not begin with `#`. A byte-order
/// mark before it goes with it.
fn comment_block(bytes: &[u8]) -> usize {
    let mut at = if bytes.starts_with(b"\xef\xbb\xbf#") { 3 } else { 0 };
    while bytes.get(at) == Some(&b'#') {
        let line = &bytes[at..];
        at += line.iter().position(|byte| *byte == b'\n').map_or(line.len(), |end| end + 1);
    }
    at
}

#[cfg(test)]
mod tests;
