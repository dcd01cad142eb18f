//! The evidence of one [`EvidenceKey`].

mod intake;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use proto::ids::InstanceUid;
use render::rollout::evidence::{EvidenceKey, Identity, Millis, Record};
use render::rollout::verdict::Tally;
use render::snapshot::Arm;

use super::above::Above;
use super::context::Context;
use super::halts::Halts;
use super::judge::{Convergence, State};
use super::links::Sends;
use super::packed;
use super::replicas::Affected;
use super::shard::{Change, Member, Shard};
use super::store::writer::Written;
use super::store::{CellRow, StoredRecord, file};
use super::{Shared, lock};

pub(super) use intake::{Learned, Others};

/// Parts of a cell, each under a lock of its own.
pub(super) const SHARDS: usize = 32;
/// Collectors known under one change. Past it, new ones are counted, and the verdict is
/// inconclusive.
pub const RECORDS_MAX: usize = 1_000_000;
/// Halted members of all cells whose label and error text are kept; the others show their identity.
/// Half of the room is for those that failed alone.
pub const TEXTS_MAX: usize = 10_000;

/// What is known of each collector under one Rollout; a head holds one per Rollout.
pub struct Cell {
    key: EvidenceKey,
    number: u32,
    shared: Arc<Shared>,
    braked: AtomicBool,
    members: AtomicUsize,
    /// Collectors of this process that have a place under this Rollout.
    followed: AtomicUsize,
    /// Somebody waits in a shard to be written.
    dirty: AtomicBool,
    context: ArcSwap<Context>,
    shards: Box<[Mutex<Option<Box<Shard>>>]>,
    state: Mutex<State>,
    /// `None` while it is not in head.
    convergence: ArcSwapOption<Convergence>,
    /// What aggregators say, where there are any.
    above: Above,
    /// Who is halted, for replicas to be told, where there are any.
    halts: Halts,
    /// For each aggregator that members are sent to.
    sends: Box<[Sends]>,
    /// The cell of another key that everybody who was here is in.
    moved: OnceLock<Arc<Self>>,
}

/// Who is observed, for people to read. Texts are the peer's.
#[derive(Clone, Copy, Debug)]
pub struct About<'a> {
    /// What it calls itself now.
    pub uid: InstanceUid,
    /// `host.name` or `service.instance.id`; may be empty.
    pub label: &'a str,
    /// `service.version`; may be empty.
    pub version: &'a str,
    /// What it said when it FAILED; may be empty.
    pub error: &'a str,
    /// It lacks a hash attribute, so that no `percent` admits it.
    pub no_bucket: bool,
}

/// What was learned of one collector, among others: see [`Cell::observe_batch`].
#[derive(Clone, Copy, Debug)]
pub struct Observation<'a> {
    /// Which collector.
    pub identity: Identity,
    /// What was learned.
    pub change: Record,
    /// Who it is.
    pub about: About<'a>,
}

/// One collector that has a place under a Rollout, for as long as it is kept.
#[derive(Debug)]
pub struct Followed(Arc<Cell>);

impl Followed {
    /// One more.
    pub fn new(cell: &Arc<Cell>) -> Self {
        cell.followed.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(cell))
    }
}

impl std::ops::Deref for Followed {
    type Target = Arc<Cell>;

    fn deref(&self) -> &Arc<Cell> {
        &self.0
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.0.followed.fetch_sub(1, Ordering::Relaxed);
    }
}

/// [`About`], as far as it is kept.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Said<'a> {
    /// Of the uid; never 0.
    pub(super) uid: u32,
    pub(super) label: &'a str,
    pub(super) version: &'a str,
    pub(super) error: &'a str,
    pub(super) no_bucket: bool,
}

impl fmt::Debug for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cell").field("key", &self.key).finish_non_exhaustive()
    }
}

impl Cell {
    pub(super) fn new(
        key: EvidenceKey,
        number: u32,
        row: CellRow,
        context: Context,
        shared: Arc<Shared>,
    ) -> Self {
        let uplinks = shared.links.len();
        Self {
            key,
            number,
            shared,
            braked: AtomicBool::new(false),
            members: AtomicUsize::new(0),
            followed: AtomicUsize::new(0),
            dirty: AtomicBool::new(false),
            context: ArcSwap::from_pointee(context),
            shards: std::iter::repeat_with(Mutex::default).take(SHARDS).collect(),
            state: Mutex::new(State::new(row)),
            convergence: ArcSwapOption::empty(),
            above: Above::new(uplinks),
            halts: Halts::default(),
            sends: std::iter::repeat_with(Sends::default).take(uplinks).collect(),
            moved: OnceLock::new(),
        }
    }

