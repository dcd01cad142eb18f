//! One small estate per rule, each refused with the text beside it (`error.snap`).
//!
//! Estates whose name begins with `render-` load, and are refused later.

use std::fs;
use std::path::Path;

use render::estate;
use render::problem::Refusal;
use render::tree::Tree;

#[test]
fn every_broken_estate_is_refused_as_its_golden_text_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/estates/broken");
    let mut rules: Vec<String> = fs::read_dir(&root)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|rule| !rule.starts_with("render-"))
        .collect();
    rules.sort();
    assert!(rules.len() > 90, "found only {} estates", rules.len());
    for rule in rules {
        let tree = Tree::read_dir(&root.join(&rule), "../my-estate").unwrap();
        let refusal = load(&tree).expect_err(&rule);
        assert!(!refusal.problems.is_empty(), "{rule}");
        let mut settings = insta::Settings::clone_current();
        settings.set_snapshot_path(root.join(&rule));
        settings.set_prepend_module_to_snapshot(false);
        settings.set_omit_expression(true);
        settings.bind(|| insta::assert_snapshot!("error", refusal.to_string()));
    }
}

/// What `render` loads, in its order, as far as the estate has files for it.
fn load(tree: &Tree) -> Result<(), Refusal> {
    let has = |part: &str| tree.files.keys().any(|path| path.contains(part));
    if has("teams.yaml") {
        estate::load_teams(tree)?;
    }
    if has("/components/") || has("/blueprints/") {
        estate::load_blueprints(tree)?;
    }
    if has("/tiers/") || has("/services/") || has("/rollouts/") {
        estate::load_topology(tree)?;
    }
    if has("telemetry.yaml") {
        estate::load_telemetry(tree)?;
    }
    Ok(())
}
