//! Whether the figures of a report add up.

use std::collections::BTreeSet;

use crate::artefact::ContentHash;
use crate::rollout::halt::CONDITIONS;
use crate::rollout::report::{HALTED_MAX, RolloutReport};
use crate::rollout::verdict::{Counts, Verdict};

/// Counts past this are not judged exactly (`verdict::unexplained`).
const COUNT_MAX: u64 = 1 << 30;

/// Says what does not add up in a report, but for its verdict.
pub(super) fn sums(report: &RolloutReport, differences: &mut Vec<String>) {
    let mut check = Check { report, differences };
    check.terms();
    check.times();
    check.tally();
    check.halted();
    check.replicas();
}

/// Says in what a stated verdict differs from the recomputed one.
pub(super) fn verdict(stated: &Verdict, judged: &Verdict, differences: &mut Vec<String>) {
    let Verdict { kind, seen, failed, dark, dark_beyond_control, aborts_at, .. } = judged;
    if stated.kind != *kind {
        differences.push(format!(
            "the verdict says {}, the evidence comes to {}",
            stated.kind.label(),
            kind.label()
        ));
    }
    for (name, stated, judged) in [
        ("seen", stated.seen, *seen),
        ("failed", stated.failed, *failed),
        ("dark", stated.dark, *dark),
        ("dark_beyond_control", stated.dark_beyond_control, *dark_beyond_control),
        ("aborts_at", stated.aborts_at, *aborts_at),
        ("soaked_ms", stated.soaked_ms, judged.soaked_ms),
    ] {
        if stated != judged {
            differences.push(format!("the verdict says {name} {stated}, it is {judged}"));
        }
    }
    if stated.due_ms != judged.due_ms {
        let text = |due: Option<u64>| due.map_or_else(|| "none".to_owned(), |due| due.to_string());
        let (stated, judged) = (text(stated.due_ms), text(judged.due_ms));
        differences.push(format!("the verdict says due_ms {stated}, it is {judged}"));
    }
    if stated.why != judged.why {
        differences.push(format!("the verdict says {:?}, it is {:?}", stated.why, judged.why));
    }
}

struct Check<'a> {
    report: &'a RolloutReport,
    differences: &'a mut Vec<String>,
}

