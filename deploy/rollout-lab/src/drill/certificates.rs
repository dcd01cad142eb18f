//! Certificates for one drill, made by the gateway's own `certs init`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use loadgen::tls::Trust;

use super::DrillError;

/// Where the route listens, by which gateways are reached.
const HOST: &str = "127.0.0.1";

/// An authority, and what it signed for the gateways.
#[derive(Debug, Clone)]
pub(super) struct Certificates {
    /// Whom clients believe.
    pub(super) authority: PathBuf,
    /// Of every gateway.
    pub(super) certificate: PathBuf,
    /// Its key.
    pub(super) key: PathBuf,
    trust: Trust,
}

impl Certificates {
    /// Makes them, in a new folder.
    pub(super) fn make(gateway: &Path, folder: &Path) -> Result<Self, DrillError> {
        let made = Command::new(gateway)
            .args(["certs", "init"])
            .arg(folder)
            .args(["--name", HOST, "--days", "1"])
            .stdin(Stdio::null())
            .output()?;
        if !made.status.success() {
            let text = String::from_utf8_lossy(&made.stderr).trim().to_owned();
            return Err(DrillError::Cannot(format!("no certificates: {text}")));
        }
        let authority = folder.join("ca.crt");
        let trust = Trust::load(&authority).map_err(DrillError::Cannot)?;
        let (certificate, key) = (folder.join("server.crt"), folder.join("server.key"));
        Ok(Self { authority, certificate, key, trust })
    }

    /// For clients.
    pub(super) fn target(&self, to: std::net::SocketAddr) -> Target {
        Target { to, trust: Some(self.trust.clone()) }
    }
}

/// Where an exchange goes, and whether under TLS.
#[derive(Debug, Clone)]
pub struct Target {
    pub(super) to: std::net::SocketAddr,
    pub(super) trust: Option<Trust>,
}

impl Target {
    /// Plain text.
    pub fn plain(to: std::net::SocketAddr) -> Self {
        Self { to, trust: None }
    }

    /// Another place, with the same trust.
    pub(super) fn at(&self, to: std::net::SocketAddr) -> Self {
        Self { to, trust: self.trust.clone() }
    }

    /// The host that its certificate is for.
    pub(super) fn host(&self) -> &'static str {
        HOST
    }
}
