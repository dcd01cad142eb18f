//! The head that is served: one immutable value, swapped whole.

use std::sync::Arc;

use proto::session::{ContentKey, Seconds};
use render::attrs::{Slots, Symbol, Symbols};
use render::rollout::evidence::Millis;
use render::snapshot::served::ServedRollout;
use render::snapshot::{Arm, Candidate, Offer, Snapshot};

use super::census::Cells;
use super::kept::Kept;
use crate::aggregate::Cell;
use crate::metrics::family::CounterCell;
use crate::metrics::{Metrics, tier_label};

/// Earlier sets of attribute names whose kept values can still be read. Past it, an agent that was
/// not heard over so many changes of the set is asked for full state.
const NAME_SETS_MAX: usize = 16;

/// Heads, this one included, whose contents are told from those that nobody here has heard of.
const CONTENT_HEADS_MAX: usize = 16;

/// Where a head came from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeadMeta {
    /// The commit, as the source knows it; empty when nothing told it.
    pub commit: Box<str>,
    /// Which source: the label of `tidegate_head_info`.
    pub source: Box<str>,
    /// When it was loaded, in milliseconds of Unix time.
    pub loaded_unix_ms: u64,
    /// The commit's own time, in seconds of Unix time, where that is known.
    pub committed_unix_seconds: Option<u64>,
}

/// A [`Snapshot`] and what belongs to it.
#[derive(Debug)]
pub struct Head {
    /// What is served.
    pub snapshot: Snapshot,
    /// Where it came from.
    pub meta: HeadMeta,
    /// Counts heads whose snapshots differ, from 1.
    pub generation: u32,
    /// The set of names in `snapshot.symbols`.
    set: u32,
    /// This set and earlier ones, oldest first.
    sets: Vec<NameSet>,
    /// The contents of this head and of earlier ones, oldest head first; each sorted.
    contents: Vec<Arc<[ContentKey]>>,
    /// Counters of every Tier that this process has served, by slot; slot 0 is Unmatched.
    pub(super) cells: Vec<Arc<Cells>>,
    /// For each Tier of the snapshot its slot in `cells`.
    pub(super) slots: Box<[u32]>,
    offers: Box<[OfferCounters]>,
    unmatched_offers: CounterCell,
    /// What is known of the collectors under each Rollout, in the order of the snapshot's.
    pub(super) evidence: Box<[Arc<Cell>]>,
    /// When its snapshot was first served, in the aggregator's time.
    pub(super) since_ms: Millis,
}

/// What [`Aggregator`](crate::aggregate::Aggregator) knows of a head before it is served.
pub(super) struct Known {
    pub(super) evidence: Box<[Arc<Cell>]>,
    pub(super) now_ms: Millis,
}

/// What a head takes over from the one before it.
struct Before {
    generation: u32,
    sets: Vec<(u32, Arc<[Box<str>]>)>,
    contents: Vec<Arc<[ContentKey]>>,
    cells: Vec<Arc<Cells>>,
}

impl Before {
    fn of(previous: &Head) -> Self {
        Self {
            generation: previous.generation,
            sets: previous.sets.iter().map(|set| (set.id, Arc::clone(&set.names))).collect(),
            contents: previous.contents.clone(),
            cells: previous.cells.clone(),
        }
    }
}

/// A set of attribute names that some agent's values may be kept for.
#[derive(Debug)]
struct NameSet {
    id: u32,
    names: Arc<[Box<str>]>,
    /// For each symbol of head the symbol here; `None` when head mentions a name that is not here.
    from: Option<Box<[Symbol]>>,
}

/// `tidegate_offers_total` of one Tier.
#[derive(Debug)]
struct OfferCounters {
    base: CounterCell,
    candidate: Option<CounterCell>,
}

impl Head {
    /// The first head.
    pub(super) fn first(
        snapshot: Snapshot,
        meta: HeadMeta,
        metrics: &Metrics,
        known: Known,
    ) -> Self {
        let cells = vec![Arc::new(Cells::new(None))];
        let before = Before { generation: 1, sets: Vec::new(), contents: Vec::new(), cells };
        Self::build(snapshot, meta, metrics, known, before)
    }

    /// The head after `previous`.
    pub(super) fn after(
        previous: &Self,
        snapshot: Snapshot,
        meta: HeadMeta,
        metrics: &Metrics,
        known: Known,
    ) -> Self {
        let generation = previous.generation.wrapping_add(1).max(1);
        let before = Before { generation, ..Before::of(previous) };
        Self::build(snapshot, meta, metrics, known, before)
    }

