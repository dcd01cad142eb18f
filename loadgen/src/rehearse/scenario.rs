//! The scenario file: TOML, strict, with the place of every mistake. `docs/rehearsals.md` is its
//! reference.

mod check;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Deserializer};

use super::condition::Condition;
use super::sequence::Expected;
use crate::duration;
use crate::faults::{Once, Runs, Vanishing};
use crate::plan::RawPlan;

/// A scenario file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// What it shows, in a sentence.
    pub about: String,
    /// The Rollout that is followed, `team/name`.
    pub rollout: String,
    /// Longest that the whole of it may take.
    #[serde(default = "two_minutes", deserialize_with = "span")]
    pub limit: Duration,
    /// Which of each group's collectors a percentage takes.
    #[serde(default)]
    pub seed: u64,
    /// How long ago the Rollout, and the estate before it, were committed.
    #[serde(default, deserialize_with = "span")]
    pub committed: Duration,
    /// What is in the repository.
    pub estate: EstateSpec,
    /// What the Rollout's file says, where it is not left as it is.
    #[serde(default)]
    pub stages: Option<RolloutSpec>,
    /// How gateways are started.
    #[serde(default)]
    pub gateway: GatewaySpec,
    /// Who connects.
    population: Population,
    /// How some of them behave.
    #[serde(default, rename = "fault")]
    pub faults: Vec<FaultSpec>,
    /// What happens, in order.
    #[serde(rename = "step")]
    pub steps: Vec<Step>,
    /// What must have come of it.
    #[serde(default)]
    pub expect: Expectations,
}

/// `[estate]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EstateSpec {
    /// Directory, relative to the scenario file.
    pub path: String,
    /// The Catalogue, inside the estate.
    pub catalogue: String,
    /// Files to begin with, in place of those of the estate or beside them.
    #[serde(default)]
    pub write: BTreeMap<String, String>,
}

/// `[stages]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RolloutSpec {
    /// Index of the active one.
    pub stage: u32,
    /// Each stage's Cohort, as the YAML of its value: `{percent: 25}`.
    pub cohorts: Vec<String>,
    /// Of every stage.
    #[serde(deserialize_with = "span")]
    pub soak: Duration,
    /// `halt.dark_after`
    #[serde(deserialize_with = "span")]
    pub dark_after: Duration,
    /// `halt.abort_at_percent`
    pub abort_at_percent: Option<u32>,
    /// `halt.min_seen`
    pub min_seen: Option<u32>,
    /// `hold`
    #[serde(default)]
    pub hold: bool,
}

/// `[gateway]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GatewaySpec {
    /// How many run, each with half, a third, … of the collectors.
    pub replicas: usize,
    /// Of these, those that run from the beginning.
    pub started: Option<usize>,
    /// Halts outlive the process.
    pub store: bool,
    /// Verdicts become branches.
    pub propose: bool,
    /// `--evidence-grace`
    #[serde(deserialize_with = "span")]
    pub grace: Duration,
    /// `--expect-replicas`
    pub expect_replicas: u32,
    /// Other flags of `gateway serve`.
    pub arguments: Vec<String>,
}

impl Default for GatewaySpec {
    fn default() -> Self {
        Self {
            replicas: 1,
            started: None,
            store: true,
            propose: true,
            grace: Duration::from_secs(1),
            expect_replicas: 1,
            arguments: Vec::new(),
        }
    }
}

/// `[population]`: a plan (see `loadgen/plans/demo.toml`) and how many there are.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Population {
    collectors: u32,
    #[serde(default)]
    absent: Vec<String>,
    plan: RawPlan,
}

/// Some collectors.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Who {
    /// Name of their group; everybody where it is absent.
    pub group: Option<String>,
    /// Leaves out the first ones.
    #[serde(default)]
    pub skip: u32,
    /// The first that many after those.
    pub count: Option<u32>,
    /// Or a share of the group, which the seed decides, of 100.
    pub percent: Option<u32>,
}

/// `[[fault]]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultSpec {
    /// Whose.
    pub who: Vec<Who>,
    /// At offers of which arm.
    #[serde(default)]
    pub arm: ArmSpec,
    /// At most that many offers.
    pub times: Option<u32>,
    /// They FAIL.
    pub fail: Option<FailSpec>,
    /// They go dark.
    pub dark: Option<DarkSpec>,
    /// Their applies take that long.
    #[serde(default, deserialize_with = "some_span")]
    pub slow: Option<Duration>,
    /// They close their link and come back that often.
    #[serde(default, deserialize_with = "some_span")]
    pub flap: Option<Duration>,
    /// They begin with FAILED, with that text, of something that nobody offers.
    pub failed_before: Option<String>,
    /// What they run, where they take no offers.
    pub runs: Option<Runs>,
}

/// `fail = { … }`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailSpec {
    /// The error message.
    pub text: String,
    /// Afterwards APPLIED of what ran before.
    #[serde(default)]
    pub rollback: bool,
    /// That long after APPLYING.
    #[serde(default, deserialize_with = "some_span")]
    pub after: Option<Duration>,
}

/// `dark = { … }`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DarkSpec {
    /// How far they get.
    pub once: Once,
    /// How they go.
    pub how: Vanishing,
}

/// Which offers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ArmSpec {
    /// Of a Rollout's candidate.
    #[default]
    Candidate,
    /// Of a Tier's own artefact.
    Base,
    /// Any.
    Any,
}

