//! A git remote: fetched into a bare clone without history and without blobs that no estate
//! needs, read without a checkout.

use std::path::{Path, PathBuf};
use std::time::Duration;

use render::snapshot::served::{self, Served};
use render::tree::Tree;

use super::{Loaded, SourceError};

pub mod clone;
pub mod command;
pub mod history;
pub(crate) mod objects;

use clone::Clone;
use history::HistoryReader;

/// Where the fetched commit is kept in the clone.
const HEAD_REF: &str = "refs/tidegate/head";

/// Why git did not give a head.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// There is no git, or it cannot be started.
    #[error("cannot run git: {0}; install it, or serve with --estate or --snapshot")]
    Start(#[source] std::io::Error),
    /// The place for the clone cannot be used.
    #[error("cannot use the cache {}: {why}", place.display())]
    Cache {
        /// The directory.
        place: PathBuf,
        /// Why.
        why: String,
    },
    /// Git says no.
    #[error("{command} failed: {said}")]
    Failed {
        /// `git fetch` and the like.
        command: String,
        /// What it said, credentials replaced.
        said: String,
    },
    /// Past its deadline; killed.
    #[error("{command} took longer than {after:?} and was killed (--fetch-timeout)")]
    Timeout {
        /// `git fetch` and the like.
        command: String,
        /// The deadline.
        after: Duration,
    },
    /// More output than an estate can be.
    #[error("{command} printed more than {limit} bytes")]
    TooMuch {
        /// `git fetch` and the like.
        command: String,
        /// The limit.
        limit: u64,
    },
    /// Output that is not what this command prints.
    #[error("{command} printed something else than expected")]
    Output {
        /// `git fetch` and the like.
        command: String,
    },
    /// A file of the estate that cannot be served from a commit.
    #[error("{path}: {why}")]
    File {
        /// Inside the repository.
        path: String,
        /// Why.
        why: String,
    },
}

impl GitError {
    /// The `reason` label of `tidegate_head_refused_total`.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Start(_) | Self::Cache { .. } => "git",
            Self::Failed { .. } | Self::Output { .. } => "fetch",
            Self::Timeout { .. } => "fetch_timeout",
            Self::TooMuch { .. } | Self::File { .. } => "unreadable",
        }
    }
}

/// Looks between two tries to fetch a history that could not be had.
const HISTORY_LOOKS: u32 = 10;

/// A remote, its clone, and the commit that last gave a head.
#[derive(Debug)]
pub struct RepoSource {
    clone: Clone,
    refspec: String,
    folder: String,
    seen: Option<String>,
    history: HistoryReader,
    /// Looks until history is asked for again; `None` while nothing is missing.
    history_due: Option<u32>,
}

impl RepoSource {
    /// Nothing is fetched yet.
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
    ) -> Result<Self, GitError> {
        Ok(Self {
            clone: Clone::new(url, cache, "estate", timeout)?,
            refspec: format!("+{}:{HEAD_REF}", reference.unwrap_or("HEAD")),
            folder: folder.to_owned(),
            seen: None,
            history: HistoryReader::default(),
            history_due: None,
        })
    }

    /// See [`Clone::temporary`].
    pub fn temporary(&self) -> Option<&Path> {
        self.clone.temporary()
    }

    /// See [`super::Source::look`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn look(&mut self) -> Result<Option<Loaded>, SourceError> {
        let _lock = self.clone.open()?;
        // A clone that was deepened for a Rollout stays so: its history grows by what is new.
        let deep = self.clone.dir().join(HEAD_REF).exists() && !self.clone.is_shallow();
        self.fetch(if deep { None } else { Some("--depth=1") })?;
        let read = self.read();
        if let Err(SourceError::Git(GitError::Failed { .. } | GitError::Output { .. })) = &read {
            // What was fetched cannot be read: the clone is damaged, and the next look makes
            // another one.
            let dir = self.clone.dir();
            tracing::warn!(clone = %dir.display(), "the clone is damaged and is replaced");
            self.clone.remove()?;
        }
        read
    }

    fn fetch(&self, depth: Option<&str>) -> Result<(), GitError> {
        let mut arguments = vec!["fetch", "--quiet", "--no-tags", "--recurse-submodules=no"];
        arguments.extend(depth);
        arguments.extend(["--filter=blob:none", "origin", &self.refspec]);
        self.clone.git().text(&arguments).map(drop)
    }

    fn read(&mut self) -> Result<Option<Loaded>, SourceError> {
        let head = format!("{HEAD_REF}^{{commit}}");
        let (commit, commit_unix_ms) = self.clone.git().commit(&head)?;
        let commit = &*commit;
        let history_due = match &mut self.history_due {
            Some(looks @ 1..) => {
                *looks -= 1;
                false
            }
            Some(0) => true,
            None => false,
        };
        if self.seen.as_deref() == Some(commit) && !history_due {
            return Ok(None);
        }
        self.seen = None;
        let place = self.place(commit);
        let files = objects::read(self.clone.git(), commit, &self.folder)?;
        if !files.keys().any(|path| path.starts_with("teams/")) {
            return Err(SourceError::NotAnEstate { place });
        }
        let mut served = served::from_tree(&Tree { label: place, files }, Some(commit))?;
        self.tell_history(commit, &mut served);
        self.seen = Some(commit.to_owned());
        let commit_unix_ms = Some(commit_unix_ms);
        Ok(Some(Loaded { served, commit_unix_ms, made_unix_ms: commit_unix_ms }))
    }

    /// A head is served without its history rather than not at all.
    fn tell_history(&mut self, commit: &str, served: &mut Served) {
        if served.rollouts.is_empty() {
            self.history_due = None;
            return;
        }
        if self.clone.is_shallow() {
            if self.history_due.is_some_and(|looks| looks > 0) {
                return;
            }
            // The first Rollout: from now on, history is kept.
            let deepened = self.fetch(Some("--unshallow"));
            if deepened.is_err() || self.clone.is_shallow() {
                let error = deepened.err().map_or_else(
                    || "the remote itself has only a part of it".to_owned(),
                    |error| error.to_string(),
                );
                tracing::warn!(
                    %error,
                    "history cannot be fetched: a stage began when it was first seen here; asked \
                     again after {HISTORY_LOOKS} looks"
                );
                self.history_due = Some(HISTORY_LOOKS);
                return;
            }
        }
        let git = self.clone.git();
        self.history_due = match self.history.fill(git, commit, &self.folder, true, served) {
            Ok(untold) => {
                if !untold.is_empty() {
                    let rollouts = untold.join(", ");
                    tracing::warn!(%rollouts, "history tells nothing of these Rollouts");
                }
                None
            }
            Err(error) => {
                tracing::warn!(
                    %error,
                    "history cannot be read; asked again after {HISTORY_LOOKS} looks"
                );
                Some(HISTORY_LOOKS)
            }
        };
    }

    /// What error texts put before a path: the repository, the commit, and the folder.
    fn place(&self, commit: &str) -> String {
        place(self.clone.url(), commit, &self.folder)
    }
}

