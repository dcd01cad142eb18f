//! Drives one collector over real sockets for the whole run: connect, talk, reconnect, stop.

mod http;
mod websocket;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::watch;

use crate::agent::backoff::Backoff;
use crate::clock::{Clock, Micros, micros};
use crate::collector::Collector;
use crate::endpoint::{Endpoint, Transport};
use crate::faults::Vanishing;
use crate::ledger::{Closed, Noted};
use crate::shared::{Order, Shared};
use crate::wheel::Alarm;
use websocket::Socket;

/// Largest message taken from a server (serving.md 1.2, W4).
const MESSAGE_MAX: usize = 64 << 20;

/// What one collector's task keeps.
struct Seat {
    shared: Arc<Shared>,
    collector: Collector,
    index: u32,
    intended: Micros,
    alarm: Alarm,
    backoff: Backoff,
    rng: fastrand::Rng,
    offered: bool,
    stopping: bool,
    ever_connected: bool,
    /// When its link broke, until the next one is up.
    lost_at: Option<Micros>,
    orders: Option<watch::Receiver<Order>>,
    obeyed: Order,
    /// Another process than the one whose link is up.
    anew: bool,
    failures: usize,
}

/// Whether a collector is there to talk.
enum Presence {
    /// It is, and always was.
    Here,
    /// It is again.
    Fresh,
    /// The run ended meanwhile.
    Over,
}

/// How a link, or an attempt at one, ended.
enum Ended {
    /// The run is over and the goodbye is said.
    Stopped,
    /// It was up and broke.
    Lost {
        /// Whether the server had answered anything on it.
        answered: bool,
    },
    /// The collector went away.
    Away {
        /// The socket of a frozen one.
        kept: Option<Box<Socket>>,
    },
    /// It did not come up.
    Failed {
        /// What the server asked to wait.
        retry_after: Option<Micros>,
    },
}

/// Lives through the run; `intended` is when this collector was meant to connect.
pub(crate) async fn live(
    shared: Arc<Shared>,
    index: u32,
    intended: Micros,
    mut stop: watch::Receiver<bool>,
) -> Closed {
    let now = shared.clock.now();
    shared.timings().connect_lateness.saturating_record(now.saturating_sub(intended));
    shared.live.started.fetch_add(1, Ordering::Relaxed);
    let mut rng = fastrand::Rng::new();
    let mut collector = Collector::new(index, Clock::unix_ms(), rng.fork(), &shared.plan);
    if let Some(profile) = shared.profile(index) {
        collector = collector.with_profile(Arc::clone(profile));
    }
    let orders = shared.orders(index);
    let mut seat = Seat {
        shared,
        collector,
        index,
        intended,
        alarm: Alarm::default(),
        backoff: Backoff::default(),
        rng,
        offered: false,
        stopping: false,
        ever_connected: false,
        lost_at: None,
        orders,
        obeyed: Order::default(),
        anew: false,
        failures: 0,
    };
    let connected = match seat.endpoint().transport {
        Transport::Ws => over_websockets(&mut seat, &mut stop).await,
        Transport::Http => http::live(&mut seat, &mut stop).await,
    };
    let now = seat.now();
    seat.collector.into_ledger().close(now, connected, &seat.shared.heads)
}

/// Returns whether a link was up at the end.
async fn over_websockets(seat: &mut Seat, stop: &mut watch::Receiver<bool>) -> bool {
    let mut kept = None;
    let mut restarts = seat.obeyed.restarts;
    loop {
        if matches!(seat.wait_until_present(stop).await, Presence::Over) {
            return false;
        }
        if std::mem::replace(&mut restarts, seat.obeyed.restarts) != restarts {
            kept = None; // a frozen process that was started anew
        }
        let retry_after = match websocket::session(seat, kept.take(), stop).await {
            Ended::Stopped => return true,
            Ended::Away { kept: socket } => {
                if socket.is_none() {
                    seat.collector.handle_disconnected();
                    seat.shared.live.connected.fetch_sub(1, Ordering::Relaxed);
                }
                kept = socket;
                continue;
            }
            Ended::Lost { answered } => {
                seat.lost_at = Some(seat.now());
                seat.collector.handle_disconnected();
                seat.shared.live.links_lost.fetch_add(1, Ordering::Relaxed);
                seat.shared.live.connected.fetch_sub(1, Ordering::Relaxed);
                if answered && !*stop.borrow() {
                    continue; // the first attempt after a break is made at once
                }
                None
            }
            Ended::Failed { retry_after } => {
                seat.shared.live.connect_failures.fetch_add(1, Ordering::Relaxed);
                retry_after
            }
        };
        if seat.wait_to_retry(retry_after, stop).await {
            return false;
        }
    }
}

impl Seat {
    fn now(&self) -> Micros {
        self.shared.clock.now()
    }

    /// Where it connects now.
    fn endpoint(&self) -> Arc<Endpoint> {
        self.shared.endpoint(self.index)
    }

    /// How it has to leave its link now, if it has to.
    fn leaving(&mut self) -> Option<Vanishing> {
        if std::mem::take(&mut self.anew) {
            return Some(Vanishing::Kill);
        }
        self.obeyed.down.or_else(|| self.collector.gone().map(|gone| gone.how))
    }

