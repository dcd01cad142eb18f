//! The keys that sign a snapshot and check it, as PEM (`openssl genpkey -algorithm ed25519`).

use ed25519_dalek::pkcs8::{DecodePrivateKey, DecodePublicKey};
use ed25519_dalek::{SigningKey, VerifyingKey};

/// A key that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an Ed25519 {kind} key in PEM (`{make}` writes one): {why}")]
pub struct KeyError {
    /// `private` or `public`.
    pub kind: &'static str,
    /// A command that makes one.
    pub make: &'static str,
    /// What the reader said.
    pub why: String,
}

/// Reads a PKCS #8 private key (`-----BEGIN PRIVATE KEY-----`).
///
/// # Errors
/// [`KeyError`], which never shows any of the text.
pub fn signing_key(pem: &str) -> Result<SigningKey, KeyError> {
    SigningKey::from_pkcs8_pem(pem.trim()).map_err(|error| KeyError {
        kind: "private",
        make: "openssl genpkey -algorithm ed25519",
        why: error.to_string(),
    })
}

/// Reads a public key (`-----BEGIN PUBLIC KEY-----`).
///
/// # Errors
/// [`KeyError`].
pub fn verifying_key(pem: &str) -> Result<VerifyingKey, KeyError> {
    VerifyingKey::from_public_key_pem(pem.trim()).map_err(|error| KeyError {
        kind: "public",
        make: "openssl pkey -in KEY -pubout",
        why: error.to_string(),
    })
}
