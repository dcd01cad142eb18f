//! The timeline as CSV: names, numbers and timestamps only, so nothing needs quoting.

use std::fmt::Write as _;

use super::document::Checkpoint;

/// The first line.
pub const HEADER: &str = "seq,checkpoint,utc,elapsed_us,pass,deployment_status,old_active,\
target_active,target_healthy,pending_stop,modeled_available,surge_bound";

/// Why a text is not a timeline.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TimelineError {
    /// The first line is another one.
    #[error("line 1: not the header of a timeline")]
    Header,
    /// The text does not end with a line feed, or has a carriage return.
    #[error("lines must end with a line feed")]
    LineEnd,
    /// Too few fields, or too many.
    #[error("line {line}: {found} fields, not 12")]
    Fields {
        /// From 1.
        line: usize,
        /// How many there are.
        found: usize,
    },
    /// A field that should be a number.
    #[error("line {line}: {column} is {text:?}, not a number")]
    Number {
        /// From 1.
        line: usize,
        /// Its name.
        column: &'static str,
        /// What is there.
        text: String,
    },
}

/// Header and rows, each ended by a line feed.
pub fn write(rows: &[Checkpoint]) -> String {
    let mut text = format!("{HEADER}\n");
    for row in rows {
        let Checkpoint { seq, checkpoint, utc, elapsed_us, pass, deployment_status, .. } = row;
        let Checkpoint { old_active, target_active, target_healthy, pending_stop, .. } = row;
        let Checkpoint { modeled_available, surge_bound, .. } = row;
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "{seq},{checkpoint},{utc},{elapsed_us},{pass},{deployment_status},{old_active},\
{target_active},{target_healthy},{pending_stop},{modeled_available},{surge_bound}"
        );
    }
    text
}

/// Reads a timeline.
///
/// # Errors
/// [`TimelineError`] at the first line that is not one.
pub fn parse(text: &str) -> Result<Vec<Checkpoint>, TimelineError> {
    if !text.ends_with('\n') || text.contains('\r') {
        return Err(TimelineError::LineEnd);
    }
    let mut lines = text.lines().zip(1..);
    if lines.next().is_none_or(|(line, _)| line != HEADER) {
        return Err(TimelineError::Header);
    }
    lines.map(|(text, line)| row(text, line)).collect()
}

fn row(text: &str, line: usize) -> Result<Checkpoint, TimelineError> {
    let fields: Vec<&str> = text.split(',').collect();
    let [seq, checkpoint, utc, elapsed, pass, status, old, target, healthy, pending, avail, bound] =
        fields[..]
    else {
        return Err(TimelineError::Fields { line, found: fields.len() });
    };
    let number = |column: &'static str, text: &str| {
        text.parse::<i64>().map_err(|_| TimelineError::Number {
            line,
            column,
            text: text.to_owned(),
        })
    };
    Ok(Checkpoint {
        seq: number("seq", seq)?,
        checkpoint: checkpoint.to_owned(),
        utc: utc.to_owned(),
        elapsed_us: number("elapsed_us", elapsed)?,
        pass: number("pass", pass)?,
        deployment_status: status.to_owned(),
        old_active: number("old_active", old)?,
        target_active: number("target_active", target)?,
        target_healthy: number("target_healthy", healthy)?,
        pending_stop: number("pending_stop", pending)?,
        modeled_available: number("modeled_available", avail)?,
        surge_bound: number("surge_bound", bound)?,
    })
}
