"""What the three dashboards show. `generate.py` makes Grafana's JSON of it.

`F` narrows a query to the chosen fleet, `R` to the chosen Rollouts as well. Collectors are added
over replicas; what is said about a Rollout is not (deploy/prometheus/README.md).
"""

from dataclasses import dataclass

F = 'fleet=~"$fleet"'
R = 'fleet=~"$fleet", rollout=~"$rollout"'
RATE = "[$__rate_interval]"

MEMBERS = f"fleet_rollout_arm:tidegate_members:max{{{R}}}"


@dataclass(frozen=True)
class Panel:
    """One panel: a title, how it is drawn, its queries with their legends, and what to read off it."""

    title: str
    kind: str  # stat, gauge, timeseries, stacked, states, heatmap or table
    queries: tuple
    text: str
    unit: str = "short"
    width: int = 8  # of 24
    height: int = 8
    colours: tuple = ()  # (name or pattern, colour), where a colour has a meaning
    words: tuple = ()  # (value, word)


@dataclass(frozen=True)
class Dashboard:
    """One dashboard: its file is named `name`.json."""

    name: str
    title: str
    text: str
    panels: tuple
    rollout: bool = False  # whether it has the variable $rollout


VERDICTS = (
    ("abort", "red"),
    ("blocked", "orange"),
    ("inconclusive", "purple"),
    ("hold", "blue"),
    ("advance", "green"),
    ("complete", "dark-green"),
)
ARMS = (
    ("to", "green"),
    ("taking", "light-green"),
    ("from", "blue"),
    ("other", "orange"),
    ("unknown", "text"),
    ("none", "semi-dark-blue"),
    ("unmatched", "yellow"),
)
LINES = (("failed", "red"), ("went_dark", "purple"), ("blocks at", "orange"), ("aborts at", "dark-red"))


def quantiles(metric, by=""):
    """p50 and p99 of a histogram."""
    labels = f"le, {by}" if by else "le"
    legend = f"{{{{{by}}}}} " if by else ""
    inside = R if metric.startswith("tidegate_rollout") else F
    return tuple(
        (f"histogram_quantile({q}, sum by ({labels}) (rate({metric}_bucket{{{inside}}}{RATE})))", f"{legend}{name}")
        for q, name in (("0.5", "p50"), ("0.99", "p99"))
    )


