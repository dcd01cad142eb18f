//! The stage of a rehearsal: gateways, repository and collectors at work, step by step.

mod action;
mod watching;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use render::rollout::verdict::Kind;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::condition::{Condition, Known, Mark};
use super::follow::{NEWS_MAX, News, follow};
use super::gateway::{Log, Process};
use super::repo::{PROPOSER, Repo, Signature};
use super::scenario::{ArmSpec, Diff, FaultSpec, Scenario, Step};
use super::timeline::Timeline;
use super::{Options, Outcome, RehearsalError, Trouble, estate, judge, repo};
use crate::clock::{Clock, Micros, micros};
use crate::config::Config;
use crate::endpoint::Endpoint;
use crate::faults::{Does, Failure, Fault, Profile};
use crate::fleet::{Given, Running};
use crate::model::Arm;
use crate::plan::Plan;
use crate::shared::Order;

/// How far a gateway's sight of a head may be from ours: a fetch on a machine that is busy.
const HEAD_WINDOW: Duration = Duration::from_secs(15);
/// How long a reply may take on a machine that is busy.
const REPLY_TIMEOUT: Duration = Duration::from_secs(20);
/// Longest wait before another attempt to connect: the gateways that matter are on this machine.
const RECONNECT_WITHIN: Duration = Duration::from_secs(1);
/// Longest until all collectors run what the estate says without the Rollout.
const CONNECTED_WITHIN: Duration = Duration::from_secs(60);
/// How often gateways look at the repository.
const FETCH_INTERVAL: &str = "300ms";
/// How often the stage looks around.
const LOOK: Duration = Duration::from_millis(50);
/// Longest until a gateway that somebody else started answers.
const GIVEN_MAX: Duration = Duration::from_secs(60);

/// What was seen of a branch's commit.
#[derive(Debug)]
pub(super) struct Tip {
    /// The last part of the branch's name.
    pub(super) branch: String,
    /// What it changes.
    pub(super) diff: Diff,
}

/// The stage.
pub(super) struct Stage<'s> {
    pub(super) scenario: &'s Scenario,
    pub(super) options: &'s Options,
    root: &'s Path,
    repo: Repo,
    gateways: Vec<Option<Process>>,
    log: Log,
    running: Running,
    clock: Clock,
    begin: Micros,
    known: Known,
    pub(super) verdicts: Vec<Kind>,
    /// By commit.
    pub(super) tips: BTreeMap<String, Tip>,
    /// The newest commit of each branch, whether or not it is still there.
    pub(super) newest: BTreeMap<String, String>,
    /// Bundles as files.
    pub(super) bundles: Vec<PathBuf>,
    pub(super) timeline: Timeline,
    news: mpsc::Receiver<News>,
    address: watch::Sender<Option<SocketAddr>>,
    follower: JoinHandle<()>,
    /// Who is to be back when.
    returns: Vec<(Micros, Vec<u32>)>,
    last_state: String,
}

/// Plays a scenario below `root`.
pub(super) async fn play(
    scenario: &Scenario,
    plan: Plan,
    beside: &Path,
    root: &Path,
    options: &Options,
) -> Result<Outcome, RehearsalError> {
    let cannot = |trouble: Trouble| match trouble {
        Trouble::Deviates(text) | Trouble::Cannot(text) => RehearsalError::Cannot(text),
    };
    let mut stage = Stage::set(scenario, plan, beside, root, options).await.map_err(cannot)?;
    let ended = tokio::time::timeout(scenario.limit, stage.steps()).await;
    let ended = ended.unwrap_or_else(|_| {
        Err(Trouble::Deviates(format!("not at its end within {:?}", scenario.limit)))
    });
    stage.follower.abort();
    let (closed, complaints) = stage.running.close_books().await;
    let judged = match ended {
        Ok(()) => judge::judge(&stage, &closed, &complaints).await,
        Err(trouble) => Err(trouble),
    };
    let verified = stage.bundles.len();
    let deviation = match judged {
        Ok(()) => None,
        Err(Trouble::Deviates(text)) => Some(text),
        Err(Trouble::Cannot(text)) => return Err(RehearsalError::Cannot(text)),
    };
    if deviation.is_some() && options.verbose {
        eprintln!("{}", stage.log.text());
    }
    if options.keep.is_some() {
        // Beside the repository and the bundles, for whoever wants to know more.
        let _ = std::fs::write(root.join("gateways.log"), stage.log.text());
    }
    Ok(Outcome {
        about: scenario.about.clone(),
        passed: deviation.is_none(),
        bundles_verified: if deviation.is_none() { verified } else { 0 },
        deviation,
        verdicts: stage.verdicts.iter().map(|kind| kind.label().to_owned()).collect(),
        branches: stage.known.branches.keys().cloned().collect(),
        candidate_offers: closed.iter().map(|books| u64::from(books.candidate_offers)).sum(),
        timeline: stage.timeline,
    })
}