    /// Which change this is the evidence of.
    pub fn key(&self) -> &EvidenceKey {
        &self.key
    }

    /// Whether the candidate may be offered to nobody new.
    pub fn is_braked(&self) -> bool {
        self.braked.load(Ordering::Relaxed)
    }

    /// Whether the candidate has failed on this collector, and how often it was offered again since.
    ///
    /// Here, or on another replica as far as aggregators told.
    pub fn failed(&self, identity: Identity) -> Option<u8> {
        let hash = self.shared.seed.hash(identity);
        let here = {
            let shard = self.shard(hash);
            let record = shard.as_ref().and_then(|shard| shard.get(hash, identity));
            record.and_then(|member| member.record.failed_now().then_some(member.record.tries))
        };
        here.max(self.above.failed(identity, self.shared.links.counting()))
    }

    /// What is known of a collector.
    pub fn record(&self, identity: Identity) -> Option<Record> {
        let hash = self.shared.seed.hash(identity);
        Some(self.shard(hash).as_ref()?.get(hash, identity)?.record)
    }

    /// Whether a collector lacks a hash attribute.
    pub(super) fn lacks_bucket(&self, identity: Identity) -> bool {
        let hash = self.shared.seed.hash(identity);
        let shard = self.shard(hash);
        shard.as_ref().and_then(|shard| shard.get(hash, identity)).is_some_and(|one| one.no_bucket)
    }

    /// How many collectors are known.
    pub fn len(&self) -> usize {
        self.members.load(Ordering::Relaxed)
    }

    /// Collectors of this process that have a place under it.
    pub(super) fn followed(&self) -> u64 {
        self.followed.load(Ordering::Relaxed) as u64
    }

