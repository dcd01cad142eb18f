//! Members of a shard that wait to be sent to aggregators, and what a full state listed.
//!
//! A bit in the slot says that a member waits, a queue says in which order, so what waits is bounded
//! by the number of members and is sent in its newest state, once, however often it changed.

use std::collections::VecDeque;

use render::rollout::evidence::{Conn, Identity, Millis, Session};

use super::packed::Hot;
use super::shard::{Member, RIVALS_MAX, Rivals, Shard};

/// Room for members to be sent that a shard keeps when none waits.
const WAITING_KEPT: usize = 32;

/// Who waits to be sent to one aggregator.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// Slots in the order in which they came to wait. One whose bit is clear was sent out of turn.
    queue: VecDeque<u32>,
    /// So many of the front belong to the full state that is being sent.
    of_sync: usize,
}

/// A member, and all live sessions that its process knows of it besides the newest.
pub(crate) struct Told<'s> {
    pub(crate) member: Member<'s>,
    pub(crate) rivals: &'s [(Session, u32)],
}

/// What came of looking for members to send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Taken {
    /// Sent.
    pub(super) sent: usize,
    /// Of the full state, sent or gone.
    pub(super) of_sync: usize,
    /// Others wait.
    pub(super) more: bool,
}

impl Shard {
    /// It waits for these aggregators. Whether it did not wait for one of them.
    pub(super) fn wait(&mut self, at: u32, links: u8) -> bool {
        let slot = self.slab.hot_mut(at);
        let new = links & !slot.waits();
        if new == 0 {
            return false;
        }
        slot.set_waits(slot.waits() | new);
        for (link, waiting) in self.waiting.iter_mut().enumerate() {
            if new & 1 << link != 0 {
                waiting.queue.push_back(at);
            }
        }
        true
    }

    /// Everybody waits: the full state is to be sent. How many there are.
    pub(super) fn wait_all(&mut self, link: usize) -> usize {
        self.forget_waiting(link);
        for at in self.slab.all() {
            if !self.slab.hot(at).has(Hot::FREE) {
                self.wait(at, 1 << link);
            }
        }
        let Some(waiting) = self.waiting.get_mut(link) else { return 0 };
        waiting.of_sync = waiting.queue.len();
        waiting.of_sync
    }

    /// Nobody waits: the connection is gone, and the next one begins with the full state.
    pub(super) fn forget_waiting(&mut self, link: usize) {
        for at in self.slab.all() {
            let slot = self.slab.hot_mut(at);
            slot.set_waits(slot.waits() & !(1 << link));
        }
        if let Some(waiting) = self.waiting.get_mut(link) {
            *waiting = Waiting::default();
        }
    }

    /// Gives members that wait, first come first served, until `take` wants no more; none when there
    /// is no `room` to begin with.
    pub(super) fn take_waiting(
        &mut self,
        link: usize,
        mut room: bool,
        mut take: impl FnMut(Told<'_>) -> bool,
    ) -> Taken {
        let mut taken = Taken::default();
        while room && let Some(waiting) = self.waiting.get_mut(link) {
            let Some(at) = waiting.queue.pop_front() else { break };
            if waiting.of_sync > 0 {
                waiting.of_sync -= 1;
                taken.of_sync += 1;
            }
            if self.stops_waiting(at, link) {
                taken.sent += 1;
                room = take(self.told(at));
            }
        }
        if let Some(waiting) = self.waiting.get_mut(link) {
            taken.more = !waiting.queue.is_empty();
            if !taken.more {
                waiting.queue.shrink_to(WAITING_KEPT);
            }
        }
        taken
    }

    /// Gives one member out of turn, if it waits.
    pub(super) fn take_one(
        &mut self,
        link: usize,
        hash: u64,
        identity: Identity,
    ) -> Option<Told<'_>> {
        let at = self.find(hash, identity)?;
        self.stops_waiting(at, link).then(|| self.told(at))
    }

    fn stops_waiting(&mut self, at: u32, link: usize) -> bool {
        let slot = self.slab.hot_mut(at);
        let waits = slot.waits() & 1 << link != 0;
        slot.set_waits(slot.waits() & !(1 << link));
        waits && !slot.has(Hot::FREE)
    }

