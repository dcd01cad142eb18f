//! The attributes that an agent describes itself by.

use std::iter::FusedIterator;

use super::{PeekErrorKind, bytes, text};
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
fn key_value(body: &[u8]) -> Result<(&str, Option<&str>), PeekErrorKind> {
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
