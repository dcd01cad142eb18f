//! GitLab's REST API, version 4: "List project merge requests" and "Create MR".

use hyper::Method;
use hyper::StatusCode;
use hyper::header::{self, HeaderName};
use serde_json::{Value, json};

use super::client::{Client, Credential, ForgeError};
use super::{Listed, Opened, PullRequest, Requests, choose, encode};

pub(super) struct GitLab {
    pub(super) client: Client,
    /// `group/name`, with as many groups as there are.
    pub(super) repo: String,
}

const HEADERS: [(HeaderName, &str); 1] = [(header::ACCEPT, "application/json")];

const CREDENTIAL: Credential =
    Credential { header: HeaderName::from_static("private-token"), prefix: "" };

impl GitLab {
    fn path(&self) -> String {
        format!("/projects/{}/merge_requests", encode(&self.repo))
    }
}

impl Requests for GitLab {
    const TAKEN: StatusCode = StatusCode::CONFLICT;

    async fn find(&self, pull: &PullRequest) -> Result<Option<Opened>, ForgeError> {
        let branch = encode(&pull.branch);
        let path = format!("{}?state=all&source_branch={branch}&per_page=100", self.path());
        let answer = self.client.ask(Method::GET, &path, &HEADERS, &CREDENTIAL, None).await?;
        let unexpected = || self.client.unexpected(&format!("GET {path}"));
        let mut listed = Vec::new();
        for one in answer.as_array().ok_or_else(unexpected)? {
            // A fork may have a branch of this name.
            if one["source_project_id"] != one["target_project_id"] {
                continue;
            }
            let text = |value: &Value| value.as_str().map(str::to_owned).ok_or_else(unexpected);
            listed.push(Listed {
                url: text(&one["web_url"])?,
                // Null while GitLab still looks at the branch.
                commit: one["sha"].as_str().unwrap_or_default().to_owned(),
                open: one["state"] == "opened" || one["state"] == "locked",
                merged: one["state"] == "merged",
            });
        }
        Ok(choose(listed, &pull.commit))
    }

    async fn create(&self, pull: &PullRequest) -> Result<Opened, ForgeError> {
        let path = self.path();
        let PullRequest { branch, base, title, body, commit: _ } = pull;
        let body = json!({
            "source_branch": branch,
            "target_branch": base,
            "title": title,
            "description": body,
            "remove_source_branch": true,
        });
        self.client.create(&path, &HEADERS, &CREDENTIAL, &body, "web_url").await
    }
}
