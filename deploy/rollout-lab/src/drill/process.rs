//! A gateway as a child process.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::DrillError;
use super::certificates::Certificates;

/// Longest from its start to its announcement.
const START_MAX: Duration = Duration::from_secs(30);

/// A gateway that has said where it listens; killed when dropped.
#[derive(Debug)]
pub(super) struct Gateway {
    child: Child,
    /// For collectors.
    pub(super) listen: SocketAddr,
    /// For operators.
    pub(super) admin: SocketAddr,
}

/// How a gateway is started.
#[derive(Debug, Clone)]
pub(super) struct Launch<'l> {
    pub(super) program: &'l Path,
    pub(super) estate: &'l Path,
    pub(super) label: &'l str,
    pub(super) listen: SocketAddr,
    /// Serve under TLS.
    pub(super) certificates: Option<&'l Certificates>,
    /// Somebody else may listen there as well.
    pub(super) reuse_port: bool,
    pub(super) drain_delay: Duration,
    pub(super) drain: Duration,
    /// Where its stderr goes.
    pub(super) log: &'l Path,
}

impl Gateway {
    /// Starts one and waits until it has said where it listens.
    pub(super) async fn start(launch: Launch<'_>) -> Result<Self, DrillError> {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(launch.log)?;
        let mut command = Command::new(launch.program);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("TIDEGATE_") {
                command.env_remove(name);
            }
        }
        if let Some(made) = launch.certificates {
            command.arg("serve").arg("--tls-cert").arg(&made.certificate);
            command.arg("--tls-key").arg(&made.key);
        } else {
            command.arg("serve");
        }
        let millis = |duration: Duration| format!("{}ms", duration.as_millis());
        let mut child = command
            .arg("--estate")
            .arg(launch.estate)
            .args(["--listen", &launch.listen.to_string(), "--admin", "127.0.0.1:0"])
            .args(["--instance-label", launch.label, "--fetch-interval", "500ms"])
            .args(["--drain-delay", &millis(launch.drain_delay), "--drain", &millis(launch.drain)])
            .args(launch.reuse_port.then_some("--reuse-port"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()?;
        let stdout = child.stdout.take();
        let announced = async {
            let mut lines = BufReader::new(stdout?).lines();
            let (mut listen, mut admin) = (None, None);
            while let Ok(Some(line)) = lines.next_line().await {
                let mut words = line.split_whitespace();
                let (name, url) = (words.next(), words.next().unwrap_or_default());
                let address = url.split("://").nth(1).and_then(|rest| rest.split('/').next());
                let address = address.and_then(|text| text.parse::<SocketAddr>().ok());
                match name {
                    Some("listen") => listen = address,
                    Some("admin") => admin = address,
                    Some("metrics") => break,
                    Some(_) | None => {}
                }
            }
            // A closed pipe would be an error to it.
            tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
            listen.zip(admin)
        };
        match tokio::time::timeout(START_MAX, announced).await {
            Ok(Some((listen, admin))) => Ok(Self { child, listen, admin }),
            Ok(None) | Err(_) => {
                let (label, log) = (launch.label, launch.log.display());
                Err(DrillError::Cannot(format!("{label} did not say where it listens; see {log}")))
            }
        }
    }

    /// SIGTERM, or SIGKILL.
    pub(super) fn signal(&self, signal: Signal) -> Result<(), DrillError> {
        let pid = self.child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        let Some(pid) = pid else {
            return Err(DrillError::Cannot("a gateway ended before it was told to".to_owned()));
        };
        kill_process(pid, signal).map_err(|error| DrillError::Io(error.into()))
    }

    /// Waits for its end.
    pub(super) async fn wait(&mut self) -> std::io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// How it ended, if it did.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }
}
