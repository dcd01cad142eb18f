//! Where a head comes from: a directory, a git remote or a snapshot file (serving.md decision 16).
//!
//! [`Source::look`] reads, on a blocking thread; [`poll::Poller`] looks again and again, puts what
//! is new in force, and keeps the old head when a look fails; [`status::Status`] remembers why.

use std::path::{Path, PathBuf};

use render::problem::Refusal;
use render::snapshot::CompileError;
use render::snapshot::file::FileError;
use render::snapshot::served::Served;
use render::tree::TreeError;

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
    /// What tells an older head from a newer one, in milliseconds since 1970: when the commit or
    /// the snapshot file was made.
    pub made_unix_ms: Option<u64>,
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
    /// The snapshot file is none that may be served.
    #[error("{}: {error}", file.display())]
    Snapshot {
        /// The snapshot file.
        file: PathBuf,
        /// Why.
        #[source]
        error: FileError,
    },
    /// There is no key to check the snapshot with.
    #[error("cannot use {} as --snapshot-key: {why}", file.display())]
    Key {
        /// The key file.
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
            Self::Tree(_) => "unreadable",
            Self::Changing { .. } => "changing",
            Self::Refused(_) => "invalid",
            Self::Compile(_) => "compile",
            Self::Git(error) => error.reason(),
            Self::Snapshot { error: FileError::Io(_), .. } => "unreadable",
            Self::Snapshot { error: FileError::WritableByOthers { .. }, .. } => "writable",
            Self::Snapshot { error: FileError::Unsigned | FileError::BadSignature, .. } => {
                "signature"
            }
            Self::Snapshot { .. } => "invalid",
            Self::Key { .. } => "key",
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
                Self::Snapshot(snapshot::FileSource::new(file.clone(), key.as_deref())?)
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
