//! Verdicts as branches of a real bare repository.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gateway::propose::config::Author;
use gateway::propose::repo::Repo;
use gateway::propose::worker::{Done, Failure, Job, Outcome, Worker};
use render::rollout::bundle;
use render::rollout::proposal::{Key, Kind};
use render::rollout::report::RolloutReport;
use render::rollout::verdict::{self, Counts, Tally, Terms, Times, Told, Verdict};

use crate::support::PATIENCE;
use crate::support::git::{Remote, git};

mod follow;
mod forge;

pub(super) const ROLLOUT: &str = "teams/data-flow/rollouts/bridge-canary.yaml";
const TIER: &str = "teams/data-flow/tiers/kafka-bridge.yaml";
const NEXT: &str = "rendered/data-flow/kafka-bridge@next.yaml";
const BASE: &str = "rendered/data-flow/kafka-bridge.yaml";
const BUNDLE: &str = "rollouts-evidence/data-flow/bridge-canary.json";
pub(super) const CATALOGUE: &str = "catalogues/catalogue-v0.158.0.json";
pub(super) const ADVANCE: &str = "tidegate/rollout/data-flow/bridge-canary/advance-3";
pub(super) const ABORT: &str = "tidegate/rollout/data-flow/bridge-canary/abort-2";
const MS: u64 = 1_790_000_000_000;

/// A remote that holds the demo estate in this folder.
pub(super) fn demo_in(folder: &str) -> Remote {
    Remote::with(|root| copy(&demo(), &root.join(folder)))
}

pub(super) fn demo() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/estates/demo")
}

pub(super) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

pub(super) fn author() -> Author {
    Author::parse("Tidegate <tidegate@example.com>").unwrap()
}

pub(super) fn worker(remote: &Remote) -> Worker {
    worker_in(remote, "")
}

fn worker_in(remote: &Remote, folder: &str) -> Worker {
    let repo = Repo::new(&remote.url(), None, folder, None, PATIENCE, author()).unwrap();
    let catalogue = Path::new(folder).join(CATALOGUE);
    Worker::new(repo, catalogue.to_str().unwrap().to_owned())
}

/// What is judged of the remote's head, at the stage that it has.
pub(super) fn report(remote: &Remote, stage: u32, kind: verdict::Kind) -> RolloutReport {
    let seen = Counts { seen: 20, to: 20, ..Counts::default() };
    RolloutReport {
        rollout: "data-flow/bridge-canary".to_owned(),
        tier: "data-flow/kafka-bridge".to_owned(),
        owner: "gateway-owners".to_owned(),
        from: "data-flow/bridge-standard@2".to_owned(),
        to: "data-flow/bridge-next@1".to_owned(),
        head: remote.head(),
        origin: None,
        base: "0a".repeat(32),
        candidate: "0b".repeat(32),
        cohorts: Vec::new(),
        terms: Terms {
            stage,
            stages: 3,
            soak_ms: 7_200_000,
            abort_at_percent: 10,
            dark_after_ms: 90_000,
            min_seen: 0,
            hold: false,
            same_content: false,
            expect_replicas: 1,
            grace_ms: 60_000,
        },
        times: Times {
            now_ms: MS,
            evidence_since_ms: MS - 100_000_000,
            stage_since_ms: MS - 50_000_000,
            stage_since: Told::History,
            candidate_since_ms: None,
            soak_since_ms: MS - 50_000_000,
        },
        tally: Tally { stages: vec![seen], replicas: 1, taken: 20, ..Tally::default() },
        verdict: Verdict {
            kind,
            seen: 20,
            failed: 0,
            dark: 0,
            dark_beyond_control: 0,
            aborts_at: 2,
            due_ms: None,
            soaked_ms: 50_000_000,
            why: "for the test".to_owned(),
        },
        braked_since_ms: None,
        halted: Vec::new(),
        replicas: Vec::new(),
        notices: Vec::new(),
        proposal: None,
    }
}

fn job(report: RolloutReport) -> Job {
    Job { report: Arc::new(report), settled: true }
}

fn turn(worker: &mut Worker, report: RolloutReport) -> Result<Option<Done>, Failure> {
    let mut results = worker.turn(&[job(report)], MS);
    assert_eq!(results.len(), 1);
    results.remove(0)
}

