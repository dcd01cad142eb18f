//! How changes come into a cell: one by one, or by the batch.

use std::sync::atomic::Ordering;

use proto::ids::InstanceUid;
use render::rollout::evidence::{Identity, Millis, Record, Session, scrub};
use smallvec::SmallVec;

use super::super::shard::{Change, Effect, Shard, Text};
use super::super::{Shared, Ticket, lock};
use super::{About, Cell, Observation, RECORDS_MAX, SHARDS, Said, TEXTS_MAX, shard_of};
use crate::clock::Now;

/// Changes that are looked up together: about thirty per shard.
const PART: usize = 1_024;
/// Bytes of a label or a version that are kept.
const LABEL_BYTES_MAX: usize = 256;

impl<'a> Said<'a> {
    fn of(change: &Record, about: About<'a>) -> Self {
        let About { uid, label, version, error, no_bucket } = about;
        // Nobody asks for it but where a session begins or ends.
        let uid = if change.conn.is_some() { fold(uid) } else { 1 };
        Self { uid, label, version, error, no_bucket }
    }
}

/// What was learned of one collector, wherever it comes from.
pub(in crate::aggregate) trait Learned {
    fn identity(&self) -> Identity;
    fn change(&self) -> &Record;
    fn said(&self) -> Said<'_>;
    /// Where a replica says it: all live sessions there besides the newest, and their folded uids.
    fn others(&self) -> Option<Others>;
}

/// Sessions and the folded uids that they belong to.
pub(in crate::aggregate) type Others = SmallVec<[(Session, u32); 4]>;

impl Learned for Observation<'_> {
    fn identity(&self) -> Identity {
        self.identity
    }

    fn change(&self) -> &Record {
        &self.change
    }

    fn said(&self) -> Said<'_> {
        Said::of(&self.change, self.about)
    }

    fn others(&self) -> Option<Others> {
        None
    }
}

/// What came of changes.
#[derive(Debug, Default)]
struct News {
    /// Collectors that there is room for.
    room: usize,
    fresh: usize,
    halts: bool,
    waits: bool,
    dirty: bool,
    /// Whose FAILED was news.
    failed: SmallVec<[Identity; 2]>,
}

impl Cell {
    /// Takes in what was learned of a collector. `Some` when the change must be on the disk before
    /// the collector is answered: see [`Aggregator::committed`](crate::aggregate::Aggregator::committed).
    ///
    /// Waits for nothing but other changes of the same part of the cell. Allocates nothing for a
    /// collector that is known, unless it FAILED or was lost after it took the candidate.
    // hot
    pub fn observe(
        &self,
        now: Now,
        identity: Identity,
        change: &Record,
        about: About<'_>,
    ) -> Option<Ticket> {
        let said = Said::of(change, about);
        self.take_in(self.shared.now_ms(now), identity, change, &said)
    }

    /// See [`Self::observe`].
    pub(in crate::aggregate) fn take_in(
        &self,
        now_ms: Millis,
        identity: Identity,
        record: &Record,
        said: &Said<'_>,
    ) -> Option<Ticket> {
        let hash = self.shared.seed.hash(identity);
        let mut news = News { room: self.room(), ..News::default() };
        {
            let mut shard = self.shard(hash);
            let shard = shard.get_or_insert_with(|| Box::new(Shard::new(self.context.load_full())));
            let change = self.change(hash, identity, record, said);
            let effect = shard.observe(now_ms, &change, news.room > 0);
            self.note(shard, &change, effect, said, &mut news);
        }
        self.shared.metrics.evidence_events.increment(1);
        self.act_on(now_ms, &news);
        if let Some(cell) = self.moved.get() {
            // It may have come after everybody else had moved.
            let ticket = cell.take_in(now_ms, identity, record, said);
            return ticket.or_else(|| cell.keep(&news));
        }
        self.keep(&news)
    }

