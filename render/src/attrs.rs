//! Which of a collector's attributes head asks about, and what the collector says for each.

use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_64;

/// Index of an attribute name in [`Symbols`].
pub type Symbol = u32;

/// Slots held without allocating. A head that mentions more names costs one allocation per
/// [`Slots`], which its owner may keep and fill again.
pub const INLINE_SLOTS: usize = 64;

/// The closed set of attribute names that head mentions, in selectors and in Rollouts.
///
/// In byte order of the name, so that equal sets give equal symbols. A look-up hashes once and
/// allocates nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Symbols {
    names: Box<[Box<str>]>,
    /// Open addressing, a power of two at least twice `names`; [`VACANT`] where there is none.
    table: Box<[Symbol]>,
    /// Bit `n` is set when some name has `n` bytes (63 stands for all longer ones): most of what
    /// a collector reports is told apart here, before it is hashed.
    lengths: u64,
}

const VACANT: Symbol = Symbol::MAX;

impl Symbols {
    /// The set of these names; order and repetition do not matter.
    pub fn new<'n>(names: impl IntoIterator<Item = &'n str>) -> Self {
        let mut names: Vec<Box<str>> = names.into_iter().map(Into::into).collect();
        names.sort_unstable();
        names.dedup();
        let size = (names.len() * 2).next_power_of_two().max(2);
        let mut table = vec![VACANT; size].into_boxed_slice();
        let mut lengths = 0;
        for (symbol, name) in (0..).zip(&names) {
            let mut at = place(name, size);
            while table[at] != VACANT {
                at = (at + 1) & (size - 1);
            }
            table[at] = symbol;
            lengths |= length_bit(name);
        }
        Self { names: names.into_boxed_slice(), table, lengths }
    }

    /// The symbol of a name that head mentions.
    pub fn get(&self, name: &str) -> Option<Symbol> {
        if self.lengths & length_bit(name) == 0 {
            return None;
        }
        let mut at = place(name, self.table.len());
        loop {
            let symbol = self.table[at];
            if symbol == VACANT {
                return None;
            }
            if &*self.names[symbol as usize] == name {
                return Some(symbol);
            }
            at = (at + 1) & (self.table.len() - 1);
        }
    }

    /// The name of a symbol of this set.
    pub fn name(&self, symbol: Symbol) -> Option<&str> {
        self.names.get(symbol as usize).map(AsRef::as_ref)
    }

    /// Every name, in symbol order, which is byte order.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.names.iter().map(AsRef::as_ref)
    }

    /// How many names there are.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether head mentions no attribute at all.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }
}

fn length_bit(name: &str) -> u64 {
    1 << name.len().min(63)
}

fn place(name: &str, size: usize) -> usize {
    // Only the low bits are wanted; `size` is a power of two.
    xxh3_64(name.as_bytes()) as usize & (size - 1)
}

/// A collector's values for the names of one [`Symbols`], borrowed from wherever it reported them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slots<'m> {
    values: SmallVec<[Option<&'m str>; INLINE_SLOTS]>,
}

impl<'m> Slots<'m> {
    /// All absent.
    pub fn new(symbols: &Symbols) -> Self {
        Self { values: SmallVec::from_elem(None, symbols.len()) }
    }

    /// Takes what a description says, by the matching rule (serving.md 3.4): only strings count,
    /// identifying attributes win over non-identifying ones, within a list the last duplicate
    /// wins, and a value that is no string (`None`) hides nothing.
    pub fn fill(
        &mut self,
        symbols: &Symbols,
        non_identifying: impl IntoIterator<Item = (&'m str, Option<&'m str>)>,
        identifying: impl IntoIterator<Item = (&'m str, Option<&'m str>)>,
    ) {
        for (name, value) in non_identifying {
            self.set_named(symbols, name, value);
        }
        for (name, value) in identifying {
            self.set_named(symbols, name, value);
        }
    }

    fn set_named(&mut self, symbols: &Symbols, name: &str, value: Option<&'m str>) {
        if let Some(value) = value
            && let Some(symbol) = symbols.get(name)
        {
            self.set(symbol, Some(value));
        }
    }

    /// Sets one value; a symbol of another set is ignored.
    pub fn set(&mut self, symbol: Symbol, value: Option<&'m str>) {
        if let Some(slot) = self.values.get_mut(symbol as usize) {
            *slot = value;
        }
    }

    /// The value, `None` when the collector reports no string under that name. An empty string is
    /// a value.
    pub fn get(&self, symbol: Symbol) -> Option<&'m str> {
        self.values.get(symbol as usize).copied().flatten()
    }

    /// One per symbol, in symbol order.
    pub fn values(&self) -> &[Option<&'m str>] {
        &self.values
    }
}
