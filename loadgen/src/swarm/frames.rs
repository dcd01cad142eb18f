//! RFC 6455 framing for the client's side of a WebSocket, sans-IO: frames of a server in, frames for
//! it out. Written for this crate, so that a fault of the gateway's own framing cannot hide in both.

/// gorilla's write buffer: opamp-go sends longer messages in frames of this size (serving.md 3.1).
const FRAME_MAX: usize = 4_096;

/// Payload of a control frame, at most (RFC 6455, 5.5).
const CONTROL_MAX: usize = 125;

const CONTINUATION: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// What a server says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event<'b> {
    /// A whole message, and what it was on the wire.
    Binary(&'b [u8], usize),
    /// A whole message of the kind that OpAMP does not use.
    Text(usize),
    /// To be answered with the same bytes.
    Ping(&'b [u8], usize),
    /// Asked for or not.
    Pong,
    /// The last frame; 1005 where it carries no code.
    Close(u16),
}

/// What a link keeps while something has not arrived whole, or cannot be sent.
#[derive(Debug, Default)]
pub(crate) struct Partial {
    /// Begins with a frame's header.
    pub(crate) input: Vec<u8>,
    /// The frames of a message so far, without headers.
    message: Vec<u8>,
    /// What they were on the wire; 0 is none.
    wire: usize,
    text: bool,
    /// To be written before anything else.
    pub(crate) output: Vec<u8>,
}

impl Partial {
    /// Whether there is nothing to keep.
    pub(crate) fn is_empty(&self) -> bool {
        self.input.is_empty() && self.wire == 0 && self.output.is_empty()
    }
}

/// A frame at the beginning of some bytes.
struct Frame {
    fin: bool,
    opcode: u8,
    header: usize,
    payload: usize,
}

impl Frame {
    /// `None` while it is not whole.
    fn read(bytes: &[u8], message_max: usize) -> Result<Option<Self>, &'static str> {
        let [first, second, rest @ ..] = bytes else { return Ok(None) };
        if first & 0x70 != 0 {
            return Err("a frame with reserved bits");
        }
        if second & 0x80 != 0 {
            return Err("a masked frame from a server");
        }
        let (extended, payload) = match second & 0x7f {
            126 => match rest {
                [a, b, ..] => (2, usize::from(u16::from_be_bytes([*a, *b]))),
                _ => return Ok(None),
            },
            127 => match rest.first_chunk::<8>() {
                Some(length) => {
                    (8, usize::try_from(u64::from_be_bytes(*length)).unwrap_or(usize::MAX))
                }
                None => return Ok(None),
            },
            short => (0, usize::from(short)),
        };
        if payload > message_max {
            return Err("a message that is too long");
        }
        let frame =
            Self { fin: first & 0x80 != 0, opcode: first & 0x0f, header: 2 + extended, payload };
        if frame.opcode >= CLOSE && (!frame.fin || payload > CONTROL_MAX) {
            return Err("a control frame that is long or in parts");
        }
        Ok((bytes.len() >= frame.header + payload).then_some(frame))
    }
}

