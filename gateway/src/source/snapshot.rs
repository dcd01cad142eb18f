//! A snapshot file, as `render snapshot` writes it (estate.md, decision 13).

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::{Loaded, SourceError};
use crate::reload::Stamp;

/// Largest snapshot file read: a tree's limit, and as much again for what stands around it.
pub const SNAPSHOT_BYTES_MAX: u64 = 2 * render::tree::MAX_TREE_BYTES;

/// Permission bits of writers other than the owner.
const OTHERS_WRITE: u32 = 0o022;

/// A snapshot file, and what `stat` said when it last gave a head.
#[derive(Debug)]
pub struct FileSource {
    file: PathBuf,
    key: Option<PathBuf>,
    seen: Option<Stamp>,
}

impl FileSource {
    /// Nothing is read yet.
    pub fn new(file: PathBuf, key: Option<PathBuf>) -> Self {
        Self { file, key, seen: None }
    }

    /// See [`super::Source::look`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn look(&mut self) -> Result<Option<Loaded>, SourceError> {
        let unreadable = |error| SourceError::Unreadable { file: self.file.clone(), error };
        // The opened file is judged, not the path, which could meanwhile lead elsewhere.
        let mut open = File::open(&self.file).map_err(unreadable)?;
        let meta = open.metadata().map_err(unreadable)?;
        let mode = meta.mode() & 0o777;
        if mode & OTHERS_WRITE != 0 {
            self.seen = None;
            return Err(SourceError::Writable { file: self.file.clone(), mode });
        }
        let stamp = Stamp::from(&meta);
        if self.seen == Some(stamp) {
            return Ok(None);
        }
        self.seen = None;
        let mut bytes = Vec::new();
        open.by_ref()
            .take(SNAPSHOT_BYTES_MAX)
            .read_to_end(&mut bytes)
            .map_err(|error| SourceError::Unreadable { file: self.file.clone(), error })?;
        let loaded = decode(&bytes, self.key.as_deref())
            .map_err(|why| SourceError::Snapshot { file: self.file.clone(), why })?;
        self.seen = Some(stamp);
        Ok(Some(loaded))
    }
}

fn decode(_bytes: &[u8], _key: Option<&Path>) -> Result<Loaded, String> {
    Err("this build reads no snapshot files".to_owned())
}
