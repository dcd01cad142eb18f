//! Reading a link: into the thread's scratch buffer, parsed where it lies.

use std::io;
use std::sync::Arc;
use std::task::Context;

use proto::frame::{FrameError, strip_header};
use proto::session::{ReplyHead, encode_bad_request};
use proto::ws::{self, Event, Input, Violation};
use rustix::net::RecvFlags;
use tokio::io::Interest;

use super::glance::whole_messages;
use super::link::{Inner, Link, Partial, Stage, Turn, Wire};
use super::output::Cause;
use super::tls;
use crate::listen::Front;
use crate::metrics::labels::{Closed, Transport};
use crate::scratch;
use crate::serve::Outgoing;

/// Whether a link may read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gate {
    /// Whatever comes.
    Open,
    /// Only what leaves nothing half received.
    WholeOnly,
    /// Not now.
    Shut,
}

impl Link {
    /// Reads once and handles what was read.
    pub(super) fn read(self: &Arc<Self>, cx: &Context<'_>) -> Turn {
        let mut inner = self.lock();
        if inner.wire.stage() == Stage::Ended {
            return Turn::End;
        }
        let gate = self.gate(&mut inner.wire, cx);
        scratch::with(|scratch, answers| {
            let room = match gate {
                Gate::Shut => return Turn::HeldBack,
                Gate::Open => scratch.len(),
                Gate::WholeOnly => match self.glance(scratch) {
                    Ok(0) if self.is_still_shut(&mut inner.wire, cx) => return Turn::HeldBack,
                    Ok(0) => scratch.len(),
                    Ok(whole) => whole,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Turn::Again,
                    // The read will say it again.
                    Err(_) => scratch.len(),
                },
            };
            self.read_into(&mut inner, &mut scratch[..room], answers)
        })
    }

