//! What a verdict proposes: a branch with one commit, as file contents and texts (rollouts.md,
//! decisions 20 and 22). Whoever has git makes the commit and pushes it.

mod key;
mod text;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use key::{Key, TRAILER};
pub use text::{markdown, title};

use super::report::RolloutReport;
use super::verdict;
use crate::compile::{
    self, Commit, CommitError, Rendered, UNMATCHED_PATH, is_generated, rendered_commit,
};
use crate::estate::{self, Name};
use crate::policy::{Catalogue, Policy};
use crate::problem::Refusal;
use crate::snapshot::served;
use crate::tree::Tree;
use crate::yaml::edit::{self, EditError};

/// What is proposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The next stage: one line of the Rollout file.
    Advance,
    /// The end: the Tier is rebound to the candidate, the Rollout file goes.
    Complete,
    /// Back to the base: the Rollout file goes.
    Abort,
}

impl Kind {
    /// What a verdict proposes, if it proposes anything.
    pub fn of(verdict: verdict::Kind) -> Option<Self> {
        match verdict {
            verdict::Kind::Advance => Some(Self::Advance),
            verdict::Kind::Complete => Some(Self::Complete),
            verdict::Kind::Abort => Some(Self::Abort),
            verdict::Kind::Blocked | verdict::Kind::Inconclusive | verdict::Kind::Hold => None,
        }
    }

    /// As it is written in metrics, JSON and the key.
    pub fn label(self) -> &'static str {
        match self {
            Self::Advance => "advance",
            Self::Complete => "complete",
            Self::Abort => "abort",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Self::Advance, Self::Complete, Self::Abort].into_iter().find(|kind| kind.label() == text)
    }

    /// The branch it is proposed on, from a Rollout's active stage (counted from 0):
    /// `tidegate/rollout/<team>/<name>/advance-<stage+2>` or `…/abort-<stage+1>`.
    pub fn branch(self, rollout: &str, stage: u32) -> String {
        let stage = u64::from(stage);
        match self {
            Self::Advance | Self::Complete => {
                format!("{BRANCH_PREFIX}{rollout}/advance-{}", stage + 2)
            }
            Self::Abort => format!("{BRANCH_PREFIX}{rollout}/abort-{}", stage + 1),
        }
    }
}

/// What all our branches begin with.
pub const BRANCH_PREFIX: &str = "tidegate/rollout/";

/// All that a proposal is made from.
#[derive(Clone, Copy, Debug)]
pub struct Request<'r> {
    /// What is proposed.
    pub kind: Kind,
    /// The report that says so.
    pub report: &'r RolloutReport,
    /// The estate at the commit that the report judged.
    pub tree: &'r Tree,
    /// The estate's folder in its repository; empty is the root.
    pub folder: &'r str,
    /// The Catalogue's path, for error texts, and its bytes.
    pub catalogue: (&'r str, &'r [u8]),
    /// What history tells of the Rollout.
    pub key: &'r Key,
    /// The evidence bundle, byte for byte.
    pub evidence: &'r [u8],
}

/// A commit to be made on top of the judged one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// What kind of proposal it is.
    pub kind: Kind,
    /// The branch, without `refs/heads/`.
    pub branch: String,
    /// First line of the message, and the title of a pull request.
    pub title: String,
    /// The message below its first line, without the trailer: nothing in it was said by a
    /// collector.
    pub body: String,
    /// What it was proposed for: the trailer.
    pub key: Key,
    /// Paths in the repository to new contents; `None` deletes.
    pub files: BTreeMap<String, Option<Vec<u8>>>,
}

impl Change {
    /// The whole commit message.
    pub fn message(&self) -> String {
        format!("{}\n\n{}\n\n{TRAILER}: {}\n", self.title, self.body.trim_end(), self.key)
    }
}

