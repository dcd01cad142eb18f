//! Requests to forges, as each of them documents them, checked by a server of our own.

use std::fs;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use gateway::propose::config::{ForgeConfig, ForgeKind};
use gateway::propose::forge::{ANSWER_BYTES_MAX, Forge, ForgeError, Opened, PullRequest, connect};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::TokioIo;
use render::rollout::verdict;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;

use super::follow::Follower;
use super::{ADVANCE, demo_in, report, tip};
use crate::support::until;

/// What the server was asked.
struct Asked {
    /// Method and target.
    line: String,
    headers: HeaderMap,
    body: Option<Value>,
}

impl Asked {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

type Answer = (u16, Vec<(&'static str, &'static str)>, Vec<u8>);

fn answer(status: u16, body: &Value) -> Answer {
    (status, Vec::new(), body.to_string().into_bytes())
}

/// A forge that gives the answers it was told to, in order, and remembers what it was asked.
struct Server {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
    answers: Arc<Mutex<Vec<Answer>>>,
    runtime: tokio::runtime::Runtime,
    dir: TempDir,
}

impl Server {
    fn start(answers: Vec<Answer>) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let (asked, answers) = (Arc::default(), Arc::new(Mutex::new(answers)));
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("token"), "s3cret\n").unwrap();
        let server = Self { address, asked, answers, runtime, dir };
        let (asked, answers) = (Arc::clone(&server.asked), Arc::clone(&server.answers));
        server.runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (asked, answers) = (Arc::clone(&asked), Arc::clone(&answers));
                let service = service_fn(move |request: Request<Incoming>| {
                    let (asked, answers) = (Arc::clone(&asked), Arc::clone(&answers));
                    async move {
                        let (head, body) = request.into_parts();
                        let body = body.collect().await?.to_bytes();
                        let body =
                            (!body.is_empty()).then(|| serde_json::from_slice(&body).unwrap());
                        let line = format!("{} {}", head.method, head.uri);
                        asked.lock().unwrap().push(Asked { line, headers: head.headers, body });
                        let (status, headers, body) = answers.lock().unwrap().remove(0);
                        let mut response = Response::builder().status(status);
                        for (name, value) in headers {
                            response = response.header(name, value);
                        }
                        Ok::<_, hyper::Error>(response.body(Full::new(Bytes::from(body))).unwrap())
                    }
                });
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service),
                );
            }
        });
        server
    }

    fn forge(&self, kind: ForgeKind, repo: &str) -> Arc<dyn Forge> {
        let url = format!("http://{}", self.address);
        let token = self.dir.path().join("token");
        let config = ForgeConfig::resolve(kind, token, Some(&url), Some(repo), "").unwrap();
        connect(&config).unwrap()
    }

    fn open(&self, kind: ForgeKind, repo: &str) -> Result<Opened, ForgeError> {
        let forge = self.forge(kind, repo);
        self.runtime.block_on(forge.open(&pull()))
    }

    fn asked(&self) -> Vec<Asked> {
        assert!(self.answers.lock().unwrap().is_empty(), "the forge was asked less than it should");
        std::mem::take(&mut *self.asked.lock().unwrap())
    }
}

fn pull() -> PullRequest {
    PullRequest {
        branch: ADVANCE.to_owned(),
        commit: "c0ffee".to_owned(),
        base: "release/1".to_owned(),
        title: "Advance \"x\"".to_owned(),
        body: "| a | b |\n".to_owned(),
    }
}

const QUOTED_BRANCH: &str = "tidegate%2Frollout%2Fdata-flow%2Fbridge-canary%2Fadvance-3";

fn github(url: &str, sha: &str, state: &str, merged_at: Value) -> Value {
    json!({"html_url": url, "head": {"ref": ADVANCE, "sha": sha}, "state": state, "merged_at": merged_at})
}

#[test]
fn github_is_asked_as_its_documentation_says() {
    let created = github("https://github.com/shop/estate/pull/7", "c0ffee", "open", Value::Null);
    let old = github("old", "c0ffee", "closed", json!("2026-01-01T00:00:00Z"));
    let server = Server::start(vec![answer(200, &json!([old])), answer(201, &created)]);
    let opened = server.open(ForgeKind::GitHub, "shop/estate").unwrap();
    let url = "https://github.com/shop/estate/pull/7".to_owned();
    assert_eq!(opened, Opened { url, is_new: true, is_closed: false });

    let asked = server.asked();
    let list = "GET /api/v3/repos/shop/estate/pulls?state=all&head=shop%3A";
    assert_eq!(asked[0].line, format!("{list}{QUOTED_BRANCH}&per_page=100"));
    assert_eq!(asked[1].line, "POST /api/v3/repos/shop/estate/pulls");
    for request in &asked {
        assert_eq!(request.header("authorization"), Some("Bearer s3cret"));
        assert_eq!(request.header("accept"), Some("application/vnd.github+json"));
        assert_eq!(request.header("x-github-api-version"), Some("2022-11-28"));
        assert!(request.header("user-agent").unwrap().starts_with("tidegate/"));
        assert_eq!(request.header("host"), Some(&*server.address.to_string()));
    }
    let PullRequest { branch, base, title, body, .. } = pull();
    let expected = json!({"title": title, "head": branch, "base": base, "body": body});
    assert_eq!((&asked[0].body, &asked[1].body), (&None, &Some(expected)));
    assert_eq!(asked[1].header("content-type"), Some("application/json"));
}

