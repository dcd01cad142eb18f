//! How a collector takes an offer, and how it misbehaves otherwise: decided here, in one place, per
//! collector and offer.

use std::ops::Range;
use std::sync::Arc;

use crate::clock::Micros;
use crate::model::Arm;

/// What becomes of an offer: APPLYING at once, and then this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reaction {
    /// APPLIED that much later.
    Apply {
        /// Microseconds.
        after: Micros,
    },
    /// FAILED that much later.
    Fail {
        /// Microseconds.
        after: Micros,
        /// What it says.
        failure: Failure,
    },
    /// Nothing is heard any more.
    GoDark {
        /// Microseconds from the offer to APPLIED, where it gets that far.
        after: Micros,
        /// How far it gets.
        once: Once,
        /// How it goes.
        how: Vanishing,
    },
}

/// A refusal of an offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The error message of the status.
    pub text: Arc<str>,
    /// Afterwards the collector reports APPLIED for what it ran before, as a Supervisor with
    /// `automatic_config_rollback` does.
    pub rollback: bool,
    /// How long it tries, in microseconds; as long as an apply takes, if absent.
    pub after: Option<Micros>,
}

/// How far a collector gets with an offer before it goes dark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Once {
    /// It took the offer and says nothing; it goes when it would have said APPLIED, so that its
    /// kernel has had the time to acknowledge what came.
    Offered,
    /// It said APPLYING.
    Applying,
    /// It said APPLIED.
    Applied,
}

/// How a collector goes dark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Vanishing {
    /// A WebSocket Close, without a word of OpAMP.
    Close,
    /// A frozen process: the socket stays open, and nobody reads or writes.
    Silence,
    /// A reset connection.
    Kill,
}

/// Which artefact a report-only collector runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Runs {
    /// Its Tier's own.
    Base,
    /// The candidate of its Tier's Rollout; the base where there is none.
    Candidate,
    /// Something else.
    Other,
}

/// Something that a collector does with the offers of one arm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Of which arm; `None` is any.
    pub arm: Option<Arm>,
    /// How many offers are treated so; those after them are taken as usual.
    pub times: u32,
    /// What it does.
    pub does: Does,
}

/// What a fault does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Does {
    /// The offer is refused.
    Fail(Failure),
    /// The collector goes dark.
    GoDark(Once, Vanishing),
    /// The apply takes that long, in microseconds.
    Slow(Micros),
}

/// How one collector behaves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// The first that fits an offer decides.
    pub faults: Vec<Fault>,
    /// It closes its link and comes back that often, in microseconds.
    pub flap: Option<Micros>,
    /// It says at its start that a configuration which nobody offers has failed, with that text.
    pub failed_before: Option<Arc<str>>,
    /// What it runs, where it takes no offers.
    pub runs: Option<Runs>,
}

/// A profile at work: which of its faults are used up.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults(Option<Box<Odd>>);

#[derive(Clone, Debug)]
struct Odd {
    profile: Arc<Profile>,
    used: Vec<u32>,
}

/// Of those who have none: they behave well.
static PLAIN: Profile = Profile { faults: Vec::new(), flap: None, failed_before: None, runs: None };

impl Faults {
    pub(crate) fn new(profile: Arc<Profile>) -> Self {
        let used = vec![0; profile.faults.len()];
        Self(Some(Box::new(Odd { profile, used })))
    }

    pub(crate) fn profile(&self) -> &Profile {
        self.0.as_ref().map_or(&PLAIN, |odd| &odd.profile)
    }

    /// Decides for one offer of an arm.
    pub(crate) fn react(
        &mut self,
        arm: Arm,
        apply_delay: &Range<Micros>,
        rng: &mut fastrand::Rng,
    ) -> Reaction {
        let after = within(apply_delay, rng);
        let Some(odd) = &mut self.0 else { return Reaction::Apply { after } };
        let fits = odd.profile.faults.iter().zip(&mut odd.used).find(|(fault, used)| {
            fault.arm.is_none_or(|wanted| wanted == arm) && **used < fault.times
        });
        let Some((fault, used)) = fits else { return Reaction::Apply { after } };
        *used += 1;
        match &fault.does {
            Does::Fail(failure) => {
                Reaction::Fail { after: failure.after.unwrap_or(after), failure: failure.clone() }
            }
            Does::GoDark(once, how) => Reaction::GoDark { after, once: *once, how: *how },
            Does::Slow(after) => Reaction::Apply { after: *after },
        }
    }
}

/// A random number of the range, its start where it is empty.
fn within(range: &Range<Micros>, rng: &mut fastrand::Rng) -> Micros {
    if range.is_empty() { range.start } else { rng.u64(range.clone()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_takes_the_offers_of_its_arm_as_often_as_it_says() {
        let failure = Failure { text: "no".into(), rollback: true, after: None };
        let profile = Profile {
            faults: vec![
                Fault { arm: Some(Arm::Candidate), times: 2, does: Does::Fail(failure.clone()) },
                Fault { arm: None, times: 1, does: Does::Slow(9) },
            ],
            ..Profile::default()
        };
        let mut faults = Faults::new(Arc::new(profile));
        let mut rng = fastrand::Rng::with_seed(1);
        let mut react = |arm| faults.react(arm, &(5..5), &mut rng);
        assert_eq!(react(Arm::Base), Reaction::Apply { after: 9 });
        assert_eq!(react(Arm::Base), Reaction::Apply { after: 5 });
        let failed = Reaction::Fail { after: 5, failure };
        assert_eq!(react(Arm::Candidate), failed);
        assert_eq!(react(Arm::Candidate), failed);
        assert_eq!(react(Arm::Candidate), Reaction::Apply { after: 5 });
    }
}
