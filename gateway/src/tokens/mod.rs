//! Who may connect: bearer tokens, what each obliges its agents to report, and the answer to a
//! request (serving.md decision 15).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use sha2::{Digest, Sha256};

pub mod bearer;
pub mod file;
pub mod new;

pub use file::{TokenFileError, TokenLine};

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

impl Denied {
    /// The `reason` label of `tidegate_auth_failures_total`.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Malformed => "malformed",
            Self::Unknown => "unknown",
        }
    }
}

/// Everybody who may connect at this moment; the file behind it is read again when it changes.
#[derive(Debug)]
pub struct Credentials(Option<Tokens>);

#[derive(Debug)]
struct Tokens {
    file: PathBuf,
    /// By the first eight bytes of their hash.
    lines: ArcSwap<Vec<Arc<TokenLine>>>,
}

impl Credentials {
    /// Lets everybody in: no token file was given (TLS may have asked for a certificate before).
    pub const OPEN: Self = Self(None);

    /// The lines of `file`.
    ///
    /// # Errors
    ///
    /// [`TokenFileError`] names the file and the line.
    pub fn load(file: &Path) -> Result<Self, TokenFileError> {
        let lines = ArcSwap::from_pointee(file::read(file)?);
        Ok(Self(Some(Tokens { file: file.to_owned(), lines })))
    }

    /// Reads the file again; on an error the old lines stay. Links already let in stay, too.
    ///
    /// # Errors
    ///
    /// As [`Credentials::load`].
    pub fn reload(&self) -> Result<(), TokenFileError> {
        if let Some(tokens) = &self.0 {
            tokens.lines.store(Arc::new(file::read(&tokens.file)?));
        }
        Ok(())
    }

    /// Whether a request needs a token at all.
    pub fn required(&self) -> bool {
        self.0.is_some()
    }

    /// Judges a request before any upgrade: `authorization` is the header's raw value,
    /// `_certificate` the DER of the client certificate that TLS already verified (no rule looks
    /// at it yet).
    ///
    /// # Errors
    ///
    /// [`Denied`] means 401; its text goes into the body.
    pub fn check(
        &self,
        authorization: Option<&[u8]>,
        _certificate: Option<&[u8]>,
    ) -> Result<Grant, Denied> {
        let Some(tokens) = &self.0 else {
            return Ok(Grant::default());
        };
        let token = bearer::token(authorization.ok_or(Denied::Missing)?)?;
        let sha256: [u8; 32] = Sha256::digest(token).into();
        let lines = tokens.lines.load();
        file::find(&lines, &sha256).map(|line| Grant(Some(Arc::clone(line)))).ok_or(Denied::Unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_tokens_are_valid_at_once_and_each_binds_its_attributes() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tokens");
        let (old, new) = (new::Token::generate().unwrap(), new::Token::generate().unwrap());
        let text = format!(
            "# rotated in March\n{}\n\n{}\n",
            old.line("payments", &[]),
            new.line("payments-2", &[("team".into(), "payments".into())]),
        );
        std::fs::write(&file, text).unwrap();
        let credentials = Credentials::load(&file).unwrap();
        let check =
            |token: &str| credentials.check(Some(format!("Bearer {token}").as_bytes()), None);

        assert_eq!(check(old.secret()).unwrap().name(), Some("payments"));
        let grant = check(new.secret()).unwrap();
        assert_eq!(grant.required(), [("team".into(), "payments".into())]);
        assert_eq!(check("guess").unwrap_err(), Denied::Unknown);
        assert_eq!(credentials.check(None, None).unwrap_err(), Denied::Missing);
        assert_eq!(credentials.check(Some(b"Basic eDp5"), None).unwrap_err(), Denied::Malformed);
    }

    #[test]
    fn a_bad_new_file_keeps_the_old_lines() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tokens");
        let token = new::Token::generate().unwrap();
        std::fs::write(&file, token.line("a", &[])).unwrap();
        let credentials = Credentials::load(&file).unwrap();
        let header = format!("Bearer {}", token.secret());

        std::fs::write(&file, "a nonsense\n").unwrap();
        assert!(credentials.reload().is_err());
        assert!(credentials.check(Some(header.as_bytes()), None).is_ok());

        std::fs::write(&file, "").unwrap();
        credentials.reload().unwrap();
        assert_eq!(
            credentials.check(Some(header.as_bytes()), None).unwrap_err(),
            Denied::Unknown,
            "a token is revoked by removing its line"
        );
    }

    #[test]
    fn a_grant_costs_a_link_eight_bytes() {
        assert_eq!(size_of::<Grant>(), 8);
    }
}
