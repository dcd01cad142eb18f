//! The records of a drill by phase, and what is seen in them; nothing is judged here.

use std::collections::{BTreeMap, BTreeSet};

use super::clock::Nanos;
use super::collectors::{POLLERS, WEBSOCKETS};
use super::criteria::Levels;
use super::files::CollectorsFound;
use super::records::{Change, Outcome, Passage, Probe, Recorded};
use super::{PERIOD, STREAMS, Settings};

/// Lateness of the control stream in the steady phases, 99th percentile; more makes a run void.
const CONTROL_P99_MS: f64 = 5.0;
/// Lateness of the control stream at any time; more makes a run void.
const CONTROL_MAX_MS: f64 = 100.0;

/// The records, by phase.
pub(super) struct View<'r> {
    pub(super) settings: &'r Settings,
    /// Begin and end of the change.
    pub(super) change: (Nanos, Nanos),
    pub(super) steady: [(Nanos, Nanos); 2],
    pub(super) route: Vec<&'r Probe>,
    known: BTreeSet<&'r str>,
    /// The change has come to an end.
    pub(super) ended: bool,
}

impl<'r> View<'r> {
    pub(super) fn of(all: &'r Recorded, settings: &'r Settings) -> Self {
        let at = |name: &str| {
            let phase = |change: &&Change| change.kind == "phase" && change.name == name;
            all.changes.iter().find(phase).map_or(0, |change| change.ns)
        };
        let (first, change, second, end) =
            (at("steady-1"), at("change"), at("steady-2"), at("end"));
        Self {
            settings,
            change: (change, second),
            steady: [(first, change), (second, end)],
            route: all.probes.iter().filter(|probe| probe.stream.starts_with("route-")).collect(),
            known: all
                .changes
                .iter()
                .filter(|change| change.kind == "ready")
                .map(|change| change.detail.as_str())
                .collect(),
            ended: all
                .changes
                .iter()
                .any(|one| one.kind == "ended" && one.ns >= change && change > 0),
        }
    }

