//! The table of metrics: `docs/metrics.md` is generated from it (spec/observability.md).

/// What Prometheus calls the type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes both ways.
    Gauge,
    /// Cumulative buckets, `_sum` and `_count`.
    Histogram,
}

impl Kind {
    /// As in a `# TYPE` line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// Whether `sum()` over replicas means anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replicas {
    /// Each replica counts its own: add them.
    Add,
    /// Each replica tells the same truth, or a truth about itself: do not add them.
    Each,
}

/// One metric.
#[derive(Debug)]
pub struct Definition {
    /// With prefix and unit.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// Label names in the order that handles take their values.
    pub labels: &'static [&'static str],
    /// Whether it adds over replicas.
    pub replicas: Replicas,
    /// One sentence; also the `# HELP` line.
    pub help: &'static str,
}

macro_rules! definitions {
    ($($id:ident: $kind:ident $name:literal [$($label:literal),*] $replicas:ident $help:literal;)+) => {
        $(
            #[doc = concat!("`", $name, "`: ", $help)]
            pub const $id: &Definition = &Definition {
                name: $name,
                kind: Kind::$kind,
                labels: &[$($label),*],
                replicas: Replicas::$replicas,
                help: $help,
            };
        )+
        /// Every metric, in the order of the documentation.
        pub const ALL: &[&Definition] = &[$($id),+];
    };
}

