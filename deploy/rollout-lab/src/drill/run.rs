//! One drill, from the first gateway to the summary.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use loadgen::Transport;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};
use tokio::time::sleep;

use super::certificates::Certificates;
use super::clock::{Clock, Nanos};
use super::collectors::Collectors;
use super::criteria::Summary;
use super::files::{self, Environment};
use super::probing::Probing;
use super::records::Tape;
use super::route::{Choice, Route};
use super::supervise::{Places, Supervisor, TICK};
use super::{DrillError, Fault, Options, REPLICAS, Variant};
use crate::fleet::{Fleet, REQUEST, Setup};
use crate::records::{Context, Limits, Resources};
use crate::rules::Rules;
use crate::status::DeploymentStatus;
use crate::store::Heartbeat;

const LIMITS: Limits = Limits { max_unavailable: 0, max_surge: 1 };
/// Until the first gateways are healthy.
const START_MAX: Duration = Duration::from_secs(60);
/// Longest that a deployment may take to fail, and a rollback to succeed.
const FAILING_MAX: Duration = Duration::from_secs(20);
/// Seconds after a failure in which the reconciler does what it does.
const AFTER_FAILURE_S: u64 = 5;
/// The version that is tried after the first has failed.
const SECOND_ATTEMPT: &str = "nginx:1.29-alpine";
/// For how long a second listener holds connections: less than a probe waits for its answer.
const QUEUED: Duration = Duration::from_millis(200);
/// Seconds without progress that the model reports, in a drill.
const PROGRESS_SECONDS: i64 = 10;

/// Runs a drill: writes its raw records, then the summary that follows from them.
///
/// # Errors
/// [`DrillError`] when there is nothing to judge; a bad result is a summary, not an error.
pub async fn run(options: &Options) -> Result<Summary, DrillError> {
    let settings = &options.settings;
    if options.out.exists() {
        return Err(DrillError::Cannot(format!("{} exists", options.out.display())));
    }
    fs::create_dir_all(&options.out)?;
    let estate = options.out.join("estate");
    copy(&options.estate, &estate)?;
    let (clock, tape) = (Clock::start(), Tape::default());
    let environment = Environment::here(options, Clock::utc())?;
    let choice = if settings.fault == Some(Fault::UniformRouting) {
        Choice::Uniform
    } else {
        Choice::LeastSessions
    };
    let route = Arc::new(Route::open(clock, tape.clone(), choice, settings.seed).await?);
    let mut rules = match settings.fault {
        Some(Fault::TwoFailuresBaseline) => Rules::baseline(),
        _ => Rules::strict(),
    };
    rules.progress_seconds = PROGRESS_SECONDS;
    let setup =
        Setup { node_cpu: REPLICAS * REQUEST.cpu, ..Setup::of(REPLICAS, settings.seed, rules) };
    let certificates = match settings.tls {
        false => None,
        true => Some(Certificates::make(&options.gateway, &options.out.join("certificates"))?),
    };
    let places = Places {
        certificates: certificates.clone(),
        program: options.gateway.clone(),
        estate: estate.clone(),
        log: options.out.join("gateways.log"),
    };
    let fleet = Fleet::created(setup)?;
    let supervisor =
        Supervisor::new(fleet, Arc::clone(&route), clock, tape.clone(), settings.clone(), places)
            .await?;
    let mut drill = Drill {
        options,
        clock,
        tape,
        supervisor,
        certificates,
        probing: None,
        estate,
        revision: 0,
        pushed: 0,
    };
    let played = drill.play().await;
    let Drill { tape, supervisor, probing, estate, .. } = drill;
    if let Some(probing) = probing {
        // A run that failed has left its streams on.
        probing.stop()?;
    }
    supervisor.end();
    let reports = played?;
    let environment = environment.ended(Clock::utc());
    fs::remove_dir_all(&estate)?;
    if settings.tls {
        fs::remove_dir_all(options.out.join("certificates"))?;
    }
    files::write(&options.out, &tape.take(), &environment, &reports)
}

struct Drill<'o> {
    options: &'o Options,
    clock: Clock,
    tape: Tape,
    supervisor: Supervisor,
    certificates: Option<Certificates>,
    probing: Option<Probing>,
    estate: PathBuf,
    revision: u32,
    pushed: Nanos,
}

