//! `gateway rollout plan <team/name>`: who would join at the next stage.

use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;
use render::rollout::plan::{Plan, PlanMember, Planner, label};
use serde_json::Value;

use super::client::{Client, Connect};
use super::out::Out;
use super::style::{clean, columns};
use super::{Exit, Format, Output, RunError, json, offline, rollout_id, roster};

/// Arguments of `gateway rollout plan`.
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// The Rollout, team/name.
    #[arg(value_name = "TEAM/NAME", value_parser = rollout_id)]
    pub rollout: String,

    /// Ask the rendered tree of this directory about --roster, instead of a gateway about the
    /// collectors that are connected to it.
    #[arg(long, value_name = "DIR", requires = "roster")]
    pub estate: Option<PathBuf>,

    /// The collectors to count: a YAML list of mappings from attribute to value, or one JSON object
    /// per line.
    #[arg(long, value_name = "FILE", requires = "estate")]
    pub roster: Option<PathBuf>,

    #[command(flatten)]
    #[expect(missing_docs, reason = "the flattened type tells")]
    pub output: Output,

    #[command(flatten)]
    #[expect(missing_docs, reason = "the flattened type tells")]
    pub connect: Connect,
}

/// Exits with 0 once it is told.
///
/// # Errors
/// When the head or the population cannot be had.
pub async fn run(arguments: PlanArgs) -> Result<Exit, RunError> {
    let id = &arguments.rollout;
    let internal = |error: &dyn std::fmt::Display| RunError::Internal(error.to_string());
    let plan: Plan = match (&arguments.estate, &arguments.roster) {
        (Some(estate), Some(roster)) => {
            let head = offline::head(estate)?;
            let compiled = offline::rollout(&head, id, estate)?;
            let mut planner = Planner::new(&head, compiled).map_err(|error| internal(&error))?;
            roster::read(roster, &mut |line, attributes| {
                let pairs = || attributes.iter().map(|(name, value)| (&**name, &**value));
                let named = || label(pairs()).map_or_else(|| format!("line {line}"), str::to_owned);
                planner.count(pairs(), false, named);
            })?;
            planner.finish()
        }
        _ => {
            let client = Client::new(&arguments.connect)?;
            client.get(&format!("/api/v1/rollouts/{id}/plan")).await?
        }
    };
    let shown = match arguments.output.format {
        Format::Text => text(&plan),
        Format::Json => {
            let value: Value = serde_json::to_value(&plan).map_err(|error| internal(&error))?;
            json::pretty(&value)
        }
    };
    Out::new().print(&shown)?;
    Ok(Exit::Good)
}

/// The plan for people.
fn text(plan: &Plan) -> String {
    let stage = u64::from(plan.stage) + 1;
    let mut text = format!(
        "{}, stage {stage} of {}, Tier {}\n",
        clean(&plan.rollout),
        plan.stages.len(),
        clean(&plan.tier)
    );
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "{} of {} collectors are on the Tier, {} of them in the Cohort\n",
        plan.population, plan.looked_at, plan.members
    );
    let mut rows = vec![["STAGE", "COHORT", "ADMITS", "IN ALL"].map(str::to_owned).to_vec()];
    let mut in_all = 0_u64;
    for (at, stage) in (0u32..).zip(&plan.stages) {
        in_all = in_all.saturating_add(stage.admits);
        let active = if at == plan.stage { " (active)" } else { "" };
        let number = (u64::from(at) + 1).to_string();
        let cohort = format!("{}{active}", clean(&stage.cohort));
        rows.push(vec![number, cohort, stage.admits.to_string(), in_all.to_string()]);
    }
    text.push_str(&columns(&rows, |at| at == 1));
    text.push('\n');
    match plan.next {
        None => {
            text.push_str("join      nobody: the last stage is active, its advance completes it\n")
        }
        Some(next) => {
            let next = u64::from(next) + 1;
            let foreign = match plan.joining_foreign {
                0 => String::new(),
                count => format!(", {count} of them Foreign, which are only read"),
            };
            let _ = writeln!(text, "join      {} at stage {next}{foreign}", plan.joining);
            sample(&mut text, &plan.joining_sample, plan.joining);
        }
    }
    let _ = writeln!(text, "leave     {}: a Cohort only ever widens", plan.leaving);
    let _ = writeln!(text, "no bucket {}: they lack a hash attribute", plan.no_bucket);
    sample(&mut text, &plan.no_bucket_sample, plan.no_bucket);
    text
}

fn sample(text: &mut String, members: &[PlanMember], all: u64) {
    for member in members {
        let what = match member.bucket {
            Some(bucket) => format!("bucket {bucket}"),
            None if member.missing.is_empty() => String::new(),
            None => format!("lacks {}", clean(&member.missing.join(", "))),
        };
        let line = format!("          {}  {what}", clean(&member.label));
        let _ = writeln!(text, "{}", line.trim_end());
    }
    if let Some(more) = all.checked_sub(members.len() as u64).filter(|more| *more > 0) {
        let _ = writeln!(text, "          +{more} more");
    }
}
