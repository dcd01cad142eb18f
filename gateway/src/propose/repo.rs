//! The remote as the proposer sees it: a bare clone with all commits and no blobs, in which commits
//! are made without a checkout and pushed with a compare-and-swap.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use render::history::Told;
use render::rollout::proposal::{BRANCH_PREFIX, Change, Key};
use render::tree::Tree;

use super::config::Author;
use super::decide::Seen;
use crate::source::git::clone::Clone;
use crate::source::git::command::Git;
use crate::source::git::history::HistoryReader;
use crate::source::git::objects::{self, LISTING_BYTES_MAX};
use crate::source::git::{GitError, place};

/// Where the remote's branch is kept in the clone.
const HEAD_REF: &str = "refs/tidegate/head";

/// Where our branches on the remote are kept in the clone.
const BRANCHES: &str = "refs/tidegate/branches/";

/// Commits on a branch that are looked at; more than that are not ours alone.
const COMMITS_MAX: usize = 32;

/// What a listing of our branches or of the commits on one may print.
const TEXT_BYTES_MAX: u64 = 4 << 20;

/// A Catalogue. All of a distribution's 268 components make 250 kB.
const CATALOGUE_BYTES_MAX: u64 = 16 << 20;

/// The remote that proposals go to.
#[derive(Debug)]
pub struct Repo {
    clone: Clone,
    reference: Option<String>,
    folder: String,
    author: Author,
    history: HistoryReader,
}

impl Repo {
    /// Nothing is fetched yet. `folder` is the estate's; `cache` keeps the clone between runs.
    ///
    /// # Errors
    ///
    /// When the place for the clone cannot be made.
    pub fn new(
        url: &str,
        reference: Option<&str>,
        folder: &str,
        cache: Option<&Path>,
        timeout: Duration,
        author: Author,
    ) -> Result<Self, GitError> {
        Ok(Self {
            clone: Clone::new(url, cache, "proposals", timeout)?,
            reference: reference.map(str::to_owned),
            folder: folder.to_owned(),
            author,
            history: HistoryReader::default(),
        })
    }

    /// The estate's folder.
    pub fn folder(&self) -> &str {
        &self.folder
    }

    /// See [`Clone::temporary`].
    pub fn temporary(&self) -> Option<&Path> {
        self.clone.temporary()
    }

