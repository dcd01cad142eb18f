//! `gateway rollout explain <attribute=value>…`: why a collector gets what it gets.

use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;
use render::rollout::explain::{Admission, Explanation, RolloutPlace, explain};
use serde_json::Value;

use super::client::{Client, Connect, encoded};
use super::out::Out;
use super::style::clean;
use super::{Exit, Format, Output, RunError, json, offline};

/// Arguments of `gateway rollout explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// What the collector reports, such as service.name=otelcol host.name=bridge-a1.
    #[arg(value_name = "ATTRIBUTE=VALUE", required = true, value_parser = pair)]
    pub attributes: Vec<(String, String)>,

    /// Ask the rendered tree of this directory instead of a gateway.
    #[arg(long, value_name = "DIR")]
    pub estate: Option<PathBuf>,

    #[command(flatten)]
    #[expect(missing_docs, reason = "the flattened type tells")]
    pub output: Output,

    #[command(flatten)]
    #[expect(missing_docs, reason = "the flattened type tells")]
    pub connect: Connect,
}

/// Exits with 0 once it is told, wherever the attributes lead.
///
/// # Errors
/// When the head cannot be asked.
pub async fn run(arguments: ExplainArgs) -> Result<Exit, RunError> {
    let told: Explanation = match &arguments.estate {
        Some(estate) => {
            let head = offline::head(estate)?;
            let pairs = arguments.attributes.iter().map(|(name, value)| (&**name, &**value));
            explain(&head, pairs).map_err(|error| RunError::Internal(error.to_string()))?
        }
        None => {
            let pairs: Vec<String> = arguments
                .attributes
                .iter()
                .map(|(name, value)| format!("{}={}", encoded(name), encoded(value)))
                .collect();
            let client = Client::new(&arguments.connect)?;
            client.get(&format!("/api/v1/explain?{}", pairs.join("&"))).await?
        }
    };
    let shown = match arguments.output.format {
        Format::Text => text(&told),
        Format::Json => {
            let value: Value = serde_json::to_value(&told)
                .map_err(|error| RunError::Internal(error.to_string()))?;
            json::pretty(&value)
        }
    };
    Out::new().print(&shown)?;
    Ok(Exit::Good)
}

fn pair(text: &str) -> Result<(String, String), String> {
    text.split_once('=')
        .filter(|(name, _)| !name.is_empty())
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .ok_or_else(|| "must be attribute=value, such as host.name=bridge-a1".to_owned())
}

/// The answer for people.
fn text(told: &Explanation) -> String {
    let mut text = String::new();
    let mut row = |name: &str, value: String| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name:<9} {value}");
    };
    let pairs: Vec<String> = told
        .selector
        .iter()
        .map(|(name, value)| format!("{}={}", clean(name), clean(value)))
        .collect();
    match &told.tier {
        Some(tier) => row("tier", format!("{} (selects {})", clean(tier), pairs.join(", "))),
        None => row("tier", "none: no selector matches, so it gets the Unmatched artefact".into()),
    }
    let hash: String = told.artefact.content_hash.chars().take(12).collect();
    match &told.rollout {
        None if told.tier.is_some() => row("rollout", "none stages this Tier".into()),
        None => {}
        Some(place) => {
            let RolloutPlace { rollout, stage, stages, .. } = place;
            let stage = u64::from(*stage) + 1;
            row("rollout", format!("{}, stage {stage} of {stages}", clean(rollout)));
            row("cohort", cohort(place));
            row("bucket", bucket(place));
            if place.braked == Some(true) {
                row(
                    "brake",
                    "on: who does not report the candidate already is served the base".into(),
                );
            }
        }
    }
    row("artefact", format!("{} ({} bytes)", clean(&hash), told.artefact.bytes) + &which(told));
    row(
        "head",
        if told.commit.is_empty() { "(unknown)".into() } else { clean(&told.commit).into_owned() },
    );
    text
}

fn which(told: &Explanation) -> String {
    match (told.arm.as_str(), &told.rollout) {
        ("to", Some(place)) => format!(", the candidate: {}", clean(&place.to)),
        ("from", Some(place)) => format!(", the base: {}", clean(&place.from)),
        _ => String::new(),
    }
}

fn cohort(place: &RolloutPlace) -> String {
    let by = |admission: &Admission| {
        let forms = admission.forms.join(" and ");
        let stage = u64::from(admission.stage) + 1;
        format!("stage {stage} ({}), by {}", clean(&admission.cohort), clean(&forms))
    };
    let equal = if place.same_content { "; but candidate and base have equal content" } else { "" };
    match (&place.admitted, &place.later) {
        (Some(admitted), _) => format!("member, admitted by {}{equal}", by(admitted)),
        (None, Some(later)) => format!("not yet: would be admitted by {}", by(later)),
        (None, None) => "outside: no stage admits it".to_owned(),
    }
}

fn bucket(place: &RolloutPlace) -> String {
    match (place.bucket, &place.hash) {
        (Some(bucket), Some(hash)) => format!("{bucket} of 10000 (hash {})", clean(hash)),
        _ if place.missing.is_empty() => "none: the Rollout names no hash attribute".to_owned(),
        _ => {
            let missing: Vec<_> = place.missing.iter().map(|name| clean(name)).collect();
            format!("none: it lacks {}, so no percent admits it", missing.join(", "))
        }
    }
}
