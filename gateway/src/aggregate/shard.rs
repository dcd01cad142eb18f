//! A part of a cell's members: slab, index and counters under one lock.
//!
//! The counters hold at every moment what classifying each member anew would count (a property
//! test says so): each change takes away what the member counted for and adds what it counts for
//! now. What time alone changes is found by [`Shard::sweep`], which looks at due times only.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use render::rollout::evidence::{Conn, Identity, Millis, Record, Session};
use render::rollout::verdict::Tally;
use smallvec::SmallVec;

use super::class::{Class, Classes};
use super::context::Context;
use super::index::{Index, PLACES_MAX};
use super::packed::{Hot, Incarnations};
use super::replicas::Affected;
use super::slab::Slab;
use super::waiting::Waiting;

/// Room for members to be written that a shard keeps between two looks.
const DIRTY_KEPT: usize = 32;
/// Past this many incarnations in a shard, those that no member names any more are forgotten.
const INCARNATIONS_SOFT_MAX: usize = 1_024;
/// Live uids of one identity that are told apart beyond the first; more are not counted.
pub(super) const RIVALS_MAX: usize = 16;

/// What can be read of a member, kept for halted ones alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Text {
    pub(crate) label: Box<str>,
    pub(crate) version: Box<str>,
    pub(crate) error: Box<str>,
}

/// Live sessions of an identity beside its newest one, and their folded uids.
pub(super) type Rivals = SmallVec<[(Session, u32); 2]>;

pub(super) struct Shard {
    pub(super) context: Arc<Context>,
    index: Index,
    pub(super) slab: Slab,
    pub(super) incarnations: Incarnations,
    /// Past this many incarnations, those that no member names any more are forgotten.
    incarnations_kept: usize,
    classes: Classes,
    pub(super) duplicates: u64,
    overflow: u64,
    /// Changes with what is to be read about halted members. From 1.
    halted_version: u64,
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
        let waiting = std::iter::repeat_with(Waiting::default).take(context.uplinks).collect();
        Self {
            incarnations: Incarnations::new(Arc::clone(&context.owners)),
            context,
            index: Index::default(),
            slab: Slab::new(),
            incarnations_kept: INCARNATIONS_SOFT_MAX,
            classes: Classes::default(),
            duplicates: 0,
            overflow: 0,
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

    pub(super) fn has_halted(&self) -> bool {
        self.classes.has_halted()
    }

    /// Adds its members.
    pub(super) fn count(&self, tally: &mut Tally) {
        tally.duplicates += self.duplicates;
        tally.overflow += self.overflow;
        self.classes.count(self.context.terms.stage, tally);
    }

    pub(super) fn get(&self, hash: u64, identity: Identity) -> Option<Member<'_>> {
        self.find(hash, identity).map(|at| self.member(at))
    }

    // hot: a change of a known member allocates nothing, whatever it says.
    pub(super) fn observe(&mut self, now_ms: Millis, change: &Change<'_>, room: bool) -> Effect {
        match self.find(change.hash, change.identity) {
            Some(at) => self.observe_at(now_ms, at, change),
            None => self.observe_unknown(now_ms, change, room),
        }
    }

    /// What [`Self::observe`] does of one of whom nothing is known.
    pub(super) fn observe_unknown(
        &mut self,
        now_ms: Millis,
        change: &Change<'_>,
        room: bool,
    ) -> Effect {
        let Some(at) = self.insert(change, room) else { return self.overflow() };
        let effect = self.observe_at(now_ms, at, change);
        let waits = effect.waits || self.wait(at, change.links);
        Effect { fresh: true, waits, ..effect }
    }

    #[cold]
    fn overflow(&mut self) -> Effect {
        self.overflow += 1;
        Effect { overflow: true, ..Effect::default() }
    }

