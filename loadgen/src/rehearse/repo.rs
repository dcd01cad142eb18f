//! A real bare repository that gateways fetch from and push to, and a desk: the clone at which
//! people commit and merge.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use super::Trouble;
use super::scenario::{Diff, Edit};

/// Longest that one git command may take.
const GIT_TIMEOUT: Duration = Duration::from_secs(60);
/// Who people are.
const HUMAN: (&str, &str) = ("A Human", "human@example.com");
/// Who gateways propose as.
pub(crate) const PROPOSER: (&str, &str) = ("Tidegate", "tidegate@example.com");

/// Who commits, and when.
#[derive(Clone, Copy)]
pub(crate) struct Signature {
    who: (&'static str, &'static str),
    unix_seconds: u64,
}

impl Signature {
    /// A human.
    pub(crate) fn human(unix_ms: u64) -> Self {
        Self { who: HUMAN, unix_seconds: unix_ms / 1_000 }
    }

    /// The one that gateways use.
    pub(crate) fn proposer(unix_ms: u64) -> Self {
        Self { who: PROPOSER, unix_seconds: unix_ms / 1_000 }
    }
}

/// The repository.
#[derive(Debug)]
pub(crate) struct Repo {
    bare: PathBuf,
    away: PathBuf,
    desk: PathBuf,
    /// What all branches of the Rollout begin with.
    prefix: String,
    evidence: String,
}

impl Repo {
    /// Makes both below `root`; the desk is empty, and nothing is pushed yet.
    pub(crate) async fn create(root: &Path, rollout: &str) -> Result<Self, Trouble> {
        let repo = Self {
            bare: root.join("estate.git"),
            away: root.join("estate.git.away"),
            desk: root.join("desk"),
            prefix: format!("tidegate/rollout/{rollout}/"),
            evidence: format!("rollouts-evidence/{rollout}.json"),
        };
        let bare = repo.bare.display().to_string();
        repo.git(root, &["init", "--quiet", "--bare", "-b", "main", &bare], None).await?;
        // The gateway's clones are partial, and refs must stay loose to be read as files.
        for (key, value) in [
            ("uploadpack.allowFilter", "true"),
            ("uploadpack.allowAnySHA1InWant", "true"),
            ("gc.auto", "0"),
        ] {
            repo.git(&repo.bare, &["config", key, value], None).await?;
        }
        let desk = repo.desk.display().to_string();
        repo.git(root, &["init", "--quiet", "-b", "main", &desk], None).await?;
        repo.git(&repo.desk, &["remote", "add", "origin", &bare], None).await?;
        Ok(repo)
    }

    /// For `--repo`.
    pub(crate) fn url(&self) -> String {
        format!("file://{}", self.bare.display())
    }

    /// The desk's working tree.
    pub(crate) fn desk(&self) -> &Path {
        &self.desk
    }

    /// Commits all that lies on the desk, without pushing it.
    pub(crate) async fn commit(&self, message: &str, by: Signature) -> Result<String, Trouble> {
        self.git(&self.desk, &["add", "--all"], None).await?;
        self.git(&self.desk, &["commit", "--quiet", "--allow-empty", "-m", message], Some(by))
            .await?;
        self.tip("HEAD").await
    }

    /// Pushes the desk's HEAD to a branch of the remote.
    pub(crate) async fn push(&self, branch: &str) -> Result<(), Trouble> {
        let refspec = format!("HEAD:refs/heads/{branch}");
        self.git(&self.desk, &["push", "--quiet", "origin", &refspec], None).await.map(drop)
    }

    /// The desk as the remote's main is now.
    pub(crate) async fn update(&self) -> Result<(), Trouble> {
        self.git(&self.desk, &["fetch", "--quiet", "--prune", "origin"], None).await?;
        self.checkout("main", "origin/main").await
    }

