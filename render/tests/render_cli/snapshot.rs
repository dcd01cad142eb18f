//! `render snapshot` (estate.md, decision 13; the file format is tested beside `snapshot::file`).

use std::path::Path;
use std::process::Command;

use render::snapshot::file;
use render::snapshot::served::Served;

use super::common::{COMMIT, Estate, Ran, files, run};

fn snapshot(estate: &Estate, more: &[&str]) -> Ran {
    let mut arguments = vec!["snapshot", "-estate", "../my-estate", "-out", "../snapshot"];
    arguments.extend(more);
    run(&estate.bin(), &arguments)
}

fn read(estate: &Estate) -> Served {
    let (served, meta) = file::read(&estate.bin().join("../snapshot"), None).expect("readable");
    assert!(meta.created_ms > 1_700_000_000_000, "{meta:?}");
    served
}

/// Commits all of the estate at a second since 1970.
fn commit(estate: &Estate, seconds: u64) -> String {
    let date = format!("@{seconds} +0000");
    let git = |arguments: &[&str]| {
        let output = Command::new("git")
            .args([
                "-c",
                "user.name=a",
                "-c",
                "user.email=a@example.com",
                "-c",
                "init.defaultBranch=m",
            ])
            .args(arguments)
            .current_dir(estate.root())
            .env("GIT_AUTHOR_DATE", &date)
            .env("GIT_COMMITTER_DATE", &date)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_SYSTEM", "/dev/null")
            .output()
            .expect("git starts");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("UTF-8").trim().to_owned()
    };
    if !Path::new(&estate.root().join(".git")).exists() {
        git(&["init", "-q"]);
    }
    git(&["add", "-A"]);
    git(&["commit", "-q", "-m", "x"]);
    git(&["rev-parse", "HEAD"])
}

#[test]
fn a_snapshot_holds_what_the_rendered_tree_serves() {
    let estate = Estate::demo();
    estate.rendered();
    let before = files(&estate.root());
    let ran = snapshot(&estate, &[]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
    assert!(ran.stdout.starts_with("wrote ../snapshot\ncommit 0000000"), "{}", ran.stdout);
    assert!(ran.stdout.contains("rollout data-flow/bridge-canary: no history here"));
    assert_eq!(files(&estate.root()), before);
    let served = read(&estate);
    assert_eq!(&*served.commit, COMMIT);
    let bridge = &served.tiers["data-flow/kafka-bridge"];
    assert_eq!(bridge.base.bytes(), estate.read("rendered/data-flow/kafka-bridge.yaml").as_bytes());
    assert!(bridge.next.is_some());
    assert_eq!(served.rollouts["data-flow/bridge-canary"].stage_started_ms, None);

    assert_eq!(snapshot(&estate, &["--commit", "abcdef0"]).code, 0);
    assert_eq!(&*read(&estate).commit, "abcdef0");
}

/// The stage began with the commit that set it, whatever else was edited since; the origin is the
/// commit that added the file last.
#[test]
fn history_tells_when_the_stage_began_and_where_the_rollout_came_from() {
    const ROLLOUT: &str = "teams/data-flow/rollouts/bridge-canary.yaml";
    const START: u64 = 1_780_000_000;
    let estate = Estate::demo();
    estate.rendered();
    let authored = estate.read(ROLLOUT);
    commit(&estate, START);
    estate.remove(ROLLOUT);
    commit(&estate, START + 10);
    estate.write(ROLLOUT, &authored.replace("stage: 1", "stage: 0"));
    let origin = commit(&estate, START + 20);
    estate.write(ROLLOUT, &authored);
    commit(&estate, START + 30);
    estate.write(ROLLOUT, &authored.replace("soak: 24h", "soak: 25h"));
    commit(&estate, START + 40);

    let ran = snapshot(&estate, &[]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(!ran.stdout.contains("no history"), "{}", ran.stdout);
    let rollout = &read(&estate).rollouts["data-flow/bridge-canary"];
    assert_eq!(rollout.origin.as_deref(), Some(origin.as_str()));
    assert_eq!(rollout.stage_started_ms, Some((START + 30) * 1000));

    // A stage that is not HEAD's has no start in history.
    estate.write(ROLLOUT, &authored.replace("stage: 1", "stage: 2"));
    let ran = snapshot(&estate, &[]);
    assert!(ran.stdout.contains("no history here"), "{}", ran.stdout);
    assert_eq!(read(&estate).rollouts["data-flow/bridge-canary"].stage_started_ms, None);
}

#[test]
fn a_snapshot_is_signed_with_the_key_that_is_given() {
    let estate = Estate::demo();
    estate.rendered();
    // A throw-away key made for this test.
    let private = "-----BEGIN PRIVATE KEY-----\n\
                   MC4CAQAwBQYDK2VwBCIEIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f\n\
                   -----END PRIVATE KEY-----\n";
    std::fs::write(estate.bin().join("key.pem"), private).expect("a file");
    let ran = snapshot(&estate, &["--sign", "key.pem"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stdout.contains(", signed\n"), "{}", ran.stdout);
    let key = file::signing_key(private).expect("a key").verifying_key();
    let path = estate.bin().join("../snapshot");
    assert!(file::read(&path, Some(&key)).expect("signed by this key").1.signed);

    let ran = snapshot(&estate, &["--sign", "../my-estate/teams.yaml"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.starts_with("render: ../my-estate/teams.yaml: not an Ed25519 private key"));
}

/// Decision 15, told by the command: a flipped Tier without a render is refused.
#[test]
fn a_stale_tree_makes_no_snapshot_and_keeps_the_old_one() {
    let estate = Estate::demo();
    estate.rendered();
    assert_eq!(snapshot(&estate, &[]).code, 0);
    let old = std::fs::read(estate.bin().join("../snapshot")).expect("a file");
    estate.replace("teams/data-flow/tiers/gateway.yaml", "gateway-standard@4", "bridge-next@1");
    let ran = snapshot(&estate, &[]);
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""));
    assert!(ran.stderr.contains("rendered/data-flow/gateway.yaml"), "{}", ran.stderr);
    assert_eq!(std::fs::read(estate.bin().join("../snapshot")).expect("a file"), old);
}
