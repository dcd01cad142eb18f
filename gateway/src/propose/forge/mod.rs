//! Pull requests for the branches of proposals (rollouts.md, decision 23).
//!
//! Opening one is a step of its own and can be repeated: whoever finds the branch without one opens
//! it. Nothing that exists is edited, closed or opened again.

mod client;
mod gitea;
mod github;
mod gitlab;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;

pub use client::{ANSWER_BYTES_MAX, DEADLINE, ForgeError};

use super::config::{ForgeConfig, ForgeKind};
use client::Client;

/// A pull request that is to be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullRequest {
    /// The branch with the proposal.
    pub branch: String,
    /// Its tip.
    pub commit: String,
    /// The branch that it is to be merged into.
    pub base: String,
    /// One line.
    pub title: String,
    /// Markdown.
    pub body: String,
}

/// A pull request that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Where people see it.
    pub url: String,
    /// Whether this call opened it.
    pub is_new: bool,
    /// Whether somebody closed it, for this very commit, without merging: they said no.
    pub is_closed: bool,
}

/// What [`Forge::open`] gives.
pub type Opening<'f> = Pin<Box<dyn Future<Output = Result<Opened, ForgeError>> + Send + 'f>>;

/// A forge that can open pull requests.
pub trait Forge: Send + Sync {
    /// Finds the pull request of the branch, or opens it.
    ///
    /// # Errors
    ///
    /// When the forge cannot be reached or says no; it may be asked again.
    fn open<'f>(&'f self, pull: &'f PullRequest) -> Opening<'f>;
}

/// What the API of a forge can be asked; the rest of [`Forge::open`] is the same for all.
trait Requests: Send + Sync {
    /// How it says that there is one already.
    const TAKEN: StatusCode;

    /// The pull request of the branch, if there is one that counts.
    fn find(
        &self,
        pull: &PullRequest,
    ) -> impl Future<Output = Result<Option<Opened>, ForgeError>> + Send;

    /// Opens one.
    fn create(&self, pull: &PullRequest)
    -> impl Future<Output = Result<Opened, ForgeError>> + Send;
}

impl<R: Requests> Forge for R {
    fn open<'f>(&'f self, pull: &'f PullRequest) -> Opening<'f> {
        Box::pin(async move {
            if let Some(found) = self.find(pull).await? {
                return Ok(found);
            }
            match self.create(pull).await {
                // Another replica was faster.
                Err(error) if error.status() == Some(R::TAKEN) => {
                    self.find(pull).await?.ok_or(error)
                }
                created => created,
            }
        })
    }
}

/// The forge that the operator chose.
///
/// # Errors
///
/// When this machine has no certificate authorities to check the forge with.
pub fn connect(config: &ForgeConfig) -> Result<Arc<dyn Forge>, ForgeError> {
    let client = Client::new(&config.api, config.token_file.clone())?;
    let repo = config.repo.clone();
    Ok(match config.kind {
        ForgeKind::GitHub => Arc::new(github::GitHub { client, repo }),
        ForgeKind::Gitea => Arc::new(gitea::Gitea { client, repo }),
        ForgeKind::GitLab => Arc::new(gitlab::GitLab { client, repo }),
    })
}

/// A pull request as a forge lists it.
struct Listed {
    url: String,
    /// The tip of its branch, or what it was when it was closed.
    commit: String,
    open: bool,
    merged: bool,
}

/// Which of those listed for the branch is the one: an open one, or one that was closed for this
/// commit.
fn choose(listed: Vec<Listed>, commit: &str) -> Option<Opened> {
    let refused = |one: &Listed| !one.open && !one.merged && one.commit == commit;
    let found =
        listed.iter().find(|one| one.open).or_else(|| listed.iter().find(|one| refused(one)));
    found.map(|one| Opened { url: one.url.clone(), is_new: false, is_closed: !one.open })
}

/// Longest wait that a forge may ask for.
const WAIT_MAX: Duration = Duration::from_secs(3600);

/// Percent-encodes all but what RFC 3986 calls unreserved.
fn encode(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                char::from(byte).to_string()
            }
            byte => format!("%{byte:02X}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(commit: &str, open: bool, merged: bool) -> Listed {
        Listed { url: format!("{commit}-{open}-{merged}"), commit: commit.to_owned(), open, merged }
    }

    #[test]
    fn an_open_one_is_found_and_a_refused_one_respected() {
        let url = |listed| choose(listed, "new").map(|opened| (opened.url, opened.is_closed));
        assert_eq!(url(vec![]), None);
        assert_eq!(url(vec![listed("old", false, false), listed("new", false, true)]), None);
        let open = listed("old", true, false);
        assert_eq!(
            url(vec![listed("new", false, false), open]),
            Some(("old-true-false".into(), false))
        );
        assert_eq!(url(vec![listed("new", false, false)]), Some(("new-false-false".into(), true)));
    }

    #[test]
    fn everything_but_the_unreserved_is_encoded() {
        assert_eq!(encode("a/b c~é?"), "a%2Fb%20c~%C3%A9%3F");
    }
}
