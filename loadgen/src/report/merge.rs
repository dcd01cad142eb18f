//! One report out of those of several processes.

use super::{HeadReport, Latency, Own, Report, SAMPLES_MAX, millis, rate, void};
use crate::host;
use crate::shared::Timings;

impl Report {
    /// Adds up the reports of processes that each played a share of one plan at the same time.
    /// `timings` are the distributions of all of them, `complaints` what they say beside. What is
    /// wrong is found again in the sums; whether broken links are, the caller knows.
    pub(crate) fn merge(
        parts: &[&Self],
        timings: &Timings,
        complaints: Vec<String>,
        allow_lost_links: bool,
    ) -> Self {
        let mut all = Self::empty();
        all.problems = complaints;
        for part in parts {
            all.add(part);
        }
        all.samples.sort_by_key(|sample| sample.at_ms);
        all.samples.truncate(SAMPLES_MAX);
        all.heads.sort_by(|one, other| one.seen_at_s.total_cmp(&other.seen_at_s));
        for (epoch, head) in (0..).zip(&mut all.heads) {
            head.epoch = epoch;
        }
        let last = |after: fn(&Self) -> Option<f64>| {
            // One that never came to it makes the whole never come to it.
            parts.iter().map(|part| after(part)).try_fold(0.0, |most: f64, at| Some(most.max(at?)))
        };
        all.all_offered_after_s = last(|part| part.all_offered_after_s);
        all.all_settled_after_s = last(|part| part.all_settled_after_s);
        all.connects_per_s = all
            .all_offered_after_s
            .filter(|after| *after > 0.0)
            .map(|after| f64::from(all.collectors) / after);
        all.messages_per_s = rate(all.messages_sent, all.elapsed_s);
        all.connect_to_offer = Latency::of(&timings.connect_to_offer);
        all.change_to_offer = Latency::of(&timings.change_to_offer);
        all.reply = Latency::of(&timings.reply);
        all.away = Latency::of(&timings.away);
        let processors = u32::try_from(host::processors()).map_or(1.0, f64::from);
        let available = all.elapsed_s * processors;
        let used = all.own.cpu_user_s + all.own.cpu_system_s;
        all.own = Own {
            cpu_share: if available > 0.0 { used / available } else { 0.0 },
            connect_lateness_p99_ms: millis(timings.connect_lateness.value_at_quantile(0.99)),
            timer_lateness_p99_ms: millis(timings.timer_lateness.value_at_quantile(0.99)),
            ..all.own
        };
        all.figures_void = void(&all.own);
        all.find_problems(allow_lost_links);
        all.all_right = all.problems.is_empty();
        all
    }

    fn empty() -> Self {
        Self {
            all_right: false,
            problems: Vec::new(),
            figures_void: None,
            collectors: 0,
            connected: 0,
            offered_right: 0,
            wrong: 0,
            wrong_by_kind: std::collections::BTreeMap::new(),
            lost: 0,
            unmatched: 0,
            report_only: 0,
            offers: 0,
            duplicates: 0,
            extra_messages: 0,
            unanswered: 0,
            acks: 0,
            messages_sent: 0,
            full_state_requests: 0,
            pings: 0,
            bytes_received: 0,
            bytes_received_beyond_acks: 0,
            links_lost: 0,
            connect_failures: 0,
            throttled: 0,
            http_reopened: 0,
            errors: std::collections::BTreeMap::new(),
            heads: Vec::new(),
            heads_refused: 0,
            last_refusal: None,
            connect_to_offer: Latency::default(),
            change_to_offer: Latency::default(),
            reply: Latency::default(),
            away: Latency::default(),
            all_offered_after_s: None,
            all_settled_after_s: None,
            connects_per_s: None,
            messages_per_s: 0.0,
            elapsed_s: 0.0,
            own: Own::default(),
            samples: Vec::new(),
        }
    }

    fn add(&mut self, part: &Self) {
        self.collectors += part.collectors;
        self.connected += part.connected;
        self.offered_right += part.offered_right;
        self.wrong += part.wrong;
        for (kind, count) in &part.wrong_by_kind {
            *self.wrong_by_kind.entry(*kind).or_default() += count;
        }
        self.lost += part.lost;
        self.unmatched += part.unmatched;
        self.report_only += part.report_only;
        self.offers += part.offers;
        self.duplicates += part.duplicates;
        self.extra_messages += part.extra_messages;
        self.unanswered += part.unanswered;
        self.acks += part.acks;
        self.messages_sent += part.messages_sent;
        self.full_state_requests += part.full_state_requests;
        self.pings += part.pings;
        self.bytes_received += part.bytes_received;
        self.bytes_received_beyond_acks += part.bytes_received_beyond_acks;
        self.links_lost += part.links_lost;
        self.connect_failures += part.connect_failures;
        self.throttled += part.throttled;
        self.http_reopened += part.http_reopened;
        for (text, count) in &part.errors {
            *self.errors.entry(text.clone()).or_default() += count;
        }
        for head in &part.heads {
            self.add_head(head);
        }
        // All see the same estate: one refusal is seen by each of them.
        self.heads_refused = self.heads_refused.max(part.heads_refused);
        self.last_refusal = self.last_refusal.take().or_else(|| part.last_refusal.clone());
        self.elapsed_s = self.elapsed_s.max(part.elapsed_s);
        self.own.cpu_user_s += part.own.cpu_user_s;
        self.own.cpu_system_s += part.own.cpu_system_s;
        self.samples.extend(part.samples.iter().cloned());
    }

