//! What an author should know although it refuses nothing (estate.md 2.7 and decision 11).

use std::fmt;

use crate::estate::Name;
use crate::problem::printable;

/// What a finding is about; the word after `finding` in the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FindingKind {
    /// A Component reference that does not hold (estate.md 1.7, the four cases).
    Reference,
    /// A binding pinned to another version than the Blueprint's head.
    Binding,
    /// A component below the stability floor, or a Service whose class is not ranked.
    Floor,
    /// A Rollout that cannot reach everybody, or may miss some (decision 11).
    Rollout,
    /// An artefact whose identity is weaker than it should be (decision 9).
    Artefact,
    /// Selectors with more distinct key sets than is cheap to match (decision 17).
    Selector,
}

impl FindingKind {
    /// As printed.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reference => "reference",
            Self::Binding => "binding",
            Self::Floor => "floor",
            Self::Rollout => "rollout",
            Self::Artefact => "artefact",
            Self::Selector => "selector",
        }
    }
}

/// The object a finding is filed under.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// Found while loading.
    Blueprint(Name),
    /// Found about a Tier.
    Tier(Name),
    /// Found about the estate as a whole.
    Estate,
}

/// One finding. Displays as `finding <kind> <subject>[ lane=<lane>]: <text>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What it is about.
    pub kind: FindingKind,
    /// Whom it concerns.
    pub subject: Subject,
    /// A signal, `extensions`, or nothing.
    pub lane: Option<&'static str>,
    /// One or more sentences.
    pub text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "finding {}", self.kind.as_str())?;
        match &self.subject {
            Subject::Blueprint(id) => write!(f, " blueprint={id}")?,
            Subject::Tier(id) => write!(f, " tier={id}")?,
            Subject::Estate => {}
        }
        if let Some(lane) = self.lane {
            write!(f, " lane={lane}")?;
        }
        write!(f, ": {}", printable(&self.text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_one_line() {
        let text = "hashes over a\nfinding forged".to_owned();
        let finding =
            Finding { kind: FindingKind::Rollout, subject: Subject::Estate, lane: None, text };
        assert_eq!(finding.to_string(), "finding rollout: hashes over a\\nfinding forged");
    }
}
