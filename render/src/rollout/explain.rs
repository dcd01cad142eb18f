//! Where a set of attributes leads at a head, and why: the answer to "why does this collector get
//! that?" (`gateway rollout explain`, `/api/v1/explain`).
//!
//! Everything is asked of the functions that the connect path uses, so the answer cannot differ
//! from what is served.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::cohort::{self, Cohorts, UnknownSymbol, member};
use crate::attrs::Slots;
use crate::estate::Cohort;
use crate::snapshot::served::ServedRollout;
use crate::snapshot::{Arm, Snapshot};

/// Where a set of attributes leads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// The commit of the head; empty when nothing told it.
    pub commit: String,
    /// The Tier; `None` is Unmatched.
    pub tier: Option<String>,
    /// The selector that matched.
    pub selector: BTreeMap<String, String>,
    /// `to`, `from`, `none` or `unmatched`.
    pub arm: String,
    /// What is offered there.
    pub artefact: ArtefactId,
    /// Where the Tier's Rollout puts it, if there is one.
    pub rollout: Option<RolloutPlace>,
}

/// An artefact by its hashes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtefactId {
    /// What it is offered under, hex.
    pub content_hash: String,
    /// SHA-256 of its bytes, hex.
    pub raw_hash: String,
    /// How long it is.
    pub bytes: usize,
}

/// Where a Rollout puts a collector.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RolloutPlace {
    /// `team/name`.
    pub rollout: String,
    /// The Tier's binding.
    pub from: String,
    /// The candidate.
    pub to: String,
    /// Index of the active stage.
    pub stage: u32,
    /// How many there are.
    pub stages: u32,
    /// The hash behind the bucket, as a decimal text: it has 64 bits, which not every reader of
    /// JSON can hold. `None` without a bucket.
    pub hash: Option<String>,
    /// Below 10,000; `None` when a hash attribute is missing or empty, or none is named.
    pub bucket: Option<u32>,
    /// Hash attributes that are missing or empty.
    pub missing: Vec<String>,
    /// The first active stage that admits it.
    pub admitted: Option<Admission>,
    /// The first stage to come that would, when no active one does.
    pub later: Option<Admission>,
    /// Candidate and base have equal content, so that everybody is served the base.
    pub same_content: bool,
    /// The brake is on: whoever does not report the candidate already is served the base. Known to
    /// a gateway only; `None` offline.
    pub braked: Option<bool>,
}

/// A stage that admits a collector.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Admission {
    /// Its index.
    pub stage: u32,
    /// Its Cohort, [in words](in_words).
    pub cohort: String,
    /// Which of its forms do: `hosts`, `match`, `percent`.
    pub forms: Vec<String>,
}

/// A Cohort in a few words: `hosts host.name (2) + match region=eu + 25%`.
pub fn in_words(cohort: &Cohort) -> String {
    let hosts = cohort
        .hosts
        .iter()
        .map(|hosts| format!("hosts {} ({})", hosts.attribute, hosts.values.len()));
    let pairs: Vec<String> =
        cohort.matches.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let matches = (!pairs.is_empty()).then(|| format!("match {}", pairs.join(", ")));
    let percent = (cohort.percent > 0).then(|| format!("{}%", cohort.percent));
    hosts.chain(matches).chain(percent).collect::<Vec<_>>().join(" + ")
}

