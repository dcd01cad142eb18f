//! A load generator that trusts is worth nothing: every lie of a server must show.

use std::path::PathBuf;
use std::time::Duration;

use loadgen::ledger::Wrong;
use loadgen::{Config, Report, Running, Transport};

use crate::server::{Lie, Server};
use crate::testing::{Estate, estate};

const COLLECTORS: u32 = 24;
/// Of them, on the plan below.
const REPORT_ONLY: u32 = 1;
const SERVED: u32 = COLLECTORS - REPORT_ONLY;

#[tokio::test]
async fn an_honest_server_is_found_right_over_both_transports() {
    for transport in [Transport::Ws, Transport::Http] {
        let report = run(Lie::None, |config| config.transport = Some(transport)).await;
        assert!(report.all_right, "{report}");
        assert_eq!((report.connected, report.offered_right), (u64::from(COLLECTORS), SERVED));
        assert_eq!((report.wrong, report.lost, report.report_only), (0, 0, REPORT_ONLY));
        assert_eq!(report.unmatched, 2);
        assert_eq!(report.offers, u64::from(SERVED));
        // APPLYING and APPLIED, and the first report of who is offered nothing; goodbyes on
        // WebSockets only.
        let goodbyes = if transport == Transport::Ws { COLLECTORS } else { 0 };
        assert_eq!(report.acks, u64::from(2 * SERVED + REPORT_ONLY + goodbyes), "{report}");
        assert_eq!(report.connect_to_offer.count, u64::from(SERVED));
        assert_eq!(report.bytes_received_beyond_acks, 0);
        assert!(report.all_offered_after_s < report.all_settled_after_s, "{report}");
    }
}

#[tokio::test]
async fn every_lie_on_a_connect_is_found_out() {
    let all = u64::from(SERVED);
    check(Lie::WrongHash, Wrong::Offer, all).await;
    check(Lie::WrongBytes, Wrong::Offer, all).await;
    check(Lie::WrongTier, Wrong::Offer, all - 2).await; // strays are right to get it
    check(Lie::NoContentType, Wrong::Shape, all).await;
    check(Lie::NoReply, Wrong::Unanswered, all).await;
    check(Lie::TwoReplies, Wrong::Extra, all).await;
    check(Lie::Again, Wrong::Duplicate, all).await;
    check(Lie::FullStateAlways, Wrong::Unexpected, 1).await;
    check(Lie::Foreign, Wrong::Unasked, u64::from(REPORT_ONLY)).await;
    check(Lie::OtherUid, Wrong::Misaddressed, all).await;
    check(Lie::Text, Wrong::Undecodable, all).await;
    check(Lie::LongAck, Wrong::Unexpected, all).await;
}

#[tokio::test]
async fn lies_over_http_are_found_out_too() {
    for (lie, wrong) in [(Lie::WrongBytes, Wrong::Offer), (Lie::Again, Wrong::Duplicate)] {
        let report = run(lie, |config| config.transport = Some(Transport::Http)).await;
        assert!(!report.all_right && report.wrong_by_kind[&wrong] >= 1, "{lie:?}: {report}");
    }
}

#[tokio::test]
async fn collectors_that_are_never_offered_anything_are_lost() {
    let report = run(Lie::NoOffer, |_| ()).await;
    assert_eq!((report.lost, report.offered_right, report.wrong), (SERVED, 0, 0));
    assert!(!report.all_right);
}

#[tokio::test]
async fn a_server_that_is_not_there_loses_everybody() {
    let estate = estate();
    let report = loadgen::run(config(&estate, "ws://127.0.0.1:9/v1/opamp")).await.unwrap();
    assert_eq!((report.connected, report.lost), (0, SERVED));
    assert!(!report.all_right && !report.errors.is_empty());
}

#[tokio::test]
async fn links_that_break_are_told_and_the_collectors_come_back() {
    let report = run(Lie::Kick, |config| config.allow_lost_links = true).await;
    assert!(report.all_right, "{report}");
    assert_eq!((report.links_lost, report.full_state_requests), (3, 3));
    let report = run(Lie::Kick, |_| ()).await;
    assert_eq!(report.problems, ["3 links broke"]);
}

#[tokio::test]
async fn a_busy_server_is_waited_for() {
    for transport in [Transport::Ws, Transport::Http] {
        let report = run(Lie::Busy, |config| {
            config.transport = Some(transport);
            config.timeout = Duration::from_secs(20);
        })
        .await;
        assert!(report.all_right, "{report}");
        assert_eq!(report.throttled, 5);
        assert!(report.connect_to_offer.max_ms >= 1_000.0);
    }
}

#[tokio::test]
async fn after_a_change_only_newly_admitted_members_get_an_offer() {
    let report = change(Lie::None, &[Change::Stage]).await;
    assert!(report.all_right, "{report}");
    let head = &report.heads[1];
    assert!(head.members_newly_admitted_by_model > 2, "{report}");
    assert_eq!(head.offers, u64::from(head.members_newly_admitted_by_model));
    assert_eq!(head.offers_needed, head.offers);
    assert_eq!((head.offers_unneeded, head.bytes_received_beyond_acks), (0, 0));
    assert_eq!(report.change_to_offer.count, head.offers);
}

#[tokio::test]
async fn a_change_of_nothing_brings_nothing() {
    let report = change(Lie::None, &[Change::Commit, Change::Stage]).await;
    assert!(report.all_right, "{report}");
    let quiet = &report.heads[1];
    assert_eq!((quiet.content_changed_by_model, quiet.offers, quiet.offers_needed), (0, 0, 0));
    assert!(report.heads[2].offers > 0);
}

