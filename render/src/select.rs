//! Which Tier a collector belongs to (serving.md, decision 5 and 3.4; estate.md, decision 17).
//!
//! A selector matches when every pair equals the collector's attribute. Most pairs win; on a tie
//! the first Tier in byte order of its id. The index groups selectors by their set of keys: one
//! probe per distinct set, whatever the number of Tiers.

use std::collections::BTreeMap;

use xxhash_rust::xxh3::xxh3_64;

use crate::attrs::{Slots, Symbol, Symbols};
use crate::estate::MAX_SELECTOR_SHAPES;

/// Why there is no index.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectError {
    /// More than [`MAX_SELECTOR_SHAPES`] distinct key sets.
    #[error(
        "selectors use {found} different sets of attribute names, more than {MAX_SELECTOR_SHAPES}; \
         select by the same few attributes"
    )]
    TooManyShapes {
        /// How many there are.
        found: usize,
    },
    /// A selector names an attribute that the symbol table lacks.
    #[error("attribute {name:?} is not in the symbol table")]
    UnknownSymbol {
        /// The name.
        name: Box<str>,
    },
    /// More values than the index can address (4 GiB of text or 2^31 selectors).
    #[error("the selectors hold more than 4 GiB of values")]
    TooLarge,
}

/// Finds the Tier of a collector; see the module's text for the rule.
#[derive(Clone, Debug, Default)]
pub struct SelectorIndex {
    /// By number of keys, most first.
    sets: Box<[KeySet]>,
}

/// A Tier's number and its selector.
type Selector<'t> = (u32, &'t BTreeMap<String, String>);

/// All selectors over one set of keys.
#[derive(Clone, Debug)]
struct KeySet {
    /// In byte order of the name.
    keys: Box<[Symbol]>,
    /// Open addressing, a power of two at least twice the number of selectors.
    table: Box<[Entry]>,
    /// Of each selector its values in key order, each behind its length (4 bytes): what a probe
    /// compares lies in one place.
    values: Box<[u8]>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    hash: u64,
    /// Where the values start.
    values: u32,
    /// [`VACANT`] in an empty entry.
    tier: u32,
}

const VACANT: u32 = u32::MAX;
const EMPTY: Entry = Entry { hash: 0, values: 0, tier: VACANT };

impl SelectorIndex {
    /// Indexes selectors, each with the number to answer for it; numbers must rise in byte order
    /// of the Tier's id. An empty selector selects nobody.
    ///
    /// # Errors
    /// Too many distinct key sets, or a key that `symbols` lacks.
    pub fn new<'t>(
        symbols: &Symbols,
        tiers: impl IntoIterator<Item = (u32, &'t BTreeMap<String, String>)>,
    ) -> Result<Self, SelectError> {
        let mut grouped: BTreeMap<Vec<Symbol>, Vec<Selector<'_>>> = BTreeMap::new();
        for (tier, selector) in tiers {
            if selector.is_empty() {
                continue;
            }
            let keys = selector.keys().map(|name| {
                symbols
                    .get(name)
                    .ok_or_else(|| SelectError::UnknownSymbol { name: name.as_str().into() })
            });
            grouped.entry(keys.collect::<Result<_, _>>()?).or_default().push((tier, selector));
        }
        if grouped.len() > MAX_SELECTOR_SHAPES {
            return Err(SelectError::TooManyShapes { found: grouped.len() });
        }
        let mut sets = grouped
            .into_iter()
            .map(|(keys, selectors)| KeySet::new(keys, &selectors))
            .collect::<Result<Vec<_>, _>>()?;
        sets.sort_by_key(|set| std::cmp::Reverse(set.keys.len()));
        Ok(Self { sets: sets.into_boxed_slice() })
    }

    /// How many distinct key sets there are, which is what a look-up costs.
    pub fn shapes(&self) -> usize {
        self.sets.len()
    }

