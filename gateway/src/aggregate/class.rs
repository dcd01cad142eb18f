//! What one record comes to, in four bytes: the counters of a shard are moved by it.

use render::rollout::evidence::{self, Reading, Seat};
use render::rollout::verdict::Tally;

/// An [`evidence::Class`] as far as it is counted. Equal ones count alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Class(u32);

// The low 16 bits are the stage.
const SEAT: u32 = 16;
const ARM: u32 = 18;
const FOREIGN: u32 = 1 << 21;
const FAILED: u32 = 1 << 22;
const DARK: u32 = 1 << 23;
const UNOBSERVED: u32 = 1 << 24;
const LEFT: u32 = 1 << 25;
const TAKEN: u32 = 1 << 26;
const CONTROL_DARK: u32 = 1 << 27;
const NO_BUCKET: u32 = 1 << 28;
const LONG_DARK: u32 = 1 << 29;

impl Class {
    /// Counts nowhere.
    pub(super) const NOWHERE: Self = Self(0);

    pub(super) fn new(meaning: &evidence::Class, no_bucket: bool) -> Self {
        let (seat, stage) = match meaning.seat {
            _ if !meaning.counts => return Self::NOWHERE,
            Seat::Outside => return Self::NOWHERE,
            Seat::Stage(stage) => (1, u32::from(stage)),
            Seat::Control => (2, 0),
        };
        let arm = match meaning.arm {
            Reading::Taking => 0,
            Reading::To => 1,
            Reading::From => 2,
            Reading::Other => 3,
            Reading::Unknown => 4,
        };
        let flags = [
            (meaning.foreign, FOREIGN),
            (meaning.failed, FAILED),
            (meaning.dark, DARK),
            (meaning.long_dark, LONG_DARK),
            (meaning.unobserved, UNOBSERVED),
            (meaning.left, LEFT),
            (meaning.taken, TAKEN),
            (meaning.control_dark, CONTROL_DARK),
            (no_bucket, NO_BUCKET),
        ];
        let flags = flags.iter().filter(|(on, _)| *on).fold(0, |all, (_, bit)| all | bit);
        Self(stage | seat << SEAT | arm << ARM | flags)
    }

    /// Whether it is counted at all.
    pub(super) fn counts(self) -> bool {
        self != Self::NOWHERE
    }

    /// Whether it is a served member that blocks.
    pub(super) fn is_halted(self) -> bool {
        self.0 & (FAILED | DARK) != 0
    }

    pub(super) fn is_failed(self) -> bool {
        self.0 & FAILED != 0
    }

    pub(super) fn count(self, tally: &mut Tally) {
        if self.counts() {
            tally.add(&self.meaning());
            tally.no_bucket += u64::from(self.0 & NO_BUCKET != 0);
        }
    }

    /// Takes away what [`Self::count`] added.
    pub(super) fn uncount(self, tally: &mut Tally) {
        if self.counts() {
            tally.remove(&self.meaning());
            tally.no_bucket -= u64::from(self.0 & NO_BUCKET != 0);
        }
    }

    /// As far as it is counted.
    fn meaning(self) -> evidence::Class {
        let has = |bit: u32| self.0 & bit != 0;
        evidence::Class {
            counts: self.counts(),
            seat: match self.0 >> SEAT & 3 {
                0 => Seat::Outside,
                1 => Seat::Stage((self.0 & 0xffff) as u16),
                _ => Seat::Control,
            },
            foreign: has(FOREIGN),
            arm: match self.0 >> ARM & 7 {
                0 => Reading::Taking,
                1 => Reading::To,
                2 => Reading::From,
                3 => Reading::Other,
                _ => Reading::Unknown,
            },
            condition: None,
            failed: has(FAILED),
            dark: has(DARK),
            long_dark: has(LONG_DARK),
            unobserved: has(UNOBSERVED),
            left: has(LEFT),
            control_dark: has(CONTROL_DARK),
            heard_since_soak: false,
            taken: has(TAKEN),
            silent_since_ms: None,
            next_ms: None,
        }
    }
}

/// Adds up shards.
pub(super) fn add(sum: &mut Tally, part: &Tally) {
    let Tally {
        stages,
        taken,
        long_dark,
        control,
        foreign,
        served_in_tier,
        no_bucket,
        duplicates,
        overflow,
        awaited: _,
        replicas: _,
        braked: _,
    } = part;
    if sum.stages.len() < stages.len() {
        sum.stages.resize(stages.len(), Default::default());
    }
    for (sum, part) in sum.stages.iter_mut().zip(stages) {
        sum.add_all(part);
    }
    sum.taken += taken;
    sum.long_dark += long_dark;
    sum.control.seen += control.seen;
    sum.control.dark += control.dark;
    sum.control.unobserved += control.unobserved;
    sum.foreign.add_all(foreign);
    sum.served_in_tier += served_in_tier;
    sum.no_bucket += no_bucket;
    sum.duplicates += duplicates;
    sum.overflow += overflow;
}
