//! The texts of a proposal. A commit message holds nothing that a collector said; a pull request
//! shows it as code only, so that no error text can make a link, a mention or a heading.

use std::fmt::Write as _;
use std::iter;

use super::Kind;
use crate::rollout::evidence::Millis;
use crate::rollout::report::{HaltedMember, RolloutReport};
use crate::rollout::verdict::{Counts, Told};
use crate::rollout::words::span;

/// Halted members that a pull request names; the bundle has them all.
const HALTED_SHOWN: usize = 50;

/// Characters of an error text that a pull request shows.
const ERROR_CHARS: usize = 200;

/// First line of the commit message, and title of the pull request.
pub fn title(kind: Kind, report: &RolloutReport) -> String {
    let RolloutReport { rollout, tier, to, terms, .. } = report;
    let (stage, stages) = (u64::from(terms.stage) + 1, terms.stages);
    match kind {
        Kind::Advance => format!("Advance {rollout} to stage {} of {stages}", stage + 1),
        Kind::Complete => format!("Complete {rollout}: {tier} runs {to}"),
        Kind::Abort => format!("Abort {rollout} at stage {stage} of {stages}"),
    }
}

/// What the merge would do, and the evidence for it, a line each.
pub(super) fn body(kind: Kind, report: &RolloutReport, bundle: &str) -> String {
    let mut text = format!("{}\n\n", what_it_does(kind, report));
    for (name, value) in rows(report) {
        let _ = writeln!(text, "{name:<10} {value}");
    }
    let _ = write!(text, "{:<10} {bundle}", "Evidence");
    text
}

fn what_it_does(kind: Kind, report: &RolloutReport) -> String {
    let RolloutReport { tier, from, to, terms, .. } = report;
    match kind {
        Kind::Advance => format!(
            "Merging this admits stage {} of {} to {to}. Members so far stay members.",
            u64::from(terms.stage) + 2,
            terms.stages
        ),
        Kind::Complete => {
            format!("Merging this rebinds {tier} from {from} to {to} and ends the Rollout.")
        }
        Kind::Abort => {
            format!("Merging this puts all of {tier} back on {from} and ends the Rollout.")
        }
    }
}

/// Everything here is ours or was reviewed in git.
fn rows(report: &RolloutReport) -> Vec<(&'static str, String)> {
    let RolloutReport { terms, times, tally, verdict, .. } = report;
    let stage = (report.cohorts.get(terms.stage as usize))
        .map_or_else(String::new, |line| format!(": {}", line.cohort));
    let history = match times.stage_since {
        Told::History => "since git says the stage began",
        Told::Sight => "since this gateway first saw the stage: git history told nothing",
    };
    let members = tally.stages.iter().fold(Counts::default(), sum);
    let counts = |counts: &Counts| {
        let Counts { seen, taking, to, from, other, unknown, .. } = counts;
        format!(
            "{seen} seen: to {to}, taking {taking}, from {from}, other {other}, unknown {unknown}"
        )
    };
    let mut rows = vec![
        ("Verdict", format!("{}: {}", verdict.kind.label(), verdict.why)),
        ("Stage", format!("{} of {}{stage}", u64::from(terms.stage) + 1, terms.stages)),
        ("Tier", report.tier.clone()),
        ("From", format!("{} (content {})", report.from, short(&report.base))),
        ("To", format!("{} (content {})", report.to, short(&report.candidate))),
        ("Head", report.head.clone()),
        ("Soak", format!("{} of {}, {history}", seconds(verdict.soaked_ms), span(terms.soak_ms))),
        ("Cohort", counts(&members)),
        (
            "Halted",
            format!(
                "{} failed, {} dark ({} beyond the control group); aborts at {} %",
                verdict.failed, verdict.dark, verdict.dark_beyond_control, terms.abort_at_percent
            ),
        ),
        ("Control", format!("{} seen, {} dark", tally.control.seen, tally.control.dark)),
        ("Replicas", format!("{} of at least {}", tally.replicas, terms.expect_replicas)),
    ];
    if tally.foreign.seen > 0 {
        rows.push(("Foreign", counts(&tally.foreign)));
    }
    rows
}

/// The description of a pull request, with the evidence as a table. `bundle` is where the evidence
/// is in the repository.
pub fn markdown(kind: Kind, report: &RolloutReport, bundle: &str) -> String {
    let mut text = format!("{}\n\n| | |\n|---|---|\n", what_it_does(kind, report));
    let evidence = ("Evidence", bundle.to_owned());
    for (name, value) in rows(report).into_iter().chain(iter::once(evidence)) {
        let _ = writeln!(text, "| {name} | {} |", code(&value));
    }
    if !report.halted.is_empty() {
        text.push_str(
            "\n| Halted | Stage | Collector | Version | Error |\n|---|---|---|---|---|\n",
        );
        for member in report.halted.iter().take(HALTED_SHOWN) {
            let HaltedMember { condition, error, version, label, stage, .. } = member;
            let error: String = error.chars().take(ERROR_CHARS).collect();
            let stage = u64::from(*stage) + 1;
            let cells = [condition, label, version, &error].map(|text| code(text));
            let [condition, label, version, error] = cells;
            let _ = writeln!(text, "| {condition} | {stage} | {label} | {version} | {error} |");
        }
        if let Some(more @ 1..) = report.halted.len().checked_sub(HALTED_SHOWN) {
            let _ = writeln!(text, "\n{more} more are in the evidence.");
        }
    }
    text.push_str(
        "\nThe gateway withdraws an advance whose verdict no longer holds, leaves alone a branch with a \
         commit that is not its own, and never merges.\n",
    );
    text
}

/// A code span that ends where it should in a cell of a table, whatever the text: no mention,
/// reference, link, image or HTML is read in it. Lookalikes stand for the two characters that
/// would end it.
fn code(text: &str) -> String {
    let shown: String = text
        .chars()
        .map(|c| match c {
            '`' => 'ˋ',
            '|' => '¦',
            c if c.is_control() || c.is_whitespace() => ' ',
            c if is_invisible(c) => '\u{fffd}',
            c => c,
        })
        .collect();
    match shown.trim() {
        "" => String::new(),
        shown => format!("`{shown}`"),
    }
}

/// Characters that reorder or hide what stands beside them.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

fn sum(mut all: Counts, one: &Counts) -> Counts {
    all.seen += one.seen;
    all.taking += one.taking;
    all.to += one.to;
    all.from += one.from;
    all.other += one.other;
    all.unknown += one.unknown;
    all
}

fn short(hash: &str) -> &str {
    hash.get(..12).unwrap_or(hash)
}

/// Whole seconds.
fn seconds(ms: Millis) -> String {
    span(ms / 1_000 * 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_a_collector_says_is_shown_as_code() {
        for (said, shown) in [
            ("plain", "`plain`"),
            ("", ""),
            ("` @team `", "`ˋ @team ˋ`"),
            ("a | b\n# heading", "`a ¦ b # heading`"),
            ("<img src=x> [x](http://y) #1 !2", "`<img src=x> [x](http://y) #1 !2`"),
            ("\\", "`\\`"),
            ("a\u{202e}b\u{0}", "`a\u{fffd}b`"),
        ] {
            assert_eq!(code(said), shown, "{said:?}");
        }
    }
}
