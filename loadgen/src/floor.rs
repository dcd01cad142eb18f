//! The floor of a connect: what a connection over loopback with five messages costs this machine's
//! kernel at this hour, with next to no code around it.
//!
//! Times of a run say little without it: the kernel of a shared machine is a third slower or faster
//! from one minute to the next. [`measure`] takes it before and after a run, and
//! [`Floor::times_slower`] lays it beside that of the machine on which the figures of
//! docs/performance.md were set.

mod lab;

use std::fmt;
use std::io;

use rustix::io::Errno;
use serde::Serialize;

use crate::host;
use lab::{Batch, play};

/// What it was on the machine on which the figures were set. PERFORMANCE.md, "What is known":
/// "connect + accept 27 µs, epoll registration 4 µs, a five-message exchange 44 µs, both ends together:
/// two cores cannot pass about 26,700 connects/s".
pub const REFERENCE: Costs = Costs { connect_us: 27.0, register_us: 4.0, exchange_us: 44.0 };

/// Batches of which the least disturbed one counts.
const BATCHES: usize = 5;
/// Connections of a batch, all open until its end.
const BATCH: u32 = 800;
/// Fewer say nothing.
const BATCH_MIN: u64 = 10;
/// Descriptors that are left to everything else.
const SPARE: u64 = 100;

/// Microseconds of one thread that plays both ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Costs {
    /// Socket, connect and accept.
    pub connect_us: f64,
    /// Both ends into an epoll, and a look at what that says.
    pub register_us: f64,
    /// Five messages: sent, waited for, read.
    pub exchange_us: f64,
}

impl Costs {
    /// All of it.
    pub fn total_us(&self) -> f64 {
        self.connect_us + self.register_us + self.exchange_us
    }
}

/// What was measured. Times are in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Floor {
    /// Of a connection in the least disturbed batch.
    #[serde(flatten)]
    pub least: Costs,
    /// Their sum.
    pub total_us: f64,
    /// The sum in the median batch: how much else went on.
    pub median_us: f64,
    /// How many connections were measured.
    pub connections: u32,
    /// The sum of [`REFERENCE`].
    pub reference_us: f64,
    /// How many of those this machine takes; below 1 it is the faster one.
    pub times_slower: f64,
    /// How many processors this process may use at once.
    pub processors: usize,
    /// What these cannot pass, were there nothing but the kernel.
    pub connects_per_s_max: f64,
}

/// What is known of a machine's floor.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Speed {
    /// It.
    Floor(Floor),
    /// It could not be measured.
    Unknown {
        /// Why, and what to do about it.
        why: String,
    },
}

/// Why the floor could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum FloorError {
    /// Too few open files.
    #[error(
        "no descriptors are left for it: raise the limit of open files (ulimit -n), or end what holds them"
    )]
    Descriptors,
    /// A loopback that does not work.
    #[error(
        "127.0.0.0/8 carries no connection ({0}): see whether the interface lo is up, and what a firewall says"
    )]
    Loopback(io::Error),
}

impl From<io::Error> for FloorError {
    fn from(error: io::Error) -> Self {
        let spent = [Errno::MFILE, Errno::NFILE].map(|errno| Some(errno.raw_os_error()));
        if spent.contains(&error.raw_os_error()) {
            Self::Descriptors
        } else {
            Self::Loopback(error)
        }
    }
}

/// Measures for about half a second, and a second at most: 4,000 connections over loopback, 800 of
/// them at a time. Raises this process's limit of open files to the hard limit.
///
/// # Errors
///
/// Where there are no descriptors for it, or loopback does not carry a connection.
pub fn measure() -> Result<Floor, FloorError> {
    let size = batch_size(host::raise_descriptors()).ok_or(FloorError::Descriptors)?;
    let (batches, _) = play(BATCHES, size)?;
    Ok(Floor::of(&batches, host::processors()))
}

/// Connections of a batch with that many descriptors, two for each (`None` is no limit).
fn batch_size(descriptors: Option<u64>) -> Option<u32> {
    let room = descriptors.map_or(u64::MAX, |limit| limit.saturating_sub(SPARE) / 2);
    let size = u32::try_from(room).unwrap_or(u32::MAX).min(BATCH);
    (room >= BATCH_MIN).then_some(size)
}

impl Floor {
    fn of(batches: &[Batch], processors: usize) -> Self {
        let mut costs: Vec<Costs> = batches.iter().map(Batch::costs).collect();
        costs.sort_by(|one, other| one.total_us().total_cmp(&other.total_us()));
        let none = Costs { connect_us: 0.0, register_us: 0.0, exchange_us: 0.0 };
        let least = costs.first().copied().unwrap_or(none);
        let median = costs.get(costs.len() / 2).copied().unwrap_or(none);
        let connections = batches.iter().map(|batch| batch.connections).sum();
        Self::new(least, median.total_us(), connections, processors)
    }