    pub(super) fn route_in(&self, (from, to): (Nanos, Nanos)) -> impl Iterator<Item = &'r Probe> {
        self.route.iter().copied().filter(move |probe| (from..to).contains(&probe.intended_ns))
    }

    /// What a probe's result counts as; an answer from nobody known is no success.
    pub(super) fn outcome(&self, probe: &Probe) -> Result<(), String> {
        match probe.outcome {
            Outcome::Ok if self.known.contains(probe.answer.as_str()) => Ok(()),
            Outcome::Ok => Err("wrong_incarnation".to_owned()),
            Outcome::Late
            | Outcome::Shed
            | Outcome::Refused
            | Outcome::Reset
            | Outcome::Timeout
            | Outcome::Undecodable => Err(format!("{:?}", probe.outcome).to_lowercase()),
        }
    }

    pub(super) fn failures(&self, span: (Nanos, Nanos)) -> BTreeMap<String, u64> {
        let mut failures = BTreeMap::new();
        for probe in self.route_in(span) {
            if let Err(outcome) = self.outcome(probe) {
                *failures.entry(outcome).or_default() += 1;
            }
        }
        failures
    }

    /// Why the instrument was not good enough: for any verdict, and for one that rests on the time
    /// at which probes were sent.
    pub(super) fn void(&self, all: &Recorded) -> (Vec<String>, Vec<String>) {
        let mut void = Vec::new();
        let mut late_ones = Vec::new();
        if all.truncated {
            void.push("more records than are kept".to_owned());
        }
        if all.changes.iter().any(|change| change.kind == "unsettled") {
            void.push("the collectors had not all settled before the probes began".to_owned());
        }
        for (name, span) in [("steady-1", self.steady[0]), ("steady-2", self.steady[1])] {
            let mut late: Vec<f64> = all
                .control
                .iter()
                .filter(|probe| (span.0..span.1).contains(&probe.intended_ns))
                .map(lateness)
                .collect();
            late.sort_by(f64::total_cmp);
            match p99(&late) {
                None => void.push(format!("{name} has no control probe")),
                Some(p99) if p99 >= CONTROL_P99_MS => {
                    late_ones.push(format!(
                        "{name}: control lateness p99 {p99:.1} ms of {CONTROL_P99_MS}"
                    ));
                }
                Some(_) => {}
            }
            if self.route_in(span).next().is_none() {
                void.push(format!("{name} has no route probe"));
            }
        }
        let failures: u64 = self.failures(self.steady[0]).values().sum();
        if failures > 0 {
            void.push(format!("{failures} route failures before the change began"));
        }
        let worst = all
            .control
            .iter()
            .filter(|probe| (self.change.0..self.change.1).contains(&probe.intended_ns))
            .map(lateness)
            .fold(0.0, f64::max);
        if worst > CONTROL_MAX_MS {
            late_ones.push(format!("the prober was {worst:.0} ms late during the change"));
        }
        (void, late_ones)
    }

    pub(super) fn levels(&self, all: &Recorded, found: &[CollectorsFound; 2]) -> Levels {
        let mut gap: Nanos = 0;
        let mut last = self.change.0;
        let mut late: f64 = 0.0;
        let mut probes = 0;
        let mut took = Vec::new();
        for probe in self.route_in(self.change) {
            probes += 1;
            late = late.max(lateness(probe));
            if self.outcome(probe).is_ok() {
                took.push(millis(probe.done_ns.saturating_sub(probe.intended_ns)));
                gap = gap.max(probe.intended_ns.saturating_sub(last));
                last = probe.intended_ns;
            }
        }
        gap = gap.max(self.change.1.saturating_sub(last));
        took.sort_by(f64::total_cmp);
        let modeled = all.rows.iter().map(|row| row.counters[4]).min();
        let period = PERIOD.as_secs_f64() * 1e3 / f64::from(STREAMS);
        let [websocket, http] = found;
        Levels {
            modeled_min: modeled.unwrap_or(0),
            ready_min: self.fewest(all, "ready", &["unready", "died", "exited"]),
            routable_min: self.fewest(all, "routable", &["unroutable"]),
            probes,
            failures: self.failures(self.change),
            longest_gap_ms: millis(gap),
            bound_ms: period + late,
            latency_p99_ms: p99(&took).unwrap_or(0.0),
            latency_max_ms: took.last().copied().unwrap_or(0.0),
            links_lost: self.links_lost(all),
            away_p99_ms: websocket.away.p99_ms,
            away_max_ms: websocket.away.max_ms,
            collectors_lost: websocket.lost + http.lost,
            sessions_max: sessions_max(all),
            full_state_requests: websocket.full_state_requests + http.full_state_requests,
            delivery_max_ms: websocket.change_to_offer.max_ms.max(http.change_to_offer.max_ms),
        }
    }

    /// WebSockets that ended from the change on, and before the collectors left: those of a
    /// preparation do not count.
    fn links_lost(&self, all: &Recorded) -> u64 {
        let span = self.change.0..self.steady[1].1;
        let lost = |one: &&Passage| is_websocket(&one.client) && span.contains(&one.closed_ns);
        all.passages.iter().filter(lost).count() as u64
    }

    /// The smallest set during the change that `joins` and `leaves` make.
    fn fewest(&self, all: &Recorded, joins: &str, leaves: &[&str]) -> i64 {
        let mut members = BTreeSet::new();
        let mut fewest = None;
        let mut see = |members: &BTreeSet<&str>| {
            let count = i64::try_from(members.len()).unwrap_or(i64::MAX);
            fewest = Some(fewest.map_or(count, |least: i64| least.min(count)));
        };
        let mut begun = false;
        for change in &all.changes {
            if !begun && change.ns >= self.change.0 {
                begun = true;
                see(&members);
            }
            if change.ns >= self.change.1 {
                break;
            }
            let name = change.name.as_str();
            let moved = if change.kind == joins {
                members.insert(name)
            } else if leaves.contains(&change.kind.as_str()) {
                members.remove(name)
            } else {
                false
            };
            if begun && moved {
                see(&members);
            }
        }
        fewest.unwrap_or(0)
    }
}

pub(super) fn is_websocket(client: &str) -> bool {
    client.starts_with(&format!("{WEBSOCKETS}:"))
}

/// Every coming (1) and leaving (-1) of a collector at a gateway, in the order of time.
pub(super) fn moves(all: &Recorded) -> Vec<(Nanos, i64, &str)> {
    let pollers = format!("{POLLERS}:");
    let mut moves: Vec<(Nanos, i64, &str)> = Vec::new();
    for passage in &all.passages {
        let collector = is_websocket(&passage.client) || passage.client.starts_with(&pollers);
        if collector && passage.dialed_ns > 0 {
            moves.push((passage.dialed_ns, 1, &passage.backend));
            if passage.closed_ns > 0 {
                moves.push((passage.closed_ns, -1, &passage.backend));
            }
        }
    }
    moves.sort_unstable();
    moves
}

/// The most collectors that were on one gateway at once.
fn sessions_max(all: &Recorded) -> i64 {
    let mut now: BTreeMap<&str, i64> = BTreeMap::new();
    let mut most = 0;
    for (_, step, backend) in moves(all) {
        let count = now.entry(backend).or_default();
        *count += step;
        most = most.max(*count);
    }
    most
}

/// The 99th percentile of values in order.
fn p99(sorted: &[f64]) -> Option<f64> {
    sorted.get(sorted.len().saturating_sub(1) * 99 / 100).copied()
}

fn lateness(probe: &Probe) -> f64 {
    millis(probe.sent_ns.saturating_sub(probe.intended_ns))
}

pub(super) fn millis(nanos: Nanos) -> f64 {
    nanos as f64 / 1e6
}
