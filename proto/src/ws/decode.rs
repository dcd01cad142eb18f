//! Frames as a server reads them.

use super::encode::Opcode;
use super::header::{self, Header};
use super::{Limits, Violation};

/// What a link holds of a message that has not arrived whole; nothing otherwise.
///
/// The contract: after each read, [`poll_event`](Self::poll_event) is called with one [`Input`]
/// until it returns `None`; then all of the input has been taken. After a [`Violation`] or an
/// [`Event::Close`] the link takes no further input, and the decoder can be dropped.
///
/// A message that lies whole in the input, also in several fragments and with control frames
/// between them, is handed out from there: unmasked and moved together in place. Only what is left
/// at the end of the input is copied, into a buffer that grows with what arrives, to at most twice
/// that and 16 KiB, never to what a header claims.
#[derive(Debug, Default)]
pub struct Decoder {
    /// The payload of a message up to here, and behind `message_len` that of a control frame.
    buffer: Vec<u8>,
    message_len: usize,
    /// The frame whose payload is still to come.
    frame: Option<Frame>,
    /// The front of a header, `header_len` bytes of it.
    header: [u8; header::MAX_BYTES],
    header_len: u8,
    /// A message has begun and its last fragment has not.
    in_message: bool,
    /// What of the buffer was handed out, and is to be forgotten at the next call.
    handed_out: HandedOut,
}

const _: () = assert!(size_of::<Decoder>() <= 80);
const _: () = assert!(size_of::<Option<Box<Decoder>>>() == 8);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum HandedOut {
    #[default]
    Nothing,
    Message,
    Control,
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    left: u64,
    /// Turned so that its first byte is for the next byte of the payload.
    mask: [u8; 4],
    opcode: Opcode,
    fin: bool,
}

/// What was read from a socket, and how much of it has been taken.
#[derive(Debug)]
pub struct Input<'b> {
    bytes: &'b mut [u8],
    at: usize,
    /// Where the unfinished message's payload lies, moved together.
    gathered_at: usize,
    gathered_len: usize,
}

impl<'b> Input<'b> {
    /// The bytes are changed: unmasking is done in place.
    pub fn new(bytes: &'b mut [u8]) -> Self {
        Self { bytes, at: 0, gathered_at: 0, gathered_len: 0 }
    }

    fn rest(&self) -> &[u8] {
        &self.bytes[self.at..]
    }

    /// Appends the next `len` bytes to what is gathered.
    fn gather(&mut self, len: usize) {
        if self.gathered_len == 0 {
            self.gathered_at = self.at;
        } else if len > 0 {
            let end = self.gathered_at + self.gathered_len;
            self.bytes.copy_within(self.at..self.at + len, end);
        }
        self.gathered_len += len;
        self.at += len;
    }

    fn gathered(&self) -> &[u8] {
        &self.bytes[self.gathered_at..self.gathered_at + self.gathered_len]
    }
}

