//! A second look at a captured run: derives its conclusions anew, and plays its seed again.

use serde_json::Value;

use super::document::Observation;
use super::{Settings, accept, conclude, control_plane_sha256, parse, run, write};

/// Differences told at most; one is enough to refuse.
const DIFFERENCES_MAX: usize = 50;

/// Something that is not as it must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// `timeline line 3`, `checkpoints[2].old_active`, `A3` …
    pub at: String,
    /// What is wrong with it.
    pub why: String,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.at, self.why)
    }
}

/// Everything that speaks against a captured run; nothing does when it is empty.
///
/// The conclusions are derived from the timeline's own rows; then the seed is played again, and every
/// figure of both files compared with what it makes.
pub fn check(timeline: &str, document: &str) -> Vec<Difference> {
    let mut found = Vec::new();
    let mut add = |at: &str, why: String| {
        if found.len() < DIFFERENCES_MAX {
            found.push(Difference { at: at.to_owned(), why });
        }
    };
    let rows = match parse(timeline) {
        Ok(rows) => rows,
        Err(error) => {
            add("timeline", error.to_string());
            return found;
        }
    };
    let seen: Observation = match serde_json::from_str(document) {
        Ok(seen) => seen,
        Err(error) => {
            add("document", error.to_string());
            return found;
        }
    };
    let derived = accept(&rows, &seen);
    for conclusion in derived.iter().filter(|conclusion| !conclusion.ok) {
        add(&conclusion.id, format!("does not hold: {}", conclusion.detail));
    }
    if derived != seen.acceptance {
        add("acceptance", "is not what the captured figures say".to_owned());
    }
    if rows != seen.checkpoints {
        add("timeline", "is not the timeline of the document".to_owned());
    }
    if seen.control_plane_sha256 != control_plane_sha256() {
        add("control_plane_sha256", "the run is of another control plane than this one".to_owned());
    }
    let Some(settings) = Settings::of(&seen) else {
        add("mode", "neither baseline nor strict, or with an unknown switch".to_owned());
        return found;
    };
    match run(&settings) {
        Ok(mut again) => {
            conclude(&mut again, 1);
            let lines = write(&again.checkpoints);
            for (number, (held, made)) in (1..).zip(timeline.lines().zip(lines.lines())) {
                if held != made {
                    add(
                        &format!("timeline line {number}"),
                        format!("{held:?}, the seed makes {made:?}"),
                    );
                }
            }
            if timeline.lines().count() != lines.lines().count() {
                add("timeline", "has more or fewer lines than the seed makes".to_owned());
            }
            match (serde_json::to_value(&seen), serde_json::to_value(&again)) {
                (Ok(held), Ok(made)) => compare("", &held, &made, &mut add),
                (Err(error), _) | (_, Err(error)) => add("document", error.to_string()),
            }
        }
        Err(error) => add("seed", format!("cannot be played again: {error}")),
    }
    found
}

/// Names every leaf in which two documents differ.
fn compare(at: &str, held: &Value, made: &Value, add: &mut impl FnMut(&str, String)) {
    match (held, made) {
        (Value::Object(a), Value::Object(b)) => {
            for (key, value) in a {
                let at = if at.is_empty() { key.clone() } else { format!("{at}.{key}") };
                compare(&at, value, b.get(key).unwrap_or(&Value::Null), add);
            }
        }
        (Value::Array(a), Value::Array(b)) => {
            if a.len() != b.len() {
                add(at, format!("has {} entries, the seed makes {}", a.len(), b.len()));
            }
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                compare(&format!("{at}[{index}]"), a, b, add);
            }
        }
        _ if held == made => {}
        _ => add(at, format!("is {held}, the seed makes {made}")),
    }
}
