//! Writing to a link: at once under its lock, and through a task only while the socket is full.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use proto::ws::{self, Opcode};

use super::link::{Link, Stage, Wire, milliseconds};
use super::outbox::Outbox;
use super::tls;
use crate::aggregate::Ticket;
use crate::metrics::labels::{Closed, Transport};
use crate::serve::Outgoing;

/// Small answers gathered before they are sent: a peer that pipelines a thousand heartbeats costs a
/// handful of system calls.
const GATHER_BYTES: usize = 16 * 1024;
/// Chunks written with one system call.
const SLICES: usize = 16;

/// Why something is sent, which decides what happens if the peer does not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// The peer asked, or it is a few bytes of ours: it waits.
    Answer,
    /// A new head: past a limit the link is dropped.
    Push,
}

/// What the answers behind it wait for (rollouts.md, decision 18).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gate {
    ticket: Ticket,
    /// When it was put there, since the start of the process.
    since: Duration,
}

/// How far a queue got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flushed {
    /// Everything is written, and the queue is gone.
    Whole,
    /// The rest waits behind a gate.
    Held,
    /// The socket takes no more now.
    Full,
}

impl Link {
    /// Sends one message, or gathers it in `answers` until [`Link::send_gathered`].
    pub(super) fn answer(
        self: &Arc<Self>,
        wire: &mut Wire,
        answers: &mut Vec<u8>,
        outgoing: &Outgoing,
        cause: Cause,
    ) {
        if let Some(ticket) = outgoing.ticket {
            self.send_gathered(wire, answers, cause);
            self.hold(wire, ticket);
        }
        let [head, body] = outgoing.parts();
        // The message header of OpAMP over WebSocket: a varint zero.
        let len = 1 + head.len() + body.len();
        let mut header = [0; ws::MAX_HEADER_BYTES];
        let used = ws::encode_header(Opcode::Binary, len, &mut header);
        answers.extend_from_slice(&header[..used]);
        answers.push(0);
        answers.extend_from_slice(head);
        self.front.metrics.messages_sent.get(Transport::Ws).increment(1);
        self.front.metrics.messages_sent_bytes.get(Transport::Ws).increment(len as u64 - 1);
        match &outgoing.body {
            Some(body) => {
                self.send(wire, answers, Some(body), cause);
                answers.clear();
                if wire.accepted_ms != 0 && !outgoing.refused {
                    let now = milliseconds(self.front.clock.elapsed());
                    let took = now.wrapping_sub(std::mem::take(&mut wire.accepted_ms));
                    let took = Duration::from_millis(took.into());
                    self.front.metrics.connect_to_offer.record(took);
                }
            }
            None if answers.len() >= GATHER_BYTES => self.send_gathered(wire, answers, cause),
            None => {}
        }
    }

    /// Sends what [`Link::answer`] gathered.
    pub(super) fn send_gathered(
        self: &Arc<Self>,
        wire: &mut Wire,
        answers: &mut Vec<u8>,
        cause: Cause,
    ) {
        if !answers.is_empty() {
            self.send(wire, answers, None, cause);
            answers.clear();
        }
    }

    /// Sends `head` and then `body`: as much as the socket takes now, the rest by a task. After our
    /// close frame nothing is sent.
    pub(super) fn send(
        self: &Arc<Self>,
        wire: &mut Wire,
        head: &[u8],
        body: Option<&Bytes>,
        cause: Cause,
    ) {
        if wire.stage() != Stage::Open {
            return;
        }
        if wire.outbox.is_some() {
            return self.queue(wire, head, body, cause);
        }
        match self.write(wire, head, body.map_or(&[], |body| body)) {
            Ok(written) => {
                let whole = head.len() + body.map_or(0, Bytes::len);
                if written < whole || wire.tls.as_ref().is_some_and(|tls| tls.wants_write()) {
                    let mut outbox = Outbox::new(self.front.clock.seconds());
                    outbox.draining = true;
                    wire.outbox = Some(Box::new(outbox));
                    let of_head = written.min(head.len());
                    let body = body.map(|body| body.slice(written - of_head..));
                    self.queue(wire, &head[of_head..], body.as_ref(), cause);
                    tokio::spawn(drain(Arc::clone(self)));
                }
            }
            Err(_) => self.fail(wire, Closed::Lost),
        }
    }

    /// Lets nothing more out of the link until `ticket` is on the disk: replies keep their order.
    fn hold(self: &Arc<Self>, wire: &mut Wire, ticket: Ticket) {
        if wire.stage() != Stage::Open {
            return;
        }
        let gate = Gate { ticket, since: self.front.clock.elapsed() };
        let now = self.front.clock.seconds();
        let outbox = wire.outbox.get_or_insert_with(|| Box::new(Outbox::new(now)));
        if outbox.hold(gate) {
            tokio::spawn(release(Arc::clone(self), gate));
        }
    }

