//! The one place where a message meets a snapshot.
//!
//! An agent that describes itself is placed by slices of its message. What the head mentions of it
//! is kept, so that a later head is decided without a word from the agent.

use proto::ids::InstanceUid;
use proto::session::{Agent, ContentKey, Delivery, Desired, DesiredCandidate, Seconds, Serving};
use render::attrs::Slots;
use render::rollout::evidence::{Identity, Reading};
use render::rollout::identity;
use render::snapshot::served::ServedRollout;
use render::snapshot::{Arm, Offer, Placement};

use super::ahead::Ahead;
use super::census::Place;
use super::head::Head;
use super::kept::Kept;
use super::registry::Owner;
use super::track::{self, Tracked};

/// No Tier, and no stage.
const NO_TIER: u32 = u32::MAX;
const NO_STAGE: u16 = u16::MAX;

/// What a link keeps of an agent beside its session.
#[derive(Debug)]
pub(super) struct Placed {
    /// Its values for the attributes that head mentions.
    kept: Kept,
    /// What is known of it under a Rollout, while its Tier is under one.
    pub(super) tracked: Option<Box<Tracked>>,
    /// Where it is counted at the moment.
    counted: Option<Place>,
    /// Its identity under no Rollout, which also names it under most; 0 until it describes itself.
    plain: [u8; 16],
    /// Which set of names `kept` belongs to; 0 while nothing is kept.
    set: u32,
    /// The head that the placement below holds for; 0 when there is none.
    generation: u32,
    /// Index into that head's Tiers, or [`NO_TIER`].
    tier: u32,
    /// The first stage that admits it, or [`NO_STAGE`].
    stage: u16,
    arm: Arm,
    no_bucket: bool,
}

const _: () = assert!(size_of::<Placed>() <= 64);
const _: () = assert!(size_of::<Agent<Placed>>() <= 160);

impl Default for Placed {
    fn default() -> Self {
        Self {
            kept: Kept::default(),
            tracked: None,
            counted: None,
            plain: [0; 16],
            set: 0,
            generation: 0,
            tier: NO_TIER,
            stage: NO_STAGE,
            arm: Arm::default(),
            no_bucket: false,
        }
    }
}

impl Placed {
    /// The placement, if it was made by `head`.
    pub(super) fn placement(&self, head: &Head) -> Option<Placement> {
        if self.generation != head.generation {
            return None;
        }
        let tier = self.tier();
        let entry = tier.and_then(|tier| head.snapshot.tiers.get(tier as usize));
        Some(Placement {
            tier,
            arm: self.arm,
            rollout: entry.and_then(|entry| entry.rollout),
            stage: (self.stage != NO_STAGE).then_some(self.stage.into()),
            no_bucket: self.no_bucket,
        })
    }

    /// Its values for the attributes that some head mentioned, by name.
    pub(super) fn attributes<'p>(
        &'p self,
        head: &'p Head,
    ) -> impl Iterator<Item = (&'p str, &'p str)> {
        head.attributes(self.set, &self.kept)
    }

    /// Who it is under no Rollout; `None` until it describes itself.
    pub(super) fn plain(&self) -> Option<Identity> {
        let plain = u128::from_ne_bytes(self.plain);
        (plain != 0).then_some(Identity(plain))
    }

    /// Who it is under a Rollout of `head` (rollouts.md, decision 5), which is as good as what
    /// [`identity::identity`] makes of its description: identifying attributes that no head
    /// mentions are not kept, but the hash of all of them is.
    pub(super) fn identity(
        &self,
        head: &Head,
        rollout: &ServedRollout,
        uid: InstanceUid,
    ) -> Identity {
        let none = std::iter::empty::<(&str, Option<&str>)>;
        let by_uid = identity::plain(none(), &uid.0);
        let plain = self.plain().unwrap_or(by_uid);
        if rollout.identity.is_empty() && plain != by_uid {
            return plain;
        }
        let Some(slots) = head.kept_slots(self.set, &self.kept) else { return plain };
        let lookup = |name: &str| slots.get(head.snapshot.symbols.get(name)?);
        identity::identity(rollout, none(), lookup, &uid.0)
    }

    fn tier(&self) -> Option<u32> {
        (self.tier != NO_TIER).then_some(self.tier)
    }

    fn place(&mut self, head: &Head, placement: Placement) {
        self.generation = head.generation;
        self.tier = placement.tier.unwrap_or(NO_TIER);
        self.arm = placement.arm;
        self.no_bucket = placement.no_bucket;
        self.stage = placement
            .stage
            .map_or(NO_STAGE, |stage| u16::try_from(stage).unwrap_or(NO_STAGE).min(NO_STAGE - 1));
    }
}

