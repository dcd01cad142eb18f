//! Both ends of the uplink: who dials whom, and the certificates that both show.

use std::path::PathBuf;

use clap::Args;
use rustls_pki_types::ServerName;

use super::{ConfigError, address};
use crate::config::{DialConfig, GatherConfig, Remote, UplinkTls};
use crate::uplink::AGGREGATORS_MAX;

const HEADING: &str = "Uplink";

/// Flags of a replica.
#[derive(Debug, Args)]
pub struct DialArgs {
    /// Send what collectors under a Rollout report to these aggregators ('gateway aggregate'); may
    /// be given several times or with commas. Needs --instance-label and the other --uplink flags
    /// [default: this gateway judges Rollouts alone].
    #[arg(long, value_name = "HOST:PORT", env = "TIDEGATE_UPLINK", help_heading = HEADING)]
    #[arg(value_delimiter = ',', value_parser = remote)]
    #[arg(requires_all = ["uplink_ca", "uplink_cert", "uplink_key", "instance_label"])]
    pub uplink: Vec<Remote>,

    /// Name that the aggregators' certificate is for [default: the host in --uplink].
    #[arg(long, value_name = "NAME", env = "TIDEGATE_UPLINK_NAME", help_heading = HEADING)]
    #[arg(requires = "uplink", value_parser = server_name)]
    pub uplink_name: Option<String>,
}

/// Flags of an aggregator.
#[derive(Debug, Args)]
pub struct GatherArgs {
    /// Address for replicas (UDP); port 0 takes a free one. Always encrypted, and every replica
    /// must show a certificate.
    #[arg(long, value_name = "ADDR", env = "TIDEGATE_LISTEN_UPLINK", help_heading = HEADING)]
    #[arg(default_value = "127.0.0.1:4322")]
    pub listen_uplink: String,
}

/// Flags of both.
#[derive(Debug, Args)]
pub struct UplinkTlsArgs {
    /// Certificate authorities, PEM, that the other end's certificate must be signed by; for the
    /// uplink alone, as who is signed by them speaks for a replica.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_UPLINK_CA", help_heading = HEADING)]
    pub uplink_ca: Option<PathBuf>,

    /// Certificate chain that is shown on the uplink, PEM, leaf first; read again when it changes.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_UPLINK_CERT", help_heading = HEADING)]
    pub uplink_cert: Option<PathBuf>,

    /// Private key of --uplink-cert, PEM; read again when it changes.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_UPLINK_KEY", help_heading = HEADING)]
    pub uplink_key: Option<PathBuf>,
}

impl UplinkTlsArgs {
    fn resolve(self) -> Result<UplinkTls, ConfigError> {
        let missing = |flag| {
            let why = "missing: both ends of an uplink show a certificate, and there is no plain \
                       text; 'gateway certs init' makes some for trying it out"
                .to_owned();
            ConfigError::Usage { flag, why }
        };
        Ok(UplinkTls {
            ca: self.uplink_ca.ok_or_else(|| missing("--uplink-ca"))?,
            cert: self.uplink_cert.ok_or_else(|| missing("--uplink-cert"))?,
            key: self.uplink_key.ok_or_else(|| missing("--uplink-key"))?,
        })
    }

    fn given(&self) -> Option<&'static str> {
        let Self { uplink_ca, uplink_cert, uplink_key } = self;
        let flags = ["--uplink-ca", "--uplink-cert", "--uplink-key"];
        let given = flags.into_iter().zip([uplink_ca, uplink_cert, uplink_key]);
        given.into_iter().find_map(|(flag, file)| file.as_ref().map(|_| flag))
    }
}

impl DialArgs {
    /// `None` without `--uplink`.
    ///
    /// # Errors
    ///
    /// Files of an uplink that is not there, or none for one that is.
    pub fn resolve(self, tls: UplinkTlsArgs) -> Result<Option<DialConfig>, ConfigError> {
        if self.uplink.is_empty() {
            return match tls.given() {
                None => Ok(None),
                Some(flag) => {
                    let why = "is of no use without --uplink HOST:PORT".to_owned();
                    Err(ConfigError::Usage { flag, why })
                }
            };
        }
        let mut aggregators: Vec<Remote> = Vec::new();
        for remote in self.uplink {
            if !aggregators.contains(&remote) {
                aggregators.push(remote);
            }
        }
        if aggregators.len() > AGGREGATORS_MAX {
            let why = format!("at most {AGGREGATORS_MAX} aggregators");
            return Err(ConfigError::Usage { flag: "--uplink", why });
        }
        Ok(Some(DialConfig { aggregators, name: self.uplink_name, tls: tls.resolve()? }))
    }
}

impl GatherArgs {
    /// # Errors
    ///
    /// An address that does not resolve, or a file that is missing.
    pub fn resolve(self, tls: UplinkTlsArgs) -> Result<GatherConfig, ConfigError> {
        let tls = tls.resolve()?;
        Ok(GatherConfig { listen: address("--listen-uplink", &self.listen_uplink)?, tls })
    }
}

/// `host:port`, `address:port` or `[address]:port`.
fn remote(text: &str) -> Result<Remote, String> {
    let wanted =
        || format!("'{text}' is not HOST:PORT, such as aggregator.example.com:4322 or [::1]:4322");
    let (host, port) = text.rsplit_once(':').ok_or_else(wanted)?;
    let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let host = bracketed.unwrap_or(host);
    let port = port.parse().ok().filter(|port| *port != 0).ok_or_else(wanted)?;
    let name = ServerName::try_from(host).map_err(|_| wanted())?;
    // An IPv6 address without its brackets would lose its last group to the port.
    let ipv6 = matches!(name, ServerName::IpAddress(rustls_pki_types::IpAddr::V6(_)));
    if ipv6 != bracketed.is_some() {
        return Err(wanted());
    }
    Ok(Remote { host: host.into(), port })
}

fn server_name(text: &str) -> Result<String, String> {
    ServerName::try_from(text)
        .map(|_| text.to_owned())
        .map_err(|_| format!("'{text}' is neither a DNS name nor an IP address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_aggregator_is_a_host_and_a_port() {
        for (text, host, port) in [
            ("aggregator:4322", "aggregator", 4_322),
            ("a.example.com:1", "a.example.com", 1),
            ("127.0.0.1:65535", "127.0.0.1", 65_535),
            ("[::1]:4322", "::1", 4_322),
        ] {
            let remote = remote(text).unwrap();
            assert_eq!((&*remote.host, remote.port), (host, port));
            assert_eq!(remote.to_string(), text);
        }
        for bad in ["", "a", ":1", "a:", "a:0", "a:65536", "::1:4322", "[a]:1", "a b:1", "q://a:1"]
        {
            assert!(remote(bad).is_err(), "{bad}");
        }
    }
}
