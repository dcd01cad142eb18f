//! What a run over many processes is asked to do, and how it is shared out.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use crate::clock::{Micros, micros};

/// Most collectors of a run: what the source addresses and the numbers of targets are made for.
pub const COLLECTORS_MAX: u32 = 2_000_000;
/// Descriptors that a worker or a gateway needs beside its links.
const SPARE: u64 = 100;
/// Links of a process, whatever the limit: past that one thread is the bottleneck.
pub const LINKS_MAX: u64 = 60_000;
/// Processes of each kind that a run may have.
pub const PROCESSES_MAX: u32 = 1_000;
/// Source addresses of each worker: with so many, a port is found at the first look.
const SOURCES: u32 = 8;
/// The first of them: 127.1.0.1. All of 127.0.0.0/8 is this machine.
const FIRST_SOURCE: u32 = 0x7f01_0001;

/// All choices of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many collectors, 1..=[`COLLECTORS_MAX`].
    pub collectors: u32,
    /// The estate that the gateways serve, with its rendered files.
    pub estate: PathBuf,
    /// A plan file; derived from the estate when absent.
    pub plan: Option<PathBuf>,
    /// In place of the plan's.
    pub heartbeat: Option<Duration>,
    /// From an offer to APPLIED, in place of the plan's: a random time from the first to the second.
    pub apply_delay: Option<(Duration, Duration)>,
    /// APPLYING is not told.
    pub no_applying: bool,
    /// Collectors' URLs of gateways that run already; where there are none, gateways are started.
    pub endpoints: Vec<String>,
    /// The gateway's binary.
    pub gateway: PathBuf,
    /// Further flags of each gateway.
    pub gateway_flags: Vec<String>,
    /// A program and its first arguments that acts as `loadgen worker` and `loadgen leash`.
    pub own: Vec<OsString>,
    /// How many gateways; as many as the descriptors ask for when absent.
    pub replicas: Option<u32>,
    /// How many workers; as many as the descriptors ask for when absent.
    pub workers: Option<u32>,
    /// How many workers connect at a time, and leave; when absent, as many as there are processors,
    /// or all of them where gateways run elsewhere.
    pub lanes: Option<u32>,
    /// Collectors started per second, over all workers.
    pub connect_rate: f64,
    /// How long to stay once all have settled.
    pub duration: Duration,
    /// How long the first settling may take, and that after each event.
    pub timeout: Duration,
    /// How far the gateways' sight of a change may be from ours.
    pub head_window: Duration,
    /// How long a reply may take.
    pub reply_timeout: Duration,
    /// Longest wait before another attempt to connect.
    pub reconnect_within: Option<Duration>,
    /// A gateway is killed that long after all have settled.
    pub kill_replica_at: Option<Duration>,
    /// And started again.
    pub restart_killed: bool,
    /// Gateways are replaced one after the other once all have settled.
    pub roll_replicas: bool,
    /// New heads that change every artefact come that long after each other.
    pub push_every: Option<Duration>,
    /// All links are reset and opened again that long after each other.
    pub storm_every: Option<Duration>,
    /// Nothing is told on stderr while it goes on.
    pub quiet: bool,
}

/// A run that cannot start. Exit code 2.
#[derive(Debug, thiserror::Error)]
pub enum ScaleError {
    /// A value that makes no sense, or does not fit the others.
    #[error("{0}")]
    Usage(String),
    /// Something that it needs is not there, or does not work.
    #[error("{0}")]
    Cannot(String),
}

impl Options {
    /// A run with the defaults of the command line.
    pub fn new(collectors: u32, estate: PathBuf, gateway: PathBuf, own: Vec<OsString>) -> Self {
        Self {
            collectors,
            estate,
            plan: None,
            heartbeat: None,
            apply_delay: None,
            no_applying: false,
            endpoints: Vec::new(),
            gateway,
            gateway_flags: Vec::new(),
            own,
            replicas: None,
            workers: None,
            lanes: None,
            connect_rate: 10_000.0,
            duration: Duration::ZERO,
            timeout: Duration::from_secs(300),
            head_window: Duration::from_secs(10),
            reply_timeout: Duration::from_secs(10),
            reconnect_within: None,
            kill_replica_at: None,
            restart_killed: false,
            roll_replicas: false,
            push_every: None,
            storm_every: None,
            quiet: false,
        }
    }

