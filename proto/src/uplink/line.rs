//! One collector in a batch of records: the body that is hot. Nothing is allocated to read it.

use super::body::take_key;
use super::fields::{put_count, put_ms, put_text, take, take_count, take_ms, take_text, take_u8};
use super::fields::{take_u16, take_u32};
use super::{FrameError, LINES_MAX, RIVALS_MAX, TEXT_BYTES_MAX};

/// What is known of one collector.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line<'f> {
    /// Index of a [`Key`](super::Key).
    pub key: u32,
    /// Which collector.
    pub identity: u128,
    /// Names the uid of its newest session; 0: unknown.
    pub uid: u32,
    /// It lacks a hash attribute.
    pub no_bucket: bool,
    /// What is known.
    pub record: Record,
    /// What is to be read of it, for those that are halted.
    pub texts: Option<Texts<'f>>,
    /// Its other live sessions at the replica that tells this: all of them.
    pub rivals: Rivals<'f>,
}

/// The record of evidence, as `render` defines it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// When it FAILED, and the name of the text.
    pub failed: Option<(Stamp, u32)>,
    /// When it APPLIED.
    pub applied: Option<Stamp>,
    /// What it runs.
    pub arm: Option<(Stamp, Reading)>,
    /// Its newest session.
    pub conn: Option<(Stamp, Conn)>,
    /// What else was seen.
    pub observed: Option<(Stamp, Observed)>,
    /// When it was last heard; 0: never.
    pub heard_ms: u64,
    /// When it first took the candidate.
    pub first_to_ms: Option<u64>,
    /// How often it was offered again.
    pub tries: u8,
}

/// A moment of a session, or a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// When the session began: 48 bits.
    pub epoch_ms: u64,
    /// Which process.
    pub incarnation: u32,
    /// Counts per process: 40 bits.
    pub n: u64,
}

/// What a collector runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// It is being given the candidate.
    Taking,
    /// The candidate.
    To,
    /// The base.
    From,
    /// Neither.
    Other,
    /// Not to be told.
    Unknown,
}

/// Whether a session goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conn {
    /// It does.
    Open,
    /// Its replica was drained.
    Drained,
    /// It ended without a word.
    Lost,
    /// The collector said farewell.
    Left,
}

/// Where a collector sits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seat {
    /// In the Cohort, by this stage first.
    Stage(u16),
    /// In the Tier, outside the Cohort.
    Control,
    /// Not in the Tier.
    Outside,
}

/// What else was seen of a collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observed {
    /// Where it sits.
    pub seat: Seat,
    /// It does not accept remote configuration.
    pub foreign: bool,
    /// As it last reported.
    pub healthy: Option<bool>,
}

/// What is to be read of a halted member. Each may be empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Texts<'f> {
    /// What it is called.
    pub label: &'f str,
    /// What version it is.
    pub version: &'f str,
    /// What it said.
    pub error: &'f str,
}

/// Live sessions beside the newest, and the names of their uids.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rivals<'f>(&'f [[u8; RIVAL_BYTES]]);

/// Lines of a batch: read one by one, so each may turn out to be none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Lines<'f> {
    count: usize,
    bytes: &'f [u8],
}

/// Writes [`Frame::Records`](super::Frame::Records) line by line.
#[derive(Debug)]
pub struct Writer<'o> {
    out: &'o mut Vec<u8>,
    at: usize,
    count: usize,
}

/// Most bytes of a line.
pub(super) const LINE_BYTES_MAX: usize = 4
    + 16
    + 4
    + 4
    + 5 * STAMP_BYTES
    + 4
    + 2
    + 6
    + 6
    + 1
    + 3 * (2 + TEXT_BYTES_MAX)
    + 2
    + RIVALS_MAX * RIVAL_BYTES;
/// A batch that holds so many bytes is full.
const BATCH_BYTES: usize = 256 << 10;
const STAMP_BYTES: usize = 15;
const RIVAL_BYTES: usize = STAMP_BYTES + 4;

