//! The attributes that an agent describes itself by.

use smallvec::SmallVec;

use super::{PeekErrorKind, ascii, bytes, text};
use crate::wire::{Fields, Merged};

/// How many attributes a description may have, identifying and not. Collectors send 5 to 30.
pub const MAX_ATTRIBUTES: usize = 1_024;

/// How long an attribute's key may be, in bytes. The longest of the semantic conventions have 50.
pub const MAX_ATTRIBUTE_KEY_BYTES: usize = 1_024;

/// How long a string value may be, in bytes: `process.command_line` can have thousands.
pub const MAX_ATTRIBUTE_VALUE_BYTES: usize = 65_536;

/// How many attributes are read without allocating.
pub const INLINE_ATTRIBUTES: usize = 32;

/// The place for a message's attributes, which [`Peek::parse`](super::Peek::parse) reads into it
/// once for everybody who asks about them.
#[derive(Debug, Default)]
pub struct Gathered<'m> {
    attributes: SmallVec<[Attribute<'m>; INLINE_ATTRIBUTES]>,
}

/// An `AgentDescription`.
#[derive(Clone, Copy, Debug)]
pub struct Description<'m> {
    /// Of both lists, in the order in which they were written.
    attributes: &'m [Attribute<'m>],
}

#[derive(Clone, Copy, Debug)]
struct Attribute<'m> {
    key: &'m str,
    /// `None` when it is no string.
    value: Option<&'m str>,
    identifying: bool,
}

impl<'m> Description<'m> {
    pub(super) fn gather<'g>(
        mut fields: Merged<'m>,
        gathered: &'g mut Gathered<'m>,
    ) -> Result<Description<'g>, PeekErrorKind> {
        let attributes = &mut gathered.attributes;
        attributes.clear();
        while let Some(mut piece) = fields.next_piece()? {
            while let Some((field, value)) = piece.next()? {
                let (body, identifying) = match field {
                    1 => (bytes(value, "agent_description.identifying_attributes")?, true),
                    2 => (bytes(value, "agent_description.non_identifying_attributes")?, false),
                    _ => continue,
                };
                if attributes.len() == MAX_ATTRIBUTES {
                    return Err(PeekErrorKind::Attributes);
                }
                let (key, value) = key_value(body)?;
                if key.len() > MAX_ATTRIBUTE_KEY_BYTES {
                    return Err(PeekErrorKind::AttributeKey { len: key.len() });
                }
                if let Some(len) =
                    value.map(str::len).filter(|len| *len > MAX_ATTRIBUTE_VALUE_BYTES)
                {
                    return Err(PeekErrorKind::AttributeValue { len });
                }
                attributes.push(Attribute { key, value, identifying });
            }
        }
        Ok(Description { attributes })
    }

    /// The identifying attributes in the order in which they were written: the key, and the value
    /// if it is a string. A key may occur twice.
    pub fn identifying(
        &self,
    ) -> impl Iterator<Item = (&'m str, Option<&'m str>)> + Clone + use<'m> {
        self.list(true)
    }

    /// The other attributes, in the same way.
    pub fn non_identifying(
        &self,
    ) -> impl Iterator<Item = (&'m str, Option<&'m str>)> + Clone + use<'m> {
        self.list(false)
    }

    fn list(
        &self,
        identifying: bool,
    ) -> impl Iterator<Item = (&'m str, Option<&'m str>)> + Clone + use<'m> {
        self.attributes
            .iter()
            .filter(move |attribute| attribute.identifying == identifying)
            .map(|attribute| (attribute.key, attribute.value))
    }
}

/// Key and string value of a `KeyValue`.
// hot: for each attribute of each report; must not allocate.
#[inline]
fn key_value(body: &[u8]) -> Result<(&str, Option<&str>), PeekErrorKind> {
    match plain_key_value(body) {
        Some((key, value)) => Ok((key, Some(value))),
        None => any_key_value(body),
    }
}

/// A `KeyValue` as encoders write it, key before value, where the value is a string, both are ASCII
/// and shorter than 128 bytes: nearly all that there are, at a fraction of the instructions. `None`
/// for any other way to write one, which need not be wrong.
#[inline]
fn plain_key_value(body: &[u8]) -> Option<(&str, &str)> {
    const KEY: u8 = 1 << 3 | 2;
    const VALUE: u8 = 2 << 3 | 2;
    const STRING_VALUE: u8 = 1 << 3 | 2;
    const LONGEST: usize = 2 + 0x7f + 2 + 0x7f;
    if body.len() > LONGEST {
        return None;
    }
    // Its tags and lengths are then ASCII as well: one look is enough for all of it.
    let body = ascii(body)?;
    let [KEY, len, ..] = body.as_bytes() else { return None };
    let (key, rest) = body.get(2..)?.split_at_checked(usize::from(*len))?;
    let [VALUE, outer, STRING_VALUE, inner, ..] = rest.as_bytes() else { return None };
    let value = rest.get(4..)?;
    let whole = usize::from(*inner) == value.len() && usize::from(*outer) == value.len() + 2;
    whole.then_some((key, value))
}

/// As [`key_value`], however it is written.
#[inline(never)]
fn any_key_value(body: &[u8]) -> Result<(&str, Option<&str>), PeekErrorKind> {
    let mut key = "";
    let mut string = None;
    let mut fields = Fields::new(body);
    while let Some((field, value)) = fields.next()? {
        match field {
            1 => key = text(value, "the key of an attribute")?,
            2 => merge_any_value(&mut string, bytes(value, "the value of an attribute")?)?,
            _ => {}
        }
    }
    Ok((key, string))
}

/// The alternatives of an `AnyValue` displace each other, the last one stays.
fn merge_any_value<'m>(string: &mut Option<&'m str>, body: &'m [u8]) -> Result<(), PeekErrorKind> {
    const STRING: u32 = 1;
    const LAST_ALTERNATIVE: u32 = 7;
    let mut fields = Fields::new(body);
    while let Some((field, value)) = fields.next()? {
        match field {
            STRING => *string = Some(text(value, "the string value of an attribute")?),
            2..=LAST_ALTERNATIVE => *string = None,
            _ => {}
        }
    }
    Ok(())
}
