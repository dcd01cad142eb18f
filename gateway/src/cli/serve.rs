//! `gateway serve`: every flag, and how they become a [`ServeConfig`].

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::flags::admin::AdminArgs;
use super::flags::evidence::EvidenceArgs;
use super::flags::process::ProcessArgs;
use super::flags::propose::ProposeArgs;
use super::flags::source::SourceArgs;
use super::flags::uplink::{DialArgs, UplinkTlsArgs};
use super::flags::{ConfigError, address, instance_label};
use super::value;
use crate::config::{self, CoreConfig, DrainConfig, LinkConfig, ServeConfig, TlsConfig};

/// Flags of `gateway serve`; each can also be set by its environment variable.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Where the head comes from.
    #[command(flatten)]
    pub source: SourceArgs,

    /// Address for collectors, WebSocket and HTTP; port 0 takes a free one. Anything but loopback
    /// needs TLS and a credential.
    #[arg(long, value_name = "ADDR", env = "TIDEGATE_LISTEN", help_heading = LINKS)]
    #[arg(default_value = "127.0.0.1:4320")]
    pub listen: String,

    /// Share the port of --listen with other replicas on this machine (SO_REUSEPORT). Set
    /// net.ipv4.tcp_migrate_req to 1, so that no handshake is reset when one of them ends.
    #[arg(long, env = "TIDEGATE_REUSE_PORT", help_heading = LINKS)]
    pub reuse_port: bool,

    /// Offers per second that a new head may send; a third of it while collectors come in.
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

    /// What this replica is called: in the header 'Tidegate-Instance: LABEL/version/incarnation' of
    /// its answers, in evidence, and in its certificate for the uplink [default: no such header].
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

    /// The operators' listener.
    #[command(flatten)]
    pub admin: AdminArgs,

    /// How verdicts become branches.
    #[command(flatten)]
    pub propose: ProposeArgs,

    /// How Rollouts are judged.
    #[command(flatten)]
    pub evidence: EvidenceArgs,

    /// Who judges them together with others' evidence.
    #[command(flatten)]
    pub uplink: DialArgs,

    /// Certificates of the uplink.
    #[command(flatten)]
    pub uplink_tls: UplinkTlsArgs,

    /// Threads and log.
    #[command(flatten)]
    pub process: ProcessArgs,
}

const LINKS: &str = "Collectors";
const SECURITY: &str = "Who may connect";

impl ServeArgs {
    /// Checks everything that can be checked before anything is read or opened.
    ///
    /// # Errors
    ///
    /// The first flag that cannot be served with, and a way out.
    pub fn resolve(self) -> Result<ServeConfig, ConfigError> {
        let listen = address("--listen", &self.listen)?;
        let admin = self.admin.resolve()?;
        self.check_sizes()?;
        self.check_openness(listen)?;
        self.check_judge()?;
        let propose = self.propose.resolve(&self.source)?;
        Ok(ServeConfig {
            core: CoreConfig {
                source: self.source.resolve()?,
                admin,
                evidence: self.evidence.resolve(),
                workers: self.process.workers,
                propose,
            },
            listen,
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
            uplink: self.uplink.resolve(self.uplink_tls)?,
        })
    }

