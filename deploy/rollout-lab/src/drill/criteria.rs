//! What passes (`docs/rollout-lab.md` says what the first runs changed in it); and the summary, a
//! function of the raw records alone.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::clock::Nanos;
use super::files::CollectorsFound;
use super::records::Recorded;
use super::view::{View, is_websocket};
use super::{Fault, REPLICAS, Settings, Verdict};

/// Longest time between two successes of the route streams during the change.
const GAP_MAX_MS: f64 = 50.0;
/// From a lost link to the next one.
const AWAY_P99_MS: f64 = 500.0;
/// From a lost link to the next one, every one.
const AWAY_MAX_MS: f64 = 2_000.0;
/// Lost links for each collector, with the least loaded gateway chosen.
const RECONNECTS_MAX: f64 = 1.1;
/// From a revision to its offer.
const DELIVERY_MAX_MS: f64 = 7_000.0;
/// Window in which the closes of a drain are counted …
const BURST_NS: Nanos = 200_000_000;
/// … and how many more than twice their share it may have, since they are jittered.
const BURST_SPARE: usize = 5;
/// Gateways that run at once: replicas and surge.
const PROCESSES_MAX: i64 = REPLICAS + 1;

/// What the modeled counters must be during the change, in order: old, target, healthy target,
/// pending stop, available, bound. The lab's checkpoints are among them.
const ROWS: [[i64; 6]; 8] = [
    [3, 0, 0, 0, 3, 4],
    [3, 1, 0, 0, 3, 4],
    [2, 1, 1, 1, 3, 4],
    [2, 2, 1, 0, 3, 4],
    [1, 2, 2, 1, 3, 4],
    [1, 3, 2, 0, 3, 4],
    [0, 3, 3, 1, 3, 4],
    [0, 3, 3, 0, 3, 4],
];

/// What none of it shows.
pub(super) const NOT_CLAIMED: [&str; 5] = [
    "production availability: one host, loopback, no loss, no partition, no clock skew",
    "anything finer than the probes' period and their lateness",
    "real collectors: these are simulated, and few",
    "other routes: this one chooses per connection, and acknowledges at once",
    "zero downtime: counts over this run, with the bound that its instrument has",
];

/// One criterion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Criterion {
    /// P1 to P8.
    pub id: String,
    /// Whether it holds.
    pub ok: bool,
    /// What it says, and what was seen.
    pub detail: String,
}

/// Five meanings of "available" during the change; never mixed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Levels {
    /// L0: the least that the model counted.
    pub modeled_min: i64,
    /// L1: the fewest gateways that said they are ready.
    pub ready_min: i64,
    /// L2: the fewest in the route's table.
    pub routable_min: i64,
    /// L3: probes on the route.
    pub probes: u64,
    /// L3: those that were no success, by outcome.
    pub failures: BTreeMap<String, u64>,
    /// L3: longest time between two successes, by their intended times.
    pub longest_gap_ms: f64,
    /// L3: an outage shorter than this may have been missed.
    pub bound_ms: f64,
    /// L3: from the intended time of a success to its last byte, 99th percentile.
    pub latency_p99_ms: f64,
    /// L3: the slowest success.
    pub latency_max_ms: f64,
    /// L4: links that broke.
    pub links_lost: u64,
    /// L4: from a lost link to the next one.
    pub away_p99_ms: f64,
    /// L4: every one.
    pub away_max_ms: f64,
    /// L4: collectors without what the newest head says, at the end.
    pub collectors_lost: u64,
    /// L4: the most sessions that one gateway held.
    pub sessions_max: i64,
    /// L4: full state asked for.
    pub full_state_requests: u64,
    /// L4: from a revision to its latest offer.
    pub delivery_max_ms: f64,
}

/// What a drill comes to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The layout.
    pub schema: String,
    /// What was asked.
    pub settings: Settings,
    /// What it comes to.
    pub verdict: Verdict,
    /// Why it is void.
    pub void: Vec<String>,
    /// Each criterion.
    pub criteria: Vec<Criterion>,
    /// Five meanings of "available".
    pub levels: Levels,
    /// What may be said.
    pub statement: String,
    /// What none of it shows.
    pub not_claimed: Vec<String>,
}

