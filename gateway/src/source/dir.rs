//! A directory that holds an estate. Looked at by `stat`, read when that says something changed,
//! and believed once two reads 200 ms apart are equal byte for byte.

use std::path::{Path, PathBuf};
use std::time::Duration;

use render::snapshot::served::{self, Served};
use render::tree::Tree;
use xxhash_rust::xxh3::Xxh3;

use super::git::GitError;
use super::git::command::Git;
use super::git::history::HistoryReader;
use super::{Loaded, SourceError};
use crate::reload::Stamp;

/// serving.md decision 16.
const BETWEEN_READS: Duration = Duration::from_millis(200);

/// Reads within one look before a directory that is always being written is given up until the
/// next.
const READS_MAX: usize = 15;

/// Folders deep, below the root.
const DEPTH_MAX: usize = 9;

/// Longest that git may take to name the commit.
const GIT_TIMEOUT: Duration = Duration::from_secs(10);

/// A directory, and what it looked like when it last gave a head.
#[derive(Debug)]
pub struct DirSource {
    dir: PathBuf,
    seen: Option<u128>,
    history: HistoryReader,
}

impl DirSource {
    /// Nothing is read yet.
    pub fn new(dir: PathBuf) -> Self {
        Self { dir, seen: None, history: HistoryReader::default() }
    }

    /// See [`super::Source::look`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn look(&mut self) -> Result<Option<Loaded>, SourceError> {
        self.look_pausing(|| std::thread::sleep(BETWEEN_READS))
    }

    /// [`DirSource::look`], with what passes between two reads given by the caller.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn look_pausing(&mut self, pause: impl FnMut()) -> Result<Option<Loaded>, SourceError> {
        // Taken before the first read: what changes after it is seen at the next look.
        let looks = fingerprint(&self.dir);
        if self.seen == Some(looks) {
            return Ok(None);
        }
        // A look that fails starts afresh, so that what a fingerprint cannot see heals too.
        self.seen = None;
        let label = self.dir.display().to_string();
        let tree = read_settled(&self.dir, &label, pause)?;
        if !self.dir.join("teams").is_dir() {
            return Err(SourceError::NotAnEstate { place: label });
        }
        let (commit, commit_unix_ms) = head_of(&self.dir).unzip();
        let mut served = served::from_tree(&tree, commit.as_deref())?;
        if let Some(commit) = &commit {
            self.tell_history(commit, &mut served);
        }
        self.seen = Some(looks);
        Ok(Some(Loaded { served, commit_unix_ms, made_unix_ms: commit_unix_ms }))
    }
}

impl DirSource {
    /// History counts where it is whole and the working tree's stage is HEAD's; else a stage began
    /// when it was first seen here.
    fn tell_history(&mut self, commit: &str, served: &mut Served) {
        if served.rollouts.is_empty() {
            return;
        }
        let git = Git::in_worktree(&self.dir, GIT_TIMEOUT);
        let filled = git.text(&["rev-parse", "--is-shallow-repository"]).and_then(|shallow| {
            if shallow.trim() == "false" {
                self.history.fill(&git, commit, "", false, served)
            } else {
                Ok(served.rollouts.keys().map(|id| id.to_string()).collect())
            }
        });
        match filled {
            Ok(untold) if untold.is_empty() => {}
            Ok(untold) => {
                let rollouts = untold.join(", ");
                tracing::info!(
                    %rollouts,
                    "git history does not tell when the stage of these Rollouts began: it counts \
                     from when it is first seen here"
                );
            }
            Err(error @ GitError::Timeout { .. }) => tracing::warn!(%error, "history is not read"),
            Err(error) => tracing::debug!(%error, "git does not tell the history of the estate"),
        }
    }
}

fn read_settled(dir: &Path, label: &str, mut pause: impl FnMut()) -> Result<Tree, SourceError> {
    let mut last = Tree::read_dir(dir, label)?;
    for _ in 1..READS_MAX {
        pause();
        let next = Tree::read_dir(dir, label)?;
        if next == last {
            return Ok(next);
        }
        last = next;
    }
    Err(SourceError::Changing { place: label.to_owned() })
}

/// The commit checked out in `dir`, and its time, if `dir` itself is the root of a repository (an
/// enclosing one says nothing about this estate). No git, no commit: the rendered tree names one.
fn head_of(dir: &Path) -> Option<(String, u64)> {
    if !dir.join(".git").exists() {
        return None;
    }
    let git = Git::in_worktree(dir, GIT_TIMEOUT);
    match git.commit("HEAD") {
        Ok(head) => Some(head),
        Err(error) => {
            tracing::debug!(%error, "git does not name the commit of the estate");
            None
        }
    }
}

/// What `stat` says about every file that could matter, as one number.
fn fingerprint(dir: &Path) -> u128 {
    let mut hash = Xxh3::new();
    let git = dir.join(".git");
    // A worktree's .git is a file that names the directory.
    let git_dir = std::fs::read_to_string(&git)
        .ok()
        .and_then(|text| text.strip_prefix("gitdir:").map(|path| dir.join(path.trim())))
        .unwrap_or(git);
    for file in [git_dir.join("HEAD"), git_dir.join("logs").join("HEAD")] {
        add(&mut hash, &file, Stamp::of(&file));
    }
    for name in ["teams.yaml", "telemetry.yaml", "allow-lists.yaml", "grants.yaml", "CODEOWNERS"] {
        let file = dir.join(name);
        add(&mut hash, &file, Stamp::of(&file));
    }
    for name in ["teams", "rendered"] {
        walk(&mut hash, &dir.join(name), DEPTH_MAX);
    }
    hash.digest128()
}

fn walk(hash: &mut Xxh3, dir: &Path, depth: usize) {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return add(hash, dir, None);
    };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort_unstable();
    for path in paths {
        let meta = std::fs::metadata(&path).ok();
        if meta.as_ref().is_some_and(std::fs::Metadata::is_dir) {
            if depth > 0 {
                walk(hash, &path, depth - 1);
            }
        } else {
            add(hash, &path, meta.as_ref().map(Stamp::from));
        }
    }
}

fn add(hash: &mut Xxh3, path: &Path, stamp: Option<Stamp>) {
    use std::hash::Hash;
    (path, stamp).hash(hash);
}