    fn read_into(
        self: &Arc<Self>,
        inner: &mut Inner,
        scratch: &mut [u8],
        answers: &mut Vec<u8>,
    ) -> Turn {
        match self.receive(&mut inner.wire, scratch) {
            Ok(0) => {
                if inner.wire.stage() == Stage::Open {
                    inner.wire.heard = self.front.clock.seconds();
                    self.fail(&mut inner.wire, Closed::Lost);
                }
                Turn::End
            }
            Ok(read) => {
                self.take_in(inner, &mut scratch[..read], answers);
                Turn::Again
            }
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                Turn::Again
            }
            Err(error) => {
                let broke_tls = error.kind() == io::ErrorKind::InvalidData;
                // Its machine says so; silence begins there, for everybody in an outage alike.
                if error.kind() == io::ErrorKind::ConnectionReset {
                    inner.wire.heard = self.front.clock.seconds();
                }
                self.fail(&mut inner.wire, if broke_tls { Closed::Protocol } else { Closed::Lost });
                Turn::End
            }
        }
    }

    /// Takes in what came with the handshake and lies in rustls.
    pub(super) fn take_decrypted(
        self: &Arc<Self>,
        inner: &mut Inner,
        scratch: &mut [u8],
        answers: &mut Vec<u8>,
    ) {
        while let Some(tls) = &mut inner.wire.tls {
            match tls::read_decrypted(tls, scratch) {
                0 => return,
                read => self.take_in(inner, &mut scratch[..read], answers),
            }
        }
    }

    /// Whether this link may read now. If not, its waker is left with who will let it.
    fn gate(&self, wire: &mut Wire, cx: &Context<'_>) -> Gate {
        wire.held_back = false;
        if wire.stage() == Stage::Closing {
            return Gate::Open;
        }
        if wire.outbox.as_mut().is_some_and(|outbox| outbox.holds_back(cx.waker())) {
            wire.held_back = true;
            return Gate::Shut;
        }
        if self.has_room(wire) {
            return Gate::Open;
        }
        // What is encrypted cannot be looked at without taking it.
        if wire.partial.is_none() && wire.tls.is_none() {
            return Gate::WholeOnly;
        }
        if self.is_still_shut(wire, cx) { Gate::Shut } else { Gate::Open }
    }

    /// Whether the budget lets this link read whatever comes.
    fn has_room(&self, wire: &mut Wire) -> bool {
        let budget = &self.front.budget;
        match &mut wire.partial {
            Some(partial) => budget.may_grow(&mut partial.held),
            // It cannot be let through to whole messages only, so the bytes alone decide.
            None if wire.tls.is_some() => !budget.is_short(),
            None => budget.may_start(),
        }
    }

    /// Leaves the waker with the budget, and looks again: room that was made in between woke nobody.
    fn is_still_shut(&self, wire: &mut Wire, cx: &Context<'_>) -> bool {
        let budget = &self.front.budget;
        if wire.partial.is_some() || wire.tls.is_some() {
            budget.wait_to_grow(cx.waker());
        } else {
            budget.wait_to_start(cx.waker());
        }
        wire.held_back = !self.has_room(wire);
        wire.held_back
    }

    /// How many bytes in the kernel are whole messages. At the end of the stream 1, so that the read
    /// finds it.
    fn glance(&self, scratch: &mut [u8]) -> io::Result<usize> {
        self.io.try_io(Interest::READABLE, || {
            let (seen, _) = rustix::net::recv(&self.io, &mut *scratch, RecvFlags::PEEK)?;
            Ok(if seen == 0 { 1 } else { whole_messages(&scratch[..seen]) })
        })
    }

    fn receive(&self, wire: &mut Wire, scratch: &mut [u8]) -> io::Result<usize> {
        if let Some(tls) = &mut wire.tls {
            let read = tls::read(tls, &self.io, scratch);
            // A key update or an alert may want to be answered.
            if tls.wants_write() && wire.outbox.is_none() {
                tls::flush(tls, &self.io)?;
            }
            return read;
        }
        let mut read = None;
        let outcome = self.io.try_io(Interest::READABLE, || {
            let got = rustix::io::read(&self.io, &mut *scratch)?;
            read = Some(got);
            // A short read took all there was. Saying so makes tokio forget the readiness, which
            // saves the read that would only say EAGAIN. It is right with epoll's edges: bytes that
            // come later are a new edge, and an end of file keeps its own mark. Linux only.
            if got > 0 && got < scratch.len() {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            Ok(())
        });
        match read {
            Some(got) => Ok(got),
            None => outcome.map(|()| 0),
        }
    }

    /// Handles bytes that were read, and answers what is in them.
    pub(super) fn take_in(
        self: &Arc<Self>,
        inner: &mut Inner,
        bytes: &mut [u8],
        answers: &mut Vec<u8>,
    ) {
        let Inner { state, wire } = inner;
        if wire.stage() != Stage::Open || bytes.is_empty() {
            return;
        }
        let front = &*self.front;
        let now = front.clock.now();
        wire.heard = now.seconds;
        wire.pinged = 0;
        let limits = ws::Limits { message_bytes: front.limits.max_message_bytes };
        let mut partial = wire.partial.take();
        let mut fresh = ws::Decoder::default();
        let decoder = partial.as_mut().map_or(&mut fresh, |partial| &mut partial.decoder);
        let mut input = Input::new(bytes);
        let mut whole = false;
        let ending = loop {
            match decoder.poll_event(&mut input, limits) {
                Ok(None) => break None,
                Ok(Some(Event::Message(payload))) => {
                    whole = true;
                    let started = front.clock.elapsed();
                    front.metrics.messages_received.get(Transport::Ws).increment(1);
                    front
                        .metrics
                        .messages_received_bytes
                        .get(Transport::Ws)
                        .increment(payload.len() as u64);
                    let outgoing = match strip_header(payload) {
                        Ok(message) => front.server.handle_message(state, now, message),
                        Err(error) => refused(front, error),
                    };
                    let took = front.clock.elapsed().saturating_sub(started);
                    front.metrics.message_handle.record(took);
                    self.answer(wire, answers, &outgoing, Cause::Answer);
                }
                Ok(Some(Event::Ping(payload))) => {
                    answers.extend_from_slice(ws::pong(payload).as_ref());
                }
                Ok(Some(Event::Pong(_))) => front.server.handle_alive(state, now),
                Ok(Some(Event::Close(close))) => break Some((close.answer(), Closed::Peer)),
                Err(violation) => {
                    front.metrics.bad_messages.count(&[violation.reason()]);
                    let frame = ws::close(violation.code(), &violation.to_string());
                    break Some((frame, why(violation)));
                }
            }
        };
        self.send_gathered(wire, answers, Cause::Answer);
        match ending {
            Some((frame, why)) => {
                wire.partial = partial;
                self.begin_close(wire, &frame, why);
            }
            None => {
                if let Some(partial) = partial.as_mut().filter(|_| whole) {
                    // What is left, if anything, belongs to another message.
                    partial.since = now.seconds;
                }
                self.park(wire, partial, fresh, now.seconds);
            }
        }
    }

    /// Keeps what is half received until more comes, or gives back what held it.
    fn park(&self, wire: &mut Wire, partial: Option<Box<Partial>>, fresh: ws::Decoder, now: u32) {
        let budget = &self.front.budget;
        wire.partial = partial;
        if wire.stage() != Stage::Open {
            return self.release(wire);
        }
        if wire.partial.is_none() && !fresh.is_idle() {
            wire.partial =
                Some(Box::new(Partial { decoder: fresh, held: budget.hold(), since: now }));
        }
        let Some(partial) = &mut wire.partial else { return };
        if partial.decoder.is_idle() {
            self.release(wire);
        } else {
            budget.account(&mut partial.held, partial.decoder.held_bytes());
        }
    }
}

/// The reply to a message without a readable header: nothing says who sent it.
#[cold]
fn refused(front: &Front, error: FrameError) -> Outgoing {
    front.metrics.bad_messages.count(&[error.reason()]);
    Outgoing {
        head: ReplyHead::anonymous(),
        body: Some(encode_bad_request(&error.to_string())),
        refused: true,
        ticket: None,
    }
}

fn why(violation: Violation) -> Closed {
    if violation == Violation::TooBig { Closed::Oversize } else { Closed::Protocol }
}
