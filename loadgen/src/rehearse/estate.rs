//! The estate on the desk: copied, shortened to seconds, and rendered again.

use std::fs;
use std::path::Path;
use std::time::Duration;

use render::compile::{self, Commit};
use render::estate;
use render::policy::{Catalogue, Policy};
use render::tree::Tree;

use super::Trouble;
use super::repo::{remove, write};
use super::scenario::RolloutSpec;
use crate::model::Model;

/// Directory levels of an estate, as many as anybody needs.
const DEPTH_MAX: u32 = 16;

/// Copies a directory, without what git keeps there.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<(), Trouble> {
    let cannot = |error: std::io::Error| Trouble::Cannot(format!("{}: {error}", from.display()));
    walk(from, to, DEPTH_MAX).map_err(cannot)
}

fn walk(from: &Path, to: &Path, depth: u32) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if source.is_dir() {
            if depth == 0 {
                return Err(std::io::Error::other("too deep"));
            }
            if entry.file_name() != ".git" {
                walk(&source, &target, depth - 1)?;
            }
        } else {
            fs::copy(&source, &target)?;
        }
    }
    Ok(())
}

/// Where a Rollout is authored.
pub(crate) fn rollout_file(rollout: &str) -> Result<String, Trouble> {
    match rollout.split_once('/') {
        Some((team, name)) => Ok(format!("teams/{team}/rollouts/{name}.yaml")),
        None => Err(Trouble::Cannot(format!("{rollout} is not team/name"))),
    }
}

/// Takes the Rollout's file out of the estate and gives its text: as it is there, or with other
/// stages.
pub(crate) fn take_out(
    root: &Path,
    rollout: &str,
    spec: Option<&RolloutSpec>,
) -> Result<String, Trouble> {
    let file = rollout_file(rollout)?;
    let text = match spec {
        Some(spec) => staged(root, rollout, spec)?,
        None => fs::read_to_string(root.join(&file))
            .map_err(|error| Trouble::Cannot(format!("{file}: {error}")))?,
    };
    remove(root, &file)?;
    Ok(text)
}

/// The Rollout's file with the bindings that it has and these stages.
fn staged(root: &Path, rollout: &str, spec: &RolloutSpec) -> Result<String, Trouble> {
    let tree = read(root)?;
    let topology = estate::load_topology(&tree).map_err(|error| cannot(&error))?;
    let found = topology.rollouts.values().find(|found| found.id.as_str() == rollout);
    let Some(found) = found else {
        return Err(Trouble::Cannot(format!("the estate has no Rollout {rollout}")));
    };
    let mut text = format!(
        "# A rehearsal: seconds in place of hours.\nowner: {}\ntier: {}\nfrom: {}\nto: {}\n\nstage: {}  # the active one, from 0\nhash_attributes: [{}]\n",
        found.owner.value,
        found.tier.value,
        found.from.value,
        found.to.value,
        spec.stage,
        found.hash_attributes.join(", "),
    );
    if spec.hold {
        text.push_str("hold: true\n");
    }
    text.push_str(&format!("halt:\n  dark_after: {}\n", millis(spec.dark_after)));
    if let Some(percent) = spec.abort_at_percent {
        text.push_str(&format!("  abort_at_percent: {percent}\n"));
    }
    if let Some(least) = spec.min_seen {
        text.push_str(&format!("  min_seen: {least}\n"));
    }
    text.push_str("stages:\n");
    for cohort in &spec.cohorts {
        text.push_str(&format!("  - cohort: {cohort}\n    soak: {}\n", millis(spec.soak)));
    }
    Ok(text)
}

fn millis(duration: Duration) -> String {
    format!("{}ms", duration.as_millis())
}

/// Renders at the commit that the tree carries, and removes what is no longer rendered.
pub(crate) fn render(root: &Path, catalogue: &str) -> Result<(), Trouble> {
    let tree = read(root)?;
    let refused = |error: render::problem::Refusal| cannot(&error);
    let teams = estate::load_teams(&tree).map_err(refused)?;
    let bytes = fs::read(root.join(catalogue))
        .map_err(|error| Trouble::Cannot(format!("{catalogue}: {error}")))?;
    let catalogue = Catalogue::parse(&bytes, catalogue).map_err(refused)?;
    let policy = Policy::load(&tree, &teams, &catalogue).map_err(refused)?;
    let (sources, _) = estate::load_sources(&tree, teams).map_err(refused)?;
    let unmatched = tree.get(compile::UNMATCHED_PATH);
    let commit = unmatched.and_then(|bytes| compile::rendered_commit(bytes));
    let commit = commit.ok_or_else(|| {
        Trouble::Cannot("the estate is not rendered: run `render` in it".to_owned())
    })?;
    let commit = Commit::parse(&commit).map_err(|error| cannot(&error))?;
    let rendered = compile::render(&sources, &catalogue, &policy, &commit).map_err(refused)?.files;
    for (path, bytes) in &rendered {
        write(root, path, &String::from_utf8_lossy(bytes))?;
    }
    for path in tree.files.keys().filter(|path| path.starts_with("rendered/")) {
        if !rendered.contains_key(path) {
            remove(root, path)?;
        }
    }
    Ok(())
}

/// What the plain model says of it.
pub(crate) fn model(root: &Path) -> Result<Model, Trouble> {
    Model::read(&read(root)?).map_err(|error| cannot(&error))
}

fn read(root: &Path) -> Result<Tree, Trouble> {
    Tree::read_dir(root, "the estate").map_err(|error| cannot(&error))
}

fn cannot(error: &dyn std::fmt::Display) -> Trouble {
    Trouble::Cannot(error.to_string())
}
