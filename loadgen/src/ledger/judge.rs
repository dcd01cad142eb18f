//! Whether an offer is what the heads around its arrival lead to.

use std::sync::Arc;

use proto::opamp as wire;

use super::offer::{explain, shape};
use super::{BRAKE_LATE, Delivery, Goodbye, Held, Ledger, Noted, WAITING_MAX, Waiting, Wrong};
use crate::clock::Micros;
use crate::heads::{Head, Heads};
use crate::model::{Arm, Artefact};

impl Ledger {
    pub(super) fn check_offer(
        &mut self,
        now: Micros,
        offer: &wire::AgentRemoteConfig,
        heads: &Heads,
        noted: &mut Noted,
    ) {
        if !self.accepts {
            self.wrong(noted, Wrong::Unasked, now, || {
                "an offer, though the collector accepts no remote configuration".to_owned()
            });
            return;
        }
        if heads.arm_of(self.index, &offer.config_hash) == Arm::Candidate {
            self.candidate_offers += 1;
        }
        match shape(offer) {
            Ok(body) => {
                let waiting =
                    Waiting { at: now, hash: offer.config_hash.clone(), body: body.clone() };
                self.judge(now, waiting, heads, noted);
            }
            Err(what) => self.wrong(noted, Wrong::Shape, now, || what),
        }
    }

    pub(super) fn judge_waiting(&mut self, now: Micros, heads: &Heads, noted: &mut Noted) {
        let Some(rare) = &mut self.rare else { return };
        for waiting in std::mem::take(&mut rare.waiting) {
            let (before, bytes) = (noted.wrong, waiting.body.len());
            self.judge(now, waiting, heads, noted);
            if noted.wrong > before {
                self.beyond(bytes, heads); // not counted when it came: it might have been right
            }
        }
    }

    /// Compares an offer with what the heads around its arrival lead to.
    fn judge(&mut self, now: Micros, offer: Waiting, heads: &Heads, noted: &mut Noted) {
        let index = self.index;
        let is = |artefact: &Artefact| artefact.hash == offer.hash && artefact.bytes == offer.body;
        let wanted = heads.explain(offer.at, |head| is(head.expected(index)));
        let kept =
            heads.explain(offer.at, |head| self.may_be_kept(head, heads) && is(head.base(index)));
        let explained = match (wanted, kept) {
            (Some(wanted), Some(kept)) if kept.0 > wanted.0 => Some((kept, false)),
            (Some(wanted), _) => Some((wanted, true)),
            (None, kept) => kept.map(|kept| (kept, false)),
        };
        let Some(((epoch, head), is_wanted)) = explained else {
            let deadline = offer.at.saturating_add(heads.window());
            let waiting = self.rare.as_ref().map_or(0, |rare| rare.waiting.len());
            if now < deadline && waiting < WAITING_MAX {
                self.rare().waiting.push(offer);
                return;
            }
            self.wrong(noted, Wrong::Offer, offer.at, || {
                explain(index, &offer.hash, &offer.body, heads)
            });
            return;
        };
        if self.goodbye != Goodbye::Unsaid {
            return; // right, but too late for anybody to apply it
        }
        let artefact = if is_wanted { head.expected(index) } else { head.base(index) };
        self.check_candidate(&offer, &head, artefact, heads, noted);
        if let Some(held) = &self.held {
            let (held_epoch, held_short) = (held.epoch, held.artefact.short);
            if held_short == artefact.short {
                let path = artefact.path.clone();
                self.wrong(noted, Wrong::Duplicate, offer.at, || {
                    format!("{path} again, which was the last offer already")
                });
                return;
            }
            if epoch < held_epoch {
                let path = artefact.path.clone();
                self.wrong(noted, Wrong::Regression, offer.at, || {
                    format!("{path} of head {epoch} after the offer of head {held_epoch}")
                });
                return;
            }
        }
        let after = self.held.as_ref().map(|held| held.epoch);
        let delivery = Delivery { epoch: heads.change_behind(epoch, after, index), at: offer.at };
        self.sums.offers_right += 1;
        self.deliveries.push(delivery);
        self.held = Some(Held { epoch, artefact: Arc::clone(artefact) });
        noted.right = Some((delivery, Arc::clone(artefact)));
    }

    /// Whether a member of a Cohort may be told the base: the candidate FAILED on it, or is braked.
    fn may_be_kept(&self, head: &Head, heads: &Heads) -> bool {
        let Some(candidate) = head.candidate(self.index) else { return false };
        let told = self.rare.as_ref().is_some_and(|rare| {
            rare.failed.contains(&candidate.short) || rare.failing.contains(&candidate.short)
        });
        told || heads.was_braked(candidate.short)
    }

    /// A candidate must not come again after FAILED, nor to anybody once it is braked.
    fn check_candidate(
        &mut self,
        offer: &Waiting,
        head: &Head,
        artefact: &Artefact,
        heads: &Heads,
        noted: &mut Noted,
    ) {
        if head.arm(self.index) != Arm::Candidate
            || head.candidate(self.index).is_none_or(|held| held.short != artefact.short)
        {
            return;
        }
        if self.rare.as_ref().is_some_and(|rare| rare.failed.contains(&artefact.short)) {
            let path = artefact.path.clone();
            self.wrong(noted, Wrong::OfferedAgain, offer.at, || {
                format!("{path} again, which FAILED on this collector")
            });
        }
        let late = heads.braked_since(artefact.short).map(|since| offer.at.saturating_sub(since));
        if let Some(late) = late.filter(|late| *late > BRAKE_LATE) {
            let path = artefact.path.clone();
            self.wrong(noted, Wrong::Braked, offer.at, || {
                format!("{path}, {} ms after its brake was reported", late / 1_000)
            });
        }
    }
}
