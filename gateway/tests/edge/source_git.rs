//! `--repo`.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::Duration;

use gateway::source::git::{GitError, RepoSource};
use gateway::source::{Loaded, SourceError};

use super::support::estate::{self, Estate, artefact};
use super::support::gateway::{Gateway, command, run_command};
use super::support::git::{Remote, git};
use super::support::{PATIENCE, opamp, until};

const WEB: &str = "rendered/shop/web.yaml";

fn source(remote: &Remote, cache: &Path) -> RepoSource {
    RepoSource::new(&remote.url(), None, "", Some(cache), PATIENCE).unwrap()
}

fn web(loaded: &Loaded) -> String {
    String::from_utf8(loaded.served.tiers["shop/web"].base.bytes().to_vec()).unwrap()
}

#[test]
fn each_commit_is_served_once() {
    let (remote, cache) = (Remote::new(), tempfile::tempdir().unwrap());
    let mut source = source(&remote, cache.path());
    let first = source.look().unwrap().unwrap();
    assert_eq!(*first.served.commit, remote.head());
    assert!(first.commit_unix_ms.is_some());
    assert_eq!(web(&first), artefact("web", "first"));
    assert!(source.look().unwrap().is_none());

    remote.put(WEB, &artefact("web", "second"));
    let commit = remote.push("second");
    let second = source.look().unwrap().unwrap();
    assert_eq!(*second.served.commit, commit);
    assert_eq!(web(&second), artefact("web", "second"));

    git(&remote.work(), &["reset", "--quiet", "--hard", "HEAD~1"]);
    let commit = remote.push("history was rewritten");
    assert_eq!(*source.look().unwrap().unwrap().served.commit, commit);
}

#[test]
fn no_more_history_and_blobs_are_fetched_than_needed() {
    let remote = Remote::with(|root| {
        estate::write(root);
        estate::put(root, "videos/large.bin", &"x".repeat(1_000_000));
    });
    remote.push("second");
    let cache = tempfile::tempdir().unwrap();
    source(&remote, cache.path()).look().unwrap().unwrap();
    let clone = cache.path().join("estate.git");
    let count = git(&clone, &["rev-list", "--count", "refs/tidegate/head"]);
    assert_eq!(count.trim(), "1", "one commit");
    let large = git(&remote.work(), &["rev-parse", "HEAD:videos/large.bin"]);
    let arguments = ["rev-list", "--objects", "--missing=print", "refs/tidegate/head"];
    let objects = git(&clone, &arguments);
    assert!(objects.contains(&format!("?{}", large.trim())), "{objects}");
    assert_eq!(objects.matches('?').count(), 1, "everything else is there: {objects}");
}

#[test]
fn a_branch_and_a_folder_can_be_chosen() {
    let remote = Remote::with(|root| estate::write(&root.join("estates/shop")));
    git(&remote.work(), &["checkout", "--quiet", "-b", "release/1"]);
    remote.put("estates/shop/rendered/shop/web.yaml", &artefact("web", "release"));
    remote.push("release");
    let look = |reference, folder: &str| {
        RepoSource::new(&remote.url(), reference, folder, None, PATIENCE).unwrap().look()
    };
    let release = look(Some("release/1"), "estates/shop").unwrap().unwrap();
    assert_eq!(web(&release), artefact("web", "release"));
    let main = look(Some("refs/heads/main"), "estates/shop").unwrap().unwrap();
    assert_eq!(web(&main), artefact("web", "first"));

    let error = look(Some("main"), "").unwrap_err();
    assert!(matches!(error, SourceError::NotAnEstate { .. }), "{error}");
    let error = look(Some("main"), "elsewhere").unwrap_err().to_string();
    assert!(error.contains("elsewhere"), "{error}");
    let error = look(Some("no-such-branch"), "").unwrap_err();
    assert_eq!(error.reason(), "fetch", "{error}");
    assert!(error.to_string().contains("no-such-branch"), "{error}");
}