fn gitea(url: &str, branch: &str, repo_id: u32, state: &str) -> Value {
    json!({
        "html_url": url, "state": state, "merged": false,
        "head": {"ref": branch, "sha": "c0ffee", "repo_id": repo_id},
        "base": {"ref": "release/1", "repo_id": 1},
    })
}

#[test]
fn gitea_is_asked_as_its_documentation_says() {
    let others = json!([gitea("other", "other", 1, "open"), gitea("fork", ADVANCE, 2, "open")]);
    let created = gitea("https://gitea/7", ADVANCE, 1, "open");
    let server =
        Server::start(vec![answer(200, &others), answer(200, &json!([])), answer(201, &created)]);
    let opened = server.open(ForgeKind::Gitea, "shop/estate").unwrap();
    let url = "https://gitea/7".to_owned();
    assert_eq!(opened, Opened { url, is_new: true, is_closed: false });

    let asked = server.asked();
    for (page, request) in asked.iter().enumerate().take(2) {
        let list = "GET /api/v1/repos/shop/estate/pulls?state=all&sort=recentupdate&page=";
        assert_eq!(request.line, format!("{list}{}&limit=50", page + 1));
    }
    assert_eq!(asked[2].line, "POST /api/v1/repos/shop/estate/pulls");
    assert!(asked.iter().all(|request| request.header("authorization") == Some("token s3cret")));
    let PullRequest { branch, base, title, body, .. } = pull();
    let expected = json!({"title": title, "head": branch, "base": base, "body": body});
    assert_eq!(asked[2].body, Some(expected));
}

fn gitlab(url: &str, project: u32, state: &str) -> Value {
    json!({
        "web_url": url, "sha": "c0ffee", "state": state,
        "source_project_id": project, "target_project_id": 1,
    })
}

#[test]
fn gitlab_is_asked_as_its_documentation_says() {
    let created = gitlab("https://gitlab/7", 1, "opened");
    let others = json!([gitlab("fork", 2, "opened"), gitlab("merged", 1, "merged")]);
    let server = Server::start(vec![answer(200, &others), answer(201, &created)]);
    let opened = server.open(ForgeKind::GitLab, "group/sub/estate").unwrap();
    let url = "https://gitlab/7".to_owned();
    assert_eq!(opened, Opened { url, is_new: true, is_closed: false });

    let asked = server.asked();
    let path = "/api/v4/projects/group%2Fsub%2Festate/merge_requests";
    let list = format!("GET {path}?state=all&source_branch={QUOTED_BRANCH}&per_page=100");
    assert_eq!(asked[0].line, list);
    assert_eq!(asked[1].line, format!("POST {path}"));
    assert!(asked.iter().all(|request| request.header("private-token") == Some("s3cret")));
    assert!(asked.iter().all(|request| request.header("authorization").is_none()));
    let PullRequest { branch, base, title, body, .. } = pull();
    let expected = json!({
        "source_branch": branch, "target_branch": base, "title": title, "description": body,
        "remove_source_branch": true,
    });
    assert_eq!(asked[1].body, Some(expected));
}

#[test]
fn one_that_is_open_is_found_and_one_that_was_refused_is_respected() {
    let open = Server::start(vec![answer(
        200,
        &json!([
            github("old", "beef", "closed", Value::Null),
            github("it", "beef", "open", Value::Null)
        ]),
    )]);
    let opened = open.open(ForgeKind::GitHub, "shop/estate").unwrap();
    assert_eq!(opened, Opened { url: "it".to_owned(), is_new: false, is_closed: false });
    let refused =
        Server::start(vec![answer(200, &json!([github("it", "c0ffee", "closed", Value::Null)]))]);
    let opened = refused.open(ForgeKind::GitHub, "shop/estate").unwrap();
    assert_eq!(opened, Opened { url: "it".to_owned(), is_new: false, is_closed: true });
}

