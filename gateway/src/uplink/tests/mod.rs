//! Replicas and aggregators without sockets: bytes are carried by hand, every process has a clock
//! of its own, and time is what the test says.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use proto::ids::InstanceUid;
use render::rollout::evidence::{
    Conn, Identity, Millis, Observed, Reading, Record, Seat, Session, error_id,
};
use render::rollout::report::RolloutReport;

use super::{AggregatorUplink, ReplicaUplink, UplinkError};
use crate::aggregate::tests::{Head, ROLLOUT, identity};
use crate::aggregate::{About, Aggregator, Cell, Role, Settings, Ticket};
use crate::clock::Now;
use crate::metrics::Metrics;

mod behaviour;
mod peers;
mod simulation;

/// When the world begins, in milliseconds since 1970.
const BEGINNING: Millis = 1_700_000_000_000;

/// A process: its evidence, and when it started by a clock that may be wrong.
struct Process {
    aggregator: Arc<Aggregator>,
    started_ms: Millis,
    skew_ms: i64,
    cell: Option<Arc<Cell>>,
}

struct Replica {
    process: Process,
    uplinks: Vec<ReplicaUplink>,
    /// Collectors that are connected to it.
    sessions: BTreeMap<u32, Session>,
}

/// A connection, with bytes on their way.
struct Pipe {
    server: AggregatorUplink,
    up: VecDeque<Vec<u8>>,
    down: VecDeque<Vec<u8>>,
}

/// Everything there is.
struct World {
    now_ms: Millis,
    head: Head,
    replicas: Vec<Replica>,
    aggregators: Vec<Process>,
    pipes: BTreeMap<(usize, usize), Pipe>,
    /// Between whom nothing goes.
    cut: std::collections::BTreeSet<(usize, usize)>,
    incarnations: u32,
    expect_replicas: u32,
    errors: Vec<String>,
}

impl Process {
    fn now(&self, now_ms: Millis) -> Now {
        let seconds = u32::try_from((now_ms - self.started_ms) / 1_000).unwrap() + 1;
        Now { seconds, unix_ms: now_ms.saturating_add_signed(self.skew_ms) }
    }

    fn cell(&self) -> &Arc<Cell> {
        self.cell.as_ref().expect("a Rollout is in head")
    }
}

impl World {
    fn new(replicas: usize, aggregators: usize) -> Self {
        Self::with_skew(replicas, aggregators, |_| 0)
    }

    fn with_skew(replicas: usize, aggregators: usize, skew_ms: impl Fn(usize) -> i64) -> Self {
        let mut world = Self {
            now_ms: BEGINNING,
            head: Head::new(),
            replicas: Vec::new(),
            aggregators: Vec::new(),
            pipes: BTreeMap::new(),
            cut: std::collections::BTreeSet::new(),
            incarnations: 100,
            expect_replicas: u32::try_from(replicas).unwrap(),
            errors: Vec::new(),
        };
        for at in 0..aggregators {
            let process =
                world.process("aggregator", Role::Aggregator, skew_ms(replicas + at), None);
            world.aggregators.push(process);
        }
        for at in 0..replicas {
            let replica = world.replica(at, aggregators, skew_ms(at));
            world.replicas.push(replica);
        }
        world
    }

    fn process(
        &mut self,
        name: &str,
        role: Role,
        skew_ms: i64,
        store: Option<std::path::PathBuf>,
    ) -> Process {
        self.incarnations += 1;
        let settings = Settings {
            replica: name.into(),
            expect_replicas: self.expect_replicas,
            grace_ms: 10_000,
            incarnation: self.incarnations,
            role,
            store,
            ..Settings::default()
        };
        let unix_ms = self.now_ms.saturating_add_signed(skew_ms);
        let now = Now { seconds: 1, unix_ms };
        let aggregator = Aggregator::open(settings, Metrics::leak(), now).unwrap();
        let mut process = Process { aggregator, started_ms: self.now_ms, skew_ms, cell: None };
        process.cell =
            process.aggregator.handle_head(now, &self.head.snapshot(), "c1").first().cloned();
        process
    }

    fn replica(&mut self, at: usize, uplinks: usize, skew_ms: i64) -> Replica {
        let process = self.process(&format!("edge-{at}"), Role::Replica { uplinks }, skew_ms, None);
        let uplink = |link| ReplicaUplink::new(Arc::clone(&process.aggregator), link);
        Replica { uplinks: (0..uplinks).map(uplink).collect(), process, sessions: BTreeMap::new() }
    }