/// One turn that must do something.
#[track_caller]
fn done(worker: &mut Worker, report: RolloutReport) -> (Outcome, String) {
    let done = turn(worker, report).unwrap().unwrap();
    (done.outcome, done.commit)
}

/// Branches of the remote but `main`, and their tips.
pub(super) fn branches(remote: &Remote) -> Vec<(String, String)> {
    let format = "--format=%(refname:lstrip=2) %(objectname)";
    let listing = git(&remote.bare(), &["for-each-ref", format, "refs/heads/"]);
    let branches = listing.lines().map(|line| line.split_once(' ').unwrap());
    let ours = branches.filter(|(name, _)| *name != "main");
    ours.map(|(name, tip)| (name.to_owned(), tip.to_owned())).collect()
}

pub(super) fn tip(remote: &Remote, branch: &str) -> Option<String> {
    branches(remote).into_iter().find(|(name, _)| name == branch).map(|(_, tip)| tip)
}

/// What the branch changes against `main`: status and path.
fn diff(remote: &Remote, branch: &str) -> Vec<String> {
    let arguments = ["diff", "--name-status", "--no-renames", &format!("main...{branch}")];
    git(&remote.bare(), &arguments).lines().map(|line| line.replace('\t', " ")).collect()
}

fn show(remote: &Remote, object: &str) -> String {
    git(&remote.bare(), &["show", object])
}

/// Commits on the branch as somebody would from a checkout.
pub(super) fn human_commit(remote: &Remote, branch: &str, path: &str) -> String {
    let work = remote.work();
    git(&work, &["fetch", "--quiet", "origin", branch]);
    git(&work, &["checkout", "--quiet", "--detach", "FETCH_HEAD"]);
    remote.put(path, "by: hand\n");
    git(&work, &["add", "--all"]);
    git(&work, &["commit", "--quiet", "-m", "I know better"]);
    git(&work, &["push", "--quiet", "origin", &format!("HEAD:refs/heads/{branch}")]);
    let commit = remote.head();
    git(&work, &["checkout", "--quiet", "main"]);
    commit
}

/// Merges the branch into `main`, as a forge would.
fn merge(remote: &Remote, branch: &str) {
    let work = remote.work();
    git(&work, &["checkout", "--quiet", "main"]);
    git(&work, &["fetch", "--quiet", "origin", branch]);
    git(&work, &["merge", "--quiet", "--no-ff", "-m", "merge", "FETCH_HEAD"]);
    git(&work, &["push", "--quiet", "origin", "HEAD:main"]);
}

fn set_stage(remote: &Remote, stage: u32) {
    let file = remote.work().join(ROLLOUT);
    let text = fs::read_to_string(&file).unwrap();
    let line = text.lines().find(|line| line.starts_with("stage:")).unwrap().to_owned();
    fs::write(&file, text.replace(&line, &format!("stage: {stage}"))).unwrap();
    remote.push(&format!("stage {stage}"));
}

#[test]
fn an_advance_is_one_commit_of_one_line_and_its_evidence() {
    let remote = demo_in("");
    let mut worker = worker(&remote);
    let judged = report(&remote, 1, verdict::Kind::Advance);
    let (outcome, commit) = done(&mut worker, judged.clone());
    assert_eq!(outcome, Outcome::Pushed);
    assert_eq!(branches(&remote), [(ADVANCE.to_owned(), commit)]);
    assert_eq!(diff(&remote, ADVANCE), [format!("A {BUNDLE}"), format!("M {ROLLOUT}")]);

    let lines = git(&remote.bare(), &["diff", "-U0", "main", ADVANCE, "--", ROLLOUT]);
    let lines: Vec<&str> = lines.lines().skip(4).collect();
    assert_eq!(&lines[1..], ["-stage: 1", "+stage: 2"]);
    let evidence = show(&remote, &format!("{ADVANCE}:{BUNDLE}"));
    assert_eq!(bundle::verify(evidence.as_bytes()).unwrap().report, judged);

    let who = git(&remote.bare(), &["log", "-1", "--format=%an <%ae>|%cn <%ce>|%P", ADVANCE]);
    let us = author();
    assert_eq!(who.trim(), format!("{us}|{us}|{}", remote.head()));
    let message = git(&remote.bare(), &["log", "-1", "--format=%B", ADVANCE]);
    assert!(
        message.starts_with("Advance data-flow/bridge-canary to stage 3 of 3\n\n"),
        "{message}"
    );
    let key = Key::from_message(&message).unwrap();
    assert_eq!((key.kind, key.stage), (Kind::Advance, 1));
    assert_eq!(key.origin.as_deref(), Some(&*remote.head()), "the clone has its history");
    assert!(key.since_ms.is_some());
}

