//! Estates of any size, authored by rule: the same size gives the same bytes.

use std::fmt::Write as _;
use std::sync::Arc;

use render::compile::{Commit, Rendered, render};
use render::estate::{self, Sources};
use render::policy::{Catalogue, Policy};
use render::problem::Refusal;
use render::tree::Tree;

/// How large an estate is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Tiers, each with a selector; together they use [`SHAPES`] distinct sets of names, if there
    /// are that many Tiers.
    pub tiers: usize,
    /// Rollouts, on Tiers spread evenly; at most one per Tier.
    pub rollouts: usize,
    /// Blueprints; at least two per team.
    pub blueprints: usize,
}

impl Size {
    /// The estate of figure P8.
    pub const P8: Self = Self { tiers: 10_000, rollouts: 1_000, blueprints: 2_000 };

    /// This many Tiers, with Rollouts and Blueprints in the proportion of [`Size::P8`].
    pub fn of(tiers: usize) -> Self {
        Self { tiers, rollouts: tiers / 10, blueprints: (tiers / 5).max(2) }
    }

    /// A hundred, fewer where there are not two Blueprints for each.
    pub fn teams(self) -> usize {
        (self.blueprints / 2).clamp(1, 100)
    }
}

/// Distinct sets of names among the selectors of a synthetic estate.
pub const SHAPES: usize = 8;

/// A commit to render at.
pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// Names that a selector may hold beside `service.name`; each subset is one shape.
const EXTRA: [&str; 3] = ["deployment.environment.name", "k8s.cluster.name", "cloud.region"];

const CLASSES: [(&str, &str, &str); 5] = [
    ("receiver", "otlp", "in"),
    ("processor", "memory_limiter", "limit"),
    ("processor", "batch", "batch"),
    ("exporter", "otlp_http", "backend"),
    ("extension", "health_check", "health"),
];

fn team(size: Size, index: usize) -> String {
    format!("team-{:03}", index % size.teams())
}

fn environment(tier: usize) -> &'static str {
    ["production", "staging", "development"][tier % 3]
}

/// The value that the collectors of a Tier report for one of [`EXTRA`].
fn extra(tier: usize, name: usize) -> String {
    format!("{}-{}", ["env", "cluster", "region"][name], tier % (3 + name))
}

/// Names and values.
pub type Attributes = Vec<(String, String)>;

/// Non-identifying and identifying attributes.
pub type Description = (Attributes, Attributes);

/// What a collector of this Tier reports: twelve attributes.
/// `number` tells the collectors of one Tier apart.
pub fn description(tier: usize, number: usize) -> Description {
    let pair = |name: &str, value: String| (name.to_owned(), value);
    let identifying = vec![
        pair("service.name", service_name(tier)),
        pair("service.instance.id", format!("01890a5d-ac96-774b-bcce-{number:012x}")),
        pair("service.version", "0.158.0".to_owned()),
        pair("service.namespace", "telemetry".to_owned()),
    ];
    let mut non_identifying = vec![
        pair("host.name", format!("host-{number}")),
        pair("os.type", "linux".to_owned()),
        pair("os.description", "Debian GNU/Linux 13".to_owned()),
        pair("host.arch", "amd64".to_owned()),
        pair("process.runtime.name", "go".to_owned()),
    ];
    for (index, name) in EXTRA.iter().enumerate() {
        non_identifying.push(pair(name, extra(tier, index)));
    }
    (non_identifying, identifying)
}

fn service_name(tier: usize) -> String {
    format!("collector-{tier:05}")
}

