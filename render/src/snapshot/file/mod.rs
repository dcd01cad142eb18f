//! A snapshot as one self-checking file (estate.md, decision 13): what is served, without git,
//! estate or renderer at the reader's side. It holds artefacts, not offers.
//!
//! ```text
//! 0   magic, 8 bytes       56  body (see codec.rs)
//! 8   format version, u32  ..  Ed25519 signature of the first 56 bytes, when flagged
//! 12  flags, u32: 1 = signed
//! 16  length of the body, u64
//! 24  SHA-256 of the body
//! ```
//!
//! All numbers are little-endian. A reader takes its own format and the one before it, so that
//! replicas can be upgraded one by one; a change of what a field means is a new format.

mod codec;
mod keys;
mod wire;

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

use bytes::Bytes;
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use sha2::{Digest, Sha256};

use super::served::Served;

pub use keys::{KeyError, signing_key, verifying_key};

/// The format that is written. Formats `1..=FORMAT` are read; the first has none before it.
pub const FORMAT: u32 = 1;

/// Bytes of a snapshot file. Ten thousand Tiers of 10 kB each make 100 MB.
pub const MAX_FILE_BYTES: u64 = 512 << 20;

/// Begins with a byte that no text has, and holds both kinds of line break, so that a copy that
/// "mended" them is told from a damaged one at once.
const MAGIC: [u8; 8] = *b"\x89TGS\r\n\x1a\n";
const HEADER: usize = 56;
const SIGNATURE: usize = 64;
const SIGNED: u32 = 1;

/// Why a snapshot file was not read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// The system refused.
    #[error("{0}")]
    Io(String),
    /// Past [`MAX_FILE_BYTES`].
    #[error("{bytes} bytes are more than the {MAX_FILE_BYTES} of a snapshot file")]
    TooLarge {
        /// How many there are.
        bytes: u64,
    },
    /// Does not begin as one.
    #[error("not a snapshot file: write one with `render snapshot --estate DIR --out FILE`")]
    NotASnapshot,
    /// Written by a later version of this program.
    #[error("format {found} is newer than the {FORMAT} that this version reads: upgrade it first")]
    NewerFormat {
        /// The file's format.
        found: u32,
    },
    /// Shorter than it says it is.
    #[error("cut short: {bytes} of {expected} bytes are there")]
    Truncated {
        /// How many there are.
        bytes: u64,
        /// How many there should be.
        expected: u64,
    },
    /// The check sum does not fit, or what is inside contradicts itself.
    #[error("corrupted: {0}")]
    Corrupt(&'static str),
    /// A key was given and the file carries no signature.
    #[error("not signed, and a signature was asked for: `render snapshot --sign KEY` makes one")]
    Unsigned,
    /// Signed by another key, or changed since.
    #[error("the signature does not fit the given key")]
    BadSignature,
    /// Somebody else than its owner could change what is served.
    #[error("writable by group or others (mode {mode:03o}): chmod go-w it")]
    WritableByOthers {
        /// Permission bits.
        mode: u32,
    },
}

/// What a file says beside what is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileMeta {
    /// Its format.
    pub format: u32,
    /// When it was made, in milliseconds since 1970, by the clock of whoever wrote it.
    pub created_ms: u64,
    /// Whether it carries a signature (checked, if a key was given).
    pub signed: bool,
}

impl FileMeta {
    /// Whether this file was made before the one in force: loaded all the same, logged and
    /// counted (estate.md, decision 13).
    pub fn older_than(&self, in_force: &Self) -> bool {
        self.created_ms < in_force.created_ms
    }
}

/// Encodes; `created_ms` is the writer's time in milliseconds since 1970. Equal input gives equal
/// bytes, signature included.
///
/// # Errors
/// [`FileError::TooLarge`].
pub fn encode(
    served: &Served,
    created_ms: u64,
    key: Option<&SigningKey>,
) -> Result<Vec<u8>, FileError> {
    seal(&codec::encode(served, created_ms)?, key)
}

/// Puts a body between header and signature. Public so that a fuzzer gets past the check sum.
///
/// # Errors
/// [`FileError::TooLarge`].
pub fn seal(body: &[u8], key: Option<&SigningKey>) -> Result<Vec<u8>, FileError> {
    let length = body.len() as u64;
    let bytes = HEADER as u64 + length + SIGNATURE as u64;
    if bytes > MAX_FILE_BYTES {
        return Err(FileError::TooLarge { bytes });
    }
    let mut file = Vec::with_capacity(HEADER + body.len() + SIGNATURE);
    file.extend_from_slice(&MAGIC);
    file.extend_from_slice(&FORMAT.to_le_bytes());
    file.extend_from_slice(&if key.is_some() { SIGNED } else { 0 }.to_le_bytes());
    file.extend_from_slice(&length.to_le_bytes());
    file.extend_from_slice(&Sha256::digest(body));
    let signature = key.map(|key| key.sign(&file));
    file.extend_from_slice(body);
    if let Some(signature) = signature {
        file.extend_from_slice(&signature.to_bytes());
    }
    Ok(file)
}

