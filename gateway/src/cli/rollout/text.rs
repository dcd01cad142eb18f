//! A Rollout in text, as `gateway rollout get` prints it: identity, verdict and why; what is staged
//! and how far; the stages with their members; then who is halted, by error and version.
//!
//! Pure: the same report and the same time give the same text. Whatever a peer chose is
//! [cleaned](clean).

use std::fmt::Write; // to Strings, which cannot fail

use render::problem::printable;
use render::rollout::report::{ProposalState, RolloutReport};
use render::rollout::verdict::{Counts, Told};
use render::rollout::words::span;

use super::style::{Style, age, clean, columns, percent};

/// Halted members that a cluster names.
pub const SAMPLE_MAX: usize = 5;

/// Clusters of halted members that are shown.
pub const CLUSTERS_MAX: usize = 20;

/// The whole report. `now_ms`: what ages are counted to.
pub fn report(report: &RolloutReport, now_ms: u64, style: Style) -> String {
    let mut text = format!(
        "{}  {}\n  {}\n\n",
        style.strong(&clean(&report.rollout)),
        style.verdict(report.verdict.kind),
        printable(&report.verdict.why),
    );
    text.push_str(&facts(report, now_ms));
    text.push('\n');
    text.push_str(&indented(&stages(report)));
    for note in notes(report) {
        let _ = writeln!(text, "  {note}");
    }
    text.push_str(&halted(report, now_ms));
    text
}

/// What is staged, how far it is, who reports, what is proposed.
fn facts(report: &RolloutReport, now_ms: u64) -> String {
    let RolloutReport { terms, times, verdict, .. } = report;
    let ago = |ms: u64| format!("{} ago", age(now_ms.saturating_sub(ms)));
    let mut rows: Vec<(&str, String)> = vec![
        ("tier", format!("{} (owner {})", clean(&report.tier), clean(&report.owner))),
        ("binding", format!("{} → {}", clean(&report.from), clean(&report.to))),
        ("head", format!("{}, candidate {}", commit(&report.head), short(&report.candidate))),
    ];
    let active = report.cohorts.get(terms.stage as usize);
    let cohort = active.map_or(String::new(), |line| format!(": {}", clean(&line.cohort)));
    // A report is up to a second old; the soak goes on until the reader sees it.
    let soaked = now_ms.saturating_sub(times.now_ms).saturating_add(verdict.soaked_ms);
    let soaked = soaked.min(terms.soak_ms.max(verdict.soaked_ms));
    rows.push((
        "stage",
        format!(
            "{} of {}{cohort}; soaked {} of {} ({})",
            u64::from(terms.stage) + 1,
            terms.stages,
            age(soaked),
            span(terms.soak_ms),
            if terms.soak_ms == 0 {
                "100.0 %".into()
            } else {
                percent(soaked.min(terms.soak_ms), terms.soak_ms)
            },
        ),
    ));
    if let Some(due_ms) = verdict.due_ms {
        rows.push(("due", format!("in {}", age(due_ms.saturating_sub(now_ms)))));
    }
    let told = match times.stage_since {
        Told::History => "git history says so",
        Told::Sight => "first seen here",
    };
    rows.push(("began", format!("{} ({told})", ago(times.stage_since_ms))));
    let halted = verdict.failed.saturating_add(verdict.dark);
    let at = match verdict.aborts_at {
        0 => format!("{} %", terms.abort_at_percent),
        count => format!("{count} ({} %)", terms.abort_at_percent),
    };
    let (seen, share) = (verdict.seen, percent(halted, verdict.seen));
    rows.push(("halted", format!("{halted} of {seen} ({share}), abort at {at}")));
    if let Some(since) = report.braked_since_ms {
        let on = format!(
            "on for {}: nobody new is offered the candidate",
            age(now_ms.saturating_sub(since))
        );
        rows.push(("brake", on));
    }
    rows.push(("replicas", replicas(report)));
    rows.push(("proposal", report.proposal.as_ref().map_or_else(|| "none".into(), proposal)));
    let mut text = String::new();
    for (name, value) in rows {
        let _ = writeln!(text, "  {name:<9} {value}");
    }
    for replica in report.replicas.iter().filter(|one| !one.reporting || !one.same_head) {
        let what = if replica.reporting { "serves another head" } else { "does not report" };
        let name = clean(&replica.name);
        let _ =
            writeln!(text, "  {:<9} ! {name} {what}, last word {} ago", "", age(replica.age_ms));
    }
    text
}

fn replicas(report: &RolloutReport) -> String {
    let (tally, terms) = (&report.tally, &report.terms);
    let oldest = report.replicas.iter().filter(|one| one.reporting).map(|one| one.age_ms).max();
    let oldest = oldest.map_or(String::new(), |ms| format!(", oldest evidence {} ago", age(ms)));
    format!("{} report, {} expected{oldest}", tally.replicas, terms.expect_replicas)
}

/// A proposal on one line.
pub fn proposal(proposal: &ProposalState) -> String {
    let ProposalState { kind, branch, state, commit, url, error, attempts } = proposal;
    let mut text = format!("{} {}: {}", clean(kind), clean(state), clean(branch));
    if let Some(commit) = commit {
        let _ = write!(text, " at {}", short(commit));
    }
    if let Some(url) = url {
        let _ = write!(text, ", {}", clean(url));
    }
    if let Some(error) = error {
        let _ = write!(text, " (try {attempts}: {})", clean(error));
    }
    text
}

