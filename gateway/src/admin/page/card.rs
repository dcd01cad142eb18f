//! A Rollout as a card: what is to be done and why, first; then how far it is, who runs what, and
//! who is halted; the long lists are folded.

use render::problem::printable;
use render::rollout::report::{ProposalState, RolloutReport};
use render::rollout::verdict::{Counts, Kind, Told};

use super::bars::{self, Part};
use super::halted;
use super::html::{Html, link_target};
use super::stages;
use super::words::{ago, count, duration, number, short, since, time};
use crate::aggregate::Role;
use crate::cli::rollout::style::{clean, glyph, percent};

/// Replicas that a card names.
pub(super) const REPLICAS_MAX: usize = 20;
/// Sentences about the evidence that a card shows.
const NOTICES_MAX: usize = 5;

/// The element id of a Rollout's card.
pub(super) fn card_id(rollout: &str) -> String {
    format!("rollout:{rollout}")
}

/// How a verdict is told on the page.
pub(super) fn verdict_badge(h: &mut Html, kind: Kind) {
    h.el("span", &[("class", "verdict")], |h| {
        h.line("span", &[("aria-hidden", "true"), ("class", "glyph")], glyph(kind));
        h.text(kind.label());
    });
}

/// A Rollout that was judged.
pub(super) fn card(h: &mut Html, report: &RolloutReport, now_ms: u64) {
    let kind = report.verdict.kind;
    let (id, name) = (card_id(&report.rollout), clean(&report.rollout));
    let title = format!("{id}:title");
    let attributes: &[_] = &[
        ("id", &*id),
        ("class", "card"),
        ("data-verdict", kind.label()),
        ("aria-labelledby", &*title),
    ];
    h.el("article", attributes, |h| {
        h.el("header", &[], |h| {
            h.el("h3", &[("id", &*title)], |h| {
                verdict_badge(h, kind);
                h.line("span", &[("class", "name")], &name);
            });
            h.line("p", &[("class", "why")], &report.verdict.why);
            brake(h, report, now_ms);
            proposal(h, report.proposal.as_ref());
        });
        halted::clusters(h, report, now_ms);
        h.el("div", &[("class", "body")], |h| {
            stages::bar(h, report, now_ms);
            arms(h, report);
            halted_share(h, report);
        });
        identity(h, report);
        stages::members(h, report);
        replicas(h, report);
        notes(h, report);
        h.el("p", &[("class", "more")], |h| {
            h.text("All of it: ");
            h.line("code", &[], &format!("gateway rollout get {name}"));
        });
    });
}

/// A Rollout of the head without a verdict of this process.
pub(super) fn unjudged(h: &mut Html, rollout: &str, role: Role) {
    let (id, name) = (card_id(rollout), clean(rollout));
    let title = format!("{id}:title");
    let attributes: &[_] =
        &[("id", &*id), ("class", "card"), ("data-verdict", "new"), ("aria-labelledby", &*title)];
    h.el("article", attributes, |h| {
        h.el("h3", &[("id", &*title)], |h| {
            h.el("span", &[("class", "verdict")], |h| {
                h.line("span", &[("aria-hidden", "true"), ("class", "glyph")], "·");
                h.text("new");
            });
            h.line("span", &[("class", "name")], &name);
        });
        let why = match role {
            Role::Replica { .. } => {
                "Not judged here: this replica reports to aggregators, which judge."
            }
            Role::Alone | Role::Aggregator => {
                "Not judged yet: the first verdict comes within seconds."
            }
        };
        h.line("p", &[("class", "why")], why);
    });
}

fn brake(h: &mut Html, report: &RolloutReport, now_ms: u64) {
    let Some(at_ms) = report.braked_since_ms else { return };
    h.el("p", &[("class", "brake")], |h| {
        h.line("strong", &[], "Brake on");
        h.text(" for ");
        time(h, at_ms, &duration(now_ms.saturating_sub(at_ms)));
        h.text(": nobody new is offered the candidate.");
    });
}