ROLLOUTS = Dashboard(
    name="rollouts",
    title="Tidegate / Rollouts",
    text="Where each Rollout stands, and what halts it. Vertical lines are new heads: merges.",
    rollout=True,
    panels=(
        Panel(
            "Verdict", "stat",
            ((f"fleet_rollout_verdict:tidegate_verdict:max{{{R}}} == 1", "{{rollout}}: {{verdict}}"),),
            "The verdict now. Where two judges disagree, both are shown.",
            width=8, height=5, colours=tuple((f"/: {name}$/", colour) for name, colour in VERDICTS),
        ),
        Panel(
            "Stage", "stat",
            (
                (f"max by (rollout) (tidegate_rollout_stage{{{R}}}) + 1", "{{rollout}} at"),
                (f"max by (rollout) (tidegate_rollout_stages{{{R}}})", "{{rollout}} of"),
            ),
            "The present stage, from 1, and how many there are.",
            width=6, height=5,
        ),
        Panel(
            "Soak", "gauge",
            ((f"clamp_max(fleet_rollout:tidegate_soaked_ratio:max{{{R}}}, 1)", "{{rollout}}"),),
            "How much of the present stage's soak has passed.",
            unit="percentunit", width=6, height=5,
        ),
        Panel(
            "Brake", "stat",
            ((f"max by (rollout) (tidegate_rollout_brake{{{R}}})", "{{rollout}}"),),
            "On: the candidate is offered to nobody new.",
            width=4, height=5, words=((0, "off"), (1, "ON")),
        ),
        Panel(
            "Verdict over time", "states",
            ((f"fleet_rollout_verdict:tidegate_verdict:max{{{R}}} == 1", "{{rollout}}: {{verdict}}"),),
            "When which verdict was in force.",
            width=24, height=6, colours=tuple((f"/: {name}$/", colour) for name, colour in VERDICTS),
        ),
        Panel(
            "Members by arm", "stacked",
            ((f"sum by (arm) ({MEMBERS})", "{{arm}}"),),
            "What Cohort members run: `to` is the candidate, `from` the base. Still on `from` is lag, no fault.",
            width=12, colours=ARMS,
        ),
        Panel(
            "Halted members", "timeseries",
            (
                (f"sum by (condition) (fleet_rollout_condition:tidegate_halted_members:max{{{R}}})", "{{condition}}"),
                ("vector(1)", "blocks at"),
                (
                    f"sum(fleet_rollout:tidegate_abort_ratio:max{{{R}}} * on (fleet, rollout) "
                    f"sum by (fleet, rollout) ({MEMBERS}))",
                    "aborts at",
                ),
            ),
            "One blocks. `failed` stays until the collector applies the candidate; `went_dark` clears when it is heard. "
            "The abort line moves with the members that are seen; what the control group shares is not held against the candidate.",
            width=12, colours=LINES,
        ),
        Panel(
            "Halted share against the abort threshold", "timeseries",
            (
                (f"fleet_rollout:tidegate_halted_ratio:max{{{R}}}", "{{rollout}} halted"),
                (f"fleet_rollout:tidegate_abort_ratio:max{{{R}}}", "{{rollout}} aborts at"),
                (f"max by (rollout) (tidegate_rollout_control_dark_ratio{{{R}}})", "{{rollout}} control group dark"),
            ),
            "The share that the verdict compares, and how much of the control group went dark meanwhile.",
            unit="percentunit", width=12,
        ),
        Panel(
            "Head seen to APPLIED", "timeseries",
            quantiles("tidegate_rollout_convergence_seconds", "arm"),
            "How long members take from a new head to reporting it applied.",
            unit="s", width=12,
        ),
        Panel(
            "Evidence: replicas and age", "timeseries",
            (
                (f"max by (instance) (tidegate_evidence_replicas{{{F}}})", "{{instance}}: replicas that report"),
                (f"max by (instance) (tidegate_evidence_age_seconds{{{F}}})", "{{instance}}: age in seconds"),
            ),
            "How many replicas report to each judge, and how old the oldest of their words is.",
            width=8,
        ),
        Panel(
            "Evidence events", "timeseries",
            ((f"sum by (instance) (rate(tidegate_evidence_events_total{{{F}}}{RATE}))", "{{instance}}"),),
            "Changes of collectors that were merged, per second.",
            unit="ops", width=8,
        ),
        Panel(
            "Store", "timeseries",
            (
                (f"min by (instance) (tidegate_evidence_store_up{{{F}}})", "{{instance}} writable"),
                (f"sum by (instance, reason) (increase(tidegate_evidence_store_failures_total{{{F}}}{RATE}))", "{{instance}} {{reason}}"),
                (f"sum by (instance) (increase(tidegate_late_acknowledgements_total{{{F}}}{RATE}))", "{{instance}} answered before written"),
            ),
            "1 while what is halted survives a restart; nothing without `--store`.",
        ),
        Panel(
            "Proposals", "timeseries",
            ((f"sum by (kind, outcome) (increase(tidegate_proposals_total{{{F}}}{RATE}))", "{{kind}}: {{outcome}}"),),
            "Branches pushed, found, refused.",
            width=8,
        ),
        Panel(
            "Rollouts of the head in force", "table",
            ((f"max by (rollout, tier, from, to) (tidegate_rollout_info{{{R}}})", ""),),
            "What is staged, on which Tier, from what to what.",
            width=24, height=6,
        ),
    ),
)

