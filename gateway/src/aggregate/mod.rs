//! What is known of the collectors under each Rollout, and what that comes to (rollouts.md,
//! decisions 6 to 9, 11 and 14 to 18).
//!
//! One [`Aggregator`] per process. [`Aggregator::handle_head`] is asked before each swap and gives
//! one [`Cell`] per Rollout; what a link learns of a collector goes into its cell by
//! [`Cell::observe`]. [`Aggregator::handle_timeout`] judges, once per second and when woken.
//!
//! [`cell`], [`shard`], [`packed`] and [`class`] keep records and count them; [`context`] and
//! [`replicas`] are what they are classified by; [`sights`] says when a soak began, [`judge`] makes
//! the report, [`heads`] takes in what a head says; [`store`] keeps what must outlive the process.
//!
//! Locks are taken in this order: the judge's, the state of a cell, a shard of it, the store's
//! queue. [`Cell::observe`] takes a shard's, and only when a collector newly halts a state after it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use render::rollout::evidence::{Millis, ReportKey, Session};
use render::rollout::report::{ProposalState, RolloutReport};
use render::snapshot::Snapshot;
use tokio::sync::{Notify, watch};

use crate::clock::{Clock, Now, Seconds};
use crate::metrics::Metrics;

mod above;
mod cell;
mod class;
mod context;
mod halts;
mod heads;
mod index;
mod judge;
mod links;
mod notices;
mod packed;
mod registry;
mod replicas;
mod series;
mod shard;
mod sights;
mod slab;
mod store;
mod told;
mod vouched;
mod waiting;

pub use cell::{About, Cell, Followed, Observation, RECORDS_MAX, TEXTS_MAX};
pub use heads::{DORMANT_CELLS_MAX, DORMANT_MS};
pub use judge::{Population, tells_the_same};
pub use links::URGENT_MAX;
pub use registry::{REPLICAS_CONNECTED_MAX, Refusal};

use context::Seed;
use heads::Judging;
pub(crate) use registry::Arrival;
pub(crate) use told::{FromReplica, InForce};
pub(crate) use waiting::Told;

use judge::Inputs;
use links::Links;
use notices::Notices;
use registry::Registry;
use store::writer::Store;

/// Time between two verdicts when what was observed asks for one at once.
const WAKE_SPACING: Duration = Duration::from_millis(50);

/// What an operator chooses about evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// What this replica calls itself.
    pub replica: Box<str>,
    /// Replicas that must report before a verdict is whole; at least 1.
    pub expect_replicas: u32,
    /// What the members of a drained or vanished replica get on top of `dark_after`.
    pub grace_ms: Millis,
    /// After this, the records of a replica that never came back expire without turning dark.
    pub forget_ms: Millis,
    /// Where evidence outlives the process; `None`: halts die with it.
    pub store: Option<PathBuf>,
    /// Which process this is: random.
    pub incarnation: u32,
    /// What this process is to the evidence.
    pub role: Role,
}

/// What a process is to the evidence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// It serves collectors and judges them: one replica alone.
    #[default]
    Alone,
    /// It serves collectors and reports them to this many aggregators. It judges nothing, keeps no
    /// store, and what is halted is told to it (rollouts.md, decisions 17 and 18).
    Replica {
        /// At most [`crate::uplink::AGGREGATORS_MAX`].
        uplinks: usize,
    },
    /// It serves nobody: replicas report to it, and it judges.
    Aggregator,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            replica: "gateway".into(),
            expect_replicas: 1,
            grace_ms: 60_000,
            forget_ms: 3_600_000,
            store: None,
            incarnation: fastrand::u32(..),
            role: Role::Alone,
        }
    }
}

/// Why there is no evidence to start with.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process has it open.
    #[error("cannot use --store {}: another process has it open; give each gateway a file of its own", file.display())]
    Locked {
        /// The file.
        file: PathBuf,
    },
    /// It may hold halts that nobody could respect.
    #[error("cannot read --store {}: {why}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// What the system said.
        why: String,
    },
}

/// A change that is on its way to the disk: see [`Aggregator::committed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durable {
    /// It is on the disk.
    Stored,
    /// There is no store: it lives as long as the process.
    Memory,
    /// The store cannot be written now; it is tried again, and until then it lives as long as the
    /// process.
    Failed,
}

/// A store that was opened, and what it held.
struct Stored {
    store: Arc<Store>,
    thread: std::thread::JoinHandle<()>,
    notices: Arc<Notices>,
    loaded: store::Loaded,
}

