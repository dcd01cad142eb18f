//! From what is served to what the connect path looks things up in.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;

use super::served::{Served, ServedRollout, ServedTier};
use super::{Candidate, CompiledRollout, Offer, Snapshot, TierEntry, Wirings};
use crate::artefact::{Artefact, ContentHash, RawHash};
use crate::attrs::Symbols;
use crate::rollout::cohort::{Cohorts, UnknownSymbol};
use crate::select::{SelectError, SelectorIndex};

/// Why there is no snapshot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// The selectors cannot be indexed.
    #[error(transparent)]
    Select(#[from] SelectError),
    /// A Rollout mentions a name that was not gathered.
    #[error(transparent)]
    Cohort(#[from] UnknownSymbol),
    /// An offer encoded to nothing: an empty message would be taken for an acknowledgement.
    #[error("the artefact with content {content} was encoded to nothing")]
    EmptyOffer {
        /// The artefact.
        content: ContentHash,
    },
    /// A Rollout stages a Tier that is not served, or a Tier has a candidate and no Rollout.
    #[error("tier {tier:?} and rollout {rollout:?} do not fit together")]
    Mismatch {
        /// The Tier.
        tier: Box<str>,
        /// The Rollout; empty when there is none.
        rollout: Box<str>,
    },
    /// More Tiers than an index of 32 bits can hold.
    #[error("more than 4,294,967,294 Tiers")]
    TooManyTiers,
}

/// Compiles a snapshot. `encode` turns an artefact into what goes over the wire; it is called once
/// per distinct artefact.
///
/// # Errors
/// Nothing that [`super::served::from_tree`] returns is refused, except where
/// `encode` yields nothing or the selectors have more than [`crate::estate::MAX_SELECTOR_SHAPES`]
/// distinct key sets.
pub fn compile(
    served: &Served,
    encode: impl Fn(&Artefact, &ContentHash) -> Bytes,
) -> Result<Snapshot, CompileError> {
    let mut offers = Offers { encode, by_raw: HashMap::new() };
    let symbols = symbols(served);
    let tier_number = numbers(served.tiers.keys())?;
    let rollout_number = numbers(served.rollouts.keys())?;
    let mut rollout_of: HashMap<&str, &ServedRollout> = HashMap::new();
    for rollout in served.rollouts.values() {
        let twice = rollout_of.insert(&rollout.tier, rollout).is_some();
        if twice || !served.tiers.contains_key(&rollout.tier) {
            return Err(mismatch(&rollout.tier, &rollout.id));
        }
    }

    let mut tiers = Vec::with_capacity(served.tiers.len());
    for (id, tier) in &served.tiers {
        let rollout = rollout_of.get(&**id).map(|rollout| &rollout.id);
        let number = rollout.and_then(|id| rollout_number.get(&**id)).copied();
        let base = offers.offer(&tier.base)?;
        let candidate = match (&tier.next, number) {
            (Some(_), Some(_)) if tier.has_no_candidate() => None,
            (Some(next), Some(rollout)) => Some(Candidate { offer: offers.offer(next)?, rollout }),
            (None, None) => None,
            _ => return Err(mismatch(id, rollout.map_or("", AsRef::as_ref))),
        };
        tiers.push(entry(id, tier, base, number, candidate));
    }
    let rollouts = served
        .rollouts
        .values()
        .map(|rollout| {
            let tier = *tier_number
                .get(&*rollout.tier)
                .ok_or_else(|| mismatch(&rollout.tier, &rollout.id))?;
            let cohorts = Cohorts::new(
                &symbols,
                rollout.stages.iter().map(|stage| &stage.cohort),
                rollout.stage,
                &rollout.hash_attributes,
                rollout.hash_salt.as_deref(),
            )?;
            let staged = served
                .tiers
                .get(&rollout.tier)
                .ok_or_else(|| mismatch(&rollout.tier, &rollout.id))?;
            let next = staged.next.as_ref().unwrap_or(&staged.base);
            let wirings = Wirings::new(staged.base.clone(), next.clone());
            Ok(CompiledRollout { rollout: rollout.clone(), tier, cohorts, wirings })
        })
        .collect::<Result<_, CompileError>>()?;
    let selectors = served.tiers.values().map(|tier| &tier.selector);
    let index = SelectorIndex::new(&symbols, (0..).zip(selectors))?;
    let unmatched = offers.offer(&served.unmatched)?;

    Ok(Snapshot {
        commit: served.commit.clone(),
        digest: served.digest(),
        tiers: tiers.into_boxed_slice(),
        unmatched,
        rollouts,
        symbols,
        index,
        raw_to_content: raw_to_content(served),
    })
}

fn mismatch(tier: &str, rollout: &str) -> CompileError {
    CompileError::Mismatch { tier: tier.into(), rollout: rollout.into() }
}

fn entry(
    id: &str,
    tier: &ServedTier,
    base: Offer,
    rollout: Option<u32>,
    candidate: Option<Candidate>,
) -> TierEntry {
    TierEntry {
        id: id.into(),
        environment: tier.environment.clone(),
        selector: tier
            .selector
            .iter()
            .map(|(name, value)| (name.as_str().into(), value.as_str().into()))
            .collect(),
        base,
        rollout,
        candidate,
    }
}

/// Each id's place in byte order.
fn numbers<'s>(
    ids: impl ExactSizeIterator<Item = &'s Box<str>>,
) -> Result<HashMap<&'s str, u32>, CompileError> {
    let end = u32::try_from(ids.len()).ok().filter(|end| *end < u32::MAX);
    let end = end.ok_or(CompileError::TooManyTiers)?;
    Ok(ids.map(AsRef::as_ref).zip(0..end).collect())
}

