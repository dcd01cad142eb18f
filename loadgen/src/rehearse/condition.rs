//! What steps wait for and scenarios demand, as short sentences: `verdict hold`, `failed 1`,
//! `to 20+`, `branch advance-2`, `no brake`.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use render::rollout::report::RolloutReport;
use render::rollout::verdict::{Counts, Kind};
use serde::Deserialize;

use super::sequence::kind;
use crate::duration;

/// One condition.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Condition {
    text: String,
    negated: bool,
    fact: Fact,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Fact {
    Verdict(Kind),
    Brake,
    Gone,
    Connected,
    Proposal(Option<String>),
    Branch { name: String, at: Option<String> },
    Branches,
    SoaksSince(String),
    Soaked(Duration),
    Log(String),
    Figure { figure: Figure, value: u64, or_more: bool },
}

/// A figure of a report, or of the rehearsal itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Figure {
    Stage,
    Seen,
    Taking,
    To,
    From,
    Other,
    Unknown,
    Failed,
    Dark,
    Unobserved,
    Left,
    Control,
    ControlDark,
    ForeignTo,
    ForeignFrom,
    ForeignOther,
    Duplicates,
    Halted,
    /// FAILED reports that the gateway acknowledged.
    Failures,
    Links,
}

const FIGURES: [(&str, Figure); 20] = [
    ("stage", Figure::Stage),
    ("seen", Figure::Seen),
    ("taking", Figure::Taking),
    ("to", Figure::To),
    ("from", Figure::From),
    ("other", Figure::Other),
    ("unknown", Figure::Unknown),
    ("failed", Figure::Failed),
    ("dark", Figure::Dark),
    ("unobserved", Figure::Unobserved),
    ("left", Figure::Left),
    ("control", Figure::Control),
    ("control-dark", Figure::ControlDark),
    ("foreign-to", Figure::ForeignTo),
    ("foreign-from", Figure::ForeignFrom),
    ("foreign-other", Figure::ForeignOther),
    ("duplicates", Figure::Duplicates),
    ("halted", Figure::Halted),
    ("failures", Figure::Failures),
    ("links", Figure::Links),
];

/// A step that was taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// When it began, in milliseconds since 1970.
    pub unix_ms: u64,
    /// What it committed.
    pub commit: Option<String>,
}

/// What is known at a moment.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// The newest report.
    pub report: Option<RolloutReport>,
    /// The Rollout is not at head.
    pub gone: bool,
    /// Tips of its branches, by the last part of their names.
    pub branches: BTreeMap<String, String>,
    /// Steps that have names.
    pub marks: BTreeMap<String, Mark>,
    /// Every collector that runs is connected and was answered.
    pub connected: bool,
    /// Links that are up.
    pub links: u64,
    /// FAILED reports acknowledged.
    pub failures: u64,
    /// What gateways wrote on stderr.
    pub log: String,
    /// A gateway said something that cannot be understood.
    pub garbled: Option<String>,
}

impl Condition {
    /// Whether it holds.
    pub fn holds(&self, known: &Known) -> bool {
        self.fact.holds(known) != self.negated
    }

    /// `connected`
    pub(crate) fn connected() -> Self {
        Self { text: "connected".to_owned(), negated: false, fact: Fact::Connected }
    }

    /// The step that it speaks of.
    pub fn step(&self) -> Option<&str> {
        match &self.fact {
            Fact::SoaksSince(step) | Fact::Branch { at: Some(step), .. } => Some(step),
            _ => None,
        }
    }
}

impl Fact {
    fn holds(&self, known: &Known) -> bool {
        let report = known.report.as_ref().filter(|_| !known.gone);
        match self {
            Self::Verdict(kind) => report.is_some_and(|report| report.verdict.kind == *kind),
            Self::Brake => report.is_some_and(|report| report.braked_since_ms.is_some()),
            Self::Gone => known.gone,
            Self::Connected => known.connected,
            Self::Proposal(state) => {
                report.and_then(|report| report.proposal.as_ref()).is_some_and(|proposal| {
                    state.as_ref().is_none_or(|state| *state == proposal.state)
                })
            }
            Self::Branch { name, at } => known.branches.get(name).is_some_and(|tip| {
                at.as_ref().is_none_or(|step| {
                    known.marks.get(step).and_then(|mark| mark.commit.as_ref()) == Some(tip)
                })
            }),
            Self::Branches => !known.branches.is_empty(),
            Self::SoaksSince(step) => {
                // Git dates commits in whole seconds.
                let since = known.marks.get(step).map(|mark| mark.unix_ms / 1_000 * 1_000);
                report.zip(since).is_some_and(|(report, since)| report.times.soak_since_ms >= since)
            }
            Self::Soaked(least) => report
                .is_some_and(|report| u128::from(report.verdict.soaked_ms) >= least.as_millis()),
            Self::Log(text) => known.log.contains(text),
            Self::Figure { figure, value, or_more } => figure
                .of(known)
                .is_some_and(|figure| figure == *value || (*or_more && figure > *value)),
        }
    }
}

