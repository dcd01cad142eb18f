//! One WebSocket: the socket, what its agents told us, and what is half said either way.
//!
//! Whoever has something to do takes the link's lock and does it: the reader task a message, the
//! pusher an offer, the sweep a ping. Nothing waits under the lock. There is no channel, no timer
//! and no buffer in an idle link; the reader task is [`Steady`], eight bytes (idle-links.md).
//!
//! A link is [`Stage::Open`] until one side says close. Then it is [`Stage::Closing`]: our close
//! frame is sent, our half of the socket is shut, and what still comes is thrown away until the peer
//! shuts its half or the sweep loses patience. [`Server::handle_closed`](crate::serve::Server) is
//! called exactly once, when the reader task is dropped, however that came about.

use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use proto::ids::InstanceUid;
use proto::ws;
use rustls::ServerConnection;
use tokio::net::TcpStream;

use super::acknowledged::{has_unread, is_acknowledged};
use super::budget::Held;
use super::outbox::Outbox;
use super::output::{Cause, Gate};
use crate::clock::{Now, Seconds};
use crate::listen::Front;
use crate::listen::socket::Socket;
use crate::metrics::labels::{Closed, Transport};
use crate::scratch;
use crate::serve::{LinkId, LinkState, Linked, LinksFull, Outgoing, Parting, Server};
use crate::tokens::Grant;

/// Silence after which a link is pinged. Collectors speak every 30 s; a client that re-arms its own
/// heartbeat at every frame would starve if pinged more often than that.
pub const PING_AFTER_SECONDS: Seconds = 45;
/// How long a pinged link may stay silent before it counts as dead: a peer that vanished is noticed
/// within two intervals.
pub const PONG_SECONDS: Seconds = 15;
/// How long a message may take from its first byte to its last, so that those who hold a buffer for
/// one cannot hold it for ever.
pub const MESSAGE_SECONDS_MAX: Seconds = 30;
/// How long a peer may take to close its half after ours.
pub const CLOSE_SECONDS_MAX: Seconds = 5;
/// Offers pushed to one link before others have a turn.
pub const OFFERS_PER_VISIT: u32 = 64;
/// Reads of one link before others have a turn: at most half a megabyte.
const READS_PER_TURN: usize = 8;

/// A WebSocket link, shared by its reader task, the pusher and the sweep.
pub struct Link {
    pub(super) front: Arc<Front>,
    id: LinkId,
    pub(super) io: TcpStream,
    inner: Mutex<Inner>,
}

/// With the two counts of its `Arc` it has to stay within the allocator's class of 320 bytes. (Without
/// 48 of them it would be in that of 256.)
const _: () = assert!(size_of::<Link>() + 2 * size_of::<usize>() <= 320);

/// What the link's lock guards.
pub(super) struct Inner {
    pub(super) state: LinkState,
    pub(super) wire: Wire,
}

/// The link as a stream of bytes.
pub(super) struct Wire {
    /// A message that arrived in part.
    pub(super) partial: Option<Box<Partial>>,
    /// What the socket could not take at once; a task sends it.
    pub(super) outbox: Option<Box<Outbox<Gate>>>,
    pub(super) tls: Option<Box<ServerConnection>>,
    /// When the peer last sent anything.
    pub(super) heard: Seconds,
    /// When it was pinged for its silence; 0 if it was not.
    pub(super) pinged: Seconds,
    /// When it began to close; 0 while it is open.
    closing_since: Seconds,
    /// When its socket was accepted, in milliseconds, until its first offer; 0 after that.
    pub(super) accepted_ms: u32,
    stage: Stage,
    /// Why it closes, once it does.
    why: Closed,
    /// Bytes lie in the kernel that the budget does not let us read: its silence is ours.
    pub(super) held_back: bool,
}

/// A message that arrived in part, and what that costs.
#[derive(Default)]
pub(super) struct Partial {
    pub(super) decoder: ws::Decoder,
    pub(super) held: Held,
    pub(super) since: Seconds,
}

/// [`Server::redecide`] or [`Server::release`].
type Decide = fn(
    &Server,
    &mut LinkState,
    Now,
    &mut dyn FnMut(Outgoing) -> ControlFlow<()>,
) -> ControlFlow<()>;

/// What [`Link::redecide`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Visit {
    /// Offers that were sent.
    pub(crate) offers: u32,
    /// Whether all of its agents were decided; the link has to be visited again otherwise.
    pub(crate) finished: bool,
}

/// How far a link is from its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Open,
    Closing,
    /// Nothing more is read or written; the reader task is about to find out.
    Ended,
}

