//! What a run over many processes found.

use serde::Serialize;

use super::protocol::Ends;
use crate::floor::{Floor, Speed};
use crate::report::{Latency, Report};

/// Seconds in which 500,000 collectors have to be connected (PERFORMANCE P2); other numbers in
/// proportion.
const CONNECT_S: f64 = 60.0;
/// Bytes of the machine that 500,000 collectors may take, both ends (P2); others in proportion.
const MACHINE_BYTES: f64 = 6.0 * 1_073_741_824.0;
/// The same where there are a million or more (P2+).
const MANY_BYTES: f64 = 6.5 * 1_073_741_824.0;
const OF_COLLECTORS: f64 = 500_000.0;
/// Below that many, what each process needs for itself hides what a link costs.
const TOO_FEW: u32 = 10_000;
/// Resident bytes of a worker for each of its collectors.
const COLLECTOR_BYTES: f64 = 1_024.0;

/// Everything that a run found out. Times are in the unit that their names end with.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Nothing wrong, nothing lost, nobody died unasked.
    pub all_right: bool,
    /// What is not right, one sentence each.
    pub problems: Vec<String>,
    /// Figures beside what they are to be.
    pub figures: Vec<Figure>,
    /// Collectors asked for.
    pub collectors: u32,
    /// Gateways that were started, those that replaced others not counted.
    pub replicas: u32,
    /// Worker processes.
    pub workers: u32,
    /// Until every collector had been connected.
    pub all_connected_after_s: Option<f64>,
    /// Until every collector that takes offers had its first right one.
    pub all_offered_after_s: Option<f64>,
    /// Until every collector ran it, had told so, and was answered.
    pub all_settled_after_s: Option<f64>,
    /// From then to the farewells.
    pub held_s: f64,
    /// What happened in that time.
    pub events: Vec<Event>,
    /// How links ended at gateways that were killed or replaced.
    pub expected_ends: Ends,
    /// How links ended at others.
    pub other_ends: Ends,
    /// Links that storms reset.
    pub storm_resets: u64,
    /// Memory and processor time.
    pub machine: Machine,
    /// All books of all collectors; absent when some were lost with their worker.
    pub report: Option<Report>,
    /// Twice a second.
    pub timeline: Vec<Sample>,
}

/// A figure and its limit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// What it is.
    pub what: String,
    /// What was reached; absent when it was not measured.
    pub value: Option<f64>,
    /// The most that it may be.
    pub limit: f64,
    /// Of both.
    pub unit: &'static str,
    /// Whether it was reached.
    pub holds: bool,
    /// Of a time, where the kernel's floor was measured: the limit in proportion to that floor, and
    /// never less than it. It decides nothing.
    pub limit_here: Option<f64>,
    /// Whether that was reached.
    pub holds_here: Option<bool>,
}

/// Something that was done to the gateways or by the collectors.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Event {
    /// Seconds after the first connect.
    pub at_s: f64,
    /// What it was.
    pub what: String,
    /// Until every collector ran what it must, had told so and was answered, on a link that is up.
    pub settled_after_s: Option<f64>,
    /// Of a new head: until the last offer of it was read.
    pub last_offer_after_s: Option<f64>,
    /// Of a new head: what stands for it.
    pub fingerprint: Option<u64>,
}

/// What the run took of the machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Machine {
    /// What a connect cost the kernel just before the run; absent where gateways run elsewhere.
    pub floor: Option<Speed>,
    /// The same once everything had ended; absent where the run was ended early as well.
    pub floor_after: Option<Speed>,
    /// Available before anything was started.
    pub available_before_bytes: u64,
    /// Available when all had settled for the first time.
    pub available_settled_bytes: Option<u64>,
    /// The least that was available.
    pub available_least_bytes: u64,
    /// By kind of process.
    pub processes: Vec<Category>,
    /// Resident bytes of the workers beyond what they had before their first collector, per
    /// collector, once all had settled.
    pub worker_bytes_per_collector: Option<f64>,
}

/// All processes of one kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Category {
    /// Which.
    pub kind: &'static str,
    /// How many there were.
    pub count: u32,
    /// Resident bytes of all of them when all had settled for the first time.
    pub settled_bytes: u64,
    /// The most that all of them had together.
    pub most_bytes: u64,
    /// Processor time in user mode.
    pub cpu_user_s: f64,
    /// Processor time in the kernel.
    pub cpu_system_s: f64,
}

