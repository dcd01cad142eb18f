//! Whether this machine can carry a run, and what to set where it cannot. Nothing is ever changed.
//!
//! [`Host::read`] looks, [`examine`] judges: pure, so that it can be asked about any machine. How fast
//! the machine is ([`Diagnosis::speed`]) is told and judges nothing.

mod host;
mod text;

use serde::Serialize;

use crate::floor::Speed;
use crate::scale::options::LINKS_MAX;

pub use host::Host;

/// Descriptors that a process needs beside its links.
const SPARE: u64 = 100;
/// Bytes of the kernel for both ends of an idle loopback link, measured on Linux 6.18, and what the
/// two processes keep of it.
const LINK_BYTES: u64 = 8_300 + 900 + 700;
/// What a gateway or a worker needs before its first link.
const PROCESS_BYTES: u64 = 24 << 20;
/// What the rest of the machine should be left.
const SPARE_BYTES: u64 = 1 << 30;
/// Bytes that a pushed artefact holds in the kernel until it is read.
const UNREAD_BYTES: u64 = 4_096;
/// A page of `tcp_mem`.
const PAGE: u64 = 4_096;
/// Links that arrive at one listener before it accepts the first of them.
const BACKLOG: u64 = 1_024;
/// Ports that one source address needs for its share of a worker's links to one gateway, with as many
/// again so that a free one is found quickly.
const SOURCES: u64 = 8;

/// One limit of the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What the kernel calls it.
    pub name: &'static str,
    /// What is in force; absent where it could not be read.
    pub value: Option<u64>,
    /// The least that the run needs.
    pub needed: u64,
    /// Of both.
    pub unit: &'static str,
    /// How it stands.
    pub state: State,
    /// What it is for.
    pub why: String,
    /// What to do about it; empty where nothing has to be done.
    pub remedy: String,
}

/// How a limit stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Enough.
    Fits,
    /// The run works, but more slowly or with less room than it could.
    Tight,
    /// The run cannot work.
    TooSmall,
    /// It could not be read: not a Linux, or hidden in a container.
    Unknown,
}

/// What the doctor says.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Diagnosis {
    /// The run fits.
    pub fits: bool,
    /// For that many collectors.
    pub collectors: u32,
    /// Worker processes that the limit of open files asks for.
    pub workers: u64,
    /// And gateways.
    pub replicas: u64,
    /// Every limit.
    pub findings: Vec<Finding>,
    /// How fast it is, where somebody has measured that: how long a run takes, not whether it fits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed: Option<Speed>,
}

