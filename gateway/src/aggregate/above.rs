//! On a replica: what its aggregators say of a change (rollouts.md, decisions 16 and 17).
//!
//! Each aggregator's word is kept apart, and the most careful one counts: a brake holds if any of
//! them says so, a collector is failed if any of them says so, and the candidate is offered only
//! once one of them has judged by the `halt` block in force. What an aggregator said last holds
//! after its connection broke, until it says something else.

use std::collections::HashMap;
use std::sync::Mutex;

use render::rollout::evidence::Identity;

use super::lock;

/// What all aggregators of a replica say of one change.
#[derive(Debug)]
pub(super) struct Above(Option<Mutex<Box<[Word]>>>);

/// What one aggregator says of one change.
#[derive(Clone, Debug, Default)]
pub(super) struct Word {
    /// Digests of `halt` blocks that it has judged by.
    pub(super) judged: Box<[u64]>,
    /// Digests of `halt` blocks whose brake is on.
    pub(super) braked: Box<[u64]>,
    /// Whom the candidate has failed on, and how often it was tried again.
    pub(super) failed: HashMap<Identity, u8>,
}

impl Above {
    pub(super) fn new(uplinks: usize) -> Self {
        let words = || std::iter::repeat_with(Word::default).take(uplinks).collect();
        Self((uplinks > 0).then(|| Mutex::new(words())))
    }

    /// How often the candidate was tried on a collector, if one of these aggregators says that it
    /// failed there.
    pub(super) fn failed(&self, identity: Identity, counting: u8) -> Option<u8> {
        let words = lock(self.0.as_ref()?);
        let tries = |word: &Word| word.failed.get(&identity).copied();
        counted(&words, counting).filter_map(tries).max()
    }

    /// Whether the candidate may be offered to nobody new under this `halt` block. `synced` are the
    /// aggregators that have taken in the full state of this replica at some time.
    pub(super) fn is_braked(&self, halt: u64, counting: u8, synced: u8) -> bool {
        let Some(words) = &self.0 else { return false };
        let words = lock(words);
        let braked = counted(&words, counting).any(|word| word.braked.contains(&halt));
        braked || !counted(&words, counting & synced).any(|word| word.judged.contains(&halt))
    }

    /// An aggregator has said everything anew.
    pub(super) fn replace(&self, link: usize, word: Word) {
        self.with(link, |known| *known = word);
    }

    /// An aggregator says what is in force.
    pub(super) fn set_state(&self, link: usize, judged: Box<[u64]>, braked: Box<[u64]>) {
        self.with(link, |word| (word.judged, word.braked) = (judged, braked));
    }

    /// An aggregator says that the candidate has failed on a collector, or does no longer.
    pub(super) fn set_failed(&self, link: usize, identity: Identity, tries: Option<u8>) {
        self.with(link, |word| match tries {
            Some(tries) => drop(word.failed.insert(identity, tries)),
            None => drop(word.failed.remove(&identity)),
        });
    }

    /// What was said of the same change under another key.
    pub(super) fn take_over(&self, other: &Self) {
        if let (Some(words), Some(others)) = (&self.0, &other.0) {
            let others = lock(others).clone();
            *lock(words) = others;
        }
    }

    fn with(&self, link: usize, change: impl FnOnce(&mut Word)) {
        if let Some(words) = &self.0
            && let Some(word) = lock(words).get_mut(link)
        {
            change(word);
        }
    }
}

fn counted(words: &[Word], links: u8) -> impl Iterator<Item = &Word> {
    words.iter().enumerate().filter(move |(link, _)| links & 1 << link != 0).map(|(_, word)| word)
}