fn proposal(h: &mut Html, proposal: Option<&ProposalState>) {
    let Some(ProposalState { kind, branch, state, commit, url, error, attempts }) = proposal else {
        return;
    };
    h.el("p", &[("class", "proposal")], |h| {
        h.line("strong", &[], &format!("Proposal to {}: {}", clean(kind), clean(state)));
        h.text(", branch ");
        h.line("code", &[], &clean(branch));
        if let Some(commit) = commit {
            h.text(" at ");
            h.line("code", &[], &short(commit));
        }
        if let Some(url) = url {
            h.text(" · ");
            match link_target(url) {
                Some(url) => {
                    h.line("a", &[("href", url), ("rel", "noopener noreferrer")], "pull request");
                }
                None => h.line("code", &[], &clean(url)),
            }
        }
        if let Some(error) = error {
            h.el("span", &[("class", "error")], |h| {
                h.text(&format!(" Try {} failed: {}", number((*attempts).into()), clean(error)));
            });
        }
    });
}

fn identity(h: &mut Html, report: &RolloutReport) {
    h.el("dl", &[("class", "facts")], |h| {
        fact(h, "Tier", |h| h.text(&clean(&report.tier)));
        fact(h, "Change", |h| {
            h.text(&clean(&report.from));
            h.line("span", &[("aria-hidden", "true")], " → ");
            h.line("span", &[("class", "hidden")], " to ");
            h.line("b", &[], &clean(&report.to));
        });
        fact(h, "Owner", |h| h.text(&clean(&report.owner)));
    });
}

/// A term and what is said of it.
pub(super) fn fact(h: &mut Html, term: &str, value: impl FnOnce(&mut Html)) {
    h.el("div", &[], |h| {
        h.line("dt", &[], term);
        h.el("dd", &[], value);
    });
}

/// The five arms that every member is in exactly one of, in the order they are drawn in.
const ARMS: [(&str, &str); 5] = [
    ("to", "on the candidate"),
    ("taking", "taking it"),
    ("from", "on the base"),
    ("other", "on another"),
    ("unknown", "unknown"),
];

fn arms(h: &mut Html, report: &RolloutReport) {
    let Counts { seen, taking, to, from, other, unknown, .. } = report.tally.members();
    let counts = [to, taking, from, other, unknown];
    h.el("section", &[("class", "share arms")], |h| {
        h.el("h4", &[], |h| {
            h.text("Members ");
            h.line("span", &[("class", "sum")], &format!("{} seen", number(seen)));
        });
        let parts: Vec<Part> =
            ARMS.iter().zip(counts).map(|((class, _), count)| Part { class, count }).collect();
        bars::stacked(h, &parts);
        h.el("ul", &[("class", "legend")], |h| {
            for ((class, words), count) in ARMS.iter().zip(counts) {
                let empty = if count == 0 { "none" } else { "some" };
                h.el("li", &[("class", empty)], |h| {
                    bars::swatch(h, class);
                    h.line("b", &[], &number(count));
                    h.text(&format!(" {words}"));
                });
            }
        });
    });
}

fn halted_share(h: &mut Html, report: &RolloutReport) {
    let verdict = &report.verdict;
    let (failed, dark) = (verdict.failed, verdict.dark);
    let halted = failed.saturating_add(dark);
    h.el("section", &[("class", "share halts")], |h| {
        h.el("h4", &[], |h| {
            h.text("Halted ");
            let share = percent(halted, verdict.seen);
            h.line(
                "span",
                &[("class", "sum")],
                &format!("{} of {}, {share}", number(halted), number(verdict.seen)),
            );
        });
        bars::halted(h, failed, dark, verdict.aborts_at);
        h.el("ul", &[("class", "legend")], |h| {
            for (class, count, words) in [("failed", failed, "failed"), ("dark", dark, "went dark")]
            {
                let empty = if count == 0 { "none" } else { "some" };
                h.el("li", &[("class", empty)], |h| {
                    bars::swatch(h, class);
                    h.line("b", &[], &number(count));
                    h.text(&format!(" {words}"));
                });
            }
            h.el("li", &[("class", "line")], |h| {
                bars::swatch(h, "block-line");
                h.line("b", &[], "1");
                h.text(" blocks");
            });
            h.el("li", &[("class", "line")], |h| {
                bars::swatch(h, "abort-line");
                let at = report.terms.abort_at_percent;
                match verdict.aborts_at {
                    0 => h.text(&format!("{at} % abort")),
                    members => {
                        h.line("b", &[], &number(members));
                        h.text(&format!(" abort ({at} %)"));
                    }
                }
            });
        });
        control(h, report);
    });
}