    /// Lets out what waited for the first gate, and returns the next one.
    fn open(self: &Arc<Self>, wire: &mut Wire) -> Option<Gate> {
        let outbox = wire.outbox.as_mut()?;
        let next = outbox.open(self.front.clock.seconds());
        if !outbox.draining {
            match self.flush(wire) {
                Ok(Flushed::Whole) => self.shut_when_sent(wire),
                Ok(Flushed::Held) => {}
                Ok(Flushed::Full) => {
                    if let Some(outbox) = &mut wire.outbox {
                        outbox.draining = true;
                        tokio::spawn(drain(Arc::clone(self)));
                    }
                }
                Err(_) => self.fail(wire, Closed::Lost),
            }
        }
        next
    }

    /// Queues a message, or what is left of one.
    fn queue(&self, wire: &mut Wire, head: &[u8], body: Option<&Bytes>, cause: Cause) {
        let Some(outbox) = &mut wire.outbox else { return };
        let parts = std::iter::once(Bytes::copy_from_slice(head)).chain(body.cloned());
        match cause {
            Cause::Answer => outbox.push_answer(parts),
            Cause::Push => {
                if outbox.push(parts).is_err() {
                    self.fail(wire, Closed::SlowReader);
                }
            }
        }
    }

    /// Writes what the socket takes now of two slices, and says how much that was.
    fn write(&self, wire: &mut Wire, head: &[u8], body: &[u8]) -> io::Result<usize> {
        if let Some(tls) = &mut wire.tls {
            return tls::write(tls, &self.io, [head, body]);
        }
        let mut written = 0;
        while written < head.len() + body.len() {
            let of_head = written.min(head.len());
            let slices = [IoSlice::new(&head[of_head..]), IoSlice::new(&body[written - of_head..])];
            match self.io.try_write_vectored(&slices) {
                Ok(more) => written += more,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(written)
    }

    /// Writes what the socket takes now of the queue.
    fn flush(&self, wire: &mut Wire) -> io::Result<Flushed> {
        let Wire { outbox: slot, tls, .. } = wire;
        let Some(outbox) = slot else { return Ok(Flushed::Whole) };
        let now = self.front.clock.seconds();
        loop {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let filled = outbox.fill(&mut slices);
            let written = match tls {
                Some(tls) => {
                    tls::write(tls, &self.io, [slices.first().map_or(&[], |first| first), &[]])
                }
                None if filled == 0 => Ok(0),
                None => self.io.try_write_vectored(&slices[..filled]),
            };
            match written {
                Ok(written) => {
                    outbox.advance(written, now);
                    let encrypted_left = tls.as_ref().is_some_and(|tls| tls.wants_write());
                    if outbox.is_drained() && !encrypted_left {
                        if outbox.is_empty() {
                            *slot = None;
                            return Ok(Flushed::Whole);
                        }
                        outbox.draining = false;
                        return Ok(Flushed::Held);
                    }
                    if written == 0 {
                        return Ok(Flushed::Full);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Flushed::Full);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Shuts our half of a closing link's socket once everything is sent.
    pub(super) fn shut_when_sent(self: &Arc<Self>, wire: &mut Wire) {
        if wire.stage() != Stage::Closing || wire.outbox.is_some() {
            return;
        }
        if let Some(tls) = &mut wire.tls {
            tls.send_close_notify();
            // If the socket is full after all, the peer misses a courtesy.
            let _ = tls::flush(tls, &self.io);
        }
        // An error means that the peer was faster.
        let _ = rustix::net::shutdown(&self.io, rustix::net::Shutdown::Write);
    }
}

/// Waits for each gate of a link in turn, and ends with the last.
async fn release(link: Arc<Link>, first: Gate) {
    let mut next = Some(first);
    while let Some(Gate { ticket, since }) = next {
        let waited = link.front.clock.elapsed().saturating_sub(since);
        link.front.server.durable(ticket, waited).await;
        next = link.open(&mut link.lock().wire);
    }
}

/// Sends a link's queue, and ends with it.
async fn drain(link: Arc<Link>) {
    loop {
        let writable = link.io.writable().await;
        let mut inner = link.lock();
        let wire = &mut inner.wire;
        if wire.stage() == Stage::Ended {
            return;
        }
        match writable.and_then(|()| link.flush(wire)) {
            Ok(Flushed::Whole) => return link.shut_when_sent(wire),
            // Whoever lets it go on begins anew.
            Ok(Flushed::Held) => return,
            Ok(Flushed::Full) => {}
            Err(_) => return link.fail(wire, Closed::Lost),
        }
    }
}