    /// What [`Self::observe`] does of one that is known. `at`: where it is.
    // hot
    pub(super) fn observe_at(&mut self, now_ms: Millis, at: u32, change: &Change<'_>) -> Effect {
        if self.incarnations.len() > self.incarnations_kept {
            self.forget_incarnations();
        }
        let said = change.record;
        let mut rivals = self.slab.hot(at).has(Hot::RIVALS);
        if let Some(conn) = said.conn {
            self.note_session(at, conn, change.uid);
        }
        let Self { slab, incarnations, context, .. } = self;
        let mut slot = slab.slot_mut(at);
        let was_open = slot.hot.is_open();
        let was_halted = slot.as_packed().halted_after(incarnations);
        let shared = slot.hot.has(Hot::RIVALS);
        rivals |= shared;
        // It is not known which of the two it failed on.
        let with_applied = !shared || was_halted.is_none();
        let had_bucket = !slot.hot.has(Hot::NO_BUCKET);
        slot.hot.set(Hot::NO_BUCKET, change.no_bucket);
        let Ok(merged) = slot.merge(said, with_applied, incarnations) else {
            return self.overflow();
        };
        let halt_changed = slot.as_packed().halted_after(incarnations) != was_halted;
        let hot = slot.hot;
        let is_open = hot.is_open();
        let silent = was_open && !is_open && hot.took_candidate();
        let has_text = hot.has(Hot::ABOUT);
        let dirty = merged.changed && context.is_stored && !hot.is_idle() && !hot.has(Hot::DIRTY);
        if dirty {
            hot.set(Hot::DIRTY, true);
            self.dirty.push(at);
        }
        let was = hot.class();
        let now = self.classify(now_ms, at);
        self.halted_version += u64::from(merged.failed);
        // Which sessions live besides the newest is told with it.
        let news =
            merged.changed || had_bucket == change.no_bucket || (rivals && said.conn.is_some());
        let waits = change.links != 0 && news && self.wait(at, change.links);
        Effect {
            overflow: false,
            failed: merged.failed,
            halts: now.is_halted() && !was.is_halted(),
            silent,
            dirty,
            fresh: false,
            text_is_stale: has_text && !now.is_halted() && !merged.failed && is_open,
            waits,
            halt_changed,
        }
    }

    /// Takes in what the store held. Merges, so that nothing is lost whatever came before. Whether
    /// it is new.
    pub(super) fn restore(&mut self, now_ms: Millis, change: &Change<'_>) -> bool {
        let known = self.find(change.hash, change.identity);
        let Some(at) = known.or_else(|| self.insert(change, true)) else {
            self.overflow += 1;
            return false;
        };
        let mut slot = self.slab.slot_mut(at);
        slot.hot.set(Hot::NO_BUCKET, change.no_bucket);
        if slot.merge(change.record, true, &mut self.incarnations).is_err() {
            self.overflow += 1;
        }
        self.classify(now_ms, at);
        self.wait(at, change.links);
        known.is_none()
    }

