//! Frames as a server writes them: unmasked, never fragmented.

use super::MAX_CONTROL_BYTES;

/// The longest header that a server writes.
pub const MAX_HEADER_BYTES: usize = 10;

/// What a frame is (RFC 6455, 5.2). Text is not among them: it is refused, and never sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opcode {
    /// More of the message before.
    Continuation,
    /// A message, or the first part of one.
    Binary,
    /// The end.
    Close,
    /// A question whether the peer lives.
    Ping,
    /// The answer to it.
    Pong,
}

impl Opcode {
    pub(super) const fn is_control(self) -> bool {
        match self {
            Self::Continuation | Self::Binary => false,
            Self::Close | Self::Ping | Self::Pong => true,
        }
    }

    const fn bits(self) -> u8 {
        match self {
            Self::Continuation => 0x0,
            Self::Binary => 0x2,
            Self::Close => 0x8,
            Self::Ping => 0x9,
            Self::Pong => 0xa,
        }
    }
}

/// Writes the header of a whole message (or control frame) of `len` bytes to the front of `out`
/// and returns how long the header is.
// hot: once per frame; must not allocate.
pub fn encode_header(opcode: Opcode, len: usize, out: &mut [u8; MAX_HEADER_BYTES]) -> usize {
    debug_assert!(!opcode.is_control() || len <= MAX_CONTROL_BYTES, "control frames are short");
    out[0] = 0x80 | opcode.bits();
    #[expect(clippy::cast_possible_truncation, reason = "each arm's range fits")]
    match len {
        0..=125 => {
            out[1] = len as u8;
            2
        }
        126..=0xffff => {
            out[1] = 126;
            out[2..4].copy_from_slice(&(len as u16).to_be_bytes());
            4
        }
        _ => {
            out[1] = 127;
            out[2..10].copy_from_slice(&(len as u64).to_be_bytes());
            10
        }
    }
}

/// A whole control frame on the stack.
#[derive(Clone, Copy)]
pub struct Control {
    bytes: [u8; 2 + MAX_CONTROL_BYTES],
    len: u8,
}

const _: () = assert!(size_of::<Control>() == 128);

impl Control {
    /// `payload` is cut off at 125 bytes.
    fn new(opcode: Opcode, payload: &[u8]) -> Self {
        let payload = &payload[..payload.len().min(MAX_CONTROL_BYTES)];
        let mut bytes = [0; 2 + MAX_CONTROL_BYTES];
        bytes[0] = 0x80 | opcode.bits();
        #[expect(clippy::cast_possible_truncation, reason = "at most 125")]
        let len = payload.len() as u8;
        bytes[1] = len;
        bytes[2..2 + payload.len()].copy_from_slice(payload);
        Self { bytes, len: len + 2 }
    }
}

impl AsRef<[u8]> for Control {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// A ping. A payload is cut off at 125 bytes.
pub fn ping(payload: &[u8]) -> Control {
    Control::new(Opcode::Ping, payload)
}

/// The answer to a ping, with the ping's payload.
pub fn pong(payload: &[u8]) -> Control {
    Control::new(Opcode::Pong, payload)
}

/// A close frame. The reason is cut off, between two characters, at 123 bytes.
pub fn close(code: u16, reason: &str) -> Control {
    let room = MAX_CONTROL_BYTES - 2;
    let reason = &reason[..reason.floor_char_boundary(room)];
    let mut payload = [0; MAX_CONTROL_BYTES];
    payload[..2].copy_from_slice(&code.to_be_bytes());
    payload[2..2 + reason.len()].copy_from_slice(reason.as_bytes());
    Control::new(Opcode::Close, &payload[..2 + reason.len()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_take_the_shortest_form() {
        for (len, expected) in [
            (0, &[0x82, 0][..]),
            (125, &[0x82, 125]),
            (126, &[0x82, 126, 0, 126]),
            (0xffff, &[0x82, 126, 0xff, 0xff]),
            (0x1_0000, &[0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0]),
        ] {
            let mut out = [0; MAX_HEADER_BYTES];
            let used = encode_header(Opcode::Binary, len, &mut out);
            assert_eq!(&out[..used], expected);
        }
    }

    #[test]
    fn control_frames_are_cut_to_what_fits() {
        assert_eq!(pong(b"abc").as_ref(), b"\x8a\x03abc");
        assert_eq!(ping(&[7; 200]).as_ref(), [&[0x89, 125][..], &[7; 125]].concat());
        assert_eq!(close(1001, "").as_ref(), [0x88, 2, 0x03, 0xe9]);
        // 61 characters of two bytes and one more byte of room.
        let long = close(1002, &"é".repeat(80));
        assert_eq!(long.as_ref()[1], 2 + 122);
        assert!(str::from_utf8(&long.as_ref()[4..]).is_ok());
    }
}
