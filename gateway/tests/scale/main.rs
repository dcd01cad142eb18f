//! Runs over many processes: real gateways, real workers, everything checked. loadgen's workers are
//! processes of their own, so this program is its own harness: started as a worker, or as the leash
//! of a gateway, it acts as one.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use loadgen::scale::{self, Options, Outcome, ScaleError};
use tokio::sync::mpsc;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let parent = |argument: &OsString| argument.to_str().and_then(|pid| pid.parse().ok());
    match &arguments[..] {
        [act, pid] if act == "worker" => return scale::worker::main(parent(pid).unwrap()),
        [act, pid, program @ ..] if act == "leash" => {
            return scale::leash::main(parent(pid).unwrap(), program);
        }
        _ => {}
    }
    let words: Vec<String> =
        arguments.iter().filter_map(|word| word.to_str()).map(str::to_owned).collect();
    let asked: Vec<&String> = words.iter().filter(|word| !word.starts_with('-')).collect();
    let listed = words.iter().any(|word| word == "--list");
    for (name, test) in TESTS {
        if !asked.is_empty() && !asked.iter().any(|word| name.contains(word.as_str())) {
            continue;
        }
        if listed {
            println!("{name}: test");
            continue;
        }
        test(); // the first that panics ends all
        println!("test {name} ... ok");
    }
    ExitCode::SUCCESS
}

/// A test and its name.
type Test = (&'static str, fn());

const TESTS: [Test; 8] = [
    ("all_collectors_are_served_rightly_and_leave", all_collectors_are_served_rightly_and_leave),
    ("workers_come_and_go_one_after_the_other", workers_come_and_go_one_after_the_other),
    (
        "those_of_a_killed_replica_are_served_by_others",
        those_of_a_killed_replica_are_served_by_others,
    ),
    ("a_killed_replica_may_come_back", a_killed_replica_may_come_back),
    ("replicas_are_replaced_without_a_reset", replicas_are_replaced_without_a_reset),
    ("heads_and_storms_come_between_each_other", heads_and_storms_come_between_each_other),
    ("a_gateway_that_dies_unasked_is_a_failure", a_gateway_that_dies_unasked_is_a_failure),
    (
        "an_interrupted_run_ends_everything_it_started",
        an_interrupted_run_ends_everything_it_started,
    ),
];

const COLLECTORS: u32 = 600;

fn options() -> Options {
    let estate = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/estates/demo");
    let own = vec![std::env::current_exe().unwrap().into_os_string()];
    let gateway = PathBuf::from(env!("CARGO_BIN_EXE_gateway"));
    Options {
        replicas: Some(2),
        workers: Some(3),
        connect_rate: 1_000.0,
        duration: Duration::from_secs(1),
        timeout: Duration::from_secs(120),
        // A busy machine is no reason to call an offer wrong.
        head_window: Duration::from_secs(60),
        reply_timeout: Duration::from_secs(60),
        quiet: true,
        ..Options::new(COLLECTORS, estate, gateway, own)
    }
}

/// Runs, and holds it to what every good run must be.
fn play(options: &Options) -> Outcome {
    let outcome = run(options, std::future::pending()).unwrap();
    assert!(outcome.all_right, "{outcome}");
    let report = outcome.report.as_ref().unwrap();
    assert_eq!((report.collectors, report.connected), (COLLECTORS, u64::from(COLLECTORS)));
    assert_eq!((report.offered_right, report.wrong, report.lost), (COLLECTORS, 0, 0));
    assert_eq!((report.links_lost, report.unanswered), (0, 0));
    let kinds: BTreeMap<_, _> = outcome
        .machine
        .processes
        .iter()
        .map(|category| (category.kind, category.settled_bytes))
        .collect();
    assert!(kinds["workers"] > 0 && kinds["gateways"] > 0 && kinds["coordinator"] > 0, "{kinds:?}");
    assert!(outcome.machine.worker_bytes_per_collector.is_some());
    let last = outcome.timeline.last().unwrap();
    assert_eq!(last.wrong, 0);
    assert!(outcome.plot().contains("Collectors"));
    nothing_is_left();
    outcome
}

fn run(options: &Options, interrupt: impl Future<Output = ()>) -> Result<Outcome, ScaleError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (send, mut interrupts) = mpsc::channel(1);
        let running = scale::run(options, &mut interrupts);
        let interrupting = async {
            interrupt.await;
            send.send(()).await.unwrap();
            std::future::pending().await
        };
        tokio::select! {
            outcome = running => outcome,
            () = interrupting => unreachable!("it never ends"),
        }
    })
}

/// What a run that must not be right says of that: at its end, or of its beginning where a busy
/// machine has not let it come further.
fn complaints(outcome: Result<Outcome, ScaleError>) -> Vec<String> {
    match outcome {
        Ok(outcome) => {
            assert!(!outcome.all_right, "{outcome}");
            outcome.problems
        }
        Err(error) => vec![error.to_string()],
    }
}

/// No process has this one for its parent.
fn nothing_is_left() {
    let children = children();
    assert!(children.is_empty(), "{children:?}");
}

/// Process ids of all that this one has started and that have not ended.
fn children() -> Vec<i32> {
    let own = std::process::id().to_string();
    let mut children = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        // One may end while it is looked at.
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        let fields: Vec<&str> =
            stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
        // A zombie has ended: a start that failed may leave one to the end of this process.
        if fields.get(1) == Some(&own.as_str()) && fields.first() != Some(&"Z") {
            children.push(entry.file_name().to_str().unwrap().parse().unwrap());
        }
    }
    children
}