#[test]
fn a_proposal_is_pushed_once_also_after_unrelated_merges_and_a_restart() {
    let remote = demo_in("");
    let mut first = worker(&remote);
    let (_, commit) = done(&mut first, report(&remote, 1, verdict::Kind::Advance));
    remote.put("notes.md", "unrelated");
    remote.push("unrelated");
    for worker in [&mut first, &mut worker(&remote)] {
        let again = done(worker, report(&remote, 1, verdict::Kind::Advance));
        assert_eq!(again, (Outcome::Present, commit.clone()));
    }
    assert_eq!(branches(&remote), [(ADVANCE.to_owned(), commit)]);
}

#[test]
fn a_complete_rebinds_the_tier_and_retires_the_candidate() {
    let remote = demo_in("");
    set_stage(&remote, 2);
    let mut worker = worker(&remote);
    done(&mut worker, report(&remote, 2, verdict::Kind::Complete));
    let branch = "tidegate/rollout/data-flow/bridge-canary/advance-4";
    let expected = [
        format!("M {BASE}"),
        format!("D {NEXT}"),
        format!("A {BUNDLE}"),
        format!("D {ROLLOUT}"),
        format!("M {TIER}"),
    ];
    assert_eq!(diff(&remote, branch), expected);
    assert_eq!(show(&remote, &format!("{branch}:{BASE}")), show(&remote, &format!("main:{NEXT}")));
    assert!(
        show(&remote, &format!("{branch}:{TIER}")).contains("blueprint: data-flow/bridge-next@1\n")
    );
}

#[test]
fn an_abort_deletes_the_rollout_and_its_candidate() {
    let remote = demo_in("");
    done(&mut worker(&remote), report(&remote, 1, verdict::Kind::Abort));
    let expected = [format!("D {NEXT}"), format!("A {BUNDLE}"), format!("D {ROLLOUT}")];
    assert_eq!(diff(&remote, ABORT), expected);
}

#[test]
fn nothing_is_pushed_for_any_other_verdict() {
    let remote = demo_in("");
    let mut worker = worker(&remote);
    for kind in [verdict::Kind::Hold, verdict::Kind::Blocked, verdict::Kind::Inconclusive] {
        assert_eq!(turn(&mut worker, report(&remote, 1, kind)).unwrap(), None);
    }
    assert_eq!(branches(&remote), []);
}

#[test]
fn an_estate_in_a_folder_with_other_file_names_is_edited_there() {
    let folder = "estates/demo é";
    let remote = demo_in(folder);
    let (old, new) =
        (format!("{folder}/{ROLLOUT}"), format!("{folder}/{}", ROLLOUT.replace("yaml", "yml")));
    let rollout = fs::read_to_string(remote.work().join(&old)).unwrap();
    remote.remove(&old);
    remote.put(&new, &rollout.replace('\n', "\r\n"));
    fs::set_permissions(remote.work().join(&new), fs::Permissions::from_mode(0o755)).unwrap();
    let added = remote.push("another name");
    let mut worker = worker_in(&remote, folder);
    done(&mut worker, report(&remote, 1, verdict::Kind::Advance));
    let work = git(
        &remote.bare(),
        &["-c", "core.quotePath=false", "diff", "--name-status", "main", ADVANCE],
    );
    assert_eq!(work, format!("A\t{folder}/{BUNDLE}\nM\t{new}\n"));
    let edited = show(&remote, &format!("{ADVANCE}:{new}"));
    assert_eq!(edited, rollout.replace("stage: 1", "stage: 2").replace('\n', "\r\n"));
    let mode = git(&remote.bare(), &["ls-tree", ADVANCE, "--", &new]);
    assert!(mode.starts_with("100755 "), "{mode}");
    let message = git(&remote.bare(), &["log", "-1", "--format=%B", ADVANCE]);
    assert_eq!(Key::from_message(&message).unwrap().origin, Some(added));
}

