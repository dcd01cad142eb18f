//! `gateway serve`: every flag, and how they become a [`ServeConfig`].

use std::net::{SocketAddr, ToSocketAddrs};
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, ValueEnum};

use super::value;
use crate::config::{self, AdminConfig, DrainConfig, EvidenceConfig, LinkConfig, Place};
use crate::config::{ServeConfig, SourceConfig, TlsConfig};
use crate::propose::config::{Author, ForgeConfig, ForgeKind, ProposeConfig};

/// Flags of `gateway serve`; each can also be set by its environment variable.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("source").args(["estate", "repo", "snapshot"]).required(true)))]
pub struct ServeArgs {
    /// Serve the rendered tree of this directory. It is read again when a file in it changes, and
    /// taken once two reads 200 ms apart are equal.
    #[arg(long, value_name = "DIR", env = "TIDEGATE_ESTATE", help_heading = SOURCE)]
    pub estate: Option<PathBuf>,

    /// Serve the rendered tree of this git repository (https, ssh or file URL, host:path, or an
    /// absolute path). Credentials are those that git itself finds; it never prompts.
    #[arg(long, value_name = "URL", env = "TIDEGATE_REPO", help_heading = SOURCE)]
    #[arg(allow_hyphen_values = true)]
    pub repo: Option<String>,

    /// Serve a file that 'render snapshot' wrote; refused when its group or others may write it.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_SNAPSHOT", help_heading = SOURCE)]
    pub snapshot: Option<PathBuf>,

    /// Branch, tag or full ref of --repo [default: the remote's HEAD].
    #[arg(long = "ref", value_name = "REF", env = "TIDEGATE_REF", help_heading = SOURCE)]
    #[arg(conflicts_with_all = ["estate", "snapshot"])]
    pub reference: Option<String>,

    /// Folder of the estate inside --repo [default: its root].
    #[arg(long, value_name = "FOLDER", env = "TIDEGATE_PATH", help_heading = SOURCE)]
    #[arg(conflicts_with_all = ["estate", "snapshot"])]
    pub path: Option<String>,

    /// Where --repo keeps its bare clone between runs. A clone of another remote in it is replaced
    /// [default: a temporary directory, removed on exit].
    #[arg(long, value_name = "DIR", env = "TIDEGATE_CACHE", help_heading = SOURCE)]
    #[arg(conflicts_with_all = ["estate", "snapshot"])]
    pub cache: Option<PathBuf>,

    /// Ed25519 public key (PEM) that must have signed --snapshot [default: signatures are not
    /// asked for].
    #[arg(long, value_name = "FILE", env = "TIDEGATE_SNAPSHOT_KEY", help_heading = SOURCE)]
    #[arg(conflicts_with_all = ["estate", "repo"])]
    pub snapshot_key: Option<PathBuf>,

    /// Time between two looks at the source, such as 30s or 1m30s [default: 30s for --repo, 2s for
    /// --estate and --snapshot].
    #[arg(long, value_name = "DURATION", env = "TIDEGATE_FETCH_INTERVAL", help_heading = SOURCE)]
    #[arg(value_parser = value::interval, allow_hyphen_values = true)]
    pub fetch_interval: Option<Duration>,

    /// Longest that one git command may take before it is killed; the head in force stays.
    #[arg(long, value_name = "DURATION", env = "TIDEGATE_FETCH_TIMEOUT", help_heading = SOURCE)]
    #[arg(value_parser = value::interval, allow_hyphen_values = true, default_value = "2m")]
    pub fetch_timeout: Duration,

    /// Address for collectors, WebSocket and HTTP; port 0 takes a free one. Anything but loopback
    /// needs TLS and a credential.
    #[arg(long, value_name = "ADDR", env = "TIDEGATE_LISTEN", help_heading = LINKS)]
    #[arg(default_value = "127.0.0.1:4320")]
    pub listen: String,

    /// Share the port of --listen with other replicas on this machine (SO_REUSEPORT).
    #[arg(long, env = "TIDEGATE_REUSE_PORT", help_heading = LINKS)]
    pub reuse_port: bool,

    /// Offers per second that a new head may send.
    #[arg(long, value_name = "N", env = "TIDEGATE_PUSH_RATE", help_heading = LINKS)]
    #[arg(default_value_t = config::PUSH_RATE)]
    pub push_rate: NonZeroU32,