impl<'s> Stage<'s> {
    /// Everything that is there before the first step.
    async fn set(
        scenario: &'s Scenario,
        plan: Plan,
        beside: &Path,
        root: &'s Path,
        options: &'s Options,
    ) -> Result<Self, Trouble> {
        let repo = Repo::create(root, &scenario.rollout).await?;
        estate::copy(&beside.join(&scenario.estate.path), repo.desk())?;
        for (file, text) in &scenario.estate.write {
            repo::write(repo.desk(), file, text)?;
        }
        // The Rollout begins once everybody is there, so that no soak passes while things start.
        let rollout = estate::take_out(repo.desk(), &scenario.rollout, scenario.stages.as_ref())?;
        estate::render(repo.desk(), &scenario.estate.catalogue)?;
        let model = estate::model(repo.desk())?;
        plan.check_claims(&model).map_err(|error| Trouble::Cannot(error.to_string()))?;
        let ago = u64::try_from(scenario.committed.as_millis()).unwrap_or(u64::MAX);
        let past = Clock::unix_ms().saturating_sub(ago);
        repo.commit("The estate", Signature::human(past)).await?;
        repo.push("main").await?;

        let log = Log::default();
        let mut gateways: Vec<Option<Process>> = Vec::new();
        let started = scenario.gateway.started.unwrap_or(scenario.gateway.replicas);
        for number in 0..scenario.gateway.replicas {
            let wanted = number < started && options.given.is_none();
            gateways.push(if wanted {
                let arguments = arguments(scenario, &repo, root, number);
                Some(Process::start(&options.gateway, &arguments, &log).await?)
            } else {
                None
            });
        }
        let (endpoint, admin) = match (&options.given, gateways.first()) {
            (Some(given), _) => (given.endpoint.clone(), Some(given.admin)),
            (None, Some(Some(first))) => (first.endpoint.clone(), Some(first.admin)),
            (None, _) => return Err(Trouble::Cannot("no gateway was started".to_owned())),
        };
        if options.given.is_some() {
            wait_for(admin).await?;
        }
        let mut config = Config::new(plan.len(), endpoint, root);
        config.head_window = HEAD_WINDOW;
        config.reply_timeout = REPLY_TIMEOUT;
        config.allow_lost_links = true;
        config.reconnect_within = Some(RECONNECT_WITHIN);
        let given = Given {
            model,
            profiles: profiles(scenario, &plan)?,
            orders: orders(scenario, &plan),
            plan,
        };
        let running = Running::start_given(config, given)
            .await
            .map_err(|error| Trouble::Cannot(error.to_string()))?;
        let clock = running.shared().clock;
        let (sender, news) = mpsc::channel(NEWS_MAX);
        let (address, watched) = watch::channel(admin);
        let follower = tokio::spawn(follow(scenario.rollout.clone(), watched, sender));
        let mut stage = Self {
            scenario,
            options,
            root,
            repo,
            gateways,
            log,
            begin: clock.now(),
            running,
            clock,
            known: Known::default(),
            verdicts: Vec::new(),
            tips: BTreeMap::new(),
            newest: BTreeMap::new(),
            bundles: Vec::new(),
            timeline: Timeline::new(options.verbose),
            news,
            address,
            follower,
            returns: Vec::new(),
            last_state: String::new(),
        };
        stage.connect().await?;
        stage.come_true(&[Condition::connected()], CONNECTED_WITHIN).await?;
        stage.begin_rollout(&rollout, ago).await?;
        Ok(stage)
    }