    async fn checkout(&self, local: &str, start: &str) -> Result<(), Trouble> {
        self.git(&self.desk, &["checkout", "--quiet", "--force", "-B", local, start], None)
            .await
            .map(drop)
    }

    /// The whole name of a branch of the Rollout.
    pub(crate) fn branch(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// Merges a branch on the desk as people do on a forge, with a merge commit.
    pub(crate) async fn merge(&self, name: &str, by: Signature) -> Result<String, Trouble> {
        self.update().await?;
        let branch = format!("origin/{}", self.branch(name));
        let message = format!("Merge {name}");
        self.git(&self.desk, &["merge", "--quiet", "--no-ff", "-m", &message, &branch], Some(by))
            .await?;
        self.tip("HEAD").await
    }

    /// Makes a branch's commit itself the head of the desk, as if it had been committed at `by`.
    pub(crate) async fn fast_forward(&self, name: &str, by: Signature) -> Result<String, Trouble> {
        self.update().await?;
        self.checkout("main", &format!("origin/{}", self.branch(name))).await?;
        self.git(
            &self.desk,
            &["commit", "--quiet", "--amend", "--no-edit", "--reset-author"],
            Some(by),
        )
        .await?;
        self.tip("HEAD").await
    }

    /// The desk as a branch of the Rollout is now.
    pub(crate) async fn update_to_branch(&self, name: &str) -> Result<(), Trouble> {
        self.update().await?;
        self.checkout("on-branch", &format!("origin/{}", self.branch(name))).await
    }

    /// Deletes a branch of the Rollout on the remote.
    pub(crate) async fn delete(&self, name: &str) -> Result<(), Trouble> {
        let refspec = format!(":refs/heads/{}", self.branch(name));
        self.git(&self.desk, &["push", "--quiet", "origin", &refspec], None).await.map(drop)
    }

    /// The commit that lies on the desk.
    pub(crate) async fn head(&self) -> Result<String, Trouble> {
        self.tip("HEAD").await
    }

    async fn tip(&self, of: &str) -> Result<String, Trouble> {
        let text = self.git(&self.desk, &["rev-parse", of], None).await?;
        Ok(text.trim().to_owned())
    }

    /// The remote vanishes, or is there again.
    pub(crate) fn set_reachable(&self, reachable: bool) -> Result<(), Trouble> {
        let (from, to) =
            if reachable { (&self.away, &self.bare) } else { (&self.bare, &self.away) };
        std::fs::rename(from, to)
            .map_err(|error| Trouble::Cannot(format!("{}: {error}", from.display())))
    }

    /// Branches of the Rollout and their tips; `None` while the remote is away. Read from the files,
    /// as it is asked for many times a second.
    pub(crate) fn branches(&self) -> Option<BTreeMap<String, String>> {
        if !self.bare.join("HEAD").exists() {
            return None;
        }
        let folder = self.bare.join("refs/heads").join(&self.prefix);
        let mut branches = BTreeMap::new();
        let Ok(entries) = std::fs::read_dir(folder) else { return Some(branches) };
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            // A lock is a branch that is being written.
            if let Ok(tip) = std::fs::read_to_string(entry.path())
                && !name.ends_with(".lock")
                && !tip.trim().is_empty()
            {
                branches.insert(name, tip.trim().to_owned());
            }
        }
        Some(branches)
    }

    /// What a commit changes since it left main.
    pub(crate) async fn diff(&self, tip: &str) -> Result<Diff, Trouble> {
        let base = self.git(&self.bare, &["merge-base", "refs/heads/main", tip], None).await?;
        let range = [base.trim(), tip];
        let names = ["diff", "--no-renames", "--name-status", range[0], range[1]];
        let files = self.git(&self.bare, &names, None).await?;
        let authored =
            ["diff", "--no-renames", "-U0", "--diff-filter=M", range[0], range[1], "--", "teams"];
        let lines = self.git(&self.bare, &authored, None).await?;
        let changed = |line: &&str| {
            line.starts_with(['-', '+']) && !line.starts_with("---") && !line.starts_with("+++")
        };
        Ok(Diff {
            files: files.lines().map(|line| line.replace('\t', " ")).collect(),
            lines: lines.lines().filter(changed).map(str::to_owned).collect(),
        })
    }