/// Takes the next event off `bytes`, which begins with a frame, and says how many bytes it took;
/// `None` while more is needed, with the bytes that are used up all the same.
///
/// # Errors
///
/// What the server does that the protocol forbids; the link is over then.
pub(crate) fn next<'b>(
    bytes: &'b [u8],
    partial: &'b mut Option<Box<Partial>>,
    message_max: usize,
) -> Result<(Option<Event<'b>>, usize), &'static str> {
    let mut used = 0;
    loop {
        let rest = bytes.get(used..).unwrap_or_default();
        let Some(frame) = Frame::read(rest, message_max)? else { return Ok((None, used)) };
        let size = frame.header + frame.payload;
        let payload = rest.get(frame.header..size).unwrap_or_default();
        used += size;
        let event = match frame.opcode {
            CLOSE => match payload {
                [] => Event::Close(1005),
                [_] => return Err("a close frame with half a code"),
                [a, b, ..] => Event::Close(u16::from_be_bytes([*a, *b])),
            },
            PING => Event::Ping(payload, size),
            PONG => Event::Pong,
            TEXT | BINARY => {
                if partial.as_ref().is_some_and(|partial| partial.wire > 0) {
                    return Err("a message within a message");
                }
                let text = frame.opcode == TEXT;
                if !frame.fin {
                    let partial = partial.get_or_insert_default();
                    partial.text = text;
                    partial.wire = size;
                    partial.message.clear();
                    partial.message.extend_from_slice(payload);
                    continue;
                }
                if text { Event::Text(size) } else { Event::Binary(payload, size) }
            }
            CONTINUATION => {
                let begun = partial.as_deref_mut().filter(|partial| partial.wire > 0);
                let Some(begun) = begun else { return Err("a continuation of nothing") };
                if begun.message.len() + payload.len() > message_max {
                    return Err("a message that is too long");
                }
                begun.message.extend_from_slice(payload);
                begun.wire += size;
                if !frame.fin {
                    continue;
                }
                let wire = std::mem::take(&mut begun.wire);
                let text = begun.text;
                // Looked up again: the borrow above ends with each round.
                let message = partial.as_ref().map_or(&[][..], |partial| &partial.message);
                if text { Event::Text(wire) } else { Event::Binary(message, wire) }
            }
            _ => return Err("a frame of an unknown kind"),
        };
        return Ok((Some(event), used));
    }
}

/// Appends a binary message: header 0 and protobuf, in frames of at most [`FRAME_MAX`].
pub(crate) fn write_message(out: &mut Vec<u8>, protobuf: &[u8], rng: &mut fastrand::Rng) {
    // The OpAMP header is a byte of its own in front of the first frame's payload.
    let mut rest = protobuf;
    let mut opcode = BINARY;
    let mut lead: &[u8] = &[0];
    loop {
        let room = FRAME_MAX - lead.len();
        let (now, later) = rest.split_at(rest.len().min(room));
        write_frame(out, later.is_empty(), opcode, lead, now, rng.u32(..));
        if later.is_empty() {
            return;
        }
        (rest, opcode, lead) = (later, CONTINUATION, &[]);
    }
}

/// How many bytes [`write_message`] puts in front of the first one of that many of protobuf.
pub(crate) fn before_message(protobuf: usize) -> usize {
    let first = (protobuf + 1).min(FRAME_MAX);
    let extended = if first < 126 { 0 } else { 2 };
    2 + extended + 4 + 1 // the frame's header, its mask, OpAMP's header
}

/// Appends a pong.
pub(crate) fn write_pong(out: &mut Vec<u8>, payload: &[u8], rng: &mut fastrand::Rng) {
    write_frame(out, true, PONG, &[], payload, rng.u32(..));
}

/// Appends a close.
pub(crate) fn write_close(out: &mut Vec<u8>, code: u16, rng: &mut fastrand::Rng) {
    write_frame(out, true, CLOSE, &[], &code.to_be_bytes(), rng.u32(..));
}

fn write_frame(out: &mut Vec<u8>, fin: bool, opcode: u8, lead: &[u8], payload: &[u8], mask: u32) {
    let length = lead.len() + payload.len();
    out.push(opcode | if fin { 0x80 } else { 0 });
    match u16::try_from(length) {
        // Nothing longer than FRAME_MAX is written.
        Ok(short @ 0..126) => out.push(0x80 | short.to_le_bytes()[0]),
        Ok(long) => {
            out.push(0x80 | 126);
            out.extend_from_slice(&long.to_be_bytes());
        }
        Err(_) => {
            out.push(0x80 | 127);
            out.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(&mask.to_ne_bytes());
    let from = out.len();
    out.extend_from_slice(lead);
    out.extend_from_slice(payload);
    let masked = out.get_mut(from..).unwrap_or_default();
    let mask = u128::from_ne_bytes(std::array::from_fn(|at| mask.to_ne_bytes()[at % 4]));
    let (whole, rest) = masked.as_chunks_mut::<16>();
    for bytes in whole {
        *bytes = (u128::from_ne_bytes(*bytes) ^ mask).to_ne_bytes();
    }
    for (byte, mask) in rest.iter_mut().zip(mask.to_ne_bytes()) {
        *byte ^= mask;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio_tungstenite::tungstenite::protocol::frame::coding::{
        CloseCode, Control, Data, OpCode,
    };
    use tokio_tungstenite::tungstenite::protocol::frame::{CloseFrame, Frame, FrameHeader};

    use super::*;

    const MAX: usize = 1 << 20;

    #[derive(Clone, Debug, PartialEq, Eq)]
    enum Seen {
        Binary(Vec<u8>),
        Text,
        Ping(Vec<u8>),
        Pong,
        Close(u16),
    }

    /// What is read when the bytes arrive in pieces of that size.
    fn read(bytes: &[u8], piece: usize) -> Result<Vec<Seen>, &'static str> {
        let (mut seen, mut partial) = (Vec::new(), None::<Box<Partial>>);
        for piece in bytes.chunks(piece.max(1)) {
            let mut input = partial
                .as_deref_mut()
                .map_or_else(Vec::new, |partial| std::mem::take(&mut partial.input));
            input.extend_from_slice(piece);
            let mut used = 0;
            loop {
                let (event, took) = next(&input[used..], &mut partial, MAX)?;
                used += took;
                seen.push(match event {
                    Some(Event::Binary(payload, _)) => Seen::Binary(payload.to_vec()),
                    Some(Event::Text(_)) => Seen::Text,
                    Some(Event::Ping(payload, _)) => Seen::Ping(payload.to_vec()),
                    Some(Event::Pong) => Seen::Pong,
                    Some(Event::Close(code)) => Seen::Close(code),
                    None => break,
                });
            }
            partial.get_or_insert_default().input = input.split_off(used);
        }
        Ok(seen)
    }

    fn message(payload: &[u8], cuts: &[usize], out: &mut Vec<u8>) {
        let mut parts = Vec::new();
        let mut rest = payload;
        for cut in cuts {
            let (now, later) = rest.split_at(rest.len().min(*cut));
            parts.push(now);
            rest = later;
        }
        parts.push(rest);
        let last = parts.len() - 1;
        for (number, part) in parts.into_iter().enumerate() {
            let code = if number == 0 { Data::Binary } else { Data::Continue };
            let frame = Frame::message(part.to_vec(), OpCode::Data(code), number == last);
            frame.format(out).unwrap();
            if number != last {
                Frame::ping(vec![7]).format(out).unwrap();
            }
        }
    }

    proptest! {
        #[test]
        fn what_tungstenite_writes_is_read_however_it_is_cut(
            payload in proptest::collection::vec(any::<u8>(), 0..70_000),
            cuts in proptest::collection::vec(0_usize..5_000, 0..4),
            piece in 1_usize..80_000,
        ) {
            let mut bytes = Vec::new();
            message(&payload, &cuts, &mut bytes);
            Frame::pong(vec![]).format(&mut bytes).unwrap();
            let mut expected = vec![Seen::Ping(vec![7]); cuts.len()];
            expected.extend([Seen::Binary(payload), Seen::Pong]);
            prop_assert_eq!(read(&bytes, piece), Ok(expected));
        }

        #[test]
        fn what_is_written_tungstenite_reads(
            payload in proptest::collection::vec(any::<u8>(), 0..20_000),
            seed in any::<u64>(),
        ) {
            let mut out = Vec::new();
            write_message(&mut out, &payload, &mut fastrand::Rng::with_seed(seed));
            let mut rest = std::io::Cursor::new(&out);
            let mut read = Vec::new();
            loop {
                let (header, length) = FrameHeader::parse(&mut rest).unwrap().unwrap();
                let first = read.is_empty();
                prop_assert_eq!(
                    header.opcode,
                    OpCode::Data(if first { Data::Binary } else { Data::Continue })
                );
                let length = usize::try_from(length).unwrap();
                prop_assert!(length <= FRAME_MAX);
                let at = usize::try_from(rest.position()).unwrap();
                let mask = header.mask.unwrap();
                read.extend(out[at..at + length].iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
                rest.set_position((at + length) as u64);
                if header.is_final {
                    break;
                }
            }
            prop_assert_eq!(&read[1..], &payload[..]);
            prop_assert_eq!((read[0], rest.position()), (0, out.len() as u64));
        }

        #[test]
        fn nothing_that_a_server_sends_breaks_it(bytes in proptest::collection::vec(any::<u8>(), 0..300), piece in 1_usize..300) {
            let _ = read(&bytes, piece);
        }
    }

    #[test]
    fn what_the_protocol_forbids_is_told() {
        for (bytes, why) in [
            (&[0xc2, 0][..], "a frame with reserved bits"),
            (&[0x82, 0x80, 0, 0, 0, 0], "a masked frame from a server"),
            (&[0x09, 0], "a control frame that is long or in parts"),
            (&[0x89, 126, 0, 200], "a control frame that is long or in parts"),
            (&[0x80, 0], "a continuation of nothing"),
            (&[0x02, 0, 0x82, 0], "a message within a message"),
            (&[0x83, 0], "a frame of an unknown kind"),
            (&[0x88, 1, 3], "a close frame with half a code"),
            (&[0x82, 127, 0, 0, 0, 0, 0, 0x20, 0, 0], "a message that is too long"),
        ] {
            assert_eq!(read(bytes, 1_000), Err(why), "{bytes:?}");
        }
    }

    #[test]
    fn a_close_is_read_with_its_code_and_a_pong_and_a_close_are_written() {
        let mut bytes = Vec::new();
        let away = CloseFrame { code: CloseCode::Away, reason: "".into() };
        Frame::close(Some(away)).format(&mut bytes).unwrap();
        assert_eq!(read(&bytes, 1), Ok(vec![Seen::Close(1001)]));
        assert_eq!(read(&[0x88, 0], 1), Ok(vec![Seen::Close(1005)]));
        let mut rng = fastrand::Rng::with_seed(1);
        let mut out = Vec::new();
        write_pong(&mut out, b"x", &mut rng);
        write_close(&mut out, 1000, &mut rng);
        let mut rest = std::io::Cursor::new(&out);
        let (header, length) = FrameHeader::parse(&mut rest).unwrap().unwrap();
        assert_eq!((header.opcode, length), (OpCode::Control(Control::Pong), 1));
        rest.set_position(rest.position() + 1);
        let (header, length) = FrameHeader::parse(&mut rest).unwrap().unwrap();
        assert_eq!((header.opcode, length), (OpCode::Control(Control::Close), 2));
    }
}
