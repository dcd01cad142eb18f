//! The bodies of frames.

use super::fields::{
    put_count, put_text, take, take_count, take_slice, take_text, take_u8, take_u16, take_u32,
    take_u64,
};
use super::{
    Ack, Digests, Frame, FrameError, HALTED_LINES_MAX, HALTS_MAX, HEAD_LINES_MAX, HaltedLine,
    HaltedLines, Head, HeadLine, HeadLines, Hello, KEYS_MAX, Kept, Key, Lines, NAME_BYTES_MAX,
    OFFERED_MAX, Records, State, TEXT_BYTES_MAX, Welcome,
};

// Never renumber.
const HELLO: u8 = 1;
const WELCOME: u8 = 2;
const REFUSE: u8 = 3;
const KEY: u8 = 4;
const HEAD: u8 = 5;
const ALIVE: u8 = 6;
pub(super) const RECORDS: u8 = 7;
const ACK: u8 = 8;
const SYNC_BEGIN: u8 = 9;
const SYNC_END: u8 = 10;
const HALTED: u8 = 11;
const STATE: u8 = 12;
const BYE: u8 = 13;

/// What a Hello begins with.
const MAGIC: [u8; 4] = *b"TDGU";
/// From this format on, a head says how many collectors are awaited.
const AWAITED: u16 = 2;

/// Reads what is between two lengths.
pub(super) fn read(frame: &[u8], format: u16) -> Result<Frame<'_>, FrameError> {
    let rest = &mut &*frame;
    let kind = take_u8(rest)?;
    let frame = match kind {
        HELLO => {
            let hello = read_hello(rest)?;
            // A later format may say more here.
            *rest = &[];
            Frame::Hello(hello)
        }
        WELCOME => Frame::Welcome(read_welcome(rest)?),
        REFUSE => {
            let reason = take_text(rest, TEXT_BYTES_MAX, "reason")?;
            *rest = &[];
            Frame::Refuse(reason)
        }
        KEY => Frame::Key(read_key(rest)?),
        HEAD => Frame::Head(read_head(rest, format)?),
        ALIVE => Frame::Alive,
        RECORDS => {
            let seq = take_u64(rest)?;
            Frame::Records(Records { seq, lines: Lines::read(rest)? })
        }
        ACK => Frame::Ack(Ack { seq: take_u64(rest)?, kept: read_kept(take_u8(rest)?)? }),
        SYNC_BEGIN => Frame::SyncBegin,
        SYNC_END => Frame::SyncEnd { seq: take_u64(rest)? },
        HALTED => {
            let count = take_count(rest, HALTED_LINES_MAX, "halted")?;
            let bytes = *rest;
            (0..count).try_for_each(|_| read_halted_line(rest, format).map(drop))?;
            Frame::Halted(HaltedLines { format, count, bytes: before(bytes, rest) })
        }
        STATE => {
            let key = take_key(rest)?;
            let judged = read_digests(rest, format)?;
            Frame::State(State { key, judged, braked: read_digests(rest, format)? })
        }
        BYE => Frame::Bye,
        kind => return Err(FrameError::Kind(kind)),
    };
    if rest.is_empty() { Ok(frame) } else { Err(FrameError::TrailingBytes) }
}

fn read_hello<'f>(rest: &mut &'f [u8]) -> Result<Hello<'f>, FrameError> {
    if take::<4>(rest).ok() != Some(MAGIC) {
        return Err(FrameError::Magic);
    }
    let count = take_count(rest, OFFERED_MAX, "formats")?;
    let formats = take_slice(rest, count * 2)?;
    Ok(Hello {
        formats,
        name: take_text(rest, NAME_BYTES_MAX, "name")?,
        incarnation: take_u32(rest)?,
        started_ms: take_u64(rest)?,
        now_ms: take_u64(rest)?,
    })
}

