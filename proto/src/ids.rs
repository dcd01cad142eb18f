//! Who an agent is on the wire: its instance uid.

use std::fmt;
use std::str::FromStr;

/// An agent's `instance_uid`: 16 bytes that should be a UUIDv7. The version bits are not asked for,
/// since agents with v4 uids and with ULIDs exist.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceUid(pub [u8; 16]);

const _: () = assert!(size_of::<InstanceUid>() == 16);

impl InstanceUid {
    /// `None` unless `bytes` are exactly 16.
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// A UUIDv7 (RFC 9562) of a Unix time in milliseconds, of which 48 bits count, and randomness,
    /// of which 74 bits count.
    pub fn v7(unix_ms: u64, random: [u8; 10]) -> Self {
        let [_, _, t0, t1, t2, t3, t4, t5] = unix_ms.to_be_bytes();
        let [r0, r1, r2, r3, r4, r5, r6, r7, r8, r9] = random;
        Self([
            t0,
            t1,
            t2,
            t3,
            t4,
            t5,
            0x70 | (r0 & 0x0f),
            r1,
            0x80 | (r2 & 0x3f),
            r3,
            r4,
            r5,
            r6,
            r7,
            r8,
            r9,
        ])
    }
}

/// The canonical UUID text: lower case, with hyphens.
impl fmt::Display for InstanceUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [b'-'; 36];
        let mut at = 0;
        for (index, byte) in self.0.iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                at += 1;
            }
            text[at] = HEX[usize::from(byte >> 4)];
            text[at + 1] = HEX[usize::from(byte & 15)];
            at += 2;
        }
        f.pad(str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

/// As [`Display`](fmt::Display): a uid is only ever read as text.
impl fmt::Debug for InstanceUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Reads the canonical text, in either case, as the `OpAMP-Instance-UID` header carries it.
impl FromStr for InstanceUid {
    type Err = ParseUidError;

    fn from_str(text: &str) -> Result<Self, ParseUidError> {
        let text: &[u8; 36] = text.as_bytes().try_into().map_err(|_| ParseUidError)?;
        let mut uid = [0; 16];
        let mut at = 0;
        for (index, byte) in uid.iter_mut().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                if text[at] != b'-' {
                    return Err(ParseUidError);
                }
                at += 1;
            }
            *byte = (nibble(text[at])? << 4) | nibble(text[at + 1])?;
            at += 2;
        }
        Ok(Self(uid))
    }
}

/// The text is not a UUID in its canonical form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a UUID of the form xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx")]
pub struct ParseUidError;

fn nibble(digit: u8) -> Result<u8, ParseUidError> {
    match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        b'A'..=b'F' => Ok(digit - b'A' + 10),
        _ => Err(ParseUidError),
    }
}

const HEX: &[u8; 16] = b"0123456789abcdef";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_canonical_and_reads_back() {
        let uid = InstanceUid([
            0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0xfe, 0xdc, 0xba, 0x98, 0x76, 0x54,
            0x32, 0x10,
        ]);
        assert_eq!(uid.to_string(), "01234567-89ab-cdef-fedc-ba9876543210");
        assert_eq!(uid.to_string().parse(), Ok(uid));
        assert_eq!("01234567-89AB-CDEF-FEDC-BA9876543210".parse(), Ok(uid));
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "0123456789abcdeffedcba9876543210",
            "01234567-89ab-cdef-fedc-ba987654321",
            "01234567-89ab-cdef-fedc-ba98765432100",
            "01234567-89ab-cdef-fedc+ba9876543210",
            "g1234567-89ab-cdef-fedc-ba9876543210",
            "0123456789ab--cdef-fedc-ba9876543210",
            "{1234567-89ab-cdef-fedc-ba987654321}",
            "01234567-89ab-cdef-fedc-ba98765432é",
        ] {
            assert_eq!(text.parse::<InstanceUid>(), Err(ParseUidError), "{text}");
        }
    }

    #[test]
    fn v7_holds_time_version_and_variant() {
        // The example of RFC 9562, appendix A.6.
        let uid = InstanceUid::v7(
            0x017f_22e2_79b0,
            [0xfc, 0xc3, 0xd8, 0xc4, 0xdc, 0x0c, 0x0c, 0x07, 0x39, 0x8f],
        );
        assert_eq!(uid.to_string(), "017f22e2-79b0-7cc3-98c4-dc0c0c07398f");
        assert!(InstanceUid::v7(1, [0xff; 10]) < InstanceUid::v7(2, [0; 10]));
    }

    #[test]
    fn only_sixteen_bytes_are_a_uid() {
        assert_eq!(InstanceUid::from_slice(&[7; 16]), Some(InstanceUid([7; 16])));
        for len in [0, 15, 17, 26] {
            assert_eq!(InstanceUid::from_slice(&vec![7; len]), None);
        }
    }
}
