//! A part of a cell's members: slab, index and counters under one lock.
//!
//! The counters hold at every moment what classifying each member anew would count (a property
//! test says so): each change takes away what the member counted for and adds what it counts for
//! now. What time alone changes is found by [`Shard::sweep`], which looks at due times only.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hashbrown::HashTable;
use render::rollout::evidence::{Conn, Identity, Millis, Record, Session};
use render::rollout::verdict::Tally;
use smallvec::SmallVec;

use super::class::Class;
use super::context::Context;
use super::packed::{Incarnations, Slot};
use super::replicas::Affected;
use super::waiting::Waiting;

/// Members per block of memory: so many that a block nearly fills a size class of the allocator
/// (1,280 bytes), and so few that a Rollout of ten collectors does not cost as if it had thousands.
const CHUNK: usize = 11;
/// Room for members to be written that a shard keeps between two looks.
const DIRTY_KEPT: usize = 32;
/// Past this many incarnations in a shard, those that no member names any more are forgotten.
const INCARNATIONS_SOFT_MAX: usize = 1_024;
/// Live uids of one identity that are told apart beyond the first; more are not counted.
pub(super) const RIVALS_MAX: usize = 16;

const _: () = assert!(size_of::<Chunk>() <= 1_280);

/// What can be read of a member, kept for halted ones alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Text {
    pub(crate) label: Box<str>,
    pub(crate) version: Box<str>,
    pub(crate) error: Box<str>,
}

/// Members, in blocks that never move.
struct Chunk {
    /// When what each comes to changes by time alone: seconds since 1970, rounded up.
    due: [u32; CHUNK],
    class: [Class; CHUNK],
    slots: [Slot; CHUNK],
}

/// Live sessions of an identity beside its newest one, and their folded uids.
pub(super) type Rivals = SmallVec<[(Session, u32); 2]>;

pub(super) struct Shard {
    pub(super) context: Arc<Context>,
    pub(super) index: HashTable<u32>,
    #[expect(clippy::vec_box, reason = "growing must not move, nor hold twice, what is there")]
    chunks: Vec<Box<Chunk>>,
    /// Slots that were ever in use.
    pub(super) used: u32,
    free: Vec<u32>,
    pub(super) incarnations: Incarnations,
    pub(super) tally: Tally,
    /// Changes with what is to be read about halted members. From 1.
    pub(super) halted_version: u64,
    /// No member is due before.
    next_due: u32,
    /// Members to be written; each once.
    dirty: Vec<u32>,
    pub(super) rivals: BTreeMap<Identity, Rivals>,
    /// Processes and collectors with sessions in `rivals` that the full state has not had yet.
    pub(super) unlisted: BTreeSet<(u32, Identity)>,
    texts: BTreeMap<Identity, Text>,
    /// For each aggregator that members are sent to.
    pub(super) waiting: Box<[Waiting]>,
}

/// What is taken in.
pub(super) struct Change<'c> {
    pub(super) identity: Identity,
    pub(super) hash: u64,
    pub(super) record: &'c Record,
    /// Of the uid; never 0.
    pub(super) uid: u32,
    pub(super) no_bucket: bool,
    /// A bit per aggregator that it is to be sent to.
    pub(super) links: u8,
}

/// What came of a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Effect {
    /// There was no room for it.
    pub(super) overflow: bool,
    /// `failed` is newer than before.
    pub(super) failed: bool,
    /// It halts now, and did not before.
    pub(super) halts: bool,
    /// It went silent after it took the candidate: it may turn dark.
    pub(super) silent: bool,
    /// It joined those that wait to be written.
    pub(super) dirty: bool,
    /// Nothing was known of it.
    pub(super) fresh: bool,
    /// Texts are kept of it that nobody needs.
    pub(super) text_is_stale: bool,
    /// It joined those that wait to be sent.
    pub(super) waits: bool,
    /// Whether it is failed now is another answer than before, or how often it was tried.
    pub(super) halt_changed: bool,
}

/// A member as the store and the report see it.
pub(crate) struct Member<'s> {
    pub(crate) identity: Identity,
    pub(crate) record: Record,
    pub(super) class: Class,
    pub(crate) no_bucket: bool,
    pub(crate) text: Option<&'s Text>,
    /// Folded uid of its newest open session; 0: none.
    pub(crate) uid: u32,
}