/// How things stood at some moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Sample {
    /// Seconds after the first connect.
    pub at_s: f64,
    /// Links up.
    pub connected: u64,
    /// Collectors with their first right offer.
    pub offered: u64,
    /// Collectors that run what the newest head says.
    pub settled: u64,
    /// Things that went wrong so far.
    pub wrong: u64,
    /// Messages sent per second since the sample before.
    pub messages_per_s: f64,
    /// Of replies since the sample before.
    pub reply: Latency,
    /// Of offers since the sample before, from when they were due.
    pub offer: Latency,
}

impl Machine {
    /// The kernel's floor, where it was measured: the lower one, as a machine that was fast at either
    /// end of the run may have been so in between.
    pub fn floor(&self) -> Option<&Floor> {
        let both = [&self.floor, &self.floor_after].into_iter().flatten();
        both.filter_map(Speed::floor).min_by(|one, other| one.total_us.total_cmp(&other.total_us))
    }

    /// What was taken when all had settled.
    pub fn used_bytes(&self) -> Option<u64> {
        self.available_settled_bytes
            .map(|available| self.available_before_bytes.saturating_sub(available))
    }
}

impl Outcome {
    /// Lays the figures beside their limits.
    pub(super) fn weigh(&mut self) {
        let share = f64::from(self.collectors) / OF_COLLECTORS;
        let floor = self.machine.floor();
        let figure = |what: String, value: Option<f64>, limit: f64, unit| {
            let holds = value.is_some_and(|value| value <= limit);
            let limit_here = floor.filter(|_| unit == "s").map(|floor| floor.limit_here(limit));
            let holds_here = limit_here.map(|limit| value.is_some_and(|value| value <= limit));
            Figure { what, value, limit, unit, holds, limit_here, holds_here }
        };
        let report = self.report.as_ref();
        let mut figures = vec![
            figure("wrong".to_owned(), report.map(|report| report.wrong as f64), 0.0, ""),
            figure("lost".to_owned(), report.map(|report| f64::from(report.lost)), 0.0, ""),
            figure(
                "links lost that nobody ended".to_owned(),
                report.map(|report| report.links_lost as f64),
                0.0,
                "",
            ),
        ];
        if self.collectors >= TOO_FEW {
            let used = self.machine.used_bytes().map(|bytes| bytes as f64);
            let (limit, connected) = (CONNECT_S * share, self.all_connected_after_s);
            figures.push(figure("all connected after".to_owned(), connected, limit, "s"));
            let bytes = if share >= 2.0 { MANY_BYTES } else { MACHINE_BYTES };
            let limit = bytes * share / 1_048_576.0;
            let used = used.map(|bytes| bytes / 1_048_576.0);
            figures.push(figure("memory of the machine".to_owned(), used, limit, "MiB"));
            let each = self.machine.worker_bytes_per_collector;
            figures.push(figure("memory of a collector".to_owned(), each, COLLECTOR_BYTES, "B"));
        }
        for event in &self.events {
            if let Some(limit) = event.limit_s() {
                let after = event.last_offer_after_s.or(event.settled_after_s);
                figures.push(figure(event.what.clone(), after, limit, "s"));
            }
        }
        self.figures = figures;
    }
}

impl Event {
    /// What PERFORMANCE P5 and P6 say of it.
    fn limit_s(&self) -> Option<f64> {
        if self.fingerprint.is_some() {
            Some(10.0)
        } else if self.what.ends_with(KILLED) {
            Some(15.0)
        } else {
            None
        }
    }
}

