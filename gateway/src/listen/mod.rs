//! The front door: one listener, both transports (spec/serving.md 1).
//!
//! [`bind`] makes the socket, [`accept`] takes connections from it, [`greeter`] finds out what each
//! wants ([`head`]) and either makes it a link ([`crate::transport::link`]) or hands it to hyper
//! ([`crate::transport::http`]). [`run`] ties them together with the sweep, the pusher and the
//! drain.

use std::sync::Arc;
use std::time::Duration;

use proto::ids::InstanceUid;
use tokio::net::TcpListener;

use crate::admission::Admission;
use crate::clock::Clock;
use crate::config::{DrainConfig, LinkConfig};
use crate::drain::{self, Drain, Phase};
use crate::metrics::Metrics;
use crate::metrics::labels::{Closed, RejectReason};
use crate::push;
use crate::serve::{LinkId, Links, Order, Server};
use crate::tls::Tls;
use crate::tokens::Credentials;
use crate::transport::budget::{Budget, PARTIAL_LINKS_MAX};
use crate::transport::link::Link;

mod accept;
mod bind;
mod greeter;
pub mod head;
mod room;
pub mod socket;

pub use bind::{bind, migrates_requests};
pub use greeter::{HEAD_BYTES_MAX, HEADERS_MAX};
use head::Refusal;
pub use room::GREETERS_MAX;
use room::Room;

/// Time between two looks at what is due in the server.
const TICK: Duration = Duration::from_secs(1);
/// Ticks between two sweeps over all links, fewer under a Rollout that is impatient with silence;
/// every deadline that a sweep enforces is late by at most so many seconds.
const TICKS_PER_SWEEP_MAX: u32 = 5;
/// How long links that were told to close may take to say so too, after the last was told.
const LINGER: Duration = Duration::from_secs(5);
/// The drain looks this often whether everybody left already.
const DRAIN_TICK: Duration = Duration::from_millis(20);

/// What [`Front::new`] is made from.
pub struct Parts {
    /// Who answers messages.
    pub server: Arc<Server>,
    /// All WebSocket links; the same that `server` pages through.
    pub links: Arc<Links<Link>>,
    /// Limits and rates.
    pub limits: LinkConfig,
    /// Who may connect.
    pub credentials: Arc<Credentials>,
    /// `None` is plain text.
    pub tls: Option<Arc<Tls>>,
    /// Value of the answer header `Tidegate-Instance`; `None` sends none. Visible ASCII.
    pub instance: Option<Box<str>>,
    /// Where everything is counted.
    pub metrics: &'static Metrics,
    /// The process's clock.
    pub clock: Clock,
}

/// What every link and every greeter shares.
pub struct Front {
    pub(crate) server: Arc<Server>,
    pub(crate) links: Arc<Links<Link>>,
    pub(crate) limits: LinkConfig,
    pub(crate) credentials: Arc<Credentials>,
    pub(crate) tls: Option<Arc<Tls>>,
    pub(crate) instance: Option<Box<str>>,
    pub(crate) metrics: &'static Metrics,
    pub(crate) clock: Clock,
    /// Who may come in now.
    pub admission: Arc<Admission>,
    pub(crate) budget: Budget,
    pub(crate) drain: Drain,
    /// Sockets in their handshake.
    room: Arc<Room>,
}

impl Front {
    /// A front in service, nobody connected yet.
    pub fn new(parts: Parts) -> Self {
        let limits = &parts.limits;
        let live_max = u32::try_from(limits.max_links.get()).unwrap_or(u32::MAX);
        Self {
            admission: Arc::new(Admission::new(
                limits.admission_rate.get(),
                limits.admission_burst.get(),
                live_max,
            )),
            budget: Budget::new(PARTIAL_LINKS_MAX, limits.max_bytes_in_flight),
            drain: Drain::new(),
            room: Room::new(GREETERS_MAX),
            server: parts.server,
            links: parts.links,
            limits: parts.limits,
            credentials: parts.credentials,
            tls: parts.tls,
            instance: parts.instance,
            metrics: parts.metrics,
            clock: parts.clock,
        }
    }

    /// Where the replica stands on its way out; `/readyz` is fine only at [`Phase::Serving`].
    pub fn phase(&self) -> Phase {
        self.drain.phase()
    }

    /// Sockets that are open: links, and connections of plain HTTP.
    pub fn live(&self) -> u32 {
        self.admission.live()
    }

    /// Who is connected, or in the handshake; for a moment somebody may be counted as both.
    fn sockets(&self) -> usize {
        self.live() as usize + self.room.taken()
    }

    /// Some were silent in their handshake for too long while others waited.
    pub(crate) fn count_made_room(&self, how_many: usize) {
        (0..how_many).for_each(|_| self.reject(RejectReason::MadeRoom));
    }

    /// What half-received messages hold now: links, and bytes of buffers and HTTP bodies.
    pub fn half_received(&self) -> (u32, usize) {
        (self.budget.holders(), self.budget.bytes())
    }

