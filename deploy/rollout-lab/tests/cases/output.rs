//! T86 to T90: the program, its files, and that a changed figure is refused.

use std::path::Path;
use std::process::{Command, Output};

use rollout_lab::lab::{self, Settings};
use rollout_lab::{Rules, Switch};
use serde_json::Value;

fn lab(dir: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rollout-lab"))
        .args(arguments)
        .current_dir(dir)
        .output()
        .unwrap()
}

fn model(dir: &Path, out: &str, more: &[&str]) -> String {
    let done = lab(dir, &[&["model", "--out", out], more].concat());
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

#[test]
fn t86_one_seed_makes_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
    let (one, two) = (model(dir.path(), "1.csv", &[]), model(dir.path(), "2.csv", &[]));
    assert_eq!((one.as_str(), read("1.csv")), (two.as_str(), read("2.csv")));
    let other = model(dir.path(), "3.csv", &["--seed", "2"]);
    assert_ne!(one, other);
    assert_eq!(read("1.csv"), read("3.csv"), "counts do not depend on ids");
    assert!(read("1.csv").starts_with(lab::HEADER));
}

#[test]
fn t87_t88_output_files() {
    let dir = tempfile::tempdir().unwrap();
    let unwritable = lab(dir.path(), &["model", "--out", "absent/1.csv"]);
    assert_eq!((unwritable.status.code(), unwritable.stdout.len()), (Some(2), 0));
    model(dir.path(), "1.csv", &[]);
    let again = lab(dir.path(), &["model", "--out", "1.csv"]);
    assert_eq!((again.status.code(), again.stdout.len()), (Some(2), 0));
    assert!(String::from_utf8_lossy(&again.stderr).contains("--force"));
    std::fs::write(dir.path().join("1.csv"), "x".repeat(100_000)).unwrap();
    model(dir.path(), "1.csv", &["--force", "--plot", "1.svg", "--record", "1.run.json"]);
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
    assert_eq!(read("1.csv").lines().count(), 8, "replaced, not appended to");
    assert!(read("1.svg").contains("modeled available"));
    let record: Value = serde_json::from_str(&read("1.run.json")).unwrap();
    assert_eq!((&record["exit_code"], &record["command"][1]), (&0.into(), &"model".into()));
}

#[test]
fn check_accepts_both_modes_and_single_switches() {
    let dir = tempfile::tempdir().unwrap();
    for (name, more) in [
        ("a", &["--mode", "baseline"][..]),
        ("b", &["--mode", "strict", "--seed", "77"]),
        ("c", &["--with", "processes"]),
        ("d", &["--mode", "strict", "--without", "acknowledge"]),
    ] {
        let (csv, json) = (format!("{name}.csv"), format!("{name}.json"));
        std::fs::write(dir.path().join(&json), model(dir.path(), &csv, more)).unwrap();
        let checked = lab(dir.path(), &["check", &csv, &json]);
        let said = String::from_utf8_lossy(&checked.stdout).into_owned();
        assert_eq!(checked.status.code(), Some(0), "{said}");
        assert!(said.contains("not claimed"));
    }
    let bad = lab(dir.path(), &["model", "--out", "e.csv", "--with", "nothing"]);
    assert_eq!(bad.status.code(), Some(2));
}

#[test]
fn the_program_says_1_for_a_changed_figure_and_2_for_a_missing_file() {
    let dir = tempfile::tempdir().unwrap();
    let document = model(dir.path(), "1.csv", &[]);
    std::fs::write(dir.path().join("1.json"), document).unwrap();
    let timeline = std::fs::read_to_string(dir.path().join("1.csv")).unwrap();
    std::fs::write(dir.path().join("1.csv"), timeline.replace("2,1,1,1,3,4", "2,1,1,1,2,4"))
        .unwrap();
    let changed = lab(dir.path(), &["check", "1.csv", "1.json"]);
    assert_eq!(changed.status.code(), Some(1));
    let said = String::from_utf8(changed.stdout).unwrap();
    assert!(said.contains("A2") && said.contains("timeline line 6"), "{said}");
    assert_eq!(lab(dir.path(), &["check", "absent.csv", "1.json"]).status.code(), Some(2));
}

/// A9: with four descriptors (the three standard ones and one more) a socket, a pipe to a child or a
/// second open file has no place beside the timeline.
#[test]
fn a9_the_timeline_is_the_only_thing_opened() {
    let dir = tempfile::tempdir().unwrap();
    let done = Command::new("bash")
        .args([
            "-c",
            "ulimit -n 4; exec \"$0\" model --out 1.csv",
            env!("CARGO_BIN_EXE_rollout-lab"),
        ])
        .current_dir(dir.path())
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let left: Vec<_> =
        std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["1.csv"]);
}

