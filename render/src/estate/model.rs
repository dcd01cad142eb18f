//! What authors write, as types. Every object carries its file and the positions that an error
//! about it needs.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::finding::Finding;
use crate::yaml::{Node, Pos};

/// A value and where its author wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located<T> {
    /// The value.
    pub value: T,
    /// Where it starts in the object's file.
    pub at: Pos,
}

/// A team-qualified name, `team/name`. Ordered by the bytes of the whole string, so `a-b/x` sorts
/// before `a/x` (serving.md 5).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

impl Name {
    /// Joins the two parts; the parts have been checked by whoever read them.
    pub fn new(team: &str, name: &str) -> Self {
        Self(format!("{team}/{name}").into())
    }

    /// The whole, `team/name`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The part before the first `/`.
    pub fn team(&self) -> &str {
        self.0.split_once('/').map_or("", |(team, _)| team)
    }

    /// The part after the first `/`.
    pub fn name(&self) -> &str {
        self.0.split_once('/').map_or("", |(_, name)| name)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A pinned Blueprint, `team/name@N`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Binding {
    /// The Blueprint.
    pub blueprint: Name,
    /// The pin, at least 1.
    pub version: u32,
}

impl fmt::Display for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.blueprint, self.version)
    }
}

/// A collector component's class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// `receiver`
    Receiver,
    /// `processor`
    Processor,
    /// `exporter`
    Exporter,
    /// `connector`
    Connector,
    /// `extension`
    Extension,
}

impl Class {
    /// All five, in the order in which an artefact lists their sections.
    pub const ALL: [Self; 5] =
        [Self::Receiver, Self::Processor, Self::Exporter, Self::Connector, Self::Extension];

    /// As authored: `receiver`, …
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Receiver => "receiver",
            Self::Processor => "processor",
            Self::Exporter => "exporter",
            Self::Connector => "connector",
            Self::Extension => "extension",
        }
    }

    /// The class of that name, or `None`.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.as_str() == text)
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A telemetry signal, in the order in which an artefact lists its pipelines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Signal {
    /// `traces`
    Traces,
    /// `metrics`
    Metrics,
    /// `logs`
    Logs,
    /// `profiles`
    Profiles,
}

impl Signal {
    /// All four, in artefact order.
    pub const ALL: [Self; 4] = [Self::Traces, Self::Metrics, Self::Logs, Self::Profiles];

    /// As authored: `traces`, …
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Traces => "traces",
            Self::Metrics => "metrics",
            Self::Logs => "logs",
            Self::Profiles => "profiles",
        }
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A node of `teams.yaml`, flattened; the hierarchy is in `parent`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Team {
    /// Unique over the whole file.
    pub id: String,
    /// Display name, may be empty.
    pub name: String,
    /// Owner ids, in authored order.
    pub owners: Vec<String>,
    /// The parent's id; `None` for a root team.
    pub parent: Option<String>,
    /// Where its `id` is authored.
    pub at: Pos,
}

/// `teams.yaml`: every team by id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Teams {
    /// By id, in byte order.
    pub by_id: BTreeMap<String, Team>,
    /// Owner id to the team that lists it.
    pub owner_team: BTreeMap<String, String>,
}

impl Teams {
    /// The chain from the root down to `team`, both included; empty for an unknown team.
    pub fn chain(&self, team: &str) -> Vec<&Team> {
        let mut chain = Vec::new();
        let mut next = self.by_id.get(team);
        while let Some(team) = next {
            chain.push(team);
            next = team.parent.as_deref().and_then(|parent| self.by_id.get(parent));
        }
        chain.reverse();
        chain
    }
}

/// `telemetry.yaml`: where collectors send their own telemetry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelfTelemetry {
    /// Endpoint of every Environment without an override, and of the Unmatched artefact.
    pub endpoint: String,
    /// `grpc` or `http/protobuf`.
    pub protocol: String,
    /// Environment to endpoint.
    pub environments: BTreeMap<String, String>,
}

impl SelfTelemetry {
    /// The endpoint of an Environment (estate.md 1.4).
    pub fn endpoint_of(&self, environment: &str) -> &str {
        self.environments.get(environment).unwrap_or(&self.endpoint)
    }
}

/// A collector component with its configuration, shared or local to a Blueprint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Component {
    /// Bare name.
    pub name: Located<String>,
    /// Class.
    pub class: Class,
    /// Catalogue type, exactly as authored.
    pub kind: Located<String>,
    /// At least 1.
    pub version: u32,
    /// The owner; `None` for a local Component.
    pub owner: Option<String>,
    /// The body; `None` when absent (both emit `{}`). Always a mapping node.
    pub config: Option<Node>,
    /// File that declares it.
    pub file: Arc<str>,
}

/// What a lane entry points at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reference {
    /// A Component declared in the same Blueprint.
    Local(String),
    /// A shared Component at a pinned version.
    Pinned(Name, u32),
    /// A shared Component, whatever its version (`track: head`).
    Head(Name),
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(name) => f.write_str(name),
            Self::Pinned(id, version) => write!(f, "{id}@{version}"),
            Self::Head(id) => write!(f, "{id}"),
        }
    }
}

/// An entry of a lane or of `extensions`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneEntry {
    /// What it points at.
    pub reference: Reference,
    /// Where `component` is authored.
    pub at: Pos,
    /// Key path such as `pipelines.traces[2].component`.
    pub path: String,
}

/// A signal lane with its entries in authored order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lane {
    /// Its signal, which names the pipeline.
    pub signal: Signal,
    /// In authored order; not empty.
    pub entries: Vec<LaneEntry>,
    /// Where the lane starts.
    pub at: Pos,
}

