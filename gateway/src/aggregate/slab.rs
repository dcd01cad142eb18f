//! Where the members of a shard are kept: blocks of memory that never move.

use proto::prefetch;

use super::packed::{Cold, Hot, Packed, Slot};

/// Members per block, which is then a page: who looks at a member needs to find one page only.
const BLOCK: usize = 35;
/// Members before the first block, so that a Rollout of ten collectors does not cost as if it had
/// thousands.
const FEW: usize = 8;

const _: () = assert!(size_of::<Block<BLOCK>>() == 4_096);

/// Members by the number of their place. Past the last one that was in use, nothing is there.
pub(super) struct Slab {
    few: Box<Block<FEW>>,
    blocks: Vec<Box<Block<BLOCK>>>,
    /// Places that were ever in use.
    used: u32,
    free: Vec<u32>,
}

struct Block<const N: usize> {
    hot: [Hot; N],
    cold: [Cold; N],
    /// When what each comes to changes by time alone: seconds since 1970, rounded up.
    due: [u32; N],
}

impl Slab {
    pub(super) fn new() -> Self {
        Self { few: Block::new(), blocks: Vec::new(), used: 0, free: Vec::new() }
    }

    /// All places that were ever in use.
    pub(super) fn all(&self) -> std::ops::Range<u32> {
        0..self.used
    }

    /// A place that nobody has, as one of whom nothing is known.
    pub(super) fn take_place(&mut self) -> u32 {
        if let Some(at) = self.free.pop() {
            return at;
        }
        let at = self.used;
        self.used += 1;
        if at as usize >= FEW + self.blocks.len() * BLOCK {
            self.blocks.push(Block::new());
        }
        at
    }

    pub(super) fn free_place(&mut self, at: u32) {
        let slot = self.slot_mut(at);
        *slot.hot = Hot::EMPTY;
        *slot.cold = Cold::EMPTY;
        *self.due_mut(at) = u32::MAX;
        self.free.push(at);
    }

    pub(super) fn hot(&self, at: u32) -> &Hot {
        match (at as usize).checked_sub(FEW) {
            None => &self.few.hot[at as usize],
            Some(at) => &self.blocks[at / BLOCK].hot[at % BLOCK],
        }
    }

    pub(super) fn hot_mut(&mut self, at: u32) -> &mut Hot {
        self.slot_mut(at).hot
    }

    pub(super) fn get(&self, at: u32) -> Packed<'_> {
        match (at as usize).checked_sub(FEW) {
            None => self.few.get(at as usize),
            Some(at) => self.blocks[at / BLOCK].get(at % BLOCK),
        }
    }

    /// All of a member is near soon.
    pub(super) fn prefetch(&self, at: u32) {
        let Packed { hot, cold } = self.get(at);
        prefetch::near_soon(hot);
        cold.prefetch();
    }

    pub(super) fn slot_mut(&mut self, at: u32) -> Slot<'_> {
        match (at as usize).checked_sub(FEW) {
            None => self.few.slot_mut(at as usize),
            Some(at) => self.blocks[at / BLOCK].slot_mut(at % BLOCK),
        }
    }

    pub(super) fn due(&self, at: u32) -> u32 {
        match (at as usize).checked_sub(FEW) {
            None => self.few.due[at as usize],
            Some(at) => self.blocks[at / BLOCK].due[at % BLOCK],
        }
    }

    pub(super) fn due_mut(&mut self, at: u32) -> &mut u32 {
        match (at as usize).checked_sub(FEW) {
            None => &mut self.few.due[at as usize],
            Some(at) => &mut self.blocks[at / BLOCK].due[at % BLOCK],
        }
    }
}

impl<const N: usize> Block<N> {
    fn new() -> Box<Self> {
        Box::new(Self { hot: [Hot::EMPTY; N], cold: [Cold::EMPTY; N], due: [u32::MAX; N] })
    }

    fn get(&self, at: usize) -> Packed<'_> {
        Packed { hot: &self.hot[at], cold: &self.cold[at] }
    }

    fn slot_mut(&mut self, at: usize) -> Slot<'_> {
        Slot { hot: &mut self.hot[at], cold: &mut self.cold[at] }
    }
}
