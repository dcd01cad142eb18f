//! Protobuf's wire format: reading fields as slices of the message, writing varints.

/// Why bytes are no protobuf message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WireError {
    /// The bytes end inside a field.
    Truncated,
    /// A varint of more than ten bytes, or one that does not fit 64 bits.
    Varint,
    /// Field number 0, or a tag that does not fit 32 bits.
    Tag,
    /// A group, or one of the two wire types that mean nothing. proto3 has no groups, and skipping
    /// one would need recursion.
    WireType,
}

/// The value of one field, not yet given a meaning.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value<'m> {
    Varint(u64),
    Fixed64(u64),
    Len(&'m [u8]),
    Fixed32,
}

/// The fields of a message in the order in which they were written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'m> {
    rest: &'m [u8],
}

impl<'m> Fields<'m> {
    pub(crate) fn new(message: &'m [u8]) -> Self {
        Self { rest: message }
    }

    /// What has not been read yet.
    pub(crate) fn rest(&self) -> &'m [u8] {
        self.rest
    }

    /// The next field's number and value; `None` at the end.
    // hot: called for each field of each message; must not allocate.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<(u32, Value<'m>)>, WireError> {
        match self.next_short() {
            Some((field, body)) => Ok(Some((field, Value::Len(body)))),
            None => self.next_of_any(),
        }
    }

    /// The next field if it is one of the first 15 and a string or message of less than 128 bytes:
    /// half of what there is.
    #[inline]
    fn next_short(&mut self) -> Option<(u32, &'m [u8])> {
        const LEN: u8 = 2;
        let [tag @ 8..0x80, len @ ..0x80, rest @ ..] = self.rest else { return None };
        if tag & 7 != LEN {
            return None;
        }
        let (body, rest) = rest.split_at_checked(usize::from(*len))?;
        self.rest = rest;
        Some((u32::from(tag >> 3), body))
    }

    /// As [`Fields::next`], whatever it is.
    #[inline(never)]
    fn next_of_any(&mut self) -> Result<Option<(u32, Value<'m>)>, WireError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = u32::try_from(read_varint(&mut self.rest)?).map_err(|_| WireError::Tag)?;
        let field = tag >> 3;
        if field == 0 {
            return Err(WireError::Tag);
        }
        let value = match tag & 7 {
            0 => Value::Varint(read_varint(&mut self.rest)?),
            1 => {
                let (bytes, rest) = self.rest.split_first_chunk().ok_or(WireError::Truncated)?;
                self.rest = rest;
                Value::Fixed64(u64::from_le_bytes(*bytes))
            }
            2 => {
                let claimed = read_varint(&mut self.rest)?;
                let len = usize::try_from(claimed).map_err(|_| WireError::Truncated)?;
                let (body, rest) = self.rest.split_at_checked(len).ok_or(WireError::Truncated)?;
                self.rest = rest;
                Value::Len(body)
            }
            5 => {
                let (_, rest) = self.rest.split_at_checked(4).ok_or(WireError::Truncated)?;
                self.rest = rest;
                Value::Fixed32
            }
            _ => return Err(WireError::WireType),
        };
        Ok(Some((field, value)))
    }
}

/// The fields of a sub-message that its parent may hold in several pieces, which protobuf says
/// are to be read as if they were written one after another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Merged<'m> {
    /// The number of the sub-message in its parent.
    field: u32,
    piece: Fields<'m>,
    /// The parent behind that piece.
    parent: Fields<'m>,
}

impl<'m> Merged<'m> {
    /// `first` is the first piece, `parent` what the parent holds behind it.
    pub(crate) fn new(field: u32, first: &'m [u8], parent: &'m [u8]) -> Self {
        Self { field, piece: Fields::new(first), parent: Fields::new(parent) }
    }

    /// The next piece that has not been begun.
    pub(crate) fn next_piece(&mut self) -> Result<Option<Fields<'m>>, WireError> {
        if !self.piece.rest.is_empty() {
            return Ok(Some(std::mem::replace(&mut self.piece, Fields::new(&[]))));
        }
        while let Some((field, value)) = self.parent.next()? {
            if let Value::Len(body) = value
                && field == self.field
            {
                return Ok(Some(Fields::new(body)));
            }
        }
        Ok(None)
    }

    /// The next field of the sub-message, over all of its pieces.
    // hot: as above.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<(u32, Value<'m>)>, WireError> {
        loop {
            if let Some(found) = self.piece.next()? {
                return Ok(Some(found));
            }
            match self.next_piece()? {
                Some(piece) => self.piece = piece,
                None => return Ok(None),
            }
        }
    }
}

/// Takes a varint off the front of `input`: at most ten bytes, padding allowed.
#[inline]
pub(crate) fn read_varint(input: &mut &[u8]) -> Result<u64, WireError> {
    match input {
        [] => Err(WireError::Truncated),
        [byte, rest @ ..] if *byte < 0x80 => {
            *input = rest;
            Ok(u64::from(*byte))
        }
        _ => read_long_varint(input),
    }
}

fn read_long_varint(input: &mut &[u8]) -> Result<u64, WireError> {
    let mut value = 0_u64;
    for (at, byte) in input.iter().take(10).enumerate() {
        // The tenth byte holds bit 63 alone.
        if at == 9 && *byte > 1 {
            return Err(WireError::Varint);
        }
        value |= u64::from(byte & 0x7f) << (7 * at);
        if *byte < 0x80 {
            *input = &input[at + 1..];
            return Ok(value);
        }
    }
    Err(if input.len() < 10 { WireError::Truncated } else { WireError::Varint })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_are_read_up_to_ten_bytes() {
        for (bytes, expected) in [
            (&[0x00][..], Ok(0)),
            (&[0x7f], Ok(127)),
            (&[0x80, 0x00], Ok(0)),
            (&[0xac, 0x02], Ok(300)),
            (&[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00], Ok(0)),
            (&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01], Ok(u64::MAX)),
            (&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02], Err(WireError::Varint)),
            (&[0x80; 11], Err(WireError::Varint)),
            (&[], Err(WireError::Truncated)),
            (&[0x80, 0x80], Err(WireError::Truncated)),
        ] {
            let mut input = bytes;
            assert_eq!(read_varint(&mut input), expected, "{bytes:02x?}");
            if expected.is_ok() {
                assert!(input.is_empty(), "{bytes:02x?}");
            }
        }
    }

    #[test]
    fn groups_and_field_zero_are_refused() {
        for (bytes, expected) in [
            (&[0x0b][..], WireError::WireType),
            (&[0x0c], WireError::WireType),
            (&[0x0e], WireError::WireType),
            (&[0x0f], WireError::WireType),
            (&[0x00, 0x00], WireError::Tag),
            (&[0x02, 0x00], WireError::Tag),
            (&[0x80, 0x80, 0x80, 0x80, 0x10, 0x00], WireError::Tag),
            (&[0x0a, 0x05, 0x00], WireError::Truncated),
            (
                &[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
                WireError::Truncated,
            ),
            (&[0x09, 0, 0, 0, 0, 0, 0, 0], WireError::Truncated),
            (&[0x0d, 0, 0, 0], WireError::Truncated),
        ] {
            assert_eq!(Fields::new(bytes).next(), Err(expected), "{bytes:02x?}");
        }
    }
}
