//! The configuration that an agent says it runs.

use std::iter::FusedIterator;

use xxhash_rust::xxh3;

use super::{PeekErrorKind, bytes, text};
use crate::wire::{Fields, Merged};

/// How many files an effective config may have. Collectors send one, bridges a handful.
pub const MAX_CONFIG_FILES: usize = 1_024;

/// How long a file's name may be, in bytes: what a path may be on Linux.
pub const MAX_FILE_NAME_BYTES: usize = 4_096;

/// An `EffectiveConfig`.
#[derive(Clone, Copy, Debug)]
pub struct EffectiveConfig<'m> {
    fields: Merged<'m>,
}

impl<'m> EffectiveConfig<'m> {
    pub(super) fn check(fields: Merged<'m>) -> Result<Self, PeekErrorKind> {
        let mut files = Files::new(fields);
        let mut count = 0;
        while let Some((name, _)) = files.advance()? {
            count += 1;
            if count > MAX_CONFIG_FILES {
                return Err(PeekErrorKind::ConfigFiles);
            }
            if name.len() > MAX_FILE_NAME_BYTES {
                return Err(PeekErrorKind::ConfigFileName { len: name.len() });
            }
        }
        Ok(Self { fields })
    }

    /// Name and body of each file, in the order in which they were written, which says nothing: it
    /// is a map's. Of a name that occurs twice a map would keep the last.
    pub fn files(&self) -> Files<'m> {
        Files::new(self.fields)
    }

    /// Tells two effective configs apart by their names and bodies (XXH3-128), whatever order the
    /// files are in. 0 when there are none.
    pub fn digest(&self) -> u128 {
        self.files().fold(0_u128, |sum, (name, body)| {
            sum.wrapping_add(xxh3::xxh3_128_with_seed(body, xxh3::xxh3_64(name.as_bytes())))
        })
    }
}

/// The files of an [`EffectiveConfig`].
#[derive(Clone, Debug)]
pub struct Files<'m> {
    maps: Merged<'m>,
    entries: Fields<'m>,
}

impl<'m> Files<'m> {
    fn new(maps: Merged<'m>) -> Self {
        Self { maps, entries: Fields::new(&[]) }
    }

    fn advance(&mut self) -> Result<Option<(&'m str, &'m [u8])>, PeekErrorKind> {
        loop {
            while let Some((field, value)) = self.entries.next()? {
                if field == 1 {
                    let entry = bytes(value, "effective_config.config_map.config_map")?;
                    return file(entry).map(Some);
                }
            }
            // A config_map in several pieces holds the entries of all of them.
            match self.maps.next()? {
                Some((1, value)) => {
                    self.entries = Fields::new(bytes(value, "effective_config.config_map")?);
                }
                Some(_) => {}
                None => return Ok(None),
            }
        }
    }
}

impl<'m> Iterator for Files<'m> {
    type Item = (&'m str, &'m [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        // `EffectiveConfig::check` has read all of it, so an error is the end that cannot come.
        self.advance().ok().flatten()
    }
}

impl FusedIterator for Files<'_> {}

/// Name and body of a map's entry.
fn file(entry: &[u8]) -> Result<(&str, &[u8]), PeekErrorKind> {
    let mut name = "";
    let mut body: &[u8] = &[];
    let mut fields = Fields::new(entry);
    while let Some((field, value)) = fields.next()? {
        match field {
            1 => name = text(value, "a file name in effective_config")?,
            2 => {
                let mut parts = Fields::new(bytes(value, "a file in effective_config")?);
                while let Some((field, value)) = parts.next()? {
                    if field == 1 {
                        body = bytes(value, "the body of a file in effective_config")?;
                    }
                }
            }
            _ => {}
        }
    }
    Ok((name, body))
}
