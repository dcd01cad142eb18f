//! `render check`: everything but the writing.

use render::finding::FindingKind;
use serde_json::json;

use super::load::{self, Loaded};
use super::{CheckArgs, Done, Failure, Format, report};

/// Stands in for the commit: nothing that is rendered here is kept.
const NO_COMMIT: &str = "0000000";

pub(super) fn run(arguments: &CheckArgs) -> Result<Done, Failure> {
    let format = arguments.output.format;
    let loaded = Loaded::read(&arguments.estate, &arguments.catalogue, format)?;
    let rendered = loaded.render(&load::commit(NO_COMMIT)?, format)?;
    let findings = rendered.findings;
    Ok(Done::good(match format {
        Format::Text => {
            let kinds: std::collections::BTreeSet<FindingKind> =
                findings.iter().map(|finding| finding.kind).collect();
            let mut text = report::finding_lines(&findings);
            text.push_str(&match (findings.len(), kinds.len()) {
                (0, _) => "ok: no findings\n".to_owned(),
                (1, _) => "ok: 1 finding\n".to_owned(),
                (count, 1) => format!("ok: {count} findings of one kind\n"),
                (count, kinds) => format!("ok: {count} findings of {kinds} kinds\n"),
            });
            text
        }
        Format::Json => report::line(&json!({"findings": report::findings(&findings)})),
    }))
}