fn all_collectors_are_served_rightly_and_leave() {
    let outcome = play(&Options { heartbeat: Some(Duration::from_millis(500)), ..options() });
    let report = outcome.report.as_ref().unwrap();
    // Description, APPLYING, APPLIED, heartbeats, and the goodbye.
    assert!(report.messages_sent >= u64::from(COLLECTORS) * 5, "{outcome}");
    // Every message but the goodbye was answered, and counted once.
    assert_eq!(report.reply.count + u64::from(COLLECTORS), report.messages_sent, "{outcome}");
    assert_eq!(report.connect_to_offer.count, u64::from(COLLECTORS));
    assert!(outcome.all_connected_after_s <= outcome.all_settled_after_s, "{outcome}");
    // Heartbeats under way unsettle nobody.
    let settled = outcome.all_settled_after_s.unwrap();
    let held = settled + 0.05..settled + outcome.held_s;
    let mut samples = outcome.timeline.iter().filter(|sample| held.contains(&sample.at_s));
    assert!(samples.all(|sample| sample.settled == u64::from(COLLECTORS)), "{outcome}");
}

fn workers_come_and_go_one_after_the_other() {
    // More workers than lanes, and more than gateways: those of some cross a border.
    let outcome = play(&Options { workers: Some(5), lanes: Some(2), ..options() });
    let report = outcome.report.as_ref().unwrap();
    assert_eq!(report.connect_to_offer.count, u64::from(COLLECTORS));
}

fn those_of_a_killed_replica_are_served_by_others() {
    let outcome = play(&Options {
        duration: Duration::from_secs(3),
        kill_replica_at: Some(Duration::from_millis(300)),
        ..options()
    });
    let [event] = &outcome.events[..] else { panic!("{outcome}") };
    assert_eq!(event.what, "replica 1 killed with -9");
    assert!(event.settled_after_s.is_some());
    let ends = outcome.expected_ends;
    assert_eq!(ends.fin + ends.reset, u64::from(COLLECTORS / 2), "{outcome}");
    let report = outcome.report.as_ref().unwrap();
    // The others do not know them, and ask.
    assert_eq!(report.full_state_requests, u64::from(COLLECTORS / 2), "{outcome}");
    assert_eq!(report.offers, u64::from(COLLECTORS), "what was right is not offered again");
}

fn a_killed_replica_may_come_back() {
    let outcome = play(&Options {
        replicas: Some(1),
        duration: Duration::from_secs(3),
        kill_replica_at: Some(Duration::ZERO),
        restart_killed: true,
        ..options()
    });
    let gateways = &outcome.machine.processes[0];
    assert_eq!((gateways.kind, gateways.count), ("gateways", 2));
    assert_eq!(outcome.report.as_ref().unwrap().away.count, u64::from(COLLECTORS), "{outcome}");
}

fn replicas_are_replaced_without_a_reset() {
    let flags = ["--drain-delay=300ms", "--drain=1s"].map(str::to_owned).to_vec();
    let outcome = play(&Options { roll_replicas: true, gateway_flags: flags, ..options() });
    let whats: Vec<_> = outcome.events.iter().map(|event| event.what.as_str()).collect();
    assert_eq!(whats, ["replica 0 replaced and drained", "replica 1 replaced and drained"]);
    let ends = outcome.expected_ends;
    assert_eq!((ends.going_away, ends.reset), (u64::from(COLLECTORS), 0), "{outcome}");
    assert_eq!(outcome.report.as_ref().unwrap().connect_failures, 0, "{outcome}");
}

fn heads_and_storms_come_between_each_other() {
    let outcome = play(&Options {
        duration: Duration::from_secs(8),
        push_every: Some(Duration::from_millis(1_500)),
        storm_every: Some(Duration::from_millis(2_500)),
        ..options()
    });
    let pushes = outcome.events.iter().filter(|event| event.fingerprint.is_some()).count();
    let storms = outcome.events.len() - pushes;
    assert!(pushes >= 1 && storms >= 1, "{outcome}");
    assert_eq!(outcome.storm_resets, storms as u64 * u64::from(COLLECTORS), "{outcome}");
    let report = outcome.report.as_ref().unwrap();
    assert_eq!(report.heads.len(), pushes + 1, "{outcome}");
    for head in &report.heads[1..] {
        assert_eq!(head.content_changed_by_model, COLLECTORS, "every artefact changes");
        assert_eq!((head.offers_missing, head.offers_unneeded), (0, 0), "{outcome}");
    }
    for event in &outcome.events {
        assert_eq!(event.last_offer_after_s.is_some(), event.fingerprint.is_some(), "{outcome}");
    }
}

fn a_gateway_that_dies_unasked_is_a_failure() {
    let options = Options { duration: Duration::from_secs(60), ..options() };
    let murder = async {
        let gateway = loop {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let is_gateway = |pid: &i32| {
                let exe = std::fs::read_link(format!("/proc/{pid}/exe"));
                exe.is_ok_and(|exe| exe == options.gateway)
            };
            // It has been announced once there are workers, too.
            let all = children();
            if all.len() == 5
                && let Some(pid) = all.into_iter().find(is_gateway)
            {
                break pid;
            }
        };
        let pid = rustix::process::Pid::from_raw(gateway).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        std::future::pending::<()>().await
    };
    let complaints = complaints(run(&options, murder));
    let told = |complaint: &String| complaint.contains("gateway") && complaint.contains("died");
    assert!(complaints.iter().any(told), "{complaints:?}");
    nothing_is_left();
}

fn an_interrupted_run_ends_everything_it_started() {
    let options = Options { duration: Duration::from_secs(600), ..options() };
    let soon = async { tokio::time::sleep(Duration::from_secs(4)).await };
    let complaints = complaints(run(&options, soon));
    assert_eq!(complaints[0], "interrupted", "{complaints:?}");
    nothing_is_left();
}