    /// New links per second; past it, collectors get 503 and come back after 30 to 90 s.
    #[arg(long, value_name = "N", env = "TIDEGATE_ADMISSION_RATE", help_heading = LINKS)]
    #[arg(default_value_t = config::ADMISSION_RATE)]
    pub admission_rate: NonZeroU32,

    /// New links at once before --admission-rate bites.
    #[arg(long, value_name = "N", env = "TIDEGATE_ADMISSION_BURST", help_heading = LINKS)]
    #[arg(default_value_t = config::ADMISSION_BURST)]
    pub admission_burst: NonZeroU32,

    /// Open connections of collectors, as far as the limit of open files allows; past it, they get
    /// 503. Also the most HTTP sessions, up to
    /// 250,000; past it, the oldest is forgotten.
    #[arg(long, value_name = "N", env = "TIDEGATE_MAX_LINKS", help_heading = LINKS)]
    #[arg(default_value_t = config::MAX_LINKS)]
    pub max_links: NonZeroUsize,

    /// Largest message from a collector, also after inflation, 1KiB to 64MiB; past it, close 1009
    /// or 413.
    #[arg(long, value_name = "BYTES", env = "TIDEGATE_MAX_MESSAGE_BYTES", help_heading = LINKS)]
    #[arg(value_parser = value::bytes, default_value = "64MiB")]
    pub max_message_bytes: usize,

    /// Bytes of all messages that are being received, in the whole process; at least
    /// --max-message-bytes.
    #[arg(long, value_name = "BYTES", env = "TIDEGATE_MAX_BYTES_IN_FLIGHT", help_heading = LINKS)]
    #[arg(value_parser = value::bytes, default_value = "256MiB")]
    pub max_bytes_in_flight: usize,

    /// From accept to the end of the upgrade, TLS included; past it, the connection is closed.
    #[arg(long, value_name = "DURATION", env = "TIDEGATE_HANDSHAKE_DEADLINE", help_heading = LINKS)]
    #[arg(value_parser = value::interval, allow_hyphen_values = true, default_value = "10s")]
    pub handshake_deadline: Duration,

    /// After SIGTERM: go on accepting for this long, while balancers see /readyz fail.
    #[arg(long, value_name = "DURATION", env = "TIDEGATE_DRAIN_DELAY", help_heading = LINKS)]
    #[arg(value_parser = value::duration, allow_hyphen_values = true, default_value = "5s")]
    pub drain_delay: Duration,

    /// After that: close the links evenly over this long, then exit.
    #[arg(long, value_name = "DURATION", env = "TIDEGATE_DRAIN", help_heading = LINKS)]
    #[arg(value_parser = value::duration, allow_hyphen_values = true, default_value = "30s")]
    pub drain: Duration,

    /// Add 'Tidegate-Instance: LABEL/version/incarnation' to answers [default: no such header].
    #[arg(long, value_name = "LABEL", env = "TIDEGATE_INSTANCE_LABEL", help_heading = LINKS)]
    #[arg(value_parser = instance_label)]
    pub instance_label: Option<String>,

    /// Certificate chain for --listen, PEM, leaf first; read again when it changes.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_TLS_CERT", help_heading = SECURITY)]
    #[arg(requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,

    /// Private key of --tls-cert, PEM; read again when it changes.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_TLS_KEY", help_heading = SECURITY)]
    #[arg(requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,

    /// Certificate authorities, PEM: every collector must show a certificate that one of them
    /// signed.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_CLIENT_CA", help_heading = SECURITY)]
    #[arg(requires = "tls_cert")]
    pub client_ca: Option<PathBuf>,

    /// Bearer tokens, a line each: NAME SHA256HEX [attribute=value ...]; read again when it
    /// changes. Make one with 'gateway token new'. Every collector must send one of them.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_TOKEN_FILE", help_heading = SECURITY)]
    pub token_file: Option<PathBuf>,

    /// Listen on any address without TLS and without a credential. Whoever can reach it gets
    /// configurations, and can say that they fail.
    #[arg(long, env = "TIDEGATE_INSECURE", help_heading = SECURITY)]
    pub insecure: bool,

    /// Address for operators: health, metrics, API; port 0 takes a free one. Anything but loopback
    /// needs --admin-token-file.
    #[arg(long, value_name = "ADDR", env = "TIDEGATE_ADMIN", help_heading = ADMIN)]
    #[arg(default_value = "127.0.0.1:4321")]
    pub admin: String,

