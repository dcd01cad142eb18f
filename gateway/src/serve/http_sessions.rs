//! Sessions of agents that poll over HTTP: there is no link that could hold them (serving.md,
//! decision 3).
//!
//! A session lives 90 s past its last poll, and there is a cap: past it the one that was silent for
//! longest makes room. Sessions are spread over shards by uid, each with a lock and a list in the
//! order of the last poll; the cap holds per shard, so "for longest" is among a sixty-fourth of all.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use proto::ids::InstanceUid;
use proto::session::Seconds;

/// A session is forgotten so long after its last poll.
pub const SESSION_SECONDS: Seconds = 90;
/// Sessions held at one time, by default.
pub const SESSIONS_MAX: usize = 250_000;

const SHARDS: usize = 64;
/// In place of an index: there is none.
const NONE: u32 = u32::MAX;

/// Sessions by uid. `S` is what is kept of one.
#[derive(Debug)]
pub(super) struct HttpSessions<S> {
    shards: Box<[Mutex<Shard<S>>]>,
    shard_max: usize,
}

/// Why a session ended without a farewell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// No poll for [`SESSION_SECONDS`].
    Expired,
    /// Newer ones needed its place.
    Evicted,
}

/// What [`HttpSessions::with`] is to do with the session afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keep {
    Yes,
    /// Its agent goes by this uid from now on.
    As(InstanceUid),
    No,
}

#[derive(Debug)]
struct Shard<S> {
    by_uid: HashMap<InstanceUid, u32>,
    entries: Vec<Entry<S>>,
    free: Vec<u32>,
    /// Polled last.
    newest: u32,
    /// Silent for longest.
    oldest: u32,
}

#[derive(Debug)]
struct Entry<S> {
    uid: InstanceUid,
    polled: Seconds,
    newer: u32,
    older: u32,
    /// `None` in a free entry.
    session: Option<S>,
}

impl<S> HttpSessions<S> {
    pub(super) fn new(max: usize) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::new(Shard::new())).collect();
        Self { shards, shard_max: max.div_ceil(SHARDS).max(1) }
    }

    /// Runs `with` on the session of `uid`, which `make` makes when there is none. `with` is told
    /// whether it is new. Who is forgotten to make room is handed to `ended`.
    pub(super) fn with<R>(
        &self,
        now: Seconds,
        uid: InstanceUid,
        make: impl FnOnce() -> S,
        with: impl FnOnce(&mut S, bool) -> (R, Keep),
        ended: &mut dyn FnMut(InstanceUid, S, Ended),
    ) -> R {
        let mut shard = self.lock(uid);
        shard.expire(now, ended);
        let known = shard.by_uid.get(&uid).copied();
        let fresh = known.is_none();
        let mut session = match known.and_then(|at| shard.take(at)) {
            Some(session) => session,
            None => {
                while shard.by_uid.len() >= self.shard_max {
                    let Some((uid, session)) = shard.remove_oldest() else { break };
                    ended(uid, session, Ended::Evicted);
                }
                make()
            }
        };
        let (result, keep) = with(&mut session, fresh);
        match keep {
            Keep::Yes => shard.put(now, uid, session),
            Keep::No => {}
            Keep::As(new) => {
                drop(shard);
                let mut shard = self.lock(new);
                if let Some((uid, session)) = shard.remove(new) {
                    ended(uid, session, Ended::Evicted);
                }
                shard.put(now, new, session);
            }
        }
        result
    }

    /// Forgets whoever has been silent for too long.
    pub(super) fn handle_timeout(
        &self,
        now: Seconds,
        ended: &mut dyn FnMut(InstanceUid, S, Ended),
    ) {
        for shard in &self.shards {
            lock(shard).expire(now, ended);
        }
    }

    /// Forgets a session whose agent was heard elsewhere.
    pub(super) fn remove(&self, uid: InstanceUid) -> Option<S> {
        self.lock(uid).remove(uid).map(|(_, session)| session)
    }

    /// Whether this agent has a session.
    pub(super) fn contains(&self, now: Seconds, uid: &InstanceUid) -> bool {
        let shard = self.lock(*uid);
        let polled = shard.by_uid.get(uid).map(|at| shard.entries[*at as usize].polled);
        polled.is_some_and(|polled| now.saturating_sub(polled) <= SESSION_SECONDS)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).by_uid.len()).sum()
    }

    /// Visits sessions from a position on, with the position behind each, until `visit` says no.
    pub(super) fn visit(&self, from: (u32, u32), visit: &mut dyn FnMut((u32, u32), &S) -> bool) {
        for (number, shard) in (0..).zip(&self.shards).skip(from.0 as usize) {
            let start = if number == from.0 { from.1 } else { 0 };
            let shard = lock(shard);
            for (at, entry) in (0..).zip(&shard.entries).skip(start as usize) {
                if let Some(session) = &entry.session
                    && !visit((number, at + 1), session)
                {
                    return;
                }
            }
        }
    }

    fn lock(&self, uid: InstanceUid) -> MutexGuard<'_, Shard<S>> {
        let hash = xxhash_rust::xxh3::xxh3_64(&uid.0);
        lock(&self.shards[hash as usize % self.shards.len()])
    }
}