    /// Ends a replica without a word, and starts it again.
    fn restart_replica(&mut self, at: usize) {
        for aggregator in 0..self.aggregators.len() {
            self.disconnect(at, aggregator);
        }
        let (uplinks, skew) = (self.aggregators.len(), self.replicas[at].process.skew_ms);
        self.replicas[at] = self.replica(at, uplinks, skew);
    }

    /// Ends an aggregator, and starts it again with what it stored, if anything.
    fn restart_aggregator(&mut self, at: usize, store: Option<std::path::PathBuf>) {
        for replica in 0..self.replicas.len() {
            self.disconnect(replica, at);
        }
        let skew = self.aggregators[at].skew_ms;
        self.aggregators[at].aggregator.close();
        // The old one lets go of its file before the new one takes it.
        self.aggregators[at] = self.process("aggregator", Role::Aggregator, skew, None);
        self.aggregators[at] = self.process("aggregator", Role::Aggregator, skew, store);
    }

    /// Every process is given another head.
    fn set_head(&mut self, head: Head) {
        self.head = head;
        let snapshot = self.head.snapshot();
        let processes = self.replicas.iter_mut().map(|replica| &mut replica.process);
        for process in processes.chain(&mut self.aggregators) {
            let now = process.now(self.now_ms);
            process.cell = process.aggregator.handle_head(now, &snapshot, "c2").first().cloned();
        }
    }

    fn connect(&mut self, replica: usize, aggregator: usize) {
        if self.pipes.contains_key(&(replica, aggregator))
            || self.cut.contains(&(replica, aggregator))
        {
            return;
        }
        let process = &self.aggregators[aggregator];
        let now = process.now(self.now_ms);
        let name = format!("edge-{replica}").into();
        let server = AggregatorUplink::new(Arc::clone(&process.aggregator), Some(name), now);
        self.pipes.insert(
            (replica, aggregator),
            Pipe { server, up: VecDeque::new(), down: VecDeque::new() },
        );
        let replica = &mut self.replicas[replica];
        let now = replica.process.now(self.now_ms);
        replica.uplinks[aggregator].handle_connected(now);
    }

    fn disconnect(&mut self, replica: usize, aggregator: usize) {
        if let Some(mut pipe) = self.pipes.remove(&(replica, aggregator)) {
            pipe.server.handle_disconnected(self.aggregators[aggregator].now(self.now_ms));
            let replica = &mut self.replicas[replica];
            replica.uplinks[aggregator].handle_disconnected(replica.process.now(self.now_ms));
        }
    }

    fn cut(&mut self, replica: usize, aggregator: usize) {
        self.disconnect(replica, aggregator);
        self.cut.insert((replica, aggregator));
    }

    /// One turn of one connection: whether anything was said. At most `most` chunks arrive at each
    /// end, and what an end is given arrives in pieces.
    fn turn(&mut self, key: (usize, usize), most: usize) -> bool {
        let Some(pipe) = self.pipes.get_mut(&key) else { return false };
        let replica = &mut self.replicas[key.0];
        let aggregator = &self.aggregators[key.1];
        let (here, there) = (replica.process.now(self.now_ms), aggregator.now(self.now_ms));
        let uplink = &mut replica.uplinks[key.1];
        let mut any = false;
        let mut turn = || -> Result<(), UplinkError> {
            uplink.handle_timeout(here)?;
            let mut out = Vec::new();
            while uplink.poll_transmit(here, &mut out) {
                pipe.up.extend(out.chunks(1_000).map(<[u8]>::to_vec));
                out.clear();
                any = true;
            }
            for _ in 0..most {
                let Some(bytes) = pipe.up.pop_front() else { break };
                any = true;
                pipe.server.handle_bytes(there, &bytes)?;
            }
            pipe.server.handle_timeout(there)?;
            while let Some(ticket) = pipe.server.poll_commit() {
                let durable = wait(aggregator.aggregator.committed(ticket));
                pipe.server.handle_committed(ticket, durable);
            }
            while pipe.server.poll_transmit(there, &mut out) {
                pipe.down.extend(out.chunks(700).map(<[u8]>::to_vec));
                out.clear();
                any = true;
            }
            for _ in 0..most {
                let Some(bytes) = pipe.down.pop_front() else { break };
                any = true;
                uplink.handle_bytes(here, &bytes)?;
            }
            Ok(())
        };
        if let Err(error) = turn() {
            self.errors.push(error.to_string());
            self.disconnect(key.0, key.1);
        }
        any
    }