    /// Shares the run out, where a process may have that many descriptors (`None` is no limit).
    ///
    /// # Errors
    ///
    /// Values that do not fit each other or the limit.
    pub fn layout(&self, descriptors: Option<u64>) -> Result<Layout, ScaleError> {
        let usage = |text: String| Err(ScaleError::Usage(text));
        if self.collectors == 0 || self.collectors > COLLECTORS_MAX {
            return usage(format!("--collectors must be 1 to {COLLECTORS_MAX}"));
        }
        if !(self.connect_rate.is_finite() && self.connect_rate > 0.0) {
            return usage("--connect-rate must be greater than 0".to_owned());
        }
        if self.lanes == Some(0) {
            return usage("--lanes must be greater than 0".to_owned());
        }
        for (flag, value) in [
            ("--timeout", Some(self.timeout)),
            ("--head-window", Some(self.head_window)),
            ("--reply-timeout", Some(self.reply_timeout)),
            ("--heartbeat", self.heartbeat),
            ("--push-every", self.push_every),
            ("--storm", self.storm_every),
        ] {
            if value.is_some_and(|value| value.is_zero()) {
                return usage(format!("{flag} must be longer than 0"));
            }
        }
        if self.apply_delay.is_some_and(|(shortest, longest)| longest < shortest) {
            return usage("--apply-delay-max must not be shorter than --apply-delay".to_owned());
        }
        let own_gateways = self.endpoints.is_empty();
        let events = [
            ("--kill-replica-at", self.kill_replica_at.is_some()),
            ("--roll-replicas", self.roll_replicas),
            ("--push-every", self.push_every.is_some()),
        ];
        if let Some((flag, _)) = events.iter().find(|(_, asked)| *asked && !own_gateways) {
            return usage(format!(
                "{flag} is for gateways that loadgen starts itself: leave --endpoint out"
            ));
        }
        if self.kill_replica_at.is_some_and(|at| at >= self.duration) {
            return usage("--kill-replica-at must come before --duration is over".to_owned());
        }
        let room =
            descriptors.map_or(LINKS_MAX, |limit| limit.saturating_sub(SPARE).min(LINKS_MAX));
        if room == 0 {
            return usage(
                "the limit of open files leaves no room for a link: raise ulimit -n".to_owned(),
            );
        }
        let collectors = u64::from(self.collectors);
        let needed = u32::try_from(collectors.div_ceil(room)).unwrap_or(u32::MAX);
        let workers = self.workers.unwrap_or(needed);
        // Those of a killed one must find room at the others.
        let spare = u32::from(self.kill_replica_at.is_some() && !self.restart_killed);
        let replicas = if own_gateways { self.replicas.unwrap_or(needed + spare) } else { 0 };
        for (flag, given, least) in
            [("--workers", workers, needed), ("--replicas", replicas, needed + spare)]
        {
            if flag == "--replicas" && !own_gateways {
                continue;
            }
            if given < least {
                return usage(format!(
                    "{flag} {given}: {collectors} collectors need at least {least}, as a process holds {room} links with its limit of open files"
                ));
            }
            if given > PROCESSES_MAX {
                return usage(format!("{flag} must not be greater than {PROCESSES_MAX}"));
            }
        }
        if u64::from(workers) > collectors {
            return usage(format!("--workers {workers}: there are only {collectors} collectors"));
        }
        if self.kill_replica_at.is_some() && replicas < 2 && !self.restart_killed {
            return usage("--kill-replica-at needs --replicas 2, or --restart-killed".to_owned());
        }
        Ok(Layout { collectors: self.collectors, workers, replicas })
    }
}

/// How a run is shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    collectors: u32,
    /// Worker processes.
    pub workers: u32,
    /// Gateways to start.
    pub replicas: u32,
}

/// When the collectors of a worker start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Turn {
    /// The lane of workers in which it waits for the one before it.
    pub lane: u32,
    /// The first one, in microseconds after the first of all.
    pub after: Micros,
    /// Microseconds between two of them.
    pub every: f64,
}

impl Layout {
    /// When each worker's collectors start, if so many workers connect at a time: in lanes of
    /// neighbours, of which each begins when the one before it has, each lane at such a pace that all
    /// of them together start `rate` collectors a second.
    pub fn schedule(&self, lanes: u32, rate: f64) -> Vec<Turn> {
        let lanes = lanes.clamp(1, self.workers);
        let from = |lane: u32| border(self.workers, lane, lanes);
        let mut turns = Vec::new();
        for lane in 0..lanes {
            let (first, end) = (self.first(from(lane)), self.first(from(lane + 1)));
            let every = 1e6 * f64::from(self.collectors) / f64::from(end - first) / rate;
            turns.extend((from(lane)..from(lane + 1)).map(|worker| {
                let after = f64::from(self.first(worker) - first) * every / 1e6;
                let after = Duration::try_from_secs_f64(after).unwrap_or(Duration::MAX);
                Turn { lane, after: micros(after), every }
            }));
        }
        turns
    }

    /// First collector and number of collectors of a worker.
    pub fn share(&self, worker: u32) -> (u32, u32) {
        (self.first(worker), self.first(worker + 1) - self.first(worker))
    }

