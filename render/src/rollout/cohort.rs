//! Who is in a Rollout's Cohort (rollouts.md, decisions 1 to 3).
//!
//! A pure function of the Rollout and of what the collector reports: same inputs, same answer, on
//! every replica and every version. `fixtures/vectors/cohort.json` holds golden vectors.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use xxhash_rust::xxh3::{Xxh3, xxh3_64, xxh3_64_with_seed};

use crate::attrs::{Slots, Symbol, Symbols};
use crate::estate::Cohort;

/// Buckets that `percent` divides a population into; a percent is 100 of them.
pub const BUCKETS: u32 = 10_000;

/// Bytes of keys and values hashed from the stack in one go; longer input is streamed. XXH3 itself
/// changes its way at 240, and both ways give the same hash.
const ONE_SHOT: usize = 240;

/// Where a Rollout's hash starts: 0, or the hash of its salt.
pub fn seed(hash_salt: Option<&str>) -> u64 {
    hash_salt.map_or(0, |salt| xxh3_64(salt.as_bytes()))
}

/// The hash behind a bucket: XXH3-64 over key, 0x00, value, 0x00 of each attribute in authored
/// order. `None` when there is no attribute, or one of them is missing or empty.
///
/// Allocates nothing.
pub fn hash<'a>(
    seed: u64,
    attributes: impl Iterator<Item = (&'a str, Option<&'a str>)> + Clone,
) -> Option<u64> {
    let mut buffer = [0; ONE_SHOT];
    let mut used = 0;
    let mut rest = attributes.clone();
    loop {
        let Some((key, value)) = rest.next() else {
            return (used > 0).then(|| xxh3_64_with_seed(&buffer[..used], seed));
        };
        let value = value.filter(|value| !value.is_empty())?;
        let end = used + key.len() + value.len() + 2;
        if end > ONE_SHOT {
            return stream(seed, attributes);
        }
        buffer[used..used + key.len()].copy_from_slice(key.as_bytes());
        // The buffer is zeroed, so both separators are there already.
        buffer[end - 1 - value.len()..end - 1].copy_from_slice(value.as_bytes());
        used = end;
    }
}

#[cold]
fn stream<'a>(
    seed: u64,
    attributes: impl Iterator<Item = (&'a str, Option<&'a str>)>,
) -> Option<u64> {
    let mut hasher = Xxh3::with_seed(seed);
    for (key, value) in attributes {
        let value = value.filter(|value| !value.is_empty())?;
        hasher.update(key.as_bytes());
        hasher.update(&[0]);
        hasher.update(value.as_bytes());
        hasher.update(&[0]);
    }
    Some(hasher.digest())
}

/// The bucket of a hash, below [`BUCKETS`].
pub fn bucket(hash: u64) -> u32 {
    ((u128::from(hash) * u128::from(BUCKETS)) >> 64) as u32
}

/// A Rollout's Cohorts with attribute names resolved to symbols.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cohorts {
    seed: u64,
    hash_attributes: Box<[(Symbol, Box<str>)]>,
    /// The active stages only, `0..=stage`.
    stages: Box<[CompiledCohort]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct CompiledCohort {
    hosts: Option<CompiledHosts>,
    /// Empty when the form is absent.
    matches: Box<[(Symbol, Box<str>)]>,
    /// Buckets below this one are in; 0 when the form is absent.
    below: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct CompiledHosts {
    attribute: Symbol,
    /// Bit `n`: a value of `n` bytes is among them; the last bit stands for all longer ones.
    lengths: u64,
    /// In the order of [`by_length`], for a binary search.
    values: Box<[Box<str>]>,
}

/// A name that a Rollout mentions is not in the [`Symbols`] it is compiled with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("attribute {name:?} is not in the symbol table")]
pub struct UnknownSymbol {
    /// The name.
    pub name: Box<str>,
}

/// Whether a collector is a member, and through which stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Membership {
    /// The first stage that admits it; `None` when none does.
    pub stage: Option<u32>,
    /// An active `percent` form was asked, no other form admitted the collector, and it has no
    /// bucket because it lacks a hash attribute.
    pub no_bucket: bool,
}

impl Membership {
    /// Whether any active stage admits it.
    pub fn is_member(&self) -> bool {
        self.stage.is_some()
    }
}

