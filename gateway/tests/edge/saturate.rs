//! A closed loop of messages (docs/loadgen.md, "Saturate"): the gateway answers each of them, once and
//! rightly. What one costs is measured on a quiet machine and not asserted here.

use std::path::Path;

use loadgen::saturate::{Kind, Length, Options, run};

use crate::support::gateway::Gateway;

#[tokio::test]
async fn links_with_sixteen_messages_under_way_are_answered_one_by_one() {
    let estate = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/estates/demo");
    let gateway = Gateway::serve(&["--estate", estate.to_str().unwrap(), "--drain", "1s"]);
    for message in [Kind::Described, Kind::Heartbeat] {
        let options = Options {
            message,
            length: Length::Messages(5_000),
            server_pid: u32::try_from(gateway.pid().as_raw_pid()).ok(),
            ..Options::new(format!("ws://{}/v1/opamp", gateway.listen), &estate)
        };
        let outcome = run(options).await.unwrap();
        assert!(outcome.all_right, "{outcome}");
        assert_eq!((outcome.answered, outcome.round_trip.count), (5_000, 5_000));
        assert_eq!((outcome.links, outcome.in_flight), (64, 16));
        assert!(outcome.server.is_some_and(|server| server.both_us > 0.0), "{outcome}");
    }
}
