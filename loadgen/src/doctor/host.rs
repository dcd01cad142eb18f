//! What the kernel says of its limits.

use std::fs;
use std::path::Path;

use rustix::process::{Resource, getrlimit};

use crate::host::{field_bytes, processors};

/// The limits of a machine. What could not be read is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// Hard limit of open files of this process; `None` is none at all.
    pub nofile_hard: Option<u64>,
    /// `fs.nr_open`
    pub nr_open: Option<u64>,
    /// `fs.file-max`
    pub file_max: Option<u64>,
    /// `net.core.somaxconn`
    pub somaxconn: Option<u64>,
    /// `net.ipv4.tcp_max_syn_backlog`
    pub tcp_max_syn_backlog: Option<u64>,
    /// `net.ipv4.ip_local_port_range`, both ends included.
    pub port_range: Option<[u64; 2]>,
    /// `net.ipv4.tcp_mem`, in pages.
    pub tcp_mem: Option<[u64; 3]>,
    /// How many this process may use at once.
    pub processors: u64,
    /// In bytes.
    pub memory_available: Option<u64>,
}

impl Host {
    /// The machine that this runs on.
    pub fn read() -> Self {
        Self {
            nofile_hard: getrlimit(Resource::Nofile).maximum,
            processors: processors() as u64,
            ..Self::read_from(Path::new("/proc"))
        }
    }

    /// What a `/proc` says; limits of this process and its processors are not in it.
    pub fn read_from(proc: &Path) -> Self {
        let text = |path: &str| fs::read_to_string(proc.join(path)).unwrap_or_default();
        let one = |path: &str| numbers::<1>(&text(path)).map(|[value]| value);
        Self {
            nofile_hard: None,
            nr_open: one("sys/fs/nr_open"),
            file_max: one("sys/fs/file-max"),
            somaxconn: one("sys/net/core/somaxconn"),
            tcp_max_syn_backlog: one("sys/net/ipv4/tcp_max_syn_backlog"),
            port_range: numbers(&text("sys/net/ipv4/ip_local_port_range")),
            tcp_mem: numbers(&text("sys/net/ipv4/tcp_mem")),
            processors: 0,
            memory_available: field_bytes(&text("meminfo"), "MemAvailable"),
        }
    }

    /// How many ports a connect may take.
    pub fn ports(&self) -> Option<u64> {
        self.port_range.map(|[first, last]| (last + 1).saturating_sub(first))
    }
}

/// Exactly that many numbers with blanks between them.
fn numbers<const N: usize>(text: &str) -> Option<[u64; N]> {
    let values: Option<Vec<u64>> = text.split_whitespace().map(|word| word.parse().ok()).collect();
    values?.try_into().ok()
}
