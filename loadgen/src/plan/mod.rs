//! Which collectors there are: how many of which kind, and what each says about itself.
//!
//! A plan is a pure function of its file (or of the estate) and the number of collectors, so
//! several processes can share one: collector 17 is the same everywhere.

mod derive;
mod parse;
mod template;

use std::ops::Range;
use std::time::Duration;

pub use parse::PlanError;
pub(crate) use parse::{Place, RawPlan};
pub use template::Template;

use crate::model::{Attributes, Model, Value};

/// What a reconnecting collector sends first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReconnectReport {
    /// Uid, sequence number and capabilities, as opamp-go has done since 2026 (serving.md 3.1).
    #[default]
    Delta,
    /// Everything, as older clients do.
    Full,
}

/// How all collectors of a plan behave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Behaviour {
    /// Between two messages of an idle collector; default 30 s.
    pub heartbeat: Duration,
    /// Each interval is longer or shorter by up to this share, 0..=100; default 0 as in opamp-go.
    pub heartbeat_jitter_percent: u32,
    /// From an offer to APPLIED; each apply takes a random time within.
    pub apply_delay: Range<Duration>,
    /// Whether APPLYING is told as well, at once; default true.
    pub report_applying: bool,
    /// Size of the effective config in the first report; default 2,048.
    pub effective_config_bytes: usize,
    /// Default: delta.
    pub reconnect_report: ReconnectReport,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_secs(30),
            heartbeat_jitter_percent: 0,
            apply_delay: Duration::from_millis(500)..Duration::from_millis(500),
            report_applying: true,
            effective_config_bytes: 2_048,
            reconnect_report: ReconnectReport::Delta,
        }
    }
}

/// What an attribute's value is made of.
#[derive(Clone, Debug, PartialEq)]
enum Source {
    /// The first collectors of the group take the first templates, the others the last one.
    Text(Vec<Template>),
    Fixed(Value),
}

/// A kind of collector.
#[derive(Clone, Debug, PartialEq)]
struct Group {
    name: String,
    size: Size,
    /// Where the plan's author says that its collectors belong.
    claim: Option<Claim>,
    report_only: bool,
    identifying: Vec<(String, Source)>,
    non_identifying: Vec<(String, Source)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Size {
    Count(u32),
    Weight(f64),
}

#[derive(Clone, Debug, PartialEq)]
struct Claim {
    tier: String,
    /// `file:line:column` of the claim.
    at: String,
}

/// A plan for a number of collectors.
#[derive(Clone, Debug)]
pub struct Plan {
    behaviour: Behaviour,
    groups: Vec<Group>,
    /// For each collector its group and its number within the group.
    members: Vec<(u16, u32)>,
    /// The number that the first of them has among all.
    first: u32,
}

impl Plan {
    /// Parses a plan file for that many collectors; `file` is its name in error texts.
    ///
    /// # Errors
    ///
    /// Anything that is not exactly a plan, with file, line, column and key.
    pub fn parse(text: &str, file: &str, collectors: u32) -> Result<Self, PlanError> {
        let (seed, behaviour, groups) = parse::parse(text, file)?;
        Self::assemble(seed, behaviour, groups, collectors)
            .map_err(|message| PlanError::whole(file, message))
    }

    /// A plan that is part of another document.
    pub(crate) fn from_raw(
        raw: &RawPlan,
        place: &Place<'_>,
        collectors: u32,
    ) -> Result<Self, PlanError> {
        let (seed, behaviour, groups) = parse::read(raw, place)?;
        Self::assemble(seed, behaviour, groups, collectors)
            .map_err(|message| PlanError::whole(place.file, message))
    }

    /// Derives a plan from an estate: every Tier with a selector gets a share, hosts that Cohorts
    /// name are among its collectors, some lack the hash attributes, some match nothing.
    ///
    /// # Errors
    ///
    /// When there are too few collectors for one of each kind.
    pub fn derive(model: &Model, collectors: u32) -> Result<Self, PlanError> {
        Self::assemble(1, Behaviour::default(), derive::groups(model), collectors)
            .map_err(|message| PlanError::whole("the plan derived from the estate", message))
    }

    /// The share of one of several processes: these collectors, numbered from 0 again, each the same
    /// as in the whole plan. Empty where the plan has none of them.
    pub fn slice(mut self, range: Range<u32>) -> Self {
        let at =
            |number: u32| usize::try_from(number).unwrap_or(usize::MAX).min(self.members.len());
        let share = self.members.get(at(range.start)..at(range.end)).unwrap_or_default().to_vec();
        self.members = share;
        self.first = self.first.saturating_add(range.start);
        self
    }

