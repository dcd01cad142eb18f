//! Halted members: clustered by condition, error and version, worst first, a few named of each.

use render::rollout::report::{HaltedMember, RolloutReport};

use super::html::Html;
use super::words::{count, number, since};
use crate::cli::rollout::style::clean;

/// Halted members that a cluster names.
pub(super) const SAMPLE_MAX: usize = 5;

/// Clusters that a card shows.
pub(super) const CLUSTERS_MAX: usize = 10;

/// What halts, once for each kind.
pub(super) fn clusters(h: &mut Html, report: &RolloutReport, now_ms: u64) {
    if report.halted.is_empty() {
        return;
    }
    let clusters = report.clusters();
    let all = report.verdict.failed.saturating_add(report.verdict.dark);
    let named = report.halted.len() as u64;
    let kinds = count(clusters.len() as u64, "kind", "kinds");
    h.el("details", &[("class", "halted"), ("open", "")], |h| {
        h.line("summary", &[], &format!("Halted members: {}, of {kinds}", number(all.max(named))));
        h.el("ul", &[("class", "clusters")], |h| {
            for ((condition, error, version), members) in clusters.iter().take(CLUSTERS_MAX) {
                h.el("li", &[], |h| {
                    h.el("p", &[], |h| {
                        h.line(
                            "b",
                            &[],
                            &format!("{} × {}", number(members.len() as u64), clean(condition)),
                        );
                        if !version.is_empty() {
                            h.text(" · version ");
                            h.line("span", &[("class", "version")], &clean(version));
                        }
                    });
                    if !error.is_empty() {
                        h.line("p", &[("class", "said")], &clean(error));
                    }
                    samples(h, members, now_ms);
                });
            }
        });
        let rest = clusters.get(CLUSTERS_MAX..).unwrap_or_default();
        let members: usize = rest.iter().map(|(_, members)| members.len()).sum();
        if members > 0 {
            let kinds = count(rest.len() as u64, "more kind", "more kinds");
            let members = count(members as u64, "member", "members");
            h.line("p", &[], &format!("And {kinds} of halt, {members}."));
        }
        if named < all {
            let text = format!("The report names {} of {}.", number(named), number(all));
            h.line("p", &[], &text);
        }
    });
}

fn samples(h: &mut Html, members: &[&HaltedMember], now_ms: u64) {
    h.el("ul", &[("class", "samples")], |h| {
        for member in members.iter().take(SAMPLE_MAX) {
            h.el("li", &[], |h| {
                h.line("code", &[], &clean(&member.label));
                h.text(&format!(" stage {}, ", u64::from(member.stage) + 1));
                since(h, member.since_ms, now_ms);
            });
        }
        let more = members.len().saturating_sub(SAMPLE_MAX) as u64;
        if more > 0 {
            h.line("li", &[], &format!("{} more", number(more)));
        }
    });
}
