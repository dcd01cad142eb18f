//! Evidence on its way from replicas to aggregators, and what is halted on its way back
//! (rollouts.md, decisions 5 to 9 and 16 to 18).
//!
//! [`replica`] and [`aggregator`] are the two ends of one connection: bytes in, bytes out, time is
//! an argument, no socket. What they carry is kept by [`crate::aggregate`]; frames are those of
//! [`proto::uplink`]. Both ends are asked for bytes by `poll_transmit` after every call, and again
//! after [`poll_timeout`](replica::ReplicaUplink::poll_timeout), which says when `handle_timeout`
//! has something to do. [`dial`] and [`listen`] are their sockets, with [`tls`] for who may talk.

use std::sync::Arc;
use std::time::Duration;

use proto::uplink::{Frame, FrameError};

use crate::aggregate::Cell;

pub mod aggregator;
pub mod backoff;
pub(crate) mod convert;
pub mod dial;
pub mod listen;
pub mod meter;
pub mod replica;
pub mod room;
#[cfg(test)]
mod tests;
pub mod tls;

pub use aggregator::AggregatorUplink;
pub use replica::ReplicaUplink;

/// Aggregators that one replica reports to.
pub const AGGREGATORS_MAX: usize = 8;
/// Changes wait so long for others to share their batch, unless somebody waits for them.
pub const BATCH_DELAY: Duration = Duration::from_millis(50);
/// Time between two batches that somebody waits for.
pub const URGENT_SPACING: Duration = Duration::from_millis(5);
/// Batches on their way that were not acknowledged yet.
pub const WINDOW: u64 = 16;
/// Time between two words of an end that has nothing else to say.
pub const ALIVE_EVERY: Duration = Duration::from_secs(2);
/// Shortest wait of a shell for what [`ReplicaUplink::poll_timeout`] asks for.
const TICK_MIN: Duration = Duration::from_millis(1);
/// An end that was silent for so long is gone.
pub const SILENCE_MAX: Duration = Duration::from_secs(10);

/// Why a connection is of no further use. What was written by `poll_transmit` is to be sent first.
#[derive(Debug, thiserror::Error)]
pub enum UplinkError {
    /// The peer said something that is no frame.
    #[error("the peer said something that cannot be read: {0}")]
    Frame(#[from] FrameError),
    /// The peer said something that does not come there.
    #[error("the peer said {0} out of turn")]
    OutOfTurn(&'static str),
    /// The peer said why it does not talk to us.
    #[error("the aggregator refuses this replica: {0}")]
    Refused(String),
    /// We said why we do not talk to the peer.
    #[error("a replica was refused: {0}")]
    Refuses(String),
    /// The replica does not know the origin of a change, and it is known here since: it begins anew,
    /// so that all of its evidence is filed there.
    #[error("the origin of a change is known by now; begin anew")]
    FiledAnew,
    /// Another connection of the same replica took over.
    #[error("the replica has connected anew")]
    Superseded,
    /// Nothing was heard for [`SILENCE_MAX`].
    #[error("nothing was heard for {} s", SILENCE_MAX.as_secs())]
    Silent,
    /// The peer said Bye.
    #[error("the replica was drained")]
    Bye,
}

/// A frame in words.
fn kind_of(frame: &Frame<'_>) -> &'static str {
    match frame {
        Frame::Hello(_) => "Hello",
        Frame::Welcome(_) => "Welcome",
        Frame::Refuse(_) => "Refuse",
        Frame::Key(_) => "Key",
        Frame::Head(_) => "Head",
        Frame::Alive => "Alive",
        Frame::Records(_) => "Records",
        Frame::Ack(_) => "Ack",
        Frame::SyncBegin => "SyncBegin",
        Frame::SyncEnd { .. } => "SyncEnd",
        Frame::Halted(_) => "Halted",
        Frame::State(_) => "State",
        Frame::Bye => "Bye",
    }
}

/// Where everybody is now who was in a cell.
fn newest(cell: &Arc<Cell>) -> &Arc<Cell> {
    let mut cell = cell;
    while let Some(moved) = cell.moved() {
        cell = moved;
    }
    cell
}

/// An error of the connection, with what it comes from.
fn in_full(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.ends_with(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