impl Drill<'_> {
    /// Returns what the collectors found, over WebSockets and by polling.
    async fn play(&mut self) -> Result<[loadgen::Report; 2], DrillError> {
        let settings = &self.options.settings;
        let times = settings.times;
        let during = times.push_in_change;
        self.phase("start");
        let begin = self.clock.now();
        while self.supervisor.route.table().backends.len() < REPLICAS as usize {
            self.step(false).await?;
            if self.clock.now() > begin + nanos(START_MAX) {
                return Err(DrillError::Cannot("the gateways did not become healthy".to_owned()));
            }
        }
        let route = self.supervisor.route.address;
        let polling = settings.collectors / 5;
        let websockets = settings.collectors - polling;
        let mut collectors = [
            self.collectors(websockets, Transport::Ws)?,
            self.collectors(polling, Transport::Http)?,
        ];
        let mut settled = true;
        for group in &mut collectors {
            settled &= group.settled().await;
        }
        if !settled {
            self.tape.change(self.clock.now(), "unsettled", "collectors", 0, "");
        }
        let target = self.supervisor.target(route);
        let probes = Probing::start(self.clock, self.tape.clone(), target, settings.seed)?;
        self.probing = Some(probes);
        if settings.variant == Variant::Rollback {
            self.phase("preparation");
            self.surge_slot(true)?;
            self.supervisor.fleet.rollout(LIMITS)?;
            self.change(Duration::from_secs(times.change_s), false).await?;
            self.surge_slot(false)?;
        }
        self.phase("warm-up");
        self.steady(times.warm_up_s, false).await?;
        self.phase("steady-1");
        self.steady(times.steady_s, true).await?;
        self.phase("change");
        self.supervisor.measured = true;
        match settings.variant {
            Variant::Rollout => self.supervisor.fleet.rollout(LIMITS)?,
            Variant::Rollback => {
                let (service, context) = (self.supervisor.fleet.service, Context::default());
                self.supervisor.fleet.store.rollback_service(&context, service)?
            }
        };
        self.supervisor.record_row();
        self.steady(times.slot_s, during).await?;
        if settings.fault.is_some_and(Fault::has_failing_targets) {
            self.two_failures(during).await?;
        } else if settings.fault == Some(Fault::NoSurgeSlot) {
            self.steady(u64::try_from(PROGRESS_SECONDS).unwrap_or(0) + 3, during).await?;
        } else {
            self.surge_slot(true)?;
            self.fault_of_the_instrument().await?;
            self.change(Duration::from_secs(times.change_s), during).await?;
        }
        self.phase("steady-2");
        self.steady(times.steady_s, false).await?;
        self.phase("end");
        if let Some(probing) = self.probing.take() {
            probing.stop()?;
        }
        let [first, second] = collectors;
        let finished =
            async { Ok::<_, DrillError>([first.finish().await?, second.finish().await?]) };
        tokio::pin!(finished);
        loop {
            tokio::select! {
                reports = &mut finished => return reports,
                stepped = self.supervisor.tick(None) => stepped?,
            }
            sleep(TICK).await;
        }
    }

    fn collectors(&self, count: u32, transport: Transport) -> Result<Collectors, DrillError> {
        let route = self.supervisor.route.address;
        let certificates = self.certificates.as_ref();
        Collectors::start(count.max(1), transport, route, &self.estate, certificates)
    }

    fn phase(&self, name: &str) {
        self.tape.change(self.clock.now(), "phase", name, 0, "");
    }

    /// One look at everything, and perhaps another revision of the configuration.
    async fn step(&mut self, push: bool) -> Result<(), DrillError> {
        self.supervisor.tick(self.probing.as_ref()).await?;
        let every = self.options.settings.times.push_s * 1_000_000_000;
        if push && self.clock.now() > self.pushed + every {
            self.pushed = self.clock.now();
            self.revision += 1;
            let (estate, revision) = (self.estate.clone(), self.revision);
            let pushed = tokio::task::spawn_blocking(move || revise(&estate, revision)).await;
            match pushed {
                Ok(done) => done?,
                Err(error) => return Err(DrillError::Cannot(error.to_string())),
            }
            let name = self.revision.to_string();
            self.tape.change(self.clock.now(), "config", &name, 0, "");
        }
        sleep(TICK).await;
        Ok(())
    }

    async fn steady(&mut self, seconds: u64, push: bool) -> Result<(), DrillError> {
        let until = self.clock.now() + seconds * 1_000_000_000;
        while self.clock.now() < until {
            self.step(push).await?;
        }
        Ok(())
    }

    /// Until the deployment ends, and at most so long.
    async fn change(&mut self, most: Duration, push: bool) -> Result<(), DrillError> {
        let until = self.clock.now() + nanos(most);
        while self.clock.now() < until {
            self.step(push).await?;
            if self.supervisor.fleet.deployment()?.status.is_terminal() {
                break;
            }
        }
        let status = self.supervisor.fleet.deployment()?.status;
        self.tape.change(self.clock.now(), "ended", &status.to_string(), 0, "");
        if !self.supervisor.measured && status != DeploymentStatus::Succeeded {
            return Err(DrillError::Cannot(format!("the preparation ended as {status}")));
        }
        Ok(())
    }

    /// The deployment that has begun fails, and so does the next; then it is rolled back. The node's
    /// heartbeats go on, and with them the reconciler.
    async fn two_failures(&mut self, push: bool) -> Result<(), DrillError> {
        self.surge_slot(true)?;
        self.change(FAILING_MAX, push).await?;
        self.surge_slot(true)?;
        self.steady(AFTER_FAILURE_S, push).await?;
        let fleet = &mut self.supervisor.fleet;
        let asked =
            fleet.store.rollout_service(&fleet.context, fleet.service, SECOND_ATTEMPT, LIMITS);
        self.tell_refusal("rollout", asked.map(drop));
        self.change(FAILING_MAX, push).await?;
        self.surge_slot(true)?;
        self.steady(AFTER_FAILURE_S, push).await?;
        let fleet = &mut self.supervisor.fleet;
        let asked = fleet.store.rollback_service(&fleet.context, fleet.service);
        self.tell_refusal("rollback", asked.map(drop));
        self.change(FAILING_MAX, push).await
    }

    /// What the model refuses is an event, not the end of the drill: the baseline's lock may be held
    /// for ever.
    fn tell_refusal(&self, name: &str, asked: Result<(), crate::error::Error>) {
        if let Err(error) = asked {
            self.tape.change(self.clock.now(), "denied", name, 0, &error.to_string());
        }
    }

    /// Gives the host its fourth slot, or takes it.
    fn surge_slot(&mut self, given: bool) -> Result<(), DrillError> {
        let fleet = &mut self.supervisor.fleet;
        let cpu = (REPLICAS + i64::from(given)) * REQUEST.cpu;
        let size = Resources { cpu, memory: crate::fleet::NODE_MEMORY };
        let beat = Heartbeat { capacity: size, allocatable: size, ..Heartbeat::default() };
        let node = fleet.node;
        Ok(fleet.store.heartbeat(&Context::default(), node, beat)?)
    }

    async fn fault_of_the_instrument(&mut self) -> Result<(), DrillError> {
        match self.options.settings.fault {
            Some(Fault::ProberPaused) => {
                if let Some(probing) = &self.probing {
                    probing.hold(Duration::from_millis(200));
                }
            }
            Some(Fault::ForgedAnswer) => {
                let forger = TcpListener::bind(("127.0.0.1", 0)).await?;
                let address = forger.local_addr()?;
                let forging = tokio::spawn(forge(forger));
                let route = Arc::clone(&self.supervisor.route);
                route.publish(|backends| backends.push(("forged".to_owned(), address)));
                self.steady(1, false).await?;
                route.publish(|backends| backends.retain(|(name, _)| name != "forged"));
                forging.abort();
            }
            Some(Fault::SharedPort) => {
                let table = self.supervisor.route.table();
                let Some((_, address)) = table.backends.first() else { return Ok(()) };
                let second = TcpSocket::new_v4()?;
                second.set_reuseaddr(true)?;
                second.set_reuseport(true)?;
                second.bind(*address)?;
                let second = second.listen(1_024)?;
                sleep(QUEUED).await;
                drop(second);
            }
            Some(
                Fault::KillInsteadOfDrain
                | Fault::CloseBeforeUnroute
                | Fault::ReadyBeforeBind
                | Fault::CrashAfterReady
                | Fault::CloseAllAtOnce
                | Fault::UniformRouting
                | Fault::NoSurgeSlot
                | Fault::TwoFailuresBaseline
                | Fault::TwoFailuresStrict,
            )
            | None => {}
        }
        Ok(())
    }
}