/// Judges records.
pub fn judge(all: &Recorded, settings: &Settings, found: &[CollectorsFound; 2]) -> Summary {
    let view = View::of(all, settings);
    let (unfit, late) = view.void(all);
    let levels = view.levels(all, found);
    let criteria = vec![
        view.steady(),
        view.routing(&levels),
        view.order(all),
        reconnects(&levels, found),
        view.budget(&levels),
        delivery(&levels, found),
        view.modeled(all),
        view.pace(all),
    ];
    let failed = criteria.iter().any(|criterion| !criterion.ok);
    let reported = all.changes.iter().any(|change| change.kind == "report");
    let waits = settings.fault == Some(Fault::NoSurgeSlot)
        && !view.ended
        && reported
        && only_waits(&criteria);
    // A prober that is late makes no connection refused and no gateway die.
    let certain = !late.is_empty() && is_certain(&levels, &criteria);
    let verdict = if !unfit.is_empty() || (!late.is_empty() && !certain) {
        Verdict::Void
    } else if waits {
        Verdict::Waiting
    } else if failed {
        Verdict::Failed
    } else {
        Verdict::Passed
    };
    let void = [unfit, late].concat();
    let Levels { modeled_min, ready_min, routable_min, probes, longest_gap_ms, bound_ms, .. } =
        &levels;
    let failures: u64 = levels.failures.values().sum();
    let statement = format!(
        "During the change: modeled at least {modeled_min} (L0), ready at least {ready_min} (L1), \
routable at least {routable_min} (L2). Of {probes} probes on this route {failures} were no success; the \
longest time between two successes was {longest_gap_ms:.1} ms; an outage shorter than {bound_ms:.1} ms \
may have been missed (L3). {} links broke, {} collectors were without the newest revision at the end (L4).",
        levels.links_lost, levels.collectors_lost
    );
    Summary {
        schema: "rollout-lab-drill/1".to_owned(),
        settings: settings.clone(),
        verdict,
        void,
        criteria,
        levels,
        statement,
        not_claimed: NOT_CLAIMED.map(str::to_owned).to_vec(),
    }
}

/// Without the fourth slot only the model's rows are incomplete.
fn only_waits(criteria: &[Criterion]) -> bool {
    criteria.iter().all(|criterion| criterion.ok || criterion.id == "P7")
}

/// Whether something failed that no lateness of the prober explains.
fn is_certain(levels: &Levels, criteria: &[Criterion]) -> bool {
    let explained = ["late", "timeout"];
    levels.failures.keys().any(|outcome| !explained.contains(&outcome.as_str()))
        || criteria
            .iter()
            .any(|criterion| !criterion.ok && matches!(criterion.id.as_str(), "P3" | "P5" | "P8"))
}

impl View<'_> {
    fn steady(&self) -> Criterion {
        let failures: u64 =
            self.steady.iter().map(|span| self.failures(*span).values().sum::<u64>()).sum();
        let probes: usize = self.steady.iter().map(|span| self.route_in(*span).count()).sum();
        criterion(
            "P1",
            failures == 0 && probes > 0,
            format!("no route failure in the steady phases: {failures} of {probes}"),
        )
    }

    fn routing(&self, levels: &Levels) -> Criterion {
        let failures: u64 = levels.failures.values().sum();
        let gap = levels.longest_gap_ms;
        criterion(
            "P2",
            failures == 0 && levels.probes > 0 && gap <= GAP_MAX_MS,
            format!(
                "no route failure during the change, at most {GAP_MAX_MS} ms between successes: {failures} of {}, {gap:.1} ms {:?}",
                levels.probes, levels.failures
            ),
        )
    }

    /// listening, ready, routable; unready, unroutable, applied, listener closed, process gone.
    fn order(&self, all: &Recorded) -> Criterion {
        let mut broken = Vec::new();
        let mut seen = 0;
        let names: BTreeSet<&str> = all
            .changes
            .iter()
            .filter(|change| matches!(change.kind.as_str(), "spawned" | "term" | "died"))
            .filter(|change| (self.change.0..self.change.1).contains(&change.ns))
            .map(|change| change.name.as_str())
            .collect();
        for name in names {
            let find = |kind: &str| {
                all.changes.iter().find(|change| change.name == name && change.kind == kind)
            };
            let at = |kind: &str| find(kind).map(|change| change.ns);
            if at("spawned").is_some_and(|ns| ns >= self.change.0) {
                seen += 1;
                let steps = [at("listening"), at("ready"), at("routable")];
                // One that never became healthy, and got no connection either, is in order.
                let refused = find("refused").is_some() && find("routable").is_none();
                if !in_order(&steps) && self.ended && !refused {
                    broken.push(format!("{name} came in another order"));
                }
            }
            if find("died").is_some() {
                broken.push(format!("{name} died"));
            }
            if at("term").is_some() {
                seen += 1;
                let applied = find("unroutable").and_then(|out| {
                    all.changes
                        .iter()
                        .find(|change| change.kind == "applied" && change.epoch >= out.epoch)
                        .map(|change| change.ns)
                });
                let steps = [
                    at("term"),
                    at("unready"),
                    at("unroutable"),
                    applied,
                    at("listener_closed"),
                    at("exited"),
                ];
                if !in_order(&steps) {
                    broken.push(format!("{name} left in another order"));
                }
            }
        }
        let detail = format!(
            "every gateway comes and leaves in order, none dies: {seen} comings and leavings, {}",
            if broken.is_empty() { "all in order".to_owned() } else { broken.join(", ") }
        );
        criterion("P3", broken.is_empty(), detail)
    }

    fn budget(&self, levels: &Levels) -> Criterion {
        let (most, budget) = (levels.sessions_max, self.settings.budget());
        criterion(
            "P5",
            most > 0 && most <= budget,
            format!("sessions of one gateway at most {budget}: {most}"),
        )
    }

    fn modeled(&self, all: &Recorded) -> Criterion {
        let mut rows: Vec<[i64; 6]> = all.rows.iter().map(|row| row.counters).collect();
        rows.dedup();
        let processes = all.rows.iter().map(|row| row.processes).max().unwrap_or(0);
        let fits = rows == ROWS;
        let detail = format!(
            "the model's {} rows in order, at most {PROCESSES_MAX} processes: {} rows {}, {processes} processes",
            ROWS.len(),
            rows.len(),
            if fits { "in order".to_owned() } else { format!("{rows:?}") }
        );
        criterion("P7", fits && processes <= PROCESSES_MAX, detail)
    }

    /// A drained gateway lets its collectors go in a trickle.
    fn pace(&self, all: &Recorded) -> Criterion {
        let share = self.settings.pace() * BURST_NS as f64 / 1e9;
        let most_allowed = (2.0 * share).ceil() as usize + BURST_SPARE;
        let mut worst = 0;
        let terms = all.changes.iter().filter(|one| one.kind == "term" && one.ns >= self.change.0);
        for term in terms {
            let mut closed: Vec<Nanos> = all
                .passages
                .iter()
                .filter(|one| one.backend == term.name && is_websocket(&one.client))
                .map(|one| one.closed_ns)
                .filter(|ns| *ns >= term.ns)
                .collect();
            closed.sort_unstable();
            for (at, from) in closed.iter().enumerate() {
                let until = closed.partition_point(|ns| *ns < from + BURST_NS);
                worst = worst.max(until - at);
            }
        }
        criterion(
            "P8",
            worst <= most_allowed,
            format!("a drain closes at most {most_allowed} WebSockets in 200 ms: {worst}"),
        )
    }
}