/// What error texts put before a path in a commit.
pub(crate) fn place(url: &str, commit: &str, folder: &str) -> String {
    let url = url_without_credentials(url);
    let commit = super::poll::short(commit);
    format!("{url}@{commit}:{folder}").trim_end_matches(':').to_owned()
}

/// Refuses what git would take for a flag, a helper program or a protocol that we do not allow.
///
/// # Errors
///
/// What is wrong with it.
pub fn check_url(url: &str) -> Result<(), String> {
    let allowed = "give an https, ssh or file URL, host:path, or an absolute path";
    if url.is_empty() {
        return Err(format!("it is empty; {allowed}"));
    }
    if url.starts_with('-') {
        return Err(format!("'{url}' begins with '-', like a flag; {allowed}"));
    }
    if url.chars().any(char::is_control) {
        return Err(format!("it holds a control character; {allowed}"));
    }
    let scheme = url.split_once("://").map(|(scheme, _)| scheme);
    let helper = url.split_once("::").is_some_and(|(name, _)| !name.contains(['/', '[']));
    if helper || scheme.is_some_and(|scheme| !["https", "ssh", "file"].contains(&scheme)) {
        let url = url_without_credentials(url);
        return Err(format!("'{url}' is of another protocol; {allowed}"));
    }
    Ok(())
}

/// Refuses what cannot be one side of a refspec.
///
/// # Errors
///
/// What is wrong with it.
pub fn check_reference(reference: &str) -> Result<(), String> {
    let unfit = |c: char| c.is_whitespace() || c.is_control() || "~^:?*[\\+@{".contains(c);
    let bad = reference.is_empty() || reference.starts_with('-') || reference.contains(unfit);
    if bad || reference.contains("..") {
        return Err(format!("'{reference}' is not a branch, a tag or a full ref"));
    }
    Ok(())
}

/// The folder without slashes around it; empty for the root.
///
/// # Errors
///
/// When it leads out of the repository.
pub fn check_folder(folder: &str) -> Result<String, String> {
    let parts: Vec<&str> =
        folder.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    if folder.starts_with('/') || parts.contains(&"..") || folder.contains('\0') {
        return Err(format!("'{folder}' is not a folder inside the repository"));
    }
    Ok(parts.join("/"))
}

/// `https://user:secret@host/x` as `https://host/x`.
pub fn url_without_credentials(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let end = rest.find('/').unwrap_or(rest.len());
    match rest[..end].rfind('@') {
        Some(at) => format!("{scheme}://{}", &rest[at + 1..]),
        None => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_https_ssh_and_file_are_remotes() {
        for good in [
            "https://git.example.com/estate.git",
            "ssh://git@git.example.com/estate",
            "git@git.example.com:estate.git",
            "file:///srv/estate.git",
            "/srv/estate.git",
            "[::1]:estate.git",
        ] {
            assert_eq!(check_url(good), Ok(()), "{good}");
        }
        for bad in ["", "-uploadpack=x", "ext::sh -c x", "http://h/e", "git://h/e", "https://h/\n"]
        {
            assert!(check_url(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_reference_cannot_be_a_flag_or_a_refspec() {
        for good in ["main", "refs/heads/release/1", "v1.2", "HEAD"] {
            assert_eq!(check_reference(good), Ok(()), "{good}");
        }
        for bad in ["", "-x", "a:b", "+a", "a b", "a..b", "a^", "@{u}"] {
            assert!(check_reference(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_folder_stays_inside() {
        assert_eq!(check_folder("./estates//demo/"), Ok("estates/demo".to_owned()));
        assert_eq!(check_folder(""), Ok(String::new()));
        assert!(check_folder("../x").is_err());
        assert!(check_folder("/x").is_err());
    }

    #[test]
    fn credentials_are_not_shown() {
        assert_eq!(url_without_credentials("https://u:p@h/x@y"), "https://h/x@y");
        assert_eq!(url_without_credentials("https://h/x"), "https://h/x");
    }
}