#[test]
fn a_cache_of_another_remote_is_replaced() {
    let (one, other, cache) = (Remote::new(), Remote::new(), tempfile::tempdir().unwrap());
    other.put(WEB, &artefact("web", "other"));
    other.push("other");
    source(&one, cache.path()).look().unwrap().unwrap();
    let loaded = source(&other, cache.path()).look().unwrap().unwrap();
    assert_eq!(web(&loaded), artefact("web", "other"));
    let loaded = source(&one, cache.path()).look().unwrap().unwrap();
    assert_eq!(web(&loaded), artefact("web", "first"));
}

#[test]
fn a_folder_that_is_no_clone_is_left_alone() {
    let (remote, cache) = (Remote::new(), tempfile::tempdir().unwrap());
    estate::put(cache.path(), "estate.git/precious", "data");
    let error = source(&remote, cache.path()).look().unwrap_err();
    assert!(matches!(error, SourceError::Git(GitError::Cache { .. })), "{error}");
    assert!(cache.path().join("estate.git/precious").exists());
}

#[test]
fn a_damaged_or_locked_clone_heals() {
    let (remote, cache) = (Remote::new(), tempfile::tempdir().unwrap());
    let clone = cache.path().join("estate.git");
    let mut source = source(&remote, cache.path());
    source.look().unwrap().unwrap();

    fs::write(clone.join("shallow.lock"), "").unwrap();
    remote.push("second");
    assert!(source.look().unwrap().is_some(), "a lock that a killed git left");

    fs::remove_dir_all(clone.join("objects/pack")).unwrap();
    remote.put(WEB, &artefact("web", "third"));
    remote.push("third");
    let healed = until("the clone to heal", || source.look().ok().flatten());
    assert_eq!(web(&healed), artefact("web", "third"));
}

#[test]
fn links_stay_inside_the_estate() {
    let remote = Remote::new();
    let cache = tempfile::tempdir().unwrap();
    let mut source = source(&remote, cache.path());
    remote.put("shared/web.yaml", &artefact("web", "linked"));
    remote.remove(WEB);
    symlink("../../shared/web.yaml", remote.work().join(WEB)).unwrap();
    remote.push("a link");
    assert_eq!(web(&source.look().unwrap().unwrap()), artefact("web", "linked"));

    remote.remove(WEB);
    symlink("../../../../etc/hostname", remote.work().join(WEB)).unwrap();
    remote.push("a link that leads out");
    let error = source.look().unwrap_err().to_string();
    assert!(error.contains("leads out of the estate"), "{error}");
}

#[test]
fn a_broken_or_vanished_remote_leaves_the_old_head_and_heals() {
    let remote = Remote::new();
    let gateway = Gateway::serve(&["--repo", &remote.url(), "--fetch-interval", "50ms"]);
    let first = remote.head();
    assert!(gateway.announced[1].contains(&first[..12]), "{:?}", gateway.announced);

    remote.put("teams/shop/tiers/web.yaml", "owner: [\n");
    let broken = remote.push("broken");
    let failure = gateway.fails("invalid");
    let detail = failure["detail"].as_str().unwrap();
    let place = format!("{}@{}/teams/shop/tiers/web.yaml", remote.url(), &broken[..12]);
    assert!(detail.contains(&place), "{detail}");
    assert_eq!(gateway.json("/api/v1/head")["commit"], first);
    assert!(opamp::offered(gateway.listen, 1, "web").contains("text: first"));

    let (bare, away) = (remote.bare(), remote.work().join("../away.git"));
    fs::rename(&bare, &away).unwrap();
    gateway.fails("fetch");
    assert_eq!(gateway.json("/api/v1/head")["commit"], first);
    fs::rename(&away, &bare).unwrap();

    git(&remote.work(), &["checkout", "--quiet", &first, "--", "."]);
    remote.put(WEB, &artefact("web", "mended"));
    let mended = remote.push("mended");
    until("the mended head", || (gateway.json("/api/v1/head")["commit"] == *mended).then_some(()));
    gateway.heals();
    assert!(opamp::offered(gateway.listen, 1, "web").contains("text: mended"));
    let info = format!("tidegate_head_info{{commit=\"{}\",source=\"repo\"}}", &mended[..12]);
    let metrics = gateway.metrics();
    assert_eq!(metrics[&info], 1.0);
    let infos = metrics.keys().filter(|series| series.starts_with("tidegate_head_info"));
    assert_eq!(infos.count(), 1);
    assert!(metrics["tidegate_head_commit_timestamp_seconds"] > 1e9);
}

