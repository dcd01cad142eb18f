//! An estate in a temporary directory, and the binary run on it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) const CATALOGUE: &str = "catalogues/catalogue-v0.158.0.json";
pub(crate) const COMMIT: &str = "0000000000000000000000000000000000000000";

/// What a run of the binary printed and how it exited.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs the binary in `directory`.
pub(crate) fn run(directory: &Path, arguments: &[&str]) -> Ran {
    let output = Command::new(env!("CARGO_BIN_EXE_render"))
        .args(arguments)
        .current_dir(directory)
        .output()
        .expect("the binary starts");
    Ran {
        code: output.status.code().expect("no signal ended it"),
        stdout: String::from_utf8(output.stdout).expect("UTF-8"),
        stderr: String::from_utf8(output.stderr).expect("UTF-8"),
    }
}

/// `my-estate` in a directory of its own, so that it can be named `../my-estate`.
pub(crate) struct Estate {
    temporary: tempfile::TempDir,
}

impl Estate {
    /// A copy of the demo estate, as the guide makes one.
    pub(crate) fn demo() -> Self {
        let estate = Self::empty();
        copy(&demo(), &estate.root());
        estate
    }

    /// The smallest estate that renders, with a catalogue: one team, one Tier `a/edge` that binds
    /// `a/plain`, whose lane is an otlp receiver, a batch processor and a debug exporter.
    pub(crate) fn small() -> Self {
        let estate = Self::empty();
        estate.write("teams.yaml", "teams: [{id: a, owners: [ann]}]\n");
        estate.write(
            "telemetry.yaml",
            "self_telemetry:\n  endpoint: https://all.example:4318\n  environments:\n    \
             production: https://production.example:4318\n",
        );
        estate.write("teams/a/tiers/edge.yaml", &tier("staging", "a/plain@1", ""));
        estate.blueprint("plain", 1, "", "traces: [in, work, out]");
        estate.write(CATALOGUE, &catalogue());
        estate
    }

    fn empty() -> Self {
        let temporary = tempfile::tempdir().expect("a temporary directory");
        fs::create_dir_all(temporary.path().join("my-estate")).expect("a directory");
        fs::create_dir_all(temporary.path().join("bin")).expect("a directory");
        Self { temporary }
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.temporary.path().join("my-estate")
    }

    /// Where the guide's reader stands: the estate is `../my-estate` from here.
    pub(crate) fn bin(&self) -> PathBuf {
        self.temporary.path().join("bin")
    }

    pub(crate) fn out(&self) -> PathBuf {
        self.temporary.path().join("out")
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        let target = self.root().join(path);
        fs::create_dir_all(target.parent().expect("a parent")).expect("a directory");
        fs::write(target, text).expect("a file");
    }

    /// A Blueprint of team a over the local Components `in`, `work` and `out`. `more` is further
    /// local Components, `lanes` the pipelines; names in flow lists are references.
    pub(crate) fn blueprint(&self, name: &str, version: u32, more: &str, lanes: &str) {
        self.write(
            &format!("teams/a/blueprints/{name}.yaml"),
            &blueprint(name, version, more, lanes),
        );
    }

    pub(crate) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.root().join(path)).expect(path)
    }

    pub(crate) fn replace(&self, path: &str, from: &str, to: &str) {
        let text = self.read(path);
        assert!(text.contains(from), "{path} holds {from:?}");
        self.write(path, &text.replace(from, to));
    }

    pub(crate) fn remove(&self, path: &str) {
        fs::remove_file(self.root().join(path)).expect(path);
    }

    /// Renders in place, as `render --estate ../my-estate …`, with further arguments.
    pub(crate) fn render(&self, more: &[&str]) -> Ran {
        let catalogue = format!("../my-estate/{CATALOGUE}");
        let mut arguments = vec!["--estate", "../my-estate", "--catalogue", &catalogue];
        if !more.contains(&"--commit") && !more.contains(&"--check") {
            arguments.extend(["--commit", COMMIT]);
        }
        arguments.extend(more);
        run(&self.bin(), &arguments)
    }

    /// Renders in place and expects exit 0.
    #[track_caller]
    pub(crate) fn rendered(&self) -> Ran {
        let ran = self.render(&[]);
        assert_eq!(ran.code, 0, "{ran:?}");
        assert_eq!(ran.stderr, "");
        ran
    }

    /// Renders in place, expects a refusal and nothing written, and gives stderr.
    #[track_caller]
    pub(crate) fn refused(&self, code: i32) -> String {
        let before = files(&self.root());
        let ran = self.render(&[]);
        assert_eq!(ran.code, code, "{ran:?}");
        assert_eq!(ran.stdout, "");
        assert_eq!(files(&self.root()), before, "nothing is written");
        ran.stderr
    }
}