/// What a peer said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A whole binary message.
    Message(&'a [u8]),
    /// To be answered with a [`pong`](super::pong) of the same payload.
    Ping(&'a [u8]),
    /// A sign of life.
    Pong(&'a [u8]),
    /// To be answered with [`Close::answer`]; what comes behind it is ignored.
    Close(Close<'a>),
}

/// A close frame's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Close<'a> {
    /// `None` when the frame is empty.
    pub code: Option<u16>,
    /// For people; not to be trusted, but UTF-8.
    pub reason: &'a str,
}

impl Close<'_> {
    /// The close frame that answers: the same code, or 1000 where there was none.
    pub fn answer(&self) -> super::Control {
        super::close(self.code.unwrap_or(super::code::NORMAL), "")
    }
}

/// Where the payload of an event lies.
#[derive(Clone, Copy)]
enum Place {
    Input { start: usize, end: usize },
    Buffer { start: usize },
}

impl Decoder {
    /// Whether it can be dropped, since nothing has begun.
    pub fn is_idle(&self) -> bool {
        let empty = match self.handed_out {
            HandedOut::Nothing => self.buffer.is_empty(),
            HandedOut::Message => true,
            HandedOut::Control => self.message_len == 0,
        };
        empty && self.frame.is_none() && self.header_len == 0 && !self.in_message
    }

    /// How many bytes of memory it holds beside itself.
    pub fn held_bytes(&self) -> usize {
        self.buffer.capacity()
    }

    /// The next thing that the peer said; `None` once all of `input` has been taken.
    // hot: must not allocate for what lies whole in the input.
    pub fn poll_event<'a>(
        &'a mut self,
        input: &'a mut Input<'_>,
        limits: Limits,
    ) -> Result<Option<Event<'a>>, Violation> {
        self.forget_handed_out();
        let found = self.advance(input, limits);
        let Some((opcode, place)) = found.inspect_err(|_| input.at = input.bytes.len())? else {
            return Ok(None);
        };
        let payload = match place {
            Place::Input { start, end } => &input.bytes[start..end],
            Place::Buffer { start } => &self.buffer[start..],
        };
        Ok(Some(match opcode {
            Opcode::Continuation | Opcode::Binary => Event::Message(payload),
            Opcode::Ping => Event::Ping(payload),
            Opcode::Pong => Event::Pong(payload),
            Opcode::Close => {
                input.at = input.bytes.len();
                Event::Close(parse_close(payload)?)
            }
        }))
    }

    fn forget_handed_out(&mut self) {
        match self.handed_out {
            HandedOut::Nothing => return,
            HandedOut::Message => {
                self.buffer = Vec::new();
                self.message_len = 0;
            }
            HandedOut::Control => self.buffer.truncate(self.message_len),
        }
        self.handed_out = HandedOut::Nothing;
    }

    fn advance(
        &mut self,
        input: &mut Input<'_>,
        limits: Limits,
    ) -> Result<Option<(Opcode, Place)>, Violation> {
        loop {
            let frame = match self.frame.take() {
                Some(frame) => frame,
                None => match self.read_header(input)? {
                    Some(header) => self.admit(header, input, limits)?,
                    None => {
                        self.keep_gathered(input, None);
                        return Ok(None);
                    }
                },
            };
            if let Some(found) = self.read_payload(frame, input) {
                return Ok(Some(found));
            }
            if self.frame.is_some() {
                return Ok(None);
            }
        }
    }

    fn read_header(&mut self, input: &mut Input<'_>) -> Result<Option<Header>, Violation> {
        if self.header_len == 0 {
            if let Some((header, len)) = header::parse(input.rest())? {
                input.at += len;
                return Ok(Some(header));
            }
            let rest = input.rest();
            self.header[..rest.len()].copy_from_slice(rest);
            #[expect(clippy::cast_possible_truncation, reason = "an unfinished header, below 14")]
            let len = rest.len() as u8;
            self.header_len = len;
            input.at = input.bytes.len();
            return Ok(None);
        }
        // The front of the header was in an earlier input.
        let had = usize::from(self.header_len);
        let taken = input.rest().len().min(header::MAX_BYTES - had);
        self.header[had..had + taken].copy_from_slice(&input.rest()[..taken]);
        match header::parse(&self.header[..had + taken])? {
            Some((header, len)) => {
                input.at += len - had;
                self.header_len = 0;
                Ok(Some(header))
            }
            None => {
                #[expect(clippy::cast_possible_truncation, reason = "at most 14")]
                let len = (had + taken) as u8;
                self.header_len = len;
                input.at += taken;
                Ok(None)
            }
        }
    }

    /// Whether a frame may come now, and a message become that large.
    fn admit(
        &mut self,
        header: Header,
        input: &Input<'_>,
        limits: Limits,
    ) -> Result<Frame, Violation> {
        match (header.opcode, self.in_message) {
            (Opcode::Continuation, false) => return Err(Violation::Continuation),
            (Opcode::Binary, true) => return Err(Violation::Interleaved),
            (Opcode::Continuation, true) | (Opcode::Binary, false) => {
                let had = (self.message_len + input.gathered_len) as u64;
                if had.saturating_add(header.len) > limits.message_bytes as u64 {
                    return Err(Violation::TooBig);
                }
                self.in_message = !header.fin;
            }
            (Opcode::Close | Opcode::Ping | Opcode::Pong, _) => {}
        }
        Ok(Frame { left: header.len, mask: header.mask, opcode: header.opcode, fin: header.fin })
    }

    /// Takes what has arrived of a frame's payload. `None` if nothing ended by that: the message has
    /// more fragments, or the frame, which is kept then, more bytes.
    fn read_payload(&mut self, mut frame: Frame, input: &mut Input<'_>) -> Option<(Opcode, Place)> {
        let available = input.bytes.len() - input.at;
        let len = usize::try_from(frame.left).map_or(available, |left| left.min(available));
        let (start, end) = (input.at, input.at + len);
        unmask(&mut input.bytes[start..end], &mut frame.mask);
        frame.left -= len as u64;

        if frame.left > 0 {
            // The input ends here: what there is of the message, then of this frame, is kept. The
            // announced length caps what is reserved only where nothing can follow it, else many
            // small fragments would each cost a copy of all that came before them.
            if frame.opcode.is_control() {
                self.keep_gathered(input, None);
                let cap = (self.message_len == 0).then_some(frame.left);
                self.append(&input.bytes[start..end], cap);
                input.at = end;
            } else {
                let cap = frame.fin.then_some(frame.left);
                if self.message_len > 0 {
                    self.append(&input.bytes[start..end], cap);
                    self.message_len += len;
                    input.at = end;
                } else {
                    input.gather(len);
                    self.keep_gathered(input, cap);
                }
            }
            self.frame = Some(frame);
            return None;
        }

        if frame.opcode.is_control() {
            input.at = end;
            if self.buffer.len() == self.message_len {
                return Some((frame.opcode, Place::Input { start, end }));
            }
            self.append(&input.bytes[start..end], None);
            self.handed_out = HandedOut::Control;
            return Some((frame.opcode, Place::Buffer { start: self.message_len }));
        }

        if self.message_len > 0 {
            self.append(&input.bytes[start..end], None);
            self.message_len += len;
            input.at = end;
        } else {
            input.gather(len);
        }
        if !frame.fin {
            return None;
        }
        if self.message_len > 0 {
            self.handed_out = HandedOut::Message;
            return Some((Opcode::Binary, Place::Buffer { start: 0 }));
        }
        let start = input.gathered_at;
        let end = start + input.gathered_len;
        input.gathered_len = 0;
        Some((Opcode::Binary, Place::Input { start, end }))
    }

    /// Saves the unfinished message out of the input. `cap` as for [`append`](Self::append).
    fn keep_gathered(&mut self, input: &mut Input<'_>, cap: Option<u64>) {
        if input.gathered_len > 0 {
            debug_assert!(self.buffer.is_empty(), "a message is gathered in one place");
            self.append(input.gathered(), cap);
            self.message_len = self.buffer.len();
            input.gathered_len = 0;
        }
    }

    /// At most `cap` bytes will follow these, if that is known.
    fn append(&mut self, bytes: &[u8], cap: Option<u64>) {
        let needed = self.buffer.len() + bytes.len();
        if needed > self.buffer.capacity() {
            let cap = cap.and_then(|cap| usize::try_from(cap).ok()).unwrap_or(usize::MAX);
            let target = (2 * needed + GROWTH_BYTES).min(needed.saturating_add(cap));
            self.buffer.reserve_exact(target - self.buffer.len());
        }
        self.buffer.extend_from_slice(bytes);
    }
}

