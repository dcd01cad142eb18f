//! Reading and writing what bodies are made of. Nothing here allocates but the output's growth.

use super::FrameError;

pub(super) fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], FrameError> {
    let (head, tail) = rest.split_first_chunk::<N>().ok_or(FrameError::Truncated)?;
    *rest = tail;
    Ok(*head)
}

pub(super) fn take_slice<'f>(rest: &mut &'f [u8], len: usize) -> Result<&'f [u8], FrameError> {
    let (head, tail) = rest.split_at_checked(len).ok_or(FrameError::Truncated)?;
    *rest = tail;
    Ok(head)
}

pub(super) fn take_u8(rest: &mut &[u8]) -> Result<u8, FrameError> {
    take::<1>(rest).map(|[byte]| byte)
}

pub(super) fn take_u16(rest: &mut &[u8]) -> Result<u16, FrameError> {
    take(rest).map(u16::from_le_bytes)
}

pub(super) fn take_u32(rest: &mut &[u8]) -> Result<u32, FrameError> {
    take(rest).map(u32::from_le_bytes)
}

pub(super) fn take_u64(rest: &mut &[u8]) -> Result<u64, FrameError> {
    take(rest).map(u64::from_le_bytes)
}

/// A time: 48 bits, as a record holds it.
pub(super) fn take_ms(rest: &mut &[u8]) -> Result<u64, FrameError> {
    let [b0, b1, b2, b3, b4, b5] = take(rest)?;
    Ok(u64::from_le_bytes([b0, b1, b2, b3, b4, b5, 0, 0]))
}

pub(super) fn take_text<'f>(
    rest: &mut &'f [u8],
    most: usize,
    what: &'static str,
) -> Result<&'f str, FrameError> {
    let len = usize::from(take_u16(rest)?);
    if len > most {
        return Err(FrameError::Limit(what));
    }
    str::from_utf8(take_slice(rest, len)?).map_err(|_| FrameError::Value(what))
}

/// How many items a list has.
pub(super) fn take_count(
    rest: &mut &[u8],
    most: usize,
    what: &'static str,
) -> Result<usize, FrameError> {
    let count = usize::from(take_u16(rest)?);
    if count > most { Err(FrameError::Limit(what)) } else { Ok(count) }
}

/// A number of at most 48 bits.
pub(super) fn put_ms(ms: u64, out: &mut Vec<u8>) {
    let [b0, b1, b2, b3, b4, b5, _, _] = ms.min((1 << 48) - 1).to_le_bytes();
    out.extend_from_slice(&[b0, b1, b2, b3, b4, b5]);
}

/// Cut where it is too long.
pub(super) fn put_text(text: &str, most: usize, out: &mut Vec<u8>) {
    let text = &text[..text.floor_char_boundary(most)];
    put_count(text.len(), out);
    out.extend_from_slice(text.as_bytes());
}

pub(super) fn put_count(count: usize, out: &mut Vec<u8>) {
    debug_assert!(u16::try_from(count).is_ok(), "a list of {count}");
    out.extend_from_slice(&u16::try_from(count).unwrap_or(u16::MAX).to_le_bytes());
}
