//! What all collectors of a run share: the world they live in, and where they leave their figures.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use hdrhistogram::Histogram;
use tokio::sync::watch;

use crate::agent::Habits;
use crate::clock::Clock;
use crate::collector::World;
use crate::endpoint::Endpoint;
use crate::faults::{Profile, Runs, Vanishing};
use crate::heads::Heads;
use crate::plan::Plan;
use crate::report::Counts;
use crate::wheel::Wheel;

/// Kinds of connection errors that are told apart.
const ERRORS_MAX: usize = 16;

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) clock: Clock,
    pub(crate) plan: Plan,
    /// How many collectors accept offers.
    pub(crate) served: u32,
    pub(crate) habits: Habits,
    pub(crate) heads: Heads,
    pub(crate) wheel: Wheel,
    /// Where collectors connect: number `n` of them to number `n` modulo their count. Never empty.
    endpoints: RwLock<Vec<Arc<Endpoint>>>,
    /// By collector; empty where all behave well.
    pub(crate) profiles: Vec<Arc<Profile>>,
    /// By collector; empty where nobody gives orders.
    orders: Vec<watch::Sender<Order>>,
    pub(crate) gzip: bool,
    pub(crate) reply_timeout: Duration,
    /// Longest wait before another attempt to connect.
    pub(crate) reconnect_within: Option<Duration>,
    /// By collector: what it has settled on, 0 for nothing yet.
    pub(crate) settled: Vec<AtomicU64>,
    pub(crate) live: Live,
    timings: Mutex<Timings>,
    errors: Mutex<BTreeMap<String, u64>>,
}

/// What a collector is told from outside while a run goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Order {
    /// It does not run yet.
    pub(crate) absent: bool,
    /// Cut off, in that way.
    pub(crate) down: Option<Vanishing>,
    /// How often it was told to come back if it had gone by itself.
    pub(crate) returns: u32,
    /// How often it was started anew.
    pub(crate) restarts: u32,
    /// What it runs, if that was changed.
    pub(crate) runs: Option<Runs>,
}

/// Counters that are read while the run goes on.
#[derive(Debug, Default)]
pub(crate) struct Live {
    pub(crate) started: AtomicU64,
    pub(crate) connected: AtomicU64,
    pub(crate) ever_connected: AtomicU64,
    pub(crate) links_lost: AtomicU64,
    pub(crate) connect_failures: AtomicU64,
    pub(crate) throttled: AtomicU64,
    pub(crate) reopened: AtomicU64,
    pub(crate) first_offers: AtomicU64,
    pub(crate) offers: AtomicU64,
    pub(crate) wrong: AtomicU64,
    pub(crate) messages: AtomicU64,
    /// FAILED reports that the server has acknowledged, each content of each collector once.
    pub(crate) failures: AtomicU64,
}

/// Distributions, in microseconds.
#[derive(Debug)]
pub(crate) struct Timings {
    /// From the intended time of the connect to the first right offer.
    pub(crate) connect_to_offer: Histogram<u64>,
    /// From the first sight of a head to a right offer of it.
    pub(crate) change_to_offer: Histogram<u64>,
    /// From a message to its reply.
    pub(crate) reply: Histogram<u64>,
    /// From the loss of a WebSocket to the next one.
    pub(crate) away: Histogram<u64>,
    /// How late collectors were started.
    pub(crate) connect_lateness: Histogram<u64>,
    /// How late timers were served.
    pub(crate) timer_lateness: Histogram<u64>,
}

impl Shared {
    pub(crate) fn new(
        clock: Clock,
        plan: Plan,
        heads: Heads,
        endpoint: Endpoint,
        gzip: bool,
        reply_timeout: Duration,
    ) -> Self {
        let served = (0..plan.len()).filter(|index| !plan.is_report_only(*index)).count();
        Self {
            clock,
            served: u32::try_from(served).unwrap_or(u32::MAX),
            habits: Habits::new(plan.behaviour()),
            heads,
            wheel: Wheel::default(),
            endpoints: RwLock::new(vec![Arc::new(endpoint)]),
            profiles: Vec::new(),
            orders: Vec::new(),
            gzip,
            reply_timeout,
            reconnect_within: None,
            settled: (0..plan.len()).map(|_| AtomicU64::new(0)).collect(),
            plan,
            live: Live::default(),
            timings: Mutex::new(Timings::new()),
            errors: Mutex::default(),
        }
    }