    /// Who judges Rollouts has all of the evidence, and keeps it (rollouts.md, decisions 18 and 19).
    fn check_judge(&self) -> Result<(), ConfigError> {
        let refused = |flag, why: &str| Err(ConfigError::Usage { flag, why: why.to_owned() });
        if !self.uplink.uplink.is_empty() {
            if self.evidence.store.is_some() {
                return refused(
                    "--store",
                    "a replica with --uplink keeps nothing: give the file to 'gateway aggregate'",
                );
            }
            if self.propose.propose {
                return refused(
                    "--propose",
                    "a replica with --uplink knows its own collectors only: give it to 'gateway \
                     aggregate'",
                );
            }
        } else if self.propose.propose
            && self.evidence.expect_replicas.is_some_and(|expected| expected.get() > 1)
        {
            return refused(
                "--expect-replicas",
                "without an uplink this gateway knows its own collectors only, so --propose takes \
                 1; with more replicas, 'gateway aggregate' gathers their evidence and proposes",
            );
        }
        Ok(())
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
    fn check_openness(&self, listen: SocketAddr) -> Result<(), ConfigError> {
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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn resolve(arguments: &[&str]) -> Result<ServeConfig, ConfigError> {
        let line = ["gateway", "serve", "--estate", "dir"].iter().chain(arguments);
        match Cli::try_parse_from(line).unwrap().command {
            Command::Serve(arguments) => arguments.resolve(),
            _ => unreachable!("the line says serve"),
        }
    }

    #[test]
    fn the_defaults_are_those_of_the_types() {
        let config = resolve(&[]).unwrap();
        assert_eq!(config.links, LinkConfig::default());
        assert_eq!(config.listen, "127.0.0.1:4320".parse().unwrap());
        assert_eq!(config.core.admin.listen, "127.0.0.1:4321".parse().unwrap());
        assert_eq!(config.core.source.interval, Duration::from_secs(2));
        let drain = DrainConfig { delay: Duration::from_secs(5), over: Duration::from_secs(30) };
        assert_eq!(config.drain, drain);
        assert_eq!(config.core.evidence, config::EvidenceConfig::default());
        assert_eq!(config.uplink, None);
    }

    #[test]
    fn proposals_take_a_remote_a_catalogue_an_author_and_one_replica() {
        let parse = |arguments: &[&str]| {
            let line = ["gateway", "serve"].iter().chain(arguments);
            let parsed = Cli::try_parse_from(line).map_err(|_| "parse".to_owned())?;
            let Command::Serve(arguments) = parsed.command else { unreachable!("it says serve") };
            arguments.resolve().map(|config| config.core.propose).map_err(|error| error.to_string())
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

    #[test]
    fn a_replica_with_an_uplink_leaves_judging_to_the_aggregator() {
        let uplink = "--uplink a.example:4322,b.example:4322 --uplink-ca ca --uplink-cert c \
                      --uplink-key k --instance-label edge-1";
        let words: Vec<&str> = uplink.split_whitespace().collect();
        let parse = |arguments: &[&str]| {
            let line = ["gateway", "serve", "--repo", "/estate.git"].iter().chain(arguments);
            let parsed = Cli::try_parse_from(line).map_err(|error| error.to_string())?;
            let Command::Serve(arguments) = parsed.command else { unreachable!("it says serve") };
            arguments.resolve().map_err(|error| error.to_string())
        };
        let config = parse(&words).unwrap().uplink.unwrap();
        let shown: Vec<String> = config.aggregators.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["a.example:4322", "b.example:4322"]);
        for missing in ["--uplink-ca", "--uplink-cert", "--uplink-key", "--instance-label"] {
            let at = words.iter().position(|word| *word == missing).unwrap();
            let error = parse(&[&words[..at], &words[at + 2..]].concat()).unwrap_err();
            assert!(error.contains(missing), "{error}");
        }
        let without = parse(&words[2..]).unwrap_err();
        assert!(without.starts_with("--uplink-ca: is of no use without --uplink"), "{without}");
        let with = |more: &[&'static str]| parse(&[&words[..], more].concat());
        let kept = with(&["--store", "s"]).unwrap_err();
        assert!(kept.starts_with("--store: a replica with --uplink keeps nothing"), "{kept}");
        let propose = ["--propose", "--catalogue", "c", "--propose-as", "X <x@y>"];
        let proposed = with(&[&propose[..], &["--expect-replicas", "1"]].concat()).unwrap_err();
        assert!(proposed.starts_with("--propose: a replica with --uplink"), "{proposed}");
        assert!(with(&["--expect-replicas", "3"]).is_ok(), "what it shows says what is missing");
        assert!(with(&["--uplink-name", "aggregator"]).unwrap().uplink.unwrap().name.is_some());
        assert!(with(&["--uplink", "nowhere"]).is_err());
    }
}