/// How a kill is called.
pub(super) const KILLED: &str = "killed with -9";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::floor::Costs;

    fn outcome(floor: Option<Speed>, connected_after_s: f64) -> Outcome {
        let mut outcome = Outcome {
            all_right: true,
            problems: Vec::new(),
            figures: Vec::new(),
            collectors: 100_000,
            replicas: 6,
            workers: 6,
            all_connected_after_s: Some(connected_after_s),
            all_offered_after_s: None,
            all_settled_after_s: None,
            held_s: 0.0,
            events: vec![Event {
                at_s: 30.0,
                what: format!("replica 2 {KILLED}"),
                settled_after_s: Some(16.0),
                last_offer_after_s: None,
                fingerprint: None,
            }],
            expected_ends: Ends::default(),
            other_ends: Ends::default(),
            storm_resets: 0,
            machine: Machine {
                floor,
                available_before_bytes: 20 << 30,
                available_settled_bytes: Some(19 << 30),
                ..Machine::default()
            },
            report: None,
            timeline: Vec::new(),
        };
        outcome.weigh();
        outcome
    }

    /// A machine on which everything takes 1.5 times as long as where the figures were set.
    fn slow() -> Speed {
        let costs = Costs { connect_us: 45.0, register_us: 7.5, exchange_us: 60.0 };
        Speed::Floor(Floor::new(costs, 120.0, 4_000, 2))
    }

    #[test]
    fn figures_are_weighed_in_proportion_and_what_was_not_measured_does_not_hold() {
        let outcome = outcome(None, 11.0);
        let holds: Vec<_> =
            outcome.figures.iter().map(|figure| (figure.what.as_str(), figure.holds)).collect();
        assert_eq!(
            holds,
            [
                ("wrong", false),
                ("lost", false),
                ("links lost that nobody ended", false),
                ("all connected after", true),
                ("memory of the machine", true),
                ("memory of a collector", false),
                ("replica 2 killed with -9", false),
            ]
        );
        assert!((outcome.figures[3].limit - 12.0).abs() < 1e-9);
        assert!((outcome.figures[4].limit - 1_228.8).abs() < 1e-9);
        assert!(outcome.figures.iter().all(|figure| figure.limit_here.is_none()));
        assert!(outcome.figures.iter().all(|figure| figure.holds_here.is_none()));
    }

    #[test]
    fn a_slow_kernel_adds_a_second_limit_to_times_and_saves_no_figure() {
        let outcome = outcome(Some(slow()), 15.2);
        let here: Vec<_> = outcome
            .figures
            .iter()
            .filter_map(|figure| Some((figure.holds, figure.limit_here?, figure.holds_here?)))
            .collect();
        assert_eq!(here, [(false, 18.0, true), (false, 22.5, true)], "times alone: {outcome}");
        let text = outcome.to_string();
        for expected in [
            "\nthe kernel's floor     112 µs a connect and five messages, 120 in the median batch (75 where the figures were set: 1.50 times)\n",
            "\n  MISSED all connected after              15.20 of 12.00 s (18.00 s at this machine's speed: holds)\n",
            "\n  MISSED replica 2 killed with -9         16.00 of 15.00 s (22.50 s at this machine's speed: holds)\n",
            "\n  holds  memory of the machine            1024 of 1229 MiB\n",
        ] {
            assert!(text.contains(expected), "{expected}{text}");
        }
        let json = serde_json::to_value(&outcome).unwrap();
        assert_eq!(json["machine"]["floor"]["times_slower"], 1.5);
        assert_eq!(
            (&json["figures"][3]["holds"], &json["figures"][3]["holds_here"]),
            (&false.into(), &true.into())
        );
        assert!(json["figures"][4]["limit_here"].is_null());
    }

    #[test]
    fn what_is_missed_at_this_speed_too_says_so_and_what_holds_says_no_more() {
        let text = outcome(Some(slow()), 18.01).to_string();
        assert!(
            text.contains("18.01 of 12.00 s (18.00 s at this machine's speed: missed)\n"),
            "{text}"
        );
        let text = outcome(Some(slow()), 11.0).to_string();
        assert!(text.contains("all connected after              11.00 of 12.00 s\n"), "{text}");
        let unknown = Some(Speed::Unknown { why: "no descriptors".to_owned() });
        let text = outcome(unknown, 15.2).to_string();
        assert!(text.contains("the kernel's floor     not measured: no descriptors\n"), "{text}");
        assert!(text.contains("15.20 of 12.00 s\n"), "{text}");
    }

    #[test]
    fn of_the_floors_before_and_after_the_lower_one_counts() {
        let even = Speed::Floor(Floor::new(crate::floor::REFERENCE, 80.0, 4_000, 2));
        let unknown = Speed::Unknown { why: "no descriptors".to_owned() };
        for (before, after, limit) in [
            (slow(), Some(even.clone()), Some(12.0)),
            (even, Some(slow()), Some(12.0)),
            (slow(), Some(slow()), Some(18.0)),
            (slow(), Some(unknown.clone()), Some(18.0)),
            (slow(), None, Some(18.0)),
            (unknown.clone(), Some(unknown), None),
        ] {
            let mut outcome = outcome(Some(before), 15.2);
            outcome.machine.floor_after = after;
            outcome.weigh();
            assert_eq!(outcome.figures[3].limit_here, limit, "{outcome}");
            let told = outcome.to_string().contains("\nand after the run      ");
            assert_eq!(told, outcome.machine.floor_after.is_some(), "{outcome}");
        }
    }

    #[test]
    fn a_machine_as_fast_as_the_reference_has_one_limit() {
        let even = Speed::Floor(Floor::new(crate::floor::REFERENCE, 75.0, 4_000, 2));
        let text = outcome(Some(even), 15.2).to_string();
        assert!(
            text.contains("MISSED all connected after              15.20 of 12.00 s\n"),
            "{text}"
        );
    }
}
