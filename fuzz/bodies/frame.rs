//! The message header: what is stripped is a header, and the rest is untouched.

use proto::frame::{FrameError, strip_header};

/// `data` is the payload of a WebSocket message.
pub(crate) fn run(data: &[u8]) {
    // A slow reading: the value of the varint that `data` starts with, and its length.
    let len = data.iter().take(10).position(|byte| *byte < 0x80).map(|last| last + 1);
    let value = len.and_then(|len| {
        data[..len]
            .iter()
            .rev()
            .try_fold(0_u128, |value, byte| Some((value << 7) | u128::from(byte & 0x7f)))
    });
    let value = value.filter(|value| *value <= u128::from(u64::MAX));

    match (strip_header(data), value) {
        (Ok(message), Some(0)) => assert_eq!(Some(message), len.map(|len| &data[len..])),
        (Ok(message), Some(tag)) => {
            assert!(tag >= 8, "no field has number 0");
            assert_eq!(message, data);
        }
        (Ok(message), None) => assert!(message.is_empty() && data.is_empty()),
        (Err(FrameError::NonZero(found)), value) => {
            assert!(found < 8);
            assert_eq!(value, Some(u128::from(found)));
        }
        (Err(FrameError::Truncated), value) => assert!(value.is_none() && data.len() < 10),
        (Err(FrameError::Overlong), value) => assert!(value.is_none() && data.len() >= 10),
    }
}
