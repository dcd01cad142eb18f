//! What each collector must be offered, decided plainly: a linear scan over every selector, and
//! the rendered files as they lie in the estate.
//!
//! It shares with a gateway only the reading of authored files; index, membership, hashes and
//! offers are written a second time here, slowly, so that a fault in the fast ones cannot hide.

mod artefact;
mod cohort;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use render::estate::{Name, Rollout, Topology};
use render::tree::Tree;

pub use artefact::Artefact;
pub(crate) use artefact::{Content, short};
pub use cohort::{bucket, member};

/// An attribute's value; only text takes part in matching (serving.md 3.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// `string_value`
    Text(String),
    /// `int_value`
    Integer(i64),
    /// `bool_value`
    Truth(bool),
}

/// A collector's agent description.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// In the order in which they are sent.
    pub identifying: Vec<(String, Value)>,
    /// In the order in which they are sent.
    pub non_identifying: Vec<(String, Value)>,
}

impl Attributes {
    /// Flattened as the reference does: identifying wins over non-identifying, the last duplicate
    /// wins, and a value that is not text neither counts nor shadows.
    pub fn flat(&self) -> BTreeMap<&str, &str> {
        self.non_identifying
            .iter()
            .chain(&self.identifying)
            .filter_map(|(key, value)| match value {
                Value::Text(text) => Some((key.as_str(), text.as_str())),
                Value::Integer(_) | Value::Truth(_) => None,
            })
            .collect()
    }
}

/// Which of a Tier's artefacts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arm {
    /// No selector matches.
    Unmatched,
    /// The Tier's own.
    Base,
    /// The candidate of the Tier's Rollout.
    Candidate,
}

/// Where a collector belongs: an index into a model's artefacts, stable within one model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(u32);

/// One head of the estate.
#[derive(Clone, Debug)]
pub struct Model {
    tiers: Vec<TierModel>,
    unmatched: Arc<Artefact>,
}

#[derive(Clone, Debug)]
struct TierModel {
    id: Name,
    selector: BTreeMap<String, String>,
    base: Arc<Artefact>,
    rollout: Option<(Rollout, Arc<Artefact>)>,
}

/// Why a tree cannot be served. A gateway keeps its old head then, and so does the model.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ModelError {
    /// The authored files are refused.
    #[error("{0}")]
    Refused(String),
    /// A rendered file that serving needs is not there.
    #[error("{0} is missing: run `render` in the estate")]
    Missing(String),
    /// A rendered file has nothing in it.
    #[error("{0} is empty: run `render` in the estate")]
    Blank(String),
    /// A rendered file does not belong to what is authored (estate.md, decision 15).
    #[error("{path} is stale: its header does not name {binding}; run `render` in the estate")]
    Stale {
        /// The file.
        path: String,
        /// The Blueprint that the authored files bind.
        binding: String,
    },
}

impl Model {
    /// Reads a head.
    ///
    /// # Errors
    ///
    /// As a gateway would refuse it: authored files that do not load, and rendered files that are
    /// missing, blank or stale.
    pub fn read(tree: &Tree) -> Result<Self, ModelError> {
        let topology = render::estate::load_topology(tree)
            .map_err(|refusal| ModelError::Refused(refusal.to_string()))?;
        Self::from_topology(&topology, tree)
    }

    fn from_topology(topology: &Topology, tree: &Tree) -> Result<Self, ModelError> {
        let mut tiers = Vec::new();
        for tier in topology.tiers.values().filter(|tier| !tier.selector.is_empty()) {
            let stem = format!("rendered/{}", tier.id);
            let base = read(tree, format!("{stem}.yaml"), Some(&tier.blueprint.value.to_string()))?;
            let mut rollout = None;
            for candidate in topology.rollouts.values() {
                if candidate.tier.value == tier.id {
                    let next = read(
                        tree,
                        format!("{stem}@next.yaml"),
                        Some(&candidate.to.value.to_string()),
                    )?;
                    rollout = Some((candidate.clone(), next));
                }
            }
            tiers.push(TierModel {
                id: tier.id.clone(),
                selector: tier.selector.clone(),
                base,
                rollout,
            });
        }
        let unmatched = read(tree, "rendered/_estate/unmatched.yaml".to_owned(), None)?;
        Ok(Self { tiers, unmatched })
    }

    /// Scans every Tier: most pairs win, the lowest id in byte order wins a tie, else Unmatched.
    pub fn place(&self, attributes: &Attributes) -> Place {
        let flat = attributes.flat();
        let mut best: Option<(usize, &TierModel)> = None;
        for (at, tier) in self.tiers.iter().enumerate() {
            let matches = tier
                .selector
                .iter()
                .all(|(key, value)| flat.get(key.as_str()) == Some(&value.as_str()));
            let wins = best.is_none_or(|(_, held)| {
                tier.selector.len() > held.selector.len()
                    || (tier.selector.len() == held.selector.len() && tier.id < held.id)
            });
            if matches && wins {
                best = Some((at, tier));
            }
        }
        let Some((at, tier)) = best else { return Place(0) };
        let candidate = tier.rollout.as_ref().is_some_and(|(rollout, _)| member(rollout, &flat));
        Place(u32::try_from(1 + 2 * at + usize::from(candidate)).unwrap_or(0))
    }

