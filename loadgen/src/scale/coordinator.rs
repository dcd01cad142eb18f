//! The process that starts all others, tells them what to do, watches them, and adds up what they
//! found.

mod finale;
mod lanes;
mod start;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use hdrhistogram::Histogram;
use tokio::sync::mpsc;
use tokio::time::{Interval as Ticks, MissedTickBehavior, interval};

use super::crew::{Incoming, Worker};
use super::heads::Desk;
use super::options::{Layout, Options, ScaleError, Turn};
use super::outcome::{Event, Outcome, Sample};
use super::protocol::{FromWorker, Part, ToWorker};
use super::usage::Usage;
use super::view::View;
use crate::clock::{Clock, Micros, micros};
use crate::fleet::Progress;
use crate::floor::Speed;
use crate::histogram;
use crate::host;
use crate::rehearse::gateway::{Log, Process};
use crate::rehearse::{Scratch, scratch};
use crate::report::Latency;
use crate::swarm::Interval;
use crate::watch::{self, Lookout};
use lanes::{Phase, lanes};

/// How often processes are looked at.
const LOOK: Duration = Duration::from_millis(100);
/// Between two samples of the timeline.
const SAMPLE: Micros = 500_000;
/// Between two looks at everybody's memory.
const USAGE: Micros = 2_000_000;
/// Samples of the timeline; past it, none are added.
const SAMPLES_MAX: usize = 50_000;
/// From the word to the first connect, so that all workers have heard it.
const LEAD: Duration = Duration::from_millis(200);
/// How long the answer to a small command may take.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// How long farewells may take, beside a second for so many collectors.
const FAREWELL_MAX: Duration = Duration::from_secs(60);
const FAREWELLS_PER_S: u32 = 1_000;
/// Lines of workers that wait to be taken.
const INCOMING_MAX: usize = 1_024;
/// Complaints of workers that are repeated in the outcome.
const COMPLAINTS_MAX: usize = 20;

/// Why a run ends before its time.
#[derive(Debug)]
pub(super) enum Stop {
    /// Somebody wants it to.
    Interrupted,
    /// Something died.
    Fault(String),
}

/// A run that goes on.
pub(super) struct Run<'o> {
    pub(super) options: &'o Options,
    pub(super) layout: Layout,
    interrupts: &'o mut mpsc::Receiver<()>,
    ticks: Ticks,
    clock: Clock,
    log: Log,
    /// By target; `None` where one was killed and not replaced, or somebody else runs it.
    pub(super) gateways: Vec<Option<Process>>,
    targets: Vec<SocketAddr>,
    path: String,
    workers: Vec<Worker>,
    sender: mpsc::Sender<Incoming>,
    incoming: mpsc::Receiver<Incoming>,
    latest: Vec<Interval>,
    /// Progress lines of each worker since the last event.
    lines: Vec<u32>,
    ready: u32,
    condemned: u32,
    parts: Vec<Option<Part>>,
    finishing: bool,
    phase: Phase,
    /// When the first collector of all starts.
    go: Micros,
    /// The same in microseconds since the Unix epoch.
    go_unix: u64,
    /// By worker.
    schedule: Vec<Turn>,
    lookout: Lookout,
    look_at: Micros,
    all_connected: Option<Micros>,
    all_offered: Option<Micros>,
    all_settled: Option<Micros>,
    /// Since when all have been settled.
    whole_since: Option<Micros>,
    replies: Histogram<u64>,
    offers: Histogram<u64>,
    sample_at: Micros,
    usage_at: Micros,
    messages: u64,
    timeline: Vec<Sample>,
    pub(super) events: Vec<Event>,
    pub(super) problems: Vec<String>,
    usage: Usage,
    view: View,
    pub(super) desk: Option<Desk>,
    floor: Option<Speed>,
    _scratch: Option<Scratch>,
}

/// Runs to the end, or until `interrupts` says something: then everybody leaves early, and at the
/// next word at once. Everything that was started has ended when this returns. Call it on a runtime
/// whose thread lives as long as the run: what it starts dies with the thread.
///
/// # Errors
///
/// Only when the run cannot start. What goes wrong later is in the outcome.
pub async fn run(
    options: &Options,
    interrupts: &mut mpsc::Receiver<()>,
) -> Result<Outcome, ScaleError> {
    let descriptors = host::raise_descriptors();
    let layout = options.layout(descriptors)?;
    let mut run = Run::new(options, layout, interrupts)?;
    run.view.tell(
        0,
        &format!("{} gateways and {} workers are started", layout.replicas, layout.workers),
    );
    let started = match run.start_gateways().await {
        Ok(()) => run.start_workers().await,
        Err(error) => Err(error),
    };
    if let Err(error) = started {
        run.end_processes().await;
        return Err(error);
    }
    let (held_from, stop) = match run.play().await {
        Ok(held_from) => (held_from, None),
        Err((held_from, stop)) => (held_from, Some(stop)),
    };
    Ok(run.end(held_from, stop).await)
}

