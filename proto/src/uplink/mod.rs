//! What a replica and an aggregator say to each other over one bidirectional stream
//! (rollouts.md, decisions 5 to 9 and 16 to 18). Frames only: who says what when is told by
//! `gateway::uplink`.
//!
//! A frame is its length in four bytes, its kind in one, and a body; all numbers are little-endian.
//! Formats differ in what bodies hold. [`Frame::Hello`] and [`Frame::Refuse`] read the same in every
//! format, [`Frame::Welcome`] names the format that everything behind it is in: the highest that
//! both speak ([`common_format`]). `fixtures/wire/uplink` holds golden vectors of each.
//!
//! Read [`Frame`] first. `fields` reads and writes what bodies are made of, `body` the bodies,
//! `line` the one that is hot.

mod body;
mod fields;
mod line;

pub use line::{Conn, Line, Lines, Observed, Reading, Record, Rivals, Seat, Stamp, Texts, Writer};

/// What both ends ask TLS for.
pub const ALPN: &[u8] = b"tidegate/1";
/// The formats that are spoken here, best first.
pub const FORMATS: [u16; 2] = [2, 1];
/// Bytes of a frame behind its length.
pub const FRAME_BYTES_MAX: usize = 1 << 20;
/// Records in one batch.
pub const LINES_MAX: usize = 1_000;
/// Changes that one connection may name.
pub const KEYS_MAX: u32 = 16_384;
/// Rollouts in one head.
pub const HEAD_LINES_MAX: usize = 16_384;
/// Halted collectors in one frame; there may be any number of frames.
pub const HALTED_LINES_MAX: usize = 8_192;
/// Digests of `halt` blocks in one [`State`].
pub const HALTS_MAX: usize = 64;
/// Live sessions of one identity beside its newest one.
pub const RIVALS_MAX: usize = 16;
/// Formats that a Hello may offer.
pub const OFFERED_MAX: usize = 16;
/// Bytes of a name: a replica's, a Rollout's, an origin, a commit.
pub const NAME_BYTES_MAX: usize = 512;
/// Bytes of a label, a version, an error text or a reason.
pub const TEXT_BYTES_MAX: usize = 1_024;

/// One message. Borrows what it was read from.
#[derive(Clone, Debug, PartialEq)]
pub enum Frame<'f> {
    /// Replica: who it is. First.
    Hello(Hello<'f>),
    /// Aggregator: the answer to Hello.
    Welcome(Welcome<'f>),
    /// Aggregator: why it does not talk to this replica, in words. Last.
    Refuse(&'f str),
    /// Replica: what `index` stands for in what follows.
    Key(Key<'f>),
    /// Replica: what it serves from now on.
    Head(Head<'f>),
    /// Either: I live, and vouch for my open sessions.
    Alive,
    /// Replica: what is known of some collectors.
    Records(Records<'f>),
    /// Aggregator: everything through `seq` was taken in.
    Ack(Ack),
    /// Replica: the full state follows.
    SyncBegin,
    /// Replica: that was all. A session of this process that was open before and was not listed
    /// since [`Frame::SyncBegin`] is over.
    SyncEnd {
        /// Counted with the batches, and acknowledged like one.
        seq: u64,
    },
    /// Aggregator: collectors that the candidate has failed on, or does no longer.
    Halted(HaltedLines<'f>),
    /// Aggregator: what is in force for a change. The first one of a key comes behind all that is
    /// halted under it.
    State(State<'f>),
    /// Replica: it is drained, and ends.
    Bye,
}

/// Who a replica is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello<'f> {
    /// What it speaks, best first.
    pub formats: &'f [u8],
    /// What it calls itself.
    pub name: &'f str,
    /// Which process of it: random.
    pub incarnation: u32,
    /// When that process started, by its own clock.
    pub started_ms: u64,
    /// Its own clock.
    pub now_ms: u64,
}

/// Who answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome<'f> {
    /// What both speak from now on.
    pub format: u16,
    /// What the aggregator calls itself.
    pub name: &'f str,
    /// Which process of it: random.
    pub incarnation: u32,
    /// The aggregator's time, which the replica's times are told in.
    pub now_ms: u64,
}

/// A change that records are told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key<'f> {
    /// Counts from 0 on each connection, without a gap.
    pub index: u32,
    /// `team/name`.
    pub rollout: &'f str,
    /// The commit that added the Rollout's file, where the replica can tell.
    pub origin: Option<&'f str>,
    /// Content hash of the candidate.
    pub candidate: &'f [u8; 32],
}

/// What a replica serves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Head<'f> {
    /// The commit.
    pub commit: &'f str,
    /// One line per Rollout.
    pub lines: HeadLines<'f>,
}

/// One Rollout of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadLine {
    /// Index of a [`Key`].
    pub key: u32,
    /// Active stage.
    pub stage: u32,
    /// Digest of the Cohorts.
    pub cohorts: u64,
    /// Digest of the `halt` block.
    pub halt: u64,
    /// Collectors of the Tier that have no place under this head yet. From format 2 on; 0 before.
    pub awaited: u64,
}

/// A batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Records<'f> {
    /// Counts from 1 on each connection, without a gap.
    pub seq: u64,
    /// At most [`LINES_MAX`].
    pub lines: Lines<'f>,
}

/// Batches were taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// This one and all before it.
    pub seq: u64,
    /// What became of those in it that had to be durable.
    pub kept: Kept,
}

/// How far something is from being lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// It is on the disk, or did not need to be.
    Stored,
    /// The aggregator has no store.
    Memory,
    /// The aggregator's store cannot be written.
    Failed,
}