    /// Whether nobody is known.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A collector runs what it was last offered, `took_ms` after a head first wanted that.
    pub fn converged(&self, took_ms: Millis, arm: Arm) {
        if let Some(convergence) = &*self.convergence.load() {
            convergence.get(arm).record(Duration::from_millis(took_ms));
        }
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub(super) fn set_braked(&self, braked: bool) {
        if self.braked.swap(braked, Ordering::Relaxed) && !braked {
            self.shared.releases.send_modify(|releases| *releases += 1);
        }
    }

    pub(super) fn set_convergence(&self, convergence: Option<Convergence>) {
        self.convergence.store(convergence.map(Arc::new));
    }

    pub(super) fn context(&self) -> Arc<Context> {
        self.context.load_full()
    }

    /// Classifies everybody anew, unless nothing has changed.
    pub(super) fn set_context(&self, now_ms: Millis, context: Context) {
        self.set_context_of(now_ms, context, &Affected::All);
    }

    /// The same where it is known who may be classified otherwise.
    pub(super) fn set_context_of(&self, now_ms: Millis, context: Context, affected: &Affected) {
        let before = self.context.load_full();
        if before.terms == context.terms && Arc::ptr_eq(&before.owners, &context.owners) {
            return;
        }
        let context = Arc::new(context);
        // First, for shards that begin meanwhile.
        self.context.store(Arc::clone(&context));
        self.each(|shard| shard.set_context(now_ms, Arc::clone(&context), affected));
    }

    pub(super) fn restore(&self, now_ms: Millis, stored: StoredRecord) {
        let StoredRecord { cell: _, identity, mut record, no_bucket, text } = stored;
        clamp(&mut record, now_ms);
        let hash = self.shared.seed.hash(identity);
        let links = self.shared.links.connected();
        let change = Change { identity, hash, record: &record, uid: 1, no_bucket, links };
        let mut shard = self.shard(hash);
        let shard = shard.get_or_insert_with(|| Box::new(Shard::new(self.context.load_full())));
        if shard.restore(now_ms, &change) {
            self.members.fetch_add(1, Ordering::Relaxed);
        }
        if record.failed.is_some() {
            self.halts.note(&self.shared, identity);
        }
        if let Some(text) = text
            && self.shared.texts.load(Ordering::Relaxed) < TEXTS_MAX
            && !shard.set_text(hash, identity, Some(text))
        {
            self.shared.texts.fetch_add(1, Ordering::Relaxed);
        }
        if links != 0 {
            self.note_waiting();
        }
    }

    /// Gives everybody who is known to another cell.
    ///
    /// Who comes while that lasts, or later, comes to the other as well.
    pub(super) fn move_to(&self, now_ms: Millis, other: &Arc<Self>) {
        if self.moved.set(Arc::clone(other)).is_err() {
            return;
        }
        other.above.take_over(&self.above);
        self.each(|shard| {
            for member in shard.members() {
                let stored = StoredRecord {
                    cell: other.number,
                    identity: member.identity,
                    record: member.record,
                    no_bucket: member.no_bucket,
                    text: member.text.cloned(),
                };
                other.restore(now_ms, stored);
            }
        });
        other.dirty_all();
    }

    /// Looks at those whose time has come.
    pub(super) fn sweep(&self, now_ms: Millis) {
        let mut dropped = 0;
        self.each(|shard| {
            let before = shard.len();
            shard.sweep(now_ms);
            dropped += before - shard.len();
        });
        self.members.fetch_sub(dropped, Ordering::Relaxed);
    }

    /// Forgets everybody who may be forgotten: the change has left head.
    pub(super) fn drop_idle(&self) {
        let mut dropped = 0;
        self.each(|shard| {
            let before = shard.len();
            shard.drop_idle();
            dropped += before - shard.len();
        });
        self.members.fetch_sub(dropped, Ordering::Relaxed);
    }

    pub(super) fn tally(&self) -> Tally {
        let mut tally = Tally::new(self.context.load().terms.stage);
        self.each(|shard| shard.count(&mut tally));
        tally
    }

    pub(super) fn written(&self, identity: Identity) -> Option<Written> {
        let hash = self.shared.seed.hash(identity);
        self.shard(hash).as_ref()?.get(hash, identity).map(written)
    }

    pub(super) fn has_dirty(&self) -> bool {
        self.dirty.load(Ordering::Acquire)
    }

    /// Gives up to about `most` records that wait to be written.
    pub(super) fn take_dirty(&self, most: usize, mut take: impl FnMut(Written)) {
        // Before the looks, so that who comes while they last is looked for again.
        self.dirty.store(false, Ordering::Release);
        let mut taken = 0;
        let mut left = false;
        self.each(|shard| {
            shard.take_dirty(|member| {
                take(written(member));
                taken += 1;
                taken < most
            });
            left |= shard.has_dirty();
        });
        if left {
            self.dirty.store(true, Ordering::Release);
        }
    }

    pub(super) fn dirty_all(&self) {
        self.each(Shard::dirty_all);
        self.dirty.store(true, Ordering::Release);
    }

    /// Where everybody is who was here: another cell, when this one's key was not known in full.
    pub(crate) fn moved(&self) -> Option<&Arc<Self>> {
        self.moved.get()
    }

    pub(super) fn above(&self) -> &Above {
        &self.above
    }

    pub(super) fn halts(&self) -> &Halts {
        &self.halts
    }

    pub(super) fn sends(&self) -> &[Sends] {
        &self.sends
    }

    pub(super) fn each(&self, mut each: impl FnMut(&mut Shard)) {
        self.each_shard(|shard| shard.into_iter().for_each(&mut each));
    }

    /// All of them in their order, also those where nobody is yet.
    pub(super) fn each_shard(&self, mut each: impl FnMut(Option<&mut Shard>)) {
        for shard in &self.shards {
            each(lock(shard).as_deref_mut());
        }
    }

    pub(super) fn shard(&self, hash: u64) -> MutexGuard<'_, Option<Box<Shard>>> {
        lock(&self.shards[shard_of(hash)])
    }
}

fn shard_of(hash: u64) -> usize {
    // The index inside uses the lowest and the highest bits.
    (hash >> 40) as usize % SHARDS
}

fn written(member: Member<'_>) -> Written {
    let text = member.text.filter(|_| member.record.failed.is_some());
    Written {
        identity: member.identity,
        record: packed::encode(&member.record, member.no_bucket),
        text: text.map(file::encode_text),
    }
}

/// A time that has not come is one of a clock that was ahead. Who comes now must be newer than it,
/// and silence must not wait for it.
fn clamp(record: &mut Record, now_ms: Millis) {
    let before = now_ms.saturating_sub(1);
    let stamps = [
        record.failed.as_mut().map(|(stamp, _)| stamp),
        record.applied.as_mut(),
        record.arm.as_mut().map(|(stamp, _)| stamp),
        record.observed.as_mut().map(|(stamp, _)| stamp),
    ];
    for stamp in stamps.into_iter().flatten() {
        stamp.epoch_ms = stamp.epoch_ms.min(before);
    }
    if let Some((session, _)) = &mut record.conn {
        session.epoch_ms = session.epoch_ms.min(before);
    }
    record.heard_ms = record.heard_ms.min(now_ms);
    record.first_to_ms = record.first_to_ms.map(|ms| ms.min(now_ms));
}
