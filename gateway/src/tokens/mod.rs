//! Who may connect: bearer tokens, what each obliges its agents to report, and the answer to a
//! request (serving.md decision 15).

use std::sync::Arc;

/// One line of a token file.
#[derive(Debug, PartialEq, Eq)]
pub struct TokenLine {
    /// What logs call it; the token itself is never kept.
    pub name: Box<str>,
    /// SHA-256 of the token.
    pub sha256: [u8; 32],
    /// Attributes that every agent under this token must report with exactly these values.
    pub required: Box<[(Box<str>, Box<str>)]>,
}

/// What a request was let in with; eight bytes, kept by the link as long as it lives.
#[derive(Clone, Debug, Default)]
pub struct Grant(Option<Arc<TokenLine>>);

impl Grant {
    /// Attribute and value pairs that every agent on this link must report; empty without a token.
    pub fn required(&self) -> &[(Box<str>, Box<str>)] {
        self.0.as_ref().map_or(&[], |line| &line.required)
    }

    /// The token's name, for logs; `None` when no token was asked for.
    pub fn name(&self) -> Option<&str> {
        self.0.as_ref().map(|line| &*line.name)
    }
}

/// Why a request gets 401; the text may be sent to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// No `Authorization` header.
    #[error("no credential: send 'Authorization: Bearer TOKEN'")]
    Missing,
    /// A scheme other than Bearer, or bytes that are no token.
    #[error("the Authorization header is not 'Bearer TOKEN'")]
    Malformed,
    /// A token that no line of the file has.
    #[error("unknown token")]
    Unknown,
}

/// Everybody who may connect at this moment.
#[derive(Debug, Default)]
pub struct Credentials {
    tokens: Option<Box<[Arc<TokenLine>]>>,
}

impl Credentials {
    /// Lets everybody in: no token file was given (TLS may have asked for a certificate before).
    pub const OPEN: Self = Self { tokens: None };

    /// Judges a request before any upgrade: `authorization` is the header's raw value,
    /// `certificate` the DER of the client certificate that TLS already verified.
    ///
    /// # Errors
    ///
    /// [`Denied`] means 401; its text goes into the body.
    pub fn check(
        &self,
        authorization: Option<&[u8]>,
        _certificate: Option<&[u8]>,
    ) -> Result<Grant, Denied> {
        if self.tokens.is_none() {
            return Ok(Grant::default());
        }
        let _header = authorization.ok_or(Denied::Missing)?;
        Err(Denied::Unknown)
    }
}
