//! Every metric name, and the handles behind them, resolved once.
//!
//! [`names`] is the table that `docs/metrics.md` is generated from; [`labels`] the closed sets of
//! label values; [`family`] the series whose labels come and go with a head (the exporter's
//! registry cannot forget a series) and the histograms (fixed memory, where the exporter keeps
//! every sample until somebody scrapes). Nothing looks a metric up by string on a hot path.

use metrics::{Counter, Gauge};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

pub mod family;
pub mod labels;
pub mod names;
mod process;

use family::{CounterFamily, GaugeFamily, Histogram, HistogramFamily, HistogramSeries};
use labels::{Closed, FetchOutcome, FullStateReason, Label, RejectReason};
use labels::{Transport, UplinkRefused};
use names::{Definition, Kind};

use crate::peer_log::PeerLog;

/// Tiers that keep their own `tier` label, in id order; the rest share `_other`.
pub const TIER_LABELS_MAX: usize = 500;

/// The `tier` label of the Tier at `index` of the head's id order.
pub fn tier_label(index: usize, id: &str) -> &str {
    if index < TIER_LABELS_MAX { id } else { "_other" }
}

/// All handles. One per process, leaked; tests make as many as they like.
pub struct Metrics {
    exporter: PrometheusHandle,
    /// `tidegate_connections`.
    pub connections: PerLabel<Transport, Gauge>,
    /// `tidegate_connects_total`.
    pub connects: PerLabel<Transport, Counter>,
    /// `tidegate_disconnects_total`.
    pub disconnects: PerLabel<Transport, PerLabel<Closed, Counter>>,
    /// `tidegate_admission_rejected_total`.
    pub admission_rejected: PerLabel<RejectReason, Counter>,
    /// `tidegate_messages_received_total`.
    pub messages_received: PerLabel<Transport, Counter>,
    /// `tidegate_messages_received_bytes_total`.
    pub messages_received_bytes: PerLabel<Transport, Counter>,
    /// `tidegate_messages_sent_total`.
    pub messages_sent: PerLabel<Transport, Counter>,
    /// `tidegate_messages_sent_bytes_total`.
    pub messages_sent_bytes: PerLabel<Transport, Counter>,
    /// `tidegate_bad_messages_total`; label: reason (a `&'static str` of the code that refused).
    pub bad_messages: CounterFamily,
    /// `tidegate_connect_to_offer_seconds`.
    pub connect_to_offer: Histogram,
    /// `tidegate_message_handle_seconds`.
    pub message_handle: Histogram,
    /// `tidegate_offers_total`; labels: tier, rollout, arm.
    pub offers: CounterFamily,
    /// `tidegate_full_state_requests_total`.
    pub full_state_requests: PerLabel<FullStateReason, Counter>,
    /// `tidegate_push_pending`.
    pub push_pending: Gauge,
    /// `tidegate_push_seconds`.
    pub push_seconds: Histogram,
    /// `tidegate_collectors`; labels: tier, arm, status.
    pub collectors: GaugeFamily,
    /// `tidegate_unmatched_collectors`.
    pub unmatched_collectors: Gauge,
    /// `tidegate_duplicate_identities`.
    pub duplicate_identities: Gauge,
    /// `tidegate_rollout_info`; labels: rollout, tier, from, to.
    pub rollout_info: GaugeFamily,
    /// `tidegate_rollout_stage`; label: rollout.
    pub rollout_stage: GaugeFamily,
    /// `tidegate_rollout_stages`; label: rollout.
    pub rollout_stages: GaugeFamily,
    /// `tidegate_rollout_soak_required_seconds`; label: rollout.
    pub rollout_soak_required: GaugeFamily,
    /// `tidegate_rollout_members`; labels: rollout, arm.
    pub rollout_members: GaugeFamily,
    /// `tidegate_rollout_halted_members`; labels: rollout, condition.
    pub rollout_halted_members: GaugeFamily,
    /// `tidegate_rollout_halted_ratio`; label: rollout.
    pub rollout_halted_ratio: GaugeFamily,
    /// `tidegate_rollout_control_dark_ratio`; label: rollout.
    pub rollout_control_dark_ratio: GaugeFamily,
    /// `tidegate_rollout_abort_ratio`; label: rollout.
    pub rollout_abort_ratio: GaugeFamily,
    /// `tidegate_rollout_verdict`; labels: rollout, verdict.
    pub rollout_verdict: GaugeFamily,
    /// `tidegate_rollout_brake`; label: rollout.
    pub rollout_brake: GaugeFamily,
    /// `tidegate_rollout_soak_seconds`; label: rollout.
    pub rollout_soak: GaugeFamily,
    /// `tidegate_rollout_convergence_seconds`; labels: rollout, arm.
    pub rollout_convergence: HistogramSeries,
    /// `tidegate_evidence_replicas`.
    pub evidence_replicas: Gauge,
    /// `tidegate_evidence_age_seconds`.
    pub evidence_age: Gauge,
    /// `tidegate_evidence_events_total`.
    pub evidence_events: Counter,
    /// `tidegate_evidence_store_up`; no series without a store.
    pub evidence_store_up: GaugeFamily,
    /// `tidegate_evidence_store_failures_total`; label: reason.
    pub evidence_store_failures: CounterFamily,
    /// `tidegate_uplink_connected`; no series without an uplink.
    pub uplink_connected: GaugeFamily,
    /// `tidegate_uplink_lag_records`; no series without an uplink.
    pub uplink_lag: GaugeFamily,
    /// `tidegate_uplink_replicas`; no series but on an aggregator.
    pub uplink_replicas: GaugeFamily,
    /// `tidegate_uplink_refused_total`.
    pub uplink_refused: PerLabel<UplinkRefused, Counter>,
    /// `tidegate_build_info`; labels: version, commit.
    pub build_info: GaugeFamily,
    /// `tidegate_head_info`; labels: commit (short), source.
    pub head_info: GaugeFamily,
    /// `tidegate_head_commit_timestamp_seconds`; no series while the time is unknown.
    pub head_commit_timestamp: GaugeFamily,
    /// `tidegate_head_last_success_timestamp_seconds`; no series before the first success.
    pub head_last_success_timestamp: GaugeFamily,
    /// `tidegate_head_refused_total`; label: reason.
    pub head_refused: CounterFamily,
    /// `tidegate_head_swaps_total`.
    pub head_swaps: Counter,
    /// `tidegate_late_acknowledgements_total`.
    pub late_acknowledgements: Counter,
    /// `tidegate_head_older_total`.
    pub head_older: Counter,
    /// `tidegate_proposals_total`; labels: kind, outcome.
    pub proposals: CounterFamily,
    /// `tidegate_early_looks_total`; label: outcome.
    pub early_looks: CounterFamily,
    /// `tidegate_source_fetch_seconds`; label: outcome.
    pub source_fetch: HistogramFamily<FetchOutcome>,
    /// `tidegate_auth_failures_total`; label: reason.
    pub auth_failures: CounterFamily,
    /// `tidegate_tls_reloads_total`; labels: outcome.
    pub reloads: CounterFamily,
    /// `tidegate_certificate_expiry_timestamp_seconds`; no series without TLS.
    pub certificate_expiry: GaugeFamily,
    /// Says whether a line that a peer causes may be logged, and counts
    /// `tidegate_log_lines_dropped_total`.
    pub peer_log: PeerLog,
}

