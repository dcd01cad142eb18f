//! `gateway aggregate`: every flag, and how they become an [`AggregateConfig`].

use clap::Args;

use super::flags::ConfigError;
use super::flags::admin::AdminArgs;
use super::flags::evidence::EvidenceArgs;
use super::flags::process::ProcessArgs;
use super::flags::propose::ProposeArgs;
use super::flags::source::SourceArgs;
use super::flags::uplink::{GatherArgs, UplinkTlsArgs};
use crate::config::{AggregateConfig, CoreConfig};

/// Flags of `gateway aggregate`; each can also be set by its environment variable.
#[derive(Debug, Args)]
pub struct AggregateArgs {
    /// Where the head comes from.
    #[command(flatten)]
    pub source: SourceArgs,

    /// Where replicas connect.
    #[command(flatten)]
    pub uplink: GatherArgs,

    /// Certificates of the uplink.
    #[command(flatten)]
    pub uplink_tls: UplinkTlsArgs,

    /// The operators' listener.
    #[command(flatten)]
    pub admin: AdminArgs,

    /// How verdicts become branches.
    #[command(flatten)]
    pub propose: ProposeArgs,

    /// How Rollouts are judged.
    #[command(flatten)]
    pub evidence: EvidenceArgs,

    /// Threads and log.
    #[command(flatten)]
    pub process: ProcessArgs,
}

impl AggregateArgs {
    /// Checks everything that can be checked before anything is read or opened.
    ///
    /// # Errors
    ///
    /// The first flag that nothing can be gathered with, and a way out.
    pub fn resolve(self) -> Result<AggregateConfig, ConfigError> {
        if self.evidence.expect_replicas.is_none() {
            let why = "missing: the least number of replicas that run, such as an autoscaler's \
                       minimum; with fewer reporting, every verdict is inconclusive"
                .to_owned();
            return Err(ConfigError::Usage { flag: "--expect-replicas", why });
        }
        let propose = self.propose.resolve(&self.source)?;
        Ok(AggregateConfig {
            uplink: self.uplink.resolve(self.uplink_tls)?,
            core: CoreConfig {
                source: self.source.resolve()?,
                admin: self.admin.resolve()?,
                evidence: self.evidence.resolve(),
                workers: self.process.workers,
                propose,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn resolve(arguments: &[&str]) -> Result<AggregateConfig, String> {
        let line = ["gateway", "aggregate", "--repo", "/estate.git"].iter().chain(arguments);
        let parsed = Cli::try_parse_from(line).map_err(|error| error.to_string())?;
        let Command::Aggregate(arguments) = parsed.command else { unreachable!("it says so") };
        arguments.resolve().map_err(|error| error.to_string())
    }

    const TLS: [&str; 6] = ["--uplink-ca", "a", "--uplink-cert", "c", "--uplink-key", "k"];

    fn with(more: &[&str]) -> Result<AggregateConfig, String> {
        resolve(&[&TLS[..], more].concat())
    }

    #[test]
    fn it_wants_certificates_and_the_number_of_replicas() {
        let config = with(&["--expect-replicas", "3", "--store", "s"]).unwrap();
        assert_eq!(config.uplink.listen, "127.0.0.1:4322".parse().unwrap());
        assert_eq!(config.core.evidence.expect_replicas.get(), 3);
        assert!(with(&[]).unwrap_err().starts_with("--expect-replicas: missing"));
        for flag in ["--uplink-ca", "--uplink-cert", "--uplink-key"] {
            let at = TLS.iter().position(|word| *word == flag).unwrap();
            let without = [&TLS[..at], &TLS[at + 2..], &["--expect-replicas", "1"]].concat();
            let error = resolve(&without).unwrap_err();
            assert!(error.starts_with(&format!("{flag}: missing")), "{error}");
            assert!(error.contains("gateway certs init"), "{error}");
        }
    }

    #[test]
    fn it_may_propose_for_many_replicas_and_listen_anywhere_as_the_uplink_is_never_open() {
        let propose = ["--propose", "--catalogue", "c.json", "--propose-as", "X <x@y>"];
        let many = [&propose[..], &["--expect-replicas", "8"]].concat();
        assert!(with(&many).unwrap().core.propose.is_some());
        assert!(with(&["--expect-replicas", "1", "--listen-uplink", "0.0.0.0:0"]).is_ok());
        let open = with(&["--expect-replicas", "1", "--admin", "0.0.0.0:0"]).unwrap_err();
        assert!(open.contains("--admin-token-file"), "{open}");
        assert!(with(&["--expect-replicas", "1", "--listen", "127.0.0.1:0"]).is_err(), "no links");
    }
}
