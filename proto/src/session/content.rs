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
        let digits = <&[u8; 64]>::try_from(hex).ok()?.map(nibble);
        if digits.iter().fold(0, |seen, digit| seen | digit) > 0xf {
            return None;
        }
        let mut key = [0; 16];
        for (byte, [high, low]) in key.iter_mut().zip(digits.as_chunks().0) {
            *byte = high << 4 | low;
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

/// The value of a hexadecimal digit, or more than 15.
// Without branches, so that 16 digits are read at a time.
fn nibble(digit: u8) -> u8 {
    let number = digit.wrapping_sub(b'0');
    let letter = (digit | 0x20).wrapping_sub(b'a');
    if number < 10 {
        number
    } else if letter < 6 {
        letter + 10
    } else {
        0xff
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
    fn a_digit_is_told_from_any_other_byte_wherever_it_stands() {
        for at in [0, 1, 31, 32, 63] {
            for byte in 0..=u8::MAX {
                let mut hex = [b'0'; 64];
                hex[at] = byte;
                let digit = char::from(byte).to_digit(16);
                let key = ContentKey::from_hex(&hex);
                assert_eq!(key.is_some(), digit.is_some(), "{byte:#x} at {at}");
                if let (Some(ContentKey(key)), Some(digit)) = (key, digit) {
                    let whole =
                        key.iter().fold(0_u128, |whole, byte| whole << 8 | u128::from(*byte));
                    let expected = if at < 32 { u128::from(digit) << (4 * (31 - at)) } else { 0 };
                    assert_eq!(whole, expected, "{byte:#x} at {at}");
                }
            }
        }
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
