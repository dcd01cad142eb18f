//! `gateway rollout propose <team/name>`: what a gateway with `--propose` would push for the
//! verdict as it is now, over the estate as it is here. It pushes nothing and writes no file.

use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Args;
use render::problem::printable;
use render::rollout::bundle::Bundle;
use render::rollout::proposal::{Change, Key, Kind, Request, bundle_path, propose};
use render::rollout::report::RolloutReport;
use render::rollout::verdict::{self, Told};
use render::tree::Tree;
use serde_json::{Value, json};

use super::client::{Client, Connect};
use super::out::Out;
use super::style::clean;
use super::{Exit, Format, Output, RunError, diff, json, out, rollout_id};
use crate::source::SourceError;

/// Bytes of a Catalogue that are read.
const CATALOGUE_BYTES_MAX: u64 = 64 << 20;

/// Arguments of `gateway rollout propose`.
#[derive(Debug, Args)]
pub struct ProposeArgs {
    /// The Rollout, team/name.
    #[arg(value_name = "TEAM/NAME", value_parser = rollout_id)]
    pub rollout: String,

    /// The estate, at the commit that the gateway serves.
    #[arg(long, value_name = "DIR")]
    pub estate: PathBuf,

    /// The Catalogue that the estate is rendered with.
    #[arg(long, value_name = "FILE")]
    pub catalogue: PathBuf,

    #[command(flatten)]
    #[expect(missing_docs, reason = "the flattened type tells")]
    pub output: Output,

    #[command(flatten)]
    #[expect(missing_docs, reason = "the flattened type tells")]
    pub connect: Connect,
}

/// Exits as the verdict does: 0 for an advance or a complete, 1 for an abort or a block, 3 while
/// it holds, 4 when it is inconclusive.
///
/// # Errors
/// When there is no verdict, or the estate here is not the one that was judged.
pub async fn run(arguments: ProposeArgs) -> Result<Exit, RunError> {
    let client = Client::new(&arguments.connect)?;
    let report: RolloutReport =
        client.get(&format!("/api/v1/rollouts/{}", arguments.rollout)).await?;
    let exit = exit(report.verdict.kind);
    let Some(kind) = Kind::of(report.verdict.kind) else {
        let (verdict, why) = (report.verdict.kind.label(), &report.verdict.why);
        out::tell(&format!("nothing to propose for {}: {verdict}: {why}", report.rollout));
        return Ok(exit);
    };
    let label = arguments.estate.display().to_string();
    let tree = Tree::read_dir(&arguments.estate, &label).map_err(SourceError::from)?;
    let catalogue = read_catalogue(&arguments.catalogue)?;
    let internal = |error: &dyn std::fmt::Display| RunError::Internal(error.to_string());
    let evidence = Bundle::of(&report)
        .and_then(|bundle| bundle.to_canonical_json())
        .map_err(|error| internal(&error))?;
    let key = Key {
        kind,
        rollout: report.rollout.clone(),
        stage: report.terms.stage,
        candidate: report.candidate.clone(),
        origin: report.origin.clone(),
        since_ms: (report.times.stage_since == Told::History)
            .then_some(report.times.stage_since_ms),
    };
    let change = propose(&Request {
        kind,
        report: &report,
        tree: &tree,
        folder: "",
        catalogue: (&arguments.catalogue.display().to_string(), &catalogue),
        key: &key,
        evidence: &evidence,
    })
    .map_err(|error| RunError::Proposal(error.to_string()))?;
    let shown = match arguments.output.format {
        Format::Text => text(&change, &tree),
        Format::Json => json::pretty(&value(&change)),
    };
    Out::new().print(&shown)?;
    Ok(exit)
}

fn exit(kind: verdict::Kind) -> Exit {
    match kind {
        verdict::Kind::Advance | verdict::Kind::Complete => Exit::Good,
        verdict::Kind::Abort | verdict::Kind::Blocked => Exit::Bad,
        verdict::Kind::Hold => Exit::Undecided,
        verdict::Kind::Inconclusive => Exit::Inconclusive,
    }
}

fn read_catalogue(file: &Path) -> Result<Vec<u8>, RunError> {
    let mut bytes = Vec::new();
    let opened = std::fs::File::open(file);
    opened
        .and_then(|open| open.take(CATALOGUE_BYTES_MAX).read_to_end(&mut bytes))
        .map_err(|error| RunError::Catalogue { file: file.to_owned(), error })?;
    Ok(bytes)
}

/// Branch, message and diff. The evidence is one long line, so only its size is shown.
fn text(change: &Change, tree: &Tree) -> String {
    let mut text = format!("branch {}\n\n", clean(&change.branch));
    for line in change.message().lines() {
        let line = format!("    {}", printable(line));
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text.push('\n');
    let evidence = bundle_path(&change.key.rollout);
    for (path, contents) in &change.files {
        if *path == evidence {
            let bytes = contents.as_ref().map_or(0, Vec::len);
            text.push_str(&format!("new or changed: {} ({bytes} bytes)\n", clean(path)));
            continue;
        }
        let before = tree.get(path).map(|bytes| String::from_utf8_lossy(bytes));
        let after = contents.as_ref().map(|bytes| String::from_utf8_lossy(bytes));
        for line in diff::unified(path, before.as_deref(), after.as_deref()).lines() {
            text.push_str(&printable(line));
            text.push('\n');
        }
    }
    text
}

fn value(change: &Change) -> Value {
    let files = change.files.iter().map(|(path, contents)| {
        let contents = contents.as_ref().map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        (path.clone(), contents.into())
    });
    json!({
        "kind": change.kind.label(),
        "branch": change.branch,
        "title": change.title,
        "message": change.message(),
        "files": files.collect::<serde_json::Map<String, Value>>(),
    })
}