    /// How many collectors.
    pub fn len(&self) -> u32 {
        u32::try_from(self.members.len()).unwrap_or(u32::MAX)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// How all of them behave.
    pub fn behaviour(&self) -> &Behaviour {
        &self.behaviour
    }

    /// Changes how all of them behave.
    pub fn behaviour_mut(&mut self) -> &mut Behaviour {
        &mut self.behaviour
    }

    /// What a collector says about itself. The same for the same index, always.
    pub fn attributes(&self, index: u32) -> Attributes {
        let (group, number) = self.group_of(index);
        let of_all = self.first.saturating_add(index);
        let fill = |sources: &[(String, Source)]| {
            sources.iter().map(|(key, source)| (key.clone(), source.fill(number, of_all))).collect()
        };
        Attributes {
            identifying: fill(&group.identifying),
            non_identifying: fill(&group.non_identifying),
        }
    }

    /// Whether a collector reports but never accepts a configuration.
    pub fn is_report_only(&self, index: u32) -> bool {
        self.group_of(index).0.report_only
    }

    /// The name of a collector's group.
    pub fn group_name(&self, index: u32) -> &str {
        &self.group_of(index).0.name
    }

    /// A collector's number within its group, from 0.
    pub fn number_in_group(&self, index: u32) -> u32 {
        self.group_of(index).1
    }

    /// Compares every claim of the plan with where the model puts the collectors.
    ///
    /// # Errors
    ///
    /// The first collector that belongs elsewhere than its group says.
    pub fn check_claims(&self, model: &Model) -> Result<(), PlanError> {
        for index in 0..self.len() {
            let (group, _) = self.group_of(index);
            let Some(claim) = &group.claim else { continue };
            let attributes = self.attributes(index);
            let place = model.place(&attributes);
            let tier = model.tier(place).unwrap_or(UNMATCHED);
            if tier != claim.tier {
                return Err(PlanError::whole(
                    &claim.at,
                    format!(
                        "group \"{}\" says tier \"{}\", but the estate puts its collector {index} on \"{tier}\" ({})",
                        group.name,
                        claim.tier,
                        describe(&attributes),
                    ),
                ));
            }
        }
        Ok(())
    }

    fn assemble(
        seed: u64,
        behaviour: Behaviour,
        groups: Vec<Group>,
        collectors: u32,
    ) -> Result<Self, String> {
        let counts = share(&groups, collectors)?;
        let mut members = Vec::new();
        for (group, count) in counts.into_iter().enumerate() {
            let group = u16::try_from(group).map_err(|_| "more than 65,536 groups".to_owned())?;
            members.extend((0..count).map(|number| (group, number)));
        }
        // Kinds arrive mixed, as they do in the field.
        fastrand::Rng::with_seed(seed).shuffle(&mut members);
        Ok(Self { behaviour, groups, members, first: 0 })
    }

    fn group_of(&self, index: u32) -> (&Group, u32) {
        // Callers take indices from 0..len, and members hold numbers of groups.
        let (group, number) = self.members[usize::try_from(index).unwrap_or(usize::MAX)];
        (&self.groups[usize::from(group)], number)
    }
}

impl Source {
    fn fill(&self, number: u32, index: u32) -> Value {
        match self {
            Self::Text(templates) => {
                let at = usize::try_from(number).unwrap_or(usize::MAX);
                let template = templates.get(at).or_else(|| templates.last());
                Value::Text(
                    template.map_or_else(String::new, |template| template.fill(number, index)),
                )
            }
            Self::Fixed(value) => value.clone(),
        }
    }
}

/// `key=value` pairs, identifying ones first, for error texts.
pub(crate) fn describe(attributes: &Attributes) -> String {
    let mut text = String::new();
    for (key, value) in attributes.identifying.iter().chain(&attributes.non_identifying) {
        if !text.is_empty() {
            text.push_str(", ");
        }
        let value = match value {
            Value::Text(value) => value.clone(),
            Value::Integer(value) => value.to_string(),
            Value::Truth(value) => value.to_string(),
        };
        text.push_str(&format!("{key}={value}"));
    }
    text
}

/// What a plan calls the place of collectors that no selector matches.
pub(crate) const UNMATCHED: &str = "unmatched";

/// Counts are taken as they are; the rest is shared out by weight, largest remainder first.
fn share(groups: &[Group], collectors: u32) -> Result<Vec<u32>, String> {
    let mut counts = vec![0_u32; groups.len()];
    let (mut fixed, mut weights) = (0_u64, 0.0_f64);
    for (at, group) in groups.iter().enumerate() {
        match group.size {
            Size::Count(count) => {
                counts[at] = count;
                fixed += u64::from(count);
            }
            Size::Weight(weight) => weights += weight,
        }
    }
    let Some(rest) = u64::from(collectors).checked_sub(fixed) else {
        return Err(format!(
            "the groups' counts are {fixed} in all, but --collectors is {collectors}"
        ));
    };
    if weights <= 0.0 {
        return if rest == 0 {
            Ok(counts)
        } else {
            Err(format!(
                "the groups' counts are {fixed} in all, but --collectors is {collectors}: give one of them a weight in place of its count"
            ))
        };
    }
    let mut remainders = Vec::new();
    let mut given = 0_u64;
    for (at, group) in groups.iter().enumerate() {
        if let Size::Weight(weight) = group.size {
            #[expect(
                clippy::cast_precision_loss,
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a share of at most 2^32 fits both, and rounding goes to the remainder"
            )]
            let (whole, part) = {
                let exact = rest as f64 * weight / weights;
                (exact.floor() as u32, exact - exact.floor())
            };
            counts[at] = whole;
            given += u64::from(whole);
            remainders.push((part, at));
        }
    }
    remainders.sort_by(|one, other| other.0.total_cmp(&one.0).then(one.1.cmp(&other.1)));
    let left = usize::try_from(rest.saturating_sub(given)).unwrap_or(usize::MAX);
    for (_, at) in remainders.iter().cycle().take(left) {
        counts[*at] += 1;
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use render::tree::Tree;

    use super::*;
    use crate::model::Arm;

    #[test]
    fn a_derived_plan_reaches_every_tier_every_arm_and_nobody() {
        let estate = crate::testing::estate();
        estate.set_stage(1);
        let model = model(estate.path());
        let plan = Plan::derive(&model, 200).unwrap();
        let mut reached = BTreeSet::new();
        let mut lacking = 0;
        for index in 0..plan.len() {
            let attributes = plan.attributes(index);
            let place = model.place(&attributes);
            reached
                .insert((model.tier(place).map(str::to_owned), format!("{:?}", model.arm(place))));
            if model.arm(place) != Arm::Unmatched && !attributes.flat().contains_key("host.name") {
                lacking += 1;
            }
        }
        let expected = [
            (None, "Unmatched"),
            (Some("team/one"), "Base"),
            (Some("team/one"), "Candidate"),
            (Some("team/two"), "Base"),
        ];
        let expected = expected.map(|(tier, arm)| (tier.map(str::to_owned), arm.to_owned()));
        assert_eq!(reached, BTreeSet::from(expected));
        assert!(lacking > 0);
        let hosts: BTreeSet<_> = (0..plan.len())
            .filter_map(|index| {
                plan.attributes(index).flat().get("host.name").map(|host| (*host).to_owned())
            })
            .collect();
        assert!(hosts.contains("trusted"));
    }

    #[test]
    fn shares_of_a_plan_are_the_plan() {
        let estate = crate::testing::estate();
        let model = model(estate.path());
        let whole = Plan::derive(&model, 100).unwrap();
        for range in [0..100, 0..33, 33..66, 66..100, 50..50, 90..120] {
            let share = whole.clone().slice(range.clone());
            let expected: Vec<_> =
                range.filter(|index| *index < 100).map(|index| whole.attributes(index)).collect();
            let got: Vec<_> = (0..share.len()).map(|index| share.attributes(index)).collect();
            assert_eq!(got, expected);
        }
    }

    #[test]
    fn the_shipped_plan_fits_the_demo_estate() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(root.join("plans/demo.toml")).unwrap();
        let plan = Plan::parse(&text, "plans/demo.toml", 1_000).unwrap();
        assert_eq!(plan.len(), 1_000);
        plan.check_claims(&model(&root.join("../fixtures/estates/demo"))).unwrap();
    }

