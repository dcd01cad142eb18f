//! Flags that several roles share, and why they can be refused.

use std::net::{SocketAddr, ToSocketAddrs};

pub mod admin;
pub mod evidence;
pub mod process;
pub mod propose;
pub mod source;
pub mod uplink;

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

/// One address of what `text` names.
///
/// # Errors
///
/// It resolves to nothing.
pub(super) fn address(flag: &'static str, text: &str) -> Result<SocketAddr, ConfigError> {
    let fail = |why: String| ConfigError::Address { flag, text: text.to_owned(), why };
    text.to_socket_addrs()
        .map_err(|error| fail(error.to_string()))?
        .next()
        .ok_or_else(|| fail("it resolves to nothing".to_owned()))
}

/// What a replica may call itself, in headers, reports and on the uplink.
///
/// # Errors
///
/// Says what form is wanted.
pub(super) fn instance_label(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    if text.is_empty() || text.len() > 64 || !text.chars().all(fits) {
        return Err("must be 1 to 64 letters, digits, '-', '.' and '_'".to_owned());
    }
    Ok(text.to_owned())
}