    /// Tokens for everything at --admin but /healthz and /readyz, one per line, sent as Bearer or
    /// as the password of Basic; read again when it changes.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_ADMIN_TOKEN_FILE", help_heading = ADMIN)]
    pub admin_token_file: Option<PathBuf>,

    /// Host names (without port) that requests to --admin may carry beside localhost and IP
    /// addresses; may be given several times or with commas.
    #[arg(long, value_name = "HOST", env = "TIDEGATE_ADMIN_HOST", help_heading = ADMIN)]
    #[arg(value_delimiter = ',')]
    pub admin_host: Vec<String>,

    /// Propose what verdicts say as branches of --repo: one commit each, for people to merge.
    #[arg(long, env = "TIDEGATE_PROPOSE", help_heading = PROPOSALS)]
    #[arg(requires_all = ["repo", "catalogue", "propose_as", "expect_replicas"])]
    pub propose: bool,

    /// Author and committer of these commits, 'Name <mail@example.com>'.
    #[arg(long, value_name = "AUTHOR", env = "TIDEGATE_PROPOSE_AS", help_heading = PROPOSALS)]
    #[arg(value_parser = Author::parse)]
    pub propose_as: Option<Author>,

    /// The Catalogue, a path from the root of --repo: what is proposed is rendered with it.
    #[arg(long, value_name = "PATH", env = "TIDEGATE_CATALOGUE", help_heading = PROPOSALS)]
    #[arg(conflicts_with_all = ["estate", "snapshot"])]
    pub catalogue: Option<String>,

    /// Open a pull request for each branch at this forge [default: the branch is all].
    #[arg(long, value_name = "FORGE", env = "TIDEGATE_FORGE", help_heading = PROPOSALS)]
    #[arg(value_enum, requires_all = ["propose", "forge_token_file"])]
    pub forge: Option<ForgeKind>,

    /// Where the forge is [default: the host of --repo].
    #[arg(long, value_name = "URL", env = "TIDEGATE_FORGE_URL", help_heading = PROPOSALS)]
    #[arg(requires = "forge")]
    pub forge_url: Option<String>,

    /// The repository at the forge [default: the path of --repo].
    #[arg(long, value_name = "OWNER/NAME", env = "TIDEGATE_FORGE_REPO", help_heading = PROPOSALS)]
    #[arg(requires = "forge")]
    pub forge_repo: Option<String>,

    /// The forge's token; read again at each use.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_FORGE_TOKEN_FILE", help_heading = PROPOSALS)]
    #[arg(requires = "forge")]
    pub forge_token_file: Option<PathBuf>,

    /// Keep failures, brakes and who took a candidate in this file over restarts [default: they die
    /// with the process].
    #[arg(long, value_name = "FILE", env = "TIDEGATE_STORE", help_heading = EVIDENCE)]
    pub store: Option<PathBuf>,

    /// Replicas that must report on a Rollout before a verdict is whole: the least number that run,
    /// such as an autoscaler's minimum [default: 1].
    #[arg(long, value_name = "N", env = "TIDEGATE_EXPECT_REPLICAS", help_heading = EVIDENCE)]
    pub expect_replicas: Option<NonZeroU32>,

    /// What the collectors of a drained or vanished replica get on top of dark_after before their
    /// silence counts; also how much longer evidence gathers after a start.
    #[arg(long, value_name = "DURATION", env = "TIDEGATE_EVIDENCE_GRACE", help_heading = EVIDENCE)]
    #[arg(value_parser = value::duration, allow_hyphen_values = true, default_value = "1m")]
    pub evidence_grace: Duration,

    /// After this long, the collectors of a replica that vanished and was not replaced count no
    /// more, so that nothing waits for ever.
    #[arg(long, value_name = "DURATION", env = "TIDEGATE_FORGET_REPLICA", help_heading = EVIDENCE)]
    #[arg(value_parser = value::interval, allow_hyphen_values = true, default_value = "1h")]
    pub forget_replica: Duration,

    /// Worker threads [default: one per core].
    #[arg(long, value_name = "N", env = "TIDEGATE_WORKERS", help_heading = PROCESS)]
    pub workers: Option<NonZeroUsize>,

    /// Form of the log on stderr.
    #[arg(long, value_name = "FORM", env = "TIDEGATE_LOG_FORMAT", help_heading = PROCESS)]
    #[arg(value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,

