//! The attributes that an agent describes itself by.

use std::iter::FusedIterator;

use super::{PeekErrorKind, bytes, text, utf8};
use crate::wire::{Fields, Merged, Value};

/// How many attributes a description may have, identifying and not. Collectors send 5 to 30.
pub const MAX_ATTRIBUTES: usize = 1_024;

/// How long an attribute's key may be, in bytes. The longest of the semantic conventions have 50.
pub const MAX_ATTRIBUTE_KEY_BYTES: usize = 1_024;

/// How long a string value may be, in bytes: `process.command_line` can have thousands.
pub const MAX_ATTRIBUTE_VALUE_BYTES: usize = 65_536;

const IDENTIFYING: u32 = 1;
const NON_IDENTIFYING: u32 = 2;

/// An `AgentDescription`.
#[derive(Clone, Copy, Debug)]
pub struct Description<'m> {
    fields: Merged<'m>,
}

impl<'m> Description<'m> {
    pub(super) fn check(fields: Merged<'m>) -> Result<Self, PeekErrorKind> {
        let mut left = fields;
        let mut count = 0;
        while let Some((field, value)) = left.next()? {
            let body = match field {
                IDENTIFYING => bytes(value, "agent_description.identifying_attributes")?,
                NON_IDENTIFYING => bytes(value, "agent_description.non_identifying_attributes")?,
                _ => continue,
            };
            count += 1;
            if count > MAX_ATTRIBUTES {
                return Err(PeekErrorKind::Attributes);
            }
            let (key, value) = key_value(body)?;
            if key.len() > MAX_ATTRIBUTE_KEY_BYTES {
                return Err(PeekErrorKind::AttributeKey { len: key.len() });
            }
            if let Some(len) = value.map(str::len).filter(|len| *len > MAX_ATTRIBUTE_VALUE_BYTES) {
                return Err(PeekErrorKind::AttributeValue { len });
            }
        }
        Ok(Self { fields })
    }

    /// The identifying attributes in the order in which they were written: the key, and the value
    /// if it is a string. A key may occur twice.
    pub fn identifying(&self) -> Attributes<'m> {
        Attributes { fields: self.fields, list: IDENTIFYING }
    }

    /// The other attributes, in the same way.
    pub fn non_identifying(&self) -> Attributes<'m> {
        Attributes { fields: self.fields, list: NON_IDENTIFYING }
    }
}

/// One list of a [`Description`].
#[derive(Clone, Debug)]
pub struct Attributes<'m> {
    fields: Merged<'m>,
    list: u32,
}

impl<'m> Iterator for Attributes<'m> {
    type Item = (&'m str, Option<&'m str>);

    // hot: for each attribute of each report; must not allocate.
    fn next(&mut self) -> Option<Self::Item> {
        // `Description::check` has read all of it, so an error is the end that cannot come.
        while let Ok(Some((field, value))) = self.fields.next() {
            if let Value::Len(body) = value
                && field == self.list
            {
                return key_value(body).ok();
            }
        }
        None
    }
}

impl FusedIterator for Attributes<'_> {}

/// Key and string value of a `KeyValue`.
// hot: twice for each attribute of each report.
#[inline]
fn key_value(body: &[u8]) -> Result<(&str, Option<&str>), PeekErrorKind> {
    match plain_key_value(body) {
        Some((key, value)) => {
            let key = utf8(key, "the key of an attribute")?;
            Ok((key, Some(utf8(value, "the string value of an attribute")?)))
        }
        None => any_key_value(body),
    }
}

/// A `KeyValue` as encoders write it, key before value, where the value is a string and both are
/// shorter than 128 bytes: nearly all that there are, at a third of the instructions. `None` for
/// any other way to write one, which need not be wrong.
#[inline]
fn plain_key_value(body: &[u8]) -> Option<(&[u8], &[u8])> {
    const KEY: u8 = 1 << 3 | 2;
    const VALUE: u8 = 2 << 3 | 2;
    const STRING_VALUE: u8 = 1 << 3 | 2;
    const ONE_BYTE: u8 = 0x80;
    let [KEY, len @ ..ONE_BYTE, rest @ ..] = body else { return None };
    let (key, rest) = rest.split_at_checked(usize::from(*len))?;
    let [VALUE, outer @ ..ONE_BYTE, STRING_VALUE, inner @ ..ONE_BYTE, value @ ..] = rest else {
        return None;
    };
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
