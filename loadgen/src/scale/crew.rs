//! The worker processes, from the coordinator's side.

use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::mpsc;

use super::options::{Options, ScaleError};
use super::protocol::{FromWorker, ToWorker};

/// Longest line of a worker: its share of the report.
const LINE_MAX: usize = 64 << 20;

/// What comes from the workers: whose it is, and a line, or why there are no more.
pub(super) type Incoming = (u32, Result<FromWorker, String>);

/// One worker; killed when dropped.
#[derive(Debug)]
pub(super) struct Worker {
    child: Child,
    stdin: Option<ChildStdin>,
    pub(super) pid: u32,
}

impl Worker {
    /// Starts number `number`, whose lines go to `incoming`.
    pub(super) fn start(
        options: &Options,
        number: u32,
        incoming: mpsc::Sender<Incoming>,
    ) -> Result<Self, ScaleError> {
        let cannot = |why: String| ScaleError::Cannot(format!("worker {number}: {why}"));
        let mut command = own_command(options)?;
        command
            .arg("worker")
            .arg(std::process::id().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0) // a Ctrl-C is for the coordinator, which ends the run in order
            .kill_on_drop(true);
        let mut child = command.spawn().map_err(|error| cannot(error.to_string()))?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let pid = child.id();
        let (Some(stdin), Some(stdout), Some(pid)) = (stdin, stdout, pid) else {
            return Err(cannot("it has no pipes".to_owned()));
        };
        tokio::spawn(async move {
            let mut reader = BufReader::new(stdout);
            loop {
                let line = next_line(&mut reader).await;
                let last = line.is_err();
                if incoming.send((number, line)).await.is_err() || last {
                    return;
                }
            }
        });
        Ok(Self { child, stdin: Some(stdin), pid })
    }

    /// Tells it something.
    pub(super) async fn tell(&mut self, command: &ToWorker) -> Result<(), String> {
        let Some(stdin) = &mut self.stdin else { return Err("its stdin is closed".to_owned()) };
        let mut line = serde_json::to_vec(command).map_err(|error| error.to_string())?;
        line.push(b'\n');
        stdin.write_all(&line).await.map_err(|error| error.to_string())
    }

    /// Waits for its end, which it has announced.
    pub(super) async fn end(mut self) -> Result<(), String> {
        self.stdin = None;
        match self.child.wait().await {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(status.to_string()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Ends it at once; one that has ended is waited for.
    pub(super) async fn kill(mut self) {
        // Either it is killed, or it has ended already.
        let _ = self.child.kill().await;
    }

    /// How it ended, if it has.
    pub(super) fn ended(&mut self) -> Option<String> {
        self.child.try_wait().ok().flatten().map(|status| status.to_string())
    }
}

async fn next_line(
    reader: &mut BufReader<tokio::process::ChildStdout>,
) -> Result<FromWorker, String> {
    let mut line = Vec::new();
    loop {
        let found = reader.fill_buf().await.map_err(|error| error.to_string())?;
        if found.is_empty() {
            return Err("it closed its stdout".to_owned());
        }
        let end = found.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(found.len(), |end| end + 1);
        line.extend_from_slice(found.get(..taken).unwrap_or_default());
        reader.consume(taken);
        if end.is_some() {
            break;
        }
        if line.len() > LINE_MAX {
            return Err("a line without end".to_owned());
        }
    }
    serde_json::from_slice(&line).map_err(|error| {
        let begin = line.get(..line.len().min(200)).unwrap_or_default();
        format!("a line that is none: {error}: {}", begin.escape_ascii())
    })
}

/// The program that acts as worker and leash.
pub(super) fn own_command(options: &Options) -> Result<Command, ScaleError> {
    let Some((program, arguments)) = options.own.split_first() else {
        return Err(ScaleError::Cannot("loadgen's own program is not known".to_owned()));
    };
    let mut command = Command::new(program);
    command.args(arguments);
    Ok(command)
}