/// Members by stage. A row's TO, FROM, OTHER and UNKNOWN add up to its SEEN.
fn stages(report: &RolloutReport) -> String {
    let header = ["", "SEEN", "TO", "FROM", "OTHER", "UNKNOWN", "FAILED", "DARK"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    let row = |name: String, cells: [Option<u64>; 7]| {
        let cells =
            cells.map(|cell| cell.map_or_else(|| "-".to_owned(), |count| count.to_string()));
        std::iter::once(name).chain(cells).collect::<Vec<_>>()
    };
    let counted = |counts: &Counts| {
        let Counts { seen, taking, to, from, other, unknown, failed, dark, .. } = counts;
        [*seen, to.saturating_add(*taking), *from, *other, *unknown, *failed, *dark].map(Some)
    };
    for (at, line) in report.cohorts.iter().enumerate() {
        let active = if at == report.terms.stage as usize { " (active)" } else { "" };
        let name = format!("├─ {} {}{active}", at + 1, clean(&line.cohort));
        let counts = report.tally.stages.get(at);
        rows.push(row(name, counts.map_or([None; 7], counted)));
    }
    rows.push(row("├─ Cohort".into(), counted(&report.tally.members())));
    let foreign = &report.tally.foreign;
    let control = &report.tally.control;
    let last = if *foreign == Counts::default() { "└─" } else { "├─" };
    let of_control = [Some(control.seen), None, None, None, None, None, Some(control.dark)];
    rows.push(row(format!("{last} control"), of_control));
    if *foreign != Counts::default() {
        let mut cells = counted(foreign);
        // They say neither, and neither would count.
        (cells[5], cells[6]) = (None, None);
        rows.push(row("└─ Foreign".into(), cells));
    }
    columns(&rows, |at| at == 0)
}

/// What the numbers alone do not say, a sentence each.
fn notes(report: &RolloutReport) -> Vec<String> {
    let (tally, sum) = (&report.tally, report.tally.members());
    let mut notes = Vec::new();
    let mut note = |count: u64, text: &dyn Fn() -> String| {
        if count > 0 {
            notes.push(text());
        }
    };
    note(sum.taking, &|| format!("{} of TO are still taking the candidate", sum.taking));
    note(sum.unobserved, &|| {
        format!("{} are as last known: the replica that knows them does not report", sum.unobserved)
    });
    note(sum.left, &|| format!("{} said farewell", sum.left));
    note(tally.foreign.from, &|| {
        format!("{} Foreign are still on the base: lag, never failure", tally.foreign.from)
    });
    note(tally.awaited, &|| {
        format!("{} more collectors of the Tier have no place under it yet", tally.awaited)
    });
    note(tally.no_bucket, &|| {
        format!("a hash attribute is missing on {}, so no percent admits them", tally.no_bucket)
    });
    note(tally.duplicates, &|| {
        format!("{} live collectors share their identity with another", tally.duplicates)
    });
    note(tally.overflow, &|| {
        format!("{} collectors found no room in the evidence (docs/limits.md)", tally.overflow)
    });
    note(u64::from(report.terms.hold), &|| "hold: true in the file, so nothing is proposed".into());
    note(u64::from(report.terms.same_content), &|| {
        "candidate and base have equal content: nothing is staged".into()
    });
    notes.extend(report.notices.iter().map(|notice| printable(notice).into_owned()));
    notes
}

/// Halted members that share condition, error and version, worst first.
fn halted(report: &RolloutReport, now_ms: u64) -> String {
    if report.halted.is_empty() {
        return String::new();
    }
    let clusters = report.clusters();
    let named = report.halted.len() as u64;
    let all = report.verdict.failed.saturating_add(report.verdict.dark);
    let mut text = String::from("\n  halted members");
    if named < all {
        let _ = write!(text, " (the report names {named} of {all})");
    }
    text.push('\n');
    for ((condition, error, version), members) in clusters.iter().take(CLUSTERS_MAX) {
        let version =
            if version.is_empty() { String::new() } else { format!("  {}", clean(version)) };
        let error = if error.is_empty() { String::new() } else { format!("  {}", clean(error)) };
        let _ = writeln!(text, "  {} × {}{version}{error}", clean(condition), members.len());
        let mut names: Vec<String> = members
            .iter()
            .take(SAMPLE_MAX)
            .map(|member| {
                let since = age(now_ms.saturating_sub(member.since_ms));
                format!("{} (stage {}, {since})", clean(&member.label), u64::from(member.stage) + 1)
            })
            .collect();
        if let Some(more) = members.len().checked_sub(SAMPLE_MAX).filter(|more| *more > 0) {
            names.push(format!("+{more} more"));
        }
        let _ = writeln!(text, "      {}", names.join(", "));
    }
    if let Some(rest) = clusters.get(CLUSTERS_MAX..).filter(|rest| !rest.is_empty()) {
        let members: usize = rest.iter().map(|(_, members)| members.len()).sum();
        let _ = writeln!(text, "  and {} more kinds of halt, {members} members", rest.len());
    }
    text
}

fn commit(commit: &str) -> String {
    if commit.is_empty() { "(unknown)".into() } else { short(commit) }
}

/// The first 12 characters of a hash.
fn short(hash: &str) -> String {
    clean(hash).chars().take(12).collect()
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}

#[cfg(test)]
pub(crate) mod tests;