/// What cells and the aggregator share.
pub(crate) struct Shared {
    settings: Settings,
    start: Now,
    /// When evidence started: with the first head, since nobody can connect before it; of an aggregator with
    /// the first full state.
    evidence_since_ms: AtomicU64,
    /// Whether it did.
    has_evidence: AtomicBool,
    seed: Seed,
    /// A verdict is wanted at once.
    wake: Notify,
    store: Option<Arc<Store>>,
    /// Where evidence is sent to.
    links: Links,
    /// Counts what replicas are to be told.
    halts: watch::Sender<u64>,
    /// Counts brakes that were released.
    releases: watch::Sender<u64>,
    /// Texts kept in all cells.
    texts: AtomicUsize,
    notices: Arc<Notices>,
    metrics: &'static Metrics,
}

/// The evidence of all Rollouts, and the judge.
pub struct Aggregator {
    shared: Arc<Shared>,
    next_n: AtomicU64,
    judging: Mutex<Judging>,
    reports: ArcSwap<BTreeMap<Box<str>, Arc<RolloutReport>>>,
    proposals: Mutex<BTreeMap<Box<str>, ProposalState>>,
    registry: Mutex<Registry>,
    changes: watch::Sender<u64>,
    /// The writer, until it is told to end.
    writer: Mutex<Option<std::thread::JoinHandle<()>>>,
    closed: AtomicBool,
}

impl fmt::Debug for Aggregator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings = &self.shared.settings;
        f.debug_struct("Aggregator").field("settings", settings).finish_non_exhaustive()
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Shared {
    fn now_ms(&self, now: Now) -> Millis {
        aggregator_ms(self.start, now)
    }

    fn evidence_since_ms(&self) -> Millis {
        self.evidence_since_ms.load(Ordering::Relaxed)
    }

    /// As a verdict takes it: while there is no evidence, it has not started.
    fn judged_since_ms(&self, now_ms: Millis) -> Millis {
        if self.has_evidence.load(Ordering::Relaxed) { self.evidence_since_ms() } else { now_ms }
    }

    /// A full state is here. Whether it is the first.
    fn evidence_starts(&self, now_ms: Millis) -> bool {
        let first = !self.has_evidence.swap(true, Ordering::Relaxed);
        if first {
            self.evidence_since_ms.store(now_ms, Ordering::Relaxed);
        }
        first
    }

    /// Whether verdicts are made here.
    fn judges(&self) -> bool {
        self.links.is_empty()
    }

    /// Whether replicas are told what comes of them.
    fn tells(&self) -> bool {
        self.settings.role == Role::Aggregator
    }
}

impl Aggregator {
    /// Takes up what the store holds.
    ///
    /// # Errors
    /// The store is in use, or cannot be read. One that is damaged is set aside, and one that
    /// cannot be written is tried again later.
    pub fn open(
        settings: Settings,
        metrics: &'static Metrics,
        now: Now,
    ) -> Result<Arc<Self>, StoreError> {
        let Some(file) = settings.store.clone() else {
            return Ok(Self::new(settings, metrics, now, None));
        };
        let opened = store::file::open(&file, now.unix_ms)?;
        let reopen = {
            let file = file.clone();
            Box::new(move |unix_ms| store::file::reopen(&file, unix_ms))
        };
        Self::with_store(settings, metrics, now, opened, reopen).map_err(|error| {
            StoreError::Unreadable { file, why: format!("no thread to write it with: {error}") }
        })
    }

    /// One without a store.
    pub fn in_memory(settings: Settings, metrics: &'static Metrics, now: Now) -> Arc<Self> {
        Self::new(Settings { store: None, ..settings }, metrics, now, None)
    }

    fn with_store(
        settings: Settings,
        metrics: &'static Metrics,
        now: Now,
        mut opened: store::file::Opened,
        reopen: store::writer::Reopen,
    ) -> std::io::Result<Arc<Self>> {
        let notices = Arc::new(Notices::default());
        if let Some(what) = &opened.set_aside {
            metrics.evidence_store_failures.count(&["damaged"]);
            notices.set_lost(what);
            tracing::error!("{what}: failures and brakes from before are not known");
        }
        if let Some(why) = &opened.unwritable {
            metrics.evidence_store_failures.count(&["open"]);
            notices.set_unwritable(why);
            tracing::error!(
                why,
                "the store cannot be written: evidence, halts and brakes die with this process until it can be"
            );
        }
        let mut loaded = std::mem::take(&mut opened.loaded);
        opened.loaded.rows = std::mem::take(&mut loaded.rows);
        let (store, thread) = Store::start(opened, reopen, Arc::clone(&notices), metrics)?;
        Ok(Self::new(settings, metrics, now, Some(Stored { store, thread, notices, loaded })))
    }

