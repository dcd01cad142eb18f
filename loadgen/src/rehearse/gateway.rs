//! A gateway as a process of its own, from its announcement to its end.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};

use super::Trouble;

/// Longest from its start to its announcement.
const START_MAX: Duration = Duration::from_secs(60);
/// Longest from SIGTERM to its end, and of a command that only answers.
const END_MAX: Duration = Duration::from_secs(60);
/// What is kept of all that gateways write on stderr: the newest bytes.
const LOG_MAX: usize = 1 << 20;

/// What gateways wrote on stderr.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log(Arc<Mutex<String>>);

impl Log {
    fn push(&self, bytes: &[u8]) {
        let mut text = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        text.push_str(&String::from_utf8_lossy(bytes));
        if text.len() > LOG_MAX {
            let from = (text.len() - LOG_MAX..text.len()).find(|at| text.is_char_boundary(*at));
            *text = text.split_off(from.unwrap_or_default());
        }
    }

    /// All that is kept.
    pub(crate) fn text(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A gateway that serves; killed when dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    /// For collectors.
    pub(crate) endpoint: String,
    /// For operators.
    pub(crate) admin: SocketAddr,
}

impl Process {
    /// Starts one and waits until it serves.
    pub(crate) async fn start(
        program: &Path,
        arguments: &[String],
        log: &Log,
    ) -> Result<Self, Trouble> {
        let mut command = command(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .map_err(|error| Trouble::Cannot(format!("{}: {error}", program.display())))?;
        if let Some(mut pipe) = child.stderr.take() {
            let log = log.clone();
            tokio::spawn(async move {
                let mut buffer = vec![0; 8_192];
                while let Ok(read @ 1..) = pipe.read(&mut buffer).await {
                    log.push(buffer.get(..read).unwrap_or_default());
                }
            });
        }
        let Some(stdout) = child.stdout.take() else {
            return Err(Trouble::Cannot("the gateway has no stdout".to_owned()));
        };
        let announced = tokio::time::timeout(START_MAX, announcement(stdout)).await;
        let Ok(Some((endpoint, admin))) = announced else {
            // It tells why on stderr, which ends with it.
            let ended = tokio::time::timeout(Duration::from_secs(1), child.wait()).await;
            let how = match ended {
                Ok(Ok(status)) => status.to_string(),
                Ok(Err(error)) => error.to_string(),
                Err(_) => "it still runs".to_owned(),
            };
            return Err(Trouble::Cannot(format!(
                "the gateway does not announce itself ({how}): {}",
                log.text().trim()
            )));
        };
        Ok(Self { child, endpoint, admin })
    }

    /// Its process id, until it was waited for.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// `kill -9`.
    pub(crate) async fn kill(mut self) -> Result<(), Trouble> {
        self.child
            .kill()
            .await
            .map_err(|error| Trouble::Cannot(format!("the gateway cannot be killed: {error}")))
    }

    /// SIGTERM, and the wait for its end, which must be a good one.
    pub(crate) async fn drain(mut self) -> Result<(), Trouble> {
        let pid = self.child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        let Some(pid) = pid else {
            return Err(Trouble::Deviates("the gateway has ended by itself".to_owned()));
        };
        kill_process(pid, Signal::TERM)
            .map_err(|error| Trouble::Cannot(format!("SIGTERM: {error}")))?;
        match tokio::time::timeout(END_MAX, self.child.wait()).await {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(status)) => Err(Trouble::Deviates(format!("the drained gateway: {status}"))),
            Ok(Err(error)) => Err(Trouble::Cannot(format!("the gateway's end: {error}"))),
            Err(_) => Err(Trouble::Deviates(format!("not drained within {END_MAX:?}"))),
        }
    }

    /// Whether it has ended by itself, and how.
    pub(crate) fn ended(&mut self) -> Option<String> {
        self.child.try_wait().ok().flatten().map(|status| status.to_string())
    }
}

/// The exit code of a command that only answers, and what it said on stderr.
pub(crate) async fn ask(program: &Path, arguments: &[&str]) -> Result<(i32, String), Trouble> {
    let mut command = command(program);
    command.args(arguments).stdin(Stdio::null());
    let what = || format!("{} {}", program.display(), arguments.join(" "));
    let output = tokio::time::timeout(END_MAX, command.output())
        .await
        .map_err(|_| Trouble::Deviates(format!("{}: more than {END_MAX:?}", what())))?
        .map_err(|error| Trouble::Cannot(format!("{}: {error}", what())))?;
    let said = [&*output.stdout, &*output.stderr].concat();
    let said = String::from_utf8_lossy(&said).trim().to_owned();
    Ok((output.status.code().unwrap_or(-1), said))
}

/// With nothing that the environment says to gateways.
fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TIDEGATE_") {
            command.env_remove(name);
        }
    }
    // A Ctrl-C is for loadgen, which ends what it started.
    command.process_group(0).kill_on_drop(true);
    command
}

/// The collectors' URL and the operators' address, from the lines that it prints.
async fn announcement(stdout: ChildStdout) -> Option<(String, SocketAddr)> {
    let mut lines = BufReader::new(stdout).lines();
    let (mut endpoint, mut admin) = (None, None);
    while let Ok(Some(line)) = lines.next_line().await {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("listen") => endpoint = words.next().map(str::to_owned),
            Some("admin") => {
                let url = words.next().and_then(|url| url.split_once("://"));
                admin = url.and_then(|(_, rest)| rest.trim_end_matches('/').parse().ok());
            }
            Some("metrics") => break,
            _ => {}
        }
    }
    // Nothing more is expected there, but a closed pipe would be an error to it.
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    endpoint.zip(admin)
}
