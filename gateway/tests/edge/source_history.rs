//! Since when a stage runs, by git history: told where it is whole, and never in the way of a head.

use std::fs;
use std::path::Path;

use gateway::source::dir::DirSource;
use gateway::source::git::RepoSource;
use render::snapshot::served::ServedRollout;

use crate::proposals::{ROLLOUT, demo_in};
use crate::support::PATIENCE;
use crate::support::git::{Remote, git};

fn source(url: &str, folder: &str, cache: &Path) -> RepoSource {
    RepoSource::new(url, None, folder, Some(cache), PATIENCE).unwrap()
}

fn look(source: &mut RepoSource) -> Option<(Option<String>, Option<u64>)> {
    source.look().unwrap().map(|loaded| told(&loaded.served.rollouts["data-flow/bridge-canary"]))
}

fn told(rollout: &ServedRollout) -> (Option<String>, Option<u64>) {
    (rollout.origin.as_deref().map(str::to_owned), rollout.stage_started_ms)
}

fn set_stage(remote: &Remote, folder: &str, stage: u32) -> String {
    let path = Path::new(folder).join(ROLLOUT);
    let text = fs::read_to_string(remote.work().join(&path)).unwrap();
    let line = text.lines().find(|line| line.starts_with("stage:")).unwrap().to_owned();
    remote.put(path.to_str().unwrap(), &text.replace(&line, &format!("stage: {stage}")));
    remote.push(&format!("stage {stage}"))
}

/// The committer date, in milliseconds.
fn date(remote: &Remote, commit: &str) -> u64 {
    let seconds = git(&remote.work(), &["log", "-1", "--format=%ct", commit]);
    seconds.trim().parse::<u64>().unwrap() * 1_000
}

fn shallow(cache: &Path) -> bool {
    cache.join("estate.git/shallow").exists()
}

#[test]
fn a_clone_is_deepened_for_the_first_rollout_and_followed_since() {
    for folder in ["", "estates/a [b]"] {
        let remote = demo_in(folder);
        let first = remote.head();
        remote.push("unrelated");
        let cache = tempfile::tempdir().unwrap();
        let mut source = source(&remote.url(), folder, cache.path());
        assert_eq!(look(&mut source), Some((Some(first.clone()), Some(date(&remote, &first)))));
        assert!(!shallow(cache.path()));
        assert_eq!(look(&mut source), None);

        let second = set_stage(&remote, folder, 2);
        remote.push("unrelated");
        let since = date(&remote, &second);
        assert_eq!(look(&mut source), Some((Some(first.clone()), Some(since))));

        // Another process with the same cache does not make it shallow again.
        let mut again = self::source(&remote.url(), folder, cache.path());
        assert_eq!(look(&mut again), Some((Some(first), Some(since))));
        assert!(!shallow(cache.path()));
    }
}

#[test]
fn a_merge_counts_from_the_merge() {
    let remote = demo_in("");
    let work = remote.work();
    git(&work, &["checkout", "--quiet", "-b", "proposal"]);
    set_stage(&remote, "", 2);
    git(&work, &["checkout", "--quiet", "main"]);
    remote.push("unrelated");
    git(&work, &["merge", "--quiet", "--no-ff", "-m", "merge", "proposal"]);
    let merge = remote.push("after the merge");
    let merge = git(&work, &["rev-parse", &format!("{merge}~1")]);
    let cache = tempfile::tempdir().unwrap();
    let (_, since) = look(&mut source(&remote.url(), "", cache.path())).unwrap();
    assert_eq!(since, Some(date(&remote, merge.trim())));
}

#[test]
fn a_head_is_served_when_its_history_cannot_be_had() {
    let remote = demo_in("");
    set_stage(&remote, "", 2);
    let away = tempfile::tempdir().unwrap();
    let cut = away.path().join("cut.git");
    let cut = cut.to_str().unwrap();
    git(away.path(), &["clone", "--quiet", "--bare", "--depth=1", &remote.url(), cut]);
    let cache = tempfile::tempdir().unwrap();
    let mut source = source(&format!("file://{cut}"), "", cache.path());
    assert_eq!(look(&mut source), Some((None, None)));
    // Not asked for at each look, and told once it can be had.
    assert_eq!(look(&mut source), None);
    git(Path::new(cut), &["fetch", "--quiet", "--unshallow", &remote.url()]);
    let found = (0..30).find_map(|_| look(&mut source)).unwrap();
    assert!(found.0.is_some() && found.1.is_some(), "{found:?}");
}

#[test]
fn a_directory_tells_what_its_head_says_too() {
    let remote = demo_in("");
    let work = remote.work();
    let mut source = DirSource::new(work.clone());
    let mut look = || {
        let loaded = source.look_pausing(|| ()).unwrap().unwrap();
        told(&loaded.served.rollouts["data-flow/bridge-canary"])
    };
    let first = remote.head();
    assert_eq!(look(), (Some(first.clone()), Some(date(&remote, &first))));
    let file = work.join(ROLLOUT);
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("stage: 1", "stage: 2")).unwrap();
    assert_eq!(look(), (None, None), "nobody committed that");
    let second = remote.push("stage 2");
    assert_eq!(look(), (Some(first), Some(date(&remote, &second))));
}

#[test]
fn a_directory_inside_a_repository_tells_nothing() {
    let remote = demo_in("estates/demo");
    let mut source = DirSource::new(remote.work().join("estates/demo"));
    let loaded = source.look_pausing(|| ()).unwrap().unwrap();
    assert_eq!(told(&loaded.served.rollouts["data-flow/bridge-canary"]), (None, None));
}