    /// The evidence bundle that a commit carries, if it carries one.
    pub(crate) async fn bundle(&self, tip: &str) -> Result<Option<String>, Trouble> {
        let list = ["ls-tree", "--name-only", tip, &self.evidence];
        if self.git(&self.bare, &list, None).await?.trim().is_empty() {
            return Ok(None);
        }
        self.git(&self.bare, &["show", &format!("{tip}:{}", self.evidence)], None).await.map(Some)
    }

    async fn git(
        &self,
        dir: &Path,
        arguments: &[&str],
        by: Option<Signature>,
    ) -> Result<String, Trouble> {
        let by = by.unwrap_or(Signature { who: HUMAN, unix_seconds: 0 });
        let date = format!("@{} +0000", by.unix_seconds);
        let mut command = Command::new("git");
        // Nothing of whoever runs this, neither their settings nor a repository around them.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("GIT_") {
                command.env_remove(name);
            }
        }
        let (name, mail) = by.who;
        command
            .arg("-C")
            .arg(dir)
            .args(arguments)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_SYSTEM", "/dev/null")
            .env("GIT_TERMINAL_PROMPT", "0")
            .envs([("GIT_AUTHOR_NAME", name), ("GIT_COMMITTER_NAME", name)])
            .envs([("GIT_AUTHOR_EMAIL", mail), ("GIT_COMMITTER_EMAIL", mail)])
            .envs([("GIT_AUTHOR_DATE", &date), ("GIT_COMMITTER_DATE", &date)])
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let what = || format!("git {}", arguments.join(" "));
        let output = tokio::time::timeout(GIT_TIMEOUT, command.output())
            .await
            .map_err(|_| Trouble::Cannot(format!("{}: more than {GIT_TIMEOUT:?}", what())))?
            .map_err(|error| Trouble::Cannot(format!("{}: {error}", what())))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(Trouble::Deviates(format!("{} failed: {}", what(), said.trim())));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// Replaces texts, each of which must be in its file exactly once.
pub(crate) fn edit(root: &Path, edits: &[Edit]) -> Result<(), Trouble> {
    for edit in edits {
        let path = inside(root, &edit.file)?;
        let text = std::fs::read_to_string(&path)
            .map_err(|error| Trouble::Cannot(format!("{}: {error}", edit.file)))?;
        if text.matches(&edit.old).count() != 1 {
            let there = text.matches(&edit.old).count();
            return Err(Trouble::Cannot(format!(
                "{}: \"{}\" is there {there} times, not once",
                edit.file, edit.old
            )));
        }
        write(root, &edit.file, &text.replace(&edit.old, &edit.new))?;
    }
    Ok(())
}

/// Writes a file below `root`.
pub(crate) fn write(root: &Path, file: &str, text: &str) -> Result<(), Trouble> {
    let path = inside(root, file)?;
    let folder = path.parent().unwrap_or(root);
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(&path, text))
        .map_err(|error| Trouble::Cannot(format!("{file}: {error}")))
}

/// Removes a file below `root`.
pub(crate) fn remove(root: &Path, file: &str) -> Result<(), Trouble> {
    std::fs::remove_file(inside(root, file)?)
        .map_err(|error| Trouble::Cannot(format!("{file}: {error}")))
}

fn inside(root: &Path, file: &str) -> Result<PathBuf, Trouble> {
    let plain = |part: std::path::Component<'_>| matches!(part, std::path::Component::Normal(_));
    if file.is_empty() || !Path::new(file).components().all(plain) {
        return Err(Trouble::Cannot(format!("{file}: not a file of the estate")));
    }
    Ok(root.join(file))
}
