//! The files of a run: each written once, none replaced unasked.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::Path;

use anyhow::Context as _;

/// Writes, and counts what it opened.
pub(super) struct Files {
    force: bool,
    /// Files opened so far.
    pub(super) opened: i64,
}

impl Files {
    pub(super) fn new(force: bool) -> Self {
        Self { force, opened: 0 }
    }

    /// Writes a file that does not exist, or replaces it with `--force`.
    pub(super) fn write(&mut self, path: &Path, content: &str) -> anyhow::Result<()> {
        let mut options = OpenOptions::new();
        options.write(true);
        if self.force {
            options.create(true).truncate(true);
        } else {
            options.create_new(true);
        }
        let mut file = match options.open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                anyhow::bail!(
                    "{} exists; name another file, or replace it with --force",
                    path.display()
                )
            }
            Err(error) => {
                return Err(error).with_context(|| format!("cannot write {}", path.display()));
            }
        };
        self.opened += 1;
        file.write_all(content.as_bytes())
            .with_context(|| format!("cannot write {}", path.display()))
    }
}
