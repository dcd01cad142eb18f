//! What `render` writes: sources, Catalogue and policy in, files and findings out
//! (estate.md, section 2).
//!
//! A pure function of its arguments. Its cost grows with the Tiers and what they bind: indices
//! from a Tier to its Rollout and its Services are built once.

mod codeowners;
mod document;
mod floor;
mod header;
mod lanes;
mod resolve;

use std::collections::BTreeMap;

pub use header::{Commit, CommitError, is_generated, rendered_commit};

use crate::artefact::Artefact;
use crate::estate::{self, Binding, Name, Rollout, Service, Sources, Tier};
use crate::finding::{Finding, FindingKind, Subject};
use crate::policy::{Catalogue, Palettes, Policy};
use crate::problem::{Problem, Refusal, Spot};

/// Where the Unmatched artefact is written.
pub const UNMATCHED_PATH: &str = "rendered/_estate/unmatched.yaml";

/// Where the code owners are written.
pub const CODEOWNERS_PATH: &str = "CODEOWNERS";

/// Every file of a render, held in memory before any is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rendered {
    /// Path relative to the estate to contents.
    pub files: BTreeMap<String, Vec<u8>>,
    /// Per Tier in id order: binding, floor, the same of the candidate, Rollout, artefact; then
    /// the estate's own. Those of loading are not among them.
    pub findings: Vec<Finding>,
}

/// Renders an estate at a commit.
///
/// # Errors
/// All problems of all Tiers in one [`Refusal`] (estate.md 2.7, last paragraph).
pub fn render(
    sources: &Sources,
    catalogue: &Catalogue,
    policy: &Policy,
    commit: &Commit,
) -> Result<Rendered, Refusal> {
    let mut compiler = Compiler {
        sources,
        catalogue,
        palettes: Palettes::resolve(&sources.teams, policy, catalogue),
        services: services_by_tier(sources),
        commit,
        rendered: Rendered::default(),
        problems: Vec::new(),
    };
    let rollouts: BTreeMap<&Name, &Rollout> =
        sources.topology.rollouts.values().map(|r| (&r.tier.value, r)).collect();
    let mut rollout_findings: BTreeMap<Subject, Vec<Finding>> = BTreeMap::new();
    for finding in estate::rollout_findings(&sources.topology) {
        rollout_findings.entry(finding.subject.clone()).or_default().push(finding);
    }
    for tier in sources.topology.tiers.values() {
        compiler.tier(tier, rollouts.get(&tier.id).copied());
        let of_tier = rollout_findings.remove(&Subject::Tier(tier.id.clone()));
        compiler.rendered.findings.extend(of_tier.unwrap_or_default());
    }
    compiler.rendered.findings.extend(rollout_findings.into_values().flatten());
    compiler.estate();
    if compiler.problems.is_empty() {
        Ok(compiler.rendered)
    } else {
        Err(Refusal {
            header: "the estate cannot be rendered:".to_owned(),
            problems: compiler.problems,
        })
    }
}

/// A render under way.
struct Compiler<'s> {
    sources: &'s Sources,
    catalogue: &'s Catalogue,
    palettes: Palettes<'s>,
    services: BTreeMap<&'s Name, Vec<&'s Service>>,
    commit: &'s Commit,
    rendered: Rendered,
    problems: Vec<Problem>,
}

/// Which of a Tier's bindings is being rendered.
#[derive(Clone, Copy)]
enum Arm<'s> {
    Base(&'s Tier),
    Next(&'s Tier, &'s Rollout),
}

impl<'s> Arm<'s> {
    fn tier(self) -> &'s Tier {
        match self {
            Self::Base(tier) | Self::Next(tier, _) => tier,
        }
    }

    fn binding(self) -> &'s Binding {
        match self {
            Self::Base(tier) => &tier.blueprint.value,
            Self::Next(_, rollout) => &rollout.to.value,
        }
    }

    /// Where the binding is authored.
    fn binding_spot(self) -> Spot {
        let (file, at, path) = match self {
            Self::Base(tier) => (&tier.file, tier.blueprint.at, "blueprint"),
            Self::Next(_, rollout) => (&rollout.file, rollout.to.at, "to"),
        };
        Spot { file: file.clone(), pos: Some(at), path: path.to_owned() }
    }

    /// What problems begin with.
    fn label(self) -> String {
        match self {
            Self::Base(tier) => format!("tier \"{}\"", tier.id),
            Self::Next(tier, rollout) => {
                format!("tier \"{}\", rollout \"{}\"", tier.id, rollout.id)
            }
        }
    }

    fn path(self) -> String {
        match self {
            Self::Base(tier) => format!("rendered/{}.yaml", tier.id),
            Self::Next(tier, _) => format!("rendered/{}@next.yaml", tier.id),
        }
    }
}