impl<'o> Run<'o> {
    fn new(
        options: &'o Options,
        layout: Layout,
        interrupts: &'o mut mpsc::Receiver<()>,
    ) -> Result<Self, ScaleError> {
        let usage = Usage::begin();
        let (mut kept, mut desk) = (None, None);
        if options.push_every.is_some() {
            let directory = scratch()
                .map_err(|error| ScaleError::Cannot(format!("a temporary directory: {error}")))?;
            desk = Some(Desk::copy(&options.estate, &directory.0)?);
            kept = Some(directory);
        }
        let lookout = Lookout::new(estate(options, desk.as_ref()));
        let (sender, incoming) = mpsc::channel(INCOMING_MAX);
        let mut ticks = interval(LOOK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let count = usize::try_from(layout.workers).unwrap_or_default();
        Ok(Self {
            options,
            layout,
            interrupts,
            ticks,
            clock: Clock::start(),
            log: Log::default(),
            gateways: Vec::new(),
            targets: Vec::new(),
            path: "/".to_owned(),
            workers: Vec::new(),
            sender,
            incoming,
            latest: vec![Interval::default(); count],
            lines: vec![0; count],
            ready: 0,
            condemned: 0,
            parts: (0..count).map(|_| None).collect(),
            finishing: false,
            phase: Phase::Coming,
            go: 0,
            schedule: layout.schedule(lanes(options, layout), options.connect_rate),
            go_unix: 0,
            lookout,
            look_at: 0,
            all_connected: None,
            all_offered: None,
            all_settled: None,
            whole_since: None,
            replies: histogram::new(2),
            offers: histogram::new(2),
            sample_at: 0,
            usage_at: 0,
            messages: 0,
            timeline: Vec::new(),
            events: Vec::new(),
            problems: Vec::new(),
            usage,
            view: View::new(options.collectors, options.quiet),
            desk,
            floor: None,
            _scratch: kept,
        })
    }

    fn estate(&self) -> PathBuf {
        estate(self.options, self.desk.as_ref())
    }

    pub(super) fn now(&self) -> Micros {
        self.clock.now()
    }

    /// Seconds since the first connect.
    pub(super) fn since_go(&self, at: Micros) -> f64 {
        seconds(at.saturating_sub(self.go))
    }

    pub(super) fn tell_people(&self, what: &str) {
        self.view.tell(self.now().saturating_sub(self.go), what);
    }

    /// Everything between the first connect and the farewells. When the first settling was, also
    /// where it did not get further.
    async fn play(&mut self) -> Result<Option<Micros>, (Option<Micros>, Stop)> {
        self.go = self.now().saturating_add(micros(LEAD));
        self.go_unix = Clock::unix_us().saturating_add(micros(LEAD));
        for worker in self.first_of_lanes() {
            self.begin(worker).await.map_err(|stop| (None, stop))?;
        }
        let deadline = self.go.saturating_add(micros(self.options.timeout));
        let settled = self.observe(deadline, |run| run.whole_since.is_some()).await;
        if !settled.map_err(|stop| (None, stop))? {
            self.problems.push(format!("not all settled within {:?}", self.options.timeout));
            return Ok(None);
        }
        let held_from = self.now();
        match self.hold(held_from).await {
            Ok(()) => Ok(Some(held_from)),
            Err(stop) => Err((Some(held_from), stop)),
        }
    }

    async fn tell(&mut self, number: u32, command: &ToWorker) -> Result<(), Stop> {
        let at = usize::try_from(number).unwrap_or(usize::MAX);
        let Some(worker) = self.workers.get_mut(at) else { return Ok(()) };
        let told = worker.tell(command).await;
        told.map_err(|why| Stop::Fault(format!("worker {number} hears nothing any more: {why}")))
    }

    /// Tells every worker the same.
    pub(super) async fn tell_all(&mut self, command: &ToWorker) -> Result<(), Stop> {
        let mut failed = None;
        for number in 0..self.layout.workers {
            failed = self.tell(number, command).await.err().or(failed);
        }
        failed.map_or(Ok(()), Err)
    }

    /// What listens at a target may end: comes back when every worker knows.
    pub(super) async fn condemn(&mut self, target: u16) -> Result<(), Stop> {
        self.condemned = 0;
        self.tell_all(&ToWorker::Condemn { target }).await?;
        let (workers, deadline) =
            (self.layout.workers, self.now().saturating_add(micros(ANSWER_MAX)));
        if self.observe(deadline, |run| run.condemned == workers).await? {
            return Ok(());
        }
        Err(Stop::Fault(format!("some worker does not answer in {ANSWER_MAX:?}")))
    }

    /// Something happens now: what workers said before does not count any more.
    pub(super) fn forget_lines(&mut self) -> Micros {
        self.lines.fill(0);
        self.now()
    }

    /// Waits until all have settled since `began`, on a head no older than `head`; how long that
    /// took. `None`, and a problem, when it takes too long.
    pub(super) async fn settled_again(
        &mut self,
        began: Micros,
        head: u32,
        what: &str,
    ) -> Result<Option<f64>, Stop> {
        let deadline = began.saturating_add(micros(self.options.timeout));
        let settled = |run: &Self| {
            // The first line may have been on its way already.
            run.whole_since.is_some()
                && run.lines.iter().all(|lines| *lines >= 2)
                && run.latest.iter().all(|latest| latest.head >= head)
        };
        if self.observe(deadline, settled).await? {
            let since = self.whole_since.unwrap_or(began);
            return Ok(Some(seconds(since.saturating_sub(began))));
        }
        self.problems
            .push(format!("{what}: not all settled again within {:?}", self.options.timeout));
        Ok(None)
    }

    /// Goes on until `done` or the deadline; whether it was done.
    pub(super) async fn observe(
        &mut self,
        deadline: Micros,
        done: impl Fn(&Self) -> bool,
    ) -> Result<bool, Stop> {
        loop {
            if done(self) {
                return Ok(true);
            }
            if self.now() >= deadline {
                return Ok(false);
            }
            tokio::select! {
                Some(incoming) = self.incoming.recv() => {
                    if let Some(number) = self.take(incoming)? {
                        self.pass_turn(number).await?;
                    }
                }
                _ = self.ticks.tick() => {
                    self.look()?;
                    self.look_out().await;
                }
                Some(()) = self.interrupts.recv() => return Err(Stop::Interrupted),
            }
        }
    }

    /// Takes a line in; the worker's number if its last collector has tried to connect, or has left.
    fn take(&mut self, (number, line): Incoming) -> Result<Option<u32>, Stop> {
        let at = usize::try_from(number).unwrap_or(usize::MAX);
        match line {
            Ok(FromWorker::Ready) => self.ready += 1,
            Ok(FromWorker::Begun) => return Ok(Some(number)),
            Ok(FromWorker::Condemned { .. }) => self.condemned += 1,
            Ok(FromWorker::Progress { progress }) => self.advance(at, progress),
            Ok(FromWorker::Done { part }) => {
                if let Some(slot) = self.parts.get_mut(at) {
                    *slot = Some(*part);
                }
                return Ok(Some(number));
            }
            Ok(FromWorker::Failed { why }) => {
                return Err(Stop::Fault(format!("worker {number}: {why}")));
            }
            Err(why) => {
                let done = self.parts.get(at).is_some_and(Option::is_some);
                if !(done || self.finishing) {
                    let how = self.workers.get_mut(at).and_then(Worker::ended);
                    let how = how.map_or(why, |status| format!("it ended: {status}"));
                    return Err(Stop::Fault(format!("worker {number} died: {how}")));
                }
            }
        }
        Ok(None)
    }

    fn advance(&mut self, worker: usize, progress: Interval) {
        histogram::add(&mut self.replies, &progress.replies);
        histogram::add(&mut self.offers, &progress.offered_after);
        if let Some(lines) = self.lines.get_mut(worker) {
            *lines = lines.saturating_add(1);
        }
        if let Some(latest) = self.latest.get_mut(worker) {
            *latest = progress;
        }
        let now = self.now();
        let sum = self.progress();
        let all = u64::from(self.options.collectors);
        let ever: u64 = self.latest.iter().map(|latest| latest.ever_connected).sum();
        if self.all_connected.is_none() && ever == all {
            self.all_connected = Some(now);
        }
        if self.all_offered.is_none() && self.latest.iter().all(|latest| latest.all_offered) {
            self.all_offered = Some(now);
        }
        if u64::from(sum.settled) != all {
            self.whole_since = None;
        } else if self.whole_since.is_none() {
            self.whole_since = Some(now);
            if self.all_settled.is_none() {
                self.all_settled = Some(now);
                self.usage.settled();
            }
        }
    }

    fn progress(&self) -> Progress {
        let sum = |of: fn(&Interval) -> u64| self.latest.iter().map(of).sum::<u64>();
        Progress {
            collectors: self.options.collectors,
            served: self.options.collectors,
            started: sum(|latest| latest.started),
            connected: sum(|latest| u64::from(latest.connected)),
            offered: sum(|latest| latest.offered),
            settled: u32::try_from(sum(|latest| u64::from(latest.settled))).unwrap_or(u32::MAX),
            wrong: sum(|latest| latest.wrong),
            head: self.latest.iter().map(|latest| latest.head).min().unwrap_or_default(),
        }
    }

    /// The newest head that every worker has seen.
    pub(super) fn newest_head(&self) -> u32 {
        self.progress().head
    }

    /// Looks at everybody, now and then.
    fn look(&mut self) -> Result<(), Stop> {
        let now = self.now();
        let mut died = None;
        for (number, gateway) in self.gateways.iter_mut().enumerate() {
            if let Some(status) = gateway.as_mut().and_then(Process::ended) {
                died = Some(format!("gateway {number} died: {status}"));
                *gateway = None;
            }
        }
        if now >= self.usage_at {
            self.usage_at = now.saturating_add(USAGE);
            self.usage.look();
        }
        if self.go > 0 && now >= self.go {
            let progress = self.progress();
            self.view.show(now.saturating_sub(self.go), &progress);
            if now >= self.sample_at {
                self.sample(now, &progress);
            }
        }
        match died {
            Some(why) => Err(Stop::Fault(format!("{why}; it said: {}", self.last_words()))),
            None => Ok(()),
        }
    }

    /// Looks at the estate for all workers: twenty-six that do it five times a second each cost two
    /// processors 3 % of their time.
    async fn look_out(&mut self) {
        let now = self.now();
        if now < self.look_at {
            return;
        }
        self.look_at = now.saturating_add(micros(watch::LOOK));
        if self.lookout.sees_change() {
            self.announce(Clock::unix_us()).await;
        }
    }

    /// The estate has changed.
    pub(super) async fn announce(&mut self, since_unix_us: u64) {
        // Who has left needs it no more, and who died is noticed where its lines end.
        let _ = self.tell_all(&ToWorker::Look { since_unix_us }).await;
    }

    /// The end of what gateways wrote.
    fn last_words(&self) -> String {
        let text = self.log.text();
        let lines: Vec<&str> = text.trim().lines().rev().take(5).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join(" | ")
    }

    fn sample(&mut self, now: Micros, progress: &Progress) {
        let since = self.timeline.last().map_or(0.0, |sample| sample.at_s);
        self.sample_at = now.saturating_add(SAMPLE);
        let at_s = self.since_go(now);
        let messages: u64 = self.latest.iter().map(|latest| latest.messages).sum();
        let fresh = messages.saturating_sub(self.messages);
        self.messages = messages;
        if self.timeline.len() < SAMPLES_MAX {
            self.timeline.push(Sample {
                at_s,
                connected: progress.connected,
                offered: progress.offered,
                settled: u64::from(progress.settled),
                wrong: progress.wrong,
                messages_per_s: if at_s > since { fresh as f64 / (at_s - since) } else { 0.0 },
                reply: Latency::of(&self.replies),
                offer: Latency::of(&self.offers),
            });
        }
        self.replies.reset();
        self.offers.reset();
    }
}

/// Absolute, as other processes read it.
fn estate(options: &Options, desk: Option<&Desk>) -> PathBuf {
    let served = desk.map_or(&*options.estate, Desk::root);
    served.canonicalize().unwrap_or_else(|_| served.to_owned())
}

#[expect(clippy::cast_precision_loss, reason = "a run in microseconds has fewer than 53 bits")]
pub(super) fn seconds(micros: Micros) -> f64 {
    micros as f64 / 1e6
}

#[cfg(test)]
mod tests;
