//! When a Rollout's active stage began, and which commit brought the Rollout in, out of what
//! `git log` prints (rollouts.md, decisions 6 and 15).
//!
//! Nothing is spawned here: whoever calls runs `git log` with [`log_arguments`] and reads blobs.
//! History may be asked only of an estate at the root of its repository, or at a known folder of a
//! clone, and only where the clone is not shallow.

use std::collections::BTreeMap;

use crate::snapshot::served::Served;
use crate::tree::ObjectPath;
use crate::yaml;

/// What git is asked: the first-parent commits of `revision` that touched a Rollout file of the
/// estate in `folder` (empty: the root), newest first.
pub fn log_arguments(revision: &str, folder: &str) -> Vec<String> {
    let mut glob = String::from(":(top,glob)");
    for c in folder.chars() {
        if "*?[]\\".contains(c) {
            glob.push('\\');
        }
        glob.push(c);
    }
    if !folder.is_empty() {
        glob.push('/');
    }
    glob.push_str("teams/*/rollouts/*");
    [
        "-c",
        "core.quotePath=false",
        "-c",
        "log.showSignature=false",
        "log",
        "--first-parent",
        "-m",
        "--no-renames",
        "--no-ext-diff",
        "--no-color",
        "--no-notes",
        "--raw",
        "--no-abbrev",
        "--format=commit %H %ct",
        revision,
        "--",
        &glob,
    ]
    .map(str::to_owned)
    .into()
}

/// Per Rollout file, the first-parent commits that touched it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// Path inside the estate to changes, newest first, back to the commit that added the file.
    changes: BTreeMap<String, Vec<Change>>,
}

/// A first-parent commit that touched a file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Change {
    commit: String,
    /// Committer date, seconds since 1970.
    seconds: u64,
    /// Whether the file is new in it.
    adds: bool,
    /// What the file holds since; `None` where it is deleted, or is no regular file.
    blob: Option<String>,
}

/// What history tells of a Rollout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// The commit that added its file.
    pub origin: String,
    /// The committer date of the commit that set its stage, in milliseconds since 1970. As it
    /// stands in the commit: it may lie in the future.
    pub stage_started_ms: u64,
}

impl History {
    /// Reads what git prints for [`log_arguments`]; `None` when it is something else.
    pub fn parse(log: &str, folder: &str) -> Option<Self> {
        let mut changes: BTreeMap<String, Vec<Change>> = BTreeMap::new();
        let mut at: Option<(&str, u64)> = None;
        for line in log.lines() {
            if let Some(header) = line.strip_prefix("commit ") {
                let (commit, seconds) = header.split_once(' ')?;
                at = Some((commit, seconds.parse().ok()?));
                continue;
            }
            // `:<mode> <mode> <blob> <blob> <status>\t<path>`
            let Some(line) = line.strip_prefix(':') else { continue };
            let ((what, path), (commit, seconds)) = (line.split_once('\t')?, at?);
            let [_, mode, _, blob, status] = what.split(' ').collect::<Vec<_>>()[..] else {
                return None;
            };
            let Some(path) = within(path, folder).filter(|path| is_rollout(path)) else { continue };
            let changes = changes.entry(path.to_owned()).or_default();
            if changes.last().is_some_and(|newer| newer.adds) {
                // An earlier Rollout of the same name.
                continue;
            }
            changes.push(Change {
                commit: commit.to_owned(),
                seconds,
                adds: status == "A",
                blob: mode.starts_with("100").then(|| blob.to_owned()),
            });
        }
        Some(Self { changes })
    }

    /// Every blob that [`History::tell`] may ask for, so that they can be fetched at once.
    pub fn blobs(&self) -> impl Iterator<Item = &str> {
        self.changes.values().flatten().filter_map(|change| change.blob.as_deref())
    }

    /// What is told of the Rollout `team/name` at `stage`: nothing where it is not at that stage in
    /// the newest commit, or where history does not reach back to the commit that added it. `read`
    /// gives a blob.
    pub fn tell(
        &self,
        rollout: &str,
        stage: u32,
        mut read: impl FnMut(&str) -> Option<Vec<u8>>,
    ) -> Option<Told> {
        // A file that was renamed from .yml to .yaml has changes under both names.
        let of_rollout = self.changes.iter().filter(|(path, _)| {
            ObjectPath::parse(path)
                .is_some_and(|path| rollout.split_once('/') == Some((path.team, path.name)))
        });
        of_rollout.filter_map(|(_, changes)| tell(changes, stage, &mut read)).next()
    }

    /// Fills in what history tells of each served Rollout; gives the ids of those of which it
    /// tells nothing.
    pub fn fill(
        &self,
        served: &mut Served,
        mut read: impl FnMut(&str) -> Option<Vec<u8>>,
    ) -> Vec<String> {
        let mut untold = Vec::new();
        for (id, rollout) in &mut served.rollouts {
            match self.tell(id, rollout.stage, &mut read) {
                Some(told) => {
                    rollout.origin = Some(told.origin.into());
                    rollout.stage_started_ms = Some(told.stage_started_ms);
                }
                None => untold.push(id.to_string()),
            }
        }
        untold
    }
}

fn tell(
    changes: &[Change],
    stage: u32,
    read: &mut impl FnMut(&str) -> Option<Vec<u8>>,
) -> Option<Told> {
    let mut at_stage = |change: &Change| {
        change.blob.as_deref().and_then(&mut *read).and_then(|bytes| stage_of(&bytes))
            == Some(stage)
    };
    let oldest = changes.last().filter(|oldest| oldest.adds)?;
    let since = changes.iter().take_while(|change| at_stage(change)).last()?;
    let stage_started_ms = since.seconds.checked_mul(1_000)?;
    Some(Told { origin: oldest.commit.clone(), stage_started_ms })
}