    #[test]
    fn shares_follow_the_weights_and_add_up() {
        let check = |sizes: &[Size], collectors: u32, expected: Result<&[u32], &str>| {
            let groups: Vec<_> = sizes
                .iter()
                .map(|size| Group {
                    name: "g".to_owned(),
                    size: *size,
                    claim: None,
                    report_only: false,
                    identifying: Vec::new(),
                    non_identifying: Vec::new(),
                })
                .collect();
            match (share(&groups, collectors), expected) {
                (Ok(got), Ok(expected)) => assert_eq!(got, expected),
                (Err(got), Err(expected)) => assert!(got.contains(expected), "{got}"),
                (got, expected) => panic!("{got:?} is not {expected:?}"),
            }
        };
        use Size::{Count, Weight};
        check(&[Weight(1.0), Weight(2.0)], 9, Ok(&[3, 6]));
        check(&[Weight(1.0), Weight(1.0), Weight(1.0)], 5, Ok(&[2, 2, 1]));
        check(&[Count(4), Weight(1.0)], 10, Ok(&[4, 6]));
        check(&[Count(4), Count(6)], 10, Ok(&[4, 6]));
        check(&[Count(4)], 10, Err("give one of them a weight"));
        check(&[Count(40), Weight(1.0)], 10, Err("40 in all"));
    }

    #[test]
    fn a_claim_that_the_estate_does_not_keep_is_told_with_its_place() {
        let estate = crate::testing::estate();
        let text = "[[group]]\nname = \"a\"\nweight = 1\ntier = \"team/two\"\nidentifying = { \"service.name\" = \"one\" }\n";
        let plan = Plan::parse(text, "p.toml", 3).unwrap();
        let error = plan.check_claims(&model(estate.path())).unwrap_err().to_string();
        assert_eq!(
            error,
            "p.toml:4:8: group \"a\" says tier \"team/two\", but the estate puts its collector 0 on \"team/one\" (service.name=one)"
        );
    }

    fn model(path: &Path) -> Model {
        Model::read(&Tree::read_dir(path, "estate").unwrap()).unwrap()
    }
}