/// Why a verdict cannot be turned into a change.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProposalError {
    /// The tree is not the one that was judged.
    #[error("{rollout}: what was judged is not what the commit holds: {what}")]
    Moved {
        /// `team/name`.
        rollout: String,
        /// What differs.
        what: String,
    },
    /// The line cannot be edited.
    #[error("{path}: {error}")]
    Edit {
        /// The file, in the repository.
        path: String,
        /// Why.
        #[source]
        error: EditError,
    },
    /// The estate does not load or render, before or after the change.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The rendered tree does not say at which commit it was rendered.
    #[error(
        "{path}: it names no commit to render at; render the estate again and commit the result"
    )]
    NoCommit {
        /// The Unmatched artefact, in the repository.
        path: String,
    },
    /// What the rendered tree says is no commit.
    #[error("{path}: {error}; render the estate again and commit the result")]
    BadCommit {
        /// The Unmatched artefact, in the repository.
        path: String,
        /// Why.
        #[source]
        error: CommitError,
    },
}

/// The change that a verdict proposes.
///
/// An advance edits the `stage` line and touches no rendered file: nothing that is rendered depends
/// on it. A complete or an abort carries what of the rendered tree the edit changes, rendered at
/// the commit that the tree already names; what was stale before for another reason stays as it
/// is, so that the proposal delivers nothing but itself.
///
/// # Errors
///
/// See [`ProposalError`]: each says what a person has to do.
pub fn propose(request: &Request<'_>) -> Result<Change, ProposalError> {
    let Request { kind, report, tree, folder, .. } = *request;
    let place = |path: &str| joined(folder, path);
    let topology = estate::load_topology(tree)?;
    let moved = |what: String| ProposalError::Moved { rollout: report.rollout.clone(), what };
    let id = name(&report.rollout);
    let rollout =
        topology.rollouts.get(&id).ok_or_else(|| moved("it has no such Rollout".into()))?;
    let (stage, stages) = (rollout.stage, rollout.stages.len());
    let told = (rollout.from.value.to_string(), rollout.to.value.to_string(), stage, stages);
    let Terms { from, to, stage: judged, stages: of } = Terms::of(report);
    if told != (from, to, judged, of) {
        let (from, to, stage, stages) = told;
        return Err(moved(format!("it moves {from} to {to} and is at stage {stage} of {stages}")));
    }
    let last = stage as usize + 1 >= stages;
    if (kind == Kind::Advance) == last && kind != Kind::Abort {
        return Err(moved(format!("stage {stage} of {stages} cannot {}", kind.label())));
    }

    let rollout_path = object_path(tree, "rollouts", &id)
        .ok_or_else(|| moved("its Rollout has no file".to_owned()))?;
    let mut edits: BTreeMap<String, Option<Vec<u8>>> = BTreeMap::new();
    let mut edit = |path: &str, key: &str, value: &str, after: &str| {
        let source = tree.get(path).map_or(&[][..], |bytes| bytes);
        let edited = edit::set(source, key, value, after)
            .map_err(|error| ProposalError::Edit { path: place(path), error })?;
        edits.insert(path.to_owned(), Some(edited));
        Ok::<_, ProposalError>(())
    };
    match kind {
        Kind::Advance => edit(&rollout_path, "stage", &(stage + 1).to_string(), "to")?,
        Kind::Complete => {
            let tier = &rollout.tier.value;
            let tier_path = object_path(tree, "tiers", tier)
                .ok_or_else(|| moved("its Tier has no file".to_owned()))?;
            // The key is there: a Tier without one does not load.
            edit(&tier_path, "blueprint", &rollout.to.value.to_string(), "blueprint")?;
            edits.insert(rollout_path, None);
        }
        Kind::Abort => {
            edits.insert(rollout_path, None);
        }
    }
    let mut after = edited(tree, &edits);
    if kind != Kind::Advance {
        let rendered = rendered_changes(request, &after, rollout.tier.value.as_str())?;
        after = edited(&after, &rendered);
        edits.extend(rendered);
    }
    // What is proposed must be servable: nobody may find out after the merge.
    served::from_tree(&after, None)?;

    let mut files: BTreeMap<String, Option<Vec<u8>>> =
        edits.into_iter().map(|(path, contents)| (place(&path), contents)).collect();
    let bundle = bundle_path(&report.rollout);
    files.insert(place(&bundle), Some(request.evidence.to_vec()));
    Ok(Change {
        kind,
        branch: kind.branch(&report.rollout, stage),
        title: title(kind, report),
        body: text::body(kind, report, &place(&bundle)),
        key: request.key.clone(),
        files,
    })
}