/// Answers every request with a good message under a name that nobody knows.
async fn forge(listener: TcpListener) {
    while let Ok((mut stream, _)) = listener.accept().await {
        tokio::spawn(async move {
            let mut request = vec![0; 4096];
            let Ok(count) = stream.read(&mut request).await else { return };
            // Field 1 of both messages is the uid: the first 18 bytes of the body can be sent back.
            let end = request[..count].windows(4).position(|window| window == b"\r\n\r\n");
            let Some(uid) = end.and_then(|end| request.get(end + 4..end + 22)) else { return };
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\n\
Tidegate-Instance: v9-9/9.9.9/666\r\nContent-Length: 18\r\nConnection: close\r\n\r\n";
            // Whoever asked may be gone.
            let _ = stream.write_all(&[head.as_bytes(), uid].concat()).await;
        });
    }
}

fn nanos(duration: Duration) -> Nanos {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// Another revision of every rendered artefact that has the line: the rendered files are what a
/// gateway serves. Each file is replaced whole.
fn revise(estate: &Path, revision: u32) -> Result<(), DrillError> {
    let mut changed = BTreeMap::new();
    let mut folders = vec![estate.join("teams"), estate.join("rendered")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if let Ok(text) = fs::read_to_string(&path)
                && text.contains(QUEUE)
            {
                let lines = text.lines().map(|line| match line.find(QUEUE) {
                    Some(at) => format!("{}{QUEUE} {}\n", &line[..at], 5_000 + revision),
                    None => format!("{line}\n"),
                });
                changed.insert(path, lines.collect::<String>());
            }
        }
    }
    if changed.is_empty() {
        return Err(DrillError::Cannot(format!("the estate has no line with {QUEUE}")));
    }
    for (path, text) in changed {
        let whole = path.with_extension("new");
        fs::write(&whole, text)?;
        fs::rename(&whole, &path)?;
    }
    Ok(())
}

/// What a revision changes: the size of a sending queue.
const QUEUE: &str = "queue_size:";