    /// What is logged: error, warn, info, debug or trace, or directives such as
    /// 'info,gateway::source=debug'.
    #[arg(long, value_name = "FILTER", env = "TIDEGATE_LOG", help_heading = PROCESS)]
    #[arg(default_value = "info")]
    pub log: String,
}

const SOURCE: &str = "Source (exactly one of --estate, --repo, --snapshot)";
const LINKS: &str = "Collectors";
const SECURITY: &str = "Who may connect";
const ADMIN: &str = "Operators";
const PROPOSALS: &str = "Proposals";
const EVIDENCE: &str = "Evidence";
const PROCESS: &str = "Process";

/// Form of the log on stderr.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One line of text each.
    Text,
    /// One JSON object each.
    Json,
}

/// Flags that were read, but cannot be served with.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A flag's value is outside what it may be: a usage error.
    #[error("{flag}: {why}")]
    Usage {
        /// The flag.
        flag: &'static str,
        /// What is wrong with its value.
        why: String,
    },
    /// An address that does not resolve.
    #[error(
        "cannot listen on {flag} '{text}': {why}; give an address such as 127.0.0.1:4320 or [::1]:4320"
    )]
    Address {
        /// The flag.
        flag: &'static str,
        /// Its value.
        text: String,
        /// Why.
        why: String,
    },
    /// Collectors could connect from elsewhere, and nothing would protect them.
    #[error(
        "refusing to listen on {listen}, which is not loopback, without {missing}. Either add {add}, or listen on 127.0.0.1, or say --insecure if something in front of the gateway does both"
    )]
    Open {
        /// The address.
        listen: SocketAddr,
        /// What is missing.
        missing: &'static str,
        /// The flags that would give it.
        add: &'static str,
    },
    /// Operators' data could be read from elsewhere.
    #[error(
        "refusing to listen on {admin} for operators, which is not loopback, without a token. Either add --admin-token-file FILE (any long random text, such as 'gateway token new' prints), or listen on 127.0.0.1"
    )]
    AdminOpen {
        /// The address.
        admin: SocketAddr,
    },
}

impl ConfigError {
    /// 2 for a usage error, 1 for what the machine or the policy refuses.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage { .. } => 2,
            Self::Address { .. } | Self::Open { .. } | Self::AdminOpen { .. } => 1,
        }
    }
}

impl ServeArgs {
    /// Checks everything that can be checked before anything is read or opened.
    ///
    /// # Errors
    ///
    /// The first flag that cannot be served with, and a way out.
    pub fn resolve(self) -> Result<ServeConfig, ConfigError> {
        let listen = address("--listen", &self.listen)?;
        let admin = address("--admin", &self.admin)?;
        let place = self.place()?;
        let interval = self.fetch_interval.unwrap_or(match place {
            Place::Repo { .. } => REPO_INTERVAL,
            Place::Estate { .. } | Place::Snapshot { .. } => FILES_INTERVAL,
        });
        self.check_sizes()?;
        self.check_openness(listen, admin)?;
        let propose = self.proposals()?;
        Ok(ServeConfig {
            listen,
            source: SourceConfig { place, interval, timeout: self.fetch_timeout },
            links: LinkConfig {
                push_rate: self.push_rate,
                admission_rate: self.admission_rate,
                admission_burst: self.admission_burst,
                max_links: self.max_links,
                max_sockets: NonZeroUsize::MAX,
                max_message_bytes: self.max_message_bytes,
                max_bytes_in_flight: self.max_bytes_in_flight,
                handshake_deadline: self.handshake_deadline,
            },
            drain: DrainConfig { delay: self.drain_delay, over: self.drain },
            tls: self.tls_cert.zip(self.tls_key).map(|(cert, key)| TlsConfig {
                cert,
                key,
                client_ca: self.client_ca,
            }),
            token_file: self.token_file,
            reuse_port: self.reuse_port,
            instance_label: self.instance_label,
            admin: AdminConfig {
                listen: admin,
                token_file: self.admin_token_file,
                hosts: self.admin_host,
            },
            evidence: EvidenceConfig {
                store: self.store,
                expect_replicas: self.expect_replicas.unwrap_or(config::EXPECT_REPLICAS),
                grace: self.evidence_grace,
                forget: self.forget_replica,
            },
            workers: self.workers,
            propose,
        })
    }