FLEET = Dashboard(
    name="fleet",
    title="Tidegate / Fleet",
    text="Who is connected, where they led, and which head each replica serves.",
    panels=(
        Panel(
            "Collectors connected", "stat",
            ((f"sum(fleet:tidegate_connections:sum{{{F}}})", "connected"),),
            "Over all replicas.",
            width=6, height=5,
        ),
        Panel(
            "Heads in force", "stat",
            ((f"max(fleet:tidegate_heads:count{{{F}}})", "heads"),),
            "More than one for longer than a fetch interval is HeadDiverged.",
            width=6, height=5,
        ),
        Panel(
            "Unmatched", "stat",
            ((f"sum(tidegate_unmatched_collectors{{{F}}})", "unmatched"),),
            "Collectors that fit no Tier.",
            width=6, height=5,
        ),
        Panel(
            "Duplicate uids", "stat",
            ((f"max(tidegate_duplicate_identities{{{F}}})", "within an hour"),),
            "Uids seen on two living links; each replica tells its own, so the greatest is shown.",
            width=6, height=5,
        ),
        Panel(
            "Collectors by replica and transport", "stacked",
            ((f"sum by (instance, transport) (tidegate_connections{{{F}}})", "{{instance}} {{transport}}"),),
            "An uneven spread is the balancer's.",
            width=12,
        ),
        Panel(
            "Collectors by Tier", "stacked",
            ((f"topk(20, sum by (tier) (fleet_tier:tidegate_collectors:sum{{{F}}}))", "{{tier}}"),),
            "The twenty biggest; an empty name is Unmatched.",
            width=12,
        ),
        Panel(
            "Collectors by status", "stacked",
            ((f"sum by (status) (tidegate_collectors{{{F}}})", "{{status}}"),),
            "What they last reported about what they were offered.",
            colours=(("applied", "green"), ("applying", "light-green"), ("pending", "blue"), ("failed", "red"), ("foreign", "text")),
        ),
        Panel(
            "Collectors by arm", "stacked",
            ((f"sum by (arm) (tidegate_collectors{{{F}}})", "{{arm}}"),),
            "Which of a Tier's artefacts their attributes led to.",
            colours=ARMS,
        ),
        Panel(
            "Offers", "timeseries",
            ((f"sum by (arm) (rate(tidegate_offers_total{{{F}}}{RATE}))", "{{arm}}"),),
            "Per second. Quiet except after a merge and when collectors come.",
            unit="ops", colours=ARMS,
        ),
        Panel(
            "Connects", "timeseries",
            ((f"sum by (transport) (rate(tidegate_connects_total{{{F}}}{RATE}))", "{{transport}}"),),
            "Links begun per second.",
            unit="ops",
        ),
        Panel(
            "Disconnects by reason", "stacked",
            ((f"sum by (transport, reason) (rate(tidegate_disconnects_total{{{F}}}{RATE}))", "{{transport}} {{reason}}"),),
            "Links ended per second.",
            unit="ops",
        ),
        Panel(
            "Full state asked for", "timeseries",
            ((f"sum by (reason) (rate(tidegate_full_state_requests_total{{{F}}}{RATE}))", "{{reason}}"),),
            "`moved` is pollers that change replicas: they need affinity.",
            unit="ops",
        ),
        Panel(
            "Head of each replica", "table",
            ((f"max by (instance, commit, source) (tidegate_head_info{{{F}}})", ""),),
            "Commit and source.",
            width=8,
        ),
        Panel(
            "Since the source was read", "timeseries",
            ((f"time() - max by (instance) (tidegate_head_last_success_timestamp_seconds{{{F}}})", "{{instance}}"),),
            "Past ten minutes it is HeadStale.",
            unit="s",
        ),
        Panel(
            "Age of the head", "timeseries",
            ((f"time() - max by (instance) (tidegate_head_commit_timestamp_seconds{{{F}}})", "{{instance}}"),),
            "Since it was committed, where the source says.",
            unit="s",
        ),
        Panel(
            "Heads put in force", "timeseries",
            (
                (f"sum by (instance) (increase(tidegate_head_swaps_total{{{F}}}{RATE}))", "{{instance}}"),
                (f"sum by (instance) (increase(tidegate_head_older_total{{{F}}}{RATE}))", "{{instance}} older than before"),
            ),
            "Only such as serve something else than the one before.",
            width=12,
        ),
        Panel(
            "Heads refused", "timeseries",
            ((f"sum by (instance, reason) (increase(tidegate_head_refused_total{{{F}}}{RATE}))", "{{instance}} {{reason}}"),),
            "Looks at the source that failed and left the old head in force.",
            width=12,
        ),
    ),
)

