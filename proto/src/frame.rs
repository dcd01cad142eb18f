//! The header in front of an OpAMP message on a WebSocket.

use crate::wire::{self, WireError};

/// The header as we send it: the varint 0.
pub const HEADER: u8 = 0x00;

/// Why a WebSocket message is not an OpAMP one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The message ends inside its header.
    #[error("the message ends inside its header")]
    Truncated,
    /// The header is longer than ten bytes, or does not fit 64 bits.
    #[error("the message header is not a 64-bit varint")]
    Overlong,
    /// The header is not 0: a version of the protocol that is not ours.
    #[error("the message header is {0} where 0 is the only one defined")]
    NonZero(u64),
}

impl FrameError {
    /// A metric label.
    pub const fn reason(&self) -> &'static str {
        "header"
    }
}

/// The protobuf bytes of a WebSocket message.
///
/// The header is a varint of one to ten bytes, padded or not, and its value must be 0. Agents from
/// before the header was invented send none: a message whose first varint can be a protobuf tag,
/// which is 8 or more, is taken as it is, and so is an empty one. The two cannot be confused,
/// because 0 is never a tag.
// hot: once per WebSocket message; must not allocate.
pub fn strip_header(payload: &[u8]) -> Result<&[u8], FrameError> {
    if let [HEADER, message @ ..] = payload {
        return Ok(message);
    }
    if payload.is_empty() {
        return Ok(payload);
    }
    let mut rest = payload;
    match wire::read_varint(&mut rest) {
        Ok(0) => Ok(rest),
        Ok(value @ 1..8) => Err(FrameError::NonZero(value)),
        Ok(_) => Ok(payload),
        Err(WireError::Truncated) => Err(FrameError::Truncated),
        Err(WireError::Varint | WireError::Tag | WireError::WireType) => Err(FrameError::Overlong),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_every_length_are_stripped() {
        for len in 1..=10 {
            let mut payload = vec![0x80; len - 1];
            payload.extend([0x00, 0x0a, 0x10]);
            assert_eq!(strip_header(&payload), Ok(&[0x0a, 0x10][..]), "{len}");
        }
        let eleven = [&[0x80; 10][..], &[0x00]].concat();
        assert_eq!(strip_header(&eleven), Err(FrameError::Overlong));
    }

    #[test]
    fn a_message_without_header_is_taken_as_it_is() {
        for payload in [&[0x0a, 0x01, 0x07][..], &[0x80, 0x01, 0x05], &[]] {
            assert_eq!(strip_header(payload), Ok(payload));
        }
    }

    #[test]
    fn a_header_alone_is_an_empty_message() {
        assert_eq!(strip_header(&[0x00]), Ok(&[][..]));
        assert_eq!(strip_header(&[0x80, 0x80, 0x00]), Ok(&[][..]));
    }

    #[test]
    fn other_headers_are_refused() {
        assert_eq!(strip_header(&[0x01, 0x0a]), Err(FrameError::NonZero(1)));
        assert_eq!(strip_header(&[0x87, 0x00]), Err(FrameError::NonZero(7)));
        assert_eq!(strip_header(&[0x80, 0x80]), Err(FrameError::Truncated));
        assert_eq!(strip_header(&[0xff; 12]), Err(FrameError::Overlong));
    }
}