    /// With those costs in the least disturbed batch, and that sum in the median one.
    pub(crate) fn new(least: Costs, median_us: f64, connections: u32, processors: usize) -> Self {
        let (total_us, reference_us) = (least.total_us(), REFERENCE.total_us());
        #[expect(clippy::cast_precision_loss, reason = "processors are counted in hundreds")]
        let connects_per_s_max = processors as f64 * 1e6 / total_us;
        Self {
            least,
            total_us,
            median_us,
            connections,
            reference_us,
            times_slower: total_us / reference_us,
            processors,
            connects_per_s_max,
        }
    }

    /// What a limit of time, set on the reference's machine, comes to on this one: never less. By the
    /// least disturbed batch, so that other work on the machine does not make it larger.
    pub fn limit_here(&self, limit: f64) -> f64 {
        limit * self.times_slower.max(1.0)
    }
}

impl Speed {
    /// Measures, as [`measure`] does.
    pub fn measure() -> Self {
        measure().map_or_else(|error| Self::Unknown { why: error.to_string() }, Self::Floor)
    }

    /// The floor, where it is known.
    pub fn floor(&self) -> Option<&Floor> {
        match self {
            Self::Floor(floor) => Some(floor),
            Self::Unknown { .. } => None,
        }
    }
}

/// One line.
impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Floor(floor) => write!(
                f,
                "{:.0} µs a connect and five messages, {:.0} in the median batch ({:.0} where the figures were set: {:.2} times)",
                floor.total_us, floor.median_us, floor.reference_us, floor.times_slower
            ),
            Self::Unknown { why } => write!(f, "not measured: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A batch that took so many microseconds a connection.
    fn batch(connect: u64, register: u64, exchange: u64) -> Batch {
        let all = |us: u64| us * 1_000 * 800;
        Batch {
            connections: 800,
            connect: all(connect),
            register: all(register),
            exchange: all(exchange),
        }
    }

    #[test]
    fn the_least_disturbed_batch_counts_and_the_median_one_is_told() {
        let batches = [
            batch(50, 9, 61),
            batch(45, 7, 58),
            batch(90, 9, 101),
            batch(47, 7, 60),
            batch(51, 8, 62),
        ];
        let floor = Floor::of(&batches, 2);
        let close = |one: f64, other: f64| (one - other).abs() < 1e-6;
        assert!(close(floor.total_us, 110.0) && close(floor.least.connect_us, 45.0), "{floor:?}");
        assert!(close(floor.least.register_us, 7.0) && close(floor.least.exchange_us, 58.0));
        assert!(close(floor.median_us, 120.0), "{floor:?}");
        assert_eq!((floor.connections, floor.reference_us), (4_000, 75.0));
        assert!(close(floor.times_slower, 110.0 / 75.0));
        assert!(close(floor.connects_per_s_max, 2e6 / 110.0));
        assert!(close(floor.limit_here(60.0), 88.0), "{}", floor.limit_here(60.0));
    }

    #[test]
    fn the_reference_is_as_fast_as_itself_and_a_faster_machine_gets_no_tighter_limit() {
        let floor = Floor::new(REFERENCE, 75.0, 1, 2);
        assert!((floor.times_slower - 1.0).abs() < 1e-9);
        assert_eq!(floor.connects_per_s_max.round(), 26_667.0);
        let fast = Costs { connect_us: 20.0, register_us: 2.0, exchange_us: 30.0 };
        let fast = Floor::new(fast, 60.0, 1, 2);
        assert!(fast.times_slower < 0.7);
        assert_eq!(fast.limit_here(60.0), 60.0);
    }

    #[test]
    fn a_line_tells_people_and_a_machine_reads_what_it_says() {
        let floor = Speed::Floor(Floor::of(&[batch(45, 7, 58), batch(50, 9, 61)], 2));
        assert_eq!(
            floor.to_string(),
            "110 µs a connect and five messages, 120 in the median batch (75 where the figures were set: 1.47 times)"
        );
        let json = serde_json::to_value(&floor).unwrap();
        assert_eq!(json["connect_us"], 45.0);
        assert_eq!((&json["total_us"], &json["reference_us"]), (&110.0.into(), &75.0.into()));
        let unknown = Speed::Unknown { why: FloorError::Descriptors.to_string() };
        assert!(unknown.floor().is_none() && unknown.to_string().contains("ulimit -n"));
        assert!(serde_json::to_value(&unknown).unwrap()["why"].is_string());
    }

    #[test]
    fn a_batch_fits_the_descriptors_that_there_are() {
        assert_eq!(batch_size(None), Some(800));
        assert_eq!(batch_size(Some(20_000)), Some(800));
        assert_eq!(batch_size(Some(1_024)), Some(462));
        assert_eq!(batch_size(Some(120)), Some(10));
        assert_eq!(batch_size(Some(119)), None);
        assert_eq!(batch_size(Some(0)), None);
    }

    #[test]
    fn errors_name_a_way_out() {
        let full = FloorError::from(io::Error::from_raw_os_error(Errno::MFILE.raw_os_error()));
        assert!(matches!(full, FloorError::Descriptors), "{full}");
        let down = FloorError::from(io::Error::from_raw_os_error(Errno::NETUNREACH.raw_os_error()));
        assert!(down.to_string().contains("interface lo is up"), "{down}");
    }
}