/// A9: nothing outside of the command line knows files, sockets, processes, threads or the time.
#[test]
fn a9_the_model_half_knows_no_outside() {
    fn walk(dir: &Path, found: &mut Vec<std::path::PathBuf>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { walk(&path, found) } else { found.push(path) }
        }
    }
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    walk(&sources, &mut files);
    let model: Vec<_> = files
        .iter()
        .filter(|path| {
            let inside = path.strip_prefix(&sources).unwrap();
            !inside.starts_with("cli")
                && !inside.starts_with("drill")
                && !inside.ends_with("main.rs")
        })
        .collect();
    assert!(model.len() > 25);
    for path in model {
        let text = std::fs::read_to_string(path).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap();
        for word in [
            "std::fs",
            "std::net",
            "std::process",
            "std::thread",
            "std::env",
            "tokio",
            "Instant",
            "SystemTime",
        ] {
            assert!(!code.contains(word), "{} has {word}", path.display());
        }
    }
}

fn captured() -> (String, Value) {
    let settings = Settings { seed: 5, mode: "baseline".to_owned(), rules: Rules::baseline() };
    let mut seen = lab::run(&settings).unwrap();
    lab::conclude(&mut seen, 1);
    (lab::write(&seen.checkpoints), serde_json::to_value(seen).unwrap())
}

#[test]
fn t89_any_changed_figure_of_the_timeline_is_refused() {
    let (timeline, document) = captured();
    let document = document.to_string();
    assert_eq!(lab::check(&timeline, &document), []);
    let mut tried = 0;
    for (number, line) in timeline.lines().enumerate() {
        for at in 0..line.split(',').count() {
            let mut fields: Vec<String> = line.split(',').map(str::to_owned).collect();
            fields[at].push('1');
            let mut lines: Vec<String> = timeline.lines().map(str::to_owned).collect();
            lines[number] = fields.join(",");
            let changed = lines.join("\n") + "\n";
            assert_ne!(lab::check(&changed, &document), [], "{changed}");
            tried += 1;
        }
    }
    assert_eq!(tried, 8 * 12);
    for changed in [
        timeline.trim_end().to_owned(),
        timeline.replace('\n', "\r\n"),
        timeline.lines().take(7).map(|line| format!("{line}\n")).collect(),
        format!("{timeline}{}\n", timeline.lines().last().unwrap()),
        String::new(),
    ] {
        assert_ne!(lab::check(&changed, &document), [], "{changed:?}");
    }
}

/// Changes one leaf after the other.
fn leaves(value: &Value, path: &mut Vec<String>, found: &mut Vec<Vec<String>>) {
    match value {
        Value::Object(members) => {
            for (key, member) in members {
                path.push(key.clone());
                leaves(member, path, found);
                path.pop();
            }
        }
        Value::Array(entries) => {
            for (index, entry) in entries.iter().enumerate() {
                path.push(index.to_string());
                leaves(entry, path, found);
                path.pop();
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            found.push(path.clone());
        }
    }
}

#[test]
fn t89_t90_any_changed_leaf_of_the_document_is_refused() {
    let (timeline, document) = captured();
    let mut paths = Vec::new();
    leaves(&document, &mut Vec::new(), &mut paths);
    assert!(paths.len() > 200);
    for path in &paths {
        let mut changed = document.clone();
        let pointer = format!("/{}", path.join("/"));
        let leaf = changed.pointer_mut(&pointer).unwrap();
        *leaf = match &*leaf {
            Value::Bool(flag) => (!flag).into(),
            Value::Number(number) => (number.as_i64().unwrap() + 1).into(),
            Value::String(text) => format!("{text}.").into(),
            _ => "changed".into(),
        };
        assert_ne!(lab::check(&timeline, &changed.to_string()), [], "{pointer}");
    }
    for key in document.as_object().unwrap().keys() {
        let mut without = document.clone();
        without.as_object_mut().unwrap().remove(key);
        assert_ne!(lab::check(&timeline, &without.to_string()), [], "{key}");
    }
    let mut silent = document.clone();
    silent["not_claimed"] = Value::Array(Vec::new());
    let why: Vec<String> =
        lab::check(&timeline, &silent.to_string()).into_iter().map(|found| found.at).collect();
    assert!(why.contains(&"A10".to_owned()), "{why:?}");
}

#[test]
fn every_single_switch_plays_the_lab_to_its_end() {
    for switch in Switch::ALL {
        for (mode, rules) in [
            ("baseline", Rules::baseline().with(switch)),
            ("strict", Rules::strict().without(switch)),
        ] {
            let settings = Settings { seed: 9, mode: mode.to_owned(), rules };
            let mut seen = lab::run(&settings).unwrap();
            lab::conclude(&mut seen, 1);
            let broken: Vec<_> = seen.acceptance.iter().filter(|one| !one.ok).collect();
            assert_eq!(broken, Vec::<&lab::Acceptance>::new(), "{mode} {switch}");
            assert_eq!(Settings::of(&seen).unwrap(), settings);
        }
    }
}