/// `[[step]]`: a wait, something that is done, and what must be so afterwards.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// What other steps and conditions call it.
    pub name: Option<String>,
    /// Waits until that long after the start.
    #[serde(default, deserialize_with = "some_span")]
    pub at: Option<Duration>,
    /// Waits that long.
    #[serde(default, deserialize_with = "some_span")]
    pub wait: Option<Duration>,
    /// Waits until all of these hold.
    #[serde(default)]
    pub after: Vec<Condition>,
    /// What is done.
    #[serde(rename = "do")]
    pub action: Option<Action>,
    /// Then all of these come to hold.
    #[serde(default)]
    pub expect: Vec<Condition>,
    /// And hold for that long.
    #[serde(default, deserialize_with = "some_span")]
    pub stays: Option<Duration>,
    /// How long `after`, and `expect`, may take each.
    #[serde(default = "half_a_minute", deserialize_with = "span")]
    pub within: Duration,
}

/// Something that is done.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// A change of the estate, committed and pushed.
    Commit(Change),
    /// A proposal's branch is merged.
    Merge(Merge),
    /// A human's commit on a proposal's branch.
    CommitOnBranch(BranchChange),
    /// A branch of the proposals' names, pushed by somebody.
    Plant(Plant),
    /// A branch is deleted on the remote.
    DeleteBranch(String),
    /// The remote cannot be reached, or can be again.
    Remote(Reach),
    /// `kill -9` of a gateway, by its number.
    Kill(usize),
    /// SIGTERM, and the wait for its end.
    Drain(usize),
    /// A gateway is started.
    Start(usize),
    /// Collectors are cut off.
    Cut(Cut),
    /// Whoever of these is away comes back.
    Return(Vec<Who>),
    /// These are started anew, with new uids.
    Restart(Vec<Who>),
    /// What these run, if they take no offers.
    Run(Run),
}

/// `commit = { … }`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Change {
    /// Texts that are replaced, each exactly once in its file.
    pub edit: Vec<Edit>,
    /// Files that are written.
    pub write: BTreeMap<String, String>,
    /// Files that are removed.
    pub remove: Vec<String>,
    /// How long ago it was committed.
    #[serde(deserialize_with = "span")]
    pub committed: Duration,
}

/// A text that is replaced.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edit {
    /// In which file of the estate.
    pub file: String,
    /// What is there, once.
    pub old: String,
    /// What takes its place.
    pub new: String,
}

/// `merge = { … }`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Merge {
    /// The last part of the branch's name.
    pub branch: String,
    /// No merge commit: the branch's commit itself becomes the head, as if committed that long ago.
    #[serde(default, deserialize_with = "some_span")]
    pub fast_forward_committed: Option<Duration>,
}

/// `commit-on-branch = { … }`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BranchChange {
    /// The last part of the branch's name.
    pub branch: String,
    /// Texts that are replaced, each exactly once in its file.
    #[serde(default)]
    pub edit: Vec<Edit>,
    /// Files that are written.
    #[serde(default)]
    pub write: BTreeMap<String, String>,
}

/// `plant = { … }`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plant {
    /// The last part of the branch's name.
    pub branch: String,
    /// A commit on top of the head with that message, by the author of proposals; absent, the head
    /// itself.
    pub message: Option<String>,
}

/// Whether the remote is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reach {
    /// It is not.
    Down,
    /// It is again.
    Up,
}

/// `cut = { … }`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cut {
    /// Whom.
    pub who: Vec<Who>,
    /// How.
    pub how: Vanishing,
    /// They are back after that; never, where it is absent.
    #[serde(default, rename = "for", deserialize_with = "some_span")]
    pub lasts: Option<Duration>,
}

/// `run = { … }`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Who.
    pub who: Vec<Who>,
    /// What.
    pub runs: Runs,
}

/// `[expect]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Expectations {
    /// Verdicts in order, repeats collapsed.
    pub verdicts: Option<Expected>,
    /// Branches of this Rollout that are there at the end, by the last part of their names.
    pub branches: Option<Vec<String>>,
    /// How many different commits a branch had, by the last part of its name.
    pub tips: BTreeMap<String, usize>,
    /// What a branch's newest commit changes, by the last part of its name.
    pub diff: BTreeMap<String, Diff>,
    /// How often who was offered the candidate.
    pub offers: Vec<Offers>,
    /// How many different bundles there were to verify, at least.
    pub bundles: usize,
}

/// What a proposal changes.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Diff {
    /// `A`, `M` or `D` and a path, all of them.
    pub files: Vec<String>,
    /// Lines taken out (`-…`) and put in (`+…`) of authored files that stay, all of them.
    #[serde(default)]
    pub lines: Vec<String>,
}

/// Offers of the candidate.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Offers {
    /// To each of these.
    pub who: Vec<Who>,
    /// Exactly that many.
    pub candidate: u32,
}

/// Gateways that one rehearsal may run.
pub const REPLICAS_MAX: usize = 4;

fn two_minutes() -> Duration {
    Duration::from_secs(120)
}

fn half_a_minute() -> Duration {
    Duration::from_secs(30)
}

fn span<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    duration::parse(&text).map_err(serde::de::Error::custom)
}

fn some_span<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    span(deserializer).map(Some)
}