GATEWAY = Dashboard(
    name="gateway",
    title="Tidegate / Gateway",
    text="How replicas do their work, and what it costs.",
    panels=(
        Panel(
            "Connect to offer", "heatmap",
            ((f"sum by (le) (increase(tidegate_connect_to_offer_seconds_bucket{{{F}}}{RATE}))", "{{le}}"),),
            "From accepting a link to handing its first offer to the socket.",
            unit="s", width=12,
        ),
        Panel(
            "Connect to offer", "timeseries",
            quantiles("tidegate_connect_to_offer_seconds"),
            "The same as quantiles.",
            unit="s", width=6,
        ),
        Panel(
            "Message to answer", "timeseries",
            quantiles("tidegate_message_handle_seconds"),
            "From a complete message to its encoded answer.",
            unit="s", width=6,
        ),
        Panel(
            "Messages", "timeseries",
            (
                (f"sum by (transport) (rate(tidegate_messages_received_total{{{F}}}{RATE}))", "in {{transport}}"),
                (f"sum by (transport) (rate(tidegate_messages_sent_total{{{F}}}{RATE}))", "out {{transport}}"),
            ),
            "Per second. Each message in has one answer; what is beyond is pushed.",
            unit="ops",
        ),
        Panel(
            "Bytes of messages", "timeseries",
            (
                (f"sum by (transport) (rate(tidegate_messages_received_bytes_total{{{F}}}{RATE}))", "in {{transport}}"),
                (f"sum by (transport) (rate(tidegate_messages_sent_bytes_total{{{F}}}{RATE}))", "out {{transport}}"),
            ),
            "Without framing and compression.",
            unit="Bps",
        ),
        Panel(
            "Bad messages", "timeseries",
            ((f"sum by (reason) (rate(tidegate_bad_messages_total{{{F}}}{RATE}))", "{{reason}}"),),
            "Answered with BAD_REQUEST or an HTTP 4xx.",
            unit="ops",
        ),
        Panel(
            "Turned away", "stacked",
            ((f"sum by (reason) (rate(tidegate_admission_rejected_total{{{F}}}{RATE}))", "{{reason}}"),),
            "Before a link began.",
            unit="ops",
        ),
        Panel(
            "Credentials refused", "timeseries",
            ((f"sum by (listener, reason) (rate(tidegate_auth_failures_total{{{F}}}{RATE}))", "{{listener}} {{reason}}"),),
            "401 and 403.",
            unit="ops",
        ),
        Panel(
            "Push backlog", "timeseries",
            ((f"sum by (instance) (tidegate_push_pending{{{F}}})", "{{instance}}"),),
            "Sessions that a new head has yet to decide again.",
        ),
        Panel(
            "Head change to last push", "timeseries",
            quantiles("tidegate_push_seconds"),
            "Paced by `--push-rate`.",
            unit="s",
        ),
        Panel(
            "CPU", "timeseries",
            ((f"sum by (instance) (rate(process_cpu_seconds_total{{{F}, job=~\"tidegate.*\"}}{RATE}))", "{{instance}}"),),
            "Cores in use.",
        ),
        Panel(
            "Memory", "timeseries",
            ((f"sum by (instance) (process_resident_memory_bytes{{{F}, job=~\"tidegate.*\"}})", "{{instance}}"),),
            "Resident set.",
            unit="bytes",
        ),
        Panel(
            "Memory per connection", "timeseries",
            (
                (
                    f"sum by (instance) (process_resident_memory_bytes{{{F}, job=~\"tidegate.*\"}}) / "
                    f"(sum by (instance) (tidegate_connections{{{F}}}) > 100)",
                    "{{instance}}",
                ),
            ),
            "About 1 kB for each idle link, once there are many.",
            unit="bytes",
        ),
        Panel(
            "Descriptors", "timeseries",
            (
                (f"sum by (instance) (process_open_fds{{{F}, job=~\"tidegate.*\"}})", "{{instance}} open"),
                (f"sum by (instance) (process_max_fds{{{F}, job=~\"tidegate.*\"}})", "{{instance}} limit"),
            ),
            "Links past the limit less 80 are turned away.",
        ),
        Panel(
            "Looks at the source", "stacked",
            ((f"sum by (outcome) (rate(tidegate_source_fetch_seconds_count{{{F}}}{RATE}))", "{{outcome}}"),),
            "Per second, by how they ended.",
            unit="ops", colours=(("failed", "red"), ("loaded", "green"), ("unchanged", "blue")),
        ),
        Panel(
            "Time of a look", "timeseries",
            quantiles("tidegate_source_fetch_seconds", "outcome"),
            "Up to the swap.",
            unit="s",
        ),
        Panel(
            "Certificate ends in", "timeseries",
            ((f"min by (instance) (tidegate_certificate_expiry_timestamp_seconds{{{F}}}) - time()", "{{instance}}"),),
            "Nothing without TLS.",
            unit="s",
        ),
        Panel(
            "Files read again", "timeseries",
            ((f"sum by (what, outcome) (increase(tidegate_reloads_total{{{F}}}{RATE}))", "{{what}} {{outcome}}"),),
            "Certificates and tokens; `failed` keeps the old ones.",
        ),
        Panel(
            "Uplink", "timeseries",
            (
                (f"min by (instance) (tidegate_uplink_connected{{{F}}})", "{{instance}} aggregators"),
                (f"sum by (instance) (tidegate_uplink_lag_records{{{F}}})", "{{instance}} records waiting"),
                (f"sum by (instance) (tidegate_uplink_replicas{{{F}}})", "{{instance}} replicas"),
            ),
            "Aggregators reached and what they have yet to be sent; at an aggregator, replicas that reach it.",
        ),
        Panel(
            "Replicas refused", "timeseries",
            ((f"sum by (instance, reason) (rate(tidegate_uplink_refused_total{{{F}}}{RATE}))", "{{instance}} {{reason}}"),),
            "Connections that an aggregator refused or cut off, and why.",
            unit="ops",
        ),
        Panel(
            "Early looks", "timeseries",
            ((f"sum by (instance, outcome) (rate(tidegate_early_looks_total{{{F}}}{RATE}))", "{{instance}} {{outcome}}"),),
            "A collector had what was unknown here, so the source was looked at before its time.",
            unit="ops",
        ),
        Panel(
            "Log lines left out", "timeseries",
            ((f"sum by (instance) (rate(tidegate_log_lines_dropped_total{{{F}}}{RATE}))", "{{instance}}"),),
            "Peers caused more than are written.",
            unit="ops",
        ),
        Panel(
            "Builds", "table",
            ((f"max by (instance, version, commit) (tidegate_build_info{{{F}}})", ""),),
            "Which build each replica is.",
        ),
    ),
)

DASHBOARDS = (ROLLOUTS, FLEET, GATEWAY)