/// Says where `attributes` lead at this head; of several values for one name the last counts.
///
/// # Errors
/// [`UnknownSymbol`] when the snapshot lacks a name that one of its Rollouts mentions, which
/// [`crate::snapshot::compile()`] never makes.
pub fn explain<'a>(
    snapshot: &Snapshot,
    attributes: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<Explanation, UnknownSymbol> {
    let slots = slots(snapshot, attributes);
    let placement = snapshot.place(&slots);
    let offer = snapshot.offer(&placement);
    let tier = placement.tier.and_then(|tier| snapshot.tiers.get(tier as usize));
    let rollout = placement.rollout.and_then(|at| snapshot.rollouts.get(at as usize));
    let same_content = tier.is_some_and(|tier| tier.candidate.is_none());
    let rollout = rollout
        .map(|compiled| place(snapshot, &compiled.rollout, &slots, same_content))
        .transpose()?;
    let selector = tier.map_or(&[][..], |tier| &tier.selector);
    Ok(Explanation {
        commit: snapshot.commit.to_string(),
        tier: tier.map(|tier| tier.id.to_string()),
        selector: selector
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .collect(),
        arm: arm_word(placement.arm).to_owned(),
        artefact: ArtefactId {
            content_hash: offer.content.to_string(),
            raw_hash: hex(&offer.raw),
            bytes: offer.artefact_len,
        },
        rollout,
    })
}

/// The attributes under the names that head mentions.
pub(super) fn slots<'a>(
    snapshot: &Snapshot,
    attributes: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Slots<'a> {
    let mut slots = snapshot.slots();
    let attributes = attributes.into_iter().map(|(name, value)| (name, Some(value)));
    slots.fill(&snapshot.symbols, std::iter::empty(), attributes);
    slots
}

/// A Rollout's Cohorts with every stage counting.
pub(super) fn all_stages(
    snapshot: &Snapshot,
    rollout: &ServedRollout,
) -> Result<Cohorts, UnknownSymbol> {
    Cohorts::new(
        &snapshot.symbols,
        rollout.stages.iter().map(|stage| &stage.cohort),
        u32::MAX,
        &rollout.hash_attributes,
        rollout.hash_salt.as_deref(),
    )
}

/// Hash attributes that a collector does not report, or as empty.
pub(super) fn missing(
    snapshot: &Snapshot,
    rollout: &ServedRollout,
    slots: &Slots<'_>,
) -> Vec<String> {
    let reported = |name: &str| {
        let value = snapshot.symbols.get(name).and_then(|symbol| slots.get(symbol));
        value.is_some_and(|value| !value.is_empty())
    };
    rollout.hash_attributes.iter().filter(|name| !reported(name)).cloned().collect()
}

fn place(
    snapshot: &Snapshot,
    rollout: &ServedRollout,
    slots: &Slots<'_>,
    same_content: bool,
) -> Result<RolloutPlace, UnknownSymbol> {
    let cohorts = all_stages(snapshot, rollout)?;
    let hash = cohorts.hash(slots);
    let admission = match member(&cohorts, slots).stage {
        None => None,
        Some(stage) => Some(admission(snapshot, rollout, slots, stage)?),
    };
    let (admitted, later) = match admission {
        Some(admission) if admission.stage > rollout.stage => (None, Some(admission)),
        admitted => (admitted, None),
    };
    Ok(RolloutPlace {
        rollout: rollout.id.to_string(),
        from: rollout.from.to_string(),
        to: rollout.to.to_string(),
        stage: rollout.stage,
        stages: u32::try_from(rollout.stages.len()).unwrap_or(u32::MAX),
        hash: hash.map(|hash| hash.to_string()),
        bucket: hash.map(cohort::bucket),
        missing: missing(snapshot, rollout, slots),
        admitted,
        later,
        same_content,
        braked: None,
    })
}

/// Which forms of a stage admit a collector: each is asked alone.
fn admission(
    snapshot: &Snapshot,
    rollout: &ServedRollout,
    slots: &Slots<'_>,
    stage: u32,
) -> Result<Admission, UnknownSymbol> {
    let cohort = rollout.stages.get(stage as usize).map(|stage| stage.cohort.clone());
    let cohort = cohort.unwrap_or_default();
    let alone = [
        ("hosts", Cohort { hosts: cohort.hosts.clone(), ..Cohort::default() }),
        ("match", Cohort { matches: cohort.matches.clone(), ..Cohort::default() }),
        ("percent", Cohort { percent: cohort.percent, ..Cohort::default() }),
    ];
    let mut forms = Vec::new();
    for (form, cohort) in &alone {
        let alone = Cohorts::new(
            &snapshot.symbols,
            [cohort],
            0,
            &rollout.hash_attributes,
            rollout.hash_salt.as_deref(),
        )?;
        if member(&alone, slots).is_member() {
            forms.push((*form).to_owned());
        }
    }
    Ok(Admission { stage, cohort: in_words(&cohort), forms })
}