/// Judges whether a host can carry that many collectors and the gateways that serve them.
pub fn examine(host: &Host, collectors: u32) -> Diagnosis {
    let links = u64::from(collectors);
    let room = host.nofile_hard.map_or(LINKS_MAX, |hard| hard.saturating_sub(SPARE)).min(LINKS_MAX);
    // With fewer descriptors than that, processes are more of a burden than links.
    let processes = links.div_ceil(room.max(1)).max(1);
    let least_nofile = (links.min(1_000) + SPARE).max(links.div_ceil(1_000) + SPARE);
    let descriptors = 2 * links + 2 * processes * SPARE;
    let per_source = links.div_ceil(processes * SOURCES).max(1);
    let unread = links * UNREAD_BYTES / PAGE;
    let memory = links * LINK_BYTES + 2 * processes * PROCESS_BYTES + SPARE_BYTES;
    let hard = host.nofile_hard;
    let mut findings = vec![
        Finding {
            name: "nofile (hard limit)",
            value: hard,
            needed: least_nofile,
            unit: "files",
            state: at_least(hard, least_nofile, State::TooSmall),
            why: format!(
                "a link is an open file at both ends: {processes} workers and {processes} gateways with up to {room} links each"
            ),
            remedy: format!(
                "ulimit -Hn {n}, or LimitNOFILE={n} in the unit, or nofile in /etc/security/limits.conf; the soft limit is raised by the processes themselves",
                n = 20_000.max(least_nofile)
            ),
        },
        finding(
            "fs.nr_open",
            host.nr_open,
            least_nofile.max(hard.unwrap_or(0).min(LINKS_MAX + SPARE)),
            "files",
            State::TooSmall,
            "the most that a limit of open files may be".to_owned(),
        ),
        finding(
            "fs.file-max",
            host.file_max,
            descriptors,
            "files",
            State::TooSmall,
            "open files of all processes together, both ends of each link".to_owned(),
        ),
        finding(
            "net.core.somaxconn",
            host.somaxconn,
            BACKLOG.min(links),
            "links",
            State::Tight,
            "links that the kernel has accepted and a gateway has not yet; past it, they are answered with silence and tried again after 1, 3, 7 s".to_owned(),
        ),
        finding(
            "net.ipv4.tcp_max_syn_backlog",
            host.tcp_max_syn_backlog,
            BACKLOG.min(links),
            "handshakes",
            State::Tight,
            "handshakes under way at a listener; past it, SYN cookies take over, which is no harm".to_owned(),
        ),
        Finding {
            name: "net.ipv4.ip_local_port_range",
            value: host.ports(),
            needed: 2 * per_source,
            unit: "ports",
            state: at_least(host.ports(), 2 * per_source, State::TooSmall),
            why: format!(
                "each worker connects from {SOURCES} addresses of its own in 127.0.0.0/8: {per_source} links each, and twice as many ports so that a free one is found quickly"
            ),
            remedy: "sysctl -w net.ipv4.ip_local_port_range=\"1024 65535\"".to_owned(),
        },
        Finding {
            name: "net.ipv4.tcp_mem (third value)",
            value: host.tcp_mem.map(|pages| pages[2]),
            needed: unread,
            unit: "pages",
            state: at_least(host.tcp_mem.map(|pages| pages[2]), unread, State::Tight),
            why: "what all sockets may hold that is not read yet: a push of 4 kB to every link, read by nobody for a moment. Idle links hold nothing".to_owned(),
            remedy: format!("sysctl -w net.ipv4.tcp_mem=\"{} {} {}\"", unread / 2, unread * 3 / 4, unread),
        },
        Finding {
            name: "processors",
            value: Some(host.processors),
            needed: 2,
            unit: "",
            state: at_least(Some(host.processors), 2, State::Tight),
            why: "loadgen and the gateways share them: with one, each waits for the other".to_owned(),
            remedy: "run the gateways elsewhere and name them with --endpoint".to_owned(),
        },
        Finding {
            name: "memory (available)",
            value: host.memory_available.map(mebibytes),
            needed: mebibytes(memory),
            unit: "MiB",
            state: at_least(host.memory_available, memory, State::TooSmall),
            why: format!(
                "{LINK_BYTES} bytes a link, most of them the kernel's for the sockets of both ends; {} MiB a process; 1 GiB for everything else",
                PROCESS_BYTES >> 20
            ),
            remedy: "free some, or run fewer collectors".to_owned(),
        },
    ];
    for finding in &mut findings {
        if matches!(finding.state, State::Fits | State::Unknown) {
            finding.remedy.clear();
        }
    }
    let fits = findings.iter().all(|finding| finding.state != State::TooSmall);
    Diagnosis { fits, collectors, workers: processes, replicas: processes, findings, speed: None }
}

/// A limit that `sysctl` sets by its name.
fn finding(
    name: &'static str,
    value: Option<u64>,
    needed: u64,
    unit: &'static str,
    below: State,
    why: String,
) -> Finding {
    let state = at_least(value, needed, below);
    Finding { name, value, needed, unit, state, why, remedy: format!("sysctl -w {name}={needed}") }
}

fn at_least(value: Option<u64>, needed: u64, below: State) -> State {
    match value {
        None => State::Unknown,
        Some(value) if value >= needed => State::Fits,
        Some(_) => below,
    }
}

fn mebibytes(bytes: u64) -> u64 {
    bytes >> 20
}

#[cfg(test)]
mod tests;
