//! Rollouts from their first commit to their end: the scenarios of `fixtures/scenarios`, each with
//! real gateways, a real bare repository and real sockets. `docs/rehearsals.md` says what each
//! shows.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use loadgen::rehearse::{self, GivenGateway, Options};

fn options(name: &str) -> Options {
    let scenarios = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/scenarios");
    Options {
        scenario: scenarios.join(format!("{name}.toml")),
        gateway: PathBuf::from(env!("CARGO_BIN_EXE_gateway")),
        given: None,
        keep: None,
        verbose: false,
    }
}

/// Plays a scenario; a deviation is told with the whole timeline.
fn rehearse(name: &str) {
    play(name, &options(name));
}

fn play(name: &str, options: &Options) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let outcome = runtime.block_on(rehearse::run(options));
    let outcome = outcome.unwrap_or_else(|error| panic!("{name} could not be played: {error}"));
    assert!(outcome.passed, "{outcome}");
}

macro_rules! scenarios {
    ($($test:ident: $name:literal,)*) => {
        $(#[test]
        fn $test() {
            rehearse($name);
        })*

        #[test]
        fn every_scenario_is_rehearsed() {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/scenarios");
            let mut there: Vec<String> = std::fs::read_dir(folder)
                .unwrap()
                .map(|entry| entry.unwrap().path().file_stem().unwrap().display().to_string())
                .collect();
            there.sort();
            let mut rehearsed = [$($name),*];
            rehearsed.sort_unstable();
            assert_eq!(there, rehearsed);
        }
    };
}

scenarios! {
    a_healthy_cohort_advances_stage_by_stage_and_completes: "healthy",
    a_failure_while_the_head_spreads_is_one_of_all_and_blocks: "early",
    one_failed_of_twenty_blocks_and_nothing_is_proposed: "blocked",
    two_failed_of_twenty_put_the_brake_on_and_an_abort_is_proposed: "abort",
    failed_for_another_hash_halts_nobody: "other-hash",
    a_rolled_back_collector_stays_halted_and_gets_the_candidate_once: "rollback",
    a_member_that_closes_and_stays_away_went_dark: "went-dark",
    a_member_that_freezes_with_its_socket_open_went_dark: "silent",
    a_member_whose_connection_is_reset_went_dark: "killed",
    a_member_that_dies_with_the_offer_in_its_hands_went_dark: "taken",
    a_member_that_freezes_with_the_offer_in_its_hands_went_dark: "frozen",
    an_outage_of_both_arms_is_not_an_abort: "outage",
    an_outage_that_ends_no_connection_is_not_an_abort: "outage-silent",
    a_dark_member_that_returns_clears: "return",
    what_failed_blocks_after_a_kill: "restart",
    a_drained_gateway_makes_nobody_dark: "drained",
    two_gateways_push_one_branch: "race",
    an_unrelated_merge_leaves_the_brake_on: "brake-stays",
    an_edited_candidate_soaks_anew: "candidate-edited",
    a_proposal_merged_late_soaks_from_its_merge: "late-merge",
    an_advance_whose_verdict_turned_is_withdrawn: "withdrawn",
    a_spent_branch_is_replaced: "spent",
    a_death_just_before_the_end_of_the_soak_is_seen: "late-death",
    a_human_commit_on_a_proposal_is_left_alone: "human-commit",
    a_remote_that_is_away_harms_nobody_and_is_pushed_to_later: "remote-down",
    foreign_members_on_the_base_are_lag: "foreign",
    flapping_members_are_not_dark: "flapping",
    slow_members_are_not_halted: "slow-apply",
}

/// Killed with its owner.
struct Gateway(Child);

impl Drop for Gateway {
    fn drop(&mut self) {
        // It may have ended by itself; that is told by the rehearsal.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Two addresses that nobody else comes upon: of a loopback network of this process's own.
fn addresses() -> [SocketAddr; 2] {
    let [.., high, low] = std::process::id().to_be_bytes();
    let ip = IpAddr::V4(Ipv4Addr::new(127, 77, high, low));
    let listeners = [(); 2].map(|()| TcpListener::bind((ip, 0)).unwrap());
    listeners.map(|listener| listener.local_addr().unwrap())
}

/// The gateway is started by hand, as `docs/rehearsals.md` says: on the repository that the
/// rehearsal makes.
#[test]
fn a_gateway_that_was_started_by_hand_is_rehearsed_with() {
    let keep = tempfile::tempdir().unwrap();
    let [listen, admin] = addresses();
    let given = GivenGateway { admin, endpoint: format!("ws://{listen}/v1/opamp") };
    let repo = keep.path().join("estate.git");
    let start = move || {
        // The rehearsal waits for the gateway, and it for the first commit.
        while !repo.join("refs/heads/main").exists() {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_gateway"));
        command
            .args(["serve", "--workers", "1", "--fetch-interval", "250ms"])
            .args(["--repo", &format!("file://{}", repo.display())])
            .args(["--listen", &listen.to_string(), "--admin", &admin.to_string()])
            .args(["--expect-replicas", "1", "--evidence-grace", "1s"])
            .args(["--catalogue", "catalogues/catalogue-v0.158.0.json"])
            .args(["--propose", "--propose-as", "Tidegate <tidegate@example.com>"])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Gateway(command.spawn().unwrap())
    };
    let gateway = std::thread::spawn(start);
    let keep = keep.path().to_owned();
    play("abort", &Options { given: Some(given), keep: Some(keep), ..options("abort") });
    drop(gateway.join().unwrap());
}
