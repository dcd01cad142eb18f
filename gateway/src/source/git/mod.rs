//! A git remote: fetched into a bare clone without history and without blobs that no estate
//! needs, read without a checkout.

use std::path::{Path, PathBuf};
use std::time::Duration;

use render::snapshot::served;
use render::tree::Tree;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use super::{Loaded, SourceError};
use crate::tokens::new::hex;

pub mod command;
mod objects;

use command::Git;

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

/// A remote, its clone, and the commit that last gave a head.
#[derive(Debug)]
pub struct RepoSource {
    git: Git,
    url: String,
    refspec: String,
    folder: String,
    root: PathBuf,
    clone: PathBuf,
    /// Removed with the source.
    temporary: Option<TempDir>,
    seen: Option<String>,
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
        let clone = root.join("estate.git");
        let url = absolute(url);
        Ok(Self {
            git: Git::bare(&clone, &url, timeout),
            url,
            refspec: format!("+{}:{HEAD_REF}", reference.unwrap_or("HEAD")),
            folder: folder.to_owned(),
            root,
            clone,
            temporary,
            seen: None,
        })
    }

    /// The temporary clone, if there is one. Dropping the source removes it; a process that ends
    /// while a look is under way has to do it itself.
    pub fn temporary(&self) -> Option<&Path> {
        self.temporary.as_ref().map(TempDir::path)
    }

    /// See [`super::Source::look`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn look(&mut self) -> Result<Option<Loaded>, SourceError> {
        let _lock = self.lock()?;
        self.prepare()?;
        self.fetch()?;
        let read = self.read();
        if let Err(SourceError::Git(GitError::Failed { .. } | GitError::Output { .. })) = &read {
            // What was fetched cannot be read: the clone is damaged, and the next look makes
            // another one.
            tracing::warn!(clone = %self.clone.display(), "the clone is damaged and is replaced");
            self.remove_clone()?;
        }
        read
    }

    /// Several replicas may share one cache: one at a time looks.
    fn lock(&self) -> Result<std::fs::File, GitError> {
        let place = self.root.join("estate.lock");
        let file = std::fs::OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&place)
            .map_err(|error| self.cache_error(error.to_string()))?;
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive)
            .map_err(|error| self.cache_error(error.to_string()))?;
        Ok(file)
    }

    /// Makes the clone, or one afresh if it belongs to another remote.
    fn prepare(&self) -> Result<(), GitError> {
        let marker = self.clone.join("tidegate-remote");
        let identity = hex(&Sha256::digest(self.url.as_bytes()));
        if self.clone.exists() {
            if std::fs::read_to_string(&marker).is_ok_and(|known| known == identity) {
                self.remove_stale_locks();
                return Ok(());
            }
            if !marker.exists() && !self.clone.join("HEAD").exists() {
                let why = format!("{} is in the way and no clone", self.clone.display());
                return Err(self.cache_error(why));
            }
            tracing::warn!(clone = %self.clone.display(), "it is of another remote: replaced");
            self.remove_clone()?;
        }
        self.git.text(&["init", "--quiet", "--bare", "--template="])?;
        std::fs::write(&marker, identity).map_err(|error| self.cache_error(error.to_string()))
    }

    /// A git that was killed leaves locks behind; under our own lock nobody else holds them.
    fn remove_stale_locks(&self) {
        let files = ["shallow.lock", "config.lock", "packed-refs.lock", "HEAD.lock"];
        for file in files.into_iter().chain(["refs/tidegate/head.lock"]) {
            // Nearly always there is none.
            let _ = std::fs::remove_file(self.clone.join(file));
        }
    }

    fn remove_clone(&self) -> Result<(), GitError> {
        std::fs::remove_dir_all(&self.clone).map_err(|error| self.cache_error(error.to_string()))
    }

    fn fetch(&self) -> Result<(), GitError> {
        let arguments = [
            "fetch",
            "--quiet",
            "--no-tags",
            "--recurse-submodules=no",
            "--depth=1",
            "--filter=blob:none",
            "origin",
            &self.refspec,
        ];
        self.git.text(&arguments).map(drop)
    }

    fn read(&mut self) -> Result<Option<Loaded>, SourceError> {
        let head = format!("{HEAD_REF}^{{commit}}");
        let (commit, commit_unix_ms) = self.git.commit(&head)?;
        let commit = &*commit;
        if self.seen.as_deref() == Some(commit) {
            return Ok(None);
        }
        self.seen = None;
        let place = self.place(commit);
        let files = objects::read(&self.git, commit, &self.folder)?;
        if !files.keys().any(|path| path.starts_with("teams/")) {
            return Err(SourceError::NotAnEstate { place });
        }
        let served = served::from_tree(&Tree { label: place, files }, Some(commit))?;
        self.seen = Some(commit.to_owned());
        let commit_unix_ms = Some(commit_unix_ms);
        Ok(Some(Loaded { served, commit_unix_ms, made_unix_ms: commit_unix_ms }))
    }

    /// What error texts put before a path: the repository, the commit, and the folder.
    fn place(&self, commit: &str) -> String {
        let url = url_without_credentials(&self.url);
        let commit = super::poll::short(commit);
        format!("{url}@{commit}:{}", self.folder).trim_end_matches(':').to_owned()
    }

    fn cache_error(&self, why: String) -> GitError {
        GitError::Cache { place: self.root.clone(), why }
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
