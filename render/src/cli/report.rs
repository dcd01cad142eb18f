//! Findings, problems and paths as text and as JSON.

use std::path::{Component, Path, PathBuf};

use render::finding::{Finding, Subject};
use render::problem::{Problem, Refusal, printable};
use serde_json::{Value, json};

/// One finding per line.
pub(super) fn finding_lines(findings: &[Finding]) -> String {
    findings.iter().map(|finding| format!("{finding}\n")).collect()
}

/// `{kind, blueprint | tier, lane, text}`, absent keys left out.
pub(super) fn findings(findings: &[Finding]) -> Value {
    let object = |finding: &Finding| {
        let mut object = json!({"kind": finding.kind.as_str(), "text": finding.text});
        match &finding.subject {
            Subject::Blueprint(id) => object["blueprint"] = id.as_str().into(),
            Subject::Tier(id) => object["tier"] = id.as_str().into(),
            Subject::Estate => {}
        }
        if let Some(lane) = finding.lane {
            object["lane"] = lane.into();
        }
        object
    };
    findings.iter().map(object).collect()
}

/// `{error, problems: [{text, file, line, column, key, help}]}`, absent keys left out.
pub(super) fn refusal(refusal: &Refusal) -> Value {
    let object = |problem: &Problem| {
        let mut object = json!({"text": problem.text});
        if let Some(spot) = &problem.spot {
            object["file"] = spot.file.as_ref().into();
            if let Some(pos) = spot.pos {
                object["line"] = pos.line.into();
                object["column"] = pos.column.into();
            }
            if !spot.path.is_empty() {
                object["key"] = spot.path.as_str().into();
            }
        }
        if !problem.help.is_empty() {
            object["help"] = problem.help.as_str().into();
        }
        object
    };
    let problems: Value = refusal.problems.iter().map(object).collect();
    json!({"error": refusal.header.trim_end_matches(':'), "problems": problems})
}

/// What went wrong outside of the sources, in the shape of [`refusal`].
pub(super) fn error(text: &str) -> Value {
    json!({"error": text, "problems": []})
}

/// A JSON document, indented, and the end of its line.
pub(super) fn line(value: &Value) -> String {
    format!("{value:#}\n")
}

/// `path` under `out` as a shell user would write it: no `.`, no doubled `/`, `..` taken back
/// where it can be; one line, whatever the names are.
pub(super) fn joined(out: &Path, path: &str) -> String {
    let mut clean = PathBuf::new();
    for part in out.join(path).components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir
                if matches!(clean.components().next_back(), Some(Component::Normal(_))) =>
            {
                clean.pop();
            }
            Component::ParentDir
                if matches!(clean.components().next_back(), Some(Component::RootDir)) => {}
            Component::Prefix(_)
            | Component::RootDir
            | Component::ParentDir
            | Component::Normal(_) => clean.push(part),
        }
    }
    printable(&clean.to_string_lossy()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_joined_as_a_shell_user_writes_them() {
        for (out, expect) in [
            (".", "rendered/a.yaml"),
            ("../my-estate", "../my-estate/rendered/a.yaml"),
            ("./x//y/../z/", "x/z/rendered/a.yaml"),
            ("/../tmp", "/tmp/rendered/a.yaml"),
            ("a/../../b", "../b/rendered/a.yaml"),
        ] {
            assert_eq!(joined(Path::new(out), "rendered/a.yaml"), expect, "{out}");
        }
    }
}
