//! A measured run as a picture: the five levels over time, sessions per gateway, probe latency.

use std::collections::{BTreeMap, BTreeSet};

use super::clock::Nanos;
use super::files::Raw;
use super::records::Recorded;
use super::view::{View, is_websocket, moves};
use crate::plot::{Panel, Series, svg};

/// Time that one position stands for.
const BIN_NS: Nanos = 500_000_000;
/// Positions of a picture: 30 minutes; what comes after them is left out.
const BINS_MAX: usize = 3_600;

/// An SVG of the run from its first steady phase to its end.
pub fn picture(raw: &Raw) -> String {
    let all = &raw.recorded;
    let view = View::of(all, &raw.environment.settings);
    let axis = Axis::of(&view);
    let (begin, end) = view.change;
    let note = format!(
        "seconds from the begin of the change, which takes {:.1} s; one position is half a second",
        end.saturating_sub(begin) as f64 / 1e9
    );
    let panel = |title: &str, series: Vec<Series>| Panel {
        title: title.to_owned(),
        note: note.clone(),
        labels: axis.labels(begin),
        series,
    };
    let collectors = raw.found[0].collectors.max(1);
    let panels = [
        panel(
            "Gateways: modeled (L0), ready (L1), in the route's table (L2)",
            gateways(all, &axis),
        ),
        panel("What clients see, in percent", clients(all, &view, &axis, collectors)),
        panel("Collectors on each gateway", sessions(all, &axis)),
        panel("Successful probes on the route, in microseconds", latency(&view, &axis)),
    ];
    let settings = &raw.environment.settings;
    svg(
        &panels,
        &format!(
            "one run (seed {}), one host, loopback, simulated collectors; not a claim about production",
            settings.seed
        ),
    )
}

/// Equal pieces of time.
struct Axis {
    from: Nanos,
    bins: usize,
}

impl Axis {
    fn of(view: &View<'_>) -> Self {
        let (from, to) = (view.steady[0].0, view.steady[1].1);
        let bins = usize::try_from(to.saturating_sub(from) / BIN_NS).unwrap_or(BINS_MAX);
        Self { from, bins: bins.clamp(1, BINS_MAX) }
    }

    fn bin(&self, at: Nanos) -> Option<usize> {
        let bin = usize::try_from(at.checked_sub(self.from)? / BIN_NS).ok()?;
        (bin < self.bins).then_some(bin)
    }

    fn labels(&self, begin: Nanos) -> Vec<String> {
        (0..self.bins as u64)
            .map(|bin| {
                let at = (self.from + bin * BIN_NS) as f64 - begin as f64;
                format!("{:.0}", at / 1e9)
            })
            .collect()
    }

    /// The least value in each piece, or the most, of one that changes at these times.
    fn steps(&self, changes: &[(Nanos, i64)], pick: fn(i64, i64) -> i64) -> Vec<i64> {
        let mut changes = changes.iter().peekable();
        let mut now = 0;
        let mut values = Vec::with_capacity(self.bins);
        for bin in 0..self.bins as u64 {
            let (from, to) = (self.from + bin * BIN_NS, self.from + (bin + 1) * BIN_NS);
            while let Some((_, value)) = changes.next_if(|(at, _)| *at <= from) {
                now = *value;
            }
            let mut picked = now;
            while let Some((_, value)) = changes.next_if(|(at, _)| *at < to) {
                now = *value;
                picked = pick(picked, now);
            }
            values.push(picked);
        }
        values
    }
}

fn series(name: &str, values: Vec<i64>) -> Series {
    Series { name: name.to_owned(), values }
}

fn gateways(all: &Recorded, axis: &Axis) -> Vec<Series> {
    let modeled: Vec<(Nanos, i64)> = all.rows.iter().map(|row| (row.ns, row.counters[4])).collect();
    // Rows are recorded from the change on; what the first one says was so before it.
    let modeled = match modeled.first() {
        Some((_, first)) => [vec![(0, *first)], modeled.clone()].concat(),
        None => modeled,
    };
    let processes = ["spawned"].as_slice();
    let gone = ["exited", "died"].as_slice();
    vec![
        series("modeled, L0", axis.steps(&modeled, i64::min)),
        series(
            "ready, L1",
            axis.steps(&members(all, &["ready"], &["unready", "died", "exited"]), i64::min),
        ),
        series("routable, L2", axis.steps(&members(all, &["routable"], &["unroutable"]), i64::min)),
        series("processes", axis.steps(&members(all, processes, gone), i64::max)),
    ]
}

