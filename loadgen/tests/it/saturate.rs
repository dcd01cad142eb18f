//! A closed loop against servers that tell the truth and servers that lie.

use std::time::Duration;

use loadgen::saturate::{Kind, Length, Options, Outcome, run};

use crate::server::{Lie, Server};
use crate::testing::estate;

const MESSAGES: u64 = 400;

async fn saturate(lie: Lie, kind: Kind) -> Outcome {
    let estate = estate();
    let server = Server::start(estate.path(), lie).await;
    let options = Options {
        links: 5,
        in_flight: 4,
        message: kind,
        length: Length::Messages(MESSAGES),
        server_pid: Some(std::process::id()),
        reply_timeout: Duration::from_millis(700),
        ..Options::new(server.url(), estate.path())
    };
    run(options).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_message_of_either_kind_is_sent_answered_and_counted_once() {
    for kind in [Kind::Described, Kind::Heartbeat] {
        let outcome = saturate(Lie::None, kind).await;
        assert!(outcome.all_right, "{outcome}");
        assert_eq!((outcome.sent, outcome.answered, outcome.measured), (400, 400, 400));
        assert_eq!((outcome.wrong, outcome.links_lost), (0, 0));
        assert_eq!(outcome.round_trip.count, MESSAGES);
        let described = 100..1_000;
        assert_eq!(described.contains(&outcome.message_bytes), kind == Kind::Described);
        let rate = outcome.messages_per_s * outcome.measured_s;
        assert!((rate - 400.0).abs() < 0.01, "{outcome}");
        assert!(outcome.server.is_some());
        assert!(outcome.to_string().ends_with("all right\n"), "{outcome}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_lie_is_found_out() {
    for (lie, what) in [
        (Lie::WrongBytes, "an offer that is not rendered/"),
        (Lie::WrongHash, "an offer that is not rendered/"),
        (Lie::NoContentType, "content type"),
        (Lie::NoOffer, "no offer in the answer to the first report"),
        (Lie::OtherUid, "a reply to another uid"),
        (Lie::Again, "an offer that is not due"),
        (Lie::FullStateAlways, "asked for full state"),
        (Lie::Text, "a text frame"),
        (Lie::NoReply, "no answer in time"),
        (Lie::TwoReplies, "a reply to nothing"),
        (Lie::Kick, "the server closed the socket"),
        (Lie::Busy, "upgrade refused: too busy"),
    ] {
        let outcome = saturate(lie, Kind::Described).await;
        assert!(!outcome.all_right, "{lie:?}: {outcome}");
        assert!(
            outcome.problems.iter().any(|problem| problem.contains(what)),
            "{lie:?}: {outcome}"
        );
    }
}

#[tokio::test]
async fn the_binary_says_it_with_its_exit_code() {
    let estate = estate();
    let honest = Server::start(estate.path(), Lie::None).await;
    let liar = Server::start(estate.path(), Lie::Again).await;
    let check = async |url: &str, extra: &[&str], code: i32| {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_loadgen"));
        command.args(["saturate", "--endpoint", url, "--links", "3", "--in-flight", "2"]);
        command.arg("--estate").arg(estate.path()).args(extra);
        let output = command.output().await.unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let all = format!("{said}{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{all}");
        if code == 2 { all } else { said }
    };
    let text = check(&honest.url(), &["--messages", "50", "-o", "json"], 0).await;
    let outcome: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&outcome["answered"], &outcome["all_right"]), (&50.into(), &true.into()));
    assert_eq!(outcome["message"], "described");
    check(&honest.url(), &["--duration", "200ms", "--warm-up", "50ms"], 0).await;
    let text = check(&liar.url(), &["--messages", "50"], 1).await;
    assert!(text.contains("53 x an offer that is not due"), "{text}"); // each APPLIED too
    check("ws://127.0.0.1:9/v1/opamp", &["--messages", "50"], 1).await;
    for url in ["wss://127.0.0.1:9/", "http://127.0.0.1:9/"] {
        assert!(check(url, &[], 2).await.contains("does not begin with ws://"));
    }
    check(&honest.url(), &["--messages", "5", "--duration", "1s"], 2).await;
    let text = check(&honest.url(), &["--server-pid", "4294967295"], 2).await;
    assert!(text.contains("there is no such process"), "{text}");
}
