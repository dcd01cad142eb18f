//! The supervisor: what an agent on a host is to the orchestrator. It makes processes of tasks, and
//! reports of processes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::certificates::{Certificates, Target};
use super::clock::{Clock, Nanos};
use super::exchange::{exchange, get_status};
use super::probing::{Probing, SOURCE};
use super::process::{Gateway, Launch};
use super::records::{Outcome, Row, Tape};
use super::route::Route;
use super::{DrillError, Fault, Settings};
use crate::controller::{self, Counts};
use crate::fleet::Fleet;
use crate::scheduler;
use crate::status::TaskStatus;
use crate::time::Id;

/// Between two looks at everything.
pub(super) const TICK: Duration = Duration::from_millis(50);
/// Between two passes of the controller.
const PASS_NS: Nanos = 200_000_000;
/// Exchanges in a row that make a gateway healthy …
const CHECKS_MIN: u32 = 3;
/// … over at least this long.
const CHECK_NS_MIN: Nanos = 500_000_000;
/// After which a target that was healthy is killed, with that fault.
const CRASH_NS: Nanos = 1_000_000_000;
/// Between two looks at a gateway that drains.
const LOOK: Duration = Duration::from_millis(20);

enum State {
    Starting(JoinHandle<Result<Gateway, DrillError>>),
    Checking { gateway: Gateway, good: u32, since: Nanos },
    Ready { gateway: Gateway, since: Nanos },
    Draining(JoinHandle<Result<(), DrillError>>),
}

struct Seat {
    label: String,
    state: State,
}

pub(super) struct Supervisor {
    pub(super) fleet: Fleet,
    pub(super) route: Arc<Route>,
    /// Faults are in force, and the model's rows are recorded.
    pub(super) measured: bool,
    preview: Route,
    seats: BTreeMap<Id, Seat>,
    clock: Clock,
    tape: Tape,
    settings: Settings,
    program: PathBuf,
    estate: PathBuf,
    log: PathBuf,
    certificates: Option<Certificates>,
    made: u64,
    checks: u64,
    last_pass: Nanos,
    last_row: Option<([i64; 6], String)>,
    crashed: bool,
    events_seen: usize,
}

pub(super) struct Places {
    pub(super) program: PathBuf,
    pub(super) estate: PathBuf,
    pub(super) log: PathBuf,
    pub(super) certificates: Option<Certificates>,
}

impl Supervisor {
    pub(super) async fn new(
        fleet: Fleet,
        route: Arc<Route>,
        clock: Clock,
        tape: Tape,
        settings: Settings,
        places: Places,
    ) -> Result<Self, DrillError> {
        // What goes through the preview entry is nobody's session: its records are not kept.
        let preview =
            Route::open(clock, Tape::default(), super::Choice::LeastSessions, settings.seed)
                .await?;
        let Places { program, estate, log, certificates } = places;
        Ok(Self {
            fleet,
            route,
            measured: false,
            preview,
            seats: BTreeMap::new(),
            clock,
            tape,
            settings,
            program,
            estate,
            log,
            certificates,
            made: 0,
            checks: 0,
            last_pass: 0,
            last_row: None,
            crashed: false,
            events_seen: 0,
        })
    }

    /// Where clients connect, as they do it.
    pub(super) fn target(&self, to: SocketAddr) -> Target {
        match &self.certificates {
            None => Target::plain(to),
            Some(certificates) => certificates.target(to),
        }
    }

    fn fault(&self, fault: Fault) -> bool {
        self.measured && self.settings.fault == Some(fault)
    }

    /// One look at everything: passes, starts, checks, drains, ends.
    pub(super) async fn tick(&mut self, probing: Option<&Probing>) -> Result<(), DrillError> {
        let now = self.clock.now();
        self.fleet.store.clock_mut().set(Clock::utc());
        if now >= self.last_pass + PASS_NS {
            self.last_pass = now;
            let pass = controller::pass(&mut self.fleet.store);
            if let Some((_, error)) = pass.errors.into_iter().next() {
                return Err(error.into());
            }
            self.record_row();
        }
        scheduler::pass(&mut self.fleet.store)?;
        self.start_placed()?;
        for task in self.seats.keys().copied().collect::<Vec<_>>() {
            self.look_at(task, now).await?;
        }
        if let Some(probing) = probing {
            probing.set_direct(self.ready());
        }
        self.tell_reports(now);
        Ok(())
    }

    /// Gateways that are healthy, with their addresses.
    fn ready(&self) -> BTreeMap<String, SocketAddr> {
        let ready = |seat: &Seat| match &seat.state {
            State::Ready { gateway, .. } => Some((seat.label.clone(), gateway.listen)),
            State::Starting(_) | State::Checking { .. } | State::Draining(_) => None,
        };
        self.seats.values().filter_map(ready).collect()
    }

