//! The replica's end: sends what its aggregator knows, and keeps what comes back.

use std::sync::Arc;
use std::time::Duration;

use super::UplinkError;
use crate::aggregate::Aggregator;
use crate::clock::Now;

/// One aggregator, from the replica's side: one connection after another.
///
/// The shell dials; on success it calls [`handle_connected`](Self::handle_connected), feeds what it
/// reads, writes what [`poll_transmit`](Self::poll_transmit) gives, and calls
/// [`handle_timeout`](Self::handle_timeout) when [`poll_timeout`](Self::poll_timeout) has passed or
/// [`Aggregator::uplink_woken`] resolves.
#[derive(Debug)]
pub struct ReplicaUplink {
    aggregator: Arc<Aggregator>,
    link: usize,
}

impl ReplicaUplink {
    /// `link` is the aggregator's place in the list of `--uplink`.
    pub fn new(aggregator: Arc<Aggregator>, link: usize) -> Self {
        Self { aggregator, link }
    }

    /// A stream is open: says Hello.
    pub fn handle_connected(&mut self, now: Now) {
        let _ = (now, &self.aggregator, self.link);
    }

    /// Bytes have come.
    ///
    /// # Errors
    /// The connection is of no further use: close it, call
    /// [`handle_disconnected`](Self::handle_disconnected), dial again after a while.
    pub fn handle_bytes(&mut self, now: Now, bytes: &[u8]) -> Result<(), UplinkError> {
        let _ = (now, bytes);
        Ok(())
    }

    /// Time has passed, or something waits to be sent.
    ///
    /// # Errors
    /// As [`handle_bytes`](Self::handle_bytes).
    pub fn handle_timeout(&mut self, now: Now) -> Result<(), UplinkError> {
        let _ = now;
        Ok(())
    }

    /// Appends bytes that are to be written; whether there were any. Asked again when they were
    /// written, so that what is not taken by the peer waits here, in its newest state.
    pub fn poll_transmit(&mut self, now: Now, out: &mut Vec<u8>) -> bool {
        let _ = (now, out);
        false
    }

    /// How long until [`handle_timeout`](Self::handle_timeout) has something to do.
    pub fn poll_timeout(&self, now: Now) -> Duration {
        let _ = now;
        super::ALIVE_EVERY
    }

    /// The connection is gone.
    pub fn handle_disconnected(&mut self, now: Now) {
        let _ = now;
    }

    /// The process drains: Bye is sent behind everything that is known. True once it may be closed:
    /// all was sent and acknowledged.
    pub fn drain(&mut self, now: Now) -> bool {
        let _ = now;
        true
    }

    /// Whether the aggregator has welcomed this replica on the present connection.
    pub fn is_welcomed(&self) -> bool {
        false
    }

    /// Whether the full state was taken in on the present connection.
    pub fn is_synced(&self) -> bool {
        false
    }
}