impl Shard {
    pub(super) fn new(context: Arc<Context>) -> Self {
        let tally = Tally::new(context.terms.stage);
        let waiting = std::iter::repeat_with(Waiting::default).take(context.uplinks).collect();
        Self {
            context,
            index: HashTable::new(),
            chunks: Vec::new(),
            used: 0,
            free: Vec::new(),
            incarnations: Incarnations::default(),
            tally,
            halted_version: 1,
            next_due: u32::MAX,
            dirty: Vec::new(),
            rivals: BTreeMap::new(),
            unlisted: BTreeSet::new(),
            texts: BTreeMap::new(),
            waiting,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    pub(super) fn halted_version(&self) -> u64 {
        self.halted_version
    }

    pub(super) fn tally(&self) -> &Tally {
        &self.tally
    }

    pub(super) fn get(&self, hash: u64, identity: Identity) -> Option<Member<'_>> {
        let at = self.index.find(hash, |at| self.slot(*at).identity() == identity)?;
        Some(self.member(*at))
    }

    // hot: a change of a known member allocates nothing, whatever it says.
    pub(super) fn observe(&mut self, now_ms: Millis, change: &Change<'_>, room: bool) -> Effect {
        let Some((at, fresh)) = self.find_or_insert(change, room) else {
            self.tally.overflow += 1;
            return Effect { overflow: true, ..Effect::default() };
        };
        if self.incarnations.len() > INCARNATIONS_SOFT_MAX {
            self.forget_incarnations();
        }
        let slot = self.slot(at);
        let (before, had_bucket) = (slot.record(&self.incarnations), !slot.has(Slot::NO_BUCKET));
        let mut said = *change.record;
        let mut rivals = slot.has(Slot::RIVALS);
        if let Some(conn) = said.conn {
            self.note_session(at, before.conn, conn, change.uid);
        }
        let shared = self.slot(at).has(Slot::RIVALS);
        rivals |= shared;
        if shared && before.failed_now() {
            // It is not known which of the two it failed on.
            said.applied = None;
        }
        let mut record = before;
        record.merge(&said);

        let chunk = &mut self.chunks[at as usize / CHUNK];
        let slot = &mut chunk.slots[at as usize % CHUNK];
        slot.set(Slot::NO_BUCKET, change.no_bucket);
        if slot.set_record(&record, &mut self.incarnations).is_err() {
            self.tally.overflow += 1;
            return Effect { overflow: true, ..Effect::default() };
        }
        let was = chunk.class[at as usize % CHUNK];
        let dirty = self.context.is_stored
            && !record.is_idle()
            && record != before
            && !slot.has(Slot::DIRTY);
        let has_text = slot.has(Slot::ABOUT);
        if dirty {
            slot.set(Slot::DIRTY, true);
            self.dirty.push(at);
        }
        let now = self.classify(now_ms, at);
        if record.failed != before.failed {
            self.halted_version += 1;
        }
        // Which sessions live besides the newest is told with it.
        let news = record != before
            || had_bucket == change.no_bucket
            || (rivals && change.record.conn.is_some());
        let waits = change.links != 0 && (news || fresh) && self.wait(at, change.links);
        let halt = |record: &Record| record.failed_now().then_some(record.tries);
        let open = |conn: Option<(Session, Conn)>| matches!(conn, Some((_, Conn::Open)));
        Effect {
            overflow: false,
            failed: record.failed != before.failed,
            halts: now.is_halted() && !was.is_halted(),
            silent: record.took_candidate() && open(before.conn) && !open(record.conn),
            dirty,
            fresh,
            text_is_stale: has_text
                && !now.is_halted()
                && record.failed == before.failed
                && open(record.conn),
            waits,
            halt_changed: halt(&record) != halt(&before),
        }
    }

    /// Takes in what the store held. Merges, so that nothing is lost whatever came before. Whether
    /// it is new.
    pub(super) fn restore(&mut self, now_ms: Millis, change: &Change<'_>) -> bool {
        let Some((at, fresh)) = self.find_or_insert(change, true) else { return false };
        let mut record = self.slot(at).record(&self.incarnations);
        record.merge(change.record);
        let slot = &mut self.chunks[at as usize / CHUNK].slots[at as usize % CHUNK];
        slot.set(Slot::NO_BUCKET, change.no_bucket);
        if slot.set_record(&record, &mut self.incarnations).is_err() {
            self.tally.overflow += 1;
        }
        self.classify(now_ms, at);
        self.wait(at, change.links);
        fresh
    }

    /// Looks again at those whose time has come, and drops idle ones that count for nothing.
    pub(super) fn sweep(&mut self, now_ms: Millis) {
        let now_s = whole_seconds(now_ms);
        if self.next_due > now_s {
            return;
        }
        self.next_due = u32::MAX;
        for at in 0..self.used {
            let (chunk, index) = (at as usize / CHUNK, at as usize % CHUNK);
            let due = self.chunks[chunk].due[index];
            if due > now_s {
                self.next_due = self.next_due.min(due);
                continue;
            }
            let now = self.classify(now_ms, at);
            let record = self.slot(at).record(&self.incarnations);
            let waits = self.slot(at).waits() != 0;
            if !now.counts() && !waits && self.may_drop(now_ms, &record) {
                self.remove(at);
            }
        }
    }

    /// Counts everybody anew, under another stage, other times or other owners.
    pub(super) fn set_context(
        &mut self,
        now_ms: Millis,
        context: Arc<Context>,
        affected: &Affected,
    ) {
        if let Affected::Of(processes) = affected {
            self.set_owners(now_ms, context, processes);
            return;
        }
        self.rivals.retain(|_, rivals| {
            rivals.retain(|(session, _)| context.owners.reports(session.incarnation));
            !rivals.is_empty()
        });
        let stage = context.terms.stage;
        self.context = context;
        self.next_due = u32::MAX;
        self.halted_version += 1;
        let duplicates = self.rivals.values().map(|rivals| rivals.len() as u64 + 1).sum();
        self.tally = Tally { duplicates, overflow: self.tally.overflow, ..Tally::new(stage) };
        for at in 0..self.used {
            let (chunk, index) = (at as usize / CHUNK, at as usize % CHUNK);
            let chunk = &mut self.chunks[chunk];
            chunk.class[index] = Class::NOWHERE;
            let identity = chunk.slots[index].identity();
            let rivals = self.rivals.contains_key(&identity);
            chunk.slots[index].set(Slot::RIVALS, rivals);
            if !chunk.slots[index].has(Slot::FREE) {
                self.classify(now_ms, at);
            }
        }
    }

    /// Counts those anew whose newest session is of one of these processes.
    fn set_owners(&mut self, now_ms: Millis, context: Arc<Context>, processes: &[u32]) {
        self.context = context;
        for at in 0..self.used {
            let slot = self.slot(at);
            let conn = slot.record(&self.incarnations).conn;
            let affected =
                conn.is_some_and(|(session, _)| processes.contains(&session.incarnation));
            if !slot.has(Slot::FREE) && (affected || slot.has(Slot::RIVALS)) {
                self.forget_silent_rivals(at);
                self.classify(now_ms, at);
            }
        }
        self.halted_version += 1;
    }

    /// Sessions of a process that does not report are not known to live.
    fn forget_silent_rivals(&mut self, at: u32) {
        if !self.slot(at).has(Slot::RIVALS) {
            return;
        }
        let identity = self.slot(at).identity();
        let Some(rivals) = self.rivals.get_mut(&identity) else { return };
        let before = rivals.len() as u64 + 1;
        let owners = &self.context.owners;
        rivals.retain(|(session, _)| owners.reports(session.incarnation));
        let left = if rivals.is_empty() { 0 } else { rivals.len() as u64 + 1 };
        if left == 0 {
            self.rivals.remove(&identity);
        }
        self.tally.duplicates = self.tally.duplicates + left - before;
        self.slot_mut(at).set(Slot::RIVALS, left > 0);
    }

    /// Drops every idle record: the change has left head.
    pub(super) fn drop_idle(&mut self) {
        for at in 0..self.used {
            let slot = self.slot(at);
            let idle = slot.waits() == 0 && slot.record(&self.incarnations).is_idle();
            if !slot.has(Slot::FREE) && idle {
                self.remove(at);
            }
        }
    }

    /// Gives the next members to be written, and forgets that they wait.
    pub(super) fn take_dirty(&mut self, mut take: impl FnMut(Member<'_>) -> bool) {
        while let Some(at) = self.dirty.pop() {
            let slot = &mut self.chunks[at as usize / CHUNK].slots[at as usize % CHUNK];
            slot.set(Slot::DIRTY, false);
            if slot.has(Slot::FREE) {
                continue;
            }
            if !take(self.member(at)) {
                break;
            }
        }
        if self.dirty.is_empty() {
            // After a storm; members are many and shall cost little.
            self.dirty.shrink_to(DIRTY_KEPT);
        }
    }

    pub(super) fn has_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Everybody who holds something worth keeping waits to be written.
    pub(super) fn dirty_all(&mut self) {
        for at in 0..self.used {
            let slot = &mut self.chunks[at as usize / CHUNK].slots[at as usize % CHUNK];
            let stored = !slot.has(Slot::FREE) && !slot.record(&self.incarnations).is_idle();
            if stored && !slot.has(Slot::DIRTY) {
                slot.set(Slot::DIRTY, true);
                self.dirty.push(at);
            }
        }
    }

    pub(super) fn members(&self) -> impl Iterator<Item = Member<'_>> {
        (0..self.used).filter(|at| !self.slot(*at).has(Slot::FREE)).map(|at| self.member(at))
    }

    pub(super) fn halted(&self) -> impl Iterator<Item = Member<'_>> {
        let halted =
            |at: &u32| self.chunks[*at as usize / CHUNK].class[*at as usize % CHUNK].is_halted();
        (0..self.used).filter(halted).map(|at| self.member(at))
    }