    /// Looks at every link once: pings the silent, drops the dead, the stalled and the stuck.
    pub fn sweep(&self, now: crate::clock::Now) {
        self.links.for_each(LinkId(0), &mut |_, link| {
            link.sweep(now);
            std::ops::ControlFlow::Continue(())
        });
    }

    /// Does what the server finds due: pings an old link whose uid somebody else claims, and drops
    /// it if it does not answer (spec/serving.md 13).
    pub fn handle_timeout(&self, now: crate::clock::Now) {
        self.server.handle_timeout(now, &mut |order| match order {
            Order::Ping { link, uid } => {
                if let Some(link) = self.links.get(link) {
                    link.ping(uid, now);
                }
            }
            Order::Drop { link } => {
                if let Some(link) = self.links.get(link) {
                    link.abandon(Closed::Duplicate);
                }
            }
        });
    }

    /// Whether an agent of this uid is connected here.
    pub(crate) fn knows(&self, uid: InstanceUid) -> bool {
        self.server.knows(&uid)
    }

    pub(crate) fn reject(&self, reason: RejectReason) {
        self.metrics.admission_rejected.get(reason).increment(1);
    }

    pub(crate) fn count_refusal(&self, refusal: Refusal) {
        match refusal {
            Refusal::Credential(denied) => {
                self.reject(RejectReason::Unauthorised);
                self.metrics.auth_failures.count(&["opamp", denied.reason()]);
            }
            Refusal::Busy { .. } => {}
            _ => self.reject(RejectReason::BadRequest),
        }
    }

    /// The answer that grants an upgrade. No extension is taken up: permessage-deflate would cost
    /// each link a window (spec/serving.md, W4).
    pub(crate) fn switching_protocols(&self, accept: &str) -> String {
        let mut answer = format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Accept: {accept}\r\n"
        );
        if let Some(instance) = &self.instance {
            answer.push_str("Tidegate-Instance: ");
            answer.push_str(instance);
            answer.push_str("\r\n");
        }
        answer.push_str("\r\n");
        answer
    }
}

/// Serves `listener` until `stop` resolves, then drains; returns when the replica may exit.
///
/// Readiness fails first, accepting goes on for `drain.delay`, the listener is closed with its queue
/// emptied, and links are closed over `drain.over`.
pub async fn run(
    front: Arc<Front>,
    listener: TcpListener,
    drain: DrainConfig,
    stop: impl Future<Output = ()>,
) {
    let accepting = tokio::spawn(accept::accept(Arc::clone(&front), listener));
    let pushing = tokio::spawn(push::run(Arc::clone(&front)));
    let ticking = tokio::spawn(tick(Arc::clone(&front)));
    stop.await;
    front.drain.advance(Phase::Leaving);
    tokio::time::sleep(drain.delay).await;
    front.drain.advance(Phase::Draining);
    if let Err(error) = accepting.await {
        tracing::error!(%error, "the accept loop ended before its time");
    }
    close_links(&front, drain.over).await;
    front.drain.advance(Phase::Drained);
    pushing.abort();
    ticking.abort();
}

/// Closes every link with 1001, spread over `over`, and waits a little for their answers.
async fn close_links(front: &Front, over: Duration) {
    let mut links = Vec::new();
    front.links.for_each(LinkId(0), &mut |_, link| {
        links.push(Arc::clone(link));
        std::ops::ControlFlow::Continue(())
    });
    fastrand::shuffle(&mut links);
    let start = front.clock.elapsed();
    let since = || front.clock.elapsed().saturating_sub(start);
    let times: Vec<_> = drain::schedule(links.len(), over, fastrand::f64).collect();
    for (link, at) in links.into_iter().zip(times) {
        while let Some(wait) = drain::left(at, since())
            && front.live() > 0
        {
            tokio::time::sleep(wait.min(DRAIN_TICK)).await;
        }
        link.close(Closed::Drain);
    }
    let told = since();
    while front.sockets() > 0 && since() < told.max(over) + LINGER {
        // Whoever was in the accept queue or its handshake, and has come to be a link meanwhile.
        front.links.for_each(LinkId(0), &mut |_, link| {
            link.close(Closed::Drain);
            std::ops::ControlFlow::Continue(())
        });
        tokio::time::sleep(DRAIN_TICK).await;
    }
    if front.live() > 0 {
        tracing::warn!(left = front.live(), "some connections did not end in time; dropping them");
    }
}

/// Runs what is due, for ever.
async fn tick(front: Arc<Front>) {
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut since_sweep = 0;
    loop {
        ticks.tick().await;
        let now = front.clock.now();
        front.handle_timeout(now);
        since_sweep += 1;
        if since_sweep >= front.server.head().sweep_seconds(TICKS_PER_SWEEP_MAX) {
            since_sweep = 0;
            front.sweep(now);
        }
    }
}
