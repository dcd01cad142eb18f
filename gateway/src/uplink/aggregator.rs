//! The aggregator's end: takes in what a replica knows, and tells it what is halted.

use std::sync::Arc;
use std::time::Duration;

use super::UplinkError;
use crate::aggregate::{Aggregator, Durable, Ticket};
use crate::clock::Now;

/// One connection of a replica.
///
/// The shell feeds what it reads, writes what [`poll_transmit`](Self::poll_transmit) gives, waits
/// for [`poll_commit`](Self::poll_commit), and calls [`handle_timeout`](Self::handle_timeout) when
/// [`poll_timeout`](Self::poll_timeout) has passed or [`Aggregator::halts`] changes.
#[derive(Debug)]
pub struct AggregatorUplink {
    aggregator: Arc<Aggregator>,
    certified: Option<Box<str>>,
}

impl AggregatorUplink {
    /// `certified` is the name in the client's certificate, which the replica must call itself by;
    /// `None` where there are no certificates (tests).
    pub fn new(aggregator: Arc<Aggregator>, certified: Option<Box<str>>) -> Self {
        Self { aggregator, certified }
    }

    /// Bytes have come.
    ///
    /// # Errors
    /// The connection is of no further use: write what [`poll_transmit`](Self::poll_transmit) still
    /// gives, close it, call [`handle_disconnected`](Self::handle_disconnected).
    pub fn handle_bytes(&mut self, now: Now, bytes: &[u8]) -> Result<(), UplinkError> {
        let _ = (now, bytes, &self.aggregator, &self.certified);
        Ok(())
    }

    /// Time has passed, or what is halted has changed.
    ///
    /// # Errors
    /// As [`handle_bytes`](Self::handle_bytes).
    pub fn handle_timeout(&mut self, now: Now) -> Result<(), UplinkError> {
        let _ = now;
        Ok(())
    }

    /// What has to be on the disk before the next acknowledgement: wait for
    /// [`Aggregator::committed`], then call [`handle_committed`](Self::handle_committed) with what
    /// it gave. The same until then.
    pub fn poll_commit(&self) -> Option<Ticket> {
        None
    }

    /// See [`poll_commit`](Self::poll_commit).
    pub fn handle_committed(&mut self, ticket: Ticket, durable: Durable) {
        let _ = (ticket, durable);
    }

    /// Appends bytes that are to be written; whether there were any. Asked again when they were
    /// written.
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

    /// What the replica calls itself, once it is welcomed.
    pub fn replica(&self) -> Option<&str> {
        None
    }
}
