//! Where a member is, by its identity: four bytes each in one table, so that a look waits for
//! memory once.
//!
//! Open addressing, each entry as soon after its home as there is room. An entry is the place of a
//! member and twelve bits of its hash; whoever asks compares identities.

use proto::prefetch;

/// Bits of an entry that hold a place, from 1; 0 is no entry.
const PLACE_BITS: u32 = 20;
const PLACE: u32 = (1 << PLACE_BITS) - 1;
/// Places that can be told apart: more than there may be members in a cell, all its shards.
pub(super) const PLACES_MAX: u32 = PLACE;

const _: () = assert!(super::RECORDS_MAX < PLACES_MAX as usize);

/// Of a shard's members.
#[derive(Debug, Default)]
pub(super) struct Index {
    entries: Box<[u32]>,
    len: usize,
}

impl Index {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Who has this hash and `is` it.
    // hot
    pub(super) fn find(&self, hash: u64, is: impl Fn(u32) -> bool) -> Option<u32> {
        let tag = tag(hash);
        let mut at = self.home(hash);
        loop {
            // There is always one that is empty, or nothing at all.
            let entry = *self.entries.get(at)?;
            if entry == 0 {
                return None;
            }
            if entry & !PLACE == tag && is(place(entry)) {
                return Some(place(entry));
            }
            at = self.after(at);
        }
    }

    /// Where one would be is near soon.
    pub(super) fn prefetch(&self, hash: u64) {
        if let Some(entry) = self.entries.get(self.home(hash)) {
            prefetch::near_soon(entry);
        }
    }

    /// Puts in one that is not there, at a place below [`PLACES_MAX`]. `hash_of` is asked about
    /// those that are, when there must be more room.
    pub(super) fn insert(&mut self, hash: u64, at: u32, hash_of: impl Fn(u32) -> u64) {
        if (self.len + 1) * 8 > self.entries.len() * 7 {
            self.grow(hash_of);
        }
        self.put(hash, at);
        self.len += 1;
    }

    /// Takes out the one at a place.
    pub(super) fn remove(&mut self, hash: u64, at: u32, hash_of: impl Fn(u32) -> u64) {
        let entry = entry(hash, at);
        let mut hole = self.home(hash);
        while self.entries.get(hole).is_some_and(|known| *known != 0 && *known != entry) {
            hole = self.after(hole);
        }
        if self.entries.get(hole) != Some(&entry) {
            return;
        }
        self.len -= 1;
        // Whoever comes behind moves up, unless that is before its home.
        let mut next = self.after(hole);
        while self.entries[next] != 0 {
            let home = self.home(hash_of(place(self.entries[next])));
            if self.distance(home, next) >= self.distance(hole, next) {
                self.entries[hole] = self.entries[next];
                hole = next;
            }
            next = self.after(next);
        }
        self.entries[hole] = 0;
    }

    /// By a quarter, so that little of it is ever empty.
    #[cold]
    fn grow(&mut self, hash_of: impl Fn(u32) -> u64) {
        let room = self.entries.len() + (self.entries.len() / 4).max(8);
        let entries = std::mem::replace(&mut self.entries, vec![0; room].into_boxed_slice());
        for entry in entries.into_iter().filter(|entry| *entry != 0) {
            self.put(hash_of(place(entry)), place(entry));
        }
    }

    fn put(&mut self, hash: u64, at: u32) {
        let mut free = self.home(hash);
        while self.entries[free] != 0 {
            free = self.after(free);
        }
        self.entries[free] = entry(hash, at);
    }

    fn home(&self, hash: u64) -> usize {
        // Some of the upper bits are the shard's, and equal in all of its members: too few to tell.
        (((hash >> 32) * self.entries.len() as u64) >> 32) as usize
    }

    fn after(&self, at: usize) -> usize {
        if at + 1 == self.entries.len() { 0 } else { at + 1 }
    }

    /// How far it is from one to another, upwards and round.
    fn distance(&self, from: usize, to: usize) -> usize {
        if to >= from { to - from } else { to + self.entries.len() - from }
    }
}

fn tag(hash: u64) -> u32 {
    (hash as u32) << PLACE_BITS
}

fn entry(hash: u64, at: u32) -> u32 {
    tag(hash) | (at + 1)
}

fn place(entry: u32) -> u32 {
    (entry & PLACE) - 1
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn finds_whoever_is_in_it(
            steps in prop::collection::vec((any::<bool>(), 0..40_u32, 0..6_u64), 1..200)
        ) {
            // Few hashes, so that many want the same home, also the last one.
            let hash = |which: u64| which.wrapping_mul(0x3333_3333_3333_3333);
            let mut index = Index::default();
            let mut model = BTreeMap::new();
            for (comes, at, which) in steps {
                let hash_of = |at: u32| hash(model[&at]);
                match (comes, model.get(&at)) {
                    (true, None) => {
                        index.insert(hash(which), at, hash_of);
                        model.insert(at, which);
                    }
                    (false, Some(which)) => {
                        index.remove(hash(*which), at, hash_of);
                        model.remove(&at);
                    }
                    _ => {}
                }
                prop_assert_eq!(index.len(), model.len());
                for at in 0..40 {
                    for which in 0..6 {
                        let found = index.find(hash(which), |known| known == at);
                        let known = (model.get(&at) == Some(&which)).then_some(at);
                        prop_assert_eq!(found, known);
                    }
                }
            }
        }
    }

    #[test]
    fn little_of_it_is_empty() {
        let mut index = Index::default();
        let hash = |at: u32| (u64::from(at) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for at in 0..20_000 {
            index.insert(hash(at), at, hash);
            assert!(at < 100 || index.entries.len() * 4 < index.len() * 6);
        }
    }
}
