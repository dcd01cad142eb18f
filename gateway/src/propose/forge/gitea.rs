//! The API of Gitea and Forgejo, version 1: "repoListPullRequests" and "repoCreatePullRequest".

use hyper::Method;
use hyper::StatusCode;
use hyper::header::{self, HeaderName};
use serde_json::{Value, json};

use super::client::{Client, Credential, ForgeError};
use super::{Listed, Opened, PullRequest, Requests, choose};

/// Pages of pull requests that are looked through: the list cannot be asked for one branch.
const PAGES_MAX: u32 = 20;

/// Pull requests on a page; Gitea's own most by default.
const PAGE: usize = 50;

pub(super) struct Gitea {
    pub(super) client: Client,
    /// `owner/name`.
    pub(super) repo: String,
}

const HEADERS: [(HeaderName, &str); 1] = [(header::ACCEPT, "application/json")];

const CREDENTIAL: Credential = Credential { header: header::AUTHORIZATION, prefix: "token " };

impl Requests for Gitea {
    const TAKEN: StatusCode = StatusCode::CONFLICT;

    async fn find(&self, pull: &PullRequest) -> Result<Option<Opened>, ForgeError> {
        let mut listed = Vec::new();
        for page in 1..=PAGES_MAX {
            let path = format!(
                "/repos/{}/pulls?state=all&sort=recentupdate&page={page}&limit={PAGE}",
                self.repo
            );
            let answer = self.client.ask(Method::GET, &path, &HEADERS, &CREDENTIAL, None).await?;
            let unexpected = || self.client.unexpected(&format!("GET {path}"));
            let all = answer.as_array().ok_or_else(unexpected)?;
            for one in all {
                let (head, base) = (&one["head"], &one["base"]);
                // A fork may have a branch of this name.
                if head["ref"] != *pull.branch || head["repo_id"] != base["repo_id"] {
                    continue;
                }
                let text = |value: &Value| value.as_str().map(str::to_owned).ok_or_else(unexpected);
                listed.push(Listed {
                    url: text(&one["html_url"])?,
                    commit: text(&head["sha"])?,
                    open: one["state"] == "open",
                    merged: one["merged"] == true,
                });
            }
            // A server may give shorter pages than it is asked for, but never an empty one before
            // the end.
            if all.is_empty() || listed.iter().any(|one| one.open) {
                break;
            }
        }
        Ok(choose(listed, &pull.commit))
    }

    async fn create(&self, pull: &PullRequest) -> Result<Opened, ForgeError> {
        let path = format!("/repos/{}/pulls", self.repo);
        let PullRequest { branch, base, title, body, commit: _ } = pull;
        let body = json!({"title": title, "head": branch, "base": base, "body": body});
        self.client.create(&path, &HEADERS, &CREDENTIAL, &body, "html_url").await
    }
}
