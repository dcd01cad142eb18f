//! What the flags resolve to: checked once, then only read.

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use crate::propose::config::ProposeConfig;

/// What every role needs that reads an estate and judges its Rollouts.
#[derive(Clone, Debug)]
pub struct CoreConfig {
    /// Where the head comes from.
    pub source: SourceConfig,
    /// The operator's listener.
    pub admin: AdminConfig,
    /// How Rollouts are judged, and what outlives the process.
    pub evidence: EvidenceConfig,
    /// Worker threads; `None` is one per core.
    pub workers: Option<NonZeroUsize>,
    /// How verdicts become branches; `None` proposes nothing.
    pub propose: Option<ProposeConfig>,
}

/// Everything `gateway serve` needs (serving.md decisions 1, 9, 10, 14, 15, 16).
#[derive(Clone, Debug)]
pub struct ServeConfig {
    /// Source, operators, evidence.
    pub core: CoreConfig,
    /// Where collectors connect, both transports; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Limits and rates of links.
    pub links: LinkConfig,
    /// How the process ends.
    pub drain: DrainConfig,
    /// TLS for collectors; `None` is plain text.
    pub tls: Option<TlsConfig>,
    /// Bearer tokens for collectors; `None` lets everybody in that TLS lets in.
    pub token_file: Option<PathBuf>,
    /// Several replicas on one port (`SO_REUSEPORT`).
    pub reuse_port: bool,
    /// What this replica is called; with an uplink, as its certificate says.
    pub instance_label: Option<String>,
    /// Who gets what collectors report; `None`: nobody but this process.
    pub uplink: Option<DialConfig>,
}

/// Everything `gateway aggregate` needs.
#[derive(Clone, Debug)]
pub struct AggregateConfig {
    /// Source, operators, evidence.
    pub core: CoreConfig,
    /// Where replicas connect.
    pub uplink: GatherConfig,
}

/// A replica's end of the uplink (DESIGN.md, Uplink).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DialConfig {
    /// Each of them gets everything; never empty.
    pub aggregators: Vec<Remote>,
    /// What their certificate is for; `None`: the host that is dialled.
    pub name: Option<String>,
    /// What is shown, and who is believed.
    pub tls: UplinkTls,
}

/// An aggregator's end of the uplink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatherConfig {
    /// Where replicas connect, UDP; port 0 takes a free one.
    pub listen: SocketAddr,
    /// What is shown, and who is believed.
    pub tls: UplinkTls,
}

/// A host that is resolved again each time it is dialled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// DNS name or IP address, without brackets.
    pub host: Box<str>,
    /// UDP.
    pub port: u16,
}

impl std::fmt::Display for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// Paths of the PEM files of one end of the uplink, read again when they change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UplinkTls {
    /// Who signs the other end's certificate.
    pub ca: PathBuf,
    /// Certificate chain, leaf first.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

impl UplinkTls {
    /// All of them.
    pub fn files(&self) -> Vec<PathBuf> {
        vec![self.ca.clone(), self.cert.clone(), self.key.clone()]
    }
}

/// Where the served tree is read, and how often.
#[derive(Clone, Debug)]
pub struct SourceConfig {
    /// The one place.
    pub place: Place,
    /// Time between two looks at it; never zero.
    pub interval: Duration,
    /// Longest that one fetch may take before it is killed.
    pub timeout: Duration,
}

/// The one place a head comes from (serving.md decision 16).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A directory that holds an estate.
    Estate {
        /// Its root.
        dir: PathBuf,
    },
    /// A git remote.
    Repo {
        /// https, ssh or file URL, `host:path`, or an absolute path; never begins with `-`.
        url: String,
        /// Branch, tag or full ref; `None` is the remote's HEAD.
        reference: Option<String>,
        /// Folder of the estate inside the repository; empty is its root.
        path: String,
        /// Where the bare clone is kept; `None` is a temporary directory removed on exit.
        cache: Option<PathBuf>,
    },
    /// A file that `render snapshot` wrote.
    Snapshot {
        /// The file.
        file: PathBuf,
        /// Ed25519 public key that must have signed it.
        key: Option<PathBuf>,
    },
}

impl Place {
    /// `estate`, `repo` or `snapshot`: the `source` label of metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Estate { .. } => "estate",
            Self::Repo { .. } => "repo",
            Self::Snapshot { .. } => "snapshot",
        }
    }
}

/// Limits and rates of links (serving.md decisions 9 and 10). Every one has a row in
/// `docs/limits.md`.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkConfig {
    /// Offers per second that a head change may send.
    pub push_rate: NonZeroU32,
    /// New links per second.
    pub admission_rate: NonZeroU32,
    /// New links at once before the rate bites.
    pub admission_burst: NonZeroU32,
    /// Open connections, WebSocket and HTTP together.
    pub max_links: NonZeroUsize,
    /// Open connections, and sockets in their handshake; further ones wait in the kernel's queue.
    pub max_sockets: NonZeroUsize,
    /// Largest message, also after inflation, in bytes.
    pub max_message_bytes: usize,
    /// Bytes of all messages that are being received, in the whole process.
    pub max_bytes_in_flight: usize,
    /// From accept to the end of the upgrade, TLS included.
    pub handshake_deadline: Duration,
}

/// How the process ends (serving.md decision 14).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainConfig {
    /// Accepting goes on for this long after `/readyz` began to fail.
    pub delay: Duration,
    /// Links are closed evenly over this long.
    pub over: Duration,
}