    pub(super) fn text(&self, identity: Identity) -> Option<&Text> {
        self.texts.get(&identity)
    }

    /// Whether there was one before.
    pub(super) fn set_text(&mut self, hash: u64, identity: Identity, text: Option<Text>) -> bool {
        let at = self.index.find(hash, |at| self.slot(*at).identity() == identity).copied();
        let Some(at) = at else { return true };
        self.halted_version += 1;
        let slot = &mut self.chunks[at as usize / CHUNK].slots[at as usize % CHUNK];
        slot.set(Slot::ABOUT, text.is_some());
        match text {
            Some(text) => self.texts.insert(identity, text).is_some(),
            None => self.texts.remove(&identity).is_some(),
        }
    }

    pub(super) fn slot(&self, at: u32) -> &Slot {
        &self.chunks[at as usize / CHUNK].slots[at as usize % CHUNK]
    }

    pub(super) fn slot_mut(&mut self, at: u32) -> &mut Slot {
        &mut self.chunks[at as usize / CHUNK].slots[at as usize % CHUNK]
    }

    /// Where it is.
    pub(super) fn find(&self, hash: u64, identity: Identity) -> Option<u32> {
        self.index.find(hash, |at| self.slot(*at).identity() == identity).copied()
    }

    pub(super) fn member(&self, at: u32) -> Member<'_> {
        let chunk = &self.chunks[at as usize / CHUNK];
        let slot = &chunk.slots[at as usize % CHUNK];
        let identity = slot.identity();
        Member {
            identity,
            record: slot.record(&self.incarnations),
            class: chunk.class[at as usize % CHUNK],
            no_bucket: slot.has(Slot::NO_BUCKET),
            text: if slot.has(Slot::ABOUT) { self.texts.get(&identity) } else { None },
            uid: slot.uid(),
        }
    }

    /// Where it is, and whether it is new; `None`: it is new, and there is no room.
    fn find_or_insert(&mut self, change: &Change<'_>, room: bool) -> Option<(u32, bool)> {
        let Self { index, chunks, free, used, context, .. } = self;
        let seed = context.seed;
        let identity_at =
            |at: &u32| chunks[*at as usize / CHUNK].slots[*at as usize % CHUNK].identity();
        // Not by its entry: that makes room for one more, needed or not.
        if let Some(at) = index.find(change.hash, |at| identity_at(at) == change.identity) {
            return Some((*at, false));
        }
        if !room {
            return None;
        }
        let at = free.pop().unwrap_or(*used);
        index.insert_unique(change.hash, at, |at| seed.hash(identity_at(at)));
        if at == *used {
            *used += 1;
            if chunks.len() * CHUNK <= at as usize {
                chunks.push(Chunk::new());
            }
        }
        let slot = &mut chunks[at as usize / CHUNK].slots[at as usize % CHUNK];
        *slot = Slot::EMPTY;
        slot.set(Slot::FREE, false);
        slot.set_identity(change.identity);
        Some((at, true))
    }

    fn remove(&mut self, at: u32) {
        let identity = self.slot(at).identity();
        if let Some(rivals) = self.rivals.remove(&identity) {
            self.tally.duplicates -= rivals.len() as u64 + 1;
        }
        self.texts.remove(&identity);
        // The index is asked by its own values: the slab says who they are.
        let hash = self.context.seed.hash(identity);
        if let Ok(entry) = self.index.find_entry(hash, |known| *known == at) {
            entry.remove();
        }
        let chunk = &mut self.chunks[at as usize / CHUNK];
        chunk.class[at as usize % CHUNK].uncount(&mut self.tally);
        chunk.class[at as usize % CHUNK] = Class::NOWHERE;
        chunk.due[at as usize % CHUNK] = u32::MAX;
        chunk.slots[at as usize % CHUNK] = Slot::EMPTY;
        self.free.push(at);
    }

    /// Counts a member as what it comes to now.
    pub(super) fn classify(&mut self, now_ms: Millis, at: u32) -> Class {
        let chunk = &mut self.chunks[at as usize / CHUNK];
        let slot = &chunk.slots[at as usize % CHUNK];
        let mut record = slot.record(&self.incarnations);
        if slot.has(Slot::RIVALS)
            && let Some(rivals) = self.rivals.get(&slot.identity())
            && let Some((session, _)) = rivals.iter().max()
            && !matches!(record.conn, Some((_, Conn::Open)))
        {
            // Its newest session has ended, and another uid goes on under its name.
            record.conn = Some((*session, Conn::Open));
        }
        let (class, next_ms) = self.context.classify(now_ms, &record, slot.has(Slot::NO_BUCKET));
        let drop_ms = (!class.counts() && record.is_idle() && !self.context.is_open(&record))
            .then(|| self.context.idle_until(&record).max(now_ms + 1));
        let due_ms = next_ms.into_iter().chain(drop_ms).min().unwrap_or(Millis::MAX);
        let due = u32::try_from(due_ms.div_ceil(1_000)).unwrap_or(u32::MAX);
        let was = std::mem::replace(&mut chunk.class[at as usize % CHUNK], class);
        if was != class {
            was.uncount(&mut self.tally);
            class.count(&mut self.tally);
            self.halted_version += u64::from(was.is_halted() || class.is_halted());
        }
        chunk.due[at as usize % CHUNK] = due;
        self.next_due = self.next_due.min(due);
        class
    }

    fn may_drop(&self, now_ms: Millis, record: &Record) -> bool {
        record.is_idle()
            && !self.context.is_open(record)
            && now_ms >= self.context.idle_until(record)
    }

    /// Keeps count of the live uids of one identity.
    fn note_session(
        &mut self,
        at: u32,
        current: Option<(Session, Conn)>,
        (session, conn): (Session, Conn),
        uid: u32,
    ) {
        let slot = &mut self.chunks[at as usize / CHUNK].slots[at as usize % CHUNK];
        let identity = slot.identity();
        let newest = current.is_none_or(|(current, _)| session >= current);
        if slot.has(Slot::RIVALS)
            && let Some(rivals) = self.rivals.get_mut(&identity)
        {
            // It has ended, or is about to be counted anew.
            let before = rivals.len() as u64 + 1;
            rivals.retain(|(known, by)| *known != session && *by != uid);
            if rivals.is_empty() {
                self.rivals.remove(&identity);
                slot.set(Slot::RIVALS, false);
                self.tally.duplicates -= before;
            } else {
                self.tally.duplicates -= before - (rivals.len() as u64 + 1);
            }
        }
        if conn != Conn::Open {
            if newest {
                slot.set_uid(0);
            }
            return;
        }
        if let Some((current, Conn::Open)) = current
            && current != session
            && slot.uid() != 0
            && slot.uid() != uid
            && self.context.owners.reports(current.incarnation)
        {
            let older = if newest { (current, slot.uid()) } else { (session, uid) };
            let rivals = self.rivals.entry(identity).or_default();
            if rivals.len() < RIVALS_MAX {
                self.tally.duplicates += if rivals.is_empty() { 2 } else { 1 };
                rivals.push(older);
            }
            slot.set(Slot::RIVALS, true);
        }
        if newest {
            slot.set_uid(uid);
        }
    }

    /// Keeps the incarnations that some member names.
    #[cold]
    fn forget_incarnations(&mut self) {
        let mut kept = Incarnations::default();
        for at in 0..self.used {
            let slot = &mut self.chunks[at as usize / CHUNK].slots[at as usize % CHUNK];
            let record = slot.record(&self.incarnations);
            // No more incarnations are named than before, so there is room for them.
            let packed = slot.set_record(&record, &mut kept);
            debug_assert_eq!(packed, Ok(()));
        }
        self.incarnations = kept;
    }
}

impl Chunk {
    fn new() -> Box<Self> {
        Box::new(Self {
            due: [u32::MAX; CHUNK],
            class: [Class::NOWHERE; CHUNK],
            slots: [Slot::EMPTY; CHUNK],
        })
    }
}

pub(super) fn whole_seconds(ms: Millis) -> u32 {
    u32::try_from(ms / 1_000).unwrap_or(u32::MAX)
}
