//! JSON with its positions, for a strict reader that reports every fault at once.

use std::fmt;

use serde::Deserialize;
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::yaml::Pos;

/// A JSON document and the values in it that have not been looked at yet.
#[derive(Clone, Copy)]
pub(super) struct Json<'d> {
    document: &'d str,
    raw: &'d str,
}

/// A value taken apart by one level.
pub(super) enum Level<'d> {
    Object(Vec<(String, Json<'d>)>),
    Array(Vec<Json<'d>>),
    String(String),
    /// A number, a boolean or null, as written.
    Other(&'d str),
}

/// What serde says, and where.
pub(super) struct JsonError {
    pub(super) text: String,
    pub(super) at: Pos,
}

impl<'d> Json<'d> {
    /// Checks the whole document's syntax; nothing may follow it.
    pub(super) fn parse(document: &'d str) -> Result<Self, JsonError> {
        match serde_json::from_str::<&RawValue>(document) {
            Ok(raw) => Ok(Self { document, raw: raw.get() }),
            Err(error) => Err(JsonError {
                at: Pos {
                    line: u32::try_from(error.line()).unwrap_or(u32::MAX),
                    // 0 where the document ends with a line break.
                    column: u32::try_from(error.column().max(1)).unwrap_or(u32::MAX),
                },
                text: strip_position(&error),
            }),
        }
    }

    /// Where the value starts.
    pub(super) fn at(self) -> Pos {
        // A borrowed raw value is a slice of the document that it was read from.
        let offset = (self.raw.as_ptr() as usize).saturating_sub(self.document.as_ptr() as usize);
        let before = self.document.get(..offset).unwrap_or_default();
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
        let column = before[line_start..].chars().count() + 1;
        Pos {
            line: u32::try_from(line).unwrap_or(u32::MAX),
            column: u32::try_from(column).unwrap_or(u32::MAX),
        }
    }

    /// The value, one level deep. `Err` only for what serde refuses beyond syntax (a lone
    /// surrogate in a string).
    pub(super) fn level(self) -> Result<Level<'d>, String> {
        match self.raw.as_bytes().first() {
            Some(b'{') => {
                let Entries(entries) = serde_json::from_str(self.raw).map_err(text_of)?;
                Ok(Level::Object(
                    entries.into_iter().map(|(key, raw)| (key, self.child(raw))).collect(),
                ))
            }
            Some(b'[') => {
                let Items(items) = serde_json::from_str(self.raw).map_err(text_of)?;
                Ok(Level::Array(items.into_iter().map(|raw| self.child(raw)).collect()))
            }
            Some(b'"') => serde_json::from_str(self.raw).map(Level::String).map_err(text_of),
            _ => Ok(Level::Other(self.raw)),
        }
    }

    fn child(self, raw: &'d RawValue) -> Self {
        Self { document: self.document, raw: raw.get() }
    }
}

fn text_of(error: serde_json::Error) -> String {
    strip_position(&error)
}

/// serde_json ends its message with ` at line L column C`; we print our own position.
fn strip_position(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rfind(" at line ") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

struct Entries<'d>(Vec<(String, &'d RawValue)>);

struct Items<'d>(Vec<&'d RawValue>);

impl<'de: 'd, 'd> Deserialize<'de> for Entries<'d> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Vec<(String, &'de RawValue)>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(entries)
            }
        }
        deserializer.deserialize_map(Read).map(Entries)
    }
}

impl<'de: 'd, 'd> Deserialize<'de> for Items<'d> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Vec<&'de RawValue>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element()? {
                    items.push(item);
                }
                Ok(items)
            }
        }
        deserializer.deserialize_seq(Read).map(Items)
    }
}
