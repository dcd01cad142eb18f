//! The demo estate loads, and says what its author wrote.

use std::path::Path;
use std::time::Duration;

use render::estate::{self, Name};
use render::tree::Tree;

fn demo() -> Tree {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/estates/demo");
    Tree::read_dir(&root, "../my-estate").unwrap()
}

#[test]
fn the_topology_of_the_demo_estate_loads() {
    let topology = estate::load_topology(&demo()).unwrap();
    let tiers: Vec<&str> = topology.tiers.keys().map(Name::as_str).collect();
    assert_eq!(
        tiers,
        [
            "data-flow/gateway",
            "data-flow/gateway-staging",
            "data-flow/kafka-bridge",
            "payments/agents",
            "payments/agents-pci",
            "storefront/edge",
        ]
    );
    let gateway = &topology.tiers[&Name::new("data-flow", "gateway")];
    assert_eq!(gateway.owner.value, "gateway-owners");
    assert_eq!(gateway.blueprint.value.to_string(), "data-flow/gateway-standard@4");
    assert_eq!(gateway.selector["deployment.environment.name"], "production");
    assert_eq!(gateway.min_expected, 12);
    assert!(gateway.serving.is_some());
    assert!(gateway.is_untrusted());

    let rollout = &topology.rollouts[&Name::new("data-flow", "bridge-canary")];
    assert_eq!(rollout.stage, 1);
    assert_eq!(rollout.hash_attributes, ["service.instance.id"]);
    assert_eq!(rollout.stages.len(), 3);
    assert_eq!(rollout.stages[0].soak, Duration::from_secs(7200));
    let hosts = rollout.stages[0].cohort.hosts.as_ref().unwrap();
    assert_eq!(hosts.values, ["bridge-a1", "bridge-a2"]);
    assert_eq!(rollout.stages[2].cohort.percent, 100);
    assert_eq!(estate::rollout_findings(&topology), []);
    assert_eq!(estate::selector_findings(&topology), []);
}

#[test]
fn the_rest_of_the_demo_estate_loads() {
    let tree = demo();
    let teams = estate::load_teams(&tree).unwrap();
    assert_eq!(teams.by_id.len(), 4);
    assert_eq!(teams.owner_team["gateway-owners"], "data-flow");
    let loaded = estate::load_blueprints(&tree).unwrap();
    assert_eq!(loaded.findings, []);
    let next = &loaded.blueprints[&Name::new("data-flow", "bridge-next")];
    assert_eq!(next.version.value, 1);
    assert_eq!(next.components.keys().collect::<Vec<_>>(), ["origin", "sample"]);
    assert_eq!(next.lanes.len(), 2);
    assert_eq!(loaded.components[&Name::new("platform", "backend")].version, 5);
    let telemetry = estate::load_telemetry(&tree).unwrap();
    assert_eq!(telemetry.endpoint_of("production"), "https://telemetry.example.com:4318");
}
