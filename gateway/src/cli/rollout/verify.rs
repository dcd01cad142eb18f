//! `gateway rollout verify FILE`: judges an evidence bundle again, offline.

use std::io::Read;
use std::path::PathBuf;

use clap::Args;
use render::problem::printable;
use render::rollout::bundle::{BUNDLE_BYTES_MAX, Verified, verify};
use serde_json::json;

use super::out::Out;
use super::style::clean;
use super::{Exit, Format, Output, RunError, json};

/// Arguments of `gateway rollout verify`.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// The bundle, such as rollouts-evidence/data-flow/bridge-canary.json of a proposal's branch;
    /// - reads stdin.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    #[command(flatten)]
    #[expect(missing_docs, reason = "the flattened type tells")]
    pub output: Output,
}

/// Exits with 0 when digest and sums are right and the verdict comes out the same, with 1 when
/// anything differs; what differs is the data.
///
/// # Errors
/// When the file cannot be read as a bundle.
pub fn run(arguments: &VerifyArgs) -> Result<Exit, RunError> {
    let unreadable = |why: String| RunError::Bundle { file: arguments.file.clone(), why };
    let mut bytes = Vec::new();
    // One byte more than a bundle may have tells that it is too long.
    let limit = BUNDLE_BYTES_MAX as u64 + 1;
    let read = if arguments.file.as_os_str() == "-" {
        std::io::stdin().lock().take(limit).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(&arguments.file)
            .and_then(|file| file.take(limit).read_to_end(&mut bytes))
    };
    read.map_err(|error| unreadable(format!("cannot be read: {error}")))?;
    let verified = verify(&bytes).map_err(|error| unreadable(error.to_string()))?;
    let shown = match arguments.output.format {
        Format::Text => text(&verified),
        Format::Json => json::pretty(&json!({
            "same": verified.same,
            "rollout": verified.report.rollout,
            "stated": verified.report.verdict,
            "verdict": verified.verdict,
            "differences": verified.differences,
        })),
    };
    Out::new().print(&shown)?;
    Ok(if verified.same { Exit::Good } else { Exit::Bad })
}

fn text(verified: &Verified) -> String {
    let Verified { same, differences, verdict, report } = verified;
    let rollout = clean(&report.rollout);
    let stage = u64::from(report.terms.stage) + 1;
    let (kind, why) = (verdict.kind.label(), printable(&verdict.why));
    if *same {
        return format!(
            "same: {rollout}, stage {stage} of {}: {kind}: {why}\n",
            report.terms.stages
        );
    }
    let mut text = format!("different: {rollout}, recomputed {kind}: {why}\n");
    for difference in differences {
        text.push_str(&format!("  {}\n", printable(difference)));
    }
    text
}