#[test]
fn a_commit_that_changes_nothing_is_a_new_commit_and_no_new_generation() {
    let remote = Remote::new();
    let gateway = Gateway::serve(&["--repo", &remote.url(), "--fetch-interval", "50ms"]);
    remote.put("README.md", "nothing that is served\n");
    let commit = remote.push("a word");
    until("the new commit", || (gateway.json("/api/v1/head")["commit"] == *commit).then_some(()));
    assert_eq!(gateway.json("/api/v1/head")["generation"], 1);
}

#[test]
fn a_remote_that_hangs_is_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let hang = dir.path().join("hang");
    fs::write(&hang, "#!/bin/sh\nexec sleep 1000\n").unwrap();
    fs::set_permissions(&hang, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = command(&["serve", "--repo", "ssh://user@host.invalid/estate"]);
    command.args(["--fetch-timeout", "300ms"]).env("GIT_SSH_COMMAND", &hang);
    let ended = run_command(command);
    assert_eq!(ended.code, Some(1));
    assert!(ended.err.contains("git fetch took longer than 300ms and was killed"), "{}", ended.err);
}

#[test]
fn no_hook_runs_and_no_credential_is_shown() {
    let remote = Remote::new();
    let dir = tempfile::tempdir().unwrap();
    let hooks = dir.path().join("hooks");
    let mark = dir.path().join("hook-ran");
    for name in ["reference-transaction", "post-checkout", "pre-auto-gc", "post-rewrite"] {
        estate::put(&hooks, name, &format!("#!/bin/sh\ntouch {}\n", mark.display()));
        let executable = fs::Permissions::from_mode(0o755);
        fs::set_permissions(hooks.join(name), executable).unwrap();
    }
    let config = dir.path().join("gitconfig");
    fs::write(&config, format!("[core]\n\thooksPath = {}\n", hooks.display())).unwrap();
    let mut serve = command(&["serve", "--listen", "127.0.0.1:0", "--repo", &remote.url()]);
    serve.env("GIT_CONFIG_GLOBAL", &config);
    drop(Gateway::start(serve, &[]));
    assert!(!mark.exists());

    let secret = "https://user:hunter2@127.0.0.1:1/estate.git";
    let ended = run_command(command(&["serve", "--repo", secret]));
    assert_eq!(ended.code, Some(1));
    assert!(!ended.err.contains("hunter2"), "{}", ended.err);
    assert!(ended.err.contains("https://127.0.0.1:1/estate.git"), "{}", ended.err);
}

#[test]
fn a_temporary_clone_goes_with_the_process() {
    let remote = Remote::new();
    let dir = tempfile::tempdir().unwrap();
    let mut serve = command(&["serve", "--listen", "127.0.0.1:0", "--drain-delay", "0s"]);
    serve.env("TMPDIR", dir.path());
    let mut gateway = Gateway::start(serve, &["--repo", &remote.url()]);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    gateway.signal(rustix::process::Signal::TERM);
    assert_eq!(gateway.wait().code(), Some(0));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_deadline_kills_what_git_started() {
    let estate = Estate::new();
    let git =
        gateway::source::git::command::Git::in_worktree(estate.path(), Duration::from_millis(200));
    let error = git.text(&["-c", "alias.hang=!sleep 1000", "hang"]).unwrap_err();
    assert!(matches!(error, GitError::Timeout { .. }), "{error}");
}
