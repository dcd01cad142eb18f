//! GitHub's REST API, version 2022-11-28: "List pull requests" and "Create a pull request".

use hyper::Method;
use hyper::StatusCode;
use hyper::header::{self, HeaderName};
use serde_json::{Value, json};

use super::client::{Client, Credential, ForgeError};
use super::{Listed, Opened, PullRequest, Requests, choose, encode};

pub(super) struct GitHub {
    pub(super) client: Client,
    /// `owner/name`.
    pub(super) repo: String,
}

const HEADERS: [(HeaderName, &str); 2] = [
    (header::ACCEPT, "application/vnd.github+json"),
    (HeaderName::from_static("x-github-api-version"), "2022-11-28"),
];

const CREDENTIAL: Credential = Credential { header: header::AUTHORIZATION, prefix: "Bearer " };

impl Requests for GitHub {
    const TAKEN: StatusCode = StatusCode::UNPROCESSABLE_ENTITY;

    async fn find(&self, pull: &PullRequest) -> Result<Option<Opened>, ForgeError> {
        let owner = self.repo.split('/').next().unwrap_or_default();
        let head = encode(&format!("{owner}:{}", pull.branch));
        let path = format!("/repos/{}/pulls?state=all&head={head}&per_page=100", self.repo);
        let answer = self.client.ask(Method::GET, &path, &HEADERS, &CREDENTIAL, None).await?;
        let unexpected = || self.client.unexpected(&format!("GET {path}"));
        let listed = answer.as_array().ok_or_else(unexpected)?.iter().map(|one| {
            let text = |value: &Value| value.as_str().map(str::to_owned).ok_or_else(unexpected);
            Ok(Listed {
                url: text(&one["html_url"])?,
                commit: text(&one["head"]["sha"])?,
                open: one["state"] == "open",
                merged: one["merged_at"].is_string(),
            })
        });
        Ok(choose(listed.collect::<Result<_, _>>()?, &pull.commit))
    }

    async fn create(&self, pull: &PullRequest) -> Result<Opened, ForgeError> {
        let path = format!("/repos/{}/pulls", self.repo);
        let PullRequest { branch, base, title, body, commit: _ } = pull;
        let body = json!({"title": title, "head": branch, "base": base, "body": body});
        self.client.create(&path, &HEADERS, &CREDENTIAL, &body, "html_url").await
    }
}
