//! A bare clone of a remote: where it is kept, who may touch it, and how it heals.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};
use tempfile::TempDir;

use super::GitError;
use super::command::Git;
use crate::tokens::new::hex;

/// A bare clone that belongs to one remote.
#[derive(Debug)]
pub struct Clone {
    git: Git,
    url: String,
    root: PathBuf,
    dir: PathBuf,
    name: &'static str,
    /// Removed with the clone.
    temporary: Option<TempDir>,
}

impl Clone {
    /// Nothing is made yet but the directory around it: `cache`, or a temporary one. `name` tells
    /// the clones in one cache apart.
    ///
    /// # Errors
    ///
    /// When that directory cannot be made.
    pub fn new(
        url: &str,
        cache: Option<&Path>,
        name: &'static str,
        timeout: Duration,
    ) -> Result<Self, GitError> {
        let failed = |place: &Path| {
            let place = place.to_owned();
            move |error: std::io::Error| GitError::Cache { place, why: error.to_string() }
        };
        let temporary = match cache {
            Some(_) => None,
            None => Some(
                tempfile::Builder::new()
                    .prefix("tidegate-")
                    .tempdir()
                    .map_err(failed(&std::env::temp_dir()))?,
            ),
        };
        let root = match (&temporary, cache) {
            (Some(temporary), _) => temporary.path().to_owned(),
            (None, Some(cache)) => cache.to_owned(),
            (None, None) => unreachable!("a cache is given or made"),
        };
        std::fs::create_dir_all(&root).map_err(failed(&root))?;
        let root = root.canonicalize().map_err(failed(&root))?;
        let dir = root.join(format!("{name}.git"));
        let url = absolute(url);
        Ok(Self { git: Git::bare(&dir, &url, timeout), url, root, dir, name, temporary })
    }

    /// Git in this clone.
    pub fn git(&self) -> &Git {
        &self.git
    }

    /// The remote's URL; a path is made absolute.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The bare repository.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The directory around a temporary clone. Dropping the clone removes it; a process that ends
    /// while git is at work has to do it itself.
    pub fn temporary(&self) -> Option<&Path> {
        self.temporary.as_ref().map(TempDir::path)
    }

    /// Takes the clone for this process and makes it, or makes it afresh if it belongs to another
    /// remote. Several replicas may share one cache: one at a time works in it, until it drops what
    /// it gets here.
    ///
    /// # Errors
    ///
    /// When the directory cannot be used.
    pub fn open(&self) -> Result<File, GitError> {
        let lock = self.lock()?;
        let marker = self.dir.join("tidegate-remote");
        let identity = hex(&Sha256::digest(self.url.as_bytes()));
        if self.dir.exists() {
            if std::fs::read_to_string(&marker).is_ok_and(|known| known == identity) {
                self.remove_stale_locks();
                return Ok(lock);
            }
            if !marker.exists() && !self.dir.join("HEAD").exists() {
                let why = format!("{} is in the way and no clone", self.dir.display());
                return Err(self.error(why));
            }
            tracing::warn!(clone = %self.dir.display(), "it is of another remote: replaced");
            self.remove()?;
        }
        self.git.text(&["init", "--quiet", "--bare", "--template="])?;
        std::fs::write(&marker, identity).map_err(|error| self.error(error.to_string()))?;
        Ok(lock)
    }

    /// Removes what cannot be read any more; [`Clone::open`] makes another one.
    ///
    /// # Errors
    ///
    /// When the file system refuses.
    pub fn remove(&self) -> Result<(), GitError> {
        std::fs::remove_dir_all(&self.dir).map_err(|error| self.error(error.to_string()))
    }

    /// Whether commits are missing, so that history has no end.
    pub fn is_shallow(&self) -> bool {
        self.dir.join("shallow").exists()
    }

    fn lock(&self) -> Result<File, GitError> {
        let place = self.root.join(format!("{}.lock", self.name));
        let file = std::fs::OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&place)
            .map_err(|error| self.error(error.to_string()))?;
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive)
            .map_err(|error| self.error(error.to_string()))?;
        Ok(file)
    }

    /// A git that was killed leaves locks behind; under our own lock nobody else holds them.
    fn remove_stale_locks(&self) {
        for file in ["shallow.lock", "config.lock", "packed-refs.lock", "HEAD.lock"] {
            // Nearly always there is none.
            let _ = std::fs::remove_file(self.dir.join(file));
        }
        remove_locks(&self.dir.join("refs/tidegate"), REF_DEPTH_MAX);
    }

    fn error(&self, why: String) -> GitError {
        GitError::Cache { place: self.root.clone(), why }
    }
}

/// Parts of a name below `refs/tidegate`: those of our branches are four.
const REF_DEPTH_MAX: usize = 8;

fn remove_locks(dir: &Path, depth: usize) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|extension| extension == "lock") {
            let _ = std::fs::remove_file(path);
        } else if depth > 0 && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_locks(&path, depth - 1);
        }
    }
}

/// A path that exists is made absolute, as git runs elsewhere.
fn absolute(url: &str) -> String {
    let path = Path::new(url);
    if url.contains("://") || !path.exists() {
        return url.to_owned();
    }
    path.canonicalize().map_or_else(|_| url.to_owned(), |path| path.display().to_string())
}
