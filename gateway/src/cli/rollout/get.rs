//! `gateway rollout get [team/name] [-w] [-o text|json]`.

use std::time::Duration;

use clap::Args;
use render::rollout::report::RolloutReport;
use serde_json::Value;

use super::client::{Client, Connect};
use super::out::Out;
use super::watch::{Change, Watch};
use super::{Exit, Format, Output, RunError, json, list, out, rollout_id, text};
use crate::clock::Clock;

/// Time between two drawings of a terminal while nothing changes: ages go on.
const REDRAW: Duration = Duration::from_secs(1);

/// Arguments of `gateway rollout get`.
#[derive(Debug, Args)]
pub struct GetArgs {
    /// The Rollout, team/name [default: all of them, worst first].
    #[arg(value_name = "TEAM/NAME", value_parser = rollout_id)]
    pub rollout: Option<String>,

    /// Show it again whenever it changes, until interrupted; survives a restart of the gateway.
    #[arg(short = 'w', long)]
    pub watch: bool,

    #[command(flatten)]
    #[expect(missing_docs, reason = "the flattened type tells")]
    pub output: Output,

    #[command(flatten)]
    #[expect(missing_docs, reason = "the flattened type tells")]
    pub connect: Connect,
}

/// Exits with 0 once it is shown: it tells, and does not judge.
///
/// # Errors
/// When there is nothing to show.
pub async fn run(arguments: GetArgs) -> Result<Exit, RunError> {
    let client = Client::new(&arguments.connect)?;
    let format = arguments.output.format;
    match (&arguments.rollout, arguments.watch) {
        (None, false) => print_list(&client, format).await?,
        (None, true) => watch_list(&client, format).await?,
        (Some(id), false) => {
            let value: Value = client.get(&format!("/api/v1/rollouts/{id}")).await?;
            Out::new().print(&one(&client, value, format)?)?;
        }
        (Some(id), true) => watch_one(&client, id, format).await?,
    }
    Ok(Exit::Good)
}

fn one(client: &Client, mut value: Value, format: Format) -> Result<String, RunError> {
    match format {
        Format::Json => {
            json::with_twins(&mut value);
            Ok(json::pretty(&value))
        }
        Format::Text => {
            let report: RolloutReport = serde_json::from_value(value)
                .map_err(|error| client.not_a_gateway(error.to_string()))?;
            Ok(text::report(&report, report.times.now_ms, Out::new().style))
        }
    }
}

async fn print_list(client: &Client, format: Format) -> Result<(), RunError> {
    let rows = list::fetch(client).await?;
    let out = Out::new();
    let shown = match format {
        Format::Json => json::pretty(&rows.into_iter().map(|(_, value)| value).collect()),
        Format::Text if rows.is_empty() => {
            out::tell("there is no Rollout at this head");
            return Ok(());
        }
        Format::Text => list::text(rows.iter().map(|(row, _)| row), out.style),
    };
    Ok(out.print(&shown)?)
}

/// The list is asked for again at each change: it is short, and its order changes.
async fn watch_list(client: &Client, format: Format) -> Result<(), RunError> {
    let mut watch = Watch::open(client, "/api/v1/events".to_owned()).await?;
    let out = Out::new();
    let redraws = out.terminal && format == Format::Text;
    if redraws {
        out.clear()?;
    }
    let mut before = None;
    loop {
        let rows = match list::fetch(client).await {
            Ok(rows) => rows,
            // The stream tells when it is there again.
            Err(error) if error.may_pass() => {
                watch.next().await?;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let shown = match format {
            Format::Json => {
                let all: Value = rows.into_iter().map(|(_, value)| value).collect();
                format!("{all}\n")
            }
            Format::Text => list::text(rows.iter().map(|(row, _)| row), out.style),
        };
        if redraws {
            out.redraw(&shown)?;
        } else if before.as_ref() != Some(&shown) {
            out.print(&if format == Format::Text { format!("{shown}\n") } else { shown.clone() })?;
        }
        before = Some(shown);
        watch.next().await?;
        // What belongs to the same change comes at once.
        while let Ok(change) = tokio::time::timeout(GATHER, watch.next()).await {
            change?;
        }
    }
}

/// Changes that come within this are one.
const GATHER: Duration = Duration::from_millis(100);

async fn watch_one(client: &Client, id: &str, format: Format) -> Result<(), RunError> {
    let mut watch = Watch::open(client, format!("/api/v1/rollouts/{id}/events")).await?;
    let (out, clock) = (Out::new(), Clock::start());
    if !(out.terminal && format == Format::Text) {
        loop {
            match watch.next().await? {
                Change::Report(report) => out.print(&block(&report, format, out)?)?,
                Change::Gone(id) => return Err(RunError::Gone { id }),
            }
        }
    }
    out.clear()?;
    let mut redraw = tokio::time::interval(REDRAW);
    let mut newest: Option<(Box<RolloutReport>, Duration)> = None;
    loop {
        let change = {
            // Not begun anew at each redraw: it counts the silence of the stream.
            let mut change = std::pin::pin!(watch.next());
            loop {
                tokio::select! {
                    change = &mut change => break change?,
                    _ = redraw.tick() => draw(newest.as_ref(), clock, out)?,
                }
            }
        };
        match change {
            Change::Report(report) => newest = Some((report, clock.elapsed())),
            Change::Gone(id) => return Err(RunError::Gone { id }),
        }
        draw(newest.as_ref(), clock, out)?;
    }
}

fn draw(
    newest: Option<&(Box<RolloutReport>, Duration)>,
    clock: Clock,
    out: Out,
) -> Result<(), RunError> {
    let Some((report, since)) = newest else { return Ok(()) };
    let passed = clock.elapsed().saturating_sub(*since).as_millis();
    let now_ms = report.times.now_ms.saturating_add(u64::try_from(passed).unwrap_or(0));
    Ok(out.redraw(&text::report(report, now_ms, out.style))?)
}

/// One change, for a pipe: a block of text, or a line of JSON.
fn block(report: &RolloutReport, format: Format, out: Out) -> Result<String, RunError> {
    match format {
        Format::Text => Ok(text::report(report, report.times.now_ms, out.style) + "\n"),
        Format::Json => {
            let mut value = serde_json::to_value(report)
                .map_err(|error| RunError::Internal(error.to_string()))?;
            json::with_twins(&mut value);
            Ok(format!("{value}\n"))
        }
    }
}
