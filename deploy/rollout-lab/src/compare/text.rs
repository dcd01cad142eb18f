//! A comparison for people: a table, and a chart.

use std::fmt::Write as _;

use super::{Answer, Comparison};
use crate::plot::{self, Panel, Series};

/// One row for each mode, why a mode stalls, every step, and what is not claimed.
pub fn table(comparison: &Comparison) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(out, "{}\n", headline(comparison));
    let _ = writeln!(
        out,
        "{:<11} {:<10} {:>6} {:>14} {:>11} {:>14}",
        "mode", "outcome", "passes", "min available", "max active", "max processes"
    );
    for answer in &comparison.answers {
        let _ = writeln!(
            out,
            "{:<11} {:<10} {:>6} {:>14} {:>11} {:>14}",
            answer.mode,
            answer.outcome,
            answer.passes,
            answer.min_available,
            answer.max_active,
            answer.max_processes
        );
    }
    for answer in &comparison.answers {
        if answer.outcome == "stalls" {
            let _ = writeln!(out, "\n{} stalls:", answer.mode);
            for why in &answer.why {
                let _ = writeln!(out, "  {why}");
            }
        }
    }
    for answer in &comparison.answers {
        let _ = writeln!(out, "\n{} (old+new, available)", answer.mode);
        for step in &answer.steps {
            let _ = writeln!(
                out,
                "  {:>3}  {:<20} {}+{}, {}",
                step.step, step.action, step.old, step.new, step.available
            );
        }
    }
    let _ = writeln!(out, "\nNot claimed:");
    for text in &comparison.not_claimed {
        let _ = writeln!(out, "  {text}");
    }
    out
}

/// One panel for each mode.
pub fn svg(comparison: &Comparison) -> String {
    let panels: Vec<Panel> = comparison.answers.iter().map(panel).collect();
    plot::svg(&panels, &format!("{}. Counts of tasks, not of traffic.", headline(comparison)))
}

fn panel(answer: &Answer) -> Panel {
    let steps = &answer.steps;
    let series = |name: &str, value: fn(&super::Step) -> i64| Series {
        name: name.to_owned(),
        values: steps.iter().map(value).collect(),
    };
    Panel {
        title: format!("{}: {}", answer.mode, answer.outcome),
        note: answer.why.join("; "),
        labels: steps.iter().map(|step| step.action.clone()).collect(),
        series: vec![
            series("available", |step| step.available),
            series("old", |step| step.old),
            series("new", |step| step.new),
            series("processes", |step| step.processes),
        ],
    }
}

fn headline(comparison: &Comparison) -> String {
    let Comparison { replicas, max_unavailable, max_surge, .. } = comparison;
    let (asked_u, asked_s) = (&comparison.max_unavailable_asked, &comparison.max_surge_asked);
    let mut text = format!("{replicas} replicas, maxUnavailable {asked_u}, maxSurge {asked_s}");
    if asked_u.ends_with('%') || asked_s.ends_with('%') {
        let _ =
            write!(text, " (in tasks {max_unavailable} and {max_surge}, by Kubernetes' rounding)");
    }
    if comparison.raised_to_one {
        text.push_str("; both rounded to 0, so maxUnavailable is 1");
    }
    if comparison.unhealthy_old > 0 {
        let _ = write!(text, "; {} old unhealthy", comparison.unhealthy_old);
    }
    if !comparison.acknowledged {
        text.push_str("; no end is acknowledged");
    }
    text
}
