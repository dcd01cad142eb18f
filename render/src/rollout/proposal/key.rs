//! What a proposal was made for, as a trailer of its commit: the evidence key without identity, the
//! stage and its start (rollouts.md, decisions 20 and 21).

use std::fmt;

use super::Kind;
use crate::rollout::evidence::Millis;

/// The trailer's token.
pub const TRAILER: &str = "Tidegate-Key";

/// Tells the proposals of one state of a Rollout from those of any other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// What was proposed.
    pub kind: Kind,
    /// `team/name`.
    pub rollout: String,
    /// Index of the active stage.
    pub stage: u32,
    /// Content hash of the candidate, hex.
    pub candidate: String,
    /// The commit that added the Rollout's file, where history tells.
    pub origin: Option<String>,
    /// When the stage began, where history tells: the committer date as it stands in the commit, so
    /// that every replica says the same.
    pub since_ms: Option<Millis>,
}

impl Key {
    /// Whether both are of one state of a Rollout. What history did not tell one of them (a clone
    /// that could not be deepened) is no difference: replicas must not replace each other's work.
    pub fn is_same(&self, other: &Self) -> bool {
        let Self { kind, rollout, stage, candidate, origin, since_ms } = self;
        (kind, rollout, stage, candidate)
            == (&other.kind, &other.rollout, &other.stage, &other.candidate)
            && (origin.is_none() || other.origin.is_none() || *origin == other.origin)
            && (since_ms.is_none() || other.since_ms.is_none() || *since_ms == other.since_ms)
    }

    /// Out of a commit message: its last line must be the trailer.
    pub fn from_message(message: &str) -> Option<Self> {
        Self::parse(trailer(message)?)
    }

    /// Whether the message's last line is the trailer, readable or not: another version may write
    /// other keys.
    pub fn is_in_message(message: &str) -> bool {
        trailer(message).is_some()
    }

    /// Reads what [`Key`] displays as.
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let kind = Kind::parse(words.next()?)?;
        let rollout = words.next()?.to_owned();
        let mut value = |name: &str| words.next()?.strip_prefix(name)?.strip_prefix('=');
        let stage = value("stage")?.parse().ok()?;
        let candidate = value("candidate")?.to_owned();
        let known = |text: &str| (text != "-").then(|| text.to_owned());
        let origin = known(value("origin")?);
        let since_ms = known(value("since")?).map(|text| text.parse()).transpose().ok()?;
        let whole = words.next().is_none();
        whole.then_some(Self { kind, rollout, stage, candidate, origin, since_ms })
    }
}

fn trailer(message: &str) -> Option<&str> {
    message.trim_end().lines().next_back()?.strip_prefix(TRAILER)?.strip_prefix(": ")
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, rollout, stage, candidate, origin, since_ms } = self;
        let origin = origin.as_deref().unwrap_or("-");
        write!(
            f,
            "{} {rollout} stage={stage} candidate={candidate} origin={origin}",
            kind.label()
        )?;
        match since_ms {
            Some(since_ms) => write!(f, " since={since_ms}"),
            None => f.write_str(" since=-"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Key {
        Key {
            kind: Kind::Advance,
            rollout: "data-flow/bridge-canary".to_owned(),
            stage: 1,
            candidate: "ab".repeat(32),
            origin: Some("c0ffee".to_owned()),
            since_ms: Some(1_700_000_000_000),
        }
    }

    #[test]
    fn a_trailer_is_read_as_it_was_written() {
        let unknown = Key { origin: None, since_ms: None, ..key() };
        for key in [key(), unknown] {
            let message = format!("Title\n\nBody\n{TRAILER}: forged\n\n{TRAILER}: {key}\n\n");
            assert!(Key::is_in_message(&message));
            assert_eq!(Key::from_message(&message), Some(key));
        }
    }

    #[test]
    fn only_the_last_line_is_the_trailer() {
        let trailer = format!("{TRAILER}: {}", key());
        for message in [
            String::new(),
            "Title\n".to_owned(),
            format!("{trailer}\n\nSigned-off-by: somebody\n"),
            format!("Title\n\n{trailer} more\n"),
            format!("Title\n\n {trailer}\n"),
            format!("Title\n\n{TRAILER}: advance a/b stage=x candidate=c origin=- since=-\n"),
        ] {
            assert_eq!(Key::from_message(&message), None, "{message:?}");
        }
    }

    #[test]
    fn a_key_of_another_version_is_a_trailer_all_the_same() {
        assert!(Key::is_in_message(&format!("Title\n\n{TRAILER}: v2 whatever\n")));
        assert!(!Key::is_in_message(&format!("Title\n\n{TRAILER}: x\n\nSigned-off-by: y\n")));
        assert!(!Key::is_in_message(""));
    }

    #[test]
    fn what_history_did_not_tell_is_no_difference() {
        let unknown = Key { origin: None, since_ms: None, ..key() };
        assert!(key().is_same(&key()) && key().is_same(&unknown) && unknown.is_same(&key()));
        for other in [
            Key { kind: Kind::Complete, ..key() },
            Key { rollout: "a/b".to_owned(), ..key() },
            Key { stage: 2, ..key() },
            Key { candidate: "cd".repeat(32), ..key() },
            Key { origin: Some("decaf".to_owned()), ..key() },
            Key { since_ms: Some(1), ..key() },
        ] {
            assert!(!key().is_same(&other) && !other.is_same(&key()), "{other}");
        }
    }
}
