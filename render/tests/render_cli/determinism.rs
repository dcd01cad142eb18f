//! Rendering depends on what is authored, not on how it is laid out (R01; estate.md 2.8).

use std::sync::Arc;

use proptest::prelude::*;
use render::compile::{self, Commit, Rendered};
use render::estate;
use render::policy::{Catalogue, Policy};
use render::tree::Tree;

/// One Tier: which Blueprint of its team it binds, its hops and its Environment.
#[derive(Clone, Debug)]
struct Plan {
    team: usize,
    processors: Vec<u8>,
    trusted: Option<bool>,
    production: bool,
    served: bool,
    staged: bool,
}

fn any_plan() -> impl Strategy<Value = Plan> {
    let bools = (any::<Option<bool>>(), any::<bool>(), any::<bool>(), any::<bool>());
    (0..3usize, proptest::collection::vec(any::<u8>(), 0..4), bools).prop_map(
        |(team, processors, (trusted, production, served, staged))| Plan {
            team,
            processors,
            trusted,
            production,
            served,
            staged,
        },
    )
}

const TEAMS: [&str; 3] = ["a", "b-c", "d"];

/// The estate of these Tiers. `flipped` lays the same estate out differently: keys in another
/// order, other quotes, comments.
fn tree(plans: &[Plan], flipped: bool) -> Tree {
    let mut tree = Tree::default();
    let mut add = |path: String, lines: &[String]| {
        let mut lines = lines.to_vec();
        if flipped {
            lines.reverse();
            lines.insert(0, "# Laid out otherwise.\n".to_owned());
        }
        tree.files.insert(path, Arc::from(lines.concat().into_bytes()));
    };
    let teams: String =
        TEAMS.iter().map(|team| format!("  - {{id: {team}, owners: [{team}-owner]}}\n")).collect();
    add("teams.yaml".to_owned(), &[format!("teams:\n{teams}")]);
    add(
        "telemetry.yaml".to_owned(),
        &["self_telemetry: {endpoint: https://all.example:4318}\n".to_owned()],
    );
    for (index, plan) in plans.iter().enumerate() {
        let team = TEAMS[plan.team];
        for (name, processors) in [("now", &plan.processors[..]), ("next", &[])] {
            let config = |value: &u8| match flipped {
                true => format!("{{\"b\": 'text {value}', a: {value}}}"),
                false => format!("{{a: {value}, b: text {value}}}"),
            };
            let mut components = "components:\n  - {name: in, class: receiver, type: otlp, version: 1}\n  - {name: out, class: exporter, type: debug, version: 1}\n".to_owned();
            let mut lane = "pipelines:\n  traces:\n    - component: in\n".to_owned();
            for (nth, value) in processors.iter().enumerate() {
                components.push_str(&format!(
                    "  - {{name: p{nth}, class: processor, type: batch, version: 1, config: {}}}\n",
                    config(value)
                ));
                lane.push_str(&format!("    - component: p{nth}\n"));
            }
            lane.push_str("    - component: out\n");
            add(
                format!("teams/{team}/blueprints/{name}{index}.yaml"),
                &[
                    format!("name: {name}{index}\n"),
                    "version: 1\n".to_owned(),
                    format!("owner: {team}-owner\n"),
                    components,
                    lane,
                ],
            );
        }
        let mut lines = vec![
            format!("owner: {team}-owner\n"),
            format!("environment: {}\n", if plan.production { "production" } else { "staging" }),
            format!("blueprint: {team}/now{index}@1\n"),
            format!("selector: {{service.name: s{index}}}\n"),
        ];
        if let Some(trusted) = plan.trusted {
            lines.push(format!("hops: [{{from: x, trusted: {trusted}}}]\n"));
        }
        if plan.served {
            lines.push("serving: {endpoint: wss://opamp.example}\n".to_owned());
        }
        add(format!("teams/{team}/tiers/t{index}.yaml"), &lines);
        if plan.staged {
            add(
                format!("teams/{team}/rollouts/r{index}.yaml"),
                &[
                    format!("owner: {team}-owner\n"),
                    format!("tier: {team}/t{index}\n"),
                    format!("from: {team}/now{index}@1\n"),
                    format!("to: {team}/next{index}@1\n"),
                    "hash_attributes: [service.instance.id]\n".to_owned(),
                    "stages: [{cohort: {percent: 100}}]\n".to_owned(),
                ],
            );
        }
    }
    tree
}

fn render(tree: &Tree) -> Rendered {
    let catalogue =
        br#"{"format_version": 1, "source": {"repository": "r", "ref": "v"}, "components": [
        {"class": "receiver", "type": "otlp", "module": "m", "stability": {"traces": "stable"}},
        {"class": "processor", "type": "batch", "module": "m", "stability": {"traces": "beta"}},
        {"class": "exporter", "type": "debug", "module": "m", "stability": {"traces": "alpha"}}]}"#;
    let teams = estate::load_teams(tree).expect("good teams");
    let catalogue = Catalogue::parse(catalogue, "catalogue.json").expect("a good catalogue");
    let policy = Policy::load(tree, &teams, &catalogue).expect("no policy");
    let (sources, _) = estate::load_sources(tree, teams).expect("good sources");
    let commit = Commit::parse("abcdef0").expect("a commit");
    compile::render(&sources, &catalogue, &policy, &commit).expect("it renders")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_same_estate_renders_to_the_same_bytes(
        plans in proptest::collection::vec(any_plan(), 1..6),
    ) {
        let first = render(&tree(&plans, false));
        prop_assert_eq!(&render(&tree(&plans, false)), &first);
        prop_assert_eq!(&render(&tree(&plans, true)), &first);
        let served = plans.iter().filter(|plan| plan.served).count();
        let staged = plans.iter().filter(|plan| plan.staged).count();
        prop_assert_eq!(first.files.len(), plans.len() + served + staged + 2);
    }
}
