//! A run: all collectors, from the first connect to the report.
//!
//! Collectors start on an open-loop schedule: number `n` at `n / rate`, however slow the server is.
//! One timer wheel, one watcher of the estate and one scheduler serve them all.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::sleep;

use crate::clock::{Clock, Micros, micros};
use crate::config::{Config, RunError};
use crate::endpoint::Endpoint;
use crate::faults::Profile;
use crate::heads::{Epoch, Head, Heads};
use crate::host;
use crate::ledger::Closed;
use crate::link;
use crate::model::Model;
use crate::plan::{Plan, describe};
use crate::report::{Ending, Marks, Report};
use crate::shared::{Order, Shared};
use crate::watch::{LOOK, Seen, Watcher, look_elsewhere};

/// How often a run looks whether its collectors have settled.
const POLL: Duration = Duration::from_millis(50);
/// Beyond the reply timeout, what the last close of a link may take.
const FAREWELL: Duration = Duration::from_secs(10);
/// Descriptors that the process needs for itself.
const SPARE_DESCRIPTORS: u64 = 64;

/// How far a run has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Collectors of the plan.
    pub collectors: u32,
    /// Of these, collectors that accept offers.
    pub served: u32,
    /// Collectors started.
    pub started: u64,
    /// Links up.
    pub connected: u64,
    /// Collectors that got their first right offer.
    pub offered: u64,
    /// Collectors that run what the newest head says, told so, and were answered.
    pub settled: u32,
    /// Things that went wrong.
    pub wrong: u64,
    /// Newest head.
    pub head: Epoch,
}

/// A run that goes on.
#[derive(Debug)]
pub struct Running {
    config: Config,
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
    scheduler: JoinHandle<JoinSet<Closed>>,
    helpers: JoinSet<()>,
    watched: Arc<Watched>,
    marks: Marks,
}

/// Reads a run's progress.
#[derive(Clone, Debug)]
pub struct Viewer(Arc<Shared>);

impl Viewer {
    /// How far the run has come.
    pub fn progress(&self) -> Progress {
        let live = &self.0.live;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Progress {
            collectors: self.0.plan.len(),
            served: self.0.served,
            started: read(&live.started),
            connected: read(&live.connected),
            offered: read(&live.first_offers),
            settled: self.0.settled_count(),
            wrong: read(&live.wrong),
            head: self.0.heads.latest_epoch(),
        }
    }
}

/// What the watcher leaves for the report.
#[derive(Debug, Default)]
struct Watched {
    too_many: AtomicBool,
    refused: AtomicU64,
    last_refusal: std::sync::Mutex<Option<String>>,
}

/// Runs to the end: all collectors settle, `duration` passes or the expected changes come, all
/// leave, and everything is judged.
///
/// # Errors
///
/// Only when the run cannot start. What goes wrong later is in the report.
pub async fn run(config: Config) -> Result<Report, RunError> {
    let mut running = Running::start(config).await?;
    running.to_the_end().await;
    Ok(running.finish().await)
}

impl Running {
    /// Reads estate and plan, and starts the first collectors. Runs on the caller's tokio runtime.
    ///
    /// # Errors
    ///
    /// As [`run`].
    pub async fn start(config: Config) -> Result<Self, RunError> {
        config.check()?;
        let descriptors = host::raise_descriptors();
        let needed = u64::from(config.collectors) + SPARE_DESCRIPTORS;
        if descriptors.is_some_and(|limit| limit < needed) {
            return Err(RunError::Usage(format!(
                "{} collectors need {needed} descriptors, but the hard limit is {}: raise it (ulimit -Hn) or run several processes",
                config.collectors,
                descriptors.unwrap_or_default()
            )));
        }
        let endpoint = Endpoint::resolve(&config.endpoint, config.transport, config.source)
            .await
            .and_then(|endpoint| endpoint.trusting(config.ca.as_deref()))
            .map_err(|text| RunError::Usage(format!("--endpoint: {text}")))?;
        let estate = config.estate.clone();
        let opened = tokio::task::spawn_blocking(move || Watcher::open(&estate)).await;
        let (watcher, model) = opened
            .map_err(|error| RunError::Estate(error.to_string()))?
            .map_err(|error| RunError::Estate(error.to_string()))?;
        let mut plan = match &config.plan {
            Some(path) => {
                let file = path.display().to_string();
                let text = std::fs::read_to_string(path).map_err(|error| RunError::PlanFile {
                    path: file.clone(),
                    error: error.to_string(),
                })?;
                Plan::parse(&text, &file, config.collectors)?
            }
            None => Plan::derive(&model, config.collectors)?,
        };
        plan.check_claims(&model)?;
        if let Some(heartbeat) = config.heartbeat {
            plan.behaviour_mut().heartbeat = heartbeat;
        }
        let clock = Clock::start();
        let heads =
            Heads::new(Head::new(model, clock.now(), &plan, None), micros(config.head_window));
        let shared =
            Arc::new(Shared::new(clock, plan, heads, endpoint, config.gzip, config.reply_timeout));
        let (stop, stopped) = watch::channel(false);
        let watched = Arc::new(Watched::default());
        let mut helpers = JoinSet::new();
        let turning = Arc::clone(&shared);
        helpers.spawn(async move { turning.wheel.turn(clock).await });
        helpers.spawn(follow(Arc::clone(&shared), watcher, Arc::clone(&watched)));
        let scheduler = tokio::spawn(schedule(Arc::clone(&shared), config.connect_rate, stopped));
        let marks = Marks::begin(clock.now());
        Ok(Self { config, shared, stop, scheduler, helpers, watched, marks })
    }

