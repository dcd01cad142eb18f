//! The WebSocket decoder says of a stream in pieces what a slow one says of it as a whole.

use proto::ws::{Decoder, Event, Input, Limits, Violation};

/// An event that is not borrowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// A message.
    Message(Vec<u8>),
    /// A ping.
    Ping(Vec<u8>),
    /// A pong.
    Pong(Vec<u8>),
    /// A close.
    Close(Option<u16>, String),
}

/// What came of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// In order.
    pub(crate) said: Vec<Said>,
    /// The end, if it was one.
    pub(crate) violation: Option<Violation>,
    /// Nothing has begun that is not finished.
    pub(crate) idle: bool,
}

/// The first byte of `data` chooses the limit, the second how the rest is cut into pieces.
pub(crate) fn run(data: &[u8]) {
    let [limit, cut, stream @ ..] = data else { return };
    let limits = Limits { message_bytes: usize::from(*limit) * 8 };
    let cut = usize::from(*cut);
    let sizes = (0..).map(|turn| 1 + (cut * (turn + 1)) % 97);
    assert_eq!(in_pieces(stream, sizes, limits), as_a_whole(stream, limits));
}

/// Feeds `stream` to the decoder, cut into pieces of those sizes.
pub(crate) fn in_pieces(
    stream: &[u8],
    sizes: impl IntoIterator<Item = usize>,
    limits: Limits,
) -> Outcome {
    let mut outcome = Outcome::default();
    let mut parked: Option<Box<Decoder>> = None;
    let mut left = stream;
    let mut sizes = sizes.into_iter();
    let mut arrived = 0;
    while !left.is_empty() {
        let size = sizes.next().unwrap_or(left.len()).clamp(1, left.len());
        let (piece, rest) = left.split_at(size);
        left = rest;
        arrived += size;

        let mut scratch = piece.to_vec();
        let mut input = Input::new(&mut scratch);
        let mut decoder = parked.take().map_or_else(Decoder::default, |parked| *parked);
        loop {
            match decoder.poll_event(&mut input, limits) {
                Ok(Some(Event::Message(payload))) => {
                    outcome.said.push(Said::Message(payload.to_vec()));
                }
                Ok(Some(Event::Ping(payload))) => outcome.said.push(Said::Ping(payload.to_vec())),
                Ok(Some(Event::Pong(payload))) => outcome.said.push(Said::Pong(payload.to_vec())),
                Ok(Some(Event::Close(close))) => {
                    outcome.said.push(Said::Close(close.code, close.reason.to_owned()));
                    return outcome;
                }
                Ok(None) => break,
                Err(violation) => {
                    outcome.violation = Some(violation);
                    return outcome;
                }
            }
        }
        assert!(decoder.held_bytes() <= 2 * arrived + 16 * 1024, "{}", decoder.held_bytes());
        if !decoder.is_idle() {
            parked = Some(Box::new(decoder));
        }
    }
    outcome.idle = parked.is_none();
    outcome
}

/// The slow reading of the whole stream.
pub(crate) fn as_a_whole(stream: &[u8], limits: Limits) -> Outcome {
    let mut outcome = Outcome::default();
    let mut message: Option<Vec<u8>> = None;
    let mut at = 0;
    while at < stream.len() {
        let Some(end) = frame(stream, at, limits, &mut message, &mut outcome) else {
            return outcome;
        };
        at = end;
    }
    outcome.idle = message.is_none();
    outcome
}

/// Reads the frame at `at`; `None` if it ends the stream.
fn frame(
    stream: &[u8],
    at: usize,
    limits: Limits,
    message: &mut Option<Vec<u8>>,
    outcome: &mut Outcome,
) -> Option<usize> {
    let byte = |offset: usize| stream.get(at + offset).copied();
    let number = |from: usize, to: usize| -> Option<u64> {
        (from..to).try_fold(0, |sum, offset| Some(sum << 8 | u64::from(byte(offset)?)))
    };
    let mut refuse = |violation| {
        outcome.violation = Some(violation);
        None
    };

    let first = byte(0)?;
    let (fin, opcode, control) = (first >= 0x80, first & 0x0f, first & 0x08 != 0);
    if first & 0x70 != 0 {
        return refuse(Violation::ReservedBits);
    }
    if opcode == 1 {
        return refuse(Violation::Text);
    }
    if ![0, 2, 8, 9, 10].contains(&opcode) {
        return refuse(Violation::ReservedOpcode);
    }
    if control && !fin {
        return refuse(Violation::FragmentedControl);
    }
    let second = byte(1)?;
    if second < 0x80 {
        return refuse(Violation::Unmasked);
    }
    if control && second - 0x80 > 125 {
        return refuse(Violation::LongControl);
    }
    let (len, mask_at) = match second - 0x80 {
        126 => (number(2, 4)?, 4),
        127 => (number(2, 10)?, 10),
        short => (u64::from(short), 2),
    };
    let shortest = match mask_at {
        2 => true,
        4 => len > 125,
        _ => len > 0xffff && len <= i64::MAX as u64,
    };
    if !shortest {
        return refuse(Violation::Length);
    }
    number(mask_at, mask_at + 4)?;
    let mask = &stream[at + mask_at..at + mask_at + 4];

    if !control {
        match (opcode, &message) {
            (0, None) => return refuse(Violation::Continuation),
            (2, Some(_)) => return refuse(Violation::Interleaved),
            (_, message) => {
                let had = message.as_ref().map_or(0, Vec::len);
                if len as u128 + had as u128 > limits.message_bytes as u128 {
                    return refuse(Violation::TooBig);
                }
            }
        }
    }

    let start = at + mask_at + 4;
    let end = start.checked_add(usize::try_from(len).ok()?)?;
    let payload: Vec<u8> =
        stream.get(start..end)?.iter().zip(mask.iter().cycle()).map(|(a, b)| a ^ b).collect();
    match opcode {
        8 => {
            match payload[..] {
                [] => outcome.said.push(Said::Close(None, String::new())),
                [_] => outcome.violation = Some(Violation::CloseLength),
                [high, low, ref reason @ ..] => {
                    let code = u16::from_be_bytes([high, low]);
                    let sendable = (1000..1015).contains(&code) && !(1004..1007).contains(&code);
                    match String::from_utf8(reason.to_vec()) {
                        _ if !sendable && !(3000..5000).contains(&code) => {
                            outcome.violation = Some(Violation::CloseCode);
                        }
                        Ok(reason) => outcome.said.push(Said::Close(Some(code), reason)),
                        Err(_) => outcome.violation = Some(Violation::CloseReason),
                    }
                }
            }
            return None;
        }
        9 => outcome.said.push(Said::Ping(payload)),
        10 => outcome.said.push(Said::Pong(payload)),
        _ => {
            let mut whole = message.take().unwrap_or_default();
            whole.extend(payload);
            if fin {
                outcome.said.push(Said::Message(whole));
            } else {
                *message = Some(whole);
            }
        }
    }
    Some(end)
}