    /// The same snapshot under another commit.
    pub(super) fn again(previous: &Self, meta: HeadMeta, metrics: &Metrics, known: Known) -> Self {
        let known = Known { now_ms: previous.since_ms, ..known };
        let snapshot = previous.snapshot.clone();
        Self::build(snapshot, meta, metrics, known, Before::of(previous))
    }

    fn build(
        snapshot: Snapshot,
        meta: HeadMeta,
        metrics: &Metrics,
        known: Known,
        before: Before,
    ) -> Self {
        let Before { generation, sets, mut contents, mut cells } = before;
        add_contents(&mut contents, &snapshot);
        let (set, sets) = name_sets(&snapshot.symbols, sets);
        let slots = super::census::assign_slots(&mut cells, &snapshot, generation);
        let offers = (0..).zip(&snapshot.tiers).map(|(index, tier)| {
            let rollout = tier.rollout.and_then(|at| snapshot.rollouts.get(at as usize));
            let rollout = rollout.map_or("", |compiled| &*compiled.rollout.id);
            let label = tier_label(index, &tier.id);
            let staged = tier.candidate.is_some();
            let arm = arm_label(if staged { Arm::From } else { Arm::None });
            OfferCounters {
                base: metrics.offers.cell(&[label, rollout, arm]),
                candidate: staged
                    .then(|| metrics.offers.cell(&[label, rollout, arm_label(Arm::To)])),
            }
        });
        let offers = offers.collect();
        let unmatched_offers = metrics.offers.cell(&["", "", arm_label(Arm::Unmatched)]);
        let Known { evidence, now_ms: since_ms } = known;
        Self {
            snapshot,
            meta,
            generation,
            set,
            sets,
            contents,
            cells,
            slots,
            offers,
            unmatched_offers,
            evidence,
            since_ms,
        }
    }

    /// Whether this head, or one of the last before it, serves `content` to anybody.
    pub(super) fn has_ever_had(&self, content: ContentKey) -> bool {
        self.contents.iter().rev().any(|head| head.binary_search(&content).is_ok())
    }

    /// Which set of names values are kept for now.
    pub(super) fn set(&self) -> u32 {
        self.set
    }

    /// The values that were kept of an agent for the set of names `set`, under the names that head
    /// mentions; `None` when head mentions one that they do not cover.
    pub(super) fn kept_slots<'k>(&self, set: u32, kept: &'k Kept) -> Option<Slots<'k>> {
        let set = self.sets.iter().rev().find(|known| known.id == set)?;
        let from = set.from.as_ref()?;
        let mut slots = self.snapshot.slots();
        kept.fill(&mut slots, set.names.len(), from);
        Some(slots)
    }

    /// The attributes kept of an agent for the set of names `set`, for people to look at.
    pub(super) fn attributes<'k>(
        &'k self,
        set: u32,
        kept: &'k Kept,
    ) -> impl Iterator<Item = (&'k str, &'k str)> {
        let set = self.sets.iter().rev().find(|known| known.id == set);
        set.into_iter().flat_map(move |set| {
            let values = kept.values(set.names.len());
            set.names.iter().zip(values).filter_map(|(name, value)| Some((&**name, value?)))
        })
    }

    /// What a message says under the names that head mentions.
    pub(super) fn slots_of<'m>(&self, description: &proto::peek::Description<'m>) -> Slots<'m> {
        let mut slots = self.snapshot.slots();
        slots.fill(
            &self.snapshot.symbols,
            description.non_identifying(),
            description.identifying(),
        );
        slots
    }

    /// Base and candidate of a Tier, or what the Unmatched get. `arm` decides whether there is a
    /// candidate.
    pub(super) fn offers(&self, tier: Option<u32>, arm: Arm) -> (&Offer, Option<&Candidate>) {
        match tier.and_then(|tier| self.snapshot.tiers.get(tier as usize)) {
            None => (&self.snapshot.unmatched, None),
            Some(entry) => (&entry.base, entry.candidate.as_ref().filter(|_| arm == Arm::To)),
        }
    }

    /// How often a candidate of this Rollout is offered again to an agent on which it failed.
    pub(super) fn retries(&self, rollout: u32) -> u8 {
        let rollout = self.snapshot.rollouts.get(rollout as usize);
        let retries = rollout.map_or(0, |compiled| compiled.rollout.halt.retry_failed);
        u8::try_from(retries).unwrap_or(u8::MAX)
    }

    /// How many seconds may lie between two looks for silence: a third of the shortest `dark_after`,
    /// but 1 to `most`.
    pub fn sweep_seconds(&self, most: u32) -> u32 {
        let dark_after = self.snapshot.rollouts.iter().map(|rollout| dark_after(&rollout.rollout));
        dark_after.min().map_or(most, |shortest| (shortest / 3).clamp(1, most))
    }

    /// Counts an offer that goes out.
    pub(super) fn count_offer(&self, tier: Option<u32>, candidate: bool) {
        let cell = match tier.and_then(|tier| self.offers.get(tier as usize)) {
            None => &self.unmatched_offers,
            Some(OfferCounters { candidate: Some(cell), .. }) if candidate => cell,
            Some(counters) => &counters.base,
        };
        cell.add(1);
    }
}