impl Metrics {
    /// A fresh registry with every series at zero.
    pub fn new() -> Self {
        let recorder = PrometheusBuilder::new().build_recorder();
        let exporter = recorder.handle();
        metrics::with_local_recorder(&recorder, || Self::resolve(exporter))
    }

    /// The process's registry, for the rest of its life.
    pub fn leak() -> &'static Self {
        Box::leak(Box::new(Self::new()))
    }

    fn resolve(exporter: PrometheusHandle) -> Self {
        Self {
            exporter,
            connections: PerLabel::gauges(names::CONNECTIONS),
            connects: PerLabel::counters(names::CONNECTS),
            disconnects: PerLabel::new(|transport: Transport| {
                PerLabel::new(|closed: Closed| {
                    let labels = [("transport", transport.label()), ("reason", closed.label())];
                    counter(names::DISCONNECTS, &labels)
                })
            }),
            admission_rejected: PerLabel::counters(names::ADMISSION_REJECTED),
            messages_received: PerLabel::counters(names::MESSAGES_RECEIVED),
            messages_received_bytes: PerLabel::counters(names::MESSAGES_RECEIVED_BYTES),
            messages_sent: PerLabel::counters(names::MESSAGES_SENT),
            messages_sent_bytes: PerLabel::counters(names::MESSAGES_SENT_BYTES),
            bad_messages: CounterFamily::new(names::BAD_MESSAGES),
            connect_to_offer: Histogram::new(LATENCY_BUCKETS),
            message_handle: Histogram::new(HANDLE_BUCKETS),
            offers: CounterFamily::new(names::OFFERS),
            full_state_requests: PerLabel::counters(names::FULL_STATE_REQUESTS),
            push_pending: gauge(names::PUSH_PENDING, &[]),
            push_seconds: Histogram::new(LONG_BUCKETS),
            collectors: GaugeFamily::new(names::COLLECTORS),
            unmatched_collectors: gauge(names::UNMATCHED_COLLECTORS, &[]),
            duplicate_identities: gauge(names::DUPLICATE_IDENTITIES, &[]),
            rollout_info: GaugeFamily::new(names::ROLLOUT_INFO),
            rollout_stage: GaugeFamily::new(names::ROLLOUT_STAGE),
            rollout_stages: GaugeFamily::new(names::ROLLOUT_STAGES),
            rollout_soak_required: GaugeFamily::new(names::ROLLOUT_SOAK_REQUIRED),
            rollout_members: GaugeFamily::new(names::ROLLOUT_MEMBERS),
            rollout_halted_members: GaugeFamily::new(names::ROLLOUT_HALTED_MEMBERS),
            rollout_halted_ratio: GaugeFamily::new(names::ROLLOUT_HALTED_RATIO),
            rollout_control_dark_ratio: GaugeFamily::new(names::ROLLOUT_CONTROL_DARK_RATIO),
            rollout_abort_ratio: GaugeFamily::new(names::ROLLOUT_ABORT_RATIO),
            rollout_verdict: GaugeFamily::new(names::ROLLOUT_VERDICT),
            rollout_brake: GaugeFamily::new(names::ROLLOUT_BRAKE),
            rollout_soak: GaugeFamily::new(names::ROLLOUT_SOAK),
            rollout_convergence: HistogramSeries::new(
                names::ROLLOUT_CONVERGENCE,
                CONVERGENCE_BUCKETS,
            ),
            evidence_replicas: gauge(names::EVIDENCE_REPLICAS, &[]),
            evidence_age: gauge(names::EVIDENCE_AGE, &[]),
            evidence_events: counter(names::EVIDENCE_EVENTS, &[]),
            evidence_store_up: GaugeFamily::new(names::EVIDENCE_STORE_UP),
            evidence_store_failures: CounterFamily::new(names::EVIDENCE_STORE_FAILURES),
            uplink_connected: GaugeFamily::new(names::UPLINK_CONNECTED),
            uplink_lag: GaugeFamily::new(names::UPLINK_LAG),
            uplink_replicas: GaugeFamily::new(names::UPLINK_REPLICAS),
            uplink_refused: PerLabel::counters(names::UPLINK_REFUSED),
            build_info: GaugeFamily::new(names::BUILD_INFO),
            head_info: GaugeFamily::new(names::HEAD_INFO),
            head_commit_timestamp: GaugeFamily::new(names::HEAD_COMMIT_TIMESTAMP),
            head_last_success_timestamp: GaugeFamily::new(names::HEAD_LAST_SUCCESS_TIMESTAMP),
            head_refused: CounterFamily::new(names::HEAD_REFUSED),
            head_swaps: counter(names::HEAD_SWAPS, &[]),
            late_acknowledgements: counter(names::LATE_ACKNOWLEDGEMENTS, &[]),
            head_older: counter(names::HEAD_OLDER, &[]),
            proposals: CounterFamily::new(names::PROPOSALS),
            early_looks: CounterFamily::new(names::EARLY_LOOKS),
            source_fetch: HistogramFamily::new(names::SOURCE_FETCH, LONG_BUCKETS),
            auth_failures: CounterFamily::new(names::AUTH_FAILURES),
            reloads: CounterFamily::new(names::RELOADS),
            certificate_expiry: GaugeFamily::new(names::CERTIFICATE_EXPIRY),
            peer_log: PeerLog::new(counter(names::LOG_LINES_DROPPED, &[])),
        }
    }

    /// The Prometheus text format, every metric once.
    pub fn render(&self) -> String {
        let mut out = self.exporter.render();
        let counters = [
            &self.bad_messages,
            &self.offers,
            &self.head_refused,
            &self.proposals,
            &self.auth_failures,
            &self.early_looks,
            &self.reloads,
            &self.evidence_store_failures,
        ];
        for family in counters {
            family.render(&mut out);
        }
        let gauges = [
            &self.collectors,
            &self.rollout_info,
            &self.rollout_stage,
            &self.rollout_stages,
            &self.rollout_soak_required,
            &self.rollout_members,
            &self.rollout_halted_members,
            &self.rollout_halted_ratio,
            &self.rollout_control_dark_ratio,
            &self.rollout_abort_ratio,
            &self.rollout_verdict,
            &self.rollout_brake,
            &self.rollout_soak,
            &self.evidence_store_up,
            &self.uplink_connected,
            &self.uplink_lag,
            &self.uplink_replicas,
            &self.build_info,
            &self.head_info,
            &self.head_commit_timestamp,
            &self.head_last_success_timestamp,
            &self.certificate_expiry,
        ];
        for family in gauges {
            family.render(&mut out);
        }
        self.connect_to_offer.render(names::CONNECT_TO_OFFER, &mut out);
        self.message_handle.render(names::MESSAGE_HANDLE, &mut out);
        self.push_seconds.render(names::PUSH_SECONDS, &mut out);
        self.source_fetch.render(&mut out);
        process::render(&mut out);
        self.rollout_convergence.render(&mut out);
        out
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Metrics")
    }
}

