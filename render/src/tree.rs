//! The files of an estate, read once and held in memory.
//!
//! Every loader works on a [`Tree`], wherever it came from (a directory, a git commit), so a
//! reader can never see half of a concurrent write twice.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::problem::printable;

/// Files in one estate. 10,000 Tiers with their artefacts are about 40,000.
pub const MAX_FILES: usize = 200_000;

/// Bytes of one file.
pub const MAX_FILE_BYTES: u64 = 4 << 20;

/// Bytes of all files together.
pub const MAX_TREE_BYTES: u64 = 1 << 30;

/// Folders below `rendered/`; ours are two deep.
const MAX_RENDERED_DEPTH: usize = 8;

/// The files at the root of an estate that `render` or `serve` reads or writes.
const ROOT_FILES: [&str; 5] =
    ["teams.yaml", "telemetry.yaml", "allow-lists.yaml", "grants.yaml", "CODEOWNERS"];

/// The folders of a team that hold authored objects.
const KINDS: [&str; 5] = ["components", "blueprints", "tiers", "services", "rollouts"];

/// Relative path (with `/`) to bytes, plus the label that error texts put before a path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    /// What the user called the root (`../my-estate`), put before each path in error texts.
    pub label: String,
    /// Relative path to contents, in byte order of the path.
    pub files: BTreeMap<String, Arc<[u8]>>,
}

/// Why a directory cannot be read as an estate. Each names the path as the user would write it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TreeError {
    /// The root is missing, or not a directory.
    #[error("{path}: not a directory; give the root of an estate, the folder that holds teams/")]
    NotADirectory {
        /// The root.
        path: String,
    },
    /// The operating system refused.
    #[error("failed to read {path}: {source}")]
    Io {
        /// File or directory.
        path: String,
        /// What it said.
        source: io::Error,
    },
    /// A symbolic link points outside of the estate (estate.md, decision 16).
    #[error(
        "{path}: symbolic link leads out of the estate; put the file inside, or delete the link"
    )]
    LeadsOut {
        /// The link.
        path: String,
    },
    /// A directory, a pipe, a device where a file belongs.
    #[error("{path}: not a regular file; an authored object is a file")]
    NotAFile {
        /// What it is called.
        path: String,
    },
    /// A name that is not UTF-8 cannot be an object's.
    #[error("{path}: name is not UTF-8; rename the file")]
    NameNotUtf8 {
        /// The name, with what is not text replaced.
        path: String,
    },
    /// Past [`MAX_FILES`], [`MAX_FILE_BYTES`] or [`MAX_TREE_BYTES`], or too many folders deep.
    #[error("{path}: past the limit of {limit} {what}")]
    TooLarge {
        /// The file or directory that is too much.
        path: String,
        /// The limit's value.
        limit: u64,
        /// What is counted.
        what: &'static str,
    },
}

impl Tree {
    /// Reads the estate at `root`: [`is_estate_path`] says which files. `label` is what the user
    /// called it.
    ///
    /// A symbolic link to a file is followed if it stays inside; a team directory that is a link
    /// is skipped (estate.md 1.1).
    ///
    /// # Errors
    ///
    /// The first file that cannot be read, leads out of the estate, or passes a limit.
    pub fn read_dir(root: &Path, label: &str) -> Result<Self, TreeError> {
        let label = printable(label);
        let not_a_directory = || TreeError::NotADirectory { path: label.to_string() };
        let root = root.canonicalize().map_err(|_| not_a_directory())?;
        if !root.is_dir() {
            return Err(not_a_directory());
        }
        let tree = Self { label: label.to_string(), files: BTreeMap::new() };
        let mut reader = Reader { root, tree, bytes: 0 };
        for name in ROOT_FILES {
            reader.file(name)?;
        }
        for team in reader.names("teams")? {
            reader.team(&format!("teams/{team}"))?;
        }
        reader.rendered("rendered", 1)?;
        Ok(reader.tree)
    }

    /// `label/path` as the user would write it, [`printable`].
    pub fn display(&self, path: &str) -> Arc<str> {
        if self.label.is_empty() {
            return printable(path).into();
        }
        printable(&format!("{}/{}", self.label.trim_end_matches('/'), path)).into()
    }

    /// The bytes at `path`.
    pub fn get(&self, path: &str) -> Option<&Arc<[u8]>> {
        self.files.get(path)
    }

    /// The authored objects of one kind (`tiers`, `rollouts`, …) in byte order of their paths.
    pub fn objects<'t>(
        &'t self,
        kind: &'t str,
    ) -> impl Iterator<Item = (ObjectPath<'t>, &'t Arc<[u8]>)> {
        self.files
            .range("teams/".to_owned().."teams0".to_owned())
            .filter_map(|(path, bytes)| Some((ObjectPath::parse(path)?, bytes)))
            .filter(move |(path, _)| path.kind == kind)
    }
}

/// `teams/<team>/<kind>/<name>.yaml`, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectPath<'t> {
    /// The whole, relative to the root.
    pub path: &'t str,
    /// Directory of the team.
    pub team: &'t str,
    /// `components`, `blueprints`, `tiers`, `services` or `rollouts`.
    pub kind: &'t str,
    /// File name without its last extension; may be empty.
    pub name: &'t str,
}

