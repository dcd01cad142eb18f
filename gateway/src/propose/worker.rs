//! The part of proposing that talks to git: blocking, and without a clock of its own.

use std::sync::Arc;

use render::problem::Refusal;
use render::rollout::bundle::{Bundle, BundleError};
use render::rollout::proposal::{Key, Kind, ProposalError, Request, propose};
use render::rollout::report::RolloutReport;
use render::rollout::verdict;
use render::tree::Tree;

use super::decide::{self, Action};
use super::repo::Repo;
use crate::source::git::GitError;

/// Tries within one turn when somebody else was faster.
const RACES_MAX: u32 = 3;

/// A report that something may have to be done about.
#[derive(Clone, Debug)]
pub struct Job {
    /// The report.
    pub report: Arc<RolloutReport>,
    /// Whether evidence was gathered for long enough that a verdict of `hold` tells something.
    pub settled: bool,
}

/// What was done about a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// What kind of proposal it was about.
    pub kind: Kind,
    /// Its branch.
    pub branch: String,
    /// What became of it.
    pub outcome: Outcome,
    /// The branch's tip; after [`Outcome::Withdrawn`], what it was.
    pub commit: String,
}

/// What became of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// We pushed it.
    Pushed,
    /// It was there.
    Present,
    /// We deleted it.
    Withdrawn,
    /// It holds what nobody wants, and a commit of somebody's.
    Stale,
}

impl Outcome {
    /// As in [`render::rollout::report::ProposalState`] and in metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Pushed => "pushed",
            Self::Present => "present",
            Self::Withdrawn => "withdrawn",
            Self::Stale => "stale",
        }
    }
}

/// Why nothing could be done.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Git failed; it may work the next time.
    #[error(transparent)]
    Git(#[from] GitError),
    /// The same for the other Rollouts of a turn.
    #[error("{0}")]
    Unreachable(String),
    /// The judged commit is not on the branch that the head is on.
    #[error("the commit that was judged ({head}) is not on the branch that proposals are for")]
    Elsewhere {
        /// The judged commit.
        head: String,
    },
    /// Somebody changes the branch all the time.
    #[error("{branch} changed at each try to push it")]
    Raced {
        /// The branch.
        branch: String,
    },
    /// The verdict cannot be turned into a change before somebody mends the estate.
    #[error(transparent)]
    Refused(#[from] ProposalError),
    /// The evidence cannot be written down.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// A fault of ours.
    #[error("a fault of the gateway, see its log; please report it")]
    Panic,
}

impl Failure {
    /// Whether trying again could help before the head changes.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Git(GitError::File { .. }) | Self::Refused(_) | Self::Bundle(_) => false,
            Self::Git(_)
            | Self::Unreachable(_)
            | Self::Elsewhere { .. }
            | Self::Raced { .. }
            | Self::Panic => true,
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal.into())
    }
}

/// Git, the Catalogue, and what was read last.
#[derive(Debug)]
pub struct Worker {
    repo: Repo,
    catalogue: String,
    /// The estate at the head that a commit was last made for.
    tree: Option<(String, Tree)>,
}

impl Worker {
    /// `catalogue` is a path in the repository.
    pub fn new(repo: Repo, catalogue: String) -> Self {
        Self { repo, catalogue, tree: None }
    }

    /// The remote.
    pub fn repo(&self) -> &Repo {
        &self.repo
    }

    /// Does what is to be done about each report, in one go: the remote is asked once. `None`:
    /// nothing is there, and nothing is wanted.
    pub fn turn(&mut self, jobs: &[Job], unix_ms: u64) -> Vec<Result<Option<Done>, Failure>> {
        let fetched = self.repo.open().and_then(|lock| self.repo.fetch().map(|()| lock));
        let results: Vec<_> = match fetched {
            Ok(_lock) => jobs.iter().map(|job| self.job(job, unix_ms)).collect(),
            // An error is no value that can be had twice, and every Rollout shows it.
            Err(error) => {
                let said = error.to_string();
                let mut first = Some(error);
                let mut again = || {
                    first.take().map_or_else(|| Failure::Unreachable(said.clone()), Failure::Git)
                };
                jobs.iter().map(|_| Err(again())).collect()
            }
        };
        // An estate is too large to keep until there is something to propose again.
        self.tree = None;
        let is_git = |result: &Result<_, Failure>| matches!(result, Err(Failure::Git(_)));
        if results.iter().any(is_git)
            && let Err(error) = self.repo.open().and_then(|_lock| self.repo.heal())
        {
            tracing::warn!(%error, "the clone that proposals are made in cannot be healed");
        }
        results
    }

    fn job(&mut self, job: &Job, unix_ms: u64) -> Result<Option<Done>, Failure> {
        let report = &*job.report;
        if !self.repo.is_of_head(&report.head)? {
            return Err(Failure::Elsewhere { head: report.head.clone() });
        }
        let wanted = Kind::of(report.verdict.kind);
        let mut done = None;
        if withdraws(job) {
            done = self.withdraw(report)?;
        }
        if let Some(kind) = wanted {
            // Where an abort is proposed, it is what is told of, and not the advance before it.
            done = Some(self.put(kind, report, unix_ms)?);
        } else if done.is_none() {
            done = self.standing(report)?;
        }
        Ok(done)
    }

