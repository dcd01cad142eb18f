//! A bare remote and a checkout to push from.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::estate;

/// A remote that holds the small estate; both directories go with it.
pub(crate) struct Remote {
    dir: TempDir,
}

impl Remote {
    pub(crate) fn new() -> Self {
        Self::with(estate::write)
    }

    /// A remote whose first commit is what `write` writes.
    pub(crate) fn with(write: impl FnOnce(&Path)) -> Self {
        let remote = Self { dir: tempfile::tempdir().unwrap() };
        let bare = remote.bare();
        git(
            remote.dir.path(),
            &["init", "--quiet", "--bare", "-b", "main", bare.to_str().unwrap()],
        );
        git(&bare, &["config", "uploadpack.allowFilter", "true"]);
        git(&bare, &["config", "uploadpack.allowAnySHA1InWant", "true"]);
        git(remote.dir.path(), &["init", "--quiet", "-b", "main", "work"]);
        git(&remote.work(), &["remote", "add", "origin", bare.to_str().unwrap()]);
        write(&remote.work());
        remote.push("first");
        remote
    }

    pub(crate) fn bare(&self) -> PathBuf {
        self.dir.path().join("estate.git")
    }

    pub(crate) fn url(&self) -> String {
        format!("file://{}", self.bare().display())
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    pub(crate) fn put(&self, path: &str, text: &str) {
        estate::put(&self.work(), path, text);
    }

    pub(crate) fn remove(&self, path: &str) {
        fs::remove_file(self.work().join(path)).unwrap();
    }

    /// Commits everything, pushes it, and gives the commit.
    pub(crate) fn push(&self, message: &str) -> String {
        git(&self.work(), &["add", "--all"]);
        git(&self.work(), &["commit", "--quiet", "--allow-empty", "-m", message]);
        git(&self.work(), &["push", "--quiet", "--force", "origin", "HEAD"]);
        self.head()
    }

    pub(crate) fn head(&self) -> String {
        git(&self.work(), &["rev-parse", "HEAD"]).trim().to_owned()
    }
}

/// Runs git as nobody in particular, and gives what it printed.
#[track_caller]
pub(crate) fn git(dir: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .arg("-C")
        .arg(dir)
        .args(["-c", "user.name=t", "-c", "user.email=t@example.com"])
        .args(arguments)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .output()
        .unwrap();
    assert!(output.status.success(), "git {arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}
