//! When an active Rollout's stage began and which commit brought it in, read from git history
//! (rollouts.md, decisions 6 and 15).
//!
//! The library spawns nothing; this is the binary's edge. History counts only where the estate is
//! the root of its repository, the clone is whole, and the working tree's stage is HEAD's.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use render::snapshot::served::Served;
use render::yaml;

/// Fills in what history tells; returns the ids of Rollouts of which it tells nothing.
pub(super) fn fill(estate: &Path, served: &mut Served) -> Vec<String> {
    let unknown = |served: &Served| served.rollouts.keys().map(|id| id.to_string()).collect();
    if served.rollouts.is_empty() {
        return Vec::new();
    }
    let Some(changes) = changes(estate) else { return unknown(served) };
    let Some(mut objects) = Objects::open(estate) else { return unknown(served) };
    let mut untold = Vec::new();
    for (id, rollout) in &mut served.rollouts {
        let (team, name) = id.split_once('/').unwrap_or((id, ""));
        let told = ["yaml", "yml"].iter().find_map(|extension| {
            let path = format!("teams/{team}/rollouts/{name}.{extension}");
            let changes = changes.get(&path)?;
            tell(&mut objects, &path, changes, rollout.stage)
        });
        match told {
            Some(told) => {
                rollout.origin = Some(told.origin.into());
                rollout.stage_started_ms = Some(told.stage_started_ms);
            }
            None => untold.push(id.to_string()),
        }
    }
    untold
}

/// A first-parent commit that touched a file.
struct Change {
    commit: String,
    /// Committer date, seconds since 1970.
    seconds: u64,
    /// Whether the file is new in it.
    adds: bool,
}

struct Told {
    origin: String,
    stage_started_ms: u64,
}

/// `changes` is newest first.
fn tell(objects: &mut Objects, path: &str, changes: &[Change], stage: u32) -> Option<Told> {
    if objects.stage("HEAD", path)? != stage {
        return None;
    }
    let mut started: Option<(u64, bool)> = None;
    for change in changes {
        if started.is_none_or(|(_, ended)| !ended) {
            let same = objects.stage(&change.commit, path) == Some(stage);
            match (same, started) {
                (true, _) => started = Some((change.seconds, false)),
                (false, Some((seconds, _))) => started = Some((seconds, true)),
                // HEAD's stage came from no commit that touched the file: history is not whole.
                (false, None) => return None,
            }
        }
        if change.adds {
            let (seconds, _) = started?;
            let stage_started_ms = seconds.checked_mul(1000)?;
            return Some(Told { origin: change.commit.clone(), stage_started_ms });
        }
    }
    None
}

/// Per Rollout file, the first-parent commits that touched it, newest first.
fn changes(estate: &Path) -> Option<BTreeMap<String, Vec<Change>>> {
    let root = ask(estate, &["rev-parse", "--show-prefix", "--is-shallow-repository"])?;
    // An empty prefix says that this is the root; a shallow clone has lost the origins.
    if root != "\nfalse\n" {
        return None;
    }
    let log = ask(
        estate,
        &[
            "log",
            "--first-parent",
            "-m",
            "--no-renames",
            "--no-ext-diff",
            "--name-status",
            "--format=commit %H %ct",
            "HEAD",
            "--",
            ":(glob)teams/*/rollouts/*",
        ],
    )?;
    let mut changes: BTreeMap<String, Vec<Change>> = BTreeMap::new();
    let mut at: Option<(&str, u64)> = None;
    for line in log.lines() {
        if let Some(header) = line.strip_prefix("commit ") {
            let (commit, seconds) = header.split_once(' ')?;
            at = Some((commit, seconds.parse().ok()?));
        } else if let (Some((status, path)), Some((commit, seconds))) = (line.split_once('\t'), at)
        {
            let change = Change { commit: commit.to_owned(), seconds, adds: status == "A" };
            changes.entry(path.to_owned()).or_default().push(change);
        }
    }
    Some(changes)
}

fn git(estate: &Path) -> Command {
    let mut git = Command::new("git");
    git.args(["-c", "core.quotePath=false", "-c", "core.fsmonitor=false", "-C"])
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

    /// The `stage` of a Rollout file at a commit; absent is 0.
    fn stage(&mut self, commit: &str, path: &str) -> Option<u32> {
        let root = yaml::parse(&self.read(commit, path)?).ok()?;
        match root.get("stage") {
            None => Some(0),
            Some(node) if node.is_null() => Some(0),
            Some(node) => node.as_scalar()?.text.parse().ok(),
        }
    }

    fn read(&mut self, commit: &str, path: &str) -> Option<Vec<u8>> {
        writeln!(self.requests, "{commit}:{path}").ok()?;
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