fn reconnects(levels: &Levels, found: &[CollectorsFound; 2]) -> Criterion {
    let [websocket, http] = found;
    let each = levels.links_lost as f64 / websocket.collectors.max(1) as f64;
    let (p99, max) = (levels.away_p99_ms, levels.away_max_ms);
    let connected =
        websocket.connected == websocket.collectors && http.connected == http.collectors;
    let ok = connected
        && p99 <= AWAY_P99_MS
        && max <= AWAY_MAX_MS
        && each <= RECONNECTS_MAX
        && websocket.unanswered + http.unanswered == 0;
    criterion(
        "P4",
        ok,
        format!(
            "links come back within {AWAY_P99_MS} ms (p99) and {AWAY_MAX_MS} ms, at most {RECONNECTS_MAX} for each collector: {p99:.1} ms, {max:.1} ms, {each:.2}; {} unanswered",
            websocket.unanswered + http.unanswered
        ),
    )
}

/// A gateway does not know what another one offered: a collector that moves while it applies is
/// offered the same again, and one that polls is asked for its full state. Both are counted, and
/// harmless: the same content is not applied twice.
fn delivery(levels: &Levels, found: &[CollectorsFound; 2]) -> Criterion {
    let sum = |value: fn(&CollectorsFound) -> u64| found.iter().map(value).sum::<u64>();
    let (lost, twice) = (sum(|one| one.lost), sum(|one| one.duplicates));
    let [websocket, http] = found;
    let kinds = websocket.wrong_by_kind.iter().filter(|(kind, _)| *kind != "duplicate").chain(
        http.wrong_by_kind.iter().filter(|(kind, _)| *kind != "duplicate" && *kind != "unexpected"),
    );
    let wrong: u64 = kinds.map(|(_, count)| count).sum();
    let missing = sum(|one| one.heads.iter().map(|head| head.offers_missing).sum());
    let superseded = sum(|one| one.heads.iter().map(|head| head.offers_superseded).sum());
    let needed = sum(|one| one.heads.iter().map(|head| head.offers_needed).sum());
    let latest = levels.delivery_max_ms;
    criterion(
        "P6",
        lost + wrong + missing == 0 && needed > 0 && latest <= DELIVERY_MAX_MS,
        format!(
            "every collector ends on the newest revision and misses none but for a newer one, within \
{DELIVERY_MAX_MS} ms: {needed} offers needed, {missing} missing, {superseded} superseded, {lost} \
collectors lost, {wrong} things wrong, {latest:.0} ms; {twice} offered again after a move"
        ),
    )
}

fn criterion(id: &str, ok: bool, detail: String) -> Criterion {
    Criterion { id: id.to_owned(), ok, detail }
}

/// Whether every step was taken, each not before the one before it.
fn in_order(steps: &[Option<Nanos>]) -> bool {
    let taken: Option<Vec<Nanos>> = steps.iter().copied().collect();
    taken.is_some_and(|taken| taken.is_sorted())
}

#[cfg(test)]
pub(super) mod tests;
