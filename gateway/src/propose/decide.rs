//! What is to be done about a branch: a function of what is on it and what is wanted
//! (rollouts.md, decision 21).

use render::rollout::proposal::Key;

/// A branch of ours on the remote, as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its tip.
    pub tip: String,
    /// The newest proposal on it that is not in head yet.
    pub key: Option<Key>,
    /// Whether somebody else's commit is on it that is not in head.
    pub foreign: bool,
    /// Whether all of it is in head.
    pub merged: bool,
}

/// What to do with a branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing is there and nothing is wanted, or what is there is history.
    Nothing,
    /// The proposal is there already, whoever pushed it and whatever was added since.
    Present(String),
    /// Push; what is on the remote must still be this.
    Push(Option<String>),
    /// Delete it, if the remote still has this.
    Delete(String),
    /// It holds what nobody wants, and a commit of somebody's: they decide.
    Stale(String),
}

/// The branch is to hold the proposal of `key`.
pub fn wanted(seen: Option<&Seen>, key: &Key) -> Action {
    let Some(Seen { tip, key: found, foreign, merged }) = seen else { return Action::Push(None) };
    let tip = tip.clone();
    if *merged {
        Action::Push(Some(tip))
    } else if found.as_ref().is_some_and(|found| found.is_same(key)) {
        Action::Present(tip)
    } else if *foreign {
        Action::Stale(tip)
    } else {
        Action::Push(Some(tip))
    }
}

/// The verdict behind whatever is on the branch does not hold.
pub fn unwanted(seen: Option<&Seen>) -> Action {
    match seen {
        None | Some(Seen { merged: true, .. }) => Action::Nothing,
        Some(Seen { tip, foreign: true, .. }) => Action::Stale(tip.clone()),
        Some(Seen { tip, .. }) => Action::Delete(tip.clone()),
    }
}

#[cfg(test)]
mod tests {
    use render::rollout::proposal::Kind;

    use super::*;

    fn key(stage: u32) -> Key {
        Key {
            kind: Kind::Advance,
            rollout: "a/b".to_owned(),
            stage,
            candidate: "c".to_owned(),
            origin: None,
            since_ms: Some(1),
        }
    }

    fn seen(key: Option<Key>, foreign: bool, merged: bool) -> Option<Seen> {
        Some(Seen { tip: "tip".to_owned(), key, foreign, merged })
    }

    #[test]
    fn a_proposal_is_pushed_once() {
        let tip = || "tip".to_owned();
        assert_eq!(wanted(None, &key(1)), Action::Push(None));
        let check = |seen: Option<Seen>, action| assert_eq!(wanted(seen.as_ref(), &key(1)), action);
        check(seen(Some(key(1)), false, false), Action::Present(tip()));
        check(seen(Some(key(1)), true, false), Action::Present(tip()));
        check(seen(Some(key(0)), false, false), Action::Push(Some(tip())));
        check(seen(Some(key(0)), true, false), Action::Stale(tip()));
        check(seen(None, true, false), Action::Stale(tip()));
        check(seen(None, false, true), Action::Push(Some(tip())));
    }

    #[test]
    fn only_what_is_ours_alone_is_withdrawn() {
        let tip = || "tip".to_owned();
        assert_eq!(unwanted(None), Action::Nothing);
        let check = |seen: Option<Seen>, action| assert_eq!(unwanted(seen.as_ref()), action);
        check(seen(None, false, true), Action::Nothing);
        check(seen(Some(key(1)), false, false), Action::Delete(tip()));
        check(seen(Some(key(1)), true, false), Action::Stale(tip()));
        check(seen(None, true, false), Action::Stale(tip()));
    }
}
