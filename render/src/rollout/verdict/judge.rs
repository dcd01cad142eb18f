//! The formula of decision 14, in whole numbers.

use super::{CONTROL_MIN, Control, Counts, Kind, Tally, Terms, Times, Verdict};
use crate::rollout::evidence::Millis;
use crate::rollout::words::{moment, span};

/// What the evidence comes to. The first of these that holds (decision 14; F failed, D dark, e
/// dark beyond the control group):
///
/// 1. **abort**: some are seen, and 100 (F + e) ≥ `abort_at_percent` · (seen + expected), where of
///    the collectors that are awaited as many are expected to be members as of those that are not. For `dark_after` +
///    grace after evidence started an abort is not *newly* reached: only where the brake is on
///    already (decision 9).
/// 2. **blocked**: F or D is not empty.
/// 3. **inconclusive**: fewer than `min_seen` seen, somebody unobserved, somebody found no room, or
///    too few replicas report this report key.
/// 4. **hold**: nothing is staged, `hold: true`, the brake is on (ADR 7), the soak is not over, or `dark_after` + grace more
///    (after the soak and after evidence started, so that a death in the last seconds is seen), or
///    nobody runs the candidate.
/// 5. **advance**, on the last stage **complete**.
///
/// The sentence why changes only when something besides the time of day does.
pub fn judge(terms: &Terms, tally: &Tally, times: &Times) -> Verdict {
    let members = tally.members();
    let compared = tally.control.seen >= CONTROL_MIN;
    let dark = if compared { tally.long_dark } else { members.dark };
    let beyond = unexplained(dark, tally.taken, &tally.control);
    let case = Case { terms, tally, times, members, beyond };
    let (kind, why) = case
        .abort()
        .map(|why| (Kind::Abort, why))
        .or_else(|| case.blocked().map(|why| (Kind::Blocked, why)))
        .or_else(|| case.inconclusive().map(|why| (Kind::Inconclusive, why)))
        .or_else(|| case.hold().map(|why| (Kind::Hold, why)))
        .unwrap_or_else(|| (case.advance_kind(), case.advance()));
    let waits = kind == Kind::Hold && !case.never_advances() && case.somebody_runs_it();
    Verdict {
        kind,
        seen: case.members.seen,
        failed: case.members.failed,
        dark: case.members.dark,
        dark_beyond_control: beyond,
        aborts_at: case.aborts_at(),
        soaked_ms: times.now_ms.saturating_sub(times.soak_since_ms),
        due_ms: waits.then(|| case.due_ms()),
        why,
    }
}

/// e of decision 14: of `dark` members, those that the control group's rate plus two deviations
/// does not explain. A control group smaller than [`CONTROL_MIN`] explains nothing.
///
/// Exact while counts stay below 2^30; past that it explains less, never more, than it should.
pub fn unexplained(dark: u64, taken: u64, control: &Control) -> u64 {
    if control.seen < CONTROL_MIN {
        return dark;
    }
    let (all, silent) = (u128::from(control.seen), u128::from(control.dark.min(control.seen)));
    let taken = u128::from(taken);
    let product = [4, taken, silent, all - silent, all + taken]
        .into_iter()
        .try_fold(1_u128, |product, factor| product.checked_mul(factor));
    let deviations = product.map_or(0, |product| (product / all).isqrt());
    let explained = (taken * silent + deviations) / all;
    dark.saturating_sub(u64::try_from(explained).unwrap_or(u64::MAX))
}

struct Case<'a> {
    terms: &'a Terms,
    tally: &'a Tally,
    times: &'a Times,
    members: Counts,
    beyond: u64,
}

