//! The heads of the estate that this run has seen, and which of them explain an offer.
//!
//! A head is *in force* from the moment at which loadgen first saw it until it first saw the next
//! one. An offer that arrives at `t` is right when some head in force at a moment of
//! `[t - window, t + window]` leads its collector to exactly these bytes: a gateway may read a
//! change a little before or a little after loadgen does.
//!
//! Brakes are kept here as well: what a gateway reports of them, and since when.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use crate::clock::Micros;
use crate::model::{Arm, Artefact, Model, Place};
use crate::plan::Plan;

/// Heads that one run can follow; past it the run ends with an error, since each keeps four bytes
/// a collector.
pub const HEADS_MAX: usize = 1_024;

/// Number of a head within a run, from 0.
pub type Epoch = u32;

/// One head and where it puts every collector of the plan.
#[derive(Debug)]
pub struct Head {
    /// What it says.
    pub model: Model,
    /// When loadgen first saw the change that led to it.
    pub seen_at: Micros,
    /// Whether it mentions an attribute that no earlier head of this run mentioned, so that a
    /// gateway has to ask for full state (serving.md, decision 3).
    pub mentions_more: bool,
    /// Shared with the head before where that puts everybody in the same place.
    places: Arc<[Place]>,
}

impl Head {
    /// Places every collector of the plan by the model.
    pub fn new(model: Model, seen_at: Micros, plan: &Plan, before: Option<&Self>) -> Self {
        let places = match before.filter(|before| before.model.places_like(&model)) {
            Some(before) => Arc::clone(&before.places),
            None => (0..plan.len()).map(|index| model.place(&plan.attributes(index))).collect(),
        };
        let mentions_more =
            before.is_some_and(|before| !model.mentions().is_subset(&before.model.mentions()));
        Self { model, seen_at, mentions_more, places }
    }

    /// Where a collector belongs.
    pub fn place(&self, index: u32) -> Place {
        let at = usize::try_from(index).unwrap_or(usize::MAX);
        // Indices come from the plan that the head was made with.
        self.places[at]
    }

    /// What a collector must be offered.
    pub fn expected(&self, index: u32) -> &Arc<Artefact> {
        self.model.artefact(self.place(index))
    }

    /// Which of its Tier's artefacts that is.
    pub fn arm(&self, index: u32) -> Arm {
        self.model.arm(self.place(index))
    }

    /// The artefact of its Tier, whatever a Rollout says.
    pub fn base(&self, index: u32) -> &Arc<Artefact> {
        self.model.base(self.place(index))
    }

    /// The candidate on its Tier, whether or not it is meant for this collector.
    pub fn candidate(&self, index: u32) -> Option<&Arc<Artefact>> {
        self.model.candidate(self.place(index))
    }
}

/// All heads of a run, oldest first. Readers take what they need and hold no lock.
#[derive(Debug)]
pub struct Heads {
    list: RwLock<Vec<Arc<Head>>>,
    window: Micros,
    /// By the candidate's content; `None` where the brake has been taken off again.
    brakes: RwLock<BTreeMap<u64, Option<Micros>>>,
}

impl Heads {
    /// Starts with the head that was found first. `window` as in the module's text.
    pub fn new(first: Head, window: Micros) -> Self {
        Self { list: RwLock::new(vec![Arc::new(first)]), window, brakes: RwLock::default() }
    }

    /// The gateway says that this candidate is braked, or no longer is.
    pub fn set_brake(&self, candidate: u64, braked: bool, now: Micros) {
        let mut brakes = self.brakes.write().unwrap_or_else(PoisonError::into_inner);
        match (brakes.get_mut(&candidate), braked) {
            (Some(since), true) => *since = since.or(Some(now)),
            (Some(since), false) => *since = None,
            (None, true) => drop(brakes.insert(candidate, Some(now))),
            (None, false) => {}
        }
    }