fn read_welcome<'f>(rest: &mut &'f [u8]) -> Result<Welcome<'f>, FrameError> {
    Ok(Welcome {
        format: take_u16(rest)?,
        name: take_text(rest, NAME_BYTES_MAX, "name")?,
        incarnation: take_u32(rest)?,
        now_ms: take_u64(rest)?,
    })
}

fn read_key<'f>(rest: &mut &'f [u8]) -> Result<Key<'f>, FrameError> {
    let index = take_key(rest)?;
    let rollout = take_text(rest, NAME_BYTES_MAX, "rollout")?;
    let origin = take_text(rest, NAME_BYTES_MAX, "origin")?;
    let (candidate, tail) = rest.split_first_chunk().ok_or(FrameError::Truncated)?;
    *rest = tail;
    Ok(Key { index, rollout, origin: Some(origin).filter(|text| !text.is_empty()), candidate })
}

fn read_head<'f>(rest: &mut &'f [u8], format: u16) -> Result<Head<'f>, FrameError> {
    let commit = take_text(rest, NAME_BYTES_MAX, "commit")?;
    let count = take_count(rest, HEAD_LINES_MAX, "head")?;
    let bytes = *rest;
    (0..count).try_for_each(|_| read_head_line(rest, format).map(drop))?;
    Ok(Head { commit, lines: HeadLines { format, count, bytes: before(bytes, rest) } })
}

pub(super) fn read_head_line(rest: &mut &[u8], format: u16) -> Result<HeadLine, FrameError> {
    Ok(HeadLine {
        key: take_key(rest)?,
        stage: take_u32(rest)?,
        cohorts: take_u64(rest)?,
        halt: take_u64(rest)?,
        awaited: if format >= AWAITED { take_u64(rest)? } else { 0 },
    })
}

pub(super) fn read_halted_line(rest: &mut &[u8], _: u16) -> Result<HaltedLine, FrameError> {
    let key = take_key(rest)?;
    let identity = take(rest).map(u128::from_le_bytes)?;
    let [failed, tries] = take(rest)?;
    let tries = match (failed, tries) {
        (0, 0) => None,
        (1, tries) => Some(tries),
        _ => return Err(FrameError::Value("halted")),
    };
    Ok(HaltedLine { key, identity, tries })
}

fn read_digests<'f>(rest: &mut &'f [u8], format: u16) -> Result<Digests<'f>, FrameError> {
    let count = take_count(rest, HALTS_MAX, "digests")?;
    Ok(Digests { format, count, bytes: take_slice(rest, count * 8)? })
}

pub(super) fn read_digest(rest: &mut &[u8], _: u16) -> Result<u64, FrameError> {
    take_u64(rest)
}

fn read_kept(value: u8) -> Result<Kept, FrameError> {
    match value {
        0 => Ok(Kept::Stored),
        1 => Ok(Kept::Memory),
        2 => Ok(Kept::Failed),
        _ => Err(FrameError::Value("ack")),
    }
}

pub(super) fn take_key(rest: &mut &[u8]) -> Result<u32, FrameError> {
    let key = take_u32(rest)?;
    if key < KEYS_MAX { Ok(key) } else { Err(FrameError::Limit("key")) }
}

/// What of `all` was read when `rest` is left.
fn before<'f>(all: &'f [u8], rest: &[u8]) -> &'f [u8] {
    &all[..all.len() - rest.len()]
}

