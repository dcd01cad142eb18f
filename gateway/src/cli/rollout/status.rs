//! `gateway rollout status <team/name> [--timeout D]`: waits until there is a decision.

use std::time::Duration;

use clap::Args;
use render::problem::printable;
use render::rollout::report::RolloutReport;
use render::rollout::verdict::Kind;

use super::client::{Client, Connect};
use super::out::Out;
use super::style::clean;
use super::watch::{Change, Watch};
use super::{Exit, Format, Output, RunError, json, out, rollout_id};
use crate::cli::value;

/// Arguments of `gateway rollout status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// The Rollout, team/name.
    #[arg(value_name = "TEAM/NAME", value_parser = rollout_id)]
    pub rollout: String,

    /// Longest to wait, such as 30m; 0s takes the verdict as it is [default: as long as it takes].
    #[arg(long, value_name = "DURATION", value_parser = value::duration)]
    #[arg(allow_hyphen_values = true)]
    pub timeout: Option<Duration>,

    #[command(flatten)]
    #[expect(missing_docs, reason = "the flattened type tells")]
    pub output: Output,

    #[command(flatten)]
    #[expect(missing_docs, reason = "the flattened type tells")]
    pub connect: Connect,
}

/// Waits, then prints the verdict that it ended with.
///
/// # Errors
/// When no verdict could be had, or the Rollout left head before there was a decision.
pub async fn run(arguments: StatusArgs) -> Result<Exit, RunError> {
    let client = Client::new(&arguments.connect)?;
    let path = format!("/api/v1/rollouts/{}/events", arguments.rollout);
    let mut watch = Watch::open(&client, path).await?;
    // The first word is waited for in any case.
    let mut last = match watch.next().await? {
        Change::Report(report) => report,
        Change::Gone(id) => return Err(RunError::Gone { id }),
    };
    let deciding = async {
        while exit(last.verdict.kind, false).is_none() {
            out::tell(&line(&last));
            match watch.next().await? {
                Change::Report(report) => last = report,
                Change::Gone(id) => return Err(RunError::Gone { id }),
            }
        }
        Ok(())
    };
    match arguments.timeout {
        None => deciding.await?,
        Some(limit) => {
            // Whatever was known when the time was up is the answer.
            if let Ok(decided) = tokio::time::timeout(limit, deciding).await {
                decided?;
            }
        }
    }
    Out::new().print(&told(&last, arguments.output.format)?)?;
    Ok(exit(last.verdict.kind, true).unwrap_or(Exit::Undecided))
}

/// What a verdict exits with; `None` while there is something to wait for.
fn exit(kind: Kind, time_is_up: bool) -> Option<Exit> {
    match kind {
        Kind::Advance | Kind::Complete => Some(Exit::Good),
        Kind::Abort | Kind::Blocked => Some(Exit::Bad),
        Kind::Hold => time_is_up.then_some(Exit::Undecided),
        Kind::Inconclusive => time_is_up.then_some(Exit::Inconclusive),
    }
}

fn line(report: &RolloutReport) -> String {
    let verdict = &report.verdict;
    format!("{}: {}: {}", clean(&report.rollout), verdict.kind.label(), printable(&verdict.why))
}

fn told(report: &RolloutReport, format: Format) -> Result<String, RunError> {
    match format {
        Format::Text => Ok(line(report) + "\n"),
        Format::Json => {
            let mut value = serde_json::to_value(report)
                .map_err(|error| RunError::Internal(error.to_string()))?;
            json::with_twins(&mut value);
            Ok(json::pretty(&value))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verdict_has_an_exit_and_only_open_ones_are_waited_for() {
        for (kind, early, late) in [
            (Kind::Abort, Some(Exit::Bad), Exit::Bad),
            (Kind::Blocked, Some(Exit::Bad), Exit::Bad),
            (Kind::Inconclusive, None, Exit::Inconclusive),
            (Kind::Hold, None, Exit::Undecided),
            (Kind::Advance, Some(Exit::Good), Exit::Good),
            (Kind::Complete, Some(Exit::Good), Exit::Good),
        ] {
            assert_eq!((exit(kind, false), exit(kind, true)), (early, Some(late)), "{kind:?}");
        }
    }
}