    /// Looks again at those whose time has come, and drops idle ones that count for nothing.
    pub(super) fn sweep(&mut self, now_ms: Millis) {
        let now_s = whole_seconds(now_ms);
        if self.next_due > now_s {
            return;
        }
        self.next_due = u32::MAX;
        for at in self.slab.all() {
            let due = self.slab.due(at);
            if due > now_s {
                self.next_due = self.next_due.min(due);
                continue;
            }
            let now = self.classify(now_ms, at);
            let waits = self.slab.hot(at).waits() != 0;
            if !now.counts() && !waits && self.may_drop(now_ms, &self.record(at)) {
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
        self.duplicates = self.rivals.values().map(|rivals| rivals.len() as u64 + 1).sum();
        self.incarnations.set_owners(Arc::clone(&context.owners));
        self.context = context;
        self.next_due = u32::MAX;
        self.halted_version += 1;
        self.classes.clear();
        for at in self.slab.all() {
            let hot = self.slab.hot_mut(at);
            hot.set_class(Class::NOWHERE);
            hot.set(Hot::RIVALS, self.rivals.contains_key(&hot.identity()));
            if !hot.has(Hot::FREE) {
                self.classify(now_ms, at);
            }
        }
    }

    /// Counts those anew whose newest session is of one of these processes.
    fn set_owners(&mut self, now_ms: Millis, context: Arc<Context>, processes: &[u32]) {
        self.incarnations.set_owners(Arc::clone(&context.owners));
        self.context = context;
        for at in self.slab.all() {
            let conn = self.slab.get(at).conn(&self.incarnations);
            let affected =
                conn.is_some_and(|(session, _)| processes.contains(&session.incarnation));
            let hot = self.slab.hot(at);
            if !hot.has(Hot::FREE) && (affected || hot.has(Hot::RIVALS)) {
                self.forget_silent_rivals(at);
                self.classify(now_ms, at);
            }
        }
        self.halted_version += 1;
    }

    /// Sessions of a process that does not report are not known to live.
    fn forget_silent_rivals(&mut self, at: u32) {
        let hot = self.slab.hot_mut(at);
        if !hot.has(Hot::RIVALS) {
            return;
        }
        let identity = hot.identity();
        let Some(rivals) = self.rivals.get_mut(&identity) else { return };
        let before = rivals.len() as u64 + 1;
        let owners = &self.context.owners;
        rivals.retain(|(session, _)| owners.reports(session.incarnation));
        let left = if rivals.is_empty() { 0 } else { rivals.len() as u64 + 1 };
        hot.set(Hot::RIVALS, left > 0);
        if left == 0 {
            self.rivals.remove(&identity);
        }
        self.duplicates = self.duplicates + left - before;
    }

    /// Drops every idle record: the change has left head.
    pub(super) fn drop_idle(&mut self) {
        for at in self.slab.all() {
            let hot = self.slab.hot(at);
            if !hot.has(Hot::FREE) && hot.waits() == 0 && hot.is_idle() {
                self.remove(at);
            }
        }
    }

    /// Gives the next members to be written, and forgets that they wait.
    pub(super) fn take_dirty(&mut self, mut take: impl FnMut(Member<'_>) -> bool) {
        while let Some(at) = self.dirty.pop() {
            let hot = self.slab.hot_mut(at);
            hot.set(Hot::DIRTY, false);
            if hot.has(Hot::FREE) {
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
        for at in self.slab.all() {
            let hot = self.slab.hot_mut(at);
            if !hot.has(Hot::FREE) && !hot.is_idle() && !hot.has(Hot::DIRTY) {
                hot.set(Hot::DIRTY, true);
                self.dirty.push(at);
            }
        }
    }

    pub(super) fn members(&self) -> impl Iterator<Item = Member<'_>> {
        self.slab.all().filter(|at| !self.slab.hot(*at).has(Hot::FREE)).map(|at| self.member(at))
    }

    pub(super) fn halted(&self) -> impl Iterator<Item = Member<'_>> {
        let halted = |at: &u32| self.slab.hot(*at).class().is_halted();
        self.slab.all().filter(halted).map(|at| self.member(at))
    }

    pub(super) fn text(&self, identity: Identity) -> Option<&Text> {
        self.texts.get(&identity)
    }

    /// Whether there was one before.
    pub(super) fn set_text(&mut self, hash: u64, identity: Identity, text: Option<Text>) -> bool {
        let Some(at) = self.find(hash, identity) else { return true };
        self.halted_version += 1;
        self.slab.hot_mut(at).set(Hot::ABOUT, text.is_some());
        match text {
            Some(text) => self.texts.insert(identity, text).is_some(),
            None => self.texts.remove(&identity).is_some(),
        }
    }

    fn record(&self, at: u32) -> Record {
        self.slab.get(at).record(&self.incarnations)
    }

    pub(super) fn member(&self, at: u32) -> Member<'_> {
        let hot = self.slab.hot(at);
        let identity = hot.identity();
        Member {
            identity,
            record: self.record(at),
            class: hot.class(),
            no_bucket: hot.has(Hot::NO_BUCKET),
            text: if hot.has(Hot::ABOUT) { self.texts.get(&identity) } else { None },
            uid: hot.uid(),
        }
    }

    /// Where it is.
    pub(super) fn find(&self, hash: u64, identity: Identity) -> Option<u32> {
        self.index.find(hash, |at| self.slab.hot(at).identity() == identity)
    }

    /// Where each may be, by its hash alone, if anywhere. The processor is asked for the memory of
    /// all of them, and nothing waits for it: see [`Self::confirm`].
    // hot
    pub(super) fn seek(&self, who: impl Iterator<Item = u64> + Clone, places: &mut [Option<u32>]) {
        who.clone().for_each(|hash| self.index.prefetch(hash));
        for (hash, at) in who.zip(places) {
            *at = self.index.find(hash, |_| true);
            if let Some(maybe) = *at {
                self.slab.prefetch(maybe);
            }
        }
    }

    /// Where one is. `maybe`: what [`Self::seek`] said of it, whatever happened since.
    // hot
    pub(super) fn confirm(&self, maybe: Option<u32>, hash: u64, identity: Identity) -> Option<u32> {
        let known = |at: &u32| {
            let hot = self.slab.hot(*at);
            hot.identity() == identity && !hot.has(Hot::FREE)
        };
        maybe.filter(known).or_else(|| self.find(hash, identity))
    }

    /// Where one is from now on of whom nothing is known; `None`: there is no room.
    #[cold]
    fn insert(&mut self, change: &Change<'_>, room: bool) -> Option<u32> {
        let Self { index, slab, context, .. } = self;
        if !room || index.len() >= PLACES_MAX as usize {
            return None;
        }
        let at = slab.take_place();
        let hash_of = |at| context.seed.hash(slab.hot(at).identity());
        index.insert(change.hash, at, hash_of);
        *slab.hot_mut(at) = Hot::new(change.identity);
        Some(at)
    }

    fn remove(&mut self, at: u32) {
        let identity = self.slab.hot(at).identity();
        if let Some(rivals) = self.rivals.remove(&identity) {
            self.duplicates -= rivals.len() as u64 + 1;
        }
        self.texts.remove(&identity);
        let Self { index, slab, context, .. } = self;
        let hash_of = |at| context.seed.hash(slab.hot(at).identity());
        index.remove(hash_of(at), at, hash_of);
        self.classes.remove(slab.hot(at).class());
        slab.free_place(at);
    }

    /// Counts a member as what it comes to now.
    // hot
    pub(super) fn classify(&mut self, now_ms: Millis, at: u32) -> Class {
        let packed = self.slab.get(at);
        let (class, due) = match packed.vouched(&self.incarnations) {
            Some(vouched) => (self.context.class_of(vouched), u32::MAX),
            None => self.work_out(now_ms, at),
        };
        let hot = self.slab.hot_mut(at);
        let was = hot.class();
        if was != class {
            hot.set_class(class);
            self.classes.remove(was);
            self.classes.add(class);
            self.halted_version += u64::from(was.is_halted() || class.is_halted());
        }
        if due != u32::MAX || hot.has(Hot::TIMED) {
            hot.set(Hot::TIMED, due != u32::MAX);
            *self.slab.due_mut(at) = due;
            self.next_due = self.next_due.min(due);
        }
        class
    }

    /// What one comes to that nobody vouches for, and when that changes by time alone.
    fn work_out(&self, now_ms: Millis, at: u32) -> (Class, u32) {
        let hot = self.slab.hot(at);
        let mut record = self.record(at);
        if hot.has(Hot::RIVALS)
            && let Some(rivals) = self.rivals.get(&hot.identity())
            && let Some((session, _)) = rivals.iter().max()
            && !hot.is_open()
        {
            // Its newest session has ended, and another uid goes on under its name.
            record.conn = Some((*session, Conn::Open));
        }
        let (class, next_ms) = self.context.classify(now_ms, &record, hot.has(Hot::NO_BUCKET));
        let drop_ms = (!class.counts() && record.is_idle() && !self.context.is_open(&record))
            .then(|| self.context.idle_until(&record).max(now_ms + 1));
        let due_ms = next_ms.into_iter().chain(drop_ms).min().unwrap_or(Millis::MAX);
        (class, u32::try_from(due_ms.div_ceil(1_000)).unwrap_or(u32::MAX))
    }

    fn may_drop(&self, now_ms: Millis, record: &Record) -> bool {
        record.is_idle()
            && !self.context.is_open(record)
            && now_ms >= self.context.idle_until(record)
    }

    /// Keeps count of the live uids of one identity.
    fn note_session(&mut self, at: u32, (session, conn): (Session, Conn), uid: u32) {
        let current = self.slab.get(at).conn(&self.incarnations);
        let hot = self.slab.slot_mut(at).hot;
        let newest = current.is_none_or(|(current, _)| session >= current);
        if hot.has(Hot::RIVALS)
            && let Some(rivals) = self.rivals.get_mut(&hot.identity())
        {
            // It has ended, or is about to be counted anew.
            let before = rivals.len() as u64 + 1;
            rivals.retain(|(known, by)| *known != session && *by != uid);
            if rivals.is_empty() {
                self.rivals.remove(&hot.identity());
                hot.set(Hot::RIVALS, false);
                self.duplicates -= before;
            } else {
                self.duplicates -= before - (rivals.len() as u64 + 1);
            }
        }
        if conn != Conn::Open {
            if newest {
                hot.set_uid(0);
            }
            return;
        }
        if let Some((current, Conn::Open)) = current
            && current != session
            && hot.uid() != 0
            && hot.uid() != uid
            && self.context.owners.reports(current.incarnation)
        {
            let older = if newest { (current, hot.uid()) } else { (session, uid) };
            let rivals = self.rivals.entry(hot.identity()).or_default();
            if rivals.len() < RIVALS_MAX {
                self.duplicates += if rivals.is_empty() { 2 } else { 1 };
                rivals.push(older);
            }
            hot.set(Hot::RIVALS, true);
        }
        if newest {
            hot.set_uid(uid);
        }
    }

    /// Keeps the incarnations that some member names.
    #[cold]
    fn forget_incarnations(&mut self) {
        let mut kept = Incarnations::new(Arc::clone(&self.context.owners));
        for at in self.slab.all() {
            // No more incarnations are named than before, so there is room for them.
            let renamed = self.slab.slot_mut(at).rename(&self.incarnations, &mut kept);
            debug_assert_eq!(renamed, Ok(()));
        }
        self.incarnations = kept;
        // So that it is not done for each change when many are named.
        self.incarnations_kept = INCARNATIONS_SOFT_MAX.max(2 * self.incarnations.len());
    }
}

pub(super) fn whole_seconds(ms: Millis) -> u32 {
    u32::try_from(ms / 1_000).unwrap_or(u32::MAX)
}