    /// What the model warns of becomes an event of the drill.
    fn tell_reports(&mut self, now: Nanos) {
        let events = self.fleet.store.events();
        for event in events.iter().skip(self.events_seen) {
            if event.kind == "rollout.progress_deadline" || event.kind == "rollout.failed" {
                self.tape.change(now, "report", event.kind, 0, &event.message);
            }
        }
        self.events_seen = events.len();
    }

    /// The modeled counters, if they are others than before.
    pub(super) fn record_row(&mut self) {
        let now = self.clock.now();
        let Ok(deployment) = self.fleet.deployment() else { return };
        if !self.measured {
            return;
        }
        let counts = Counts::of(&self.fleet.store, deployment);
        let bound = super::REPLICAS + deployment.limits.max_surge;
        let counters = [
            counts.old,
            counts.new,
            counts.new_healthy,
            counts.pending_stop,
            counts.available(),
            bound,
        ];
        let row = (counters, deployment.status.to_string());
        if self.last_row.as_ref() == Some(&row) {
            return;
        }
        let processes = i64::try_from(self.seats.len()).unwrap_or(i64::MAX);
        let epoch = self.route.table().epoch;
        self.tape.with(|all| {
            all.rows.push(Row { ns: now, status: row.1.clone(), counters, epoch, processes });
        });
        self.last_row = Some(row);
    }

    fn start_placed(&mut self) -> Result<(), DrillError> {
        let placed = self.fleet.ids(|task| {
            task.node.is_some() && task.actual == TaskStatus::Assigned && !task.is_directed()
        });
        for task in placed {
            if self.seats.contains_key(&task) {
                continue;
            }
            self.made += 1;
            let version = self.fleet.store.task(&self.fleet.context, task)?.version;
            let label = format!("v{version}-{}", self.made);
            let mut listen = SocketAddr::from(([127, 0, 0, 1], 0));
            if self.fault(Fault::ReadyBeforeBind) {
                // A port that is free now; nobody listens on it yet.
                listen = std::net::TcpListener::bind(listen)?.local_addr()?;
                let name = label.clone();
                let epoch = self.route.publish(|backends| backends.push((name, listen)));
                self.tape.change(self.clock.now(), "routable", &label, epoch, &listen.to_string());
            }
            self.tape.change(self.clock.now(), "spawned", &label, 0, "");
            let (program, estate) = (self.program.clone(), self.estate.clone());
            let (log, name) = (self.log.clone(), label.clone());
            let certificates = self.certificates.clone();
            let reuse_port = self.settings.fault == Some(Fault::SharedPort);
            let (drain_delay, drain) = (self.settings.drain_delay(), self.settings.drain());
            let starting = tokio::spawn(async move {
                Gateway::start(Launch {
                    program: &program,
                    estate: &estate,
                    label: &name,
                    listen,
                    certificates: certificates.as_ref(),
                    reuse_port,
                    drain_delay,
                    drain,
                    log: &log,
                })
                .await
            });
            self.seats.insert(task, Seat { label, state: State::Starting(starting) });
        }
        Ok(())
    }

    async fn look_at(&mut self, task: Id, now: Nanos) -> Result<(), DrillError> {
        let Some(Seat { label, mut state }) = self.seats.remove(&task) else { return Ok(()) };
        let dead = match &mut state {
            State::Checking { gateway, .. } | State::Ready { gateway, .. } => {
                gateway.ended().is_some()
            }
            State::Starting(_) | State::Draining(_) => false,
        };
        let directed = self.fleet.store.task(&self.fleet.context, task)?.is_directed();
        let next = match state {
            State::Starting(starting) if !starting.is_finished() => Some(State::Starting(starting)),
            State::Starting(starting) => {
                let gateway = joined(starting.await)?;
                let at = gateway.listen.to_string();
                self.tape.change(self.clock.now(), "listening", &label, 0, &at);
                self.fleet.report(task, TaskStatus::Running)?;
                Some(State::Checking { gateway, good: 0, since: now })
            }
            State::Checking { .. } | State::Ready { .. } if dead => {
                self.bury(task, &label, "died")?;
                None
            }
            State::Checking { gateway, .. } | State::Ready { gateway, .. } if directed => {
                Some(self.begin_drain(&label, gateway))
            }
            State::Checking { gateway, .. }
                if self.measured
                    && self.settings.fault.is_some_and(Fault::has_failing_targets)
                    && !label.starts_with("v1-") =>
            {
                drop(gateway); // which ends it
                self.tape.change(self.clock.now(), "refused", &label, 0, "never healthy");
                self.fleet.report(task, TaskStatus::Failed)?;
                None
            }
            State::Checking { gateway, good, since } => {
                Some(self.check(task, &label, gateway, (good, since)).await?)
            }
            State::Ready { gateway, since } => {
                if self.fault(Fault::CrashAfterReady)
                    && !self.crashed
                    && label.starts_with("v2")
                    && now > since + CRASH_NS
                {
                    self.crashed = true;
                    gateway.signal(Signal::KILL)?;
                }
                Some(State::Ready { gateway, since })
            }
            State::Draining(draining) if !draining.is_finished() => Some(State::Draining(draining)),
            State::Draining(draining) => {
                joined(draining.await)?;
                self.fleet.report(task, TaskStatus::Stopped)?;
                self.fleet.report(task, TaskStatus::Removed)?;
                None
            }
        };
        if let Some(state) = next {
            self.seats.insert(task, Seat { label, state });
        }
        Ok(())
    }