    /// See [`Clone::open`]: to be called first, and kept while anything else is called.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn open(&self) -> Result<std::fs::File, GitError> {
        self.clone.open()
    }

    /// Fetches the branch that the head is on, and ours.
    ///
    /// # Errors
    ///
    /// When git fails.
    pub fn fetch(&self) -> Result<(), GitError> {
        let reference = self.reference.as_deref().unwrap_or("HEAD");
        let arguments = [
            "fetch",
            "--quiet",
            "--no-tags",
            "--no-write-fetch-head",
            "--prune",
            "--recurse-submodules=no",
            "--filter=blob:none",
            "origin",
            &format!("+{reference}:{HEAD_REF}"),
            &format!("+refs/heads/{BRANCH_PREFIX}*:{BRANCHES}*"),
        ];
        self.git().text(&arguments).map(drop)
    }

    /// Whether `commit` is, or was, the tip of the branch that the head is on.
    ///
    /// # Errors
    ///
    /// When there is no such commit, or git fails.
    pub fn is_of_head(&self, commit: &str) -> Result<bool, GitError> {
        self.is_ancestor(commit, HEAD_REF)
    }

    fn is_ancestor(&self, commit: &str, of: &str) -> Result<bool, GitError> {
        let missing = self.git().text(&["rev-list", "-n", "1", commit, &format!("^{of}"), "--"])?;
        Ok(missing.trim().is_empty())
    }

    /// Our branches of one Rollout, by their name without `refs/heads/`; `head` is the commit that
    /// was judged.
    ///
    /// # Errors
    ///
    /// When git fails.
    pub fn branches(&self, rollout: &str, head: &str) -> Result<BTreeMap<String, Seen>, GitError> {
        let format = "--format=%(objectname) %(refname)";
        let pattern = format!("{BRANCHES}{rollout}/");
        let listing =
            self.git().run(&["for-each-ref", format, &pattern], Vec::new(), TEXT_BYTES_MAX)?;
        let listing = String::from_utf8(listing).map_err(|_| output("git for-each-ref"))?;
        let mut branches = BTreeMap::new();
        for line in listing.lines() {
            let (tip, name) = line.split_once(' ').ok_or_else(|| output("git for-each-ref"))?;
            let Some(name) = name.strip_prefix(BRANCHES) else { continue };
            branches.insert(format!("{BRANCH_PREFIX}{name}"), self.seen(tip, head)?);
        }
        Ok(branches)
    }

    fn seen(&self, tip: &str, head: &str) -> Result<Seen, GitError> {
        let arguments = [
            "-c",
            "log.showSignature=false",
            "log",
            "--no-color",
            "--no-notes",
            "--encoding=UTF-8",
            "-n",
            &(COMMITS_MAX + 1).to_string(),
            "--format=%an <%ae>%x00%cn <%ce>%x00%B%x00",
            tip,
            &format!("^{head}"),
            &format!("^{HEAD_REF}"),
            "--",
        ];
        let log = match self.git().run(&arguments, Vec::new(), TEXT_BYTES_MAX) {
            Ok(log) => log,
            // Whoever writes that much is not us.
            Err(GitError::TooMuch { .. }) => {
                return Ok(Seen { tip: tip.to_owned(), key: None, foreign: true, merged: false });
            }
            Err(error) => return Err(error),
        };
        let log = String::from_utf8_lossy(&log);
        let fields: Vec<&str> = log.split('\0').collect();
        let us = self.author.to_string();
        let mut seen = Seen { tip: tip.to_owned(), key: None, foreign: false, merged: true };
        let mut commits = 0;
        for commit in fields.chunks_exact(3) {
            let [author, committer, message] = commit else { continue };
            let key = Key::from_message(message);
            let signed = author.trim_start() == us && *committer == us;
            let ours = signed && Key::is_in_message(message);
            seen.merged = false;
            if ours {
                seen.key = seen.key.or(key);
            } else {
                seen.foreign = true;
            }
            commits += 1;
        }
        seen.foreign |= commits > COMMITS_MAX;
        Ok(seen)
    }

    /// The estate at `commit`.
    ///
    /// # Errors
    ///
    /// When git fails, or the commit holds what no estate may.
    pub fn tree(&self, commit: &str) -> Result<Tree, GitError> {
        let label = place(self.clone.url(), commit, &self.folder);
        let files = objects::read(self.git(), commit, &self.folder)?;
        Ok(Tree { label, files })
    }

    /// The Catalogue at `path` of `commit`.
    ///
    /// # Errors
    ///
    /// When there is none, or git fails.
    pub fn catalogue(&self, commit: &str, path: &str) -> Result<Vec<u8>, GitError> {
        let object = format!("{commit}:{path}");
        self.git().run(&["cat-file", "blob", &object], Vec::new(), CATALOGUE_BYTES_MAX)
    }

    /// What the history of `commit` tells of a Rollout at `stage`.
    ///
    /// # Errors
    ///
    /// When git fails.
    pub fn history(
        &mut self,
        commit: &str,
        rollout: &str,
        stage: u32,
    ) -> Result<Option<Told>, GitError> {
        self.history.tell(self.clone.git(), commit, &self.folder, rollout, stage)
    }

    /// Makes the commit of `change` on top of `parent`; nothing refers to it yet.
    ///
    /// # Errors
    ///
    /// When git fails, or a file that is to be edited is a link.
    pub fn commit(&self, parent: &str, change: &Change, unix_ms: u64) -> Result<String, GitError> {
        let scratch = tempfile::tempdir_in(self.clone.dir())
            .map_err(|error| self.cache_error(error.to_string()))?;
        let index: OsString = scratch.path().join("index").into();
        let git = self.git().with([("GIT_INDEX_FILE", index)]);
        git.text(&["read-tree", parent])?;
        let mut lines = Vec::new();
        for (path, contents) in &change.files {
            let mode = self.mode(parent, path)?;
            let (mode, blob) = match (contents, mode.as_deref()) {
                // A link may go, but nothing is written through one.
                (None, _) => ("0", "0".repeat(parent.len())),
                (Some(contents), None | Some("100644")) => ("100644", self.blob(contents)?),
                (Some(contents), Some("100755")) => ("100755", self.blob(contents)?),
                (Some(_), Some(_)) => {
                    let why = "it is a symbolic link, or no file; make it a file to have it edited"
                        .to_owned();
                    return Err(GitError::File { path: path.clone(), why });
                }
            };
            lines.extend_from_slice(format!("{mode} {blob}\t{path}\0").as_bytes());
        }
        git.run(&["update-index", "-z", "--index-info"], lines, TEXT_BYTES_MAX)?;
        // Blobs that nobody needed were not fetched.
        let tree = git.text(&["write-tree", "--missing-ok"])?;
        let Author { name, mail } = &self.author;
        let date = format!("@{} +0000", unix_ms / 1_000);
        let git = self.git().with([
            ("GIT_AUTHOR_NAME", name.into()),
            ("GIT_AUTHOR_EMAIL", mail.into()),
            ("GIT_AUTHOR_DATE", (&date).into()),
            ("GIT_COMMITTER_NAME", name.into()),
            ("GIT_COMMITTER_EMAIL", mail.into()),
            ("GIT_COMMITTER_DATE", (&date).into()),
        ]);
        let arguments = [
            "-c",
            "i18n.commitEncoding=UTF-8",
            "commit-tree",
            "--no-gpg-sign",
            "-p",
            parent,
            tree.trim(),
        ];
        let made = git.run(&arguments, change.message().into_bytes(), TEXT_BYTES_MAX)?;
        let made = String::from_utf8(made).map_err(|_| output("git commit-tree"))?;
        Ok(made.trim().to_owned())
    }

    fn blob(&self, contents: &[u8]) -> Result<String, GitError> {
        let arguments = ["hash-object", "-w", "--stdin"];
        let oid = self.git().run(&arguments, contents.to_vec(), TEXT_BYTES_MAX)?;
        String::from_utf8(oid)
            .map(|oid| oid.trim().to_owned())
            .map_err(|_| output("git hash-object"))
    }

    /// The mode of what is at `path`, if anything is.
    fn mode(&self, commit: &str, path: &str) -> Result<Option<String>, GitError> {
        let literal = format!(":(top,literal){path}");
        let line = self.git().text(&["ls-tree", "--full-tree", commit, "--", &literal])?;
        Ok(line.split_once(' ').map(|(mode, _)| mode.to_owned()))
    }

    /// Makes the remote's `branch` point to `commit` (`None` deletes it), if it still points to
    /// what was `seen` there (`None`: if it does not exist).
    ///
    /// # Errors
    ///
    /// When the remote says no, or cannot be reached. Whether the push arrived is then not known.
    pub fn push(
        &self,
        branch: &str,
        commit: Option<&str>,
        seen: Option<&str>,
    ) -> Result<(), GitError> {
        let lease = format!("--force-with-lease=refs/heads/{branch}:{}", seen.unwrap_or_default());
        let refspec = format!("{}:refs/heads/{branch}", commit.unwrap_or_default());
        let arguments = [
            "push",
            "--quiet",
            "--no-verify",
            "--no-follow-tags",
            "--recurse-submodules=no",
            "--no-signed",
            "--no-thin",
            &lease,
            "origin",
            &refspec,
        ];
        self.git().text(&arguments).map(drop)
    }

    /// The branch that proposals are to be merged into, without `refs/heads/`.
    ///
    /// # Errors
    ///
    /// When the remote does not say, or `--ref` is no branch.
    pub fn base_branch(&self) -> Result<String, GitError> {
        if let Some(reference) = &self.reference {
            let branch = reference.strip_prefix("refs/heads/").unwrap_or(reference);
            if branch.starts_with("refs/") || branch == "HEAD" {
                let why = "a pull request needs a branch to be merged into".to_owned();
                return Err(GitError::File { path: format!("--ref {reference}"), why });
            }
            return Ok(branch.to_owned());
        }
        let listing = self.git().text(&["ls-remote", "--symref", "origin", "HEAD"])?;
        listing
            .lines()
            .find_map(|line| line.strip_prefix("ref: refs/heads/")?.strip_suffix("\tHEAD"))
            .map(str::to_owned)
            .ok_or_else(|| output("git ls-remote"))
    }

    /// After git failed: removes the clone if what was fetched cannot be read any more, so that the
    /// next [`Repo::open`] makes another one. A remote that is down is no reason.
    ///
    /// # Errors
    ///
    /// When the file system refuses.
    pub fn heal(&self) -> Result<(), GitError> {
        let known = self.clone.dir().join(HEAD_REF).exists();
        // None needs what a clone without blobs does not have. The packs are asked for by name: what
        // is missing from a damaged one, git would quietly fetch again, and stumble over it later.
        let readable = || {
            let packs = self.packs();
            if !packs.is_empty() {
                let mut arguments = vec!["verify-pack", "--"];
                arguments.extend(packs.iter().map(String::as_str));
                self.git().run(&arguments, Vec::new(), LISTING_BYTES_MAX)?;
            }
            self.git().text(&["rev-list", "--count", HEAD_REF, "--"])?;
            self.git().run(&["ls-tree", "-r", "-z", HEAD_REF], Vec::new(), LISTING_BYTES_MAX)
        };
        match readable() {
            Err(GitError::Failed { .. }) if known => {
                let dir = self.clone.dir();
                tracing::warn!(clone = %dir.display(), "the clone is damaged and is replaced");
                self.clone.remove()
            }
            _ => Ok(()),
        }
    }

    /// The indices of the clone's packs; none where there is no clone.
    fn packs(&self) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.clone.dir().join("objects/pack")) else {
            return Vec::new();
        };
        let paths = entries.flatten().map(|entry| entry.path());
        let indices = paths.filter(|path| path.extension().is_some_and(|end| end == "idx"));
        indices.filter_map(|path| path.to_str().map(str::to_owned)).collect()
    }

    fn git(&self) -> &Git {
        self.clone.git()
    }

    fn cache_error(&self, why: String) -> GitError {
        GitError::Cache { place: self.clone.dir().to_owned(), why }
    }
}

fn output(command: &str) -> GitError {
    GitError::Output { command: command.to_owned() }
}