const _: () = assert!(BATCH_BYTES + LINE_BYTES_MAX + 16 < super::FRAME_BYTES_MAX);

// What of a line is there. Never renumber.
const FAILED: u32 = 1;
const APPLIED: u32 = 1 << 1;
const ARM: u32 = 1 << 2;
const CONN: u32 = 1 << 3;
const OBSERVED: u32 = 1 << 4;
const FIRST_TO: u32 = 1 << 5;
const TEXTS: u32 = 1 << 6;
const RIVALS: u32 = 1 << 7;
const NO_BUCKET: u32 = 1 << 8;
const FOREIGN: u32 = 1 << 9;
const READING_AT: u32 = 10;
const CONN_AT: u32 = 13;
const SEAT_AT: u32 = 15;
const HEALTH_AT: u32 = 17;
const ALL: u32 = (1 << 19) - 1;

impl<'f> Rivals<'f> {
    /// Session and name of the uid of each.
    pub fn iter(&self) -> impl Iterator<Item = (Stamp, u32)> + use<'f> {
        self.0.iter().map_while(|bytes| {
            let rest = &mut &bytes[..];
            Some((take_stamp(rest).ok()?, take_u32(rest).ok()?))
        })
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'f> Lines<'f> {
    pub(super) fn read(rest: &mut &'f [u8]) -> Result<Self, FrameError> {
        let count = take_count(rest, LINES_MAX, "records")?;
        let bytes = std::mem::take(rest);
        Ok(Self { count, bytes })
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        put_count(self.count, out);
        out.extend_from_slice(self.bytes);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// One after another. What is behind the last one is an error too, and so is everything behind
    /// an error.
    pub fn iter(&self) -> impl Iterator<Item = Result<Line<'f>, FrameError>> + use<'f> {
        let Self { count, bytes } = *self;
        let mut rest = bytes;
        let mut left = Some(count);
        std::iter::from_fn(move || match left {
            None => None,
            Some(0) => {
                left = None;
                (!rest.is_empty()).then_some(Err(FrameError::TrailingBytes))
            }
            Some(more) => {
                let line = Line::read(&mut rest);
                left = line.is_ok().then_some(more - 1);
                Some(line)
            }
        })
    }
}

impl<'o> Writer<'o> {
    /// Begins a batch behind what is in `out`.
    pub fn new(seq: u64, out: &'o mut Vec<u8>) -> Self {
        let at = out.len();
        out.extend_from_slice(&[0; 4]);
        out.push(super::body::RECORDS);
        out.extend_from_slice(&seq.to_le_bytes());
        put_count(0, out);
        Self { out, at, count: 0 }
    }

    /// Adds one more. Must not be called when it [is full](Self::is_full).
    pub fn push(&mut self, line: &Line<'_>, rivals: &[(Stamp, u32)]) {
        line.write(rivals, self.out);
        self.count += 1;
    }

    /// Whether there is no room for one more.
    pub fn is_full(&self) -> bool {
        self.count >= LINES_MAX || self.out.len() - self.at >= BATCH_BYTES
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Ends the batch; takes it back when there is nothing in it. How many there are.
    pub fn finish(self) -> usize {
        if self.count == 0 {
            self.out.truncate(self.at);
            return 0;
        }
        let length = u32::try_from(self.out.len() - self.at - 4).unwrap_or(u32::MAX);
        self.out[self.at..self.at + 4].copy_from_slice(&length.to_le_bytes());
        let count = u16::try_from(self.count).unwrap_or(u16::MAX).to_le_bytes();
        self.out[self.at + 13..self.at + 15].copy_from_slice(&count);
        self.count
    }
}

impl<'f> Line<'f> {
    // hot: for each record that an aggregator takes in; must not allocate.
    #[inline]
    fn read(rest: &mut &'f [u8]) -> Result<Self, FrameError> {
        let key = take_key(rest)?;
        let identity = take(rest).map(u128::from_le_bytes)?;
        let uid = take_u32(rest)?;
        let flags = take_u32(rest)?;
        if flags & !ALL != 0 {
            return Err(FrameError::Value("record"));
        }
        let has = |bit: u32| flags & bit != 0;
        let failed = if has(FAILED) { Some((take_stamp(rest)?, take_u32(rest)?)) } else { None };
        let applied = if has(APPLIED) { Some(take_stamp(rest)?) } else { None };
        let arm = if has(ARM) { Some((take_stamp(rest)?, reading(flags)?)) } else { None };
        let conn = if has(CONN) { Some((take_stamp(rest)?, conn(flags))) } else { None };
        let observed = if has(OBSERVED) {
            let stamp = take_stamp(rest)?;
            Some((stamp, observed(flags, take_u16(rest)?)?))
        } else {
            None
        };
        let heard_ms = take_ms(rest)?;
        let first_to_ms = if has(FIRST_TO) { Some(take_ms(rest)?) } else { None };
        let tries = take_u8(rest)?;
        let record = Record { failed, applied, arm, conn, observed, heard_ms, first_to_ms, tries };
        let texts = if has(TEXTS) {
            Some(Texts {
                label: take_text(rest, TEXT_BYTES_MAX, "label")?,
                version: take_text(rest, TEXT_BYTES_MAX, "version")?,
                error: take_text(rest, TEXT_BYTES_MAX, "error")?,
            })
        } else {
            None
        };
        let rivals = if has(RIVALS) { take_rivals(rest)? } else { Rivals::default() };
        let no_bucket = has(NO_BUCKET);
        Ok(Self { key, identity, uid, no_bucket, record, texts, rivals })
    }

    fn write(&self, rivals: &[(Stamp, u32)], out: &mut Vec<u8>) {
        let Self { key, identity, uid, no_bucket, record, texts, rivals: read } = self;
        let has_rivals = !rivals.is_empty() || !read.is_empty();
        let mut flags = 0;
        for (bit, on) in [
            (FAILED, record.failed.is_some()),
            (APPLIED, record.applied.is_some()),
            (ARM, record.arm.is_some()),
            (CONN, record.conn.is_some()),
            (OBSERVED, record.observed.is_some()),
            (FIRST_TO, record.first_to_ms.is_some()),
            (TEXTS, texts.is_some()),
            (RIVALS, has_rivals),
            (NO_BUCKET, *no_bucket),
        ] {
            flags |= if on { bit } else { 0 };
        }
        flags |= record.arm.map_or(0, |(_, reading)| reading.bits() << READING_AT);
        flags |= record.conn.map_or(0, |(_, conn)| conn.bits() << CONN_AT);
        flags |= record.observed.map_or(0, |(_, observed)| observed.bits());
        out.extend_from_slice(&key.to_le_bytes());
        out.extend_from_slice(&identity.to_le_bytes());
        out.extend_from_slice(&uid.to_le_bytes());
        out.extend_from_slice(&flags.to_le_bytes());
        if let Some((stamp, error)) = record.failed {
            put_stamp(stamp, out);
            out.extend_from_slice(&error.to_le_bytes());
        }
        let bare = [
            record.applied,
            record.arm.map(|(stamp, _)| stamp),
            record.conn.map(|(stamp, _)| stamp),
        ];
        bare.into_iter().flatten().for_each(|stamp| put_stamp(stamp, out));
        if let Some((stamp, observed)) = record.observed {
            put_stamp(stamp, out);
            let stage = match observed.seat {
                Seat::Stage(stage) => stage,
                Seat::Control | Seat::Outside => 0,
            };
            out.extend_from_slice(&stage.to_le_bytes());
        }
        put_ms(record.heard_ms, out);
        record.first_to_ms.into_iter().for_each(|ms| put_ms(ms, out));
        out.push(record.tries);
        if let Some(Texts { label, version, error }) = texts {
            [label, version, error].iter().for_each(|text| put_text(text, TEXT_BYTES_MAX, out));
        }
        if has_rivals {
            let all = read.iter().chain(rivals.iter().copied()).take(RIVALS_MAX);
            let at = out.len();
            put_count(0, out);
            let mut count = 0_u16;
            for (stamp, uid) in all {
                put_stamp(stamp, out);
                out.extend_from_slice(&uid.to_le_bytes());
                count += 1;
            }
            out[at..at + 2].copy_from_slice(&count.to_le_bytes());
        }
    }
}

impl Reading {
    fn bits(self) -> u32 {
        match self {
            Self::Taking => 0,
            Self::To => 1,
            Self::From => 2,
            Self::Other => 3,
            Self::Unknown => 4,
        }
    }
}

impl Conn {
    fn bits(self) -> u32 {
        match self {
            Self::Open => 0,
            Self::Drained => 1,
            Self::Lost => 2,
            Self::Left => 3,
        }
    }
}

impl Observed {
    fn bits(self) -> u32 {
        let seat = match self.seat {
            Seat::Stage(_) => 0,
            Seat::Control => 1,
            Seat::Outside => 2,
        };
        let health = match self.healthy {
            None => 0,
            Some(false) => 1,
            Some(true) => 2,
        };
        seat << SEAT_AT | health << HEALTH_AT | if self.foreign { FOREIGN } else { 0 }
    }
}

fn reading(flags: u32) -> Result<Reading, FrameError> {
    Ok(match flags >> READING_AT & 7 {
        0 => Reading::Taking,
        1 => Reading::To,
        2 => Reading::From,
        3 => Reading::Other,
        4 => Reading::Unknown,
        _ => return Err(FrameError::Value("arm")),
    })
}

fn conn(flags: u32) -> Conn {
    match flags >> CONN_AT & 3 {
        0 => Conn::Open,
        1 => Conn::Drained,
        2 => Conn::Lost,
        _ => Conn::Left,
    }
}

fn observed(flags: u32, stage: u16) -> Result<Observed, FrameError> {
    let seat = match flags >> SEAT_AT & 3 {
        0 => Seat::Stage(stage),
        1 => Seat::Control,
        2 => Seat::Outside,
        _ => return Err(FrameError::Value("seat")),
    };
    let healthy = match flags >> HEALTH_AT & 3 {
        0 => None,
        1 => Some(false),
        2 => Some(true),
        _ => return Err(FrameError::Value("health")),
    };
    Ok(Observed { seat, foreign: flags & FOREIGN != 0, healthy })
}

fn take_stamp(rest: &mut &[u8]) -> Result<Stamp, FrameError> {
    let [e0, e1, e2, e3, e4, e5, i0, i1, i2, i3, n0, n1, n2, n3, n4] = take(rest)?;
    Ok(Stamp {
        epoch_ms: u64::from_le_bytes([e0, e1, e2, e3, e4, e5, 0, 0]),
        incarnation: u32::from_le_bytes([i0, i1, i2, i3]),
        n: u64::from_le_bytes([n0, n1, n2, n3, n4, 0, 0, 0]),
    })
}

fn put_stamp(Stamp { epoch_ms, incarnation, n }: Stamp, out: &mut Vec<u8>) {
    put_ms(epoch_ms, out);
    out.extend_from_slice(&incarnation.to_le_bytes());
    let [n0, n1, n2, n3, n4, _, _, _] = n.min((1 << 40) - 1).to_le_bytes();
    out.extend_from_slice(&[n0, n1, n2, n3, n4]);
}

fn take_rivals<'f>(rest: &mut &'f [u8]) -> Result<Rivals<'f>, FrameError> {
    let count = take_count(rest, RIVALS_MAX, "sessions")?;
    let bytes = super::fields::take_slice(rest, count * RIVAL_BYTES)?;
    Ok(Rivals(bytes.as_chunks().0))
}