    /// How far it has come.
    pub fn progress(&self) -> Progress {
        self.viewer().progress()
    }

    /// Reads the progress while somebody else waits for the end.
    pub fn viewer(&self) -> Viewer {
        Viewer(Arc::clone(&self.shared))
    }

    /// Starts collectors whose world somebody else keeps: heads come from [`Running::push_head`].
    pub(crate) async fn start_given(config: Config, given: Given) -> Result<Self, RunError> {
        config.check()?;
        let endpoint = Endpoint::resolve(&config.endpoint, config.transport, config.source)
            .await
            .map_err(|text| RunError::Usage(format!("the gateway's address: {text}")))?;
        let clock = Clock::start();
        let head = Head::new(given.model, clock.now(), &given.plan, None);
        let heads = Heads::new(head, micros(config.head_window));
        let mut shared =
            Shared::new(clock, given.plan, heads, endpoint, config.gzip, config.reply_timeout)
                .with_orders(given.profiles, given.orders);
        shared.reconnect_within = config.reconnect_within;
        let shared = Arc::new(shared);
        let (stop, stopped) = watch::channel(false);
        let mut helpers = JoinSet::new();
        let turning = Arc::clone(&shared);
        helpers.spawn(async move { turning.wheel.turn(clock).await });
        let scheduler = tokio::spawn(schedule(Arc::clone(&shared), config.connect_rate, stopped));
        let marks = Marks::begin(clock.now());
        let watched = Arc::default();
        Ok(Self { config, shared, stop, scheduler, helpers, watched, marks })
    }

    /// The estate has changed; false when it has changed too often.
    pub(crate) fn push_head(&self, model: Model) -> bool {
        let (_, before) = self.shared.heads.latest();
        let now = self.shared.clock.now();
        self.shared.heads.push(Head::new(model, now, &self.shared.plan, Some(&before)))
    }

    /// What the collectors share.
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Notes that the run is ended before its time, which is never all right.
    pub fn interrupt(&mut self) {
        self.marks.complain("interrupted".to_owned());
    }

    /// Waits until every collector runs what the newest head says; false when that takes longer.
    pub async fn settled(&mut self, within: Duration) -> bool {
        let deadline = self.shared.clock.now().saturating_add(micros(within));
        loop {
            let progress = self.progress();
            let now = self.shared.clock.now();
            self.marks.look(now, &progress);
            if progress.settled == progress.collectors {
                return true;
            }
            if now >= deadline {
                return false;
            }
            sleep(POLL).await;
        }
    }

    /// Waits until that head has been seen, and then as long as a server may take to react to it;
    /// false when it does not come `within` that time.
    pub async fn head_seen(&mut self, epoch: Epoch, within: Duration) -> bool {
        let deadline = self.shared.clock.now().saturating_add(micros(within));
        while self.shared.heads.latest_epoch() < epoch {
            if self.shared.clock.now() >= deadline {
                return false;
            }
            sleep(POLL).await;
        }
        let (_, head) = self.shared.heads.latest();
        let quiet = head.seen_at.saturating_add(self.shared.heads.window());
        sleep(Duration::from_micros(quiet.saturating_sub(self.shared.clock.now()))).await;
        true
    }

    /// Everything between the start and the goodbye, as the configuration says.
    pub async fn to_the_end(&mut self) {
        if !self.settled(self.config.timeout).await {
            self.marks.complain(format!("not settled within {:?}", self.config.timeout));
            return;
        }
        self.marks.settled(self.shared.clock.now());
        let leave = self.shared.clock.now().saturating_add(micros(self.config.duration));
        for change in 1..=self.config.expect_changes {
            if !self.head_seen(change, self.config.timeout).await {
                self.marks.complain(format!(
                    "{} changes of the estate were expected, {} came",
                    self.config.expect_changes,
                    change - 1
                ));
                return;
            }
        }
        sleep(Duration::from_micros(leave.saturating_sub(self.shared.clock.now()))).await;
        if !self.settled(self.config.head_window).await {
            self.marks.complain(format!(
                "not settled on the newest head within {:?}",
                self.config.head_window
            ));
        }
    }

