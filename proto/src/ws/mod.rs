//! RFC 6455 framing for the server's side of a WebSocket, sans-IO: bytes of a socket in, events
//! out; events in, bytes for a socket out. No extension is negotiated.
//!
//! An idle link needs no [`Decoder`]: it holds nothing between two messages, so that the caller
//! keeps `Option<Box<Decoder>>`, 8 bytes, and parses out of one scratch buffer per thread:
//!
//! ```
//! use proto::ws::{Decoder, Event, Input, Limits, Violation};
//!
//! fn handle_read(
//!     parked: &mut Option<Box<Decoder>>,
//!     scratch: &mut [u8], // what was just read
//!     limits: Limits,
//! ) -> Result<(), Violation> {
//!     let mut decoder = parked.take().map_or_else(Decoder::default, |parked| *parked);
//!     let mut input = Input::new(scratch);
//!     while let Some(event) = decoder.poll_event(&mut input, limits)? {
//!         match event {
//!             Event::Message(_payload) => { /* reply */ }
//!             Event::Ping(_payload) => { /* pong */ }
//!             Event::Pong(_payload) => { /* a sign of life */ }
//!             Event::Close(_close) => { /* answer it, then close the socket */ }
//!         }
//!     }
//!     *parked = (!decoder.is_idle()).then(|| Box::new(decoder));
//!     Ok(())
//! }
//! ```

mod decode;
mod encode;
mod header;
mod violation;

pub use decode::{Close, Decoder, Event, Input};
pub use encode::{Control, MAX_HEADER_BYTES, Opcode, close, encode_header, ping, pong};
pub use violation::Violation;

/// How many bytes a message may have, unless configured otherwise: what OpAMP recommends.
pub const MAX_MESSAGE_BYTES: usize = 64 * 1024 * 1024;

/// How many bytes the payload of a control frame may have (RFC 6455, 5.5).
pub const MAX_CONTROL_BYTES: usize = 125;

/// What a peer may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The size of a message in bytes, over all of its fragments.
    pub message_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { message_bytes: MAX_MESSAGE_BYTES }
    }
}

/// Close codes that we send (RFC 6455, 7.4.1).
pub mod code {
    /// All is well, or the answer to a close without a code.
    pub const NORMAL: u16 = 1000;
    /// The server goes away.
    pub const GOING_AWAY: u16 = 1001;
    /// The peer broke the framing.
    pub const PROTOCOL_ERROR: u16 = 1002;
    /// A text frame.
    pub const UNSUPPORTED: u16 = 1003;
    /// A close reason that is not UTF-8.
    pub const INVALID_PAYLOAD: u16 = 1007;
    /// A message over the limit.
    pub const TOO_BIG: u16 = 1009;
}
