//! Tiers and who is there, by arm and status.

use std::collections::BTreeMap;

use proto::session::Delivery;
use render::snapshot::Arm;

use super::html::Html;
use super::picture::{Picture, TierFacts};
use super::stages::scrolled;
use super::words::{count, number};
use crate::aggregate::Role;
use crate::cli::rollout::style::clean;
use crate::serve::{ARMS, DELIVERIES, TierCount, delivery_label};

/// Tiers that the page shows.
pub const TIERS_MAX: usize = 200;

/// A row of the table before it is drawn.
struct Row<'a> {
    name: &'a str,
    environment: &'a str,
    rollout: Option<&'a str>,
    count: Option<&'a TierCount>,
}

impl Row<'_> {
    fn failed(&self) -> u64 {
        let failed = DELIVERIES.iter().position(|delivery| *delivery == Delivery::Failed);
        let arms = self.count.map(|count| &count.counts[..]).unwrap_or_default();
        arms.iter().map(|statuses| failed.and_then(|at| statuses.get(at)).unwrap_or(&0)).sum()
    }
}

/// The section of Tiers.
pub(super) fn section(h: &mut Html, picture: &Picture<'_>) {
    let collectors: u64 = picture.counts.iter().map(TierCount::total).sum();
    h.el("section", &[("aria-labelledby", "tiers"), ("class", "tiers")], |h| {
        h.el("h2", &[("id", "tiers")], |h| {
            h.text("Tiers ");
            let tiers = count(picture.tiers.len() as u64, "Tier", "Tiers");
            let collectors = match picture.replica.role {
                Role::Aggregator => String::new(),
                _ => format!(", {} here", count(collectors, "collector", "collectors")),
            };
            h.line("span", &[("class", "sum")], &format!("{tiers}{collectors}"));
        });
        if picture.tiers.is_empty() {
            h.el("p", &[("class", "empty")], |h| {
                h.text("This head has no Tier, so every collector is Unmatched. Add ");
                h.line("code", &[], "teams/TEAM/tiers/NAME.yaml");
                h.text(" to the estate and render it (docs/estate.md).");
            });
        }
        if picture.replica.role == Role::Aggregator {
            h.line(
                "p",
                &[("class", "empty")],
                "Collectors connect to replicas, whose pages count them. An aggregator judges what \
                 replicas report of them.",
            );
            return;
        }
        if collectors == 0 {
            h.el("p", &[("class", "empty")], |h| {
                h.text("No collector is connected here. Point one at ");
                h.line("code", &[], "ws://HOST:4320/v1/opamp");
                h.text(" (the address of --listen), or simulate some: ");
                h.line("code", &[], "loadgen --estate DIR --endpoint ws://HOST:4320/v1/opamp");
                h.text(".");
            });
        }
        let rows = rows(picture);
        if !rows.is_empty() {
            table(h, &rows);
        }
        let more = rows.len().saturating_sub(TIERS_MAX) as u64;
        if more > 0 {
            h.el("p", &[("class", "more")], |h| {
                h.text(&format!("{} more; all of them: ", count(more, "row", "rows")));
                h.line("code", &[], "curl 'http://ADMIN/api/v1/tiers?limit=10000'");
            });
        }
    });
}

/// Who failed first; else in the order of the head, and last the Unmatched and Tiers that left head
/// while collectors are still counted there.
fn rows<'a>(picture: &'a Picture<'_>) -> Vec<Row<'a>> {
    let mut counts: BTreeMap<Option<&str>, &TierCount> =
        picture.counts.iter().map(|count| (count.tier.as_deref(), count)).collect();
    let mut rows: Vec<Row<'_>> = picture
        .tiers
        .iter()
        .map(|TierFacts { id, environment, rollout }| Row {
            name: id,
            environment,
            rollout: *rollout,
            count: counts.remove(&Some(*id)),
        })
        .collect();
    // `None` is the Unmatched.
    let rest = counts.into_iter().filter(|(_, count)| count.total() > 0);
    rows.extend(rest.map(|(tier, count)| Row {
        name: tier.unwrap_or("Unmatched"),
        environment: if tier.is_some() { "left head" } else { "no selector matches" },
        rollout: None,
        count: Some(count),
    }));
    // Stable: a number that moves does not move rows that are well.
    rows.sort_by_key(|row| std::cmp::Reverse(row.failed()));
    rows
}

/// Statuses in the order that an operator reads them.
const STATUSES: [Delivery; 5] =
    [Delivery::Failed, Delivery::Pending, Delivery::Applying, Delivery::Applied, Delivery::Foreign];

fn table(h: &mut Html, rows: &[Row<'_>]) {
    scrolled(h, "Tiers and their collectors", |h| {
        h.el("table", &[], |h| {
            h.line("caption", &[], "Collectors connected to this replica, by arm and status.");
            h.el("thead", &[], |h| {
                h.el("tr", &[], |h| {
                    for name in ["Tier", "Arm"] {
                        h.line("th", &[("scope", "col")], name);
                    }
                    for status in STATUSES {
                        let number = [("scope", "col"), ("class", "number")];
                        h.line("th", &number, delivery_label(status));
                    }
                    h.line("th", &[("scope", "col"), ("class", "number")], "collectors");
                });
            });
            for row in rows.iter().take(TIERS_MAX) {
                h.el("tbody", &[], |h| tier(h, row));
            }
        });
    });
}

/// A line for each arm that somebody is in, and one for a Tier where nobody is.
fn tier(h: &mut Html, row: &Row<'_>) {
    let none = [0; DELIVERIES.len()];
    let counts = row.count.map(|count| &count.counts[..]).unwrap_or_default();
    let mut arms: Vec<(Option<Arm>, &[u64])> = ARMS
        .iter()
        .zip(counts)
        .filter(|(_, statuses)| statuses.iter().any(|count| *count > 0))
        .map(|(arm, statuses)| (Some(*arm), &statuses[..]))
        .collect();
    if arms.is_empty() {
        arms.push((None, &none));
    }
    let span = arms.len().to_string();
    for (at, (arm, statuses)) in arms.iter().enumerate() {
        h.el("tr", &[], |h| {
            if at == 0 {
                h.el("th", &[("scope", "rowgroup"), ("rowspan", &span)], |h| {
                    h.text(&clean(row.name));
                    h.line("small", &[], &clean(row.environment));
                    if let Some(rollout) = row.rollout {
                        h.line("small", &[], &format!("under {}", clean(rollout)));
                    }
                });
            }
            let arm = arm.map_or("–", arm_words);
            h.line("th", &[("scope", "row"), ("class", "arm")], arm);
            for status in STATUSES {
                let at = DELIVERIES.iter().position(|delivery| *delivery == status);
                let n = at.and_then(|at| statuses.get(at)).copied().unwrap_or(0);
                let class = match (n, status) {
                    (0, _) => "number zero",
                    (_, Delivery::Failed) => "number bad",
                    _ => "number",
                };
                h.line("td", &[("class", class)], &number(n));
            }
            h.line("td", &[("class", "number sum")], &number(statuses.iter().sum()));
        });
    }
}

fn arm_words(arm: Arm) -> &'static str {
    match arm {
        Arm::To => "candidate",
        Arm::From => "base",
        Arm::None => "all",
        Arm::Unmatched => "Unmatched",
    }
}