/// A collector and whether the candidate has failed on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HaltedLine {
    /// Index of a [`Key`].
    pub key: u32,
    /// Which collector.
    pub identity: u128,
    /// How often the candidate was offered to it again; `None`: it is failed no longer.
    pub tries: Option<u8>,
}

/// What is in force for a change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct State<'f> {
    /// Index of a [`Key`].
    pub key: u32,
    /// Digests of the `halt` blocks that a verdict was made by.
    pub judged: Digests<'f>,
    /// Digests of the `halt` blocks whose brake is on.
    pub braked: Digests<'f>,
}

macro_rules! lists {
    ($(#[doc = $doc:literal] $name:ident: $item:ty, $read:path;)+) => {$(
        #[doc = $doc]
        #[derive(Clone, Copy, Debug, Default, PartialEq)]
        pub struct $name<'f> {
            format: u16,
            count: usize,
            bytes: &'f [u8],
        }

        impl<'f> $name<'f> {
            /// How many there are.
            pub fn len(&self) -> usize {
                self.count
            }

            /// Whether there is none.
            pub fn is_empty(&self) -> bool {
                self.count == 0
            }

            /// One after another.
            pub fn iter(&self) -> impl Iterator<Item = $item> + use<'f> {
                let Self { format, count, mut bytes } = *self;
                // They were all read once when the frame was.
                (0..count).map_while(move |_| $read(&mut bytes, format).ok())
            }
        }
    )+};
}

lists! {
    /// Rollouts of a head.
    HeadLines: HeadLine, body::read_head_line;
    /// Collectors that are, or were, halted.
    HaltedLines: HaltedLine, body::read_halted_line;
    /// Digests of `halt` blocks.
    Digests: u64, body::read_digest;
}

impl<'f> Hello<'f> {
    /// What the replica speaks, best first.
    pub fn formats(&self) -> impl Iterator<Item = u16> + use<'f> {
        self.formats.as_chunks::<2>().0.iter().map(|bytes| u16::from_le_bytes(*bytes))
    }
}

/// The best format that both ends speak.
pub fn common_format(hello: &Hello<'_>) -> Option<u16> {
    hello.formats().filter(|format| FORMATS.contains(format)).max()
}

/// Why bytes are no frame. The connection is of no further use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// It is longer than [`FRAME_BYTES_MAX`].
    #[error("a frame of {0} bytes; at most 1,048,576 are read")]
    TooLong(usize),
    /// Its body ends early.
    #[error("a frame ends inside a field")]
    Truncated,
    /// Its body goes on.
    #[error("a frame goes on behind its last field")]
    TrailingBytes,
    /// No frame has this number.
    #[error("no frame is of kind {0}")]
    Kind(u8),
    /// A field has a value that means nothing.
    #[error("{0} has a value that means nothing")]
    Value(&'static str),
    /// A field is longer than it may be.
    #[error("{0} is longer than it may be")]
    Limit(&'static str),
    /// It does not begin as a Hello does.
    #[error("this is no Tidegate uplink")]
    Magic,
}

/// Puts frames together again, in whatever pieces they come.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    /// What of it was read.
    read: usize,
}

impl Decoder {
    /// Takes in bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.read);
        self.read = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The next frame; `None` until more bytes are there. Before the format is agreed on, any will
    /// do.
    ///
    /// # Errors
    /// What was read is no frame.
    pub fn next_frame(&mut self, format: u16) -> Result<Option<Frame<'_>>, FrameError> {
        let rest = &self.buffer[self.read..];
        let Some((length, rest)) = rest.split_first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_le_bytes(*length) as usize;
        if length > FRAME_BYTES_MAX {
            return Err(FrameError::TooLong(length));
        }
        let Some(frame) = rest.get(..length) else { return Ok(None) };
        self.read += 4 + length;
        body::read(frame, format).map(Some)
    }

    /// Bytes that are held.
    pub fn held(&self) -> usize {
        self.buffer.len() - self.read
    }
}

/// Writes a frame behind what is in `out`. Texts that are too long are cut, lists must not be.
pub fn encode(frame: &Frame<'_>, format: u16, out: &mut Vec<u8>) {
    framed(out, |out| body::write(frame, format, out));
}

/// Writes [`Frame::Head`].
pub fn encode_head(
    commit: &str,
    lines: impl ExactSizeIterator<Item = HeadLine>,
    format: u16,
    out: &mut Vec<u8>,
) {
    framed(out, |out| body::write_head(commit, lines, format, out));
}

/// Writes [`Frame::Halted`].
pub fn encode_halted(lines: &[HaltedLine], out: &mut Vec<u8>) {
    framed(out, |out| body::write_halted(lines, out));
}

/// Writes [`Frame::State`].
pub fn encode_state(key: u32, judged: &[u64], braked: &[u64], out: &mut Vec<u8>) {
    framed(out, |out| body::write_state(key, judged, braked, out));
}

/// Writes [`Frame::Hello`], with the formats that are spoken here.
pub fn encode_hello(name: &str, incarnation: u32, started_ms: u64, now_ms: u64, out: &mut Vec<u8>) {
    let formats: Vec<u8> = FORMATS.iter().flat_map(|format| format.to_le_bytes()).collect();
    let hello = Hello { formats: &formats, name, incarnation, started_ms, now_ms };
    encode(&Frame::Hello(hello), FORMATS[0], out);
}

fn framed(out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    body(out);
    let length = out.len() - at - 4;
    debug_assert!(length <= FRAME_BYTES_MAX, "a frame of {length} bytes");
    let length = u32::try_from(length).unwrap_or(u32::MAX);
    out[at..at + 4].copy_from_slice(&length.to_le_bytes());
}