/// What the .NET client takes at most of a message; it closes the link over a longer one
/// (serving.md, row 103).
const SHORT_CLIENT_BYTES_MAX: usize = 128 * 1024;

/// Tiers (`None`: the Unmatched) whose offer some clients can never take, with its length.
pub fn long_offers(snapshot: &Snapshot) -> impl Iterator<Item = (Option<&str>, usize)> {
    let tiers = snapshot.tiers.iter().flat_map(|tier| {
        let candidate = tier.candidate.iter().map(|candidate| &candidate.offer);
        std::iter::once(&tier.base).chain(candidate).map(|offer| (Some(&*tier.id), offer))
    });
    tiers
        .chain([(None, &snapshot.unmatched)])
        .map(|(tier, offer)| (tier, offer.bytes.len()))
        .filter(|(_, bytes)| *bytes > SHORT_CLIENT_BYTES_MAX)
}

/// Silence past this is dark, in whole seconds, at least 1.
pub(super) fn dark_after(rollout: &ServedRollout) -> Seconds {
    let seconds = rollout.halt.dark_after.as_millis().div_ceil(1_000);
    u32::try_from(seconds).unwrap_or(u32::MAX).max(1)
}

/// The value of the label `arm`.
pub fn arm_label(arm: Arm) -> &'static str {
    match arm {
        Arm::To => "to",
        Arm::From => "from",
        Arm::None => "none",
        Arm::Unmatched => "unmatched",
    }
}

/// Adds what `snapshot` serves; nothing when the newest head serves the same.
fn add_contents(heads: &mut Vec<Arc<[ContentKey]>>, snapshot: &Snapshot) {
    let offers = snapshot.tiers.iter().flat_map(|tier| {
        let candidate = tier.candidate.iter().map(|candidate| &candidate.offer);
        std::iter::once(&tier.base).chain(candidate)
    });
    let mut contents: Vec<ContentKey> = offers
        .chain([&snapshot.unmatched])
        .map(|offer| ContentKey::new(&offer.content.0))
        .collect();
    contents.sort_unstable();
    contents.dedup();
    if heads.last().is_some_and(|newest| **newest == *contents) {
        return;
    }
    if heads.len() == CONTENT_HEADS_MAX {
        heads.remove(0);
    }
    heads.push(contents.into());
}

/// Finds or adds the set of names that head mentions, and how earlier sets translate to it.
fn name_sets(symbols: &Symbols, mut known: Vec<(u32, Arc<[Box<str>]>)>) -> (u32, Vec<NameSet>) {
    let same =
        known.iter().position(|(_, names)| names.iter().map(|name| &**name).eq(symbols.names()));
    let current = match same {
        // Now the newest, so that it is the last to be forgotten.
        Some(at) => known.remove(at),
        None => {
            let newest = known.iter().map(|(id, _)| *id).max().unwrap_or(0);
            (newest.wrapping_add(1).max(1), symbols.names().map(Into::into).collect())
        }
    };
    if known.len() == NAME_SETS_MAX {
        known.remove(0);
    }
    let set = current.0;
    known.push(current);
    let sets = known.into_iter().map(|(id, names)| {
        let from = symbols.names().map(|name| {
            let at = names.binary_search_by(|known| (**known).cmp(name)).ok()?;
            Symbol::try_from(at).ok()
        });
        NameSet { id, from: from.collect(), names }
    });
    (set, sets.collect())
}