impl Case<'_> {
    fn abort(&self) -> Option<String> {
        (self.is_past_threshold() && (self.tally.braked || !self.is_settling())).then(|| {
            let aborts_at = self.aborts_at();
            format!("{}; {aborts_at} or more abort", self.halted())
        })
    }

    fn blocked(&self) -> Option<String> {
        if self.members.failed == 0 && self.members.dark == 0 {
            return None;
        }
        let what_aborts = if self.is_past_threshold() {
            format!(
                "enough to abort, if that is still so at {}: evidence starts at {}",
                moment(self.settled_ms()),
                moment(self.times.evidence_since_ms)
            )
        } else {
            format!("{} would abort", self.aborts_at())
        };
        Some(format!("{}; {what_aborts}", self.halted()))
    }

    fn inconclusive(&self) -> Option<String> {
        let Terms { min_seen, expect_replicas, .. } = *self.terms;
        let unobserved = self.members.unobserved.saturating_add(self.tally.control.unobserved);
        let (seen, overflow, replicas) =
            (self.members.seen, self.tally.overflow, self.tally.replicas);
        if seen < u64::from(min_seen) {
            Some(format!("{seen} of the {min_seen} members that must be seen were seen"))
        } else if unobserved > 0 {
            Some(format!("{} known only to replicas that do not report", collectors(unobserved)))
        } else if overflow > 0 {
            Some(format!("{} beyond what evidence has room for", collectors(overflow)))
        } else if replicas < expect_replicas {
            Some(format!(
                "{replicas} of {expect_replicas} replicas report this candidate, stage and Cohort"
            ))
        } else {
            None
        }
    }

    fn hold(&self) -> Option<String> {
        let Terms { soak_ms, dark_after_ms, grace_ms, .. } = *self.terms;
        if self.terms.same_content {
            return Some("candidate and base have equal content, so nothing is staged".to_owned());
        }
        if self.terms.hold {
            return Some("the Rollout's file says hold: true".to_owned());
        }
        if self.tally.braked {
            let text = "the brake is on, so nobody new is offered the candidate; abort, or change \
                        the candidate or the halt block";
            return Some(text.to_owned());
        }
        if !self.somebody_runs_it() {
            return Some(format!(
                "none of {} runs the candidate yet",
                members(self.members.seen.saturating_add(self.tally.foreign.seen))
            ));
        }
        let (soaked_ms, due_ms) = (self.soaked_ms(), self.due_ms());
        if self.times.now_ms >= due_ms {
            return None;
        }
        let due = moment(due_ms);
        Some(if self.times.now_ms < soaked_ms {
            format!(
                "soaks for {} until {}; an advance is due at {due}",
                span(soak_ms),
                moment(soaked_ms)
            )
        } else {
            format!(
                "soaked for {}; late silence is awaited for {} more, so an advance is due at {due}",
                span(soak_ms),
                span(dark_after_ms.saturating_add(grace_ms))
            )
        })
    }

    fn advance(&self) -> String {
        let Counts { seen, to, from, .. } = self.members;
        let (who, to, from) = if self.tally.served_in_tier == 0 {
            let foreign = &self.tally.foreign;
            (format!("{} that git delivers to", members(foreign.seen)), foreign.to, foreign.from)
        } else {
            (members(seen), to, from)
        };
        let lag = if from > 0 { format!(", {from} lag on the base") } else { String::new() };
        let soak = span(self.terms.soak_ms);
        format!("{to} of {who} run the candidate{lag}, none is halted, and it soaked for {soak}")
    }

    fn advance_kind(&self) -> Kind {
        let next = self.terms.stage.saturating_add(1);
        if next >= self.terms.stages { Kind::Complete } else { Kind::Advance }
    }

    fn is_past_threshold(&self) -> bool {
        let halted = u128::from(self.members.failed) + u128::from(self.beyond);
        let of = u128::from(self.terms.abort_at_percent) * self.in_all();
        self.members.seen > 0 && 100 * halted >= of
    }

    /// The least number of halted members past the threshold.
    fn aborts_at(&self) -> u64 {
        let of = u128::from(self.terms.abort_at_percent) * self.in_all();
        u64::try_from(of.div_ceil(100)).unwrap_or(u64::MAX)
    }

    /// Members that are seen, and those that are to be expected of the collectors that are awaited:
    /// as many as of those that have a place, rounded up.
    fn in_all(&self) -> u128 {
        let seen = u128::from(self.members.seen);
        if seen == 0 {
            return 0;
        }
        let placed = u128::from(self.tally.served_in_tier) + u128::from(self.tally.foreign.seen);
        seen + (seen * u128::from(self.tally.awaited)).div_ceil(placed.max(seen))
    }

    fn never_advances(&self) -> bool {
        self.terms.same_content || self.terms.hold || self.tally.braked
    }

    /// Decision 13: Foreign members answer for it only where nobody is served.
    fn somebody_runs_it(&self) -> bool {
        self.members.to > 0 || (self.tally.served_in_tier == 0 && self.tally.foreign.to > 0)
    }

    fn soaked_ms(&self) -> Millis {
        self.times.soak_since_ms.saturating_add(self.terms.soak_ms)
    }

    fn due_ms(&self) -> Millis {
        self.with_late_silence(self.soaked_ms().max(self.times.evidence_since_ms))
    }

    fn settled_ms(&self) -> Millis {
        self.with_late_silence(self.times.evidence_since_ms)
    }

    fn is_settling(&self) -> bool {
        self.times.now_ms < self.settled_ms()
    }

    fn with_late_silence(&self, ms: Millis) -> Millis {
        ms.saturating_add(self.terms.dark_after_ms).saturating_add(self.terms.grace_ms)
    }

    fn halted(&self) -> String {
        let Counts { seen, failed, dark, .. } = self.members;
        let mut text = match (failed, dark) {
            (_, 0) => format!("{failed} of {} failed", members(seen)),
            (0, _) => format!("{dark} of {} went dark", members(seen)),
            _ => format!("{failed} of {} failed and {dark} went dark", members(seen)),
        };
        if self.beyond < dark {
            text.push_str(&format!(
                ", {} of them beyond the control group's rate ({} of {} dark)",
                self.beyond, self.tally.control.dark, self.tally.control.seen
            ));
        }
        if self.tally.awaited > 0 {
            let awaited = self.tally.awaited;
            text.push_str(&format!(", while {awaited} more of the Tier get their place"));
        }
        text
    }
}

fn members(count: u64) -> String {
    format!("{count} {}", if count == 1 { "member" } else { "members" })
}

fn collectors(count: u64) -> String {
    format!("{count} {}", if count == 1 { "collector is" } else { "collectors are" })
}
