//! The parts of all workers, added up.

use super::outcome::Event;
use super::protocol::{Ends, Part};
use crate::report::Report;
use crate::shared::Timings;

/// What they come to.
pub(super) struct Merged {
    pub(super) report: Option<Report>,
    pub(super) expected_ends: Ends,
    pub(super) other_ends: Ends,
    pub(super) storm_resets: u64,
    pub(super) worker_bytes_per_collector: Option<f64>,
}

/// Adds them up; the bytes of a collector only where all workers saw all of theirs settled.
pub(super) fn merge(parts: &[Part], collectors: u32) -> Merged {
    let mut timings = Timings::new();
    let (mut expected_ends, mut other_ends, mut storm_resets) =
        (Ends::default(), Ends::default(), 0);
    let mut grown = Some(0_u64);
    let mut complaints: Vec<String> = Vec::new();
    for part in parts {
        part.distributions.add_to(&mut timings);
        add(&mut expected_ends, &part.expected_ends);
        add(&mut other_ends, &part.other_ends);
        storm_resets += part.storm_resets;
        let own = part.rss_settled.map(|settled| settled.saturating_sub(part.rss_before));
        grown = grown.zip(own).map(|(grown, own)| grown + own);
        for complaint in &part.complaints {
            if !complaints.contains(complaint) {
                complaints.push(complaint.clone());
            }
        }
    }
    let reports: Vec<&Report> = parts.iter().map(|part| &part.report).collect();
    let report = Report::merge(&reports, &timings, complaints, false);
    Merged {
        report: (!parts.is_empty()).then_some(report),
        expected_ends,
        other_ends,
        storm_resets,
        worker_bytes_per_collector: grown
            .filter(|_| !parts.is_empty())
            .map(|grown| grown as f64 / f64::from(collectors.max(1))),
    }
}

fn add(sum: &mut Ends, ends: &Ends) {
    sum.going_away += ends.going_away;
    sum.other_close += ends.other_close;
    sum.fin += ends.fin;
    sum.reset += ends.reset;
}

/// Fills in when the last offer of a pushed head was read.
pub(super) fn last_offer(event: &mut Event, parts: &[Part], go_unix_us: u64) {
    let Some(fingerprint) = event.fingerprint else { return };
    let offers = parts.iter().flat_map(|part| &part.last_offers);
    let same = offers.filter(|(other, _)| *other == fingerprint);
    let Some(last) = same.filter_map(|(_, last)| *last).max() else { return };
    let after = super::coordinator::seconds(last.saturating_sub(go_unix_us)) - event.at_s;
    event.last_offer_after_s = Some(after.max(0.0));
}
