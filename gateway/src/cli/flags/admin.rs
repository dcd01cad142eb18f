//! The operators' listener.

use std::path::PathBuf;

use clap::Args;

use super::{ConfigError, address};
use crate::config::AdminConfig;

/// Flags of the operators' listener.
#[derive(Debug, Args)]
pub struct AdminArgs {
    /// Address for operators: health, metrics, API; port 0 takes a free one. Anything but loopback
    /// needs --admin-token-file.
    #[arg(long, value_name = "ADDR", env = "TIDEGATE_ADMIN", help_heading = HEADING)]
    #[arg(default_value = "127.0.0.1:4321")]
    pub admin: String,

    /// Tokens for everything at --admin but /healthz and /readyz, one per line, sent as Bearer or
    /// as the password of Basic; read again when it changes.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_ADMIN_TOKEN_FILE", help_heading = HEADING)]
    pub admin_token_file: Option<PathBuf>,

    /// Host names (without port) that requests to --admin may carry beside localhost and IP
    /// addresses; may be given several times or with commas.
    #[arg(long, value_name = "HOST", env = "TIDEGATE_ADMIN_HOST", help_heading = HEADING)]
    #[arg(value_delimiter = ',')]
    pub admin_host: Vec<String>,
}

const HEADING: &str = "Operators";

impl AdminArgs {
    /// # Errors
    ///
    /// An address that does not resolve, or one that others reach while nobody needs a token.
    pub fn resolve(&self) -> Result<AdminConfig, ConfigError> {
        let listen = address("--admin", &self.admin)?;
        if !listen.ip().is_loopback() && self.admin_token_file.is_none() {
            return Err(ConfigError::AdminOpen { admin: listen });
        }
        let Self { admin_token_file, admin_host, .. } = self;
        Ok(AdminConfig { listen, token_file: admin_token_file.clone(), hosts: admin_host.clone() })
    }
}