    /// rollouts.md, decisions 19, 20 and 23.
    fn proposals(&self) -> Result<Option<ProposeConfig>, ConfigError> {
        let (true, Some(author), Some(catalogue)) =
            (self.propose, &self.propose_as, &self.catalogue)
        else {
            return Ok(None);
        };
        let usage = |flag, why| ConfigError::Usage { flag, why };
        if self.expect_replicas.is_some_and(|expected| expected.get() > 1) {
            let why = "evidence is gathered in one process, so --propose takes 1".to_owned();
            return Err(usage("--expect-replicas", why));
        }
        let catalogue = crate::source::git::check_folder(catalogue)
            .ok()
            .filter(|path| !path.is_empty())
            .ok_or_else(|| {
                usage("--catalogue", format!("'{catalogue}' is not a file inside the repository"))
            })?;
        let forge = match (self.forge, &self.forge_token_file) {
            (Some(kind), Some(token_file)) => Some(
                ForgeConfig::resolve(
                    kind,
                    token_file.clone(),
                    self.forge_url.as_deref(),
                    self.forge_repo.as_deref(),
                    self.repo.as_deref().unwrap_or_default(),
                )
                .map_err(|(flag, why)| usage(flag, why))?,
            ),
            _ => None,
        };
        Ok(Some(ProposeConfig { author: author.clone(), catalogue, forge }))
    }

    fn place(&self) -> Result<Place, ConfigError> {
        if let Some(dir) = &self.estate {
            return Ok(Place::Estate { dir: dir.clone() });
        }
        if let Some(file) = &self.snapshot {
            return Ok(Place::Snapshot { file: file.clone(), key: self.snapshot_key.clone() });
        }
        let usage = |flag| move |why| ConfigError::Usage { flag, why };
        let url = self.repo.clone().unwrap_or_default();
        crate::source::git::check_url(&url).map_err(usage("--repo"))?;
        if let Some(reference) = &self.reference {
            crate::source::git::check_reference(reference).map_err(usage("--ref"))?;
        }
        let path = self.path.as_deref().unwrap_or_default();
        let path = crate::source::git::check_folder(path).map_err(usage("--path"))?;
        let (reference, cache) = (self.reference.clone(), self.cache.clone());
        Ok(Place::Repo { url, reference, path, cache })
    }

    fn check_sizes(&self) -> Result<(), ConfigError> {
        if !(1 << 10..=64 << 20).contains(&self.max_message_bytes) {
            let why = format!("{} is not within 1KiB and 64MiB", self.max_message_bytes);
            return Err(ConfigError::Usage { flag: "--max-message-bytes", why });
        }
        if self.max_bytes_in_flight < self.max_message_bytes {
            let (all, one) = (self.max_bytes_in_flight, self.max_message_bytes);
            let why =
                format!("{all} is less than one message may have (--max-message-bytes {one})");
            return Err(ConfigError::Usage { flag: "--max-bytes-in-flight", why });
        }
        Ok(())
    }

    /// serving.md decision 15.
    fn check_openness(&self, listen: SocketAddr, admin: SocketAddr) -> Result<(), ConfigError> {
        if !admin.ip().is_loopback() && self.admin_token_file.is_none() {
            return Err(ConfigError::AdminOpen { admin });
        }
        if listen.ip().is_loopback() || self.insecure {
            return Ok(());
        }
        let credential = self.token_file.is_some() || self.client_ca.is_some();
        let (missing, add) = match (self.tls_cert.is_some(), credential) {
            (true, true) => return Ok(()),
            (true, false) => ("a credential", "--token-file FILE or --client-ca FILE"),
            (false, true) => ("TLS", "--tls-cert FILE --tls-key FILE"),
            (false, false) => (
                "TLS and a credential",
                "--tls-cert FILE --tls-key FILE and one of --token-file FILE and --client-ca FILE",
            ),
        };
        Err(ConfigError::Open { listen, missing, add })
    }
}

/// serving.md 3.1.
const REPO_INTERVAL: Duration = Duration::from_secs(30);
/// A look at files that did not change costs a `stat` each.
const FILES_INTERVAL: Duration = Duration::from_secs(2);

