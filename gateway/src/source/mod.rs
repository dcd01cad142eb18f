//! Where a head comes from: a directory, a git remote or a snapshot file (serving.md decision 16).
//!
//! [`Source::look`] reads, on a blocking thread; [`poll::Poller`] looks again and again, puts what
//! is new in force, and keeps the old head when a look fails; [`status::Status`] remembers why.

use std::path::{Path, PathBuf};

use render::problem::Refusal;
use render::snapshot::CompileError;
use render::snapshot::served::{self, Served};
use render::tree::{Tree, TreeError};

use crate::config::{Place, SourceConfig};

pub mod dir;
pub mod git;
pub mod poll;
pub mod snapshot;
pub mod status;

/// One place to look at; remembers what it saw, so that an unchanged one costs little.
#[derive(Debug)]
pub enum Source {
    /// A directory.
    Estate(dir::DirSource),
    /// A git remote.
    Repo(git::RepoSource),
    /// A snapshot file.
    Snapshot(snapshot::FileSource),
}

/// What a look found that was not there before.
#[derive(Debug)]
pub struct Loaded {
    /// What is to be served.
    pub served: Served,
    /// When its commit was made, in milliseconds since 1970, where the source says so.
    pub commit_unix_ms: Option<u64>,
}

/// Why a look did not give a head.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// Nothing there is an estate.
    #[error("{place} holds no estate: it has no teams/ folder; give the root of an estate")]
    NotAnEstate {
        /// As the user named it.
        place: String,
    },
    /// The files cannot be read.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// The directory was being written all the time.
    #[error("{place} kept changing while it was read; it is read again at the next look")]
    Changing {
        /// As the user named it.
        place: String,
    },
    /// The files are read, and wrong.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// What they say cannot be served.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// Git could not fetch or read it.
    #[error(transparent)]
    Git(#[from] git::GitError),
    /// Others than its owner could have written the snapshot.
    #[error(
        "{} may be written by its group or by others (mode {mode:03o}); run 'chmod go-w' on it", file.display()
    )]
    Writable {
        /// The snapshot file.
        file: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The snapshot file cannot be read.
    #[error("cannot read the snapshot {}: {error}", file.display())]
    Unreadable {
        /// The snapshot file.
        file: PathBuf,
        /// Why.
        #[source]
        error: std::io::Error,
    },
    /// The snapshot file is no snapshot, or not one that may be served.
    #[error("{}: {why}", file.display())]
    Snapshot {
        /// The snapshot file.
        file: PathBuf,
        /// Why.
        why: String,
    },
}

impl SourceError {
    /// The `reason` label of `tidegate_head_refused_total`.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NotAnEstate { .. } => "not_an_estate",
            Self::Tree(_) | Self::Unreadable { .. } => "unreadable",
            Self::Changing { .. } => "changing",
            Self::Refused(_) => "invalid",
            Self::Compile(_) => "compile",
            Self::Git(error) => error.reason(),
            Self::Writable { .. } => "writable",
            Self::Snapshot { .. } => "snapshot",
        }
    }
}

impl Source {
    /// A source that has seen nothing yet.
    ///
    /// # Errors
    ///
    /// When the place for a git clone cannot be made.
    pub fn new(config: &SourceConfig) -> Result<Self, SourceError> {
        Ok(match &config.place {
            Place::Estate { dir } => Self::Estate(dir::DirSource::new(dir.clone())),
            Place::Repo { url, reference, path, cache } => Self::Repo(git::RepoSource::new(
                url,
                reference.as_deref(),
                path,
                cache.as_deref(),
                config.timeout,
            )?),
            Place::Snapshot { file, key } => {
                Self::Snapshot(snapshot::FileSource::new(file.clone(), key.clone()))
            }
        })
    }

    /// A directory to be removed when the process ends without dropping the source.
    pub fn temporary(&self) -> Option<&Path> {
        match self {
            Self::Repo(source) => source.temporary(),
            Self::Estate(_) | Self::Snapshot(_) => None,
        }
    }

    /// Looks once, blocking; `None` when nothing changed since the last look that gave a head.
    ///
    /// # Errors
    ///
    /// Why there is nothing to serve now; the next look starts afresh.
    pub fn look(&mut self) -> Result<Option<Loaded>, SourceError> {
        match self {
            Self::Estate(source) => source.look(),
            Self::Repo(source) => source.look(),
            Self::Snapshot(source) => source.look(),
        }
    }
}

/// What a tree of files gives to serve.
fn serve_tree(tree: &Tree, commit: Option<&str>) -> Result<Served, SourceError> {
    let topology = render::estate::load_topology(tree)?;
    Ok(served::from_topology(&topology, tree, commit)?)
}