impl Check<'_> {
    fn demand(&mut self, holds: bool, otherwise: impl FnOnce() -> String) {
        if !holds {
            self.differences.push(otherwise());
        }
    }

    fn terms(&mut self) {
        let RolloutReport { terms, cohorts, base, candidate, .. } = self.report;
        self.demand(terms.stage < terms.stages, || {
            format!("stage {} is none of {}", terms.stage, terms.stages)
        });
        self.demand(cohorts.len() == terms.stages as usize, || {
            format!("{} Cohorts for {} stages", cohorts.len(), terms.stages)
        });
        if let Some(cohort) = cohorts.get(terms.stage as usize) {
            self.demand(cohort.soak_ms == terms.soak_ms, || {
                format!(
                    "the active Cohort soaks {} ms, the terms say {}",
                    cohort.soak_ms, terms.soak_ms
                )
            });
        }
        self.demand((1..=100).contains(&terms.abort_at_percent), || {
            format!("abort_at_percent {} is not within 1 to 100", terms.abort_at_percent)
        });
        self.demand(terms.expect_replicas > 0, || "no replica is expected".to_owned());
        self.demand(terms.same_content == (base == candidate), || {
            format!("same_content is {}, the hashes say otherwise", terms.same_content)
        });
        for (name, hash) in [("base", base), ("candidate", candidate)] {
            self.demand(ContentHash::from_hex(hash.as_bytes()).is_some(), || {
                format!("{name} {hash:?} is no content hash")
            });
        }
    }

    fn times(&mut self) {
        let times = &self.report.times;
        let latest = times.stage_since_ms.max(times.candidate_since_ms.unwrap_or(0));
        self.demand(times.soak_since_ms >= latest, || {
            format!("soak_since_ms {} is before what restarted it", times.soak_since_ms)
        });
        let braked = self.report.braked_since_ms;
        for (name, ms) in [
            ("evidence_since_ms", Some(times.evidence_since_ms)),
            ("soak_since_ms", Some(times.soak_since_ms)),
            ("braked_since_ms", braked),
        ] {
            self.demand(ms.is_none_or(|ms| ms <= times.now_ms), || {
                format!("{name} is after now_ms")
            });
        }
        self.demand(braked.is_some() == self.report.tally.braked, || {
            format!("braked is {}, braked_since_ms says otherwise", self.report.tally.braked)
        });
    }

    fn tally(&mut self) {
        let RolloutReport { tally, terms, .. } = self.report;
        self.demand(tally.stages.len() as u64 == u64::from(terms.stage) + 1, || {
            format!("{} rows for the stages up to {}", tally.stages.len(), terms.stage)
        });
        for (stage, row) in tally.stages.iter().enumerate() {
            self.row(&format!("stage {stage}"), row);
        }
        self.row("foreign", &tally.foreign);
        self.demand(tally.foreign.failed == 0 && tally.foreign.dark == 0, || {
            "Foreign members are judged".to_owned()
        });
        let members = tally.members();
        let on = members.taking.saturating_add(members.to);
        self.demand(tally.taken >= on && tally.taken <= on.saturating_add(members.dark), || {
            format!(
                "taken is {}, {on} take or run the candidate, {} are dark",
                tally.taken, members.dark
            )
        });
        self.demand(tally.long_dark <= members.dark, || {
            format!("long_dark is {}, {} are dark", tally.long_dark, members.dark)
        });
        let control = &tally.control;
        self.demand(control.dark <= control.seen && control.unobserved <= control.seen, || {
            format!("more of the control group than the {} that are seen", control.seen)
        });
        let all = members.seen.saturating_add(control.seen);
        self.demand(tally.served_in_tier == all, || {
            format!(
                "served_in_tier is {}, members and control group are {all}",
                tally.served_in_tier
            )
        });
        self.demand(
            all.saturating_add(tally.foreign.seen).saturating_add(tally.awaited) <= COUNT_MAX,
            || format!("more than {COUNT_MAX} collectors"),
        );
    }

    fn row(&mut self, name: &str, row: &Counts) {
        let Counts { seen, taking, to, from, other, unknown, failed, dark, unobserved, left } = row;
        let arms = [taking, to, from, other, unknown]
            .into_iter()
            .fold(0_u64, |sum, arm| sum.saturating_add(*arm));
        self.demand(arms == *seen, || format!("{name}: the arms add up to {arms}, seen is {seen}"));
        self.demand(failed.saturating_add(*dark) <= *seen, || {
            format!("{name}: {failed} failed and {dark} dark of {seen} seen")
        });
        self.demand(unobserved <= seen && left <= seen, || {
            format!("{name}: {unobserved} unobserved and {left} left of {seen} seen")
        });
    }

    /// Every halted member has its line, as long as there is room for it.
    fn halted(&mut self) {
        let RolloutReport { tally, halted, .. } = self.report;
        let outage_explains = |condition: &str| {
            CONDITIONS
                .iter()
                .find(|known| known.name() == condition)
                .map(|known| known.outage_explains())
        };
        let mut listed = vec![(0_u64, 0_u64); tally.stages.len()];
        let mut identities = BTreeSet::new();
        let (mut failed, mut dark) = (0_u64, 0_u64);
        for member in halted {
            let Some(is_dark) = outage_explains(&member.condition) else {
                self.demand(false, || format!("{:?} is no halt condition", member.condition));
                continue;
            };
            self.demand(is_dark || dark == 0, || {
                format!("{} is listed after dark members", member.identity)
            });
            if is_dark {
                dark += 1;
            } else {
                failed += 1;
            }
            match listed.get_mut(member.stage as usize) {
                Some((_, dark)) if is_dark => *dark += 1,
                Some((failed, _)) => *failed += 1,
                None => self.demand(false, || format!("{} is of a later stage", member.identity)),
            }
            self.demand(is_identity(&member.identity), || {
                format!("{:?} is no identity", member.identity)
            });
            self.demand(identities.insert(&member.identity), || {
                format!("{} is listed twice", member.identity)
            });
        }
        let members = tally.members();
        let room = HALTED_MAX as u64;
        let expected_failed = members.failed.min(room);
        let expected_dark = members.dark.min(room - expected_failed);
        self.demand((failed, dark) == (expected_failed, expected_dark), || {
            format!(
                "{failed} failed and {dark} dark members are listed, {expected_failed} and {expected_dark} should be"
            )
        });
        if members.failed.saturating_add(members.dark) <= room {
            for (stage, (row, listed)) in tally.stages.iter().zip(&listed).enumerate() {
                self.demand((row.failed, row.dark) == *listed, || {
                    format!(
                        "stage {stage}: {} failed and {} dark, {} and {} are listed",
                        row.failed, row.dark, listed.0, listed.1
                    )
                });
            }
        }
    }

    fn replicas(&mut self) {
        let counted: BTreeSet<&str> = self
            .report
            .replicas
            .iter()
            .filter(|replica| replica.reporting && replica.same_head)
            .map(|replica| replica.name.as_str())
            .collect();
        let (counted, stated) = (counted.len(), self.report.tally.replicas);
        self.demand(counted as u64 == u64::from(stated), || {
            format!("replicas is {stated}, {counted} are listed that report the same")
        });
    }
}

fn is_identity(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}