#[test]
fn a_replica_that_was_faster_is_found() {
    let cases = [
        (ForgeKind::GitHub, 422, json!([github("it", "c0ffee", "open", Value::Null)])),
        (ForgeKind::Gitea, 409, json!([gitea("it", ADVANCE, 1, "open")])),
        (ForgeKind::GitLab, 409, json!([gitlab("it", 1, "opened")])),
    ];
    for (kind, status, found) in cases {
        let refusal = answer(status, &json!({"message": "already exists"}));
        let server =
            Server::start(vec![answer(200, &json!([])), refusal.clone(), answer(200, &found)]);
        let opened = server.open(kind, "shop/estate").unwrap();
        assert_eq!(opened, Opened { url: "it".to_owned(), is_new: false, is_closed: false });
        // Refused for another reason: nothing is found, and the reason is told.
        let nothing = answer(200, &json!([]));
        let server = Server::start(vec![nothing.clone(), refusal, nothing]);
        let error = server.open(kind, "shop/estate").unwrap_err();
        assert!(error.to_string().contains("already exists"), "{error}");
    }
}

#[test]
fn whatever_a_forge_answers_is_an_error_that_shows_no_token() {
    let long = vec![b' '; ANSWER_BYTES_MAX + 1];
    let answers: [(Answer, &str); 6] = [
        (answer(401, &json!({"message": "Bad credentials"})), "401 Unauthorized"),
        (answer(404, &json!({"message": "Not Found"})), "404 Not Found"),
        ((502, Vec::new(), b"<html>".to_vec()), "502 Bad Gateway"),
        ((200, Vec::new(), b"<html>".to_vec()), "something else than expected"),
        (answer(200, &json!({"no": "list"})), "something else than expected"),
        ((200, Vec::new(), long), "length limit exceeded"),
    ];
    for (answer, expected) in answers {
        for kind in [ForgeKind::GitHub, ForgeKind::Gitea, ForgeKind::GitLab] {
            let server = Server::start(vec![answer.clone()]);
            let error = server.open(kind, "shop/estate").unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
            assert!(!format!("{error} {error:?}").contains("s3cret"), "{error:?}");
        }
    }
}

#[test]
fn a_forge_that_is_asked_too_often_says_when() {
    let limited = (429, vec![("retry-after", "60")], b"{}".to_vec());
    let error = Server::start(vec![limited]).open(ForgeKind::GitHub, "shop/estate").unwrap_err();
    assert_eq!(error.retry_after().unwrap().as_secs(), 60);
}

#[test]
fn the_token_is_read_at_each_use() {
    let server = Server::start(vec![answer(401, &json!({})), answer(401, &json!({}))]);
    let forge = server.forge(ForgeKind::GitLab, "shop/estate");
    let token = server.dir.path().join("token");
    let open = || server.runtime.block_on(forge.open(&pull())).unwrap_err();
    open();
    fs::write(&token, "rotated").unwrap();
    open();
    for bad in ["", "two words", "line\nline"] {
        fs::write(&token, bad).unwrap();
        assert!(matches!(open(), ForgeError::Token { .. }), "{bad:?}");
    }
    fs::remove_file(&token).unwrap();
    assert!(matches!(open(), ForgeError::Token { .. }));
    let asked = server.asked();
    let tokens: Vec<_> = asked.iter().map(|request| request.header("private-token")).collect();
    assert_eq!(tokens, [Some("s3cret"), Some("rotated")]);
}

#[test]
fn a_pull_request_follows_its_branch_when_the_forge_answers_again() {
    let remote = demo_in("");
    let created = gitea("https://gitea/7", ADVANCE, 1, "open");
    let server = Server::start(vec![
        (503, Vec::new(), b"{}".to_vec()),
        answer(200, &json!([])),
        answer(201, &created),
    ]);
    let mut follower = Follower::of(&remote, Some(server.forge(ForgeKind::Gitea, "shop/estate")));
    let advance = report(&remote, 1, verdict::Kind::Advance);
    let state = follower.turn(Some(&advance)).unwrap();
    assert_eq!((&*state.state, &state.url), ("pushed", &None), "the branch does not wait for it");
    assert!(state.error.unwrap().contains("503"));
    let state = until("the pull request", || {
        follower.turn(Some(&advance)).filter(|state| state.url.is_some())
    });
    assert_eq!((state.url.as_deref(), state.error), (Some("https://gitea/7"), None));
    assert_eq!(state.commit, tip(&remote, ADVANCE));
    assert_eq!(follower.count("advance", "opened"), 1);
    assert_eq!(follower.count("advance", "forge_failed"), 1);
    let asked = server.asked();
    let body = asked[2].body.as_ref().unwrap();
    assert_eq!(body["base"], "main");
    assert_eq!(body["title"], "Advance data-flow/bridge-canary to stage 3 of 3");
    assert!(body["body"].as_str().unwrap().contains("| Soak | `"), "{body}");
}
