//! What a scrape shows of the verdicts.

use std::collections::BTreeMap;
use std::sync::Arc;

use render::rollout::halt::CONDITIONS;
use render::rollout::report::RolloutReport;
use render::rollout::verdict::Kind;

use crate::metrics::Metrics;
use crate::metrics::family::GaugeFamily;

/// Replaces the series of all Rollouts: those of one that left head go with it.
pub(super) fn show(metrics: &Metrics, reports: &BTreeMap<Box<str>, Arc<RolloutReport>>) {
    each(&metrics.rollout_members, reports, |report, put| {
        let members = report.tally.members();
        put("taking", count(members.taking));
        put("to", count(members.to));
        put("from", count(members.from));
        put("other", count(members.other));
        put("unknown", count(members.unknown));
    });
    each(&metrics.rollout_halted_members, reports, |report, put| {
        let members = report.tally.members();
        // Of each sort of condition the first stands for all until a second one ships.
        for (dark, halted) in [(false, members.failed), (true, members.dark)] {
            let condition = CONDITIONS.iter().find(|known| known.outage_explains() == dark);
            if let Some(condition) = condition {
                put(condition.name(), count(halted));
            }
        }
    });
    each(&metrics.rollout_verdict, reports, |report, put| {
        for kind in Kind::ALL {
            put(kind.label(), f64::from(u8::from(kind == report.verdict.kind)));
        }
    });
    one(&metrics.rollout_halted_ratio, reports, |report| {
        let verdict = &report.verdict;
        ratio(verdict.failed + verdict.dark_beyond_control, verdict.seen)
    });
    one(&metrics.rollout_control_dark_ratio, reports, |report| {
        ratio(report.tally.control.dark, report.tally.control.seen)
    });
    one(&metrics.rollout_abort_ratio, reports, |report| {
        f64::from(report.terms.abort_at_percent) / 100.0
    });
    one(&metrics.rollout_brake, reports, |report| {
        f64::from(u8::from(report.braked_since_ms.is_some()))
    });
    one(&metrics.rollout_soak, reports, |report| count(report.verdict.soaked_ms) / 1_000.0);
}

type Reports = BTreeMap<Box<str>, Arc<RolloutReport>>;

/// A series per Rollout.
fn one(family: &GaugeFamily, reports: &Reports, value: impl Fn(&RolloutReport) -> f64) {
    let series: Vec<([&str; 1], f64)> =
        reports.iter().map(|(rollout, report)| ([&**rollout], value(report))).collect();
    family.replace(series.iter().map(|(labels, value)| (&labels[..], *value)));
}

/// Several series per Rollout, by a second label.
fn each(
    family: &GaugeFamily,
    reports: &Reports,
    values: impl Fn(&RolloutReport, &mut dyn FnMut(&'static str, f64)),
) {
    let mut series: Vec<([&str; 2], f64)> = Vec::new();
    for (rollout, report) in reports {
        values(report, &mut |label, value| series.push(([&**rollout, label], value)));
    }
    family.replace(series.iter().map(|(labels, value)| (&labels[..], *value)));
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { count(part) / count(whole) }
}

#[expect(clippy::cast_precision_loss, reason = "nobody has 2^53 collectors or milliseconds")]
fn count(count: u64) -> f64 {
    count as f64
}