impl<'t> ObjectPath<'t> {
    /// Takes a path apart; `None` for a path that is no object's.
    pub fn parse(path: &'t str) -> Option<Self> {
        let mut parts = path.strip_prefix("teams/")?.split('/');
        let (team, kind, file) = (parts.next()?, parts.next()?, parts.next()?);
        if parts.next().is_some() || !KINDS.contains(&kind) {
            return None;
        }
        let (name, extension) = file.rsplit_once('.')?;
        let is_yaml =
            extension.eq_ignore_ascii_case("yaml") || extension.eq_ignore_ascii_case("yml");
        is_yaml.then_some(Self { path, team, kind, name })
    }
}

/// Whether a path relative to the root belongs to the estate: a file at the root that we know, an
/// authored object, or anything under `rendered/`. Whoever builds a [`Tree`] asks this first.
pub fn is_estate_path(path: &str) -> bool {
    ROOT_FILES.contains(&path) || path.starts_with("rendered/") || ObjectPath::parse(path).is_some()
}

struct Reader {
    /// Canonical, so that a prefix test tells inside from outside.
    root: PathBuf,
    tree: Tree,
    bytes: u64,
}

impl Reader {
    fn team(&mut self, team: &str) -> Result<(), TreeError> {
        let place = self.root.join(team);
        let meta = fs::symlink_metadata(&place).map_err(|source| self.io(team, source))?;
        if meta.is_symlink() {
            // A link inside is skipped, one that leads out is refused, and one that leads nowhere
            // does neither harm nor good.
            if place.exists() {
                self.resolve(team)?;
            }
            return Ok(());
        }
        if !meta.is_dir() {
            return Ok(());
        }
        for kind in KINDS {
            let folder = format!("{team}/{kind}");
            for name in self.names(&folder)? {
                let path = format!("{folder}/{name}");
                if ObjectPath::parse(&path).is_some() {
                    self.file(&path)?;
                }
            }
        }
        Ok(())
    }

    fn rendered(&mut self, folder: &str, depth: usize) -> Result<(), TreeError> {
        for name in self.names(folder)? {
            let path = format!("{folder}/{name}");
            let place = self.root.join(&path);
            let meta = fs::symlink_metadata(&place).map_err(|source| self.io(&path, source))?;
            if meta.is_dir() {
                if depth == MAX_RENDERED_DEPTH {
                    let limit = MAX_RENDERED_DEPTH as u64;
                    return Err(self.too_large(&path, limit, "folders below each other"));
                }
                self.rendered(&path, depth + 1)?;
            } else {
                self.file(&path)?;
            }
        }
        Ok(())
    }

    /// What a folder holds, in byte order; nothing if it is missing or is a file.
    fn names(&self, folder: &str) -> Result<Vec<String>, TreeError> {
        let place = match self.resolve(folder) {
            Ok(place) if place.is_dir() => place,
            Ok(_) => return Ok(Vec::new()),
            Err(TreeError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Ok(Vec::new());
            }
            Err(error) => return Err(error),
        };
        let mut names = Vec::new();
        for entry in fs::read_dir(place).map_err(|source| self.io(folder, source))? {
            let entry = entry.map_err(|source| self.io(folder, source))?;
            let name = entry.file_name().into_string().map_err(|name| {
                let path = self.show(&format!("{folder}/{}", name.to_string_lossy()));
                TreeError::NameNotUtf8 { path }
            })?;
            if names.len() == MAX_FILES {
                return Err(self.too_large(folder, MAX_FILES as u64, "files"));
            }
            names.push(name);
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Reads one file if it is there. A directory with an object's name is ignored.
    fn file(&mut self, path: &str) -> Result<(), TreeError> {
        let linked = match fs::symlink_metadata(self.root.join(path)) {
            Ok(meta) if meta.is_dir() => return Ok(()),
            Ok(meta) => meta.is_symlink(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(source) => return Err(self.io(path, source)),
        };
        let place = self.resolve(path)?;
        let meta = fs::metadata(&place).map_err(|source| self.io(path, source))?;
        if linked && meta.is_dir() {
            return Ok(());
        }
        if !meta.is_file() {
            return Err(TreeError::NotAFile { path: self.show(path) });
        }
        if self.tree.files.len() == MAX_FILES {
            return Err(self.too_large(path, MAX_FILES as u64, "files"));
        }
        let mut bytes = Vec::with_capacity(usize::try_from(meta.len()).unwrap_or(0).min(1 << 20));
        File::open(&place)
            .and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes))
            .map_err(|source| self.io(path, source))?;
        let length = bytes.len() as u64;
        if length > MAX_FILE_BYTES {
            return Err(self.too_large(path, MAX_FILE_BYTES, "bytes in a file"));
        }
        self.bytes += length;
        if self.bytes > MAX_TREE_BYTES {
            return Err(self.too_large(path, MAX_TREE_BYTES, "bytes in an estate"));
        }
        self.tree.files.insert(path.to_owned(), bytes.into());
        Ok(())
    }

    /// Where a path ends up once every link on it is followed; refused outside of the root.
    fn resolve(&self, path: &str) -> Result<PathBuf, TreeError> {
        let place = self.root.join(path).canonicalize().map_err(|source| self.io(path, source))?;
        if place.starts_with(&self.root) {
            Ok(place)
        } else {
            Err(TreeError::LeadsOut { path: self.show(path) })
        }
    }

    fn show(&self, path: &str) -> String {
        self.tree.display(path).to_string()
    }

    fn io(&self, path: &str, source: io::Error) -> TreeError {
        TreeError::Io { path: self.show(path), source }
    }

    fn too_large(&self, path: &str, limit: u64, what: &'static str) -> TreeError {
        TreeError::TooLarge { path: self.show(path), limit, what }
    }
}

#[cfg(test)]
mod tests;