    /// With a profile and an order for each collector of the plan.
    pub(crate) fn with_orders(mut self, profiles: Vec<Arc<Profile>>, orders: Vec<Order>) -> Self {
        self.profiles = profiles;
        self.orders = orders.into_iter().map(|order| watch::channel(order).0).collect();
        self
    }

    /// Where a collector connects now.
    pub(crate) fn endpoint(&self, index: u32) -> Arc<Endpoint> {
        let endpoints = self.endpoints.read().unwrap_or_else(PoisonError::into_inner);
        let at = usize::try_from(index).unwrap_or_default() % endpoints.len().max(1);
        Arc::clone(&endpoints[at]) // `new` puts one in and nothing takes one out
    }

    /// Where collectors connect from now on.
    pub(crate) fn set_endpoints(&self, endpoints: Vec<Endpoint>) {
        if !endpoints.is_empty() {
            *self.endpoints.write().unwrap_or_else(PoisonError::into_inner) =
                endpoints.into_iter().map(Arc::new).collect();
        }
    }

    /// What a collector is told; `None` where nobody gives orders.
    pub(crate) fn orders(&self, index: u32) -> Option<watch::Receiver<Order>> {
        let at = usize::try_from(index).ok()?;
        self.orders.get(at).map(watch::Sender::subscribe)
    }

    /// Tells a collector something.
    pub(crate) fn order(&self, index: u32, change: impl FnOnce(&mut Order)) {
        if let Some(order) = usize::try_from(index).ok().and_then(|at| self.orders.get(at)) {
            order.send_modify(change);
        }
    }

    pub(crate) fn profile(&self, index: u32) -> Option<&Arc<Profile>> {
        usize::try_from(index).ok().and_then(|at| self.profiles.get(at))
    }

    pub(crate) fn world(&self) -> World<'_> {
        World { plan: &self.plan, habits: &self.habits, heads: &self.heads }
    }

    pub(crate) fn timings(&self) -> MutexGuard<'_, Timings> {
        // A histogram misses one value after a panic between two of its fields, no more.
        self.timings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn count_error(&self, text: String) {
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        if errors.len() < ERRORS_MAX || errors.contains_key(&text) {
            *errors.entry(text).or_default() += 1;
        } else {
            *errors.entry("others".to_owned()).or_default() += 1;
        }
    }

    pub(crate) fn errors(&self) -> BTreeMap<String, u64> {
        self.errors.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many collectors have settled on what the newest head says.
    pub(crate) fn settled_count(&self) -> u32 {
        let (_, head) = self.heads.latest();
        let settled = |index: u32| {
            usize::try_from(index).ok().and_then(|at| self.settled.get(at)).is_some_and(|settled| {
                settled.load(Ordering::Relaxed) == head.settled_on(index, &self.plan)
            })
        };
        let count = (0..self.plan.len()).filter(|index| settled(*index)).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    }
}

impl Live {
    /// As they are now.
    pub(crate) fn counts(&self) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            started: read(&self.started),
            ever_connected: read(&self.ever_connected),
            links_lost: read(&self.links_lost),
            connect_failures: read(&self.connect_failures),
            throttled: read(&self.throttled),
            reopened: read(&self.reopened),
            first_offers: read(&self.first_offers),
            offers: read(&self.offers),
            wrong: read(&self.wrong),
            messages: read(&self.messages),
        }
    }
}

impl Timings {
    pub(crate) fn new() -> Self {
        Self {
            connect_to_offer: histogram(),
            change_to_offer: histogram(),
            reply: histogram(),
            away: histogram(),
            connect_lateness: histogram(),
            timer_lateness: histogram(),
        }
    }
}

/// A microsecond to an hour, to three digits.
fn histogram() -> Histogram<u64> {
    crate::histogram::new(3)
}
