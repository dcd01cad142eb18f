//! What halts a Cohort member (rollouts.md, decisions 10 to 12): an open list of conditions.
//!
//! Another condition is another type here and another entry in [`CONDITIONS`]; nothing else asks
//! which ones there are.

use super::evidence::Millis;

/// What a condition may look at: one served Cohort member at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Its last word about the candidate is FAILED.
    pub failed_now: bool,
    /// It took the candidate at some time.
    pub took_candidate: bool,
    /// It is silent for as long as the Rollout demands, and said no farewell.
    pub silence: Option<Silence>,
}

/// A silence that has lasted long enough to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silence {
    /// When it began.
    pub began_ms: Millis,
    /// Whether it began while the candidate was on trial in this collector, in the active stage or
    /// an earlier one.
    pub in_window: bool,
}

/// Something that blocks the advance when it holds for a Cohort member.
pub trait Condition: Sync {
    /// As it is written in metrics, reports and proposals.
    fn name(&self) -> &'static str;

    /// Whether it holds.
    fn holds(&self, facts: &Facts) -> bool;

    /// Whether an outage brings it about as well, so that only what goes beyond the control
    /// group's rate counts towards an abort.
    fn outage_explains(&self) -> bool;
}

/// The conditions that ship. A member has the first one that holds.
pub static CONDITIONS: [&dyn Condition; 2] = [&Failed, &WentDark];

/// The condition that a member has.
pub fn first_that_holds(facts: &Facts) -> Option<&'static dyn Condition> {
    CONDITIONS.iter().copied().find(|condition| condition.holds(facts))
}

/// It reported FAILED for the candidate's content hash (decision 10).
struct Failed;

impl Condition for Failed {
    fn name(&self) -> &'static str {
        "failed"
    }

    fn holds(&self, facts: &Facts) -> bool {
        facts.failed_now
    }

    fn outage_explains(&self) -> bool {
        false
    }
}

/// It took the candidate and then fell silent (decision 11): a crash loop never reports FAILED.
struct WentDark;

impl Condition for WentDark {
    fn name(&self) -> &'static str {
        "went_dark"
    }

    fn holds(&self, facts: &Facts) -> bool {
        facts.took_candidate && facts.silence.is_some_and(|silence| silence.in_window)
    }

    fn outage_explains(&self) -> bool {
        true
    }
}
