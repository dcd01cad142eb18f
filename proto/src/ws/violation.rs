//! What a peer can do wrong, and the close code for it.

use super::code;

/// The link cannot go on: send a close frame with [`code`](Self::code) and this error's text, then
/// close the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// A bit of an extension that was not negotiated, such as compression.
    #[error("a reserved bit is set, and no extension was negotiated")]
    ReservedBits,
    /// An opcode that RFC 6455 does not define.
    #[error("the opcode is reserved")]
    ReservedOpcode,
    /// Frames of clients must be masked.
    #[error("the frame is not masked")]
    Unmasked,
    /// A length that is written longer than it must be, or has its top bit set.
    #[error("the length is not in its shortest form")]
    Length,
    /// A control frame in fragments.
    #[error("a control frame is fragmented")]
    FragmentedControl,
    /// A control frame of more than 125 bytes.
    #[error("a control frame is longer than 125 bytes")]
    LongControl,
    /// A continuation of nothing.
    #[error("a continuation frame continues no message")]
    Continuation,
    /// A message inside a message.
    #[error("a message starts before the last one has ended")]
    Interleaved,
    /// A close frame with half a code.
    #[error("a close frame has a payload of one byte")]
    CloseLength,
    /// A close code that must not be sent.
    #[error("the close code must not be sent")]
    CloseCode,
    /// A close reason that is not UTF-8.
    #[error("the close reason is not UTF-8")]
    CloseReason,
    /// OpAMP's messages are binary.
    #[error("text messages are not OpAMP")]
    Text,
    /// A message over [`Limits::message_bytes`](super::Limits::message_bytes).
    #[error("the message is over the size limit")]
    TooBig,
}

impl Violation {
    /// The code of the close frame that tells the peer.
    pub const fn code(self) -> u16 {
        match self {
            Self::ReservedBits
            | Self::ReservedOpcode
            | Self::Unmasked
            | Self::Length
            | Self::FragmentedControl
            | Self::LongControl
            | Self::Continuation
            | Self::Interleaved
            | Self::CloseLength
            | Self::CloseCode => code::PROTOCOL_ERROR,
            Self::CloseReason => code::INVALID_PAYLOAD,
            Self::Text => code::UNSUPPORTED,
            Self::TooBig => code::TOO_BIG,
        }
    }

    /// A metric label.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::ReservedBits => "reserved_bits",
            Self::ReservedOpcode => "reserved_opcode",
            Self::Unmasked => "unmasked",
            Self::Length => "length",
            Self::FragmentedControl => "fragmented_control",
            Self::LongControl => "long_control",
            Self::Continuation => "continuation",
            Self::Interleaved => "interleaved",
            Self::CloseLength => "close_length",
            Self::CloseCode => "close_code",
            Self::CloseReason => "close_reason",
            Self::Text => "text",
            Self::TooBig => "too_big",
        }
    }
}