    /// All leave: the replies that are owed are awaited, goodbyes said, the books closed and judged.
    pub async fn finish(mut self) -> Report {
        // A change that the server has seen may be one that we are about to see.
        sleep(2 * LOOK + POLL).await;
        let ended = self.shared.clock.now();
        self.marks.end(ended);
        let (closed, complaints) = self.close_books().await;
        for complaint in complaints {
            self.marks.complain(complaint);
        }
        if self.watched.too_many.load(Ordering::Relaxed) {
            self.marks.complain(format!(
                "the estate changed more than {} times: later offers could not be judged",
                crate::heads::HEADS_MAX
            ));
        }
        let refused = self.watched.refused.load(Ordering::Relaxed);
        let last_refusal = self.watched.last_refusal.lock().map_or(None, |text| text.clone());
        Report::judge(Ending {
            plan: &self.shared.plan,
            heads: &self.shared.heads,
            counts: self.shared.live.counts(),
            timings: &self.shared.timings(),
            errors: self.shared.errors(),
            allow_lost_links: self.config.allow_lost_links,
            marks: self.marks,
            closed,
            heads_refused: refused,
            last_refusal,
        })
    }
}

/// A world that somebody else keeps.
pub(crate) struct Given {
    /// The head to begin with.
    pub(crate) model: Model,
    /// Who the collectors are.
    pub(crate) plan: Plan,
    /// How each behaves.
    pub(crate) profiles: Vec<Arc<Profile>>,
    /// What each is told to begin with.
    pub(crate) orders: Vec<Order>,
}

impl Running {
    /// All leave. The books of those who came to an end, and what is to be complained of.
    pub(crate) async fn close_books(&mut self) -> (Vec<Closed>, Vec<String>) {
        self.stop.send_replace(true);
        let patience = self.config.reply_timeout + FAREWELL;
        let (mut closed, mut complaints) = (Vec::new(), Vec::new());
        match (&mut self.scheduler).await {
            Ok(mut tasks) => {
                let collect = async {
                    while let Some(task) = tasks.join_next().await {
                        match task {
                            Ok(books) => closed.push(books),
                            Err(error) => {
                                complaints.push(format!("a collector's task died: {error}"));
                            }
                        }
                    }
                };
                if tokio::time::timeout(patience, collect).await.is_err() {
                    complaints.push("some collectors did not come to an end".to_owned());
                }
                tasks.shutdown().await;
            }
            Err(error) => complaints.push(format!("the scheduler died: {error}")),
        }
        self.helpers.shutdown().await;
        (closed, complaints)
    }
}

/// Starts collector `n` at `n / rate`, all that are due at each turn.
async fn schedule(
    shared: Arc<Shared>,
    rate: f64,
    mut stop: watch::Receiver<bool>,
) -> JoinSet<Closed> {
    let mut tasks = JoinSet::new();
    let begin = shared.clock.now();
    let mut next = 0;
    while next < shared.plan.len() {
        let intended = begin.saturating_add(offset(next, rate));
        let now = shared.clock.now();
        if now >= intended {
            tasks.spawn(link::live(Arc::clone(&shared), next, intended, stop.clone()));
            next += 1;
            continue;
        }
        tokio::select! {
            () = sleep(Duration::from_micros(intended - now)) => {}
            _ = stop.wait_for(|stop| *stop) => break,
        }
    }
    tasks
}

fn offset(number: u32, rate: f64) -> Micros {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "not negative, and a float saturates"
    )]
    let offset = (f64::from(number) / rate * 1e6) as Micros;
    offset
}

/// Looks at the estate again and again, and places every collector anew when it has changed.
async fn follow(shared: Arc<Shared>, mut watcher: Watcher, watched: Arc<Watched>) {
    loop {
        sleep(LOOK).await;
        let Ok((back, seen)) = look_elsewhere(watcher, shared.clock.now()).await else {
            return; // the runtime is shutting down
        };
        watcher = back;
        match seen {
            Seen::Same => {}
            Seen::Refused(error) => {
                watched.refused.fetch_add(1, Ordering::Relaxed);
                if let Ok(mut last) = watched.last_refusal.lock() {
                    *last = Some(error.to_string());
                }
            }
            Seen::Head(model, seen_at) => {
                let (_, before) = shared.heads.latest();
                let placing = Arc::clone(&shared);
                let placed = tokio::task::spawn_blocking(move || {
                    Head::new(*model, seen_at, &placing.plan, Some(&before))
                });
                let Ok(head) = placed.await else { return };
                if !shared.heads.push(head) {
                    watched.too_many.store(true, Ordering::Relaxed);
                    return;
                }
            }
        }
    }
}

/// Who a collector is, for people.
pub(crate) fn who(plan: &Plan, index: u32) -> String {
    describe(&plan.attributes(index))
}
