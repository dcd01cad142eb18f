//! A change of a file as a unified diff that `git apply` takes: one hunk from the first line that
//! differs to the last.

use std::fmt::Write;

/// Unchanged lines around a change.
const CONTEXT: usize = 3;

/// The change of the file at `path`; `None` on a side is no file there. Empty when nothing changes.
pub fn unified(path: &str, before: Option<&str>, after: Option<&str>) -> String {
    if before == after {
        return String::new();
    }
    let side = |prefix: &str, text: Option<&str>| match text {
        Some(_) => format!("{prefix}/{path}"),
        None => "/dev/null".to_owned(),
    };
    let (old_name, new_name) = (side("a", before), side("b", after));
    let old: Vec<&str> = before.unwrap_or_default().split_inclusive('\n').collect();
    let new: Vec<&str> = after.unwrap_or_default().split_inclusive('\n').collect();
    let same_start = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
    let room = old.len().min(new.len()) - same_start;
    let ends = old.iter().rev().zip(new.iter().rev());
    let same_end = ends.take_while(|(old, new)| old == new).count().min(room);
    let first = same_start.saturating_sub(CONTEXT);
    let after_end = same_end.min(CONTEXT);
    let old_end = old.len() - same_end;
    let new_end = new.len() - same_end;

    let mut text = format!("diff --git a/{path} b/{path}\n");
    match (before, after) {
        (None, _) => text.push_str("new file mode 100644\n"),
        (_, None) => text.push_str("deleted file mode 100644\n"),
        (Some(_), Some(_)) => {}
    }
    let range = |end: usize| {
        let count = end + after_end - first;
        // Of no lines, the line before is named.
        format!("{},{count}", if count == 0 { first } else { first + 1 })
    };
    // Writing to a String cannot fail.
    let _ = writeln!(text, "--- {old_name}\n+++ {new_name}");
    let _ = writeln!(text, "@@ -{} +{} @@", range(old_end), range(new_end));
    let mut lines = |sign: char, lines: &[&str]| {
        for line in lines {
            text.push(sign);
            text.push_str(line);
            if !line.ends_with('\n') {
                text.push_str("\n\\ No newline at end of file\n");
            }
        }
    };
    lines(' ', &old[first..same_start]);
    lines('-', &old[same_start..old_end]);
    lines('+', &new[same_start..new_end]);
    lines(' ', &old[old_end..old_end + after_end]);
    text
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_line_is_shown_with_its_neighbours() {
        let before = "a\nb\nc\nd\nstage: 1\ne\n";
        let told = unified("x.yaml", Some(before), Some(&before.replace('1', "2")));
        assert_eq!(
            told,
            "diff --git a/x.yaml b/x.yaml\n--- a/x.yaml\n+++ b/x.yaml\n@@ -2,5 +2,5 @@\n b\n c\n d\n\
             -stage: 1\n+stage: 2\n e\n"
        );
        assert_eq!(unified("x", Some("a"), Some("a")), "");
    }

    fn file() -> impl Strategy<Value = Option<String>> {
        let text = prop::collection::vec("[abc]{0,2}\n?", 1..12).prop_map(|lines| lines.concat());
        prop::option::of(text.prop_filter("git knows no empty hunk", |text| !text.is_empty()))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn git_applies_what_is_told(before in file(), after in file()) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("f");
            if let Some(before) = &before {
                std::fs::write(&path, before).unwrap();
            }
            let diff = unified("f", before.as_deref(), after.as_deref());
            if !diff.is_empty() {
                std::fs::write(dir.path().join("patch"), &diff).unwrap();
                let applied = Command::new("git")
                    .args(["apply", "--whitespace=nowarn", "patch"])
                    .current_dir(dir.path())
                    .env("GIT_DIR", "/nonexistent")
                    .output()
                    .unwrap();
                prop_assert!(applied.status.success(), "{diff}{applied:?}");
            }
            prop_assert_eq!(std::fs::read_to_string(&path).ok(), after);
        }
    }
}
