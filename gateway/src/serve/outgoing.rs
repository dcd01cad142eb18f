//! One message on its way to a collector, as a small head of its own and a body shared with others.

use bytes::Bytes;
use proto::session::ReplyHead;

use crate::aggregate::Ticket;

/// One `ServerToAgent`: `head` followed by `body`, as protobuf and without a WebSocket header.
///
/// The head names the agent and is built on the stack; the body is an offer that every link shares,
/// or the text of an error. Neither has to be copied into the other: write both with one `writev`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// `instance_uid`, and what is meant for this agent alone.
    pub head: ReplyHead,
    /// The rest of the message, `None` for an acknowledgement.
    pub body: Option<Bytes>,
    /// It is an error response: the message was refused. HTTP says 400 with it.
    pub refused: bool,
    /// What must be on the disk before this is sent (rollouts.md, decision 18): the transport waits
    /// with [`Server::durable`](super::Server::durable).
    pub ticket: Option<Ticket>,
}

impl Outgoing {
    /// Length of the protobuf message in bytes.
    pub fn len(&self) -> usize {
        self.head.as_slice().len() + self.body.as_ref().map_or(0, Bytes::len)
    }

    /// Whether there is nothing to send; never true of what [`Server`](super::Server) returns.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Both parts, in the order of the wire.
    pub fn parts(&self) -> [&[u8]; 2] {
        [self.head.as_slice(), self.body.as_deref().unwrap_or_default()]
    }
}