/// Decodes and checks everything; with a key, also that it was signed by it.
///
/// # Errors
/// Every [`FileError`] but those about the file system. Never panics, and allocates no more than a
/// small multiple of the bytes that are there.
pub fn decode(
    file: impl Into<Bytes>,
    key: Option<&VerifyingKey>,
) -> Result<(Served, FileMeta), FileError> {
    let file: Bytes = file.into();
    let start = file.len().min(MAGIC.len());
    if file.is_empty() || file[..start] != MAGIC[..start] {
        return Err(FileError::NotASnapshot);
    }
    let truncated = |expected: u64| FileError::Truncated { bytes: file.len() as u64, expected };
    let Some((header, rest)) = file.split_first_chunk::<HEADER>() else {
        // A newer format may have a shorter header; its number comes first in all of them.
        if let Some(found) = file.get(8..12).map(number) {
            check_format(found)?;
        }
        return Err(truncated(HEADER as u64));
    };
    let format = number(&header[8..12]);
    check_format(format)?;
    let signed = match number(&header[12..16]) {
        0 => false,
        SIGNED => true,
        _ => return Err(FileError::Corrupt("unknown flags")),
    };
    let length = u64::from(number(&header[20..24])) << 32 | u64::from(number(&header[16..20]));
    let expected = (HEADER as u64 + if signed { SIGNATURE as u64 } else { 0 })
        .checked_add(length)
        .filter(|expected| *expected <= MAX_FILE_BYTES)
        .ok_or(FileError::TooLarge { bytes: length })?;
    if (file.len() as u64) < expected {
        return Err(truncated(expected));
    }
    if file.len() as u64 > expected {
        return Err(FileError::Corrupt("bytes after its end"));
    }
    let (body, signature) = rest.split_at(length as usize);
    if Sha256::digest(body)[..] != header[24..] {
        return Err(FileError::Corrupt("the check sum does not fit"));
    }
    if let Some(key) = key {
        let Ok(signature) = Signature::from_slice(signature) else {
            return Err(FileError::Unsigned);
        };
        key.verify_strict(header, &signature).map_err(|_| FileError::BadSignature)?;
    }
    let (served, created_ms) = codec::decode(&file.slice_ref(body))?;
    Ok((served, FileMeta { format, created_ms, signed }))
}

fn check_format(found: u32) -> Result<(), FileError> {
    match found {
        0 => Err(FileError::Corrupt("format 0")),
        1..=FORMAT => Ok(()),
        _ => Err(FileError::NewerFormat { found }),
    }
}

fn number(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

/// Reads and decodes a file that is to be served.
///
/// # Errors
/// As [`decode`]; also when it cannot be read, or somebody else than its owner may write it.
pub fn read(path: &Path, key: Option<&VerifyingKey>) -> Result<(Served, FileMeta), FileError> {
    let file = File::open(path).map_err(io_error)?;
    let metadata = file.metadata().map_err(io_error)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = metadata.permissions().mode() & 0o777;
        if mode & 0o022 != 0 {
            return Err(FileError::WritableByOthers { mode });
        }
    }
    if metadata.len() > MAX_FILE_BYTES {
        return Err(FileError::TooLarge { bytes: metadata.len() });
    }
    let mut bytes = Vec::with_capacity(metadata.len() as usize);
    // It may grow while it is read.
    let taken = file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(io_error)? as u64;
    if taken > MAX_FILE_BYTES {
        return Err(FileError::TooLarge { bytes: taken });
    }
    decode(bytes, key)
}

/// Writes what [`encode`] made, readable by all and writable by its owner: beside the target, then
/// renamed, so that a reader sees the old file or the new one, never half of it.
///
/// # Errors
/// [`FileError::Io`]; the target is then as it was.
pub fn write(path: &Path, file: &[u8]) -> Result<(), FileError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or_else(|| Path::new("."));
    let mut beside =
        tempfile::Builder::new().prefix(".snapshot-").tempfile_in(folder).map_err(io_error)?;
    beside.write_all(file).map_err(io_error)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = fs::Permissions::from_mode(0o644);
        beside.as_file().set_permissions(mode).map_err(io_error)?;
    }
    beside.as_file().sync_all().map_err(io_error)?;
    beside.persist(path).map_err(|error| io_error(error.error))?;
    // The rename itself lasts once its folder is on disk.
    #[cfg(unix)]
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(io_error)?;
    Ok(())
}

#[expect(clippy::needless_pass_by_value, reason = "the shape that map_err wants")]
fn io_error(error: io::Error) -> FileError {
    FileError::Io(error.to_string())
}