    /// Does what it was told since the last time.
    fn obey(&mut self) {
        let Some(orders) = &mut self.orders else { return };
        let order = *orders.borrow_and_update();
        let before = std::mem::replace(&mut self.obeyed, order);
        if order.runs != before.runs {
            self.collector.set_runs(order.runs, self.shared.world());
        }
        if order.returns != before.returns && self.collector.going().is_some() {
            self.collector.come_back();
        }
        if order.restarts != before.restarts {
            self.collector.handle_restarted(Clock::unix_ms());
            self.anew = true;
        }
    }

    /// Waits while the collector is away.
    async fn wait_until_present(&mut self, stop: &mut watch::Receiver<bool>) -> Presence {
        let mut presence = Presence::Here;
        loop {
            self.obey();
            if std::mem::take(&mut self.anew) {
                presence = Presence::Fresh;
            }
            let (order, gone) = (self.obeyed, self.collector.going());
            if !order.absent && order.down.is_none() && gone.is_none() {
                return presence;
            }
            presence = Presence::Fresh;
            let deadline = gone.and_then(|gone| gone.until);
            tokio::select! {
                () = alarm(&self.shared, &mut self.alarm, deadline) => self.handle_timeout(deadline),
                () = ordered(&mut self.orders) => {}
                _ = stop.wait_for(|stop| *stop) => return Presence::Over,
            }
        }
    }

    /// Waits out the back-off; true when the run ended meanwhile.
    async fn wait_to_retry(
        &mut self,
        retry_after: Option<Micros>,
        stop: &mut watch::Receiver<bool>,
    ) -> bool {
        let mut wait = self.backoff.handle_failure(retry_after, &mut self.rng);
        if let Some(within) = self.shared.reconnect_within {
            wait = wait.min(micros(within));
        }
        let until = self.now().saturating_add(wait);
        tokio::select! {
            () = alarm(&self.shared, &mut self.alarm, Some(until)) => false,
            _ = stop.wait_for(|stop| *stop) => true,
        }
    }

    /// When this task has to do something without being told to.
    fn deadline(&self) -> Option<Micros> {
        let own = self.collector.poll_timeout(self.shared.world());
        let reply = self.goodbye_at().filter(|_| self.stopping);
        [own, reply].into_iter().flatten().min()
    }

    /// Until when a stopping collector waits for the replies it is owed.
    fn goodbye_at(&self) -> Option<Micros> {
        let reply_timeout = micros(self.shared.reply_timeout);
        self.collector.owed_since().map(|since| since.saturating_add(reply_timeout))
    }

    /// Whether a stopping collector has nothing left to wait for.
    fn may_say_goodbye(&self) -> bool {
        self.stopping && self.goodbye_at().is_none_or(|at| self.now() >= at)
    }

    /// A timer fired that was set for `deadline`.
    fn handle_timeout(&mut self, deadline: Option<Micros>) {
        let now = self.now();
        if let Some(deadline) = deadline {
            let late = now.saturating_sub(deadline);
            self.shared.timings().timer_lateness.saturating_record(late);
        }
        let noted = self.collector.handle_timeout(now, self.shared.world());
        self.note(&noted);
    }

    /// Leaves the figures of what just happened.
    fn note(&mut self, noted: &Noted) {
        let live = &self.shared.live;
        if noted.wrong > 0 {
            live.wrong.fetch_add(u64::from(noted.wrong), Ordering::Relaxed);
        }
        if noted.reply_after.is_some() || noted.right.is_some() {
            let mut timings = self.shared.timings();
            if let Some(after) = noted.reply_after {
                timings.reply.saturating_record(after);
            }
            if let Some((delivery, _)) = &noted.right {
                live.offers.fetch_add(1, Ordering::Relaxed);
                if self.offered {
                    let seen_at = self.shared.heads.seen_at(delivery.epoch).unwrap_or(delivery.at);
                    timings.change_to_offer.saturating_record(delivery.at.saturating_sub(seen_at));
                } else {
                    self.offered = true;
                    live.first_offers.fetch_add(1, Ordering::Relaxed);
                    let after = delivery.at.saturating_sub(self.intended);
                    timings.connect_to_offer.saturating_record(after);
                }
            }
        }
        let failures = self.collector.failures();
        if failures > self.failures {
            live.failures.fetch_add((failures - self.failures) as u64, Ordering::Relaxed);
            self.failures = failures;
        }
        let at = usize::try_from(self.index).unwrap_or(usize::MAX);
        if let Some(settled) = self.collector.settled_on(&self.shared.plan)
            && let Some(slot) = self.shared.settled.get(at)
        {
            slot.store(settled, Ordering::Relaxed);
        }
    }
}

/// Completes when the collector is told something.
async fn ordered(orders: &mut Option<watch::Receiver<Order>>) {
    if let Some(orders) = orders
        && orders.changed().await.is_ok()
    {
        return;
    }
    std::future::pending().await // nobody gives orders
}

/// Completes when `deadline` has passed.
async fn alarm(shared: &Shared, alarm: &mut Alarm, deadline: Option<Micros>) {
    std::future::poll_fn(|cx| shared.wheel.poll_until(alarm, shared.clock.now(), deadline, cx))
        .await;
}

/// Seconds of a `Retry-After`; a date, which no server of ours sends, counts as absent.
fn retry_after(headers: &hyper::HeaderMap) -> Option<Micros> {
    let value = headers.get(hyper::header::RETRY_AFTER)?.to_str().ok()?;
    value.trim().parse::<u64>().ok()?.checked_mul(1_000_000)
}