#[tokio::test]
async fn a_push_to_one_who_is_no_member_is_found_out() {
    let report = change(Lie::PushToOutsider, &[Change::Stage]).await;
    assert_eq!(report.wrong_by_kind[&Wrong::Offer], 1, "{report}");
    assert!(!report.all_right && report.bytes_received_beyond_acks > 0);
    let sample = &report.samples[0];
    assert!(sample.attributes.contains("host.name=bridge-a2"), "{sample:?}");
    assert!(sample.text.contains("expected rendered/team/one.yaml"), "{sample:?}");
}

#[tokio::test]
async fn a_push_of_what_everybody_holds_is_found_out() {
    let report = change(Lie::PushToAll, &[Change::Commit]).await;
    assert_eq!(report.wrong_by_kind[&Wrong::Duplicate], u64::from(SERVED), "{report}");
    assert!(!report.all_right);
}

#[tokio::test]
async fn a_push_that_never_comes_is_missed() {
    let report = change(Lie::NoPush, &[Change::Stage]).await;
    let head = &report.heads[1];
    assert!(head.offers_missing > 0 && head.offers == 0, "{report}");
    assert_eq!(u64::from(report.lost), head.offers_missing);
    assert!(!report.all_right);
}

#[tokio::test]
async fn changes_that_were_expected_and_do_not_come_are_a_failure() {
    let report = run(Lie::None, |config| {
        config.expect_changes = 1;
        config.timeout = Duration::from_secs(2);
    })
    .await;
    assert_eq!(report.problems, ["1 changes of the estate were expected, 0 came"]);
}

#[tokio::test]
async fn the_binary_says_it_with_its_exit_code() {
    let estate = estate();
    let honest = Server::start(estate.path(), Lie::None).await;
    let liar = Server::start(estate.path(), Lie::WrongBytes).await;
    let json = estate.path().join("report.json");
    let plan = plan_file(&estate);
    let check = async |url: &str, extra: &[&str], code: i32| {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_loadgen"));
        command.args(["-collectors", "24", "-timeout", "5s", "-head-window", "300ms"]);
        command.args(["--reply-timeout", "300ms"]);
        command.arg("-estate").arg(estate.path()).args(["-endpoint", url]);
        command.arg("--plan").arg(&plan).arg("--report").arg(&json).args(extra);
        let output = command.output().await.unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{text}");
        text
    };
    let text = check(&honest.url(), &[], 0).await;
    assert!(text.ends_with("all right\n"), "{text}");
    let report: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!(report["offered_right"], SERVED);
    assert_eq!(report["heads"][0]["first_offers"], SERVED);

    let text = check(&liar.url(), &[], 1).await;
    assert!(text.contains("things went wrong: Offer 23"), "{text}");
    for wrong in [&["--collectors", "2000001"][..], &["--no-such-flag"], &["--duration", "soon"]] {
        check(&honest.url(), wrong, 2).await;
    }
    check("ftp://127.0.0.1/", &[], 2).await;
}

enum Change {
    /// Half of Tier one is admitted.
    Stage,
    /// Only stamps change.
    Commit,
}

/// A lie on a connect must show as that kind, at least that often.
async fn check(lie: Lie, wrong: Wrong, least: u64) {
    let report = run(lie, |_| ()).await;
    let found = report.wrong_by_kind.get(&wrong).copied().unwrap_or(0);
    assert!(found >= least, "{lie:?}: {report}");
    assert!(!report.all_right && !report.samples.is_empty(), "{lie:?}: {report}");
}

async fn run(lie: Lie, choose: impl FnOnce(&mut Config)) -> Report {
    let estate = estate();
    let server = Server::start(estate.path(), lie).await;
    let mut config = config(&estate, &server.url());
    choose(&mut config);
    loadgen::run(config).await.unwrap()
}

/// Lets everybody settle, changes the estate under them, and waits for what comes of it.
async fn change(lie: Lie, changes: &[Change]) -> Report {
    let estate = estate();
    let server = Server::start(estate.path(), lie).await;
    let mut running = Running::start(config(&estate, &server.url())).await.unwrap();
    assert!(running.settled(Duration::from_secs(10)).await);
    for (epoch, change) in (1..).zip(changes) {
        match change {
            Change::Stage => estate.set_stage(1),
            Change::Commit => estate.render("1111111"),
        }
        server.reload();
        assert!(running.head_seen(epoch, Duration::from_secs(10)).await);
    }
    running.finish().await
}

fn config(estate: &Estate, url: &str) -> Config {
    Config {
        plan: Some(plan_file(estate)),
        timeout: Duration::from_secs(3),
        head_window: Duration::from_millis(1_500),
        reply_timeout: Duration::from_millis(500),
        ..Config::new(COLLECTORS, url, estate.path())
    }
}

fn plan_file(estate: &Estate) -> PathBuf {
    let text = r#"
        apply_delay = "20ms"
        [[group]]
        name = "one"
        weight = 1
        tier = "team/one"
        identifying = { "service.name" = "one" }
        non_identifying = { "host.name" = ["trusted", "bridge-a2", "host-{n}"] }
        [[group]]
        name = "two"
        count = 3
        tier = "team/two"
        identifying = { "service.name" = "one", "zone" = "b" }
        [[group]]
        name = "strays"
        count = 2
        tier = "unmatched"
        identifying = { "service.name" = "three" }
        [[group]]
        name = "foreign"
        count = 1
        report_only = true
        identifying = { "service.name" = "one" }
    "#;
    let path = estate.path().join("plan.toml");
    std::fs::write(&path, text).unwrap();
    path
}