/// The authored files.
pub fn authored(size: Size) -> Tree {
    let mut tree = Tree { label: "synthetic".to_owned(), ..Tree::default() };
    let mut put = |path: String, text: String| {
        tree.files.insert(path, Arc::from(text.into_bytes()));
    };
    let mut teams = "teams:\n".to_owned();
    for index in 0..size.teams() {
        let team = team(size, index);
        let _ = write!(teams, "  - id: {team}\n    owners: [{team}-owners]\n");
        for (class, kind, name) in CLASSES {
            put(
                format!("teams/{team}/components/{name}.yaml"),
                component(&team, class, kind, name),
            );
        }
        put(format!("teams/{team}/services/main.yaml"), service(size, index));
    }
    put("teams.yaml".to_owned(), teams);
    put(
        "telemetry.yaml".to_owned(),
        "self_telemetry:\n  endpoint: https://telemetry.example.com:4318\n".to_owned(),
    );
    for index in 0..size.blueprints {
        let path = format!("teams/{}/blueprints/bp-{index:04}.yaml", team(size, index));
        put(path, blueprint(size, index));
    }
    for index in 0..size.tiers {
        put(format!("teams/{}/tiers/t-{index:05}.yaml", team(size, index)), tier(size, index));
    }
    let step = size.tiers.checked_div(size.rollouts).unwrap_or_default();
    for index in 0..size.rollouts {
        let of = index * step;
        put(format!("teams/{}/rollouts/r-{index:04}.yaml", team(size, of)), rollout(size, of));
    }
    tree
}

fn component(team: &str, class: &str, kind: &str, name: &str) -> String {
    let config = match name {
        "in" => {
            "  protocols:\n    grpc:\n      endpoint: 0.0.0.0:4317\n    http:\n      endpoint: 0.0.0.0:4318\n"
        }
        "limit" => "  check_interval: 1s\n  limit_percentage: 80\n  spike_limit_percentage: 20\n",
        "batch" => "  send_batch_size: 8192\n  timeout: 200ms\n",
        "backend" => {
            "  endpoint: https://backend.example.com:4318\n  compression: zstd\n  retry_on_failure:\n    \
             enabled: true\n    max_elapsed_time: 300s\n  sending_queue:\n    queue_size: 5000\n"
        }
        _ => "  endpoint: 0.0.0.0:13133\n",
    };
    format!(
        "name: {name}\nclass: {class}\ntype: {kind}\nversion: 1\nowner: {team}-owners\nconfig:\n{config}"
    )
}

/// The team's first Tiers, in one path.
fn service(size: Size, index: usize) -> String {
    let own = (index..size.tiers).step_by(size.teams()).take(3);
    let through: Vec<String> =
        own.map(|tier| format!("{}/t-{tier:05}", team(size, tier))).collect();
    let paths = if through.is_empty() {
        String::new()
    } else {
        format!("paths:\n  - through: [{}]\n", through.join(", "))
    };
    format!("owner: {}-owners\nclass: C2\n{paths}", team(size, index))
}

fn blueprint(size: Size, index: usize) -> String {
    let team = team(size, index);
    let mut text = format!(
        "name: bp-{index:04}\nversion: 2\nowner: {team}-owners\ncomponents:\n  - name: origin\n    \
         class: processor\n    type: resource\n    version: 1\n    config:\n      attributes:\n        \
         - key: blueprint\n          value: bp-{index:04}\n          action: upsert\n\
         pipelines:\n"
    );
    for lane in ["traces", "metrics", "logs"] {
        let _ = writeln!(text, "  {lane}:");
        for name in ["in", "limit"] {
            let _ = writeln!(text, "    - component: {team}/{name}@1");
        }
        let _ = writeln!(text, "    - component: origin");
        for name in ["batch", "backend"] {
            let _ = writeln!(text, "    - component: {team}/{name}@1");
        }
    }
    let _ = writeln!(text, "extensions:\n  - component: {team}/health@1");
    text
}

/// A Blueprint of the Tier's own team; the next one is another.
fn bound(size: Size, tier: usize, next: usize) -> String {
    let teams = size.teams();
    let own = tier % teams;
    // Blueprints own, own + teams, own + 2 * teams, … belong to this team.
    let count = (size.blueprints - own).div_ceil(teams);
    let nth = (tier / teams + next) % count;
    format!("{}/bp-{:04}@2", team(size, tier), own + nth * teams)
}

