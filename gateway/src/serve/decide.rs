//! The one place where a message meets a snapshot.
//!
//! An agent that describes itself is placed by slices of its message. What the head mentions of it
//! is kept, so that a later head is decided without a word from the agent.

use proto::session::{Agent, ContentKey, Desired, DesiredCandidate, Seconds, Serving};
use render::attrs::Slots;
use render::snapshot::{Arm, Offer, Placement};

use super::census::Place;
use super::head::Head;
use super::kept::Kept;

/// What a link keeps of an agent beside its session.
#[derive(Debug, Default)]
pub(super) struct Placed {
    /// Its values for the attributes that head mentions.
    kept: Kept,
    /// The head that the placement below holds for; 0 when there is none.
    generation: u32,
    /// Index into that head's Tiers.
    tier: Option<u32>,
    arm: Arm,
    no_bucket: bool,
    /// Where it is counted at the moment.
    counted: Option<Place>,
}

const _: () = assert!(size_of::<Agent<Placed>>() <= 144);

impl Placed {
    /// The placement, if it was made by `head`.
    pub(super) fn placement(&self, head: &Head) -> Option<Placement> {
        if self.generation != head.generation {
            return None;
        }
        let entry = self.tier.and_then(|tier| head.snapshot.tiers.get(tier as usize));
        Some(Placement {
            tier: self.tier,
            arm: self.arm,
            rollout: entry.and_then(|entry| entry.rollout),
            no_bucket: self.no_bucket,
        })
    }

    pub(super) fn kept(&self) -> &Kept {
        &self.kept
    }

    fn place(&mut self, head: &Head, placement: Placement) {
        self.generation = head.generation;
        self.tier = placement.tier;
        self.arm = placement.arm;
        self.no_bucket = placement.no_bucket;
    }
}

/// Places an agent by what its message says, and keeps that.
pub(super) fn describe(head: &Head, placed: &mut Placed, slots: &Slots<'_>) {
    placed.place(head, head.snapshot.place(slots));
    placed.kept.store(head.set(), slots);
}

/// Decides what an agent is served by `head`, and returns the offer if it has to be made; who calls
/// this sends it. An agent whose attributes are not known stays with what it has.
///
/// `in_reply` tells a reply to the agent's last message from a push.
pub(super) fn decide<'h>(
    head: &'h Head,
    agent: &mut Agent<Placed>,
    now: Seconds,
    in_reply: bool,
) -> Option<&'h Offer> {
    if !agent.described() {
        return None;
    }
    if agent.placed.generation != head.generation {
        match head.place_kept(&agent.placed.kept) {
            Some(placement) => {
                agent.placed.place(head, placement);
                agent.waive_attributes();
            }
            None => {
                agent.require_attributes();
                return None;
            }
        }
    }
    let Placed { tier, arm, .. } = agent.placed;
    let desired = head.desired(tier, arm);
    let decision = agent.handle_decision(now, &desired, in_reply);
    let served = match (decision.serving, arm) {
        // Its candidate failed: it counts with those outside the Cohort, as failed.
        (Serving::Base, Arm::To) => Arm::From,
        (Serving::Base | Serving::Candidate, arm) => arm,
    };
    let place = head.counting_place(tier, served, agent.delivery(now, &desired));
    head.recount(&mut agent.placed.counted, Some(place));

    if !decision.offer {
        return None;
    }
    let (base, candidate) = head.offers(tier, arm);
    let candidate = candidate.filter(|_| decision.serving == Serving::Candidate);
    head.count_offer(tier, candidate.is_some());
    Some(candidate.map_or(base, |candidate| &candidate.offer))
}

impl Head {
    /// What an agent that was placed there is meant to run.
    pub(super) fn desired(&self, tier: Option<u32>, arm: Arm) -> Desired {
        let (base, candidate) = self.offers(tier, arm);
        Desired {
            base: ContentKey::new(&base.content.0),
            candidate: candidate.map(|candidate| DesiredCandidate {
                content: ContentKey::new(&candidate.offer.content.0),
                retries: self.retries(candidate.rollout),
                withheld: false,
            }),
        }
    }
}

/// Takes an agent out of the counts.
pub(super) fn uncount(head: &Head, placed: &mut Placed) {
    head.recount(&mut placed.counted, None);
}