impl<'s> Compiler<'s> {
    fn tier(&mut self, tier: &'s Tier, rollout: Option<&'s Rollout>) {
        if !tier.environment.value.chars().all(header::may_stand_in_a_comment) {
            let spot = Spot {
                file: tier.file.clone(),
                pos: Some(tier.environment.at),
                path: "environment".to_owned(),
            };
            self.refuse(
                format!(
                    "tier \"{}\": its environment holds a character that cannot stand in a comment",
                    tier.id
                ),
                Some(spot),
                "the environment is written into a comment: keep it to one line of printable text",
            );
            return;
        }
        let base = self.arm(Arm::Base(tier));
        if base.is_some()
            && let Some(serving) = &tier.serving
        {
            let text = document::supervisor(tier, &serving.endpoint, self.commit);
            self.write(format!("rendered/{}.supervisor.yaml", tier.id), text, Some(tier));
        }
        let next = rollout.and_then(|rollout| self.arm(Arm::Next(tier, rollout)));
        if let (Some(base), Some(next), Some(rollout)) = (base, next, rollout) {
            self.compare(tier, rollout, base, next);
        }
    }

    /// Renders one binding of a Tier; `None` when it was refused.
    fn arm(&mut self, arm: Arm<'s>) -> Option<String> {
        let before = self.problems.len();
        let Some(blueprint) = self.sources.blueprints.get(&arm.binding().blueprint) else {
            let id = &arm.binding().blueprint;
            self.refuse(
                format!("{}: Blueprint {id} does not exist", arm.label()),
                Some(arm.binding_spot()),
                &format!(
                    "author teams/{}/blueprints/{}.yaml, or bind one that exists",
                    id.team(),
                    id.name()
                ),
            );
            return None;
        };
        if blueprint.version.value != arm.binding().version {
            let text = format!(
                "binds {}, but the Blueprint's head is version {}: the artefact is rendered from \
                 head",
                arm.binding(),
                blueprint.version.value
            );
            self.find(arm.tier(), FindingKind::Binding, None, text);
        }
        let resolved = self.resolve(arm, blueprint);
        self.check_floors(arm, blueprint);
        if self.problems.len() > before {
            return None;
        }
        let pipelines = self.pipelines(arm, blueprint, &resolved);
        if self.problems.len() > before {
            return None;
        }
        let endpoint = self.sources.telemetry.endpoint_of(&arm.tier().environment.value);
        let text = document::tier(
            arm.tier(),
            arm.binding(),
            &resolved,
            &pipelines,
            &document::Telemetry {
                endpoint,
                protocol: &self.sources.telemetry.protocol,
                commit: self.commit,
            },
        );
        self.write(arm.path(), text.clone(), Some(arm.tier()));
        Some(text)
    }

    /// A candidate that configures a collector just as its base does stages nothing
    /// (estate.md, decision 9).
    fn compare(&mut self, tier: &Tier, rollout: &Rollout, base: String, next: String) {
        let content = |text: String| Artefact::new(text).ok().map(|a| a.content_hash());
        if content(base) == content(next) {
            let text = format!(
                "rollout \"{}\" stages nothing: {} and {} render to the same content, so everybody \
                 is served the base",
                rollout.id, rollout.from.value, rollout.to.value
            );
            self.find(tier, FindingKind::Artefact, None, text);
        }
    }

    /// What is rendered once: Unmatched and CODEOWNERS.
    fn estate(&mut self) {
        let telemetry = document::Telemetry {
            // Unmatched has no Environment, and an override needs the name of one.
            endpoint: self.sources.telemetry.endpoint_of(""),
            protocol: &self.sources.telemetry.protocol,
            commit: self.commit,
        };
        self.write(UNMATCHED_PATH.to_owned(), document::unmatched(&telemetry), None);
        let owners = codeowners::codeowners(&self.sources.teams, &mut self.problems);
        self.write(CODEOWNERS_PATH.to_owned(), owners, None);

        let selectors = estate::selector_findings(&self.sources.topology);
        self.rendered.findings.extend(selectors);
    }

    fn write(&mut self, path: String, text: String, tier: Option<&Tier>) {
        if self.rendered.files.contains_key(&path) {
            let spot =
                tier.map(|tier| Spot { file: tier.file.clone(), pos: None, path: String::new() });
            self.refuse(format!("two objects would write {path}"), spot, "rename one of them");
            return;
        }
        self.rendered.files.insert(path, text.into_bytes());
    }

    fn find(&mut self, tier: &Tier, kind: FindingKind, lane: Option<&'static str>, text: String) {
        let subject = Subject::Tier(tier.id.clone());
        self.rendered.findings.push(Finding { kind, subject, lane, text });
    }

    fn refuse(&mut self, text: String, spot: Option<Spot>, help: &str) {
        self.problems.push(Problem { text, spot, help: help.to_owned() });
    }
}

/// The Services whose paths contain each Tier, in Service id order.
fn services_by_tier(sources: &Sources) -> BTreeMap<&Name, Vec<&Service>> {
    let mut by_tier: BTreeMap<&Name, Vec<&Service>> = BTreeMap::new();
    for service in sources.topology.services.values() {
        for tier in service.paths.iter().flatten() {
            let services = by_tier.entry(&tier.value).or_default();
            if services.last().is_none_or(|last| last.id != service.id) {
                services.push(service);
            }
        }
    }
    by_tier
}