impl Cohorts {
    /// Compiles the stages up to and including `stage`; later ones do not count yet.
    ///
    /// # Errors
    /// [`UnknownSymbol`] when `symbols` lacks a name that the Rollout mentions.
    pub fn new<'c>(
        symbols: &Symbols,
        stages: impl IntoIterator<Item = &'c Cohort>,
        stage: u32,
        hash_attributes: &[String],
        hash_salt: Option<&str>,
    ) -> Result<Self, UnknownSymbol> {
        let symbol =
            |name: &str| symbols.get(name).ok_or_else(|| UnknownSymbol { name: name.into() });
        let compile = |cohort: &Cohort| -> Result<CompiledCohort, UnknownSymbol> {
            let hosts = match &cohort.hosts {
                None => None,
                Some(hosts) => {
                    let mut values: Vec<Box<str>> =
                        hosts.values.iter().map(|value| value.as_str().into()).collect();
                    values.sort_unstable_by(|one, other| by_length(one, other));
                    values.dedup();
                    Some(CompiledHosts {
                        attribute: symbol(&hosts.attribute)?,
                        lengths: values.iter().fold(0, |bits, value| bits | length_bit(value)),
                        values: values.into_boxed_slice(),
                    })
                }
            };
            let matches = cohort
                .matches
                .iter()
                .map(|(name, value)| Ok((symbol(name)?, value.as_str().into())))
                .collect::<Result<_, _>>()?;
            Ok(CompiledCohort { hosts, matches, below: cohort.percent * (BUCKETS / 100) })
        };
        let active = (stage as usize).saturating_add(1);
        let mut stages: Box<[CompiledCohort]> =
            stages.into_iter().take(active).map(compile).collect::<Result<_, _>>()?;
        ask_rarest_first(&mut stages);
        Ok(Self {
            seed: seed(hash_salt),
            hash_attributes: hash_attributes
                .iter()
                .map(|name| Ok((symbol(name)?, name.as_str().into())))
                .collect::<Result<_, _>>()?,
            stages,
        })
    }

    /// The hash of a collector; `None` when it lacks a hash attribute.
    pub fn hash(&self, slots: &Slots<'_>) -> Option<u64> {
        let attributes = self.hash_attributes.iter();
        hash(self.seed, attributes.map(|(symbol, name)| (&**name, slots.get(*symbol))))
    }

    /// The bucket of a collector; `None` when it lacks a hash attribute.
    pub fn bucket(&self, slots: &Slots<'_>) -> Option<u32> {
        self.hash(slots).map(bucket)
    }
}

/// Whether a collector is in the Cohort: some active stage admits it, by an enumerated value, by
/// a match of all pairs, or by its bucket.
///
/// Allocates nothing; hashes at most once.
pub fn member(cohorts: &Cohorts, slots: &Slots<'_>) -> Membership {
    // Outer `None`: not asked for yet.
    let mut bucket: Option<Option<u32>> = None;
    for (stage, cohort) in (0..).zip(&cohorts.stages) {
        let admitted = cohort.admits_by_value(slots)
            || (cohort.below > 0
                && bucket
                    .get_or_insert_with(|| cohorts.bucket(slots))
                    .is_some_and(|bucket| bucket < cohort.below));
        if admitted {
            return Membership { stage: Some(stage), no_bucket: false };
        }
    }
    Membership { stage: None, no_bucket: bucket == Some(None) }
}

/// Puts the pairs that several stages ask for last in each: whoever lacks another is done sooner.
fn ask_rarest_first(stages: &mut [CompiledCohort]) {
    let mut asked = BTreeMap::<_, u32>::new();
    for pair in stages.iter().flat_map(|stage| &stage.matches) {
        *asked.entry(pair.clone()).or_default() += 1;
    }
    for stage in stages {
        stage.matches.sort_by_key(|pair| asked.get(pair).copied());
    }
}

/// The bit of a value's length in [`CompiledHosts::lengths`].
fn length_bit(value: &str) -> u64 {
    1 << value.len().min(63)
}

/// Shorter first, then by bytes: most comparisons end at the length.
fn by_length(one: &str, other: &str) -> Ordering {
    one.len().cmp(&other.len()).then_with(|| one.cmp(other))
}

impl CompiledCohort {
    fn admits_by_value(&self, slots: &Slots<'_>) -> bool {
        let by_hosts = self.hosts.as_ref().is_some_and(|hosts| {
            slots.get(hosts.attribute).is_some_and(|value| {
                hosts.lengths & length_bit(value) != 0
                    && hosts.values.binary_search_by(|host| by_length(host, value)).is_ok()
            })
        });
        by_hosts
            || (!self.matches.is_empty()
                && self.matches.iter().all(|(symbol, value)| slots.get(*symbol) == Some(value)))
    }
}
