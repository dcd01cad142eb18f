//! When a stage and its soak began (rollouts.md, decision 15).

use render::rollout::evidence::Millis;
use render::rollout::verdict::Told;

use super::store::Sight;

/// A Rollout as a head has it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look<'a> {
    pub(super) origin: Option<&'a str>,
    pub(super) stage: u32,
    /// Hex.
    pub(super) candidate: &'a str,
    /// When history says that the stage began.
    pub(super) history_ms: Option<Millis>,
    pub(super) soak_ms: Millis,
    pub(super) dark_after_ms: Millis,
}

/// When what began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Began {
    pub(super) stage_since_ms: Millis,
    pub(super) stage_since: Told,
    pub(super) candidate_since_ms: Option<Millis>,
    pub(super) soak_since_ms: Millis,
    /// When the window of an earlier soak closed; 0: there was none.
    pub(super) earlier_until_ms: Millis,
}

/// Takes in how a head has a Rollout. What was seen under another origin was another Rollout.
pub(super) fn look(before: Option<&Sight>, now_ms: Millis, look: &Look<'_>) -> (Sight, Began) {
    let same_origin = |sight: &&Sight| match (sight.origin.as_deref(), look.origin) {
        (Some(before), Some(now)) => before == now,
        // Without history nobody can tell.
        (None, _) | (_, None) => true,
    };
    let fresh = Sight {
        origin: look.origin.map(Into::into),
        stage: look.stage,
        stage_ms: now_ms,
        stage_changed: false,
        candidate: look.candidate.into(),
        candidate_ms: None,
        soak_since_ms: 0,
        window_until_ms: 0,
        earlier_until_ms: 0,
        left_ms: None,
    };
    let mut sight = before.filter(same_origin).cloned().unwrap_or(fresh);
    sight.left_ms = None;
    if look.origin.is_some() {
        sight.origin = look.origin.map(Into::into);
    }
    // A file that was written while the clock was ahead.
    sight.stage_ms = sight.stage_ms.min(now_ms);
    sight.candidate_ms = sight.candidate_ms.map(|ms| ms.min(now_ms));
    if sight.stage != look.stage {
        (sight.stage, sight.stage_ms, sight.stage_changed) = (look.stage, now_ms, true);
    }
    if *sight.candidate != *look.candidate {
        (sight.candidate, sight.candidate_ms) = (look.candidate.into(), Some(now_ms));
    }
    let (stage_since_ms, stage_since) = match look.history_ms.map(|ms| ms.min(now_ms)) {
        Some(history) if !sight.stage_changed || history >= sight.stage_ms => {
            (history, Told::History)
        }
        Some(_) | None => (sight.stage_ms, Told::Sight),
    };
    let soak_since_ms = stage_since_ms.max(sight.candidate_ms.unwrap_or(0));
    if sight.soak_since_ms != 0 && sight.soak_since_ms != soak_since_ms {
        let closed = sight.window_until_ms.min(soak_since_ms);
        sight.earlier_until_ms = sight.earlier_until_ms.max(closed);
    }
    sight.soak_since_ms = soak_since_ms;
    sight.window_until_ms =
        soak_since_ms.saturating_add(look.soak_ms).saturating_add(look.dark_after_ms);
    let began = Began {
        stage_since_ms,
        stage_since,
        candidate_since_ms: sight.candidate_ms,
        soak_since_ms,
        earlier_until_ms: sight.earlier_until_ms,
    };
    (sight, began)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK: Look<'_> = Look {
        origin: Some("a"),
        stage: 0,
        candidate: "c",
        history_ms: None,
        soak_ms: 100,
        dark_after_ms: 10,
    };

    #[test]
    fn without_history_the_first_sight_counts() {
        let (_, began) = look(None, 1_000, &LOOK);
        assert_eq!((began.soak_since_ms, began.stage_since), (1_000, Told::Sight));
        let (sight, _) = look(None, 1_000, &LOOK);
        let (_, began) = look(Some(&sight), 2_000, &LOOK);
        assert_eq!(began.soak_since_ms, 1_000);
    }

    #[test]
    fn history_counts_from_the_merge_but_never_from_the_future() {
        let (_, began) = look(None, 1_000, &Look { history_ms: Some(400), ..LOOK });
        assert_eq!((began.soak_since_ms, began.stage_since), (400, Told::History));
        let (_, began) = look(None, 1_000, &Look { history_ms: Some(9_000), ..LOOK });
        assert_eq!(began.soak_since_ms, 1_000);
    }

    #[test]
    fn a_proposal_committed_long_before_its_merge_soaks_from_when_it_was_seen() {
        let (sight, _) = look(None, 1_000, &Look { history_ms: Some(400), ..LOOK });
        let advanced = Look { stage: 1, history_ms: Some(500), ..LOOK };
        let (sight, began) = look(Some(&sight), 5_000, &advanced);
        assert_eq!((began.soak_since_ms, began.stage_since), (5_000, Told::Sight));
        // Also when it is looked at again.
        let (_, began) = look(Some(&sight), 6_000, &advanced);
        assert_eq!(began.soak_since_ms, 5_000);
    }

    #[test]
    fn a_changed_candidate_soaks_anew_and_keeps_its_stage() {
        let (sight, _) = look(None, 1_000, &LOOK);
        let changed = Look { candidate: "d", ..LOOK };
        let (_, began) = look(Some(&sight), 3_000, &changed);
        assert_eq!((began.stage_since_ms, began.soak_since_ms), (1_000, 3_000));
        assert_eq!(began.candidate_since_ms, Some(3_000));
    }

    #[test]
    fn the_window_of_the_soak_before_is_remembered_as_far_as_it_was_open() {
        let (sight, _) = look(None, 1_000, &LOOK);
        let advanced = Look { stage: 1, ..LOOK };
        let (early, began) = look(Some(&sight), 1_050, &advanced);
        assert_eq!(began.earlier_until_ms, 1_050, "it was still open");
        let (_, began) = look(Some(&sight), 3_000, &advanced);
        assert_eq!(began.earlier_until_ms, 1_110);
        let (_, began) = look(Some(&early), 9_000, &Look { stage: 2, ..LOOK });
        assert_eq!(began.earlier_until_ms, 1_160);
    }

    #[test]
    fn a_re_authored_rollout_begins_anew() {
        let (sight, _) = look(None, 1_000, &LOOK);
        let (fresh, began) = look(Some(&sight), 2_000, &Look { origin: Some("b"), ..LOOK });
        assert_eq!((began.soak_since_ms, fresh.stage_changed), (2_000, false));
        let (_, began) = look(Some(&sight), 2_000, &Look { origin: None, ..LOOK });
        assert_eq!(began.soak_since_ms, 1_000);
    }
}