/// Every attribute name that a selector or any stage of a Rollout mentions. Stages to come count
/// too, so that advancing one never needs an attribute that a session did not keep.
fn symbols(served: &Served) -> Symbols {
    let of_tiers = served.tiers.values().flat_map(|tier| tier.selector.keys().map(String::as_str));
    let of_rollouts = served.rollouts.values().flat_map(|rollout| {
        let stages = rollout.stages.iter().map(|stage| &stage.cohort);
        let hosts = stages.clone().filter_map(|cohort| cohort.hosts.as_ref());
        let matches = stages.flat_map(|cohort| cohort.matches.keys());
        hosts
            .map(|hosts| hosts.attribute.as_str())
            .chain(matches.map(String::as_str))
            .chain(rollout.hash_attributes.iter().map(String::as_str))
            .chain(rollout.identity.iter().map(String::as_str))
    });
    Symbols::new(of_tiers.chain(of_rollouts))
}

fn raw_to_content(served: &Served) -> Box<[(RawHash, ContentHash)]> {
    let of_tiers =
        served.tiers.values().flat_map(|tier| std::iter::once(&tier.base).chain(&tier.next));
    let known: BTreeMap<RawHash, ContentHash> = of_tiers
        .chain(std::iter::once(&served.unmatched))
        .map(|artefact| (artefact.raw_hash(), artefact.content_hash()))
        .collect();
    known.into_iter().collect()
}

/// Encodes each distinct artefact once.
struct Offers<E> {
    encode: E,
    by_raw: HashMap<RawHash, Offer>,
}

impl<E: Fn(&Artefact, &ContentHash) -> Bytes> Offers<E> {
    fn offer(&mut self, artefact: &Artefact) -> Result<Offer, CompileError> {
        let raw = artefact.raw_hash();
        if let Some(offer) = self.by_raw.get(&raw) {
            return Ok(offer.clone());
        }
        let content = artefact.content_hash();
        let bytes = (self.encode)(artefact, &content);
        if bytes.is_empty() {
            return Err(CompileError::EmptyOffer { content });
        }
        let offer = Offer { bytes, content, raw, artefact_len: artefact.bytes().len() };
        self.by_raw.insert(raw, offer.clone());
        Ok(offer)
    }
}