    /// Takes in what was learned of many, in any order and as often as each comes: as
    /// [`Self::observe`] for each, only faster. `Some` when one of the changes must be on the disk
    /// before the batch is acknowledged.
    // hot
    pub fn observe_batch(&self, now: Now, batch: &[Observation<'_>]) -> Option<Ticket> {
        self.take_in_batch(self.shared.now_ms(now), batch)
    }

    /// See [`Self::observe_batch`].
    pub(in crate::aggregate) fn take_in_batch(
        &self,
        now_ms: Millis,
        batch: &[impl Learned],
    ) -> Option<Ticket> {
        let parts = batch.chunks(PART);
        parts.filter_map(|part| self.take_in_part(now_ms, part)).max()
    }

    /// One shard after the other, twice: all members are looked up before the first is merged. No
    /// look depends on another, so the processor waits for the memory of many at once.
    fn take_in_part(&self, now_ms: Millis, part: &[impl Learned]) -> Option<Ticket> {
        let part = &part[..part.len().min(PART)];
        let mut hashes = [0; PART];
        let mut ends = [0_usize; SHARDS];
        for (hash, one) in hashes.iter_mut().zip(part) {
            *hash = self.shared.seed.hash(one.identity());
            ends[shard_of(*hash)] += 1;
        }
        let mut start = 0;
        for end in &mut ends {
            start += std::mem::replace(end, start);
        }
        let mut order = [0_u16; PART];
        for (number, hash) in hashes[..part.len()].iter().enumerate() {
            let end = &mut ends[shard_of(*hash)];
            order[*end] = number as u16;
            *end += 1;
        }
        let starts = std::iter::once(0).chain(ends);
        let groups = starts.zip(ends).map(|(start, end)| start..end).zip(&self.shards);
        let groups = groups.filter(|(group, _)| !group.is_empty());

        let mut places = [None; PART];
        for (group, shard) in groups.clone() {
            let who = order[group.clone()].iter().map(|number| hashes[usize::from(*number)]);
            if let Some(shard) = &*lock(shard) {
                shard.seek(who, &mut places[group]);
            }
        }
        let mut news = News { room: self.room(), ..News::default() };
        for (group, shard) in groups {
            let mut shard = lock(shard);
            let shard = shard.get_or_insert_with(|| Box::new(Shard::new(self.context.load_full())));
            for (number, at) in order[group.clone()].iter().zip(&places[group]) {
                let number = usize::from(*number);
                let one = &part[number];
                let (identity, said) = (one.identity(), one.said());
                let change = self.change(hashes[number], identity, one.change(), &said);
                let at = shard.confirm(*at, change.hash, identity);
                let effect = match at {
                    Some(at) => shard.observe_at(now_ms, at, &change),
                    None => shard.observe_unknown(now_ms, &change, news.room > 0),
                };
                self.note(shard, &change, effect, &said, &mut news);
                if let Some(others) = one.others()
                    && let Some(at) = at.or_else(|| shard.find(change.hash, identity))
                {
                    shard.list(now_ms, at, (change.record.conn, said.uid), &others);
                }
            }
        }
        self.shared.metrics.evidence_events.increment(part.len() as u64);
        self.act_on(now_ms, &news);
        if let Some(cell) = self.moved.get() {
            let ticket = cell.take_in_part(now_ms, part);
            return ticket.or_else(|| cell.keep(&news));
        }
        self.keep(&news)
    }

    /// While its shard is held: who must be told of it is asked no sooner.
    fn change<'c>(
        &self,
        hash: u64,
        identity: Identity,
        record: &'c Record,
        said: &Said<'_>,
    ) -> Change<'c> {
        let Said { uid, no_bucket, .. } = *said;
        Change { identity, hash, record, uid, no_bucket, links: self.shared.links.connected() }
    }

    /// Collectors that there is room for.
    fn room(&self) -> usize {
        RECORDS_MAX.saturating_sub(self.len())
    }

    /// What must be done while the shard is held.
    fn note(
        &self,
        shard: &mut Shard,
        change: &Change<'_>,
        effect: Effect,
        said: &Said<'_>,
        news: &mut News,
    ) {
        if effect.failed || effect.silent || effect.text_is_stale {
            self.keep_text(shard, change, effect, said);
        }
        if effect.halt_changed {
            self.halts.note(&self.shared, change.identity);
        }
        if effect.fresh {
            news.fresh += 1;
            news.room = news.room.saturating_sub(1);
        }
        if effect.failed {
            news.failed.push(change.identity);
        }
        news.halts |= effect.halts;
        news.waits |= effect.waits;
        news.dirty |= effect.dirty;
    }

    /// What must not be done while a shard is held.
    fn act_on(&self, now_ms: Millis, news: &News) {
        if news.fresh > 0 {
            self.members.fetch_add(news.fresh, Ordering::Relaxed);
        }
        if news.halts {
            if !self.is_braked() && self.shared.judges() {
                self.brake_if_due(now_ms);
            }
            self.shared.wake.notify_one();
        }
        if news.waits {
            self.note_waiting();
        }
    }

    /// Sees to it that what changed outlives this process. `Some` where somebody waits for that.
    fn keep(&self, news: &News) -> Option<Ticket> {
        if news.dirty {
            self.dirty.store(true, Ordering::Release);
        }
        news.failed.iter().filter_map(|identity| self.keep_soon(*identity)).max()
    }

    /// Somebody waits until a member is where it outlives this process; `None` if it never will be.
    #[cold]
    fn keep_soon(&self, identity: Identity) -> Option<Ticket> {
        let Shared { links, store, .. } = &*self.shared;
        if !links.is_empty() {
            return Some(links.send_soon(self.number, identity));
        }
        store.as_ref().map(|store| store.write_soon(self.number, identity))
    }

    /// Some of its members wait to be sent.
    pub(in crate::aggregate) fn note_waiting(&self) {
        self.shared.links.note_waiting(self);
    }

    /// Keeps what is to be read of a halted member, and forgets it once it is none.
    #[cold]
    fn keep_text(&self, shard: &mut Shard, change: &Change<'_>, effect: Effect, about: &Said<'_>) {
        let texts = &self.shared.texts;
        if effect.text_is_stale {
            if shard.set_text(change.hash, change.identity, None) {
                texts.fetch_sub(1, Ordering::Relaxed);
            }
            return;
        }
        let known = shard.text(change.identity);
        let most = if effect.failed { TEXTS_MAX } else { TEXTS_MAX / 2 };
        if known.is_none() && texts.load(Ordering::Relaxed) >= most {
            return;
        }
        let or_known = |said: &str, known: Option<&str>| -> Box<str> {
            let text = if said.is_empty() { known.unwrap_or_default() } else { said };
            short(text)
        };
        let error = if about.error.is_empty() { String::new() } else { scrub(about.error) };
        let text = Text {
            label: or_known(about.label, known.map(|text| &*text.label)),
            version: or_known(about.version, known.map(|text| &*text.version)),
            error: or_known(&error, known.map(|text| &*text.error)),
        };
        if !shard.set_text(change.hash, change.identity, Some(text)) {
            texts.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A uid in four bytes, never 0: two that are live at once differ in all but one of 2^32 cases.
fn fold(uid: InstanceUid) -> u32 {
    (xxhash_rust::xxh3::xxh3_64(&uid.0) as u32).max(1)
}

fn short(text: &str) -> Box<str> {
    text[..text.floor_char_boundary(LABEL_BYTES_MAX)].into()
}
