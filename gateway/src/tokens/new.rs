//! A new token: what `gateway token new` prints.

use sha2::{Digest, Sha256};

/// 256 random bits as text; its `Debug` hides them.
pub struct Token(String);

impl Token {
    /// From the operating system's generator.
    ///
    /// # Errors
    ///
    /// When the operating system has no randomness to give.
    pub fn generate() -> Result<Self, getrandom::Error> {
        let mut bytes = [0_u8; 32];
        getrandom::fill(&mut bytes)?;
        // A prefix that secret scanners can be taught.
        Ok(Self(format!("tidegate_{}", hex(&bytes))))
    }

    /// The token itself, to be shown once.
    pub fn secret(&self) -> &str {
        &self.0
    }

    /// Its line for a token file: `NAME SHA256HEX [attribute=value ...]`.
    pub fn line(&self, name: &str, required: &[(String, String)]) -> String {
        let mut line = format!("{name} {}", hex(&Sha256::digest(self.0.as_bytes())));
        for (attribute, value) in required {
            line.push_str(&format!(" {attribute}={value}"));
        }
        line
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Lower-case hex.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        for digit in [byte >> 4, byte & 15] {
            text.push(char::from_digit(u32::from(digit), 16).unwrap_or('0'));
        }
        text
    })
}
