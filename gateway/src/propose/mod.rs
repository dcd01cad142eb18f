//! Verdicts become branches of the estate's remote, for people to merge (rollouts.md, decisions 20
//! to 23).
//!
//! [`Proposer::run`] follows the reports of the aggregator. What it does about one is decided in
//! [`decide`], done by [`worker`] with git, and followed by a pull request where there is a
//! [`forge`]. It has its own clone and holds no lock of the serving path: whatever hangs or fails
//! here, collectors are served.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use render::rollout::evidence::Millis;
use render::rollout::proposal::{Kind, bundle_path, markdown, title};
use render::rollout::report::{ProposalState, RolloutReport};
use render::rollout::verdict;

use crate::aggregate::Aggregator;
use crate::clock::Clock;
use crate::config::{Place, SourceConfig};
use crate::metrics::Metrics;
use crate::source::git::GitError;

pub mod backoff;
pub mod config;
pub mod decide;
pub mod forge;
pub mod repo;
pub mod worker;

use config::ProposeConfig;
use forge::{Forge, ForgeError, Opened, PullRequest};
use repo::Repo;
use worker::{Done, Failure, Job, Outcome, Worker};

/// A verdict that flickers must not become a storm of fetches.
const BETWEEN_TURNS: Duration = Duration::from_millis(500);

/// Follows the reports and sees to it that what they say is proposed.
pub struct Proposer {
    /// `None` only while a turn has it.
    worker: Option<Worker>,
    forge: Option<Arc<dyn Forge>>,
    aggregator: Arc<Aggregator>,
    metrics: &'static Metrics,
    clock: Clock,
    entries: BTreeMap<Box<str>, Entry>,
    /// Where pull requests are to be merged, once the remote has said it.
    base: Option<String>,
}

/// What is known of one Rollout's proposal.
#[derive(Debug)]
struct Entry {
    facts: Facts,
    /// When something is to be done next, on the process's own clock.
    due: Option<Due>,
    /// Failures in a row.
    failures: u32,
    state: Option<ProposalState>,
    done: Option<Done>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Due {
    at: Duration,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Branch,
    PullRequest,
}

/// What of a report decides what is proposed; counts alone change nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Facts {
    head: String,
    verdict: verdict::Kind,
    stage: u32,
    candidate: String,
}

impl Facts {
    fn of(report: &RolloutReport) -> Self {
        Self {
            head: report.head.clone(),
            verdict: report.verdict.kind,
            stage: report.terms.stage,
            candidate: report.candidate.clone(),
        }
    }
}