    fn new(
        settings: Settings,
        metrics: &'static Metrics,
        now: Now,
        stored: Option<Stored>,
    ) -> Arc<Self> {
        let (store, writer, notices, loaded) = match stored {
            Some(Stored { store, thread, notices, loaded }) => {
                (Some(store), Some(thread), notices, loaded)
            }
            None => (None, None, Arc::default(), store::Loaded::default()),
        };
        let uplinks = match settings.role {
            Role::Replica { uplinks } => uplinks,
            Role::Alone | Role::Aggregator => 0,
        };
        let shared = Arc::new(Shared {
            evidence_since_ms: AtomicU64::new(aggregator_ms(now, now)),
            has_evidence: AtomicBool::new(settings.role != Role::Aggregator),
            settings,
            start: now,
            seed: Seed([fastrand::u64(..), fastrand::u64(..)]),
            wake: Notify::new(),
            store,
            links: Links::new(uplinks),
            halts: watch::Sender::new(0),
            releases: watch::Sender::new(0),
            texts: AtomicUsize::new(0),
            notices,
            metrics,
        });
        let judging = Judging::new(&shared, loaded);
        Arc::new(Self {
            shared,
            next_n: AtomicU64::new(1),
            judging: Mutex::new(judging),
            reports: ArcSwap::default(),
            proposals: Mutex::default(),
            registry: Mutex::default(),
            changes: watch::Sender::new(0),
            writer: Mutex::new(writer),
            closed: AtomicBool::new(false),
        })
    }

    /// To be called before each swap of the head: when it returns, brakes and latches that are
    /// known of the snapshot's Rollouts are in force in the cells, which are in the order of
    /// [`Snapshot::rollouts`].
    pub fn handle_head(&self, now: Now, snapshot: &Snapshot, commit: &str) -> Box<[Arc<Cell>]> {
        let now_ms = self.now_ms(now);
        let cells = self.judging().handle_head(&self.shared, now_ms, snapshot, commit);
        let known = |rollout: &str| {
            snapshot.rollouts.iter().any(|compiled| *compiled.rollout.id == *rollout)
        };
        lock(&self.proposals).retain(|rollout, _| known(rollout));
        let metrics = self.shared.metrics;
        metrics
            .rollout_convergence
            .retain(|labels| labels.first().is_some_and(|rollout| known(rollout)));
        self.shared.wake.notify_one();
        cells
    }

    /// What it was opened with.
    pub fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    /// What a reader must know about the evidence itself, a sentence each; empty when all is well.
    pub fn notices(&self) -> Vec<String> {
        self.shared.notices.sentences()
    }

    /// A session that begins now, in the aggregator's time.
    pub fn begin_session(&self, now: Now) -> Session {
        let incarnation = self.shared.settings.incarnation;
        Session { epoch_ms: self.now_ms(now), incarnation, n: self.next_n() }
    }

    /// The next number of this process, for [`Session::stamp`].
    pub fn next_n(&self) -> u64 {
        self.next_n.fetch_add(1, Ordering::Relaxed)
    }

    /// The aggregator's time: milliseconds since 1970 at the start of the process, and monotonic
    /// since. The wall clock only tells where in a second it is, so it never jumps.
    pub fn now_ms(&self, now: Now) -> Millis {
        self.shared.now_ms(now)
    }

    /// Sweeps and judges. About once per second, and at once when woken.
    pub fn handle_timeout(&self, now: Now) {
        let now_ms = self.now_ms(now);
        let mut judging = self.judging();
        judging.handle_timeout(&self.shared, now_ms);
        let notices = self.shared.notices.sentences();
        let mut reports = BTreeMap::new();
        let mut changed = false;
        if self.shared.links.handle_timeout(now_ms) {
            self.refresh_brakes(&judging);
        }
        for cell in judging.head() {
            cell.sweep(now_ms);
            if !self.shared.judges() {
                continue;
            }
            let proposal = lock(&self.proposals).get(&cell.key().rollout).cloned();
            let inputs = Inputs { replicas: judging.replicas(), notices: &notices, proposal };
            if let Some((report, news)) = cell.judge(now_ms, inputs) {
                changed |= news;
                reports.insert(cell.key().rollout.clone(), report);
            }
        }
        let metrics = self.shared.metrics;
        metrics
            .evidence_replicas
            .set(f64::from(u32::try_from(judging.replicas().reporting()).unwrap_or(u32::MAX)));
        metrics
            .evidence_age
            .set(Duration::from_millis(judging.replicas().age_ms(now_ms)).as_secs_f64());
        series::show(metrics, &reports);
        changed |= self.reports.load().len() != reports.len();
        // While the judge's lock is held, so that an older verdict never replaces a newer one.
        self.reports.store(Arc::new(reports));
        drop(judging);
        if changed {
            self.changes.send_modify(|changes| *changes += 1);
        }
        if let Some(store) = &self.shared.store {
            store.tick(now.unix_ms);
        }
    }

    /// Every Rollout of the head as it stood at the last verdict.
    pub fn reports(&self) -> Arc<BTreeMap<Box<str>, Arc<RolloutReport>>> {
        self.reports.load_full()
    }

