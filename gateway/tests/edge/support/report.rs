//! Reports as a gateway would tell them, and something that tells them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use render::rollout::report::{CohortLine, HaltedMember, ReplicaLine, RolloutReport};
use render::rollout::verdict::{Control, Counts, Kind, Tally, Terms, Times, Told, judge};

/// 2026-10-01T12:00:00Z.
pub(crate) const NOON: u64 = 1_790_856_000_000;
const HOUR: u64 = 3_600_000;

pub(crate) const ROLLOUT: &str = "data-flow/bridge-canary";

/// The demo estate's Rollout, judged to be `kind`.
pub(crate) fn report(kind: Kind) -> RolloutReport {
    let mut report = healthy();
    match kind {
        Kind::Hold => report.times.soak_since_ms = NOON - HOUR,
        Kind::Advance => {}
        Kind::Complete => {
            report.terms.stages = 1;
            report.cohorts.truncate(1);
        }
        Kind::Inconclusive => report.terms.expect_replicas = 2,
        Kind::Blocked => halt(&mut report, 1),
        Kind::Abort => halt(&mut report, 2),
    }
    report.verdict = judge(&report.terms, &report.tally, &report.times);
    assert_eq!(report.verdict.kind, kind, "{:?}", report.verdict);
    report
}

fn halt(report: &mut RolloutReport, count: u64) {
    let row = &mut report.tally.stages[0];
    (row.to, row.from, row.failed) = (20 - count, count, count);
    report.tally.taken = 20 - count;
    report.halted = (0..count)
        .map(|n| HaltedMember {
            condition: "failed".to_owned(),
            error: "unknown exporter".to_owned(),
            version: "0.158.0".to_owned(),
            label: format!("bridge-{n}"),
            identity: format!("{n:032x}"),
            stage: 0,
            since_ms: NOON - HOUR,
        })
        .collect();
}

fn healthy() -> RolloutReport {
    let terms = Terms {
        stage: 0,
        stages: 2,
        soak_ms: 2 * HOUR,
        abort_at_percent: 10,
        dark_after_ms: 90_000,
        min_seen: 0,
        hold: false,
        same_content: false,
        expect_replicas: 1,
        grace_ms: 60_000,
    };
    let times = Times {
        now_ms: NOON,
        evidence_since_ms: NOON - 4 * HOUR,
        stage_since_ms: NOON - 3 * HOUR,
        stage_since: Told::Sight,
        candidate_since_ms: None,
        soak_since_ms: NOON - 3 * HOUR,
    };
    let tally = Tally {
        stages: vec![Counts { seen: 20, to: 20, ..Counts::default() }],
        taken: 20,
        control: Control { seen: 10, dark: 0, unobserved: 0 },
        served_in_tier: 30,
        replicas: 1,
        ..Tally::default()
    };
    let line = |cohort: &str| CohortLine { cohort: cohort.to_owned(), soak_ms: 2 * HOUR };
    RolloutReport {
        rollout: ROLLOUT.to_owned(),
        tier: "data-flow/kafka-bridge".to_owned(),
        owner: "gateway-owners".to_owned(),
        from: "data-flow/bridge-standard@2".to_owned(),
        to: "data-flow/bridge-next@1".to_owned(),
        head: "0123456789abcdef0123456789abcdef01234567".to_owned(),
        origin: None,
        base: "aa".repeat(32),
        candidate: "bb".repeat(32),
        cohorts: vec![line("25%"), line("100%")],
        verdict: judge(&terms, &tally, &times),
        terms,
        times,
        tally,
        braked_since_ms: None,
        halted: Vec::new(),
        replicas: vec![ReplicaLine {
            name: "gw-a".to_owned(),
            incarnation: "1".to_owned(),
            reporting: true,
            same_head: true,
            age_ms: 0,
        }],
        notices: Vec::new(),
        proposal: None,
    }
}

/// A report as a server-sent event.
pub(crate) fn event(report: &RolloutReport) -> String {
    format!("event: report\ndata: {}\n\n", serde_json::to_string(report).unwrap())
}

/// What a [`Fake`] does with one connection.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// Answers with this status, content type and body.
    Answer(u16, &'static str, String),
    /// Answers with a stream that begins with this, and ends.
    Stream(String),
    /// Answers with a stream that begins with this, and stays open until the test ends.
    Hold(String),
}

/// An operators' listener that plays what a test tells it: the last act again and again.
pub(crate) struct Fake {
    pub(crate) addr: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Fake {
    pub(crate) fn new(acts: Vec<Act>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = Arc::clone(&requests);
        std::thread::spawn(move || {
            let mut held = Vec::new();
            for (nth, stream) in listener.incoming().enumerate() {
                let Ok(mut stream) = stream else { return };
                seen.lock().unwrap().push(head_of(&mut stream));
                let act = acts.get(nth).or_else(|| acts.last()).cloned().unwrap();
                let (status, kind, body, hold) = match act {
                    Act::Answer(status, kind, body) => (status, kind, body, false),
                    Act::Stream(body) => (200, "text/event-stream", body, false),
                    Act::Hold(body) => (200, "text/event-stream", body, true),
                };
                let head = format!(
                    "HTTP/1.1 {status} x\r\nContent-Type: {kind}\r\nConnection: close\r\n\r\n{body}"
                );
                // A client that has left already is the test's business.
                let _ = stream.write_all(head.as_bytes());
                if hold {
                    held.push(stream);
                }
            }
        });
        Self { addr, requests }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Heads of all requests so far.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

fn head_of(stream: &mut TcpStream) -> String {
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read > 0) {
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}