/// Places an agent by what its message says, and keeps that. Returns whether it is somebody else
/// from now on, under no Rollout: always the first time.
pub(super) fn describe(
    head: &Head,
    agent: &mut Agent<Placed>,
    slots: &Slots<'_>,
    description: &proto::peek::Description<'_>,
) -> bool {
    let plain = identity::plain(description.identifying(), &agent.uid().0).0.to_ne_bytes();
    let placed = &mut agent.placed;
    placed.place(head, head.snapshot.place(slots));
    placed.kept.store(slots);
    placed.set = head.set();
    std::mem::replace(&mut placed.plain, plain) != plain
}

/// Finds out where an agent belongs by `head`. False when that takes attributes that are not known:
/// then it stays with what it has.
pub(super) fn settle(head: &Head, agent: &mut Agent<Placed>) -> bool {
    if !agent.described() {
        return false;
    }
    if agent.placed.generation == head.generation {
        return true;
    }
    let slots = head.kept_slots(agent.placed.set, &agent.placed.kept);
    let Some(placement) = slots.map(|slots| head.snapshot.place(&slots)) else {
        agent.require_attributes();
        return false;
    };
    agent.placed.place(head, placement);
    agent.waive_attributes();
    true
}

/// What a decision is made for.
#[derive(Clone, Copy)]
pub(super) enum Occasion<'s> {
    /// A reply to the agent's last message.
    Reply { ahead: &'s Ahead, owner: Owner },
    /// A push.
    Push,
}

/// Decides what an agent that [`settle`] placed is served by `head`, and returns the offer if it has
/// to be made; who calls this sends it.
pub(super) fn decide<'h>(
    head: &'h Head,
    agent: &mut Agent<Placed>,
    now: Seconds,
    occasion: Occasion<'_>,
) -> Option<&'h Offer> {
    let (tier, arm) = (agent.placed.tier(), agent.placed.arm);
    let desired = head.desired(tier, arm);
    let decision = match occasion {
        Occasion::Reply { ahead, owner } => {
            agent.handle_decision_unless(now, &desired, true, |reported| {
                reported.is_some()
                    && !head.has_ever_had(reported)
                    && ahead.holds(now, reported, owner)
            })
        }
        Occasion::Push => agent.handle_decision(now, &desired, false),
    };
    let delivery = agent.delivery(now, &desired);
    let served = match (decision.serving, arm, delivery) {
        // Nobody serves it. It counts where it is known to be, else with those that are not there.
        (_, Arm::To | Arm::From, Delivery::Foreign) => match track::reading(head, agent) {
            Some(Reading::To) => Arm::To,
            _ => Arm::From,
        },
        // Its candidate failed, or is withheld: it counts with those outside the Cohort.
        (Serving::Base, Arm::To, _) => Arm::From,
        (Serving::Base | Serving::Candidate, arm, _) => arm,
    };
    let place = head.counting_place(tier, served, delivery);
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
                withheld: self
                    .evidence
                    .get(candidate.rollout as usize)
                    .is_some_and(|cell| cell.is_braked()),
            }),
        }
    }
}

/// Takes an agent out of the counts.
pub(super) fn uncount(head: &Head, placed: &mut Placed) {
    head.recount(&mut placed.counted, None);
}