    /// Changes when the content of a report does: not when only time has passed.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// What is told about a Rollout's proposal from now on.
    pub fn set_proposal(&self, rollout: &str, state: Option<ProposalState>) {
        let mut proposals = lock(&self.proposals);
        match state {
            Some(state) => drop(proposals.insert(rollout.into(), state)),
            None => drop(proposals.remove(rollout)),
        }
        drop(proposals);
        self.shared.wake.notify_one();
    }

    /// Waits until a change is on the disk, or it is known that it will not be there soon: at most
    /// one group commit, 50 ms on a sound disk.
    ///
    /// On a replica: until an aggregator has it on its disk. How long that takes is up to the
    /// network, and without a connection it lasts for ever.
    pub async fn committed(&self, ticket: Ticket) -> Durable {
        if !self.shared.links.is_empty() {
            return self.shared.links.committed(ticket).await;
        }
        match &self.shared.store {
            Some(store) => store.committed(ticket).await,
            None => Durable::Memory,
        }
    }

    /// Another process reports its evidence here from now on: its full state is here.
    pub fn replica_hello(&self, now: Now, incarnation: u32, name: &str) {
        let now_ms = self.now_ms(now);
        let mut judging = self.judging();
        judging.replica_hello(&self.shared, now_ms, incarnation, name);
        self.shared.wake.notify_one();
    }

    /// It was heard, and serves these Rollouts so; for each, so many collectors of its Tier have no
    /// place under this head yet.
    pub fn replica_vouch(
        &self,
        now: Now,
        incarnation: u32,
        keys: BTreeMap<Box<str>, ReportKey>,
        awaited: BTreeMap<Box<str>, u64>,
    ) {
        let now_ms = self.now_ms(now);
        self.judging().replica_vouch(now_ms, incarnation, keys, awaited);
    }

    /// It has ended: it `said` so when it was drained, or its connection broke.
    pub fn replica_bye(&self, now: Now, incarnation: u32, said: bool) {
        let now_ms = self.now_ms(now);
        let mut judging = self.judging();
        judging.replica_bye(&self.shared, now_ms, incarnation, said);
        self.shared.wake.notify_one();
    }

    /// Resolves when something may wait to be sent to an aggregator, by its place in the list.
    /// Tells no more than once, however often it happened since.
    pub async fn uplink_woken(&self, link: usize) {
        self.shared.links.woken(link).await;
    }

    /// About how many changes wait to be sent to an aggregator.
    pub fn uplink_waiting(&self, link: usize) -> usize {
        self.shared.links.waiting(link)
    }

    /// Changes when there is something to tell replicas: who is halted, a brake, a verdict under
    /// another `halt` block.
    pub fn halts(&self) -> watch::Receiver<u64> {
        self.shared.halts.subscribe()
    }

    /// Changes when a brake of this process was released: by a verdict under another `halt` block,
    /// or by the first word of an aggregator. Who waits for the candidate may be offered it then.
    pub fn releases(&self) -> watch::Receiver<u64> {
        self.shared.releases.subscribe()
    }

    fn refresh_brakes(&self, judging: &Judging) {
        for cell in judging.head() {
            cell.refresh_brake(&cell.state());
        }
    }

    /// Judges until the process ends.
    pub async fn run(self: Arc<Self>, clock: Clock) {
        let mut tick = tokio::time::interval(Duration::from_secs(1));
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let woken = tokio::select! {
                _ = tick.tick() => false,
                () = self.shared.wake.notified() => true,
            };
            self.handle_timeout(clock.now());
            if woken {
                tokio::time::sleep(WAKE_SPACING).await;
            }
        }
    }

    /// Writes what waits to be written, and ends the writer. Afterwards nothing is stored any more.
    pub fn close(&self) {
        if self.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Some(store) = &self.shared.store {
            store.close();
        }
        let writer = lock(&self.writer).take();
        if let Some(writer) = writer
            && writer.join().is_err()
        {
            tracing::error!("the writer of the store panicked");
        }
    }

    fn judging(&self) -> MutexGuard<'_, Judging> {
        lock(&self.judging)
    }
}

impl Drop for Aggregator {
    fn drop(&mut self) {
        self.close();
    }
}

/// A panic elsewhere leaves nothing behind that does not mend itself: a verdict that the next one
/// replaces; counters that are off by one member until the next change of their context; and of what
/// waits for the store, each change is one push, insert or take.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// See [`Aggregator::now_ms`].
fn aggregator_ms(start: Now, now: Now) -> Millis {
    let since: Seconds = now.seconds.saturating_sub(start.seconds);
    let second = start.unix_ms.saturating_add(u64::from(since) * 1_000);
    now.unix_ms.clamp(second, second.saturating_add(999))
}

#[cfg(test)]
pub(crate) mod tests;
