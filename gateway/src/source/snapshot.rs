//! A snapshot file, as `render snapshot` writes it (estate.md, decision 13).

use std::path::{Path, PathBuf};

use ed25519_dalek::VerifyingKey;
use render::snapshot::file;

use super::{Loaded, SourceError};
use crate::reload::Stamp;

/// A snapshot file, and what `stat` said when it last gave a head.
#[derive(Debug)]
pub struct FileSource {
    file: PathBuf,
    key: Option<VerifyingKey>,
    seen: Option<Stamp>,
}

impl FileSource {
    /// Nothing is read yet, but the key that must have signed it.
    ///
    /// # Errors
    ///
    /// When there is no key in `key`.
    pub fn new(file: PathBuf, key: Option<&Path>) -> Result<Self, SourceError> {
        let key = key.map(verifying_key).transpose()?;
        Ok(Self { file, key, seen: None })
    }

    /// See [`super::Source::look`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn look(&mut self) -> Result<Option<Loaded>, SourceError> {
        // Taken before the read; a change of permissions changes it, too.
        let stamp = Stamp::of(&self.file);
        if stamp.is_some() && self.seen == stamp {
            return Ok(None);
        }
        self.seen = None;
        let (served, meta) = file::read(&self.file, self.key.as_ref())
            .map_err(|error| SourceError::Snapshot { file: self.file.clone(), error })?;
        self.seen = stamp;
        let (commit_unix_ms, made_unix_ms) = (None, Some(meta.created_ms));
        Ok(Some(Loaded { served, commit_unix_ms, made_unix_ms }))
    }
}

fn verifying_key(key: &Path) -> Result<VerifyingKey, SourceError> {
    let unfit = |why: String| SourceError::Key { file: key.to_owned(), why };
    let pem = std::fs::read_to_string(key).map_err(|error| unfit(error.to_string()))?;
    file::verifying_key(&pem).map_err(|error| unfit(error.to_string()))
}