/// Paths of the PEM files, read again when they change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsConfig {
    /// Certificate chain, leaf first.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Who signs client certificates; `None` asks for none.
    pub client_ca: Option<PathBuf>,
}

impl TlsConfig {
    /// All of them.
    pub fn files(&self) -> Vec<PathBuf> {
        let Self { cert, key, client_ca } = self;
        [Some(cert), Some(key), client_ca.as_ref()].into_iter().flatten().cloned().collect()
    }
}

/// The operator's listener (serving.md decision 15).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminConfig {
    /// Its address; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Holds the token that everything but health and readiness asks for; `None` only on loopback.
    pub token_file: Option<PathBuf>,
    /// `Host` values accepted beside loopback names and the listen address, without a port.
    pub hosts: Vec<String>,
}

/// Evidence of Rollouts (rollouts.md decisions 9, 18 and 19).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvidenceConfig {
    /// Where it outlives the process; `None`: it does not.
    pub store: Option<PathBuf>,
    /// Replicas that must report.
    pub expect_replicas: NonZeroU32,
    /// What the collectors of a replica that is gone get on top of `dark_after`.
    pub grace: Duration,
    /// When the collectors of a replica that vanished stop counting.
    pub forget: Duration,
}

impl Default for EvidenceConfig {
    /// The defaults of the flags.
    fn default() -> Self {
        Self {
            store: None,
            expect_replicas: EXPECT_REPLICAS,
            grace: EVIDENCE_GRACE,
            forget: FORGET_REPLICA,
        }
    }
}

impl LinkConfig {
    /// Keeps the sockets of collectors within `descriptors`, of which some stay free for operators,
    /// files and git, however many collectors come. Returns whether that allows fewer links than
    /// were asked for: those past it get 503 then, where they would wait in the kernel's queue.
    pub fn fit(&mut self, descriptors: u64) -> bool {
        let descriptors = usize::try_from(descriptors).unwrap_or(usize::MAX);
        let at_least_one = |count: usize| NonZeroUsize::new(count).unwrap_or(NonZeroUsize::MIN);
        let sockets = descriptors - DESCRIPTORS_KEPT.min(descriptors / 2);
        let links = at_least_one(sockets - REFUSALS_KEPT.min(sockets / 4));
        self.max_sockets = self.max_sockets.min(at_least_one(sockets));
        let fewer = links < self.max_links;
        self.max_links = self.max_links.min(links);
        fewer
    }
}

impl Default for LinkConfig {
    /// The defaults of the flags, for tests and benches.
    fn default() -> Self {
        Self {
            push_rate: PUSH_RATE,
            admission_rate: ADMISSION_RATE,
            admission_burst: ADMISSION_BURST,
            max_links: MAX_LINKS,
            max_sockets: NonZeroUsize::MAX,
            max_message_bytes: MAX_MESSAGE_BYTES,
            max_bytes_in_flight: MAX_BYTES_IN_FLIGHT,
            handshake_deadline: HANDSHAKE_DEADLINE,
        }
    }
}

/// serving.md decision 9.
pub const PUSH_RATE: NonZeroU32 = NonZeroU32::new(20_000).unwrap();
/// serving.md decision 10.
pub const ADMISSION_RATE: NonZeroU32 = NonZeroU32::new(5_000).unwrap();
/// serving.md decision 10.
pub const ADMISSION_BURST: NonZeroU32 = NonZeroU32::new(20_000).unwrap();
/// Beyond what one machine's descriptors usually allow, so that the flag is a choice and not a
/// surprise.
pub const MAX_LINKS: NonZeroUsize = NonZeroUsize::new(1_000_000).unwrap();
/// Descriptors that are not for collectors: listeners, operators, files, git.
const DESCRIPTORS_KEPT: usize = 64;
/// Sockets of collectors that cannot become links, so that somebody can be told 503.
const REFUSALS_KEPT: usize = 16;
/// What the OpAMP specification recommends (W4, H4).
pub const MAX_MESSAGE_BYTES: usize = 64 << 20;
/// Four messages of the largest size at once, or a quarter of a million full reports of 1 KiB.
pub const MAX_BYTES_IN_FLIGHT: usize = 256 << 20;
/// serving.md decision 10.
pub const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);

/// One process that judges what it serves.
pub const EXPECT_REPLICAS: NonZeroU32 = NonZeroU32::MIN;
/// rollouts.md decision 9.
pub const EVIDENCE_GRACE: Duration = Duration::from_secs(60);
/// rollouts.md decision 9.
pub const FORGET_REPLICA: Duration = Duration::from_secs(3_600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collectors_never_take_the_last_descriptors() {
        for (descriptors, links, sockets, fewer) in [
            (1 << 20, 1_000_000, (1 << 20) - 64, false),
            (20_000, 19_920, 19_936, true),
            (1_024, 944, 960, true),
            (64, 24, 32, true),
            (1, 1, 1, true),
            (0, 1, 1, true),
        ] {
            let mut config = LinkConfig::default();
            assert_eq!(config.fit(descriptors), fewer, "{descriptors}");
            assert_eq!((config.max_links.get(), config.max_sockets.get()), (links, sockets));
        }
        let mut config =
            LinkConfig { max_links: NonZeroUsize::new(100).unwrap(), ..LinkConfig::default() };
        assert!(!config.fit(1_024));
        assert_eq!(config.max_links.get(), 100);
    }
}