/// The `stage` of a Rollout file; absent is 0.
fn stage_of(bytes: &[u8]) -> Option<u32> {
    let root = yaml::parse(bytes).ok()?;
    match root.get("stage") {
        None => Some(0),
        Some(node) if node.is_null() => Some(0),
        Some(node) => node.as_scalar()?.text.parse().ok(),
    }
}

/// The path as seen from `folder`.
fn within<'p>(path: &'p str, folder: &str) -> Option<&'p str> {
    if folder.is_empty() { Some(path) } else { path.strip_prefix(folder)?.strip_prefix('/') }
}

fn is_rollout(path: &str) -> bool {
    ObjectPath::parse(path).is_some_and(|path| path.kind == "rollouts")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line that git prints for a change; the blob is named after the stage it holds.
    fn change(status: &str, blob: &str, path: &str) -> String {
        let mode = if status == "D" { "000000" } else { "100644" };
        format!(":100644 {mode} old {blob} {status}\t{path}\n")
    }

    fn read(blob: &str) -> Option<Vec<u8>> {
        match blob {
            "absent" => Some(b"to: a/b@1\n".to_vec()),
            "broken" => Some(b"{".to_vec()),
            "gone" => None,
            stage => Some(format!("stage: {stage}\n").into_bytes()),
        }
    }

    /// `commits`: newest first, at seconds 9, 8, 7, …
    fn tell(commits: &[(&str, &str)], stage: u32) -> Option<(String, u64)> {
        let path = "estates/a/teams/t/rollouts/r.yaml";
        let log: String = (commits.iter().zip((0..10).rev()))
            .map(|((status, blob), seconds)| {
                format!("commit c{seconds} {seconds}\n\n{}", change(status, blob, path))
            })
            .collect();
        let history = History::parse(&log, "estates/a").unwrap();
        let told = history.tell("t/r", stage, read);
        told.map(|told| (told.origin, told.stage_started_ms))
    }

    #[test]
    fn a_stage_began_with_the_commit_that_set_it() {
        let set = |commits: &[_], stage, origin: &str, seconds: u64| {
            assert_eq!(
                tell(commits, stage),
                Some((origin.to_owned(), seconds * 1_000)),
                "{commits:?}"
            );
        };
        set(&[("A", "0")], 0, "c9", 9);
        set(&[("M", "1"), ("M", "0"), ("A", "0")], 1, "c7", 9);
        set(&[("M", "1"), ("M", "1"), ("M", "0"), ("A", "0")], 1, "c6", 8);
        set(&[("M", "0"), ("M", "1"), ("A", "0")], 0, "c7", 9);
        set(&[("M", "absent"), ("A", "absent")], 0, "c8", 8);
        set(&[("M", "1"), ("M", "broken"), ("A", "1")], 1, "c7", 9);
    }

    #[test]
    fn an_earlier_rollout_of_the_same_name_is_another_one() {
        let commits = [("M", "1"), ("A", "0"), ("D", "0"), ("M", "1"), ("A", "1")];
        assert_eq!(tell(&commits, 1), Some(("c8".to_owned(), 9_000)));
    }

    #[test]
    fn nothing_is_told_where_history_is_not_whole_or_says_something_else() {
        assert_eq!(tell(&[("M", "1"), ("A", "0")], 0), None, "not committed yet");
        assert_eq!(tell(&[("M", "1"), ("M", "0")], 1), None, "nobody added it");
        assert_eq!(tell(&[("D", "1"), ("A", "1")], 1), None, "deleted");
        assert_eq!(tell(&[("M", "gone"), ("A", "1")], 1), None, "no such blob");
        assert_eq!(tell(&[], 0), None);
        let elsewhere = change("A", "0", "estates/b/teams/t/rollouts/r.yaml");
        let log = format!("commit c 9\n\n{elsewhere}");
        assert_eq!(History::parse(&log, "estates/a").unwrap().tell("t/r", 0, read), None);
        let link = "commit c 9\n\n:000000 120000 old 0 A\tteams/t/rollouts/r.yaml\n";
        assert_eq!(History::parse(link, "").unwrap().tell("t/r", 0, read), None, "a link");
    }

    #[test]
    fn a_file_of_another_extension_is_found() {
        let old = change("D", "1", "teams/t/rollouts/r.yaml");
        let new = change("A", "1", "teams/t/rollouts/r.yml");
        let log = format!(
            "commit c9 9\n\n{old}{new}commit c8 8\n\n{}",
            change("A", "1", "teams/t/rollouts/r.yaml")
        );
        let told = History::parse(&log, "").unwrap().tell("t/r", 1, read).unwrap();
        assert_eq!((&*told.origin, told.stage_started_ms), ("c9", 9_000));
    }

    #[test]
    fn what_git_does_not_print_is_no_history() {
        for text in
            ["commit c x\n", ":1 2 3 4 A\tteams/t/rollouts/r.yaml\n", "commit c 9\n:1 2 A\tx\n"]
        {
            assert_eq!(History::parse(text, ""), None, "{text:?}");
        }
        assert_eq!(History::parse("", ""), Some(History::default()));
    }

    #[test]
    fn a_folder_is_no_pattern() {
        let arguments = log_arguments("HEAD", "a*b/c");
        assert_eq!(arguments.last().unwrap(), ":(top,glob)a\\*b/c/teams/*/rollouts/*");
        assert_eq!(log_arguments("HEAD", "").last().unwrap(), ":(top,glob)teams/*/rollouts/*");
    }
}