/// What is reserved beyond twice what has arrived.
const GROWTH_BYTES: usize = 16 * 1024;

fn parse_close(payload: &[u8]) -> Result<Close<'_>, Violation> {
    let Some((code, reason)) = payload.split_first_chunk::<2>() else {
        return match payload {
            [] => Ok(Close { code: None, reason: "" }),
            _ => Err(Violation::CloseLength),
        };
    };
    let code = u16::from_be_bytes(*code);
    // 1004 to 1006 and 1015 are never sent; 1016 to 2999 are for later versions of the protocol.
    if !matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999) {
        return Err(Violation::CloseCode);
    }
    let reason = str::from_utf8(reason).map_err(|_| Violation::CloseReason)?;
    Ok(Close { code: Some(code), reason })
}

/// Unmasks `bytes` and turns `mask` to fit what follows them.
#[inline]
fn unmask(bytes: &mut [u8], mask: &mut [u8; 4]) {
    let [a, b, c, d] = *mask;
    let wide = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let (words, tail) = bytes.as_chunks_mut::<8>();
    for word in words {
        *word = (u64::from_ne_bytes(*word) ^ wide).to_ne_bytes();
    }
    for (byte, mask) in tail.iter_mut().zip([a, b, c, d].into_iter().cycle()) {
        *byte ^= mask;
    }
    mask.rotate_left(bytes.len() % 4);
}