pub(super) fn write(frame: &Frame<'_>, format: u16, out: &mut Vec<u8>) {
    match frame {
        Frame::Hello(Hello { formats, name, incarnation, started_ms, now_ms }) => {
            out.push(HELLO);
            out.extend_from_slice(&MAGIC);
            let formats = &formats[..formats.len().min(OFFERED_MAX * 2) & !1];
            put_count(formats.len() / 2, out);
            out.extend_from_slice(formats);
            put_text(name, NAME_BYTES_MAX, out);
            out.extend_from_slice(&incarnation.to_le_bytes());
            out.extend_from_slice(&started_ms.to_le_bytes());
            out.extend_from_slice(&now_ms.to_le_bytes());
        }
        Frame::Welcome(Welcome { format, name, incarnation, now_ms }) => {
            out.push(WELCOME);
            out.extend_from_slice(&format.to_le_bytes());
            put_text(name, NAME_BYTES_MAX, out);
            out.extend_from_slice(&incarnation.to_le_bytes());
            out.extend_from_slice(&now_ms.to_le_bytes());
        }
        Frame::Refuse(reason) => {
            out.push(REFUSE);
            put_text(reason, TEXT_BYTES_MAX, out);
        }
        Frame::Key(Key { index, rollout, origin, candidate }) => {
            out.push(KEY);
            out.extend_from_slice(&index.to_le_bytes());
            put_text(rollout, NAME_BYTES_MAX, out);
            put_text(origin.unwrap_or_default(), NAME_BYTES_MAX, out);
            out.extend_from_slice(&candidate[..]);
        }
        Frame::Head(Head { commit, lines }) => {
            let all: Vec<HeadLine> = lines.iter().collect();
            write_head(commit, all.into_iter(), format, out);
        }
        Frame::Alive => out.push(ALIVE),
        Frame::Records(Records { seq, lines }) => {
            out.push(RECORDS);
            out.extend_from_slice(&seq.to_le_bytes());
            lines.write(out);
        }
        Frame::Ack(Ack { seq, kept }) => {
            out.push(ACK);
            out.extend_from_slice(&seq.to_le_bytes());
            out.push(match kept {
                Kept::Stored => 0,
                Kept::Memory => 1,
                Kept::Failed => 2,
            });
        }
        Frame::SyncBegin => out.push(SYNC_BEGIN),
        Frame::SyncEnd { seq } => {
            out.push(SYNC_END);
            out.extend_from_slice(&seq.to_le_bytes());
        }
        Frame::Halted(lines) => {
            let all: Vec<HaltedLine> = lines.iter().collect();
            write_halted(&all, out);
        }
        Frame::State(State { key, judged, braked }) => {
            let [judged, braked] = [judged, braked].map(|list| list.iter().collect::<Vec<u64>>());
            write_state(*key, &judged, &braked, out);
        }
        Frame::Bye => out.push(BYE),
    }
}

pub(super) fn write_head(
    commit: &str,
    lines: impl ExactSizeIterator<Item = HeadLine>,
    format: u16,
    out: &mut Vec<u8>,
) {
    out.push(HEAD);
    put_text(commit, NAME_BYTES_MAX, out);
    let count = lines.len().min(HEAD_LINES_MAX);
    put_count(count, out);
    for HeadLine { key, stage, cohorts, halt, awaited } in lines.take(count) {
        out.extend_from_slice(&key.to_le_bytes());
        out.extend_from_slice(&stage.to_le_bytes());
        out.extend_from_slice(&cohorts.to_le_bytes());
        out.extend_from_slice(&halt.to_le_bytes());
        if format >= AWAITED {
            out.extend_from_slice(&awaited.to_le_bytes());
        }
    }
}

pub(super) fn write_halted(lines: &[HaltedLine], out: &mut Vec<u8>) {
    out.push(HALTED);
    let lines = &lines[..lines.len().min(HALTED_LINES_MAX)];
    put_count(lines.len(), out);
    for HaltedLine { key, identity, tries } in lines {
        out.extend_from_slice(&key.to_le_bytes());
        out.extend_from_slice(&identity.to_le_bytes());
        out.extend_from_slice(&[u8::from(tries.is_some()), tries.unwrap_or(0)]);
    }
}

pub(super) fn write_state(key: u32, judged: &[u64], braked: &[u64], out: &mut Vec<u8>) {
    out.push(STATE);
    out.extend_from_slice(&key.to_le_bytes());
    for list in [judged, braked] {
        let list = &list[..list.len().min(HALTS_MAX)];
        put_count(list.len(), out);
        list.iter().for_each(|digest| out.extend_from_slice(&digest.to_le_bytes()));
    }
}
