//! A sequence of verdicts, and whether it is the one that was expected.

use std::fmt;

use render::rollout::verdict::Kind;
use serde::Deserialize;

/// What must be seen, in order; `hold?` may be missing.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Vec<String>")]
pub struct Expected(Vec<Item>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Item {
    kind: Kind,
    optional: bool,
}

impl TryFrom<Vec<String>> for Expected {
    type Error = String;

    fn try_from(texts: Vec<String>) -> Result<Self, String> {
        let item = |text: &String| {
            let (name, optional) =
                text.strip_suffix('?').map_or((text.as_str(), false), |name| (name, true));
            Ok(Item { kind: kind(name)?, optional })
        };
        texts.iter().map(item).collect::<Result<_, _>>().map(Self)
    }
}

/// A verdict by its name.
///
/// # Errors
///
/// The names that there are.
pub fn kind(name: &str) -> Result<Kind, String> {
    Kind::ALL.into_iter().find(|kind| kind.label() == name).ok_or_else(|| {
        let names: Vec<_> = Kind::ALL.iter().map(|kind| kind.label()).collect();
        format!("\"{name}\" is no verdict: there are {}", names.join(", "))
    })
}

impl Expected {
    /// Whether `seen`, without repeats in a row, is such a sequence.
    ///
    /// # Errors
    ///
    /// The first place at which it is not.
    pub fn matches(&self, seen: &[Kind]) -> Result<(), String> {
        // Which items may come next, for each prefix of `seen`: few of either, so plainly.
        let mut at = vec![0_usize];
        let reach = |from: &[usize]| {
            let mut all = from.to_vec();
            let mut next = 0;
            while next < all.len() {
                let item = all[next];
                if self.0.get(item).is_some_and(|item| item.optional) && !all.contains(&(item + 1))
                {
                    all.push(item + 1);
                }
                next += 1;
            }
            all
        };
        for (number, kind) in seen.iter().enumerate() {
            let next: Vec<usize> = reach(&at)
                .into_iter()
                .filter(|item| self.0.get(*item).is_some_and(|item| item.kind == *kind))
                .map(|item| item + 1)
                .collect();
            if next.is_empty() {
                return Err(format!(
                    "verdict {} is {}, which is not expected there: expected {self}, seen {}",
                    number + 1,
                    kind.label(),
                    labels(seen)
                ));
            }
            at = next;
        }
        if reach(&at).contains(&self.0.len()) {
            Ok(())
        } else {
            Err(format!("verdicts are missing: expected {self}, seen {}", labels(seen)))
        }
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, item) in self.0.iter().enumerate() {
            let comma = if number == 0 { "" } else { ", " };
            let mark = if item.optional { "?" } else { "" };
            write!(f, "{comma}{}{mark}", item.kind.label())?;
        }
        Ok(())
    }
}

fn labels(kinds: &[Kind]) -> String {
    kinds.iter().map(|kind| kind.label()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn optional_verdicts_may_be_missing_and_nothing_else_may() {
        let check = |expected: &[&str], seen: &[&str], fits: bool| {
            let texts: Vec<String> = expected.iter().map(|text| (*text).to_owned()).collect();
            let expected = Expected::try_from(texts).unwrap();
            let seen: Vec<Kind> = seen.iter().map(|name| kind(name).unwrap()).collect();
            assert_eq!(expected.matches(&seen).is_ok(), fits, "{expected} against {seen:?}");
        };
        check(&["inconclusive?", "hold", "advance"], &["hold", "advance"], true);
        check(&["inconclusive?", "hold", "advance"], &["inconclusive", "hold", "advance"], true);
        check(&["hold", "advance"], &["inconclusive", "hold", "advance"], false);
        check(&["hold", "advance"], &["hold"], false);
        check(&["hold", "advance"], &["hold", "advance", "hold"], false);
        check(&["hold?", "blocked?", "hold"], &["hold"], true);
        check(&["hold", "blocked?", "hold?"], &["hold", "blocked", "hold"], true);
        check(&[], &[], true);
        check(&["hold?"], &[], true);
    }

    #[test]
    fn a_name_that_is_no_verdict_is_told_the_names_there_are() {
        let error = Expected::try_from(vec!["holt".to_owned()]).unwrap_err();
        assert_eq!(
            error,
            "\"holt\" is no verdict: there are abort, blocked, inconclusive, hold, advance, complete"
        );
    }
}