fn control(h: &mut Html, report: &RolloutReport) {
    let control = &report.tally.control;
    h.el("p", &[("class", "control")], |h| {
        h.line("b", &[], "Control group");
        h.text(&format!(
            " (the Tier's others): {} seen, {} dark ({})",
            number(control.seen),
            number(control.dark),
            percent(control.dark, control.seen),
        ));
        let (dark, beyond) = (report.verdict.dark, report.verdict.dark_beyond_control);
        if dark > beyond {
            h.text(&format!(
                "; it explains {} of the {} members that went dark",
                number(dark - beyond),
                number(dark)
            ));
        }
        h.text(".");
    });
}

fn replicas(h: &mut Html, report: &RolloutReport) {
    let (reporting, expected) = (report.tally.replicas, report.terms.expect_replicas);
    let oldest = report.replicas.iter().filter(|one| one.reporting).map(|one| one.age_ms).max();
    let oldest = oldest.map_or(String::new(), |ms| format!("; oldest word {}", ago(ms)));
    let amiss =
        |at: usize| report.replicas.get(at).is_some_and(|one| !one.reporting || !one.same_head);
    let mut order: Vec<usize> = (0..report.replicas.len()).collect();
    order.sort_by_key(|at| !amiss(*at));
    h.el("details", &[], |h| {
        let complete = if u64::from(reporting) < u64::from(expected) { "amiss" } else { "well" };
        h.el("summary", &[("class", complete)], |h| {
            h.text(&format!("Replicas: {reporting} report, {expected} expected{oldest}"));
        });
        h.el("ul", &[("class", "plain")], |h| {
            for at in order.iter().take(REPLICAS_MAX) {
                let Some(one) = report.replicas.get(*at) else { continue };
                let what = match (one.reporting, one.same_head) {
                    (false, _) => "does not report",
                    (true, false) => "serves another head",
                    (true, true) => "reports",
                };
                let class = if amiss(*at) { "amiss" } else { "well" };
                h.el("li", &[("class", class)], |h| {
                    h.line("b", &[], &clean(&one.name));
                    h.text(&format!(" {what}; last word "));
                    time(h, report.times.now_ms.saturating_sub(one.age_ms), &ago(one.age_ms));
                });
            }
            let more = order.len().saturating_sub(REPLICAS_MAX) as u64;
            if more > 0 {
                h.line("li", &[], &format!("and {}", count(more, "more", "more")));
            }
        });
    });
}

/// What the numbers alone do not say, a sentence each.
fn notes(h: &mut Html, report: &RolloutReport) {
    let (tally, sum) = (&report.tally, report.tally.members());
    let mut notes: Vec<String> = Vec::new();
    let mut note = |n: u64, text: &str| {
        if n > 0 {
            notes.push(format!("{} {text}", number(n)));
        }
    };
    note(sum.unobserved, "are as last known: the replica that knows them does not report.");
    note(sum.left, "said farewell.");
    note(tally.foreign.from, "Foreign are still on the base: lag, never failure.");
    note(tally.no_bucket, "lack a hash attribute, so no percent admits them.");
    note(tally.duplicates, "live collectors share their identity with another.");
    note(tally.overflow, "collectors found no room in the evidence (docs/limits.md).");
    if report.terms.hold {
        notes.push("The file says hold: true, so nothing is proposed.".to_owned());
    }
    if report.terms.same_content {
        notes.push("Candidate and base have equal content: nothing is staged.".to_owned());
    }
    let shown = report.notices.iter().take(NOTICES_MAX);
    notes.extend(shown.map(|notice| printable(notice).into_owned()));
    let more = report.notices.len().saturating_sub(NOTICES_MAX) as u64;
    if more > 0 {
        notes.push(format!("{} more notices.", number(more)));
    }
    if sum.seen == 0 {
        let name = clean(&report.rollout);
        notes.push(format!(
            "No member is connected; gateway rollout plan {name} counts who would be."
        ));
    }
    if !notes.is_empty() {
        h.el("ul", &[("class", "notes")], |h| {
            for note in &notes {
                h.line("li", &[], note);
            }
        });
    }
}

/// When the active stage began, and how that is known.
pub(super) fn began(h: &mut Html, report: &RolloutReport, now_ms: u64) {
    since(h, report.times.stage_since_ms, now_ms);
    h.text(match report.times.stage_since {
        Told::History => " by git history",
        Told::Sight => ", when it was first seen here",
    });
}