    /// Whether this candidate was braked at some time, so that a member may be told the base.
    pub fn was_braked(&self, candidate: u64) -> bool {
        self.brakes.read().unwrap_or_else(PoisonError::into_inner).contains_key(&candidate)
    }

    /// Since when the gateway has said that this candidate is braked.
    pub fn braked_since(&self, candidate: u64) -> Option<Micros> {
        let brakes = self.brakes.read().unwrap_or_else(PoisonError::into_inner);
        brakes.get(&candidate).copied().flatten()
    }

    /// Of which arm an offer of that hash is to this collector, by the newest head that knows it;
    /// Unmatched where none does.
    pub fn arm_of(&self, index: u32, hash: &[u8]) -> Arm {
        let list = self.read();
        let arm = |head: &Arc<Head>| match head.candidate(index) {
            _ if head.arm(index) != Arm::Unmatched && head.base(index).hash == hash => {
                Some(Arm::Base)
            }
            Some(candidate) if candidate.hash == hash => Some(Arm::Candidate),
            _ => None,
        };
        list.iter().rev().find_map(arm).unwrap_or(Arm::Unmatched)
    }

    /// How long before and after an offer a head may have been in force to explain it.
    pub fn window(&self) -> Micros {
        self.window
    }

    /// Adds the next head; false when there are too many.
    pub fn push(&self, head: Head) -> bool {
        let mut list = self.list.write().unwrap_or_else(PoisonError::into_inner);
        if list.len() >= HEADS_MAX {
            return false;
        }
        list.push(Arc::new(head));
        true
    }

    /// The newest head.
    pub fn latest(&self) -> (Epoch, Arc<Head>) {
        let list = self.read();
        let last = list.len() - 1; // never empty: `new` puts one in and nothing takes one out
        (epoch(last), Arc::clone(&list[last]))
    }

    /// The newest epoch.
    pub fn latest_epoch(&self) -> Epoch {
        epoch(self.read().len() - 1)
    }

    /// When a head was first seen.
    pub fn seen_at(&self, epoch: Epoch) -> Option<Micros> {
        let list = self.read();
        list.get(usize::try_from(epoch).ok()?).map(|head| head.seen_at)
    }

    /// All of them, oldest first.
    pub fn all(&self) -> Vec<Arc<Head>> {
        self.read().clone()
    }

    /// The newest head in force within the window around `at` that satisfies `explains`.
    pub fn explain(
        &self,
        at: Micros,
        mut explains: impl FnMut(&Head) -> bool,
    ) -> Option<(Epoch, Arc<Head>)> {
        let list = self.read();
        let (from, to) = (at.saturating_sub(self.window), at.saturating_add(self.window));
        for (number, head) in list.iter().enumerate().rev() {
            let ended = list.get(number + 1).map(|next| next.seen_at);
            let in_force =
                (number == 0 || head.seen_at <= to) && ended.is_none_or(|ended| ended >= from);
            if in_force && explains(head) {
                return Some((epoch(number), Arc::clone(head)));
            }
        }
        None
    }

    /// The first epoch of the unbroken run of heads up to `last`, and later than `after`, under
    /// which this collector's content is what it is under `last`: the change that an offer
    /// belongs to.
    pub fn change_behind(&self, last: Epoch, after: Option<Epoch>, index: u32) -> Epoch {
        let list = self.read();
        let hash = |number: Epoch| {
            usize::try_from(number)
                .ok()
                .and_then(|at| list.get(at))
                .map(|head| head.expected(index).short)
        };
        let mut first = last;
        while let Some(earlier) = first.checked_sub(1)
            && after.is_none_or(|after| earlier > after)
            && hash(earlier) == hash(last)
        {
            first = earlier;
        }
        first
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Vec<Arc<Head>>> {
        // A push is whole or has not happened, whatever panicked.
        self.list.read().unwrap_or_else(PoisonError::into_inner)
    }
}

fn epoch(number: usize) -> Epoch {
    Epoch::try_from(number).unwrap_or(Epoch::MAX)
}
