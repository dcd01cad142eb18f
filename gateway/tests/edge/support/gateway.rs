//! The real binary, started and stopped.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::http::{Answer, Request};
use super::{exposition, until};

/// A command line of the binary with no `TIDEGATE_*` variable set.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gateway"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TIDEGATE_") {
            command.env_remove(name);
        }
    }
    command.args(arguments);
    command
}

/// How a command ended that was expected to end by itself.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

pub(crate) fn run(arguments: &[&str]) -> Ended {
    run_command(command(arguments))
}

pub(crate) fn run_command(mut command: Command) -> Ended {
    let output = command.stdin(Stdio::null()).output().unwrap();
    Ended {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// `gateway serve` or `gateway aggregate` on free ports of loopback; killed when dropped.
pub(crate) struct Gateway {
    child: Child,
    /// Of collectors; an aggregator's, of replicas.
    pub(crate) listen: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) announced: Vec<String>,
    err: Arc<Mutex<String>>,
}

impl Gateway {
    pub(crate) fn serve(arguments: &[&str]) -> Self {
        Self::start(
            command(&["serve", "--listen", "127.0.0.1:0", "--drain-delay", "0s"]),
            arguments,
        )
    }

    /// Adds `arguments` to a command line that begins with a role, and waits until it serves.
    pub(crate) fn start(mut command: Command, arguments: &[&str]) -> Self {
        command.args(["--admin", "127.0.0.1:0"]).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let err = Arc::new(Mutex::new(String::new()));
        let (mut pipe, copy) = (child.stderr.take().unwrap(), Arc::clone(&err));
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(read @ 1..) = pipe.read(&mut buffer) {
                copy.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..read]));
            }
        });
        let mut announced = Vec::new();
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            let last = line.starts_with("metrics ");
            announced.push(line);
            if last {
                break;
            }
        }
        let mut address = |words: &[&str]| {
            let named = |line: &&String| words.iter().any(|word| line.starts_with(word));
            let line = announced.iter().find(named);
            let url = line.and_then(|line| line.split_once("://"));
            let Some((_, rest)) = url else {
                let _ = child.wait();
                panic!("{words:?}: not announced in {announced:?}; {}", err.lock().unwrap());
            };
            rest.split(['/', ',']).next().unwrap().parse().unwrap()
        };
        let (listen, admin) = (address(&["listen", "uplink"]), address(&["admin"]));
        Self { listen, admin, announced, err, child }
    }

    pub(crate) fn log(&self) -> String {
        self.err.lock().unwrap().clone()
    }

    /// Waits for a line on stderr.
    #[track_caller]
    pub(crate) fn logged(&self, text: &str) {
        until(text, || self.log().contains(text).then_some(()));
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        Request::get(path).send(self.admin)
    }

    pub(crate) fn json(&self, path: &str) -> Value {
        let answer = self.get(path);
        serde_json::from_slice(&answer.body).unwrap_or_else(|_| panic!("{path}: {answer:?}"))
    }

    pub(crate) fn metrics(&self) -> BTreeMap<String, f64> {
        exposition::parse(std::str::from_utf8(&self.get("/metrics").body).unwrap())
    }

    /// Waits until the source fails for this reason.
    #[track_caller]
    pub(crate) fn fails(&self, reason: &str) -> Value {
        until(reason, || {
            let failure = self.json("/readyz")["source"]["failure"].clone();
            (failure["reason"] == reason).then_some(failure)
        })
    }

    /// Waits until the source does not fail.
    #[track_caller]
    pub(crate) fn heals(&self) {
        until("healing", || self.json("/readyz")["source"]["failure"].is_null().then_some(()));
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        until("the gateway's end", || self.child.try_wait().unwrap())
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