/// Two-sided: names become references unless they are written out.
pub(crate) fn blueprint(name: &str, version: u32, more: &str, lanes: &str) -> String {
    let entries = |list: &str| -> String {
        list.split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty())
            .map(|name| match name.strip_suffix(" head") {
                Some(name) => format!("{{component: {name}, track: head}}"),
                None => format!("{{component: {name}}}"),
            })
            .collect::<Vec<_>>()
            .join(", ")
    };
    let mut pipelines = String::new();
    let mut extensions = String::new();
    for lane in lanes.split(';') {
        let (lane, list) = lane.split_once(':').expect("lane: [names]");
        let list = entries(list.trim().trim_start_matches('[').trim_end_matches(']'));
        match lane.trim() {
            "extensions" => extensions = format!("extensions: [{list}]\n"),
            lane => pipelines.push_str(&format!("  {lane}: [{list}]\n")),
        }
    }
    if !pipelines.is_empty() {
        pipelines = format!("pipelines:\n{pipelines}");
    }
    let mut locals = String::new();
    for (local, class, kind) in
        [("in", "receiver", "otlp"), ("work", "processor", "batch"), ("out", "exporter", "debug")]
    {
        let used = |text: &str| text.contains(&format!("{{component: {local}}}"));
        if used(&pipelines) || used(&extensions) {
            locals.push_str(&format!(
                "  - {{name: {local}, class: {class}, type: {kind}, version: 1}}\n"
            ));
        }
    }
    for local in more.lines() {
        locals.push_str(&format!("  - {local}\n"));
    }
    if !locals.is_empty() {
        locals = format!("components:\n{locals}");
    }
    format!("name: {name}\nversion: {version}\nowner: ann\n{locals}{pipelines}{extensions}")
}

/// A Tier's file.
pub(crate) fn tier(environment: &str, binding: &str, more: &str) -> String {
    format!("owner: ann\nenvironment: {environment}\nblueprint: {binding}\n{more}")
}

/// Enough of a distribution: every class, an alias, each stability level that the cases need.
fn catalogue() -> String {
    let mut components = Vec::new();
    for (class, kind, alias, level) in [
        ("receiver", "otlp", "", "stable"),
        ("receiver", "kafka", "", "beta"),
        ("receiver", "young", "", "development"),
        ("processor", "batch", "", "beta"),
        ("processor", "attributes", "", "beta"),
        ("processor", "filter", "", "alpha"),
        ("exporter", "debug", "", "alpha"),
        ("exporter", "otlp_http", "otlphttp", "stable"),
        ("connector", "forward", "", "beta"),
        ("extension", "health_check", "", "beta"),
    ] {
        let stability: String = match class {
            "connector" => format!("{{\"traces_to_traces\": \"{level}\"}}"),
            "extension" => format!("{{\"extension\": \"{level}\"}}"),
            _ => format!("{{\"traces\": \"{level}\", \"logs\": \"stable\"}}"),
        };
        let alias = match alias {
            "" => String::new(),
            alias => format!("\"deprecated_type\": \"{alias}\", "),
        };
        components.push(format!(
            "{{\"class\": \"{class}\", \"type\": \"{kind}\", {alias}\"module\": \"m\", \
             \"stability\": {stability}}}"
        ));
    }
    format!(
        "{{\"format_version\": 1, \"source\": {{\"repository\": \"r\", \"ref\": \"v1\"}}, \
         \"components\": [{}]}}",
        components.join(", ")
    )
}

pub(crate) fn demo() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/estates/demo")
}

/// Every file below a directory, by relative path.
pub(crate) fn files(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        let Ok(entries) = fs::read_dir(&directory) else { continue };
        for entry in entries {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                directories.push(path);
            } else {
                let name = path.strip_prefix(root).expect("below the root");
                found.insert(name.display().to_string(), fs::read(&path).expect("a file"));
            }
        }
    }
    found
}

/// What `ls` prints of a directory.
pub(crate) fn ls(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("a directory");
    let mut names: Vec<String> =
        entries.map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn copy(from: &Path, to: &Path) {
    for (path, contents) in files(from) {
        let target = to.join(path);
        fs::create_dir_all(target.parent().expect("a parent")).expect("a directory");
        fs::write(target, contents).expect("a file");
    }
}
