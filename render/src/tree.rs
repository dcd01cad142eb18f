//! The files of an estate, read once and held in memory.
//!
//! Every loader works on a [`Tree`], wherever it came from (a directory, a git commit), so a
//! reader can never see half of a concurrent write twice.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Relative path (with `/`) to bytes, plus the label that error texts put before a path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    /// What the user called the root (`../my-estate`), put before each path in error texts.
    pub label: String,
    /// Relative path to contents, in byte order of the path.
    pub files: BTreeMap<String, Arc<[u8]>>,
}

impl Tree {
    /// `label/path` as the user would write it.
    pub fn display(&self, path: &str) -> Arc<str> {
        if self.label.is_empty() {
            return path.into();
        }
        format!("{}/{}", self.label.trim_end_matches('/'), path).into()
    }

    /// The bytes at `path`.
    pub fn get(&self, path: &str) -> Option<&Arc<[u8]>> {
        self.files.get(path)
    }
}