fn tier(size: Size, index: usize) -> String {
    let mut text = format!(
        "owner: {}-owners\nenvironment: {}\nblueprint: {}\nselector:\n  service.name: {}\n",
        team(size, index),
        environment(index),
        bound(size, index, 0),
        service_name(index),
    );
    for (number, name) in EXTRA.iter().enumerate() {
        if (index % SHAPES) >> number & 1 == 1 {
            let _ = writeln!(text, "  {name}: {}", extra(index, number));
        }
    }
    text.push_str("serving:\n  endpoint: wss://opamp.example.com/v1/opamp\n");
    text
}

fn rollout(size: Size, tier: usize) -> String {
    let team = team(size, tier);
    format!(
        "owner: {team}-owners\ntier: {team}/t-{tier:05}\nfrom: {}\nto: {}\nstage: 1\n\
         hash_attributes: [service.instance.id, host.name]\nstages:\n  - cohort:\n      hosts:\n        \
         attribute: host.name\n        values: [host-1, host-2]\n    soak: 2h\n  - cohort:\n      \
         percent: 25\n    soak: 24h\n  - cohort:\n      percent: 100\n    soak: 24h\n",
        bound(size, tier, 0),
        bound(size, tier, 1),
    )
}

/// A Catalogue of the components that synthetic estates use.
///
/// # Errors
/// Those of [`Catalogue::parse`], which this one does not have.
pub fn catalogue() -> Result<Catalogue, Refusal> {
    let of_class = |class: &str, kind: &str| {
        let stability = if class == "extension" {
            r#""extension": "beta""#
        } else {
            r#""traces": "stable", "metrics": "stable", "logs": "stable""#
        };
        format!(
            r#"{{"class": "{class}", "type": "{kind}", "module": "example.com/{class}/{kind}",
                "stability": {{{stability}}}}}"#
        )
    };
    let mut components: Vec<String> =
        CLASSES.iter().map(|(class, kind, _)| of_class(class, kind)).collect();
    components.push(of_class("processor", "resource"));
    let text = format!(
        r#"{{"format_version": 1, "source": {{"repository": "example/synthetic", "ref": "v1"}},
            "components": [{}]}}"#,
        components.join(", ")
    );
    Catalogue::parse(text.as_bytes(), "synthetic-catalogue.json")
}

/// Everything that is loaded before a render.
///
/// # Errors
/// A refusal, which a synthetic estate does not meet.
pub fn load(tree: &Tree, catalogue: &Catalogue) -> Result<(Sources, Policy), Refusal> {
    let teams = estate::load_teams(tree)?;
    let policy = Policy::load(tree, &teams, catalogue)?;
    let (sources, _) = estate::load_sources(tree, teams)?;
    Ok((sources, policy))
}

/// Renders at [`COMMIT`].
///
/// # Errors
/// A refusal, which a synthetic estate does not meet.
pub fn rendered(
    sources: &Sources,
    catalogue: &Catalogue,
    policy: &Policy,
) -> Result<Rendered, Refusal> {
    let commit = Commit::parse(COMMIT)
        .map_err(|error| Refusal { header: error.to_string(), problems: Vec::new() })?;
    render(sources, catalogue, policy, &commit)
}

/// The whole estate as it would be committed: authored files and rendered tree.
///
/// # Errors
/// A refusal, which a synthetic estate does not meet.
pub fn committed(size: Size) -> Result<Tree, Refusal> {
    let mut tree = authored(size);
    let catalogue = catalogue()?;
    let (sources, policy) = load(&tree, &catalogue)?;
    let files = rendered(&sources, &catalogue, &policy)?.files;
    tree.files.extend(files.into_iter().map(|(path, bytes)| (path, Arc::from(bytes))));
    Ok(tree)
}
