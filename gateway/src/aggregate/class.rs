//! What one record comes to, in four bytes: the counters of a shard are moved by it.

use hashbrown::HashTable;
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

    pub(super) fn bits(self) -> u32 {
        self.0
    }

    /// Of what [`Self::bits`] gave.
    pub(super) fn from_bits(bits: u32) -> Self {
        Self(bits)
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

/// How many members come to each class.
#[derive(Debug)]
pub(super) struct Classes(HashTable<(Class, u32)>);

/// Classes that a shard has room for from the start.
const CLASSES: usize = 14;

impl Default for Classes {
    fn default() -> Self {
        Self(HashTable::with_capacity(CLASSES))
    }
}

impl Classes {
    // hot
    pub(super) fn add(&mut self, class: Class) {
        match self.0.find_mut(hash(class), |(known, _)| *known == class) {
            Some((_, members)) => *members += 1,
            None => self.insert(class),
        }
    }

    #[cold]
    fn insert(&mut self, class: Class) {
        if !class.counts() {
            return;
        }
        if self.0.len() == self.0.capacity() {
            self.0.retain(|(_, members)| *members > 0);
        }
        self.0.insert_unique(hash(class), (class, 1), |(class, _)| hash(*class));
    }

    // hot
    pub(super) fn remove(&mut self, class: Class) {
        let known = self.0.find_mut(hash(class), |(known, _)| *known == class);
        debug_assert!(known.is_some() || !class.counts(), "what is taken out was taken in");
        if let Some((_, members)) = known {
            debug_assert!(*members > 0, "what is taken out was taken in");
            *members -= 1;
        }
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn has_halted(&self) -> bool {
        self.0.iter().any(|(class, members)| class.is_halted() && *members > 0)
    }

    /// Adds them, under a stage that the tally may not know yet.
    pub(super) fn count(&self, stage: u32, tally: &mut Tally) {
        let rows = stage as usize + 1;
        if tally.stages.len() < rows {
            tally.stages.resize(rows, Default::default());
        }
        for (class, members) in &self.0 {
            tally.add_many(&class.meaning(), u64::from(*members));
            if class.0 & NO_BUCKET != 0 {
                tally.no_bucket += u64::from(*members);
            }
        }
    }
}

fn hash(class: Class) -> u64 {
    u64::from(class.0).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