    /// An abort that was proposed for this stage: it is not withdrawn when the verdict turns, so it
    /// goes on being told of.
    fn standing(&self, report: &RolloutReport) -> Result<Option<Done>, Failure> {
        let branch = Kind::Abort.branch(&report.rollout, report.terms.stage);
        let branches = self.repo.branches(&report.rollout, &report.head)?;
        let stands = |seen: &&decide::Seen| {
            seen.key.as_ref().is_some_and(|key| key.candidate == report.candidate)
        };
        Ok(branches.get(&branch).filter(stands).map(|seen| Done {
            kind: Kind::Abort,
            outcome: Outcome::Present,
            commit: seen.tip.clone(),
            branch,
        }))
    }

    /// An advance whose verdict does not hold any more.
    fn withdraw(&self, report: &RolloutReport) -> Result<Option<Done>, Failure> {
        let branch = Kind::Advance.branch(&report.rollout, report.terms.stage);
        for _ in 0..RACES_MAX {
            let branches = self.repo.branches(&report.rollout, &report.head)?;
            let seen = branches.get(&branch);
            let kind =
                seen.and_then(|seen| seen.key.as_ref()).map_or(Kind::Advance, |key| key.kind);
            let done = |outcome, commit| Done { kind, branch: branch.clone(), outcome, commit };
            match decide::unwanted(seen) {
                Action::Stale(tip) => return Ok(Some(done(Outcome::Stale, tip))),
                Action::Delete(tip) => match self.repo.push(&branch, None, Some(&tip)) {
                    Ok(()) => return Ok(Some(done(Outcome::Withdrawn, tip))),
                    Err(error) => self.lost(&branch, Some(&tip), report, error)?,
                },
                Action::Nothing | Action::Present(_) | Action::Push(_) => return Ok(None),
            }
        }
        Err(Failure::Raced { branch })
    }

    fn put(&mut self, kind: Kind, report: &RolloutReport, unix_ms: u64) -> Result<Done, Failure> {
        let branch = kind.branch(&report.rollout, report.terms.stage);
        let told = self.repo.history(&report.head, &report.rollout, report.terms.stage)?;
        let (origin, since_ms) = told.map(|told| (told.origin, told.stage_started_ms)).unzip();
        let key = Key {
            kind,
            rollout: report.rollout.clone(),
            stage: report.terms.stage,
            candidate: report.candidate.clone(),
            origin,
            since_ms,
        };
        let done = |outcome, commit| Done { kind, branch: branch.clone(), outcome, commit };
        let mut made: Option<String> = None;
        for _ in 0..RACES_MAX {
            let branches = self.repo.branches(&report.rollout, &report.head)?;
            let seen = match decide::wanted(branches.get(&branch), &key) {
                Action::Push(seen) => seen,
                // A push whose answer was lost on the way.
                Action::Present(tip) if made.as_ref() == Some(&tip) => {
                    return Ok(done(Outcome::Pushed, tip));
                }
                Action::Present(tip) => return Ok(done(Outcome::Present, tip)),
                Action::Stale(tip) => return Ok(done(Outcome::Stale, tip)),
                Action::Nothing | Action::Delete(_) => unreachable!("the proposal is wanted"),
            };
            let commit = match &made {
                Some(commit) => commit.clone(),
                None => self.make(&key, report, unix_ms)?,
            };
            match self.repo.push(&branch, Some(&commit), seen.as_deref()) {
                Ok(()) => return Ok(done(Outcome::Pushed, commit)),
                Err(error) => self.lost(&branch, seen.as_deref(), report, error)?,
            }
            made = Some(commit);
        }
        Err(Failure::Raced { branch })
    }

    /// After a push that failed: an error, unless the branch is not what it was any more.
    fn lost(
        &self,
        branch: &str,
        seen: Option<&str>,
        report: &RolloutReport,
        error: GitError,
    ) -> Result<(), Failure> {
        self.repo.fetch()?;
        let branches = self.repo.branches(&report.rollout, &report.head)?;
        let now = branches.get(branch).map(|seen| &*seen.tip);
        if now == seen { Err(error.into()) } else { Ok(()) }
    }

    fn make(&mut self, key: &Key, report: &RolloutReport, unix_ms: u64) -> Result<String, Failure> {
        let head = &report.head;
        if self.tree.as_ref().is_none_or(|(at, _)| at != head) {
            self.tree = Some((head.clone(), self.repo.tree(head)?));
        }
        let Some((_, tree)) = &self.tree else { unreachable!("it was just read") };
        let catalogue = self.repo.catalogue(head, &self.catalogue)?;
        let evidence = Bundle::of(report)?.to_canonical_json()?;
        let change = propose(&Request {
            kind: key.kind,
            report,
            tree,
            folder: self.repo.folder(),
            catalogue: (&self.catalogue, &catalogue),
            key,
            evidence: &evidence,
        })?;
        Ok(self.repo.commit(head, &change, unix_ms)?)
    }
}

/// Whether the verdict says that no advance may stay proposed. While the evidence is not whole, it
/// says nothing either way: a replica that restarts must not close what others review.
fn withdraws(job: &Job) -> bool {
    match job.report.verdict.kind {
        verdict::Kind::Abort | verdict::Kind::Blocked => true,
        verdict::Kind::Hold => job.settled,
        verdict::Kind::Inconclusive | verdict::Kind::Advance | verdict::Kind::Complete => false,
    }
}