    async fn steps(&mut self) -> Result<(), Trouble> {
        for (number, step) in self.scenario.steps.iter().enumerate() {
            let title = step.title(number);
            self.step(step, &title).await.map_err(|trouble| match trouble {
                Trouble::Deviates(text) => Trouble::Deviates(format!("step {title}: {text}")),
                Trouble::Cannot(text) => Trouble::Cannot(format!("step {title}: {text}")),
            })?;
        }
        Ok(())
    }

    async fn step(&mut self, step: &Step, title: &str) -> Result<(), Trouble> {
        if let Some(at) = step.at {
            self.until(self.begin.saturating_add(micros(at))).await?;
        }
        if let Some(wait) = step.wait {
            self.until(self.clock.now().saturating_add(micros(wait))).await?;
        }
        self.come_true(&step.after, step.within).await?;
        let mut mark = Mark { unix_ms: Clock::unix_ms(), commit: None };
        if let Some(action) = &step.action {
            mark.commit = self.act(action, title).await?;
        }
        if let Some(name) = &step.name {
            self.known.marks.insert(name.clone(), mark);
        }
        self.come_true(&step.expect, step.within).await?;
        if let Some(stays) = step.stays {
            self.stay_true(&step.expect, stays).await?;
        }
        Ok(())
    }

    /// Waits until all of these hold.
    async fn come_true(
        &mut self,
        conditions: &[Condition],
        within: Duration,
    ) -> Result<(), Trouble> {
        if conditions.is_empty() {
            return Ok(());
        }
        let deadline = self.clock.now().saturating_add(micros(within));
        loop {
            self.look().await?;
            let missing: Vec<String> = conditions
                .iter()
                .filter(|condition| !condition.holds(&self.known))
                .map(ToString::to_string)
                .collect();
            if missing.is_empty() {
                return Ok(());
            }
            if self.clock.now() >= deadline {
                return Err(Trouble::Deviates(format!(
                    "not within {within:?}: {}; {}",
                    missing.join(", "),
                    self.state()
                )));
            }
            self.wait(LOOK).await;
        }
    }

    /// All of these hold for so long.
    async fn stay_true(
        &mut self,
        conditions: &[Condition],
        stays: Duration,
    ) -> Result<(), Trouble> {
        let end = self.clock.now().saturating_add(micros(stays));
        while self.clock.now() < end {
            self.look().await?;
            if let Some(broken) = conditions.iter().find(|condition| !condition.holds(&self.known))
            {
                return Err(Trouble::Deviates(format!("no longer: {broken}; {}", self.state())));
            }
            self.wait(LOOK).await;
        }
        Ok(())
    }

    async fn until(&mut self, at: Micros) -> Result<(), Trouble> {
        while self.clock.now() < at {
            self.look().await?;
            self.wait(LOOK).await;
        }
        Ok(())
    }

    fn note(&mut self, what: String) {
        self.timeline.push(self.clock.now().saturating_sub(self.begin), what);
    }

    /// Branches that are there.
    pub(super) fn branches(&self) -> &BTreeMap<String, String> {
        &self.known.branches
    }

    /// Who the collectors are.
    pub(super) fn plan(&self) -> &Plan {
        &self.running.shared().plan
    }

    /// A time of the collectors' clock as one of the timeline.
    pub(super) fn since_begin(&self, at: Micros) -> Micros {
        at.saturating_sub(self.begin)
    }

    /// Collectors connect to the gateways that run; to the last ones while none does.
    async fn connect(&self) -> Result<(), Trouble> {
        let mut endpoints = Vec::new();
        for gateway in self.gateways.iter().flatten() {
            let endpoint = Endpoint::resolve(&gateway.endpoint, None, None).await;
            endpoints.push(endpoint.map_err(Trouble::Cannot)?);
        }
        self.running.shared().set_endpoints(endpoints);
        Ok(())
    }

    fn live(&self, counter: impl Fn(&crate::shared::Live) -> u64) -> u64 {
        counter(&self.running.shared().live)
    }

    /// Who runs, as far as orders go.
    fn present(&self) -> u64 {
        let shared = self.running.shared();
        let here = |index: &u32| shared.orders(*index).is_none_or(|order| !order.borrow().absent);
        (0..shared.plan.len()).filter(here).count() as u64
    }
}

