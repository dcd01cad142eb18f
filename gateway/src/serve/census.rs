//! How many collectors are where: counted as they move, never by looking at all of them.

use std::collections::BTreeMap;
use std::num::NonZeroU8;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

use proto::session::Delivery;
use render::snapshot::{Arm, Snapshot};

use super::head::Head;
use crate::aggregate::Population;

/// Every arm, in the order that counts are kept in.
pub const ARMS: [Arm; 4] = [Arm::To, Arm::From, Arm::None, Arm::Unmatched];

/// Every delivery, in the order that counts are kept in.
pub const DELIVERIES: [Delivery; 5] =
    [Delivery::Foreign, Delivery::Pending, Delivery::Applying, Delivery::Applied, Delivery::Failed];

/// The value of the label `status` of `tidegate_collectors`.
pub fn delivery_label(delivery: Delivery) -> &'static str {
    match delivery {
        Delivery::Foreign => "foreign",
        Delivery::Pending => "pending",
        Delivery::Applying => "applying",
        Delivery::Applied => "applied",
        Delivery::Failed => "failed",
    }
}

/// The collectors of one Tier, by arm and delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierCount {
    /// The Tier's id, `None` for the Unmatched.
    pub tier: Option<Box<str>>,
    /// Indexed as [`ARMS`], then as [`DELIVERIES`].
    pub counts: [[u64; DELIVERIES.len()]; ARMS.len()],
}

impl TierCount {
    /// All collectors of the Tier.
    pub fn total(&self) -> u64 {
        self.counts.iter().flatten().sum()
    }

    /// Those that are not zero, for `tidegate_collectors`.
    pub fn cells(&self) -> impl Iterator<Item = (Arm, Delivery, u64)> {
        ARMS.into_iter()
            .zip(self.counts)
            .flat_map(|(arm, counts)| {
                DELIVERIES
                    .into_iter()
                    .zip(counts)
                    .map(move |(delivery, count)| (arm, delivery, count))
            })
            .filter(|(.., count)| *count != 0)
    }
}

/// The counters of one Tier. They outlive heads, because the collectors that they count do.
#[derive(Debug)]
pub(super) struct Cells {
    tier: Option<Box<str>>,
    counts: [[AtomicI64; DELIVERIES.len()]; ARMS.len()],
    /// The last head that had the Tier.
    generation: AtomicU32,
}

/// Where one collector is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    slot: u32,
    /// `arm * DELIVERIES.len() + delivery + 1`, so that an optional place takes no more room.
    cell: NonZeroU8,
}

const _: () = assert!(size_of::<Option<Place>>() == 8);

impl Cells {
    pub(super) fn new(tier: Option<Box<str>>) -> Self {
        Self { tier, counts: Default::default(), generation: AtomicU32::new(0) }
    }

    fn total(&self) -> u64 {
        let sum: i64 = self.counts.iter().flatten().map(|cell| cell.load(Ordering::Relaxed)).sum();
        u64::try_from(sum).unwrap_or(0)
    }

    fn count(&self) -> TierCount {
        // A collector that moves while this runs may be seen at neither place or at both.
        let count = |cell: &AtomicI64| u64::try_from(cell.load(Ordering::Relaxed)).unwrap_or(0);
        let counts = std::array::from_fn(|arm| {
            std::array::from_fn(|delivery| count(&self.counts[arm][delivery]))
        });
        TierCount { tier: self.tier.clone(), counts }
    }

    fn is_empty(&self) -> bool {
        self.counts.iter().flatten().all(|cell| cell.load(Ordering::Relaxed) == 0)
    }
}

impl Population for Cells {
    fn collectors(&self) -> u64 {
        self.total()
    }
}