/// One handle per value of a closed label set, by index.
pub struct PerLabel<L, H> {
    handles: Box<[H]>,
    label: std::marker::PhantomData<fn(L)>,
}

impl<L: Label, H> PerLabel<L, H> {
    fn new(make: impl Fn(L) -> H) -> Self {
        Self {
            handles: L::all().iter().map(|value| make(*value)).collect(),
            label: std::marker::PhantomData,
        }
    }

    /// The handle of `value`.
    pub fn get(&self, value: L) -> &H {
        &self.handles[value.index()]
    }
}

impl<L: Label> PerLabel<L, Counter> {
    fn counters(definition: &Definition) -> Self {
        Self::new(|value| counter(definition, &[(L::NAME, value.label())]))
    }
}

impl<L: Label> PerLabel<L, Gauge> {
    fn gauges(definition: &Definition) -> Self {
        Self::new(|value| gauge(definition, &[(L::NAME, value.label())]))
    }
}

fn counter(definition: &Definition, labels: &[(&'static str, &'static str)]) -> Counter {
    debug_assert_eq!(definition.kind, Kind::Counter);
    metrics::describe_counter!(definition.name, definition.help);
    let counter = metrics::counter!(definition.name, labels);
    counter.increment(0);
    counter
}

fn gauge(definition: &Definition, labels: &[(&'static str, &'static str)]) -> Gauge {
    debug_assert_eq!(definition.kind, Kind::Gauge);
    metrics::describe_gauge!(definition.name, definition.help);
    let gauge = metrics::gauge!(definition.name, labels);
    gauge.set(0.0);
    gauge
}

/// Seconds, from a message's parse to a slow lock.
const HANDLE_BUCKETS: &[f64] = &[1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1];
/// Seconds, from one round trip to a storm that admission spread out.
const LATENCY_BUCKETS: &[f64] = &[0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0];
/// Seconds, from a local read to a paced push of half a million offers.
const LONG_BUCKETS: &[f64] = &[0.01, 0.05, 0.25, 1.0, 5.0, 30.0, 120.0];
/// Seconds, from a collector that was waiting to one that is asleep overnight.
const CONVERGENCE_BUCKETS: &[f64] =
    &[1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3_600.0, 21_600.0, 86_400.0];