/// Makes a link of an upgraded socket: sends `answer` (the 101), takes in `frames` (what came behind
/// the request) and starts the reader task. `accepted` is when the socket was, since the start of the
/// process. The caller holds a place of admission for it, which is
/// given back when the link ends.
pub fn begin(
    front: &Arc<Front>,
    socket: Socket,
    grant: Grant,
    answer: &str,
    mut frames: BytesMut,
    accepted: Duration,
) -> Result<(), LinksFull> {
    let (io, tls) = match socket {
        Socket::Plain(io) => (io, None),
        Socket::Tls(stream) => {
            let (io, tls) = stream.into_inner();
            (io, Some(Box::new(tls)))
        }
    };
    let now = front.clock.seconds();
    let link = front.links.insert_with(|id| {
        Arc::new(Link {
            front: Arc::clone(front),
            id,
            io,
            inner: Mutex::new(Inner {
                state: LinkState::new(id, grant),
                wire: Wire {
                    partial: None,
                    outbox: None,
                    tls,
                    heard: now,
                    pinged: 0,
                    closing_since: 0,
                    accepted_ms: milliseconds(accepted),
                    stage: Stage::Open,
                    why: Closed::Lost,
                    held_back: false,
                },
            }),
        })
    })?;
    front.metrics.connections.get(Transport::Ws).increment(1.0);
    front.metrics.connects.get(Transport::Ws).increment(1);
    {
        let mut inner = link.lock();
        link.send(&mut inner.wire, answer.as_bytes(), None, Cause::Answer);
        scratch::with(|scratch, answers| {
            link.take_in(&mut inner, &mut frames, answers);
            // What TLS has decrypted already makes no socket readable.
            link.take_decrypted(&mut inner, scratch, answers);
        });
    }
    tokio::spawn(Steady(link));
    Ok(())
}

/// Wraps after 49 days, which a difference does not mind; never 0.
pub(super) fn milliseconds(since_start: Duration) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "it may wrap")]
    let wrapped = since_start.as_millis() as u32;
    wrapped.max(1)
}

/// The reader task of a link. Every byte of it is paid half a million times: tokio gives a future of
/// up to 24 bytes one block of 128.
struct Steady(Arc<Link>);

const _: () = assert!(size_of::<Steady>() <= 24);

impl Future for Steady {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let link = &self.0;
        let outcome = link.poll_turn(cx);
        // Whether or not this turn was owed to the budget: the next in line may have its own.
        link.front.budget.wake_next();
        outcome
    }
}

impl Drop for Steady {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// What follows on a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Look whether there is more.
    Again,
    /// The waker is left with the budget.
    HeldBack,
    /// The link has ended.
    End,
}

impl Linked for Link {
    fn with_state(&self, with: &mut dyn FnMut(&mut LinkState)) {
        with(&mut self.lock().state);
    }
}

impl Link {
    /// Its name.
    pub fn id(&self) -> LinkId {
        self.id
    }

    /// Closes it in peace, with the code that says why; nothing happens if it closes already.
    pub fn close(self: &Arc<Self>, why: Closed) {
        let (code, text) = match why {
            Closed::Drain => (ws::code::GOING_AWAY, "this replica goes away"),
            Closed::Duplicate => (ws::code::NORMAL, "another connection speaks for this agent"),
            Closed::Oversize => (ws::code::TOO_BIG, "the message is over the size limit"),
            Closed::Protocol => (ws::code::PROTOCOL_ERROR, ""),
            Closed::Peer
            | Closed::Lost
            | Closed::Silent
            | Closed::Stalled
            | Closed::SlowReader
            | Closed::Expired
            | Closed::Evicted => (ws::code::NORMAL, ""),
        };
        let mut inner = self.lock();
        self.begin_close(&mut inner.wire, &ws::close(code, text), why);
    }

    /// Asks for a sign of life because somebody else claims `uid`, one of its agents.
    pub(crate) fn ping(self: &Arc<Self>, uid: InstanceUid, now: Now) {
        let mut inner = self.lock();
        let Inner { state, wire } = &mut *inner;
        self.front.server.handle_pinged(state, uid, now);
        self.send(wire, ws::ping(&[]).as_ref(), None, Cause::Answer);
    }

    /// Ends it without a word: nobody is at the other end.
    pub(crate) fn abandon(&self, why: Closed) {
        self.fail(&mut self.lock().wire, why);
    }

    /// Decides its agents again after a head change: some of them, if there are many. A bridge takes
    /// its offers as fast as it reads, like anybody's answers, and is not dropped for their number.
    pub(crate) fn redecide(self: &Arc<Self>, now: Now) -> Visit {
        self.visit(now, Server::redecide)
    }

    /// Decides its agents again after an offer to one of them was held.
    pub(crate) fn decide_held(self: &Arc<Self>, now: Now) -> Visit {
        self.visit(now, Server::release)
    }