fn address(flag: &'static str, text: &str) -> Result<SocketAddr, ConfigError> {
    let fail = |why: String| ConfigError::Address { flag, text: text.to_owned(), why };
    text.to_socket_addrs()
        .map_err(|error| fail(error.to_string()))?
        .next()
        .ok_or_else(|| fail("it resolves to nothing".to_owned()))
}

fn instance_label(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    if text.is_empty() || text.len() > 64 || !text.chars().all(fits) {
        return Err("must be 1 to 64 letters, digits, '-', '.' and '_'".to_owned());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn resolve(arguments: &[&str]) -> Result<ServeConfig, ConfigError> {
        let line = ["gateway", "serve", "--estate", "dir"].iter().chain(arguments);
        match Cli::try_parse_from(line).unwrap().command {
            Command::Serve(arguments) => arguments.resolve(),
            Command::Rollout(_) | Command::Token(_) => unreachable!("the line says serve"),
        }
    }

    #[test]
    fn the_defaults_are_those_of_the_types() {
        let config = resolve(&[]).unwrap();
        assert_eq!(config.links, LinkConfig::default());
        assert_eq!(config.listen, "127.0.0.1:4320".parse().unwrap());
        assert_eq!(config.admin.listen, "127.0.0.1:4321".parse().unwrap());
        assert_eq!(config.source.interval, Duration::from_secs(2));
        let drain = DrainConfig { delay: Duration::from_secs(5), over: Duration::from_secs(30) };
        assert_eq!(config.drain, drain);
        assert_eq!(config.evidence, EvidenceConfig::default());
    }

    #[test]
    fn proposals_take_a_remote_a_catalogue_an_author_and_one_replica() {
        let parse = |arguments: &[&str]| {
            let line = ["gateway", "serve"].iter().chain(arguments);
            let parsed = Cli::try_parse_from(line).map_err(|_| "parse".to_owned())?;
            let Command::Serve(arguments) = parsed.command else { unreachable!("it says serve") };
            arguments.resolve().map(|config| config.propose).map_err(|error| error.to_string())
        };
        let all = "--propose --repo https://github.com/a/b.git --catalogue ./c.json \
                   --propose-as X<x@y> --expect-replicas 1";
        let words: Vec<&str> = all.split_whitespace().collect();
        let config = parse(&words).unwrap().unwrap();
        assert_eq!((&*config.catalogue, &config.forge), ("c.json", &None));
        for missing in ["--repo", "--catalogue", "--propose-as", "--expect-replicas"] {
            let at = words.iter().position(|word| *word == missing).unwrap();
            let without = [&words[..at], &words[at + 2..]].concat();
            assert_eq!(parse(&without), Err("parse".to_owned()), "{missing}");
        }
        assert_eq!(parse(&words[1..]).unwrap(), None, "not asked for");
        let many = [&words[..words.len() - 1], &["2"]].concat();
        assert!(parse(&many).unwrap_err().starts_with("--expect-replicas: "));
        let with = |more: &[&'static str]| parse(&[&words[..], more].concat());
        let forge = with(&["--forge", "github", "--forge-token-file", "t"]).unwrap().unwrap().forge;
        assert_eq!(forge.unwrap().api, "https://api.github.com");
        assert!(with(&["--forge", "github"]).is_err(), "no token");
        assert!(with(&["--forge-repo", "a/b"]).is_err(), "no forge");
        let plain = ["--forge", "gitea", "--forge-token-file", "t", "--forge-url", "http://h"];
        assert!(with(&plain).unwrap_err().starts_with("--forge-url: "));
    }

    #[test]
    fn openness_takes_tls_and_a_credential_or_a_word() {
        let open = ["--listen", "0.0.0.0:4320"];
        let tls = ["--tls-cert", "c", "--tls-key", "k"];
        let check = |more: &[&[&str]]| resolve(&[&open[..], &more.concat()].concat()).is_ok();
        assert!(!check(&[]));
        assert!(!check(&[&tls]));
        assert!(!check(&[&["--token-file", "t"]]));
        assert!(check(&[&tls, &["--token-file", "t"]]));
        assert!(check(&[&tls, &["--client-ca", "ca"]]));
        assert!(check(&[&["--insecure"]]));
        assert!(resolve(&["--listen", "[::1]:4320"]).is_ok());
        assert!(resolve(&["--admin", "0.0.0.0:1", "--insecure"]).is_err());
        assert!(resolve(&["--admin", "0.0.0.0:1", "--admin-token-file", "t"]).is_ok());
    }
}