fn arm_word(arm: Arm) -> &'static str {
    match arm {
        Arm::To => "to",
        Arm::From => "from",
        Arm::None => "none",
        Arm::Unmatched => "unmatched",
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{demo, rollout_of};
    use super::*;

    fn asked(attributes: &[(&str, &str)]) -> Explanation {
        explain(&demo(), attributes.iter().copied()).unwrap()
    }

    const BRIDGE: (&str, &str) = ("service.name", "otelcol-kafka-bridge");

    #[test]
    fn a_host_of_an_active_stage_is_admitted_by_name() {
        let told =
            asked(&[BRIDGE, ("host.name", "bridge-a1"), ("service.instance.id", "bridge-a1")]);
        assert_eq!(told.tier.as_deref(), Some("data-flow/kafka-bridge"));
        assert_eq!(told.arm, "to");
        let place = told.rollout.unwrap();
        assert_eq!(place.hash.as_deref(), Some("16891263631310404753"), "decision 2's own vector");
        assert_eq!(place.bucket, Some(9_156));
        let admitted = place.admitted.unwrap();
        assert_eq!((admitted.stage, admitted.cohort.as_str()), (0, "hosts host.name (2)"));
        assert_eq!(admitted.forms, ["hosts"]);
        assert_eq!(place.later, None);
    }

    #[test]
    fn who_is_not_in_yet_is_told_when() {
        let told = asked(&[BRIDGE, ("service.instance.id", "bridge-a1")]);
        assert_eq!(told.arm, "from");
        let later = told.rollout.unwrap().later.unwrap();
        assert_eq!((later.stage, later.forms), (2, vec!["percent".to_owned()]));
    }

    #[test]
    fn a_missing_hash_attribute_is_named() {
        let told = asked(&[BRIDGE, ("service.instance.id", "")]);
        let place = told.rollout.unwrap();
        assert_eq!((place.bucket, place.admitted, place.later), (None, None, None));
        assert_eq!(place.missing, ["service.instance.id"]);
    }

    #[test]
    fn nobody_s_attributes_are_unmatched() {
        let told = asked(&[("service.name", "else")]);
        assert_eq!((told.tier, told.arm.as_str(), told.rollout), (None, "unmatched", None));
        assert!(told.selector.is_empty());
    }

    #[test]
    fn the_answer_is_that_of_the_connect_path() {
        let snapshot = demo();
        for n in 0..500 {
            let id = format!("host-{n:03}");
            let attributes = [BRIDGE, ("service.instance.id", id.as_str())];
            let placement = snapshot.place(&slots(&snapshot, attributes));
            let told = explain(&snapshot, attributes).unwrap();
            let place = told.rollout.unwrap();
            assert_eq!(placement.arm == Arm::To, place.admitted.is_some(), "{id}");
            assert_eq!(told.arm, arm_word(placement.arm));
        }
    }

    #[test]
    fn cohorts_are_put_in_words() {
        let rollout = rollout_of(&demo());
        let words: Vec<String> =
            rollout.stages.iter().map(|stage| in_words(&stage.cohort)).collect();
        assert_eq!(words, ["hosts host.name (2)", "25%", "100%"]);
        let matches = [("b", "2"), ("a", "1")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        let mixed = Cohort { matches: matches.into(), percent: 5, ..Cohort::default() };
        assert_eq!(in_words(&mixed), "match a=1, b=2 + 5%");
    }
}
