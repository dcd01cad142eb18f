//! The binary's edge to git: what history tells of an estate's Rollouts (rollouts.md, decisions 6
//! and 15).
//!
//! The library spawns nothing. History counts only where the estate is the root of its repository,
//! the clone is whole, and the working tree's stage is HEAD's.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use render::history::{History, log_arguments};
use render::snapshot::served::Served;

/// Fills in what history tells; returns the ids of Rollouts of which it tells nothing.
pub(super) fn fill(estate: &Path, served: &mut Served) -> Vec<String> {
    if served.rollouts.is_empty() {
        return Vec::new();
    }
    match (history(estate), Objects::open(estate)) {
        (Some(history), Some(mut objects)) => history.fill(served, |blob| objects.read(blob)),
        _ => served.rollouts.keys().map(|id| id.to_string()).collect(),
    }
}

fn history(estate: &Path) -> Option<History> {
    let root = ask(estate, &["rev-parse", "--show-prefix", "--is-shallow-repository"])?;
    // An empty prefix says that this is the root; a shallow clone has lost the origins.
    if root != "\nfalse\n" {
        return None;
    }
    let arguments = log_arguments("HEAD", "");
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    History::parse(&ask(estate, &arguments)?, "")
}

fn git(estate: &Path) -> Command {
    let mut git = Command::new("git");
    git.args(["-c", "core.fsmonitor=false", "-C"])
        .arg(estate)
        .env("GIT_OPTIONAL_LOCKS", "0")
        .env_remove("GIT_DIR")
        .env_remove("GIT_WORK_TREE")
        .env_remove("GIT_INDEX_FILE")
        .stderr(Stdio::null());
    git
}

fn ask(estate: &Path, arguments: &[&str]) -> Option<String> {
    let output = git(estate).args(arguments).stdin(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8(output.stdout).ok()).flatten()
}

/// `git cat-file --batch`: one process for all objects.
struct Objects {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Objects {
    fn open(estate: &Path) -> Option<Self> {
        let mut child = git(estate)
            .args(["cat-file", "--batch"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .ok()?;
        let (requests, answers) = (child.stdin.take()?, child.stdout.take()?);
        Some(Self { child, requests, answers: BufReader::new(answers) })
    }

    fn read(&mut self, blob: &str) -> Option<Vec<u8>> {
        writeln!(self.requests, "{blob}").ok()?;
        self.requests.flush().ok()?;
        let mut header = String::new();
        self.answers.read_line(&mut header).ok()?;
        // `<id> blob <size>`; anything else has no body.
        let size = header.trim_end().split_once(" blob ")?.1.parse().ok()?;
        let mut body = Vec::new();
        self.answers.by_ref().take(size).read_to_end(&mut body).ok()?;
        // The newline after the body.
        self.answers.read_exact(&mut [0]).ok()?;
        Some(body)
    }
}

impl Drop for Objects {
    fn drop(&mut self) {
        // It ends with its input; killed and reaped in case it does not.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