/// Where the evidence of a Rollout is put: inside the estate, but no part of it.
pub fn bundle_path(rollout: &str) -> String {
    format!("rollouts-evidence/{rollout}.json")
}

/// What of the report the tree must say too.
struct Terms {
    from: String,
    to: String,
    stage: u32,
    stages: usize,
}

impl Terms {
    fn of(report: &RolloutReport) -> Self {
        Self {
            from: report.from.clone(),
            to: report.to.clone(),
            stage: report.terms.stage,
            stages: report.terms.stages as usize,
        }
    }
}

/// What the edit changes in the rendered tree: the files of the Tier, and every other that renders
/// differently than before.
fn rendered_changes(
    request: &Request<'_>,
    after: &Tree,
    tier: &str,
) -> Result<BTreeMap<String, Option<Vec<u8>>>, ProposalError> {
    let Request { tree, folder, catalogue: (label, catalogue), .. } = *request;
    let unmatched = || joined(folder, UNMATCHED_PATH);
    let commit = tree
        .get(UNMATCHED_PATH)
        .and_then(|bytes| rendered_commit(bytes))
        .ok_or_else(|| ProposalError::NoCommit { path: unmatched() })?;
    let commit = Commit::parse(&commit)
        .map_err(|error| ProposalError::BadCommit { path: unmatched(), error })?;
    let catalogue = Catalogue::parse(catalogue, label)?;
    let before = render(tree, &catalogue, &commit)?.files;
    let mut changes = BTreeMap::new();
    let of_tier = |path: &str| {
        let file = path.strip_prefix("rendered/").and_then(|path| path.strip_prefix(tier));
        matches!(file, Some(".yaml" | "@next.yaml" | ".supervisor.yaml"))
    };
    let now = render(after, &catalogue, &commit)?.files;
    for (path, contents) in &now {
        let changed = before.get(path) != Some(contents) || of_tier(path);
        if changed && tree.get(path).is_none_or(|old| **old != **contents) {
            changes.insert(path.clone(), Some(contents.clone()));
        }
    }
    for path in before.keys().filter(|path| !now.contains_key(*path)) {
        if tree.get(path).is_some_and(|old| is_generated(old)) {
            changes.insert(path.clone(), None);
        }
    }
    Ok(changes)
}

fn render(tree: &Tree, catalogue: &Catalogue, commit: &Commit) -> Result<Rendered, Refusal> {
    let teams = estate::load_teams(tree)?;
    let policy = Policy::load(tree, &teams, catalogue)?;
    let (sources, _) = estate::load_sources(tree, teams)?;
    compile::render(&sources, catalogue, &policy, commit)
}

fn edited(tree: &Tree, edits: &BTreeMap<String, Option<Vec<u8>>>) -> Tree {
    let mut tree = tree.clone();
    for (path, contents) in edits {
        match contents {
            Some(contents) => drop(tree.files.insert(path.clone(), Arc::from(&contents[..]))),
            None => drop(tree.files.remove(path)),
        }
    }
    tree
}

/// The object's real file: `.yaml` or `.yml`, in whatever case.
fn object_path(tree: &Tree, kind: &str, id: &Name) -> Option<String> {
    tree.objects(kind)
        .find(|(path, _)| path.team == id.team() && path.name == id.name())
        .map(|(path, _)| path.path.to_owned())
}

fn name(id: &str) -> Name {
    let (team, name) = id.split_once('/').unwrap_or((id, ""));
    Name::new(team, name)
}

fn joined(folder: &str, path: &str) -> String {
    if folder.is_empty() { path.to_owned() } else { format!("{folder}/{path}") }
}
