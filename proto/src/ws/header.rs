//! A frame's header as clients write it.

use super::encode::Opcode;
use super::{MAX_CONTROL_BYTES, Violation};

/// Two bytes, eight of length, four of mask.
pub(super) const MAX_BYTES: usize = 14;

/// The header of a frame whose payload is yet to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) fin: bool,
    pub(super) opcode: Opcode,
    pub(super) len: u64,
    pub(super) mask: [u8; 4],
}

/// Reads a header off the front of `bytes`, with its own length; `None` if more is needed. What is
/// wrong is said as soon as it can be seen.
// hot: once per frame; must not allocate.
#[inline]
pub(super) fn parse(bytes: &[u8]) -> Result<Option<(Header, usize)>, Violation> {
    let Some((&first, rest)) = bytes.split_first() else {
        return Ok(None);
    };
    if first & 0b0111_0000 != 0 {
        return Err(Violation::ReservedBits);
    }
    let fin = first & 0x80 != 0;
    let opcode = match first & 0x0f {
        0x0 => Opcode::Continuation,
        0x1 => return Err(Violation::Text),
        0x2 => Opcode::Binary,
        0x8 => Opcode::Close,
        0x9 => Opcode::Ping,
        0xa => Opcode::Pong,
        _ => return Err(Violation::ReservedOpcode),
    };
    if opcode.is_control() && !fin {
        return Err(Violation::FragmentedControl);
    }

    let Some((&second, rest)) = rest.split_first() else {
        return Ok(None);
    };
    if second & 0x80 == 0 {
        return Err(Violation::Unmasked);
    }
    let short = second & 0x7f;
    if opcode.is_control() && usize::from(short) > MAX_CONTROL_BYTES {
        return Err(Violation::LongControl);
    }
    let (len, rest) = match short {
        126 => {
            let Some((bytes, rest)) = rest.split_first_chunk::<2>() else {
                return Ok(None);
            };
            let len = u64::from(u16::from_be_bytes(*bytes));
            if len < 126 {
                return Err(Violation::Length);
            }
            (len, rest)
        }
        127 => {
            let Some((bytes, rest)) = rest.split_first_chunk::<8>() else {
                return Ok(None);
            };
            let len = u64::from_be_bytes(*bytes);
            if len <= u64::from(u16::MAX) || len >> 63 != 0 {
                return Err(Violation::Length);
            }
            (len, rest)
        }
        _ => (u64::from(short), rest),
    };
    let Some((mask, rest)) = rest.split_first_chunk::<4>() else {
        return Ok(None);
    };
    Ok(Some((Header { fin, opcode, len, mask: *mask }, bytes.len() - rest.len())))
}
