//! Reading a link: into the thread's scratch buffer, parsed where it lies.

use std::io;
use std::sync::Arc;
use std::task::Context;

use proto::frame::{FrameError, strip_header};
use proto::session::{ReplyHead, encode_bad_request};
use proto::ws::{self, Event, Input, Violation};
use tokio::io::Interest;

use super::link::{Inner, Link, Partial, Stage, Turn, Wire};
use super::tls;
use crate::listen::Front;
use crate::metrics::labels::{Closed, Transport};
use crate::scratch;
use crate::serve::Outgoing;

impl Link {
    /// Reads once and handles what was read.
    pub(super) fn read(self: &Arc<Self>, cx: &mut Context<'_>) -> Turn {
        let mut inner = self.lock();
        if inner.wire.stage() == Stage::Ended {
            return Turn::End;
        }
        if self.is_held_back(&mut inner.wire, cx) {
            return Turn::HeldBack;
        }
        scratch::with(|scratch, answers| match self.receive(&mut inner.wire, scratch) {
            Ok(0) => {
                if inner.wire.stage() == Stage::Open {
                    self.fail(&mut inner.wire, Closed::Lost);
                }
                Turn::End
            }
            Ok(read) => {
                self.take_in(&mut inner, &mut scratch[..read], answers);
                Turn::Again
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Turn::Again,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Turn::Again,
            Err(error) => {
                let broke_tls = error.kind() == io::ErrorKind::InvalidData;
                self.fail(&mut inner.wire, if broke_tls { Closed::Protocol } else { Closed::Lost });
                Turn::End
            }
        })
    }

    /// Whether this link may not read now: its waker is left with who will let it then.
    fn is_held_back(&self, wire: &mut Wire, cx: &Context<'_>) -> bool {
        wire.held_back = false;
        if wire.stage() == Stage::Closing {
            return false;
        }
        let reader = cx.waker();
        if wire.outbox.as_mut().is_some_and(|outbox| outbox.holds_back(reader)) {
            wire.held_back = true;
            return true;
        }
        let budget = &self.front.budget;
        // Looks again after leaving the waker: room that was made in between woke nobody.
        wire.held_back = match &mut wire.partial {
            None => {
                !budget.may_start() && {
                    budget.wait_to_start(reader);
                    !budget.may_start()
                }
            }
            Some(partial) => {
                !budget.may_grow(&mut partial.held) && {
                    budget.wait_to_grow(reader);
                    !budget.may_grow(&mut partial.held)
                }
            }
        };
        wire.held_back
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
        if wire.stage() != Stage::Open {
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
                    self.answer(wire, answers, &outgoing);
                }
                Ok(Some(Event::Ping(payload))) => {
                    answers.extend_from_slice(ws::pong(payload).as_ref());
                }
                Ok(Some(Event::Pong(_))) => front.server.handle_alive(self.id(), now),
                Ok(Some(Event::Close(close))) => break Some((close.answer(), Closed::Peer)),
                Err(violation) => {
                    front.metrics.bad_messages.count(&[violation.reason()]);
                    let frame = ws::close(violation.code(), &violation.to_string());
                    break Some((frame, why(violation)));
                }
            }
        };
        self.send_gathered(wire, answers);
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
    }
}

fn why(violation: Violation) -> Closed {
    if violation == Violation::TooBig { Closed::Oversize } else { Closed::Protocol }
}
