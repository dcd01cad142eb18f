//! One git command: its environment, its deadline, and what it said.

use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};

use super::GitError;

/// Of what git says on stderr, the part that is kept.
const STDERR_BYTES_MAX: u64 = 16 << 10;

/// How git is run: where, for how long, and against which remote.
#[derive(Clone, Debug)]
pub struct Git {
    place: At,
    timeout: Duration,
    /// Kept out of the command line, where every user of the machine could read its credentials.
    remote: Option<String>,
    /// Set on top of what every command gets.
    variables: Vec<(&'static str, OsString)>,
}

#[derive(Clone, Debug)]
enum At {
    Bare(PathBuf),
    Worktree(PathBuf),
}

impl Git {
    /// In a bare repository whose remote `origin` is `remote`.
    pub fn bare(git_dir: &Path, remote: &str, timeout: Duration) -> Self {
        let place = At::Bare(git_dir.to_owned());
        Self { place, timeout, remote: Some(remote.to_owned()), variables: Vec::new() }
    }

    /// In a checkout; nothing is fetched.
    pub fn in_worktree(dir: &Path, timeout: Duration) -> Self {
        Self { place: At::Worktree(dir.to_owned()), timeout, remote: None, variables: Vec::new() }
    }

    /// The same with these environment variables.
    pub fn with(&self, variables: impl IntoIterator<Item = (&'static str, OsString)>) -> Self {
        let mut git = self.clone();
        git.variables.extend(variables);
        git
    }

    /// Runs `git ARGUMENTS` and gives what it printed, as text.
    ///
    /// # Errors
    ///
    /// As [`Git::run`]; also when the output is not UTF-8.
    pub fn text(&self, arguments: &[&str]) -> Result<String, GitError> {
        let out = self.run(arguments, Vec::new(), TEXT_BYTES_MAX)?;
        String::from_utf8(out).map_err(|_| GitError::Output { command: name(arguments) })
    }

    /// The commit that `revision` names, and when it was made, in milliseconds since 1970.
    ///
    /// # Errors
    ///
    /// As [`Git::text`]; also when there is no such commit.
    pub fn commit(&self, revision: &str) -> Result<(String, u64), GitError> {
        // Plumbing: what users configure for `git log` does not change it.
        let line = self.text(&["rev-list", "-1", "--timestamp", revision, "--"])?;
        let words = line.trim().split_once(' ');
        words
            .and_then(|(seconds, commit)| Some((commit.to_owned(), seconds.parse().ok()?)))
            .and_then(|(commit, seconds): (_, u64)| Some((commit, seconds.checked_mul(1_000)?)))
            .ok_or_else(|| GitError::Output { command: "git rev-list".to_owned() })
    }

    /// Runs `git ARGUMENTS` with `input`, and gives at most `limit` bytes of what it printed.
    ///
    /// # Errors
    ///
    /// When git cannot be started, fails (with what it said), takes longer than its deadline (it
    /// and its children are killed), or prints more than `limit`.
    pub fn run(&self, arguments: &[&str], input: Vec<u8>, limit: u64) -> Result<Vec<u8>, GitError> {
        let command = name(arguments);
        let mut child = self.command(arguments).spawn().map_err(GitError::Start)?;
        let watchdog = Watchdog::start(&child, self.timeout);

        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (out, said) = std::thread::scope(|scope| {
            let writer = scope.spawn(move || {
                // A git that ends before it has read everything says why on stderr.
                stdin.map(|mut stdin| stdin.write_all(&input))
            });
            let reader = scope.spawn(move || read(stderr, STDERR_BYTES_MAX));
            let out = read(stdout, limit + 1);
            if out.len() as u64 > limit {
                watchdog.kill();
            }
            let _ = writer.join();
            (out, reader.join().unwrap_or_default())
        });
        let timed_out = watchdog.finish();
        let status = child.wait().map_err(GitError::Start)?;

        if timed_out {
            return Err(GitError::Timeout { command, after: self.timeout });
        }
        if out.len() as u64 > limit {
            return Err(GitError::TooMuch { command, limit });
        }
        if !status.success() {
            let said = brief(&self.without_credentials(String::from_utf8_lossy(&said).trim()));
            return Err(GitError::Failed { command, said });
        }
        Ok(out)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("git");
        match &self.place {
            At::Bare(git_dir) => command.arg("--git-dir").arg(git_dir),
            At::Worktree(dir) => command.arg("-C").arg(dir),
        };
        command
            .args(["-c", "core.hooksPath=/dev/null"])
            .args(["-c", "core.fsmonitor=false"])
            .args(["-c", "gc.autoDetach=false"])
            .args(["-c", "maintenance.autoDetach=false"])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Its own group, so that ssh and remote helpers die with it.
            .process_group(0);
        for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY"] {
            command.env_remove(name);
        }
        command
            .env("LC_ALL", "C")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_ALLOW_PROTOCOL", "https:ssh:file")
            .env("GIT_OPTIONAL_LOCKS", "0");
        if std::env::var_os("GIT_SSH_COMMAND").is_none() {
            // Never asks for a pass phrase or a host key, either.
            command.env("GIT_SSH_COMMAND", "ssh -o BatchMode=yes");
        }
        if let Some(remote) = &self.remote {
            command
                .env("GIT_CONFIG_COUNT", "1")
                .env("GIT_CONFIG_KEY_0", "remote.origin.url")
                .env("GIT_CONFIG_VALUE_0", OsStr::new(remote));
        }
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    fn without_credentials(&self, said: &str) -> String {
        match &self.remote {
            Some(remote) => said.replace(remote, &super::url_without_credentials(remote)),
            None => said.to_owned(),
        }
    }
}

/// Largest answer of a command that answers in a few words.
const TEXT_BYTES_MAX: u64 = 64 << 10;

/// What people read of it: a damaged repository can say a thousand lines.
const SAID_LINES_MAX: usize = 12;

fn brief(said: &str) -> String {
    let left_out = said.lines().count().saturating_sub(SAID_LINES_MAX);
    if left_out == 0 {
        return said.to_owned();
    }
    let kept: Vec<&str> = said.lines().take(SAID_LINES_MAX).collect();
    format!("{}\n(and {left_out} lines more)", kept.join("\n"))
}

fn name(arguments: &[&str]) -> String {
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        match *word {
            // A setting, and its value.
            "-c" => drop(words.next()),
            word => return format!("git {word}"),
        }
    }
    "git".to_owned()
}

fn read(pipe: Option<impl Read>, limit: u64) -> Vec<u8> {
    let mut out = Vec::new();
    if let Some(pipe) = pipe {
        // A pipe that breaks ends the output; the exit status says the rest.
        let _ = pipe.take(limit).read_to_end(&mut out);
    }
    out
}

/// Kills the command's process group at its deadline.
struct Watchdog {
    group: Option<Pid>,
    ended: mpsc::SyncSender<()>,
    thread: std::thread::JoinHandle<bool>,
}

impl Watchdog {
    fn start(child: &Child, timeout: Duration) -> Self {
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let (ended, end) = mpsc::sync_channel(1);
        let thread = std::thread::spawn(move || {
            let timed_out = end.recv_timeout(timeout) == Err(mpsc::RecvTimeoutError::Timeout);
            if timed_out {
                kill(group);
            }
            timed_out
        });
        Self { group, ended, thread }
    }

    fn kill(&self) {
        kill(self.group);
    }

    /// Waits for the command to end without reaping it, so that its number cannot meanwhile belong
    /// to another process; says whether the deadline ended it.
    fn finish(self) -> bool {
        if let Some(pid) = self.group {
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            while matches!(
                rustix::process::waitid(WaitId::Pid(pid), options),
                Err(rustix::io::Errno::INTR)
            ) {}
        }
        let _ = self.ended.try_send(());
        self.thread.join().unwrap_or(false)
    }
}

fn kill(group: Option<Pid>) {
    if let Some(group) = group {
        // It may have ended by itself a moment ago.
        let _ = rustix::process::kill_process_group(group, Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_thousand_lines_the_first_are_told() {
        assert_eq!(brief("fatal: no\nsuch thing"), "fatal: no\nsuch thing");
        let long: String = (0..1_000).map(|n| format!("error: object {n} is missing\n")).collect();
        let told = brief(&long);
        assert!(told.starts_with("error: object 0 is missing\nerror: object 1 is missing"));
        assert!(told.ends_with("error: object 11 is missing\n(and 988 lines more)"), "{told}");
    }
}