    /// A gateway that ended unasked.
    fn bury(&mut self, task: Id, label: &str, kind: &str) -> Result<(), DrillError> {
        self.tape.change(self.clock.now(), kind, label, 0, "");
        let epoch = self.route.publish(|backends| backends.retain(|(name, _)| name != label));
        self.tape.change(self.clock.now(), "unroutable", label, epoch, "");
        self.fleet.report(task, TaskStatus::Failed)?;
        Ok(())
    }

    /// An exchange through the preview entry, which only the supervisor uses. Enough of them in a
    /// row make the gateway healthy, and routable.
    async fn check(
        &mut self,
        task: Id,
        label: &str,
        gateway: Gateway,
        (good, since): (u32, Nanos),
    ) -> Result<State, DrillError> {
        let entry = vec![(label.to_owned(), gateway.listen)];
        let epoch = self.preview.publish(|backends| *backends = entry);
        self.preview.reached(epoch).await;
        self.checks += 1;
        let uid = (u128::from(self.checks) | 0xd311 << 112).to_be_bytes();
        let target = self.target(self.preview.address);
        let seen = exchange(self.clock, SOURCE, &target, uid, 0).await;
        let now = self.clock.now();
        let own = seen.answer.split('/').next() == Some(label);
        if seen.outcome != Outcome::Ok || !own {
            return Ok(State::Checking { gateway, good: 0, since: now });
        }
        if good + 1 < CHECKS_MIN || now < since + CHECK_NS_MIN {
            return Ok(State::Checking { gateway, good: good + 1, since });
        }
        self.tape.change(now, "ready", label, 0, &seen.answer);
        self.fleet.report(task, TaskStatus::Healthy)?;
        let routed = self.route.table().backends.iter().any(|(name, _)| name == label);
        if !routed {
            let entry = (label.to_owned(), gateway.listen);
            let epoch = self.route.publish(|backends| backends.push(entry));
            let at = gateway.listen.to_string();
            self.tape.change(self.clock.now(), "routable", label, epoch, &at);
        }
        Ok(State::Ready { gateway, since: now })
    }

    fn begin_drain(&self, label: &str, gateway: Gateway) -> State {
        let drain = Drain {
            clock: self.clock,
            tape: self.tape.clone(),
            route: Arc::clone(&self.route),
            label: label.to_owned(),
            fault: self.settings.fault.filter(|_| self.measured),
            gateway,
        };
        State::Draining(tokio::spawn(drain.run()))
    }

    /// Ends everything, without a drain.
    pub(super) fn end(self) {
        self.route.close();
        self.preview.close();
    }
}

fn joined<T>(
    result: Result<Result<T, DrillError>, tokio::task::JoinError>,
) -> Result<T, DrillError> {
    match result {
        Ok(inner) => inner,
        Err(error) => Err(DrillError::Cannot(format!("a task of the drill died: {error}"))),
    }
}

/// The order in which a gateway leaves: readiness, table, acknowledgement, listener, links, process.
struct Drain {
    clock: Clock,
    tape: Tape,
    route: Arc<Route>,
    label: String,
    fault: Option<Fault>,
    gateway: Gateway,
}

impl Drain {
    async fn run(mut self) -> Result<(), DrillError> {
        if self.fault == Some(Fault::KillInsteadOfDrain) {
            self.tell("term", 0);
            self.gateway.signal(Signal::KILL)?;
            self.gateway.wait().await?;
            self.tell("exited", 0);
            self.unroute().await;
            return Ok(());
        }
        self.tell("term", 0);
        self.gateway.signal(Signal::TERM)?;
        if self.fault == Some(Fault::CloseBeforeUnroute) {
            self.listener_closed().await;
            self.unroute().await;
        } else {
            // Anything but 200, no answer included, is "not ready".
            while matches!(get_status(self.gateway.admin, "/readyz").await, Ok(200)) {
                sleep(LOOK).await;
            }
            self.tell("unready", 0);
            self.unroute().await;
            self.listener_closed().await;
        }
        self.gateway.wait().await?;
        self.tell("exited", 0);
        Ok(())
    }

    async fn unroute(&self) {
        let label = &self.label;
        let epoch = self.route.publish(|backends| backends.retain(|(name, _)| name != label));
        self.tell("unroutable", epoch);
        self.route.reached(epoch).await;
    }

    async fn listener_closed(&self) {
        while tokio::net::TcpStream::connect(self.gateway.listen).await.is_ok() {
            sleep(LOOK).await;
        }
        self.tell("listener_closed", 0);
    }

    fn tell(&self, kind: &str, epoch: u64) {
        self.tape.change(self.clock.now(), kind, &self.label, epoch, "");
    }
}