    fn visit(self: &Arc<Self>, now: Now, decide: Decide) -> Visit {
        let mut inner = self.lock();
        let Inner { state, wire } = &mut *inner;
        let mut visit = Visit { offers: 0, finished: true };
        if wire.stage != Stage::Open {
            return visit;
        }
        let is_long = |wire: &Wire| wire.outbox.as_ref().is_some_and(|outbox| outbox.is_long());
        if state.agents() > 1 && is_long(wire) {
            visit.finished = false;
            return visit;
        }
        let mut frames = Vec::new();
        let decided = decide(&self.front.server, state, now, &mut |outgoing| {
            visit.offers += 1;
            self.answer(wire, &mut frames, &outgoing, Cause::Push);
            if is_long(wire) || visit.offers == OFFERS_PER_VISIT {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        self.send_gathered(wire, &mut frames, Cause::Push);
        visit.finished = decided.is_continue();
        visit
    }

    /// Runs what is due on it: see the constants of this module and of [`super::outbox`].
    pub(crate) fn sweep(self: &Arc<Self>, at: Now) {
        let mut inner = self.lock();
        let Inner { state, wire } = &mut *inner;
        let now = at.seconds;
        let since = |then: Seconds| now.saturating_sub(then);
        self.witness(state, wire, at);
        // What it said may lie in the kernel, unread by a process that is behind: to give up those
        // who speak would bring them all back at once, to one that is behind already.
        let unread = || has_unread(&self.io);
        if wire.stage == Stage::Open && !wire.held_back {
            self.front.server.handle_silence(state, at, wire.heard, &unread);
        }
        match wire.stage {
            Stage::Ended => {}
            Stage::Closing => {
                if since(wire.closing_since) >= CLOSE_SECONDS_MAX {
                    let why = wire.why;
                    self.fail(wire, why);
                }
            }
            Stage::Open => {
                if wire.outbox.as_ref().is_some_and(|outbox| outbox.is_stuck(now)) {
                    self.fail(wire, Closed::SlowReader);
                } else if wire
                    .partial
                    .as_ref()
                    .is_some_and(|partial| since(partial.since) >= MESSAGE_SECONDS_MAX)
                {
                    self.fail(wire, Closed::Stalled);
                } else if wire.held_back {
                    // It may have answered long ago.
                } else if wire.pinged != 0 {
                    if since(wire.pinged) >= PONG_SECONDS && !unread() {
                        self.fail(wire, Closed::Silent);
                    }
                } else if since(wire.heard) >= PING_AFTER_SECONDS && !unread() {
                    wire.pinged = now;
                    self.send(wire, ws::ping(&[]).as_ref(), None, Cause::Answer);
                }
            }
        }
    }

    /// Tells what arrived of the candidates that its agents were sent and said nothing about yet.
    fn witness(&self, state: &mut LinkState, wire: &Wire, now: Now) {
        let server = &self.front.server;
        if wire.outbox.is_none() && server.awaits_arrival(state) && is_acknowledged(&self.io) {
            server.handle_arrived(state, now);
        }
    }

    /// A few reads in a row; ready when the link has ended.
    fn poll_turn(self: &Arc<Self>, cx: &mut Context<'_>) -> Poll<()> {
        for _ in 0..READS_PER_TURN {
            // Not `readable().await`: its wait node would be 100 bytes of every idle link, while
            // this waker lives in the socket's registration, which is paid for anyway.
            match self.io.poll_read_ready(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return Poll::Ready(()),
            }
            match self.read(cx) {
                Turn::Again => {}
                Turn::HeldBack => return Poll::Pending,
                Turn::End => return Poll::Ready(()),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        // Each field is whole at any time, and a link whose reader panicked is about to end.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends our close frame and shuts our half; the first reason stays.
    pub(super) fn begin_close(self: &Arc<Self>, wire: &mut Wire, frame: &ws::Control, why: Closed) {
        if wire.stage != Stage::Open {
            return;
        }
        self.send(wire, frame.as_ref(), None, Cause::Answer);
        if wire.stage != Stage::Open {
            // The socket broke under the frame.
            return;
        }
        wire.stage = Stage::Closing;
        wire.closing_since = self.front.clock.seconds();
        wire.why = why;
        self.release(wire);
        self.shut_when_sent(wire);
    }

    /// Ends it without a word.
    pub(super) fn fail(&self, wire: &mut Wire, why: Closed) {
        if wire.stage == Stage::Ended {
            return;
        }
        wire.stage = Stage::Ended;
        wire.why = why;
        self.release(wire);
        wire.outbox = None;
        // Wakes the reader task with an end of file. An error means that the peer was faster.
        let _ = rustix::net::shutdown(&self.io, rustix::net::Shutdown::Both);
    }

    /// Gives back what a half-received message held.
    pub(super) fn release(&self, wire: &mut Wire) {
        if let Some(partial) = wire.partial.take() {
            self.front.budget.release(partial.held);
        }
    }

    /// The last thing that happens to a link.
    fn end(&self) {
        let why = {
            let mut inner = self.lock();
            let Inner { state, wire } = &mut *inner;
            self.release(wire);
            self.witness(state, wire, self.front.clock.now());
            wire.stage = Stage::Ended;
            wire.outbox = None;
            let parting = Parting { heard: wire.heard, drained: wire.why == Closed::Drain };
            self.front.server.handle_closed(state, self.front.clock.now(), parting);
            wire.why
        };
        self.front.links.remove(self.id);
        self.front.admission.leave();
        self.front.budget.wake_next();
        self.front.metrics.connections.get(Transport::Ws).decrement(1.0);
        self.front.metrics.disconnects.get(Transport::Ws).get(why).increment(1);
    }
}

impl Wire {
    pub(super) fn stage(&self) -> Stage {
        self.stage
    }
}