/// `<requirement-id>@<version>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Satisfies {
    /// The part before the last `@`.
    pub requirement: String,
    /// At least 1.
    pub version: u32,
}

/// A Blueprint: Components wired into lanes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blueprint {
    /// `team/name`.
    pub id: Name,
    /// At least 1.
    pub version: Located<u32>,
    /// Owner id.
    pub owner: String,
    /// Claims, in authored order.
    pub satisfies: Vec<Satisfies>,
    /// Local Components by name.
    pub components: BTreeMap<String, Component>,
    /// Non-empty lanes in signal order.
    pub lanes: Vec<Lane>,
    /// The extensions block in authored order.
    pub extensions: Vec<LaneEntry>,
    /// Its file.
    pub file: Arc<str>,
}

/// Where a collector of a served Tier finds its gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Serving {
    /// The OpAMP endpoint written into the Supervisor artefact.
    pub endpoint: String,
}

/// A neighbour that sends to this Tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Who sends.
    pub from: String,
    /// Whether its `telecraft.*` attributes may pass.
    pub trusted: bool,
}

/// A Tier: a population of collectors and the Blueprint they run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tier {
    /// `team/name`.
    pub id: Name,
    /// Owner id.
    pub owner: Located<String>,
    /// Such as `production`.
    pub environment: Located<String>,
    /// The binding.
    pub blueprint: Located<Binding>,
    /// Attribute to value, by key; empty when the Tier has none.
    pub selector: BTreeMap<String, String>,
    /// Where `selector` is authored, if it is.
    pub selector_at: Option<Pos>,
    /// How many collectors are expected, 0 = unsaid.
    pub min_expected: u32,
    /// Present for a Tier whose Supervisor artefact is rendered.
    pub serving: Option<Serving>,
    /// In authored order.
    pub hops: Vec<Hop>,
    /// Its file.
    pub file: Arc<str>,
}

impl Tier {
    /// Untrusted when any hop is (no hops at all: not untrusted).
    pub fn is_untrusted(&self) -> bool {
        self.hops.iter().any(|hop| !hop.trusted)
    }
}

/// A Service: what flows through which Tiers, and how much it matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// `team/name`.
    pub id: Name,
    /// Owner id.
    pub owner: String,
    /// Free text; C1, C2 and C3 are ranked.
    pub class: String,
    /// Paths, each a list of Tiers.
    pub paths: Vec<Vec<Located<Name>>>,
    /// Its file.
    pub file: Arc<str>,
}

/// The enumerated form of a Cohort.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hosts {
    /// Attribute compared.
    pub attribute: String,
    /// Admitted values.
    pub values: Vec<String>,
}

/// The three forms of a Cohort; membership is their union.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cohort {
    /// Enumerated values.
    pub hosts: Option<Hosts>,
    /// Equality over all pairs; empty when absent.
    pub matches: BTreeMap<String, String>,
    /// 1..=100, 0 when absent.
    pub percent: u32,
}

/// One stage of a Rollout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    /// Whom it admits.
    pub cohort: Cohort,
    /// Least time before its advance may be proposed.
    pub soak: Duration,
    /// Where it starts.
    pub at: Pos,
}

/// The `halt` block (estate.md, decision 10), with its defaults filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Halt {
    /// 1..=100, default 10.
    pub abort_at_percent: u32,
    /// Default 90 s.
    pub dark_after: Duration,
    /// Default 0.
    pub min_seen: u32,
    /// Default 0.
    pub retry_failed: u32,
}

impl Default for Halt {
    fn default() -> Self {
        Self {
            abort_at_percent: 10,
            dark_after: Duration::from_secs(90),
            min_seen: 0,
            retry_failed: 0,
        }
    }
}

/// A Rollout: one Tier moved from one Blueprint to another, in stages. Active while its file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rollout {
    /// `team/name`.
    pub id: Name,
    /// Owner id.
    pub owner: Located<String>,
    /// The Tier it stages.
    pub tier: Located<Name>,
    /// The Tier's present binding.
    pub from: Located<Binding>,
    /// The candidate.
    pub to: Located<Binding>,
    /// Index of the active stage, from 0.
    pub stage: u32,
    /// Attributes that `percent` hashes over, in authored order.
    pub hash_attributes: Vec<String>,
    /// At least one.
    pub stages: Vec<Stage>,
    /// Seeds the bucket hash; `None` = seed 0.
    pub hash_salt: Option<String>,
    /// Attributes that identify a collector in evidence; empty = the default rule.
    pub identity: Vec<String>,
    /// Never propose while true.
    pub hold: bool,
    /// Thresholds.
    pub halt: Halt,
    /// Its file.
    pub file: Arc<str>,
}

/// Tiers, Services and Rollouts: all that serving needs of the authored files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// By id.
    pub tiers: BTreeMap<Name, Tier>,
    /// By id.
    pub services: BTreeMap<Name, Service>,
    /// By id.
    pub rollouts: BTreeMap<Name, Rollout>,
}

/// Shared Components and Blueprints, with what is to be said about their references.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blueprints {
    /// Shared Components by id.
    pub components: BTreeMap<Name, Component>,
    /// By id.
    pub blueprints: BTreeMap<Name, Blueprint>,
    /// `reference` findings: by Blueprint id, then lane, then entry.
    pub findings: Vec<Finding>,
}

/// Everything that `render` reads, apart from catalogue and policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sources {
    /// `teams.yaml`.
    pub teams: Teams,
    /// Shared Components by id.
    pub components: BTreeMap<Name, Component>,
    /// Blueprints by id.
    pub blueprints: BTreeMap<Name, Blueprint>,
    /// Tiers, Services, Rollouts.
    pub topology: Topology,
    /// `telemetry.yaml`.
    pub telemetry: SelfTelemetry,
}