#[test]
fn two_replicas_that_race_leave_one_branch() {
    let remote = demo_in("");
    let judged = report(&remote, 1, verdict::Kind::Advance);
    let results: Vec<Done> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|second| {
                let (remote, judged) = (&remote, judged.clone());
                scope.spawn(move || {
                    // At different times, or all would make the same commit.
                    let results = worker(remote).turn(&[job(judged)], MS + second * 1_000);
                    results.into_iter().next().unwrap().unwrap().unwrap()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let pushed = results.iter().filter(|done| done.outcome == Outcome::Pushed).count();
    let present = results.iter().filter(|done| done.outcome == Outcome::Present).count();
    assert_eq!((pushed, present), (1, 3), "{results:?}");
    let tip = tip(&remote, ADVANCE).unwrap();
    assert!(results.iter().all(|done| done.commit == tip), "{results:?}");
    assert_eq!(branches(&remote).len(), 1);
}

#[test]
fn a_push_that_lost_the_race_finds_the_winner() {
    let remote = demo_in("");
    let (mut one, mut other) = (worker(&remote), worker(&remote));
    let judged = report(&remote, 1, verdict::Kind::Advance);
    // The slower one has looked before the faster one pushed.
    let _lock = one.repo().open().unwrap();
    one.repo().fetch().unwrap();
    let (_, winner) = done(&mut other, judged.clone());
    let parent = remote.head();
    let loser = git(&remote.work(), &["commit-tree", "-p", &parent, "-m", "x", "HEAD^{tree}"]);
    git(
        &remote.work(),
        &["push", "--quiet", "origin", &format!("{}:refs/heads/other", loser.trim())],
    );
    one.repo().fetch().unwrap();
    let refused = one.repo().push(ADVANCE, Some(&parent), None).unwrap_err();
    assert!(refused.to_string().contains("stale info"), "{refused}");
    drop(_lock);
    assert_eq!(done(&mut one, judged), (Outcome::Present, winner));
}

#[test]
fn a_merged_branch_and_one_of_an_earlier_rollout_are_spent() {
    let remote = demo_in("");
    let mut worker = worker(&remote);
    let (_, first) = done(&mut worker, report(&remote, 1, verdict::Kind::Advance));
    merge(&remote, ADVANCE);
    // Back to stage 1 later: the merged branch is history.
    set_stage(&remote, 1);
    let (outcome, second) = done(&mut worker, report(&remote, 1, verdict::Kind::Advance));
    assert_eq!(outcome, Outcome::Pushed);
    assert_ne!(first, second);
    assert_eq!(tip(&remote, ADVANCE), Some(second.clone()));

    // The candidate changed: what was proposed for the old one is spent too.
    let other =
        RolloutReport { candidate: "0c".repeat(32), ..report(&remote, 1, verdict::Kind::Advance) };
    let (outcome, third) = done(&mut worker, other);
    assert_eq!(outcome, Outcome::Pushed);
    assert_ne!(second, third);
    assert_eq!(tip(&remote, ADVANCE), Some(third));
}

#[test]
fn a_re_authored_rollout_of_the_same_name_is_another_one() {
    let remote = demo_in("");
    let mut worker = worker(&remote);
    let (_, first) = done(&mut worker, report(&remote, 1, verdict::Kind::Advance));
    let rollout = fs::read_to_string(remote.work().join(ROLLOUT)).unwrap();
    remote.remove(ROLLOUT);
    remote.push("given up");
    remote.put(ROLLOUT, &rollout);
    let origin = remote.push("once more");
    let (outcome, second) = done(&mut worker, report(&remote, 1, verdict::Kind::Advance));
    assert_eq!(outcome, Outcome::Pushed);
    assert_ne!(first, second);
    let message = git(&remote.bare(), &["log", "-1", "--format=%B", ADVANCE]);
    assert_eq!(Key::from_message(&message).unwrap().origin, Some(origin));
}

#[test]
fn an_advance_whose_verdict_turned_is_withdrawn() {
    let remote = demo_in("");
    let mut worker = worker(&remote);
    let advance = || report(&remote, 1, verdict::Kind::Advance);
    for (kind, settled, withdrawn) in [
        (verdict::Kind::Inconclusive, true, false),
        (verdict::Kind::Hold, false, false),
        (verdict::Kind::Hold, true, true),
        (verdict::Kind::Blocked, false, true),
    ] {
        let (_, commit) = done(&mut worker, advance());
        let job = Job { settled, ..job(report(&remote, 1, kind)) };
        let result = worker.turn(&[job], MS).remove(0).unwrap();
        if withdrawn {
            let Done { outcome, commit: was, .. } = result.unwrap();
            assert_eq!((outcome, was), (Outcome::Withdrawn, commit));
            assert_eq!(tip(&remote, ADVANCE), None, "{kind:?}");
        } else {
            assert_eq!((result, tip(&remote, ADVANCE)), (None, Some(commit)), "{kind:?}");
        }
    }
}

#[test]
fn an_abort_withdraws_the_advance_and_stays_when_the_verdict_turns() {
    let remote = demo_in("");
    let mut worker = worker(&remote);
    done(&mut worker, report(&remote, 1, verdict::Kind::Advance));
    let (_, abort) = done(&mut worker, report(&remote, 1, verdict::Kind::Abort));
    assert_eq!(branches(&remote), [(ABORT.to_owned(), abort.clone())]);
    let hold = report(&remote, 1, verdict::Kind::Hold);
    assert_eq!(done(&mut worker, hold), (Outcome::Present, abort.clone()));
    assert_eq!(branches(&remote), [(ABORT.to_owned(), abort)]);
}

#[test]
fn a_commit_of_somebody_else_is_left_alone() {
    let remote = demo_in("");
    let mut worker = worker(&remote);
    done(&mut worker, report(&remote, 1, verdict::Kind::Advance));
    let human = human_commit(&remote, ADVANCE, "notes.md");
    let check = |worker: &mut Worker, report, outcome| {
        assert_eq!(done(worker, report), (outcome, human.clone()));
        assert_eq!(tip(&remote, ADVANCE), Some(human.clone()));
    };
    check(&mut worker, report(&remote, 1, verdict::Kind::Advance), Outcome::Present);
    check(&mut worker, report(&remote, 1, verdict::Kind::Blocked), Outcome::Stale);
    let other =
        RolloutReport { candidate: "0c".repeat(32), ..report(&remote, 1, verdict::Kind::Advance) };
    check(&mut worker, other, Outcome::Stale);
}

#[test]
fn a_branch_that_somebody_made_under_our_name_is_left_alone() {
    let remote = demo_in("");
    let head = remote.head();
    let made = git(&remote.work(), &["commit-tree", "-p", &head, "-m", "mine", "HEAD^{tree}"]);
    let made = made.trim().to_owned();
    git(&remote.work(), &["push", "--quiet", "origin", &format!("{made}:refs/heads/{ADVANCE}")]);
    let mut worker = worker(&remote);
    let judged = report(&remote, 1, verdict::Kind::Advance);
    assert_eq!(done(&mut worker, judged), (Outcome::Stale, made.clone()));
    assert_eq!(tip(&remote, ADVANCE), Some(made));
}

#[test]
fn a_proposal_of_another_version_is_ours_and_spent() {
    let remote = demo_in("");
    let head = remote.head();
    let us = author();
    let (name, mail) = (format!("user.name={}", us.name), format!("user.email={}", us.mail));
    let message = "Advance\n\nTidegate-Key: v2 whatever";
    let tree = "HEAD^{tree}";
    let arguments = ["-c", &name, "-c", &mail, "commit-tree", "-p", &head, "-m", message, tree];
    let made = git(&remote.work(), &arguments);
    let refspec = format!("{}:refs/heads/{ADVANCE}", made.trim());
    git(&remote.work(), &["push", "--quiet", "origin", &refspec]);
    let mut worker = worker(&remote);
    let (outcome, commit) = done(&mut worker, report(&remote, 1, verdict::Kind::Advance));
    assert_eq!((outcome, tip(&remote, ADVANCE)), (Outcome::Pushed, Some(commit)));
}

#[test]
fn it_is_built_on_what_was_judged_and_not_on_what_came_since() {
    let remote = demo_in("");
    let judged = report(&remote, 1, verdict::Kind::Advance);
    remote.put(ROLLOUT, "torn: by somebody\n");
    remote.push("not judged yet");
    let mut worker = worker(&remote);
    let (_, commit) = done(&mut worker, judged.clone());
    let parent = git(&remote.bare(), &["log", "-1", "--format=%P", &commit]);
    assert_eq!(parent.trim(), judged.head);

    git(&remote.work(), &["reset", "--quiet", "--hard", "HEAD~1"]);
    git(&remote.work(), &["commit", "--quiet", "--amend", "--allow-empty", "-m", "rewritten"]);
    git(&remote.work(), &["push", "--quiet", "--force", "origin", "HEAD:main"]);
    let failure = turn(&mut worker, judged).unwrap_err();
    assert!(matches!(failure, Failure::Elsewhere { .. }), "{failure}");
    assert!(failure.may_pass(), "the next report judges another head");
}

#[test]
fn what_must_be_mended_by_hand_says_so_and_is_not_tried_again() {
    let remote = demo_in("");
    let rollout = fs::read_to_string(remote.work().join(ROLLOUT)).unwrap();
    let aliased = rollout.replace("stage: 1\n", "") + "halt: {min_seen: &one 1}\nstage: *one\n";
    remote.put(ROLLOUT, &aliased);
    remote.push("an alias");
    let mut worker = worker(&remote);
    let failure = turn(&mut worker, report(&remote, 1, verdict::Kind::Advance)).unwrap_err();
    let line = aliased.lines().count();
    assert!(failure.to_string().contains(&format!("line {line}: ")), "{failure}");
    assert!(!failure.may_pass());

    remote.put("elsewhere.yaml", &rollout);
    remote.remove(ROLLOUT);
    symlink("../../../elsewhere.yaml", remote.work().join(ROLLOUT)).unwrap();
    remote.push("a link");
    let failure = turn(&mut worker, report(&remote, 1, verdict::Kind::Advance)).unwrap_err();
    assert!(failure.to_string().contains("symbolic link"), "{failure}");
    assert!(!failure.may_pass());
    assert_eq!(branches(&remote), []);
}

#[test]
fn a_remote_that_says_no_leaves_everything_as_it_was() {
    let remote = demo_in("");
    let hook = remote.bare().join("hooks/pre-receive");
    fs::create_dir_all(hook.parent().unwrap()).unwrap();
    fs::write(&hook, "#!/bin/sh\necho 'branches are frozen' >&2\nexit 1\n").unwrap();
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    let mut worker = worker(&remote);
    let failure = turn(&mut worker, report(&remote, 1, verdict::Kind::Advance)).unwrap_err();
    assert!(failure.to_string().contains("branches are frozen"), "{failure}");
    assert!(failure.may_pass());
    assert_eq!(branches(&remote), []);
    fs::remove_file(&hook).unwrap();
    let (outcome, _) = done(&mut worker, report(&remote, 1, verdict::Kind::Advance));
    assert_eq!(outcome, Outcome::Pushed);
}

#[test]
fn a_damaged_or_locked_clone_heals() {
    let remote = demo_in("");
    let cache = tempfile::tempdir().unwrap();
    let repo = Repo::new(&remote.url(), None, "", Some(cache.path()), PATIENCE, author()).unwrap();
    let mut worker = Worker::new(repo, CATALOGUE.to_owned());
    done(&mut worker, report(&remote, 1, verdict::Kind::Advance));
    let clone = cache.path().join("proposals.git");

    let branch = clone.join(ADVANCE.replace("tidegate/rollout", "refs/tidegate/branches"));
    fs::create_dir_all(branch.parent().unwrap()).unwrap();
    fs::write(branch.with_extension("lock"), "").unwrap();
    fs::write(clone.join("refs/tidegate/head.lock"), "").unwrap();
    remote.push("second");
    done(&mut worker, report(&remote, 1, verdict::Kind::Blocked));
    assert_eq!(tip(&remote, ADVANCE), None, "locks that a killed git left");

    for entry in fs::read_dir(clone.join("objects/pack")).unwrap() {
        let path = entry.unwrap().path();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        fs::write(path, "damaged").unwrap();
    }
    let advance = || report(&remote, 1, verdict::Kind::Advance);
    assert!(turn(&mut worker, advance()).is_err());
    assert_eq!(done(&mut worker, advance()).0, Outcome::Pushed);
}

#[test]
fn several_rollouts_are_one_turn() {
    let remote = demo_in("");
    let gone = RolloutReport {
        rollout: "data-flow/gone".to_owned(),
        ..report(&remote, 0, verdict::Kind::Advance)
    };
    let jobs = [job(gone), job(report(&remote, 1, verdict::Kind::Advance))];
    let results = worker(&remote).turn(&jobs, MS);
    assert!(matches!(results[0], Err(Failure::Refused(_))), "{:?}", results[0]);
    assert!(matches!(&results[1], Ok(Some(Done { outcome: Outcome::Pushed, .. }))));
}
