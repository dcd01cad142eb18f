//! A coordinator with workers that are scripts: what they say, and when, is known.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

use super::*;
use crate::report::Report;
use crate::scale::protocol::{Distributions, Ends};
use crate::shared::Timings;

/// Acts as a worker with one collector: the first of a lane leaves as soon as it is told to, and
/// hears nothing from then on; the second changes the estate when it is told to leave, and leaves
/// once it has been told that the estate has changed.
const WORKER: &str = r#"
place=second
while read -r line; do
    case "$line" in
    *'"do":"prepare"'*)
        case "$line" in *'"first":0,'*) place=first ;; esac
        echo '{"is":"ready"}' ;;
    *'"do":"go"'*)
        echo '{"is":"begun"}'
        cat "$ROOM/progress" ;;
    *'"do":"finish"'*)
        if [ $place = first ]; then exec 0<&-; cat "$ROOM/done"; exit 0; fi
        leaving=yes
        echo '# another line' >> "$ESTATE/rendered/team/one.yaml" ;;
    *'"do":"look"'*)
        if [ -n "$leaving" ]; then cat "$ROOM/done"; exit 0; fi ;;
    esac
done
"#;

/// What such a worker says, a line each.
fn write_lines(room: &Path) {
    let write = |name: &str, line: &FromWorker| {
        fs::write(room.join(name), serde_json::to_string(line).unwrap() + "\n").unwrap();
    };
    let progress = Interval {
        started: 1,
        connected: 1,
        ever_connected: 1,
        offered: 1,
        all_offered: true,
        settled: 1,
        ..Interval::default()
    };
    write("progress", &FromWorker::Progress { progress });
    let timings = Timings::new();
    let part = Part {
        report: Report::merge(&[], &timings, Vec::new(), false),
        complaints: Vec::new(),
        distributions: Distributions::of(&timings),
        expected_ends: Ends::default(),
        other_ends: Ends::default(),
        storm_resets: 0,
        last_offers: Vec::new(),
        rss_before: 0,
        rss_settled: None,
    };
    write("done", &FromWorker::Done { part: Box::new(part) });
}

#[test]
fn a_change_of_the_estate_during_goodbyes_ends_no_run() {
    let estate = crate::testing::estate();
    let room = tempfile::TempDir::new().unwrap();
    write_lines(room.path());
    // Nobody connects to it, but it has to be somewhere.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let settings = format!("ROOM='{}' ESTATE='{}'", room.path().display(), estate.path().display());
    let own = ["sh", "-c", &format!("{settings}\n{WORKER}")].map(Into::into).to_vec();
    let options = Options {
        endpoints: vec![format!("ws://{}/v1/opamp", listener.local_addr().unwrap())],
        workers: Some(2),
        lanes: Some(1),
        timeout: Duration::from_secs(60),
        quiet: true,
        ..Options::new(2, estate.path().to_owned(), PathBuf::new(), own)
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (_interrupt, mut interrupts) = mpsc::channel(1);
    let outcome = runtime.block_on(run(&options, &mut interrupts)).unwrap();
    assert!(outcome.all_right, "{outcome}");
    assert_eq!(outcome.problems, Vec::<String>::new());
    assert!(outcome.report.is_some(), "the books of both have come in");
    let changed = fs::read_to_string(estate.path().join("rendered/team/one.yaml")).unwrap();
    assert_eq!(changed.matches("# another line").count(), 1, "it was changed, once");
    let machine = &outcome.machine;
    assert!(machine.floor.is_some() && machine.floor_after.is_some(), "both ends are here");
}
