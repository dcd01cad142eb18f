//! `/metrics`.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderName, header};

use super::Admin;
use crate::metrics::{Metrics, tier_label};
use crate::serve::{Server, arm_label, delivery_label};

/// The Prometheus text format.
pub async fn metrics(State(admin): State<Arc<Admin>>) -> ([(HeaderName, &'static str); 1], String) {
    count_collectors(&admin.server, admin.metrics);
    let content_type = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    (content_type, admin.metrics.render())
}

/// Collectors are counted where they are decided; a scrape only copies the counts.
fn count_collectors(server: &Server, metrics: &Metrics) {
    let head = server.head();
    let index = |tier: &str| head.snapshot.tiers.binary_search_by(|entry| (*entry.id).cmp(tier));
    let mut cells: BTreeMap<[&str; 3], u64> = BTreeMap::new();
    let mut unmatched = 0;
    let tiers = server.tiers();
    for tier in &tiers {
        let label = match &tier.tier {
            None => {
                unmatched = tier.total();
                ""
            }
            // A Tier that left head keeps its name while collectors are counted there.
            Some(id) => index(id).map_or(&**id, |index| tier_label(index, id)),
        };
        for (arm, delivery, count) in tier.cells() {
            *cells.entry([label, arm_label(arm), delivery_label(delivery)]).or_default() += count;
        }
    }
    let series = cells.iter().filter(|(_, count)| **count > 0);
    metrics.collectors.replace(series.map(|(labels, count)| (&labels[..], to_f64(*count))));
    metrics.unmatched_collectors.set(to_f64(unmatched));
}

#[expect(clippy::cast_precision_loss, reason = "nobody counts 2^53 collectors")]
fn to_f64(count: u64) -> f64 {
    count as f64
}