/// Counters of collectors, as conditions read them.
fn connected(stage: &Stage<'_>) -> bool {
    let shared = stage.running.shared();
    let ever = stage.live(|live| live.ever_connected.load(Ordering::Relaxed));
    let offered = stage.live(|live| live.first_offers.load(Ordering::Relaxed));
    let plan = &shared.plan;
    let report_only = (0..plan.len()).filter(|index| plan.is_report_only(*index)).count() as u64;
    let present = stage.present();
    ever >= present && offered.saturating_add(report_only) >= present
}

/// The command line of a gateway.
fn arguments(scenario: &Scenario, repo: &Repo, root: &Path, number: usize) -> Vec<String> {
    let spec = &scenario.gateway;
    let mut arguments: Vec<String> = [
        "serve",
        "--repo",
        &repo.url(),
        "--listen",
        "127.0.0.1:0",
        "--admin",
        "127.0.0.1:0",
        "--fetch-interval",
        FETCH_INTERVAL,
        "--drain-delay",
        "0s",
        "--drain",
        "300ms",
        "--workers",
        "1",
    ]
    .map(str::to_owned)
    .into();
    let mut flag = |flag: &str, value: String| arguments.extend([flag.to_owned(), value]);
    flag("--expect-replicas", spec.expect_replicas.to_string());
    flag("--evidence-grace", format!("{}ms", spec.grace.as_millis()));
    if spec.store {
        flag("--store", root.join(format!("store-{number}.redb")).display().to_string());
    }
    if spec.propose {
        flag("--catalogue", scenario.estate.catalogue.clone());
        flag("--propose-as", format!("{} <{}>", PROPOSER.0, PROPOSER.1));
        arguments.push("--propose".to_owned());
    }
    arguments.extend(spec.arguments.iter().cloned());
    arguments
}

async fn wait_for(admin: Option<SocketAddr>) -> Result<(), Trouble> {
    let Some(admin) = admin else { return Ok(()) };
    let answers = async {
        while tokio::net::TcpStream::connect(admin).await.is_err() {
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::time::timeout(GIVEN_MAX, answers)
        .await
        .map_err(|_| Trouble::Cannot(format!("no gateway answers at {admin} in {GIVEN_MAX:?}")))
}

fn orders(scenario: &Scenario, plan: &Plan) -> Vec<Order> {
    (0..plan.len())
        .map(|index| Order { absent: scenario.absent(plan, index), ..Order::default() })
        .collect()
}

fn profiles(scenario: &Scenario, plan: &Plan) -> Result<Vec<Arc<Profile>>, Trouble> {
    let mut profiles = vec![Profile::default(); usize::try_from(plan.len()).unwrap_or_default()];
    for fault in &scenario.faults {
        for index in scenario.members(plan, &fault.who).map_err(Trouble::Cannot)? {
            if let Some(profile) = usize::try_from(index).ok().and_then(|at| profiles.get_mut(at)) {
                add(profile, fault);
            }
        }
    }
    Ok(profiles.into_iter().map(Arc::new).collect())
}

fn add(profile: &mut Profile, spec: &FaultSpec) {
    let fail = spec.fail.as_ref().map(|fail| {
        Does::Fail(Failure {
            text: fail.text.as_str().into(),
            rollback: fail.rollback,
            after: fail.after.map(micros),
        })
    });
    let dark = spec.dark.as_ref().map(|dark| Does::GoDark(dark.once, dark.how));
    let slow = spec.slow.map(|slow| Does::Slow(micros(slow)));
    if let Some(does) = fail.or(dark).or(slow) {
        let arm = match spec.arm {
            ArmSpec::Candidate => Some(Arm::Candidate),
            ArmSpec::Base => Some(Arm::Base),
            ArmSpec::Any => None,
        };
        profile.faults.push(Fault { arm, times: spec.times.unwrap_or(u32::MAX), does });
    }
    if let Some(flap) = spec.flap {
        profile.flap = Some(micros(flap));
    }
    if let Some(text) = &spec.failed_before {
        profile.failed_before = Some(text.as_str().into());
    }
    if let Some(runs) = spec.runs {
        profile.runs = Some(runs);
    }
}