definitions! {
    BUILD_INFO: Gauge "tidegate_build_info" ["version", "commit"] Each
        "Always 1; says which build this is.";
    HEAD_INFO: Gauge "tidegate_head_info" ["commit", "source"] Each
        "Always 1; the head in force (first 12 digits of its commit) and where it comes from.";
    HEAD_COMMIT_TIMESTAMP: Gauge "tidegate_head_commit_timestamp_seconds" [] Each
        "When the head in force was committed; absent where the source does not say.";
    HEAD_LAST_SUCCESS_TIMESTAMP: Gauge "tidegate_head_last_success_timestamp_seconds" [] Each
        "When the source was last read without a fault, changed or not.";
    HEAD_REFUSED: Counter "tidegate_head_refused_total" ["reason"] Add
        "Loads that failed and left the old head in force.";
    HEAD_SWAPS: Counter "tidegate_head_swaps_total" [] Add
        "Heads put in force that serve something else than the one before.";
    LATE_ACKNOWLEDGEMENTS: Counter "tidegate_late_acknowledgements_total" [] Add
        "Replies to a FAILED that were sent although its evidence was not on the disk within 2 s.";
    HEAD_OLDER: Counter "tidegate_head_older_total" [] Add
        "Snapshots put in force that are older than the one before.";
    CONNECTIONS: Gauge "tidegate_connections" ["transport"] Add
        "Live links: open WebSockets, and HTTP sessions that polled within 90 s.";
    CONNECTS: Counter "tidegate_connects_total" ["transport"] Add
        "Links begun.";
    DISCONNECTS: Counter "tidegate_disconnects_total" ["transport", "reason"] Add
        "Links ended.";
    ADMISSION_REJECTED: Counter "tidegate_admission_rejected_total" ["reason"] Add
        "Requests turned away before a link began.";
    MESSAGES_RECEIVED: Counter "tidegate_messages_received_total" ["transport"] Add
        "AgentToServer messages received, bad ones included.";
    MESSAGES_RECEIVED_BYTES: Counter "tidegate_messages_received_bytes_total" ["transport"] Add
        "Their bytes, after inflation and without framing.";
    MESSAGES_SENT: Counter "tidegate_messages_sent_total" ["transport"] Add
        "ServerToAgent messages sent.";
    MESSAGES_SENT_BYTES: Counter "tidegate_messages_sent_bytes_total" ["transport"] Add
        "Their bytes, before compression and without framing.";
    BAD_MESSAGES: Counter "tidegate_bad_messages_total" ["reason"] Add
        "Messages answered with BAD_REQUEST or an HTTP 4xx.";
    CONNECT_TO_OFFER: Histogram "tidegate_connect_to_offer_seconds" [] Add
        "From accepting a link to handing its first offer to the socket.";
    MESSAGE_HANDLE: Histogram "tidegate_message_handle_seconds" [] Add
        "From a complete message to its encoded answer.";
    OFFERS: Counter "tidegate_offers_total" ["tier", "rollout", "arm"] Add
        "Offers made; arm is to, from, none (no Rollout runs) or unmatched.";
    FULL_STATE_REQUESTS: Counter "tidegate_full_state_requests_total" ["reason"] Add
        "Times an agent was asked to report its full state.";
    PUSH_PENDING: Gauge "tidegate_push_pending" [] Add
        "Sessions that a head change has yet to decide again.";
    PUSH_SECONDS: Histogram "tidegate_push_seconds" [] Add
        "From a head change to its last push.";
    COLLECTORS: Gauge "tidegate_collectors" ["tier", "arm", "status"] Add
        "Collectors connected, by where they led and what they last reported; only cells that are not zero.";
    UNMATCHED_COLLECTORS: Gauge "tidegate_unmatched_collectors" [] Add
        "Collectors connected that no selector matches.";
    DUPLICATE_IDENTITIES: Gauge "tidegate_duplicate_identities" [] Each
        "Instance uids seen on two living links within the last hour.";
    ROLLOUT_INFO: Gauge "tidegate_rollout_info" ["rollout", "tier", "from", "to"] Each
        "Always 1; the Rollouts of the head in force.";
    ROLLOUT_STAGE: Gauge "tidegate_rollout_stage" ["rollout"] Each
        "Its stage, from 0.";
    ROLLOUT_STAGES: Gauge "tidegate_rollout_stages" ["rollout"] Each
        "How many stages it declares.";
    ROLLOUT_MEMBERS: Gauge "tidegate_rollout_members" ["rollout", "arm"] Each
        "Members that count, by what they run: taking, to, from, other or unknown.";
    ROLLOUT_HALTED_MEMBERS: Gauge "tidegate_rollout_halted_members" ["rollout", "condition"] Each
        "Members that block, by halt condition; failed is latched, went_dark ends when one is heard.";
    ROLLOUT_HALTED_RATIO: Gauge "tidegate_rollout_halted_ratio" ["rollout"] Each
        "Halted members of those seen, without dark ones that the control group explains.";
    ROLLOUT_CONTROL_DARK_RATIO: Gauge "tidegate_rollout_control_dark_ratio" ["rollout"] Each
        "Collectors of the control group that went dark, of those seen.";
    ROLLOUT_ABORT_RATIO: Gauge "tidegate_rollout_abort_ratio" ["rollout"] Each
        "The halted ratio at which an abort is proposed.";
    ROLLOUT_VERDICT: Gauge "tidegate_rollout_verdict" ["rollout", "verdict"] Each
        "1 for the verdict that holds, 0 for the others.";
    ROLLOUT_BRAKE: Gauge "tidegate_rollout_brake" ["rollout"] Each
        "1 while the candidate is offered to nobody new.";
    ROLLOUT_SOAK: Gauge "tidegate_rollout_soak_seconds" ["rollout"] Each
        "How long its present stage has soaked.";
    ROLLOUT_CONVERGENCE: Histogram "tidegate_rollout_convergence_seconds" ["rollout", "arm"] Add
        "From a head to a collector's APPLIED of what that head wants it to run.";
    EVIDENCE_REPLICAS: Gauge "tidegate_evidence_replicas" [] Each
        "Replicas that report evidence.";
    EVIDENCE_AGE: Gauge "tidegate_evidence_age_seconds" [] Each
        "Since the last word of the replica that is silent longest, of those that report.";
    EVIDENCE_EVENTS: Counter "tidegate_evidence_events_total" [] Add
        "Changes to what is known of a collector under a Rollout.";
    EVIDENCE_STORE_UP: Gauge "tidegate_evidence_store_up" [] Each
        "1 while the store can be written; absent without --store.";
    EVIDENCE_STORE_FAILURES: Counter "tidegate_evidence_store_failures_total" ["reason"] Add
        "Faults of the store: damaged (set aside), open, write.";
    UPLINK_CONNECTED: Gauge "tidegate_uplink_connected" [] Each
        "Aggregators that this replica reports to now; absent without --uplink.";
    UPLINK_LAG: Gauge "tidegate_uplink_lag_records" [] Each
        "Changes that the aggregator furthest behind has still to be sent; absent without --uplink.";
    UPLINK_REPLICAS: Gauge "tidegate_uplink_replicas" [] Each
        "Replicas that are connected to this aggregator now; absent in other roles.";
    UPLINK_REFUSED: Counter "tidegate_uplink_refused_total" ["reason"] Add
        "Connections of replicas that this aggregator refused or cut off.";
    ROLLOUT_SOAK_REQUIRED: Gauge "tidegate_rollout_soak_required_seconds" ["rollout"] Each
        "How long its present stage must soak.";
    PROPOSALS: Counter "tidegate_proposals_total" ["kind", "outcome"] Add
        "What became of proposals: pushed, present (another replica's push), withdrawn, stale (does not hold, but carries somebody's commit), failed (tried again), refused (the estate must be mended), opened (a pull request), forge_failed.";
    SOURCE_FETCH: Histogram "tidegate_source_fetch_seconds" ["outcome"] Add
        "One look at the source, up to the swap.";
    EARLY_LOOKS: Counter "tidegate_early_looks_total" ["outcome"] Add
        "Looks at the source before their time, since a collector had a configuration that is unknown here: newer (it was found), nothing, late (offers went out without it).";
    AUTH_FAILURES: Counter "tidegate_auth_failures_total" ["listener", "reason"] Add
        "Requests answered with 401 or 403.";
    RELOADS: Counter "tidegate_reloads_total" ["what", "outcome"] Add
        "Times that changed certificate or token files were read again; failed keeps the old ones.";
    CERTIFICATE_EXPIRY: Gauge "tidegate_certificate_expiry_timestamp_seconds" [] Each
        "When the first of the certificates that are shown ends, to collectors or on the uplink; absent without any.";
    LOG_LINES_DROPPED: Counter "tidegate_log_lines_dropped_total" [] Add
        "Log lines caused by peers that sampling left out.";
    PROCESS_CPU_SECONDS: Counter "process_cpu_seconds_total" [] Add
        "CPU time of the gateway, user and system; not of the git commands that it runs.";
    PROCESS_RESIDENT_BYTES: Gauge "process_resident_memory_bytes" [] Add
        "Memory of the gateway that is resident; sockets are the kernel's, and not in it.";
    PROCESS_OPEN_FDS: Gauge "process_open_fds" [] Add
        "Its open descriptors: a link is one.";
    PROCESS_MAX_FDS: Gauge "process_max_fds" [] Add
        "How many it may have.";
}

/// `docs/metrics.md`, to the byte.
pub fn documentation() -> String {
    let mut out = String::from(
        "# Metrics\n\n\
         Generated from `gateway/src/metrics/names.rs`; a test fails when this page is stale \
         (`UPDATE_GEN=1 cargo test -p gateway --test edge metrics` writes it).\n\n\
         Replicas: *add* means that each replica counts its own, so `sum()` is the whole; *each* \
         means that every replica tells the same truth, or one about itself, so `sum()` means \
         nothing.\n\n\
         | Metric | Type | Labels | Replicas | Meaning |\n|---|---|---|---|---|\n",
    );
    for Definition { name, kind, labels, replicas, help } in ALL {
        let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
        let replicas = match replicas {
            Replicas::Add => "add",
            Replicas::Each => "each",
        };
        let (kind, labels) = (kind.word(), labels.join(", "));
        out.push_str(&format!("| `{name}` | {kind} | {labels} | {replicas} | {help} |\n"));
    }
    out.push_str(
        "\nNever a label: uid, host, IP, full hash, error text, raw attribute values. The series \
         of a Rollout go away when it leaves head. `tier` is `_other` past the 500th Tier in id \
         order, and empty for collectors that no selector matches.\n",
    );
    out
}
