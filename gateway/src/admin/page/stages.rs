//! The stages of a Rollout: how far it is, and its members by stage.

use std::cmp::Ordering;

use render::rollout::report::RolloutReport;
use render::rollout::verdict::Counts;

use super::bars;
use super::card::began;
use super::html::Html;
use super::words::{count, duration, number, time};
use crate::cli::rollout::style::{clean, percent};

/// Stages that a card shows, around the active one.
pub(super) const STAGES_MAX: usize = 12;

/// The stages side by side, and what the active one still needs.
pub(super) fn bar(h: &mut Html, report: &RolloutReport, now_ms: u64) {
    let (terms, verdict) = (&report.terms, &report.verdict);
    // A report is up to a second old; the soak goes on until the reader sees it.
    let soaked = now_ms.saturating_sub(report.times.now_ms).saturating_add(verdict.soaked_ms);
    let soaked = soaked.min(terms.soak_ms.max(verdict.soaked_ms));
    let share = if terms.soak_ms == 0 {
        "100.0 %".to_owned()
    } else {
        percent(soaked.min(terms.soak_ms), terms.soak_ms)
    };
    h.el("section", &[("class", "progress")], |h| {
        h.el("h4", &[], |h| {
            h.text(&format!("Stage {} of {} ", u64::from(terms.stage) + 1, terms.stages));
            h.line("span", &[("class", "sum")], &format!("soaked {share}"));
        });
        let active = terms.stage as usize;
        let (from, to) = window(report.cohorts.len(), active);
        let start = (from + 1).to_string();
        h.el("ol", &[("class", "stages"), ("start", &start)], |h| {
            let lines = report.cohorts.iter().enumerate().take(to).skip(from);
            for (at, line) in lines {
                let (class, state) = match at.cmp(&active) {
                    Ordering::Less => ("done", "done"),
                    Ordering::Equal => ("active", "active"),
                    Ordering::Greater => ("ahead", "to come"),
                };
                let mut attributes = vec![("class", class)];
                if at == active {
                    attributes.push(("aria-current", "step"));
                }
                h.el("li", &attributes, |h| {
                    let (part, whole) = match at.cmp(&active) {
                        Ordering::Equal if terms.soak_ms > 0 => (soaked, terms.soak_ms),
                        Ordering::Less | Ordering::Equal => (1, 1),
                        Ordering::Greater => (0, 1),
                    };
                    bars::progress(h, "soaked", part, whole);
                    h.line(
                        "span",
                        &[("class", "cohort")],
                        &format!("{}. {}", at + 1, clean(&line.cohort)),
                    );
                    h.line("span", &[("class", "state")], state);
                });
            }
        });
        let hidden = report.cohorts.len() - (to - from);
        h.el("p", &[("class", "soak")], |h| {
            h.text(&match soaked < terms.soak_ms {
                true => format!("Soaked {} of {}; ", duration(soaked), duration(terms.soak_ms)),
                false => format!("The soak of {} is over; ", duration(terms.soak_ms)),
            });
            if let Some(due_ms) = verdict.due_ms {
                h.text("due in ");
                time(h, due_ms, &duration(due_ms.saturating_sub(now_ms)));
                h.text("; ");
            }
            h.text("began ");
            began(h, report, now_ms);
            h.text(".");
            if hidden > 0 {
                h.text(&format!(" {} not shown.", count(hidden as u64, "stage is", "stages are")));
            }
        });
    });
}

/// Which of `stages` are shown: all, or [`STAGES_MAX`] of them around the active one.
fn window(stages: usize, active: usize) -> (usize, usize) {
    let from = active.saturating_sub(STAGES_MAX / 2).min(stages.saturating_sub(STAGES_MAX));
    (from, stages.min(from + STAGES_MAX))
}

/// Members by stage, the control group and the Foreign, as a table.
pub(super) fn members(h: &mut Html, report: &RolloutReport) {
    let tally = &report.tally;
    h.el("details", &[], |h| {
        h.line("summary", &[], "Members by stage");
        let name = format!("Members of {} by stage", clean(&report.rollout));
        scrolled(h, &name, |h| {
            h.el("table", &[], |h| {
                h.line("caption", &[], "On, taking, base, other and unknown add up to seen.");
                h.el("thead", &[], |h| {
                    h.el("tr", &[], |h| {
                        h.line("th", &[("scope", "col")], "Stage");
                        for name in COLUMNS {
                            h.line("th", &[("scope", "col"), ("class", "number")], name);
                        }
                    });
                });
                h.el("tbody", &[], |h| {
                    let (from, to) = window(report.cohorts.len(), report.terms.stage as usize);
                    for (at, line) in report.cohorts.iter().enumerate().take(to).skip(from) {
                        let name = format!("{}. {}", at + 1, clean(&line.cohort));
                        row(h, &name, tally.stages.get(at).map_or([None; 8], cells));
                    }
                    row(h, "All members", cells(&tally.members()));
                    let control = &tally.control;
                    let none = None;
                    let of_control = [
                        Some(control.seen),
                        none,
                        none,
                        none,
                        none,
                        none,
                        none,
                        Some(control.dark),
                    ];
                    row(h, "Control group", of_control);
                    if tally.foreign != Counts::default() {
                        let mut cells = cells(&tally.foreign);
                        // They say neither, and neither would count.
                        (cells[6], cells[7]) = (None, None);
                        row(h, "Foreign", cells);
                    }
                });
            });
        });
    });
}

const COLUMNS: [&str; 8] = ["Seen", "On", "Taking", "Base", "Other", "Unknown", "Failed", "Dark"];

fn cells(counts: &Counts) -> [Option<u64>; 8] {
    let Counts { seen, taking, to, from, other, unknown, failed, dark, .. } = counts;
    [*seen, *to, *taking, *from, *other, *unknown, *failed, *dark].map(Some)
}

fn row(h: &mut Html, name: &str, cells: [Option<u64>; 8]) {
    h.el("tr", &[], |h| {
        h.line("th", &[("scope", "row")], name);
        for cell in cells {
            let text = cell.map_or_else(|| "–".to_owned(), number);
            h.line("td", &[("class", "number")], &text);
        }
    });
}

/// A table that is wider than a small screen, reachable and scrollable by keyboard.
pub(super) fn scrolled(h: &mut Html, name: &str, table: impl FnOnce(&mut Html)) {
    let attributes: &[_] =
        &[("class", "scrolled"), ("role", "region"), ("tabindex", "0"), ("aria-label", name)];
    h.el("div", attributes, table);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_active_stage_is_always_among_those_shown() {
        for stages in 1..40 {
            for active in 0..stages {
                let (from, to) = window(stages, active);
                assert!(from <= active && active < to && to <= stages, "{stages} {active}");
                assert_eq!(to - from, stages.min(STAGES_MAX));
            }
        }
    }
}