    /// Connects everybody who can be, and carries bytes until nobody has anything to say.
    fn settle(&mut self) {
        // Changes wait for others to share their batch, and who found the other end silent for too
        // long comes again.
        for _ in 0..3 {
            self.now_ms += 60;
            for replica in 0..self.replicas.len() {
                for aggregator in 0..self.aggregators.len() {
                    self.connect(replica, aggregator);
                }
            }
            loop {
                let keys: Vec<(usize, usize)> = self.pipes.keys().copied().collect();
                let turns = keys.into_iter().map(|key| self.turn(key, usize::MAX));
                if !turns.fold(false, |any, turn| any | turn) {
                    break;
                }
            }
        }
    }

    /// Time passes, in steps in which everybody is heard.
    fn wait(&mut self, ms: Millis) {
        self.wait_in_steps(ms, 1_000);
    }

    fn wait_in_steps(&mut self, ms: Millis, step_ms: Millis) {
        let until = self.now_ms + ms;
        while self.now_ms < until {
            self.now_ms = (self.now_ms + step_ms).min(until);
            for process in
                self.replicas.iter().map(|replica| &replica.process).chain(&self.aggregators)
            {
                process.aggregator.handle_timeout(process.now(self.now_ms));
            }
            self.settle();
        }
    }

    fn report(&self, aggregator: usize) -> Arc<RolloutReport> {
        let process = &self.aggregators[aggregator];
        process.aggregator.handle_timeout(process.now(self.now_ms));
        Arc::clone(&process.aggregator.reports()[ROLLOUT])
    }

    /// A collector connects to a replica.
    fn join(&mut self, replica: usize, collector: u32, seat: Seat) {
        let now_ms = self.now_ms;
        let this = &mut self.replicas[replica];
        let session = this.process.aggregator.begin_session(this.process.now(now_ms));
        this.sessions.insert(collector, session);
        self.say(replica, collector, |change, stamp| {
            let observed = Observed { seat, foreign: false, healthy: Some(true) };
            change.observed = Some((stamp, observed));
        });
    }

    /// It runs the candidate.
    fn take(&self, replica: usize, collector: u32) {
        self.say(replica, collector, |change, stamp| {
            change.arm = Some((stamp, Reading::To));
            change.applied = Some(stamp);
            change.first_to_ms = Some(change.heard_ms);
        });
    }

    fn fail(&self, replica: usize, collector: u32) -> Option<Ticket> {
        self.say(replica, collector, |change, stamp| {
            change.failed = Some((stamp, error_id("cannot bind")));
            change.arm = Some((stamp, Reading::From));
        })
    }

    /// Its connection breaks, or it says farewell.
    fn leave(&mut self, replica: usize, collector: u32, conn: Conn) {
        let session = self.replicas[replica].sessions[&collector];
        self.say(replica, collector, |change, _| change.conn = Some((session, conn)));
        self.replicas[replica].sessions.remove(&collector);
    }

    fn say(
        &self,
        replica: usize,
        collector: u32,
        more: impl FnOnce(&mut Record, render::rollout::evidence::Stamp),
    ) -> Option<Ticket> {
        let this = &self.replicas[replica];
        let now = this.process.now(self.now_ms);
        let session = *this.sessions.get(&collector)?;
        let stamp = session.stamp(this.process.aggregator.next_n());
        let mut change = Record {
            conn: Some((session, Conn::Open)),
            heard_ms: this.process.aggregator.now_ms(now),
            ..Record::default()
        };
        more(&mut change, stamp);
        let label = format!("host-{collector}");
        this.process.cell().observe(now, identity(collector), &change, about(collector, &label))
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for ((replica, aggregator), mut pipe) in std::mem::take(&mut self.pipes) {
            let _ = replica;
            pipe.server.handle_disconnected(self.aggregators[aggregator].now(self.now_ms));
        }
    }
}

fn about(collector: u32, label: &str) -> About<'_> {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&collector.to_le_bytes());
    let uid = InstanceUid(bytes);
    About { uid, label, version: "0.158.0", error: "cannot bind", no_bucket: false }
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// What an aggregator knows of a collector.
fn known(process: &Process, collector: u32) -> Option<Record> {
    process.cell().record(identity(collector))
}

fn all() -> impl Iterator<Item = Identity> {
    (0..64).map(identity)
}