fn lock<S>(shard: &Mutex<Shard<S>>) -> MutexGuard<'_, Shard<S>> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<S> Shard<S> {
    fn new() -> Self {
        let (by_uid, entries, free) = (HashMap::new(), Vec::new(), Vec::new());
        Self { by_uid, entries, free, newest: NONE, oldest: NONE }
    }

    /// Takes a session out for as long as it is worked on; its place is gone.
    fn take(&mut self, at: u32) -> Option<S> {
        self.unlink(at);
        let entry = &mut self.entries[at as usize];
        self.by_uid.remove(&entry.uid);
        self.free.push(at);
        entry.session.take()
    }

    fn put(&mut self, now: Seconds, uid: InstanceUid, session: S) {
        let entry =
            Entry { uid, polled: now, newer: NONE, older: self.newest, session: Some(session) };
        let at = match self.free.pop() {
            Some(at) => {
                self.entries[at as usize] = entry;
                at
            }
            None => {
                self.entries.push(entry);
                // The cap lies far below.
                u32::try_from(self.entries.len() - 1).unwrap_or(NONE)
            }
        };
        match self.entries.get_mut(self.newest as usize) {
            Some(before) => before.newer = at,
            None => self.oldest = at,
        }
        self.newest = at;
        self.by_uid.insert(uid, at);
    }

    fn remove(&mut self, uid: InstanceUid) -> Option<(InstanceUid, S)> {
        let at = *self.by_uid.get(&uid)?;
        self.take(at).map(|session| (uid, session))
    }

    fn remove_oldest(&mut self) -> Option<(InstanceUid, S)> {
        let uid = self.entries.get(self.oldest as usize)?.uid;
        self.remove(uid)
    }

    fn expire(&mut self, now: Seconds, ended: &mut dyn FnMut(InstanceUid, S, Ended)) {
        while let Some(entry) = self.entries.get(self.oldest as usize)
            && now.saturating_sub(entry.polled) > SESSION_SECONDS
        {
            let Some((uid, session)) = self.remove_oldest() else { return };
            ended(uid, session, Ended::Expired);
        }
    }

    fn unlink(&mut self, at: u32) {
        let Entry { newer, older, .. } = self.entries[at as usize];
        match self.entries.get_mut(newer as usize) {
            Some(entry) => entry.older = older,
            None => self.newest = older,
        }
        match self.entries.get_mut(older as usize) {
            Some(entry) => entry.newer = newer,
            None => self.oldest = newer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn uid(n: u8) -> InstanceUid {
        InstanceUid([n; 16])
    }

    /// Polls, and returns whether the session is new and who had to go.
    fn poll(
        sessions: &HttpSessions<u32>,
        now: Seconds,
        who: u8,
        keep: Keep,
    ) -> (bool, Vec<(InstanceUid, Ended)>) {
        let mut gone = Vec::new();
        let fresh = sessions.with(
            now,
            uid(who),
            || 0,
            |polls, fresh| {
                *polls += 1;
                assert_eq!(fresh, *polls == 1);
                (fresh, keep)
            },
            &mut |uid, _, ended| gone.push((uid, ended)),
        );
        (fresh, gone)
    }

    #[test]
    fn a_session_lives_ninety_seconds_past_its_last_poll() {
        let sessions = HttpSessions::new(1_000);
        assert_eq!(poll(&sessions, 10, 1, Keep::Yes), (true, vec![]));
        assert_eq!(poll(&sessions, 100, 1, Keep::Yes), (false, vec![]));
        assert!(sessions.contains(190, &uid(1)));
        assert!(!sessions.contains(191, &uid(1)));
        let mut gone = Vec::new();
        sessions.handle_timeout(190, &mut |uid, _, ended| gone.push((uid, ended)));
        assert_eq!(gone, []);
        sessions.handle_timeout(191, &mut |uid, _, ended| gone.push((uid, ended)));
        assert_eq!(gone, [(uid(1), Ended::Expired)]);
        assert_eq!(sessions.len(), 0);
    }

    #[test]
    fn a_farewell_ends_it_and_a_new_uid_moves_it() {
        let sessions = HttpSessions::new(1_000);
        poll(&sessions, 1, 1, Keep::Yes);
        poll(&sessions, 1, 1, Keep::As(uid(2)));
        assert!(!sessions.contains(1, &uid(1)));
        assert_eq!(poll(&sessions, 1, 2, Keep::No), (false, vec![]));
        assert_eq!(sessions.len(), 0);
    }

    /// One shard, against a list that is sorted by hand.
    #[derive(Clone, Debug)]
    enum Step {
        Poll(u8),
        Leave(u8),
        Wait(Seconds),
        Remove(u8),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            8 => (0u8..12).prop_map(Step::Poll),
            2 => (0u8..12).prop_map(Step::Leave),
            2 => (0u32..60).prop_map(Step::Wait),
            1 => (0u8..12).prop_map(Step::Remove),
        ];
        prop::collection::vec(step, 0..200)
    }

    proptest! {
        #[test]
        fn the_one_silent_for_longest_makes_room(steps in steps()) {
            const MAX: usize = 5;
            let sessions = HttpSessions { shards: Box::new([Mutex::new(Shard::new())]), shard_max: MAX };
            let sessions = OneShard(sessions);
            let mut model: Vec<(u8, Seconds)> = Vec::new();
            let mut now = 1;
            for step in steps {
                match step {
                    Step::Wait(seconds) => now += seconds,
                    Step::Remove(who) => {
                        let had = model.iter().any(|(known, _)| *known == who);
                        model.retain(|(known, _)| *known != who);
                        prop_assert_eq!(sessions.shard().remove(uid(who)).is_some(), had);
                    }
                    Step::Poll(who) | Step::Leave(who) => {
                        let mut gone: Vec<u8> = Vec::new();
                        model.retain(|(known, polled)| {
                            let keep = now - polled <= SESSION_SECONDS;
                            if !keep { gone.push(*known) }
                            keep
                        });
                        let known = model.iter().position(|(known, _)| *known == who);
                        if let Some(at) = known { model.remove(at); }
                        else if model.len() == MAX { gone.push(model.remove(0).0) }
                        let leave = matches!(step, Step::Leave(_));
                        if !leave { model.push((who, now)) }
                        let (fresh, ended) = sessions.poll(now, who, if leave { Keep::No } else { Keep::Yes });
                        prop_assert_eq!(fresh, known.is_none());
                        prop_assert_eq!(ended, gone);
                    }
                }
                prop_assert_eq!(sessions.shard().by_uid.len(), model.len());
            }
        }
    }

    struct OneShard(HttpSessions<u32>);

    impl OneShard {
        fn shard(&self) -> MutexGuard<'_, Shard<u32>> {
            lock(&self.0.shards[0])
        }

        fn poll(&self, now: Seconds, who: u8, keep: Keep) -> (bool, Vec<u8>) {
            let (fresh, gone) = poll(&self.0, now, who, keep);
            (fresh, gone.into_iter().map(|(uid, _)| uid.0[0]).collect())
        }
    }
}