/// Why nothing can be proposed.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The place for the clone cannot be made.
    #[error(transparent)]
    Git(#[from] GitError),
    /// The forge cannot be asked.
    #[error(transparent)]
    Forge(#[from] ForgeError),
}

/// What the flags ask for, before anything runs.
pub struct Parts {
    /// Git and the Catalogue.
    pub worker: Worker,
    /// Where pull requests are opened.
    pub forge: Option<Arc<dyn Forge>>,
}

impl Parts {
    /// `None` where nothing is to be proposed.
    ///
    /// # Errors
    ///
    /// When the place for the clone cannot be made, or the forge never be asked.
    pub fn prepare(
        source: &SourceConfig,
        config: Option<&ProposeConfig>,
    ) -> Result<Option<Self>, StartError> {
        let (Some(config), Place::Repo { url, reference, path, cache }) = (config, &source.place)
        else {
            return Ok(None);
        };
        let (reference, cache) = (reference.as_deref(), cache.as_deref());
        let author = config.author.clone();
        let repo = Repo::new(url, reference, path, cache, source.timeout, author)?;
        let forge = config.forge.as_ref().map(forge::connect).transpose()?;
        Ok(Some(Self { worker: Worker::new(repo, config.catalogue.clone()), forge }))
    }
}

impl Proposer {
    /// Nothing is fetched yet.
    pub fn new(
        parts: Parts,
        aggregator: Arc<Aggregator>,
        metrics: &'static Metrics,
        clock: Clock,
    ) -> Self {
        let Parts { worker, forge } = parts;
        let (worker, entries) = (Some(worker), BTreeMap::new());
        Self { worker, forge, aggregator, metrics, clock, entries, base: None }
    }

    /// Never ends.
    pub async fn run(mut self) {
        let mut changes = self.aggregator.changes();
        loop {
            changes.borrow_and_update();
            let reports = self.aggregator.reports();
            let next = self.turn(&reports).await;
            tokio::time::sleep(BETWEEN_TURNS).await;
            let wait = next.map(|at| at.saturating_sub(self.clock.elapsed()));
            tokio::select! {
                changed = changes.changed() => {
                    if changed.is_err() {
                        return;
                    }
                }
                () = tokio::time::sleep(wait.unwrap_or(Duration::MAX)), if wait.is_some() => {}
            }
        }
    }

    /// Does what is due about these reports; gives the time at which something is due next.
    pub async fn turn(
        &mut self,
        reports: &BTreeMap<Box<str>, Arc<RolloutReport>>,
    ) -> Option<Duration> {
        self.follow(reports);
        let due = |entries: &BTreeMap<Box<str>, Entry>, now, what| -> Vec<Box<str>> {
            let is_due =
                |entry: &Entry| entry.due.is_some_and(|due: Due| due.at <= now && due.what == what);
            entries.iter().filter(|(_, entry)| is_due(entry)).map(|(id, _)| id.clone()).collect()
        };
        let branches = due(&self.entries, self.clock.elapsed(), What::Branch);
        if !branches.is_empty() {
            self.branches(&branches, reports).await;
        }
        for id in due(&self.entries, self.clock.elapsed(), What::PullRequest) {
            if let Some(report) = reports.get(&id) {
                self.pull_request(&id, report).await;
            }
        }
        self.entries.values().filter_map(|entry| entry.due).map(|due| due.at).min()
    }

    /// What is told of a Rollout's proposal.
    pub fn state(&self, rollout: &str) -> Option<&ProposalState> {
        self.entries.get(rollout)?.state.as_ref()
    }

    /// Takes in what changed: a new verdict is due at once, a Rollout that is gone is forgotten.
    fn follow(&mut self, reports: &BTreeMap<Box<str>, Arc<RolloutReport>>) {
        let now = self.clock.elapsed();
        let aggregator = &self.aggregator;
        self.entries.retain(|id, _| {
            let stays = reports.contains_key(id);
            if !stays {
                aggregator.set_proposal(id, None);
            }
            stays
        });
        for (id, report) in reports {
            let facts = Facts::of(report);
            let due = Some(Due { at: now, what: What::Branch });
            match self.entries.get_mut(id) {
                Some(entry) if entry.facts == facts => {}
                Some(entry) => {
                    *entry =
                        Entry { facts, due, failures: 0, state: entry.state.take(), done: None };
                }
                None => {
                    let entry = Entry { facts, due, failures: 0, state: None, done: None };
                    self.entries.insert(id.clone(), entry);
                }
            }
        }
    }

    async fn branches(
        &mut self,
        ids: &[Box<str>],
        reports: &BTreeMap<Box<str>, Arc<RolloutReport>>,
    ) {
        let now_ms = self.aggregator.now_ms(self.clock.now());
        let job = |id| -> Option<(&str, Job)> {
            let report = Arc::clone(reports.get(id)?);
            let settled = now_ms >= settles_at_ms(&report);
            Some((id, Job { report, settled }))
        };
        let (ids, jobs): (Vec<_>, Vec<_>) = ids.iter().filter_map(|id| job(&**id)).unzip();
        let Some(mut worker) = self.worker.take() else { return };
        let unix_ms = self.clock.unix_ms();
        let given = jobs.clone();
        let worked = tokio::task::spawn_blocking(move || {
            // A fault of ours in one proposal must not keep the next one out.
            let results = catch_unwind(AssertUnwindSafe(|| worker.turn(&given, unix_ms)));
            let results =
                results.unwrap_or_else(|_| given.iter().map(|_| Err(Failure::Panic)).collect());
            (worker, results)
        });
        let (worker, results) = match worked.await {
            Ok(worked) => worked,
            Err(error) => {
                tracing::error!(%error, "nothing is proposed any more");
                return;
            }
        };
        self.worker = Some(worker);
        for ((id, job), result) in ids.iter().zip(&jobs).zip(results) {
            self.took(id, job, now_ms, result);
        }
    }

    /// Files what became of a job.
    fn took(&mut self, id: &str, job: &Job, now_ms: Millis, result: Result<Option<Done>, Failure>) {
        let now = self.clock.elapsed();
        let Some(entry) = self.entries.get_mut(id) else { return };
        match result {
            Ok(done) => {
                let wanted = Kind::of(job.report.verdict.kind);
                let opens = |done: &Done| match done.outcome {
                    Outcome::Pushed | Outcome::Present => wanted == Some(done.kind),
                    Outcome::Withdrawn | Outcome::Stale => false,
                };
                let due = if self.forge.is_some() && done.as_ref().is_some_and(opens) {
                    Some(Due { at: now, what: What::PullRequest })
                } else {
                    settles(job, now, now_ms)
                };
                if let Some(news) = entry.took(done, due) {
                    tell(id, news);
                    self.metrics.proposals.count(&[news.kind.label(), news.outcome.label()]);
                }
            }
            Err(failure) => {
                let (kind, text) = (kind_of(&job.report), failure.to_string());
                let outcome = if failure.may_pass() { "failed" } else { "refused" };
                self.metrics.proposals.count(&[kind.label(), outcome]);
                let told = entry.state.as_ref().and_then(|state| state.error.as_ref());
                if told != Some(&text) {
                    let kind = kind.label();
                    tracing::warn!(rollout = id, kind, error = %text, "cannot propose");
                }
                entry.failed(&job.report, text, failure.may_pass(), now);
            }
        }
        self.aggregator.set_proposal(id, entry.state.clone());
    }

    /// Opens the pull request of a branch that is there, if nobody has.
    async fn pull_request(&mut self, id: &str, report: &RolloutReport) {
        let Some(forge) = self.forge.clone() else { return };
        let Some(done) = self.entries.get(id).and_then(|entry| entry.done.clone()) else { return };
        let opened = match self.base_branch().await {
            Ok((base, folder)) => {
                let bundle = bundle_path(&report.rollout);
                let bundle = if folder.is_empty() { bundle } else { format!("{folder}/{bundle}") };
                let pull = PullRequest {
                    branch: done.branch.clone(),
                    commit: done.commit.clone(),
                    base,
                    title: title(done.kind, report),
                    body: markdown(done.kind, report, &bundle),
                };
                forge.open(&pull).await.map_err(|error| (error.to_string(), error.retry_after()))
            }
            Err(error) => Err((error, None)),
        };
        let now = self.clock.elapsed();
        let Some(entry) = self.entries.get_mut(id) else { return };
        let Some(state) = &mut entry.state else { return };
        let count = |outcome| self.metrics.proposals.count(&[done.kind.label(), outcome]);
        match opened {
            Ok(Opened { url, is_new, is_closed }) => {
                entry.failures = 0;
                entry.due = None;
                if is_new {
                    count("opened");
                    tracing::info!(
                        rollout = id,
                        branch = done.branch,
                        url,
                        "opened a pull request"
                    );
                }
                state.url = Some(url);
                state.error = is_closed
                    .then(|| "its pull request was closed without being merged".to_owned());
            }
            Err((error, after)) => {
                count("forge_failed");
                entry.failures = entry.failures.saturating_add(1);
                let wait = backoff::after(entry.failures, fastrand::f64());
                let at = now.saturating_add(wait.max(after.unwrap_or_default()));
                entry.due = Some(Due { at, what: What::PullRequest });
                if state.error.as_ref() != Some(&error) {
                    tracing::warn!(rollout = id, branch = done.branch, %error, "no pull request");
                }
                state.error = Some(error);
                state.attempts = state.attempts.saturating_add(1);
            }
        }
        self.aggregator.set_proposal(id, entry.state.clone());
    }

    /// Where pull requests are to be merged, and the estate's folder.
    async fn base_branch(&mut self) -> Result<(String, String), String> {
        let Some(worker) = self.worker.take() else {
            return Err("nothing is proposed any more".to_owned());
        };
        let known = self.base.clone();
        let asked = tokio::task::spawn_blocking(move || {
            let base = known.map_or_else(|| worker.repo().base_branch(), Ok);
            (worker, base)
        });
        let (worker, base) = asked.await.map_err(|error| error.to_string())?;
        let folder = worker.repo().folder().to_owned();
        self.worker = Some(worker);
        let base = base.map_err(|error| error.to_string())?;
        self.base = Some(base.clone());
        Ok((base, folder))
    }
}

impl Entry {
    /// Gives what is news in it.
    fn took(&mut self, done: Option<Done>, due: Option<Due>) -> Option<&Done> {
        let before = self.state.take();
        self.state = done.as_ref().map(|done| state(done, before.as_ref()));
        (self.failures, self.due, self.done) = (0, due, done);
        let known = |state: &ProposalState| (state.state.clone(), state.commit.clone());
        let is_news = self.state.as_ref().map(known) != before.as_ref().map(known);
        self.done.as_ref().filter(|_| is_news)
    }

    fn failed(&mut self, report: &RolloutReport, error: String, may_pass: bool, now: Duration) {
        self.failures = self.failures.saturating_add(1);
        let wait = backoff::after(self.failures, fastrand::f64());
        self.due = may_pass.then(|| Due { at: now.saturating_add(wait), what: What::Branch });
        let before = self.state.take();
        self.state = match (Kind::of(report.verdict.kind), before) {
            (Some(kind), before) => Some(ProposalState {
                kind: kind.label().to_owned(),
                branch: kind.branch(&report.rollout, report.terms.stage),
                state: if may_pass { "retrying" } else { "refused" }.to_owned(),
                commit: None,
                url: None,
                error: Some(error),
                attempts: before.map_or(0, |before| before.attempts).saturating_add(1),
            }),
            // What was told before may still be so.
            (None, before) => before.map(|before| ProposalState { error: Some(error), ..before }),
        };
    }
}

/// What a failure is about.
fn kind_of(report: &RolloutReport) -> Kind {
    // Where nothing is wanted, it was an advance that could not be withdrawn.
    Kind::of(report.verdict.kind).unwrap_or(Kind::Advance)
}

/// When a hold that does not tell anything yet is to be looked at again.
fn settles(job: &Job, now: Duration, now_ms: Millis) -> Option<Due> {
    let left = settles_at_ms(&job.report).saturating_sub(now_ms);
    let at = now.saturating_add(Duration::from_millis(left));
    let waits = job.report.verdict.kind == verdict::Kind::Hold && !job.settled;
    waits.then_some(Due { at, what: What::Branch })
}

/// From then on a verdict of `hold` tells something: right after a start nobody is there yet.
fn settles_at_ms(report: &RolloutReport) -> Millis {
    let window = report.terms.dark_after_ms.saturating_add(report.terms.grace_ms);
    report.times.evidence_since_ms.saturating_add(window.saturating_mul(2))
}

/// What is told of a proposal; what we pushed stays pushed by us when it is found there again.
fn state(done: &Done, before: Option<&ProposalState>) -> ProposalState {
    let same = before.filter(|before| before.commit.as_ref() == Some(&done.commit));
    let ours = done.outcome == Outcome::Present
        && same.is_some_and(|before| before.state == Outcome::Pushed.label());
    let outcome = if ours { Outcome::Pushed } else { done.outcome };
    ProposalState {
        kind: done.kind.label().to_owned(),
        branch: done.branch.clone(),
        state: outcome.label().to_owned(),
        commit: Some(done.commit.clone()),
        url: same.and_then(|before| before.url.clone()),
        error: None,
        attempts: before.map_or(0, |before| before.attempts).saturating_add(1),
    }
}

fn tell(rollout: &str, done: &Done) {
    let Done { kind, branch, outcome, commit } = done;
    let (kind, outcome_label) = (kind.label(), outcome.label());
    match outcome {
        Outcome::Pushed | Outcome::Present | Outcome::Withdrawn => {
            tracing::info!(rollout, kind, branch, commit, "proposal: {outcome_label}");
        }
        Outcome::Stale => tracing::warn!(
            rollout,
            kind,
            branch,
            commit,
            "the branch holds a proposal that does not hold any more, and somebody's commit: it is \
             left alone"
        ),
    }
}
