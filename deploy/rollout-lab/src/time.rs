//! Time and ids as arguments: a clock that is told the time, ids from a seed.

use std::fmt;

use serde::{Serialize, Serializer};

/// A moment, in microseconds since 1970-01-01T00:00:00Z.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Utc(pub i64);

/// Microseconds in a second.
pub const SECOND: i64 = 1_000_000;

impl Utc {
    /// The moment `seconds` later.
    #[must_use]
    pub fn plus_seconds(self, seconds: i64) -> Self {
        Self(self.0.saturating_add(seconds.saturating_mul(SECOND)))
    }

    /// The moment an RFC 3339 text names.
    ///
    /// # Errors
    /// The parser's own words when the text names none.
    pub fn parse(text: &str) -> Result<Self, String> {
        let parsed: jiff::Timestamp = text.parse().map_err(|error| format!("{error}"))?;
        Ok(Self(parsed.as_microsecond()))
    }

    pub(crate) fn timestamp(self) -> jiff::Timestamp {
        let (least, most) = (jiff::Timestamp::MIN, jiff::Timestamp::MAX);
        let held = self.0.clamp(least.as_microsecond(), most.as_microsecond());
        jiff::Timestamp::from_microsecond(held).unwrap_or(most)
    }
}

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6}", self.timestamp())
    }
}

impl Serialize for Utc {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The store's clock: told the time, never asks for it.
///
/// Every reading moves it by `step`, so that two writes have two timestamps. A step of zero is the
/// frozen clock under which the baseline's guard cannot see a stale writer.
#[derive(Debug, Clone)]
pub struct Clock {
    now: Utc,
    step: i64,
}

impl Clock {
    /// A clock at `now` that moves by `step` microseconds with every reading.
    pub fn new(now: Utc, step: i64) -> Self {
        Self { now, step: step.max(0) }
    }

    /// Moves the clock to `now`; a caller with a real clock does it before every operation.
    pub fn set(&mut self, now: Utc) {
        self.now = now;
    }

    /// The time, without moving on.
    pub fn peek(&self) -> Utc {
        self.now
    }

    pub(crate) fn read(&mut self) -> Utc {
        let now = self.now;
        self.now = Utc(now.0.saturating_add(self.step));
        now
    }
}

/// The id of any object: a version 4 UUID, ordered as its text is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(u128);

impl Id {
    /// The UUID with these bits, its version and variant put in.
    pub fn from_bits(bits: u128) -> Self {
        Self((bits & !(0xf000 << 64) & !(0xc << 60)) | (0x4000 << 64) | (0x8 << 60))
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = self.0;
        write!(
            f,
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            bits >> 96,
            (bits >> 80) & 0xffff,
            (bits >> 64) & 0xffff,
            (bits >> 48) & 0xffff,
            bits & 0xffff_ffff_ffff
        )
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Where ids come from: the same seed makes the same ids.
#[derive(Debug, Clone)]
pub struct Ids(fastrand::Rng);

impl Ids {
    /// Ids of this seed.
    pub fn seeded(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    pub(crate) fn next(&mut self) -> Id {
        Id::from_bits(self.0.u128(..))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_a_version_4_uuid_ordered_as_its_text() {
        let mut ids = Ids::seeded(7);
        let mut made: Vec<Id> = (0..100).map(|_| ids.next()).collect();
        for id in &made {
            let text = id.to_string();
            assert_eq!(text.len(), 36);
            assert_eq!(&text[14..15], "4");
            assert!(matches!(&text[19..20], "8" | "9" | "a" | "b"), "{text}");
        }
        made.sort();
        assert!(made.iter().map(Id::to_string).collect::<Vec<_>>().is_sorted());
    }

    #[test]
    fn a_moment_is_written_with_its_microseconds() {
        let noon = Utc::parse("2026-01-05T12:00:00Z").unwrap();
        assert_eq!(Utc(noon.0 + 1).to_string(), "2026-01-05T12:00:00.000001Z");
        assert_eq!(noon.to_string(), "2026-01-05T12:00:00.000000Z");
        assert!(Utc::parse("noon").is_err());
    }
}
