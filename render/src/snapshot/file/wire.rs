//! Numbers and texts of a snapshot file's body.

use bytes::Bytes;

use super::FileError;

/// Appends; a text or list past 4 GiB cannot occur below the file's own limit, and is refused.
#[derive(Default)]
pub(super) struct Writer {
    pub(super) out: Vec<u8>,
}

impl Writer {
    pub(super) fn byte(&mut self, byte: u8) {
        self.out.push(byte);
    }

    pub(super) fn u32(&mut self, number: u32) {
        self.out.extend_from_slice(&number.to_le_bytes());
    }

    pub(super) fn u64(&mut self, number: u64) {
        self.out.extend_from_slice(&number.to_le_bytes());
    }

    pub(super) fn count(&mut self, count: usize) -> Result<(), FileError> {
        let short = u32::try_from(count);
        self.u32(short.map_err(|_| FileError::TooLarge { bytes: count as u64 })?);
        Ok(())
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        self.count(bytes.len())?;
        self.out.extend_from_slice(bytes);
        Ok(())
    }

    pub(super) fn list<T>(
        &mut self,
        items: impl ExactSizeIterator<Item = T>,
        mut write: impl FnMut(&mut Self, T) -> Result<(), FileError>,
    ) -> Result<(), FileError> {
        self.count(items.len())?;
        for item in items {
            write(self, item)?;
        }
        Ok(())
    }
}

/// Takes from the front; running out is corruption, since the length was checked before.
pub(super) struct Reader {
    rest: Bytes,
}

const SHORT: FileError = FileError::Corrupt("a field reaches past the end");

impl Reader {
    pub(super) fn new(body: &Bytes) -> Self {
        Self { rest: body.clone() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], FileError> {
        let array = *self.rest.first_chunk().ok_or(SHORT)?;
        self.rest = self.rest.slice(N..);
        Ok(array)
    }

    pub(super) fn byte(&mut self) -> Result<u8, FileError> {
        Ok(self.array::<1>()?[0])
    }

    /// 0 or 1, and nothing else, so that one content has one encoding.
    pub(super) fn flag(&mut self) -> Result<bool, FileError> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(FileError::Corrupt("a flag that is neither 0 nor 1")),
        }
    }

    pub(super) fn u32(&mut self) -> Result<u32, FileError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, FileError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Shares the file's memory.
    pub(super) fn bytes(&mut self) -> Result<Bytes, FileError> {
        let length = self.u32()? as usize;
        if length > self.rest.len() {
            return Err(SHORT);
        }
        Ok(self.rest.split_to(length))
    }

    pub(super) fn text(&mut self) -> Result<String, FileError> {
        let bytes = self.bytes()?;
        let text = std::str::from_utf8(&bytes);
        Ok(text.map_err(|_| FileError::Corrupt("a text that is not UTF-8"))?.to_owned())
    }

    /// As many items as the count in front says. Room is made for what the bytes that are left can
    /// hold, whatever the count claims.
    pub(super) fn list<T, C: Extend<T> + Default>(
        &mut self,
        mut read: impl FnMut(&mut Self) -> Result<T, FileError>,
    ) -> Result<C, FileError> {
        let count = self.u32()?;
        // Every item takes a byte at least.
        if count as usize > self.rest.len() {
            return Err(SHORT);
        }
        let mut items = C::default();
        for _ in 0..count {
            items.extend(std::iter::once(read(self)?));
        }
        Ok(items)
    }

    pub(super) fn optional<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, FileError>,
    ) -> Result<Option<T>, FileError> {
        self.flag()?.then(|| read(self)).transpose()
    }
}