/// Gives each Tier of `snapshot` its counters: those it had, else those of a Tier that is gone and
/// empty, else new ones.
///
/// A message that is being handled may still count by an older head. So counters change hands only
/// when the Tier was missing from the head before as well, which is a poll of the source ago.
pub(super) fn assign_slots(
    cells: &mut Vec<Arc<Cells>>,
    snapshot: &Snapshot,
    generation: u32,
) -> Box<[u32]> {
    let mut known: BTreeMap<Box<str>, u32> = BTreeMap::new();
    let mut vacant = Vec::new();
    for (slot, cell) in (0..).zip(cells.iter()) {
        let Some(tier) = &cell.tier else { continue };
        let in_head = snapshot.tiers.binary_search_by(|entry| entry.id.cmp(tier)).is_ok();
        let age = generation.wrapping_sub(cell.generation.load(Ordering::Relaxed));
        if in_head {
            cell.generation.store(generation, Ordering::Relaxed);
            known.insert(tier.clone(), slot);
        } else if age > 1 && cell.is_empty() {
            vacant.push(slot);
        }
    }
    let slot_of = snapshot.tiers.iter().map(|entry| {
        if let Some(slot) = known.get(&entry.id) {
            return *slot;
        }
        let cell = Cells::new(Some(entry.id.clone()));
        cell.generation.store(generation, Ordering::Relaxed);
        let cell = Arc::new(cell);
        match vacant.pop() {
            Some(slot) => {
                cells[slot as usize] = cell;
                slot
            }
            None => {
                cells.push(cell);
                // A slot per Tier ever seen at once; memory ends long before `u32` does.
                u32::try_from(cells.len() - 1).unwrap_or(0)
            }
        }
    });
    slot_of.collect()
}

impl Head {
    /// Moves a collector from where it was counted to where it is now.
    pub(super) fn recount(&self, counted: &mut Option<Place>, place: Option<Place>) {
        if *counted == place {
            return;
        }
        if let Some(cell) = counted.and_then(|place| self.cell(place)) {
            cell.fetch_sub(1, Ordering::Relaxed);
        }
        if let Some(cell) = place.and_then(|place| self.cell(place)) {
            cell.fetch_add(1, Ordering::Relaxed);
        }
        *counted = place;
    }

    /// Where a collector of a Tier of this head is counted.
    pub(super) fn counting_place(&self, tier: Option<u32>, arm: Arm, delivery: Delivery) -> Place {
        let slot = tier.and_then(|tier| self.slots.get(tier as usize)).copied().unwrap_or(0);
        let arm = match arm {
            Arm::To => 0,
            Arm::From => 1,
            Arm::None => 2,
            Arm::Unmatched => 3,
        };
        let delivery = match delivery {
            Delivery::Foreign => 0,
            Delivery::Pending => 1,
            Delivery::Applying => 2,
            Delivery::Applied => 3,
            Delivery::Failed => 4,
        };
        let cell = arm * DELIVERIES.len() as u8 + delivery;
        Place { slot, cell: NonZeroU8::MIN.saturating_add(cell) }
    }

    /// Tells the evidence of each Rollout who is on its Tier.
    pub(super) fn introduce_populations(&self) {
        for (compiled, evidence) in self.snapshot.rollouts.iter().zip(&self.evidence) {
            let slot = self.slots.get(compiled.tier as usize);
            if let Some(cells) = slot.and_then(|slot| self.cells.get(*slot as usize)) {
                evidence.set_population(Arc::clone(cells) as Arc<dyn Population>);
            }
        }
    }

    fn cell(&self, place: Place) -> Option<&AtomicI64> {
        let cell = usize::from(place.cell.get() - 1);
        let cells = self.cells.get(place.slot as usize)?;
        cells.counts.get(cell / DELIVERIES.len())?.get(cell % DELIVERIES.len())
    }

    /// Where every collector is, by Tier id, the Unmatched last. A Tier that left head is in it as
    /// long as collectors are still counted there.
    pub(super) fn census(&self) -> Vec<TierCount> {
        let mut counts: Vec<_> = self
            .cells
            .iter()
            .filter(|cells| {
                cells.generation.load(Ordering::Relaxed) == self.generation
                    || cells.tier.is_none()
                    || !cells.is_empty()
            })
            .map(|cells| cells.count())
            .collect();
        counts.sort_by(|a, b| (a.tier.is_none(), &a.tier).cmp(&(b.tier.is_none(), &b.tier)));
        counts
    }
}