    /// The first collector of a worker; of the one past the last, how many collectors there are.
    fn first(&self, worker: u32) -> u32 {
        border(self.collectors, worker, self.workers)
    }

    /// Local addresses of a worker, no other's.
    pub fn sources(&self, worker: u32) -> Vec<IpAddr> {
        let first = FIRST_SOURCE + worker * SOURCES;
        (first..first + SOURCES).map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits))).collect()
    }
}

/// Where part `number` begins, of so many (not 0) into which `all` are shared out evenly.
fn border(all: u32, number: u32, parts: u32) -> u32 {
    let first = u64::from(all) * u64::from(number) / u64::from(parts);
    u32::try_from(first).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn options(collectors: u32) -> Options {
        Options::new(collectors, "estate".into(), "gateway".into(), vec!["loadgen".into()])
    }

    #[test]
    fn half_a_million_with_twenty_thousand_descriptors_are_26_processes_of_each_kind() {
        let layout = options(500_000).layout(Some(20_000)).unwrap();
        assert_eq!((layout.workers, layout.replicas), (26, 26));
        let (mut next, mut sources) = (0, BTreeSet::new());
        for worker in 0..layout.workers {
            let (first, count) = layout.share(worker);
            assert_eq!(first, next);
            assert!(count <= 19_900, "{count}");
            next += count;
            sources.extend(layout.sources(worker));
        }
        assert_eq!((next, sources.len()), (500_000, 26 * 8));
    }

    #[test]
    fn in_lanes_all_together_start_at_the_rate_however_uneven_they_are() {
        for (collectors, workers, lanes) in
            [(500_000, 26, 2), (60_000, 4, 2), (10, 3, 2), (7, 3, 8)]
        {
            let layout = Layout { collectors, workers, replicas: workers };
            let schedule = layout.schedule(lanes, 1_000.0);
            let starts = (0..workers).zip(&schedule).flat_map(|(worker, turn)| {
                (0..layout.share(worker).1).map(|n| turn.after as f64 + f64::from(n) * turn.every)
            });
            let mut starts: Vec<f64> = starts.collect();
            starts.sort_by(f64::total_cmp);
            assert_eq!(starts.len(), collectors as usize);
            for (number, start) in starts.iter().enumerate() {
                // A collector a millisecond; of each lane one starts at once.
                let lateness = start / 1e3 - number as f64;
                assert!(lateness.abs() <= f64::from(lanes), "{number} of {layout:?}: {lateness}");
            }
            let used: BTreeSet<u32> = schedule.iter().map(|turn| turn.lane).collect();
            assert_eq!(used.len() as u32, lanes.min(workers));
            assert!(schedule.is_sorted_by_key(|turn| (turn.lane, turn.after)), "{schedule:?}");
        }
    }

    #[test]
    fn a_rate_that_takes_ages_overflows_nothing() {
        let layout = Layout { collectors: 2_000_000, workers: 101, replicas: 101 };
        assert_eq!(layout.schedule(2, f64::MIN_POSITIVE).len(), 101);
    }

    #[test]
    fn who_is_killed_leaves_room_for_its_links() {
        let mut options = options(19_900);
        options.kill_replica_at = Some(Duration::ZERO);
        options.duration = Duration::from_secs(1);
        assert_eq!(options.layout(Some(20_000)).unwrap().replicas, 2);
        options.restart_killed = true;
        assert_eq!(options.layout(Some(20_000)).unwrap().replicas, 1);
    }

    #[test]
    fn what_does_not_fit_is_refused_with_a_way_out() {
        let check = |change: &dyn Fn(&mut Options), expected: &str| {
            let mut options = options(60_000);
            change(&mut options);
            let error = options.layout(Some(20_000)).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        check(&|options| options.collectors = 0, "--collectors must be 1 to 2000000");
        check(&|options| options.workers = Some(3), "need at least 4");
        check(&|options| options.lanes = Some(0), "--lanes must be greater than 0");
        check(
            &|options| options.replicas = Some(2),
            "--replicas 2: 60000 collectors need at least 4",
        );
        check(&|options| options.workers = Some(2_000), "--workers must not be greater than 1000");
        check(&|options| options.connect_rate = 0.0, "--connect-rate must be greater than 0");
        check(&|options| options.push_every = Some(Duration::ZERO), "--push-every must be longer");
        check(
            &|options| {
                options.endpoints = vec!["ws://h:1/".to_owned()];
                options.roll_replicas = true;
            },
            "--roll-replicas is for gateways that loadgen starts itself",
        );
        check(
            &|options| options.kill_replica_at = Some(Duration::from_secs(9)),
            "before --duration is over",
        );
    }
}