    /// The bytes to which a place leads.
    pub fn artefact(&self, place: Place) -> &Arc<Artefact> {
        match (self.tier_of(place), self.arm(place)) {
            (Some(tier), Arm::Base | Arm::Unmatched) => &tier.base,
            (Some(tier), Arm::Candidate) => {
                tier.rollout.as_ref().map_or(&tier.base, |(_, candidate)| candidate)
            }
            (None, _) => &self.unmatched,
        }
    }

    /// The artefact of a place's Tier itself, whatever its Rollout says.
    pub fn base(&self, place: Place) -> &Arc<Artefact> {
        self.tier_of(place).map_or(&self.unmatched, |tier| &tier.base)
    }

    /// The candidate of the Rollout that runs on a place's Tier.
    pub fn candidate(&self, place: Place) -> Option<&Arc<Artefact>> {
        self.tier_of(place)?.rollout.as_ref().map(|(_, candidate)| candidate)
    }

    /// Which of the Tier's artefacts a place means.
    pub fn arm(&self, place: Place) -> Arm {
        match place.0.checked_sub(1) {
            None => Arm::Unmatched,
            Some(rest) if rest % 2 == 0 => Arm::Base,
            Some(_) => Arm::Candidate,
        }
    }

    /// The Tier's id, or `None` for Unmatched.
    pub fn tier(&self, place: Place) -> Option<&str> {
        self.tier_of(place).map(|tier| tier.id.as_str())
    }

    /// Ids, selectors and Rollouts of all Tiers that can be matched, in id order.
    pub fn tiers(
        &self,
    ) -> impl Iterator<Item = (&str, &BTreeMap<String, String>, Option<&Rollout>)> {
        self.tiers.iter().map(|tier| {
            (tier.id.as_str(), &tier.selector, tier.rollout.as_ref().map(|(rollout, _)| rollout))
        })
    }

    /// Every attribute name that the head mentions: what a gateway keeps per collector
    /// (serving.md, decision 3).
    pub fn mentions(&self) -> BTreeSet<&str> {
        let mut names = BTreeSet::new();
        for tier in &self.tiers {
            names.extend(tier.selector.keys().map(String::as_str));
            if let Some((rollout, _)) = &tier.rollout {
                names.extend(rollout.hash_attributes.iter().map(String::as_str));
                names.extend(rollout.identity.iter().map(String::as_str));
                for stage in &rollout.stages {
                    names.extend(stage.cohort.matches.keys().map(String::as_str));
                    names.extend(stage.cohort.hosts.iter().map(|hosts| hosts.attribute.as_str()));
                }
            }
        }
        names
    }

    /// A number that stands for every artefact that the head serves.
    pub fn fingerprint(&self) -> u64 {
        let mut input = Vec::new();
        let tiers = self.tiers.iter().flat_map(|tier| {
            std::iter::once(&tier.base).chain(tier.rollout.as_ref().map(|(_, next)| next))
        });
        for artefact in tiers.chain([&self.unmatched]) {
            input.extend_from_slice(artefact.path.as_bytes());
            input.push(0);
            input.extend_from_slice(&artefact.hash);
        }
        twox_hash::XxHash3_64::oneshot(&input) >> 11 // as many bits as any JSON number keeps
    }

    /// Whether this head puts every collector where the other does, whatever the artefacts are.
    pub fn places_like(&self, other: &Self) -> bool {
        self.tiers.len() == other.tiers.len()
            && self.tiers.iter().zip(&other.tiers).all(|(one, other)| {
                one.id == other.id
                    && one.selector == other.selector
                    && one.rollout.as_ref().map(|(rollout, _)| membership(rollout))
                        == other.rollout.as_ref().map(|(rollout, _)| membership(rollout))
            })
    }

    fn tier_of(&self, place: Place) -> Option<&TierModel> {
        let at = place.0.checked_sub(1)? / 2;
        self.tiers.get(usize::try_from(at).ok()?)
    }
}

/// All of a Rollout that decides on membership.
fn membership(rollout: &Rollout) -> impl PartialEq + '_ {
    let cohorts: Vec<_> = rollout.stages.iter().map(|stage| &stage.cohort).collect();
    (rollout.stage, &rollout.hash_attributes, &rollout.hash_salt, cohorts)
}

fn read(tree: &Tree, path: String, binding: Option<&str>) -> Result<Arc<Artefact>, ModelError> {
    let Some(bytes) = tree.get(&path) else { return Err(ModelError::Missing(path)) };
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(ModelError::Blank(path));
    }
    if let Some(binding) = binding {
        let second = bytes.split(|byte| *byte == b'\n').nth(1).unwrap_or_default();
        if !String::from_utf8_lossy(second).contains(&format!(", Blueprint {binding}, ")) {
            return Err(ModelError::Stale { path, binding: binding.to_owned() });
        }
    }
    Ok(Arc::new(Artefact::new(path, Bytes::copy_from_slice(bytes))))
}

#[cfg(test)]
impl Place {
    /// Number 0 is Unmatched, then base and candidate of each Tier in turn.
    pub(crate) fn nth(number: u32) -> Self {
        Self(number)
    }
}