    /// The number of the Tier that wins; `None` is Unmatched. Allocates nothing.
    pub fn find(&self, slots: &Slots<'_>) -> Option<u32> {
        let mut hashes = Hashes::new();
        let mut best: Option<(usize, u32)> = None;
        for set in &self.sets {
            if best.is_some_and(|(size, _)| set.keys.len() < size) {
                break;
            }
            if let Some(tier) = set.find(slots, &mut hashes)
                && best.is_none_or(|(_, lowest)| tier < lowest)
            {
                best = Some((set.keys.len(), tier));
            }
        }
        best.map(|(_, tier)| tier)
    }
}

impl KeySet {
    fn new(keys: Vec<Symbol>, selectors: &[Selector<'_>]) -> Result<Self, SelectError> {
        let size = (selectors.len() * 2).next_power_of_two();
        let mut set = Self {
            keys: keys.into_boxed_slice(),
            table: vec![EMPTY; size].into_boxed_slice(),
            values: Box::default(),
        };
        let mut text = Vec::new();
        for (tier, selector) in selectors {
            let hash = selector.values().fold(0, |hash, value| join(hash, hash_value(value)));
            let values = u32::try_from(text.len()).map_err(|_| SelectError::TooLarge)?;
            for value in selector.values() {
                let length = u32::try_from(value.len()).map_err(|_| SelectError::TooLarge)?;
                text.extend_from_slice(&length.to_le_bytes());
                text.extend_from_slice(value.as_bytes());
            }
            let same = |other: u32| {
                let (new, old) = (&text[values as usize..], &text[other as usize..]);
                old.starts_with(new)
            };
            let mut at = hash as usize & (size - 1);
            loop {
                let entry = &mut set.table[at];
                if entry.tier == VACANT {
                    *entry = Entry { hash, values, tier: *tier };
                    break;
                }
                if entry.hash == hash && same(entry.values) {
                    // The same selector on two Tiers: the lower id keeps it.
                    entry.tier = entry.tier.min(*tier);
                    text.truncate(values as usize);
                    break;
                }
                at = (at + 1) & (size - 1);
            }
        }
        set.values = text.into_boxed_slice();
        Ok(set)
    }

    fn find(&self, slots: &Slots<'_>, hashes: &mut Hashes) -> Option<u32> {
        let mut hash = 0;
        for key in &self.keys {
            hash = join(hash, hashes.get(*key, slots.get(*key)?));
        }
        let mut at = hash as usize & (self.table.len() - 1);
        loop {
            let entry = self.table[at];
            if entry.tier == VACANT {
                return None;
            }
            if entry.hash == hash && self.equals(entry.values, slots) {
                return Some(entry.tier);
            }
            at = (at + 1) & (self.table.len() - 1);
        }
    }

    fn equals(&self, values: u32, slots: &Slots<'_>) -> bool {
        let mut rest = &self.values[values as usize..];
        self.keys.iter().all(|key| {
            let Some((length, text)) = rest.split_first_chunk() else { return false };
            let Some((value, next)) = text.split_at_checked(u32::from_le_bytes(*length) as usize)
            else {
                return false;
            };
            rest = next;
            slots.get(*key).is_some_and(|reported| reported.as_bytes() == value)
        })
    }
}

/// Hashes of a collector's values, each computed at most once while the sets are probed.
struct Hashes {
    known: u64,
    values: [u64; Self::CACHED as usize],
}

impl Hashes {
    /// Symbols past this one are hashed again for every set.
    const CACHED: Symbol = 32;

    fn new() -> Self {
        Self { known: 0, values: [0; Self::CACHED as usize] }
    }

    fn get(&mut self, symbol: Symbol, value: &str) -> u64 {
        if symbol >= Self::CACHED {
            return hash_value(value);
        }
        let cached = &mut self.values[symbol as usize];
        if self.known & 1 << symbol == 0 {
            self.known |= 1 << symbol;
            *cached = hash_value(value);
        }
        *cached
    }
}

fn hash_value(value: &str) -> u64 {
    xxh3_64(value.as_bytes())
}

/// Folds the next key's value into the hash of those before it; order matters.
fn join(hash: u64, value: u64) -> u64 {
    let product = u128::from(hash ^ 0x9e37_79b9_7f4a_7c15) * u128::from(value | 1);
    (product as u64) ^ ((product >> 64) as u64) ^ value.rotate_left(23)
}
