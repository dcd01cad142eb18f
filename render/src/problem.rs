//! What is wrong with an estate, told so that its author can mend it.

use std::borrow::Cow;
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

/// A path or a text as one line of a terminal or a log can show it: characters that would break the line,
/// move the cursor or turn the direction of writing are escaped (`\n`, `\u{1b}`).
pub fn printable(text: &str) -> Cow<'_, str> {
    let is_unsafe = |c: char| {
        let is_break = matches!(c, '\u{2028}' | '\u{2029}');
        let is_direction = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        c.is_control() || is_break || is_direction
    };
    if !text.contains(is_unsafe) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_unsafe(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown.into()
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
            write!(f, "\n  - {}", printable(&problem.text))?;
            let detail = problem.detail();
            if !detail.is_empty() {
                write!(f, "\n      {}", printable(&detail))?;
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

#[cfg(test)]
mod tests {
    use super::{Problem, Refusal, printable};

    #[test]
    fn a_bullet_stays_on_its_line() {
        let text = "no type \"otlp\n  - forged\u{1b}[31m".to_owned();
        let problems = vec![Problem { text, spot: None, help: "say\rit".to_owned() }];
        let refusal = Refusal { header: "refused:".to_owned(), problems };
        assert_eq!(
            refusal.to_string(),
            "refused:\n  - no type \"otlp\\n  - forged\\u{1b}[31m\n      say\\rit"
        );
    }

    #[test]
    fn a_path_stays_on_its_line() {
        assert_eq!(
            printable("../my-estate/teams/Übergang \\ x/a.yaml"),
            "../my-estate/teams/Übergang \\ x/a.yaml"
        );
        assert_eq!(
            printable("a\nb\u{1b}[2Jc\u{202e}d\u{2028}"),
            "a\\nb\\u{1b}[2Jc\\u{202e}d\\u{2028}"
        );
    }
}