    /// A head is the same one wherever it was seen; numbers differ where somebody missed one.
    fn add_head(&mut self, part: &HeadReport) {
        let Some(head) = self.heads.iter_mut().find(|head| head.fingerprint == part.fingerprint)
        else {
            self.heads.push(part.clone());
            return;
        };
        head.seen_at_s = head.seen_at_s.min(part.seen_at_s);
        head.content_changed_by_model += part.content_changed_by_model;
        head.members_newly_admitted_by_model += part.members_newly_admitted_by_model;
        head.first_offers += part.first_offers;
        head.offers_needed += part.offers_needed;
        head.offers += part.offers;
        head.offers_superseded += part.offers_superseded;
        head.offers_missing += part.offers_missing;
        head.offers_unneeded += part.offers_unneeded;
        head.bytes_received_beyond_acks += part.bytes_received_beyond_acks;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn part(collectors: u32, wrong: u64, fingerprints: &[u64], settled: Option<f64>) -> Report {
        let head = |fingerprint: &u64| HeadReport {
            epoch: 0,
            fingerprint: *fingerprint,
            seen_at_s: *fingerprint as f64,
            content_changed_by_model: 1,
            members_newly_admitted_by_model: 0,
            first_offers: 0,
            offers_needed: 2,
            offers: 2,
            offers_superseded: 0,
            offers_missing: 0,
            offers_unneeded: 0,
            bytes_received_beyond_acks: 0,
        };
        Report {
            collectors,
            connected: u64::from(collectors),
            wrong,
            heads: fingerprints.iter().map(head).collect(),
            all_offered_after_s: settled,
            all_settled_after_s: settled,
            ..Report::empty()
        }
    }

    #[test]
    fn heads_are_the_same_by_what_they_serve_and_numbered_in_order() {
        let (one, other) = (part(5, 0, &[1, 2, 3], Some(1.0)), part(7, 0, &[1, 3], Some(2.0)));
        let all = Report::merge(&[&other, &one], &Timings::new(), Vec::new(), false);
        let heads: Vec<_> = all.heads.iter().map(|head| (head.epoch, head.offers)).collect();
        assert_eq!(heads, [(0, 4), (1, 2), (2, 4)]);
        assert_eq!((all.collectors, all.connected, all.all_right), (12, 12, true));
        assert_eq!(all.all_settled_after_s, Some(2.0));
    }

    #[test]
    fn what_one_complains_of_is_complained_of() {
        let (good, bad) = (part(5, 0, &[1], Some(1.0)), part(5, 2, &[1], None));
        let all = Report::merge(&[&good, &bad], &Timings::new(), Vec::new(), false);
        assert_eq!((all.all_right, all.wrong, all.all_settled_after_s), (false, 2, None));
        let complaint = vec!["something".to_owned()];
        let all = Report::merge(&[&good], &Timings::new(), complaint, false);
        assert!(!all.all_right);
        let lost = Report { links_lost: 1, ..good };
        assert!(!Report::merge(&[&lost], &Timings::new(), Vec::new(), false).all_right);
        assert!(Report::merge(&[&lost], &Timings::new(), Vec::new(), true).all_right);
    }

    proptest! {
        #[test]
        fn the_order_of_the_parts_does_not_matter(
            parts in proptest::collection::vec((1_u32..50, 0_u64..3, proptest::collection::btree_set(0_u64..9, 0..5)), 1..5),
        ) {
            let parts: Vec<_> = parts
                .into_iter()
                .map(|(collectors, wrong, heads)| {
                    part(collectors, wrong, &heads.into_iter().collect::<Vec<_>>(), Some(1.0))
                })
                .collect();
            let forwards: Vec<_> = parts.iter().collect();
            let backwards: Vec<_> = parts.iter().rev().collect();
            let merged = |parts: &[&Report]| {
                serde_json::to_string(&Report::merge(parts, &Timings::new(), Vec::new(), false)).unwrap()
            };
            prop_assert_eq!(merged(&forwards), merged(&backwards));
        }
    }
}