impl Figure {
    /// `None` while nothing tells it.
    fn of(self, known: &Known) -> Option<u64> {
        match self {
            Self::Failures => return Some(known.failures),
            Self::Links => return Some(known.links),
            _ => {}
        }
        let report = known.report.as_ref().filter(|_| !known.gone)?;
        let tally = &report.tally;
        let sum = |count: fn(&Counts) -> u64| tally.stages.iter().map(count).sum();
        Some(match self {
            Self::Stage => u64::from(report.terms.stage),
            Self::Seen => sum(|counts| counts.seen),
            Self::Taking => sum(|counts| counts.taking),
            Self::To => sum(|counts| counts.to),
            Self::From => sum(|counts| counts.from),
            Self::Other => sum(|counts| counts.other),
            Self::Unknown => sum(|counts| counts.unknown),
            Self::Failed => sum(|counts| counts.failed),
            Self::Dark => sum(|counts| counts.dark),
            Self::Unobserved => sum(|counts| counts.unobserved),
            Self::Left => sum(|counts| counts.left),
            Self::Control => tally.control.seen,
            Self::ControlDark => tally.control.dark,
            Self::ForeignTo => tally.foreign.to,
            Self::ForeignFrom => tally.foreign.from,
            Self::ForeignOther => tally.foreign.other,
            Self::Duplicates => tally.duplicates,
            Self::Halted => report.halted.len() as u64,
            Self::Failures => known.failures,
            Self::Links => known.links,
        })
    }
}

impl TryFrom<String> for Condition {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let (negated, rest) = match text.strip_prefix("no ") {
            Some(rest) => (true, rest),
            None => (false, text.as_str()),
        };
        let words: Vec<&str> = rest.split_whitespace().collect();
        let fact = match *words.as_slice() {
            ["verdict", name] => Fact::Verdict(kind(name)?),
            ["brake"] => Fact::Brake,
            ["gone"] => Fact::Gone,
            ["connected"] => Fact::Connected,
            ["proposal"] => Fact::Proposal(None),
            ["proposal", state] => Fact::Proposal(Some(state.to_owned())),
            ["branch", name] => Fact::Branch { name: name.to_owned(), at: None },
            ["branch", name, "at", step] => {
                Fact::Branch { name: name.to_owned(), at: Some(step.to_owned()) }
            }
            ["branches"] => Fact::Branches,
            ["soaks", "since", step] => Fact::SoaksSince(step.to_owned()),
            ["soaked", least] => Fact::Soaked(duration::parse(least)?),
            ["log", ..] => Fact::Log(rest["log".len()..].trim().to_owned()),
            [name, value] => figure(name, value).ok_or_else(|| unknown(&text))?,
            _ => return Err(unknown(&text)),
        };
        Ok(Self { negated, fact, text })
    }
}

fn figure(name: &str, value: &str) -> Option<Fact> {
    let (_, figure) = FIGURES.iter().find(|(known, _)| *known == name)?;
    let (digits, or_more) = value.strip_suffix('+').map_or((value, false), |less| (less, true));
    Some(Fact::Figure { figure: *figure, value: digits.parse().ok()?, or_more })
}

fn unknown(text: &str) -> String {
    let figures: Vec<&str> = FIGURES.iter().map(|(name, _)| *name).collect();
    format!(
        "\"{text}\" is no condition: there are verdict KIND, brake, gone, connected, proposal [STATE], branch NAME [at STEP], branches, soaks since STEP, soaked DURATION, log TEXT, and a figure with a number or a number and + ({}); \"no \" before any of them says the opposite",
        figures.join(", ")
    )
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Condition, String> {
        Condition::try_from(text.to_owned())
    }

    #[test]
    fn every_kind_of_condition_is_read_and_what_is_none_is_refused() {
        for text in [
            "verdict hold",
            "no brake",
            "gone",
            "connected",
            "proposal",
            "proposal retrying",
            "branch advance-2",
            "no branch abort-1",
            "branch advance-2 at human",
            "no branches",
            "soaks since merged",
            "soaked 1500ms",
            "log cannot push",
            "to 20+",
            "failed 1",
        ] {
            assert_eq!(parse(text).unwrap().to_string(), text);
        }
        for text in ["", "verdict", "verdict maybe", "to", "to many", "to 1+ 2", "soaked long"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_condition_on_a_report_does_not_hold_without_one_and_its_opposite_does() {
        let known = Known::default();
        assert!(!parse("verdict hold").unwrap().holds(&known));
        assert!(parse("no brake").unwrap().holds(&known));
        assert!(!parse("to 0").unwrap().holds(&known));
        assert!(parse("failures 0").unwrap().holds(&known));
    }

    #[test]
    fn a_branch_is_compared_with_what_a_step_committed() {
        let mark = Mark { unix_ms: 1, commit: Some("abc".to_owned()) };
        let mut known = Known::default();
        known.marks.insert("human".to_owned(), mark);
        known.branches.insert("advance-2".to_owned(), "abc".to_owned());
        assert!(parse("branch advance-2 at human").unwrap().holds(&known));
        known.branches.insert("advance-2".to_owned(), "def".to_owned());
        assert!(parse("branch advance-2").unwrap().holds(&known));
        assert!(!parse("branch advance-2 at human").unwrap().holds(&known));
        assert!(!parse("no branches").unwrap().holds(&known));
    }
}
