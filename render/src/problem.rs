//! What is wrong with an estate, told so that its author can mend it.

use std::fmt;
use std::sync::Arc;

use crate::yaml::Pos;

/// Where a problem sits: file as the user would open it, position, and the path of the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spot {
    /// The file, under the label the tree was read with (`../my-estate/teams/a/tiers/b.yaml`).
    pub file: Arc<str>,
    /// Line and column, when the problem has one (a missing file has none).
    pub pos: Option<Pos>,
    /// Key path such as `stages[0].cohort.percent`; empty for the document itself.
    pub path: String,
}

/// One bullet of a refusal (estate.md, decision 4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The bullet, verbatim as the guide prints it where the guide prints it.
    pub text: String,
    /// Where it is, unless it belongs to no file.
    pub spot: Option<Spot>,
    /// The way out, as a sentence.
    pub help: String,
}

/// A refusal: a header and every problem found, in a stable order.
///
/// Displays as the guide prints it: the header, then `  - <bullet>` lines, and under each bullet
/// one line indented by six spaces: `at FILE:LINE:COLUMN, key PATH; HELP`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Refusal {
    /// Such as `invalid topology sources:`.
    pub header: String,
    /// At least one.
    pub problems: Vec<Problem>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.header)?;
        for problem in &self.problems {
            write!(f, "\n  - {}", problem.text)?;
            let detail = problem.detail();
            if !detail.is_empty() {
                write!(f, "\n      {detail}")?;
            }
        }
        Ok(())
    }
}

impl Problem {
    /// The line under the bullet: position, key path, way out; empty if there is neither.
    pub fn detail(&self) -> String {
        let mut line = String::new();
        if let Some(spot) = &self.spot {
            line.push_str("at ");
            line.push_str(&spot.file);
            if let Some(pos) = spot.pos {
                line.push_str(&format!(":{}:{}", pos.line, pos.column));
            }
            if !spot.path.is_empty() {
                line.push_str(&format!(", key {}", spot.path));
            }
        }
        if !self.help.is_empty() {
            if !line.is_empty() {
                line.push_str("; ");
            }
            line.push_str(&self.help);
        }
        line
    }
}