/// The size of a set after each of its changes.
fn members(all: &Recorded, joins: &[&str], leaves: &[&str]) -> Vec<(Nanos, i64)> {
    let mut members = BTreeSet::new();
    let mut sizes = Vec::new();
    for change in &all.changes {
        let (kind, name) = (change.kind.as_str(), change.name.as_str());
        let moved = (joins.contains(&kind) && members.insert(name))
            || (leaves.contains(&kind) && members.remove(name));
        if moved {
            sizes.push((change.ns, i64::try_from(members.len()).unwrap_or(i64::MAX)));
        }
    }
    sizes
}

fn clients(all: &Recorded, view: &View<'_>, axis: &Axis, collectors: u64) -> Vec<Series> {
    let mut probes = vec![(0_i64, 0_i64); axis.bins];
    for probe in &view.route {
        if let Some((sent, good)) = axis.bin(probe.intended_ns).and_then(|bin| probes.get_mut(bin))
        {
            *sent += 1;
            *good += i64::from(view.outcome(probe).is_ok());
        }
    }
    let succeed = probes.iter().map(|(sent, good)| if *sent == 0 { 0 } else { good * 100 / sent });
    let mut moved: Vec<(Nanos, i64)> = Vec::new();
    for passage in all.passages.iter().filter(|one| is_websocket(&one.client)) {
        if passage.dialed_ns > 0 {
            moved.push((passage.dialed_ns, 1));
            if passage.closed_ns > 0 {
                moved.push((passage.closed_ns, -1));
            }
        }
    }
    moved.sort_unstable();
    let whole = i64::try_from(collectors).unwrap_or(i64::MAX).max(1);
    let mut linked = 0;
    let linked: Vec<(Nanos, i64)> = moved
        .into_iter()
        .map(|(at, step)| {
            linked += step;
            (at, (linked * 100 / whole).min(100))
        })
        .collect();
    vec![
        series("probes that succeed, L3", succeed.collect()),
        series("collectors with a link, L4", axis.steps(&linked, i64::min)),
    ]
}

/// Those that had any in this time, in the order of their names; a picture has six lines.
fn sessions(all: &Recorded, axis: &Axis) -> Vec<Series> {
    let mut now: BTreeMap<&str, i64> = BTreeMap::new();
    let mut changes: BTreeMap<&str, Vec<(Nanos, i64)>> = BTreeMap::new();
    for (at, step, backend) in moves(all) {
        let count = now.entry(backend).or_default();
        *count += step;
        changes.entry(backend).or_default().push((at, *count));
    }
    changes
        .into_iter()
        .map(|(name, changes)| series(name, axis.steps(&changes, i64::max)))
        .filter(|one| one.values.iter().any(|value| *value > 0))
        .collect()
}

fn latency(view: &View<'_>, axis: &Axis) -> Vec<Series> {
    let mut took: Vec<Vec<i64>> = vec![Vec::new(); axis.bins];
    for probe in view.route.iter().filter(|probe| view.outcome(probe).is_ok()) {
        let micros = probe.done_ns.saturating_sub(probe.intended_ns) / 1_000;
        if let Some(bin) = axis.bin(probe.intended_ns).and_then(|bin| took.get_mut(bin)) {
            bin.push(i64::try_from(micros).unwrap_or(i64::MAX));
        }
    }
    for bin in &mut took {
        bin.sort_unstable();
    }
    let of = |at: fn(usize) -> usize| {
        took.iter().map(|bin| bin.get(at(bin.len())).copied().unwrap_or(0)).collect()
    };
    vec![
        series("slowest", of(|count| count.saturating_sub(1))),
        series("median", of(|count| count / 2)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_dips_within_a_piece_of_time_is_seen() {
        let axis = Axis { from: 10 * BIN_NS, bins: 4 };
        let at = |halves: u64| 10 * BIN_NS + halves * BIN_NS / 4;
        let changes = [(0, 3), (at(1), 2), (at(2), 3), (at(9), 4)];
        assert_eq!(axis.steps(&changes, i64::min), [2, 3, 3, 4]);
        assert_eq!(axis.steps(&changes, i64::max), [3, 3, 4, 4]);
        assert_eq!((axis.bin(at(0)), axis.bin(at(15)), axis.bin(at(16))), (Some(0), Some(3), None));
        assert_eq!(axis.bin(0), None);
    }
}
