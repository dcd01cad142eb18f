//! By what name a session remembers a configuration.

/// The first 16 bytes of a content hash: enough to tell configurations apart (2^64 of them before
/// two are likely to collide), at half the memory per agent.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContentKey([u8; 16]);

impl ContentKey {
    /// No configuration at all. (No real hash is expected to begin with 16 zero bytes.)
    pub const NONE: Self = Self([0; 16]);

    /// The key of a SHA-256 content hash.
    pub fn new(hash: &[u8; 32]) -> Self {
        let [prefix @ .., _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _] = hash;
        Self(*prefix)
    }

    /// Whether this names a configuration.
    pub fn is_some(self) -> bool {
        self != Self::NONE
    }

    /// The bytes: the first half of the content hash.
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// What an agent means by `last_remote_config_hash` (estate.md, decision 9): 64 hex characters
    /// are the content hash we offered; 32 bytes are the raw hash another server offered under,
    /// which `content_of_raw` may know. Anything else is a configuration that nobody here knows:
    /// it gets a key that equals no content hash of ours. An empty hash is no configuration.
    pub fn of_reported(
        reported: &[u8],
        content_of_raw: impl FnOnce(&[u8; 32]) -> Option<[u8; 32]>,
    ) -> Self {
        if reported.is_empty() {
            return Self::NONE;
        }
        if let Some(key) = Self::from_hex(reported) {
            return key;
        }
        if let Ok(raw) = <&[u8; 32]>::try_from(reported) {
            // A raw hash that head does not know names itself: SHA-256 of other bytes.
            return Self::new(&content_of_raw(raw).unwrap_or(*raw));
        }
        Self(xxhash_rust::xxh3::xxh3_128(reported).to_be_bytes())
    }

    fn from_hex(hex: &[u8]) -> Option<Self> {
        if hex.len() != 64 || !hex.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        let mut key = [0; 16];
        for (byte, pair) in key.iter_mut().zip(hex.chunks_exact(2)) {
            *byte = nibble(pair[0]) << 4 | nibble(pair[1]);
        }
        Some(Self(key))
    }
}

/// As 32 hex characters: the first half of what a full content hash displays.
impl std::fmt::Display for ContentKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::fmt::Debug for ContentKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

/// The value of a digit that is known to be hexadecimal.
fn nibble(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        b'A'..=b'F' => digit - b'A' + 10,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unknown(_: &[u8; 32]) -> Option<[u8; 32]> {
        None
    }

    #[test]
    fn hex_is_a_content_hash_and_32_bytes_are_a_raw_hash() {
        let content = [0xab; 32];
        let key = ContentKey::new(&content);
        assert_eq!(ContentKey::of_reported("ab".repeat(32).as_bytes(), unknown), key);
        assert_eq!(ContentKey::of_reported("AB".repeat(32).as_bytes(), unknown), key);
        assert_eq!(
            ContentKey::of_reported(&[7; 32], |raw| (raw == &[7; 32]).then_some(content)),
            key
        );
        assert_eq!(ContentKey::of_reported(&[7; 32], unknown), ContentKey::new(&[7; 32]));
    }

    #[test]
    fn anything_else_is_a_configuration_nobody_knows() {
        let not_hex = "g".repeat(64);
        for reported in [&b"x"[..], &[0xab; 16], &[0xab; 33], not_hex.as_bytes()] {
            let key = ContentKey::of_reported(reported, unknown);
            assert!(key.is_some());
            assert_ne!(key, ContentKey::new(&[0xab; 32]));
        }
        assert_eq!(ContentKey::of_reported(b"", unknown), ContentKey::NONE);
    }
}