    fn told(&self, at: u32) -> Told<'_> {
        let member = self.member(at);
        let has_rivals = self.slab.hot(at).has(Hot::RIVALS);
        let rivals = if has_rivals { self.rivals.get(&member.identity) } else { None };
        Told { member, rivals: rivals.map_or(&[], |rivals| &rivals[..]) }
    }

    /// A process begins to send its full state.
    pub(super) fn begin_listing(&mut self, incarnation: u32) {
        for at in self.slab.all() {
            if self.is_of(at, incarnation) {
                self.slab.hot_mut(at).set(Hot::LISTED, false);
            }
        }
        let Self { rivals, unlisted, .. } = self;
        unlisted.retain(|(process, _)| *process != incarnation);
        for (identity, rivals) in rivals {
            if rivals.iter().any(|(session, _)| session.incarnation == incarnation) {
                unlisted.insert((incarnation, *identity));
            }
        }
    }

    /// A process told this of a member: it is in its full state, and these are all live sessions
    /// there besides `conn`, the newest one.
    // hot: for each record that an aggregator takes in.
    pub(super) fn list(
        &mut self,
        now_ms: Millis,
        at: u32,
        (conn, uid): (Option<(Session, Conn)>, u32),
        others: &[(Session, u32)],
    ) {
        let Some((session, state)) = conn else { return };
        let identity = self.slab.hot(at).identity();
        let newest = self.slab.get(at).conn(&self.incarnations).map(|(newest, _)| newest);
        if newest == Some(session) {
            self.slab.hot_mut(at).set(Hot::LISTED, true);
        }
        if !self.unlisted.is_empty() {
            self.unlisted.remove(&(session.incarnation, identity));
        }
        if others.is_empty() && !self.slab.hot(at).has(Hot::RIVALS) {
            return;
        }
        let newest_uid = self.slab.hot(at).uid();
        let mut rivals = self.rivals.remove(&identity).unwrap_or_default();
        let before = count(&rivals);
        rivals.retain(|(known, _)| known.incarnation != session.incarnation);
        let own = (state == Conn::Open).then_some((session, uid));
        for (other, uid) in own.iter().chain(others).copied() {
            let known = Some(other) == newest
                || (uid == newest_uid && uid != 0)
                || rivals.iter().any(|(known, by)| *known == other || *by == uid);
            if !known && rivals.len() < RIVALS_MAX {
                rivals.push((other, uid));
            }
        }
        self.duplicates = self.duplicates + count(&rivals) - before;
        self.slab.hot_mut(at).set(Hot::RIVALS, !rivals.is_empty());
        if !rivals.is_empty() {
            self.rivals.insert(identity, rivals);
        }
        self.classify(now_ms, at);
    }

    /// A process has sent its full state: gives its open sessions that were not in it. Those that
    /// are not the newest of their collector are gone at once.
    pub(super) fn end_listing(
        &mut self,
        now_ms: Millis,
        incarnation: u32,
    ) -> Vec<(Identity, Session)> {
        let stale = std::mem::take(&mut self.unlisted);
        for (process, identity) in stale {
            if process != incarnation {
                self.unlisted.insert((process, identity));
                continue;
            }
            let Some(rivals) = self.rivals.get_mut(&identity) else { continue };
            let before = count(rivals);
            rivals.retain(|(session, _)| session.incarnation != incarnation);
            self.duplicates = self.duplicates + count(rivals) - before;
            let gone = rivals.is_empty();
            if gone {
                self.rivals.remove(&identity);
            }
            if let Some(at) = self.find(self.context.seed.hash(identity), identity) {
                self.slab.hot_mut(at).set(Hot::RIVALS, !gone);
                self.classify(now_ms, at);
            }
        }
        self.slab
            .all()
            .filter(|at| !self.slab.hot(*at).has(Hot::LISTED) && self.is_of(*at, incarnation))
            .filter_map(|at| {
                let (session, conn) = self.slab.get(at).conn(&self.incarnations)?;
                (conn == Conn::Open).then(|| (self.slab.hot(at).identity(), session))
            })
            .collect()
    }

    /// Whether its newest session is one of this process.
    fn is_of(&self, at: u32, incarnation: u32) -> bool {
        let conn = || self.slab.get(at).conn(&self.incarnations);
        !self.slab.hot(at).has(Hot::FREE)
            && conn().is_some_and(|(session, _)| session.incarnation == incarnation)
    }
}

/// How many uids of one identity are counted as duplicates.
fn count(rivals: &Rivals) -> u64 {
    if rivals.is_empty() { 0 } else { rivals.len() as u64 + 1 }
}
