//! A drill that went well, as records; and what each thing that goes wrong makes of it.

use super::*;
use crate::drill::collectors::WEBSOCKETS;
use crate::drill::files::{HeadFound, Spread};
use crate::drill::records::{Change, Outcome, Passage, Probe};
use crate::drill::{Row, Times, Variant};

const SECOND: Nanos = 1_000_000_000;
/// The change lasts from here …
const BEGIN: Nanos = 10 * SECOND;
/// … to here.
const END: Nanos = 30 * SECOND;

pub(in crate::drill) fn settings(fault: Option<Fault>) -> Settings {
    Settings {
        collectors: 60,
        seed: 1,
        variant: Variant::Rollout,
        fault,
        times: Times::SHORT,
        tls: false,
    }
}

fn change(ns: Nanos, kind: &str, name: &str, epoch: u64, detail: &str) -> Change {
    let (kind, name, detail) = (kind.to_owned(), name.to_owned(), detail.to_owned());
    Change { ns, kind, name, epoch, detail }
}

fn probe(stream: &str, at: Nanos) -> Probe {
    Probe {
        stream: stream.to_owned(),
        seq: at,
        intended_ns: at,
        sent_ns: at + 100_000,
        connected_ns: at + 200_000,
        first_byte_ns: at + 300_000,
        done_ns: at + 400_000,
        port: 1,
        answer: "v1-1/0/1".to_owned(),
        outcome: Outcome::Ok,
    }
}

/// Three gateways leave and three come, one after the other.
pub(in crate::drill) fn good() -> (Recorded, [CollectorsFound; 2]) {
    let mut all = Recorded::default();
    for (ns, name) in
        [(5 * SECOND, "steady-1"), (BEGIN, "change"), (END, "steady-2"), (35 * SECOND, "end")]
    {
        all.changes.push(change(ns, "phase", name, 0, ""));
    }
    for number in 1..=3_u64 {
        let (old, new) = (format!("v1-{number}"), format!("v2-{number}"));
        let answer = format!("{old}/0/{number}");
        all.changes.push(change(number, "ready", &old, 0, &answer));
        all.changes.push(change(number + 1, "routable", &old, number, ""));
        let at = |tenths: u64| BEGIN + number * 5 * SECOND + tenths * SECOND / 10;
        for (tenths, kind, name, epoch) in [
            (0, "spawned", &new, 0),
            (1, "listening", &new, 0),
            (2, "ready", &new, 0),
            (3, "routable", &new, 10 * number),
            (4, "term", &old, 0),
            (5, "unready", &old, 0),
            (6, "unroutable", &old, 10 * number + 1),
            (16, "listener_closed", &old, 0),
            (30, "exited", &old, 0),
        ] {
            all.changes.push(change(at(tenths), kind, name, epoch, "x"));
        }
        all.changes.push(change(at(7), "applied", "route", 10 * number + 1, ""));
        for session in 0..16 {
            all.passages.push(Passage {
                client: format!("{WEBSOCKETS}:{}", 1000 * number + session),
                accepted_ns: 1,
                epoch: 3,
                backend: old.clone(),
                dialed_ns: 2,
                closed_ns: at(17) + session * SECOND / 16,
            });
        }
    }
    all.changes.push(change(END - 1, "ended", "succeeded", 0, ""));
    all.changes.sort_by_key(|change| change.ns);
    for (index, counters) in ROWS.into_iter().enumerate() {
        let ns = BEGIN + index as u64;
        let status = "running".to_owned();
        all.rows.push(Row { ns, status, counters, epoch: 0, processes: 4 });
    }
    for at in (5 * SECOND..35 * SECOND).step_by(20_000_000) {
        for stream in 0..4 {
            all.probes.push(probe(&format!("route-{stream}"), at + stream * 5_000_000));
        }
        all.control.push(probe("control", at));
    }
    let spread = |max_ms: f64| Spread { count: 10, p99_ms: max_ms, max_ms };
    let head = HeadFound { offers_needed: 10, offers_missing: 0, offers_superseded: 1 };
    let found = CollectorsFound {
        collectors: 48,
        connected: 48,
        heads: vec![head],
        away: spread(20.0),
        change_to_offer: spread(900.0),
        ..CollectorsFound::default()
    };
    (all, [found.clone(), found])
}

/// The criteria that do not hold, and the verdict, after something went wrong.
fn judged(
    fault: Option<Fault>,
    spoil: impl FnOnce(&mut Recorded, &mut CollectorsFound),
) -> (Vec<String>, Verdict) {
    let (mut all, mut found) = good();
    spoil(&mut all, &mut found[0]);
    let summary = judge(&all, &settings(fault), &found);
    let broken = summary.criteria.iter().filter(|one| !one.ok).map(|one| one.id.clone()).collect();
    (broken, summary.verdict)
}

fn failed(ids: &[&str]) -> (Vec<String>, Verdict) {
    (ids.iter().map(|id| (*id).to_owned()).collect(), Verdict::Failed)
}

pub(in crate::drill) fn at_change(all: &mut Recorded) -> &mut Probe {
    all.probes.iter_mut().find(|probe| probe.intended_ns > BEGIN + SECOND).unwrap()
}

#[test]
fn a_good_drill_passes_and_says_its_bound() {
    let (all, found) = good();
    let summary = judge(&all, &settings(None), &found);
    assert_eq!((summary.verdict, &summary.void), (Verdict::Passed, &Vec::new()), "{summary:#?}");
    let levels = &summary.levels;
    assert_eq!((levels.modeled_min, levels.ready_min, levels.routable_min), (3, 3, 3));
    assert_eq!((levels.sessions_max, levels.probes), (16, 4000));
    assert!((levels.bound_ms - 5.1).abs() < 1e-9 && (levels.longest_gap_ms - 5.0).abs() < 1e-9);
    assert!(!summary.not_claimed.is_empty());
}

#[test]
fn one_refused_probe_or_one_answer_from_nobody_known_fails_it() {
    let refuse =
        |all: &mut Recorded, _: &mut CollectorsFound| at_change(all).outcome = Outcome::Refused;
    assert_eq!(judged(None, refuse), failed(&["P2"]));
    let forge =
        |all: &mut Recorded, _: &mut CollectorsFound| at_change(all).answer = "v9/0/0".to_owned();
    assert_eq!(judged(None, forge), failed(&["P2"]));
}

#[test]
fn a_gap_without_a_single_failure_fails_it() {
    let (from, to) = (BEGIN + SECOND, BEGIN + SECOND + 60_000_000);
    let gap = |all: &mut Recorded, _: &mut CollectorsFound| {
        all.probes.retain(|probe| !(from..to).contains(&probe.intended_ns));
    };
    assert_eq!(judged(None, gap), failed(&["P2"]));
}

#[test]
fn the_order_of_leaving_is_held_to() {
    for (kind, gone) in
        [("listener_closed", "unready"), ("applied", "applied"), ("exited", "exited")]
    {
        let spoil = |all: &mut Recorded, _: &mut CollectorsFound| {
            if kind == gone {
                all.changes.retain(|change| change.kind != gone);
            } else {
                // The listener closed before the gateway said that it is not ready.
                let early = all.changes.iter().find(|change| change.kind == gone).unwrap().ns - 1;
                all.changes.iter_mut().find(|change| change.kind == kind).unwrap().ns = early;
            }
        };
        assert_eq!(judged(None, spoil), failed(&["P3"]), "{kind}");
    }
    let die = |all: &mut Recorded, _: &mut CollectorsFound| {
        all.changes.push(change(BEGIN + SECOND, "died", "v2-1", 0, ""));
    };
    assert_eq!(judged(None, die), failed(&["P3"]));
}

#[test]
fn a_target_that_never_became_healthy_and_never_got_a_connection_is_in_order() {
    let refuse = |routed: bool| {
        move |all: &mut Recorded, _: &mut CollectorsFound| {
            all.changes.retain(|one| {
                one.name != "v2-3" || !(one.kind == "ready" || !routed && one.kind == "routable")
            });
            all.changes.push(change(END - 2, "refused", "v2-3", 0, ""));
        }
    };
    assert_eq!(judged(None, refuse(false)), (Vec::new(), Verdict::Passed));
    assert_eq!(judged(None, refuse(true)), failed(&["P3"]));
}

#[test]
fn a_fault_is_seen_by_what_breaks_and_by_what_does_not() {
    let seen = |fault: Fault, spoil: &dyn Fn(&mut Recorded)| {
        let (mut all, found) = good();
        spoil(&mut all);
        fault.is_seen_in(&judge(&all, &settings(Some(fault)), &found))
    };
    let rows = |all: &mut Recorded| all.rows.truncate(2);
    let refuse = |all: &mut Recorded| at_change(all).outcome = Outcome::Refused;
    let both = |all: &mut Recorded| {
        rows(all);
        refuse(all);
    };
    assert!(seen(Fault::TwoFailuresStrict, &rows) && !seen(Fault::TwoFailuresBaseline, &rows));
    assert!(!seen(Fault::TwoFailuresStrict, &both) && seen(Fault::TwoFailuresBaseline, &both));
    assert!(seen(Fault::SharedPort, &refuse) && !seen(Fault::SharedPort, &rows));
    assert!(!seen(Fault::ForgedAnswer, &|_| {}), "it passed");
}

#[test]
fn sessions_links_and_revisions_are_held_to() {
    let crowd = |all: &mut Recorded, _: &mut CollectorsFound| {
        for passage in &mut all.passages {
            passage.backend = "v1-1".to_owned();
        }
    };
    assert_eq!(judged(None, crowd), failed(&["P5"]));
    let slow = |_: &mut Recorded, found: &mut CollectorsFound| found.away.max_ms = 2_001.0;
    assert_eq!(judged(None, slow), failed(&["P4"]));
    let restless = |all: &mut Recorded, _: &mut CollectorsFound| {
        let more: Vec<Passage> = all.passages.iter().take(6).cloned().collect();
        all.passages.extend(more);
    };
    assert_eq!(judged(None, restless), failed(&["P4"]));
    let missing = |_: &mut Recorded, found: &mut CollectorsFound| found.heads[0].offers_missing = 1;
    assert_eq!(judged(None, missing), failed(&["P6"]));
    let back = |_: &mut Recorded, found: &mut CollectorsFound| {
        found.wrong_by_kind.insert("regression".to_owned(), 1);
    };
    assert_eq!(judged(None, back), failed(&["P6"]));
    let again = |_: &mut Recorded, found: &mut CollectorsFound| {
        found.duplicates = 1;
        found.wrong_by_kind.insert("duplicate".to_owned(), 1);
    };
    assert_eq!(
        judged(None, again),
        (Vec::new(), Verdict::Passed),
        "offered again, not applied again"
    );
}

#[test]
fn rows_processes_and_the_pace_of_a_drain_are_held_to() {
    let skip = |all: &mut Recorded, _: &mut CollectorsFound| {
        all.rows.remove(3);
    };
    assert_eq!(judged(None, skip), failed(&["P7"]));
    let fifth = |all: &mut Recorded, _: &mut CollectorsFound| all.rows[2].processes = 5;
    assert_eq!(judged(None, fifth), failed(&["P7"]));
    let burst = |all: &mut Recorded, _: &mut CollectorsFound| {
        let of_one = all.passages.iter_mut().filter(|passage| passage.backend == "v1-2");
        of_one.for_each(|passage| passage.closed_ns = BEGIN + 12 * SECOND);
    };
    assert_eq!(judged(None, burst), failed(&["P8"]));
}

#[test]
fn a_late_prober_makes_it_void_unless_the_failure_is_certain() {
    let late = |all: &mut Recorded| {
        for probe in all.control.iter_mut().filter(|probe| probe.intended_ns >= BEGIN) {
            probe.sent_ns += 150_000_000;
        }
    };
    assert_eq!(judged(None, |all, _| late(all)).1, Verdict::Void);
    let and_timeout = |all: &mut Recorded, _: &mut CollectorsFound| {
        late(all);
        at_change(all).outcome = Outcome::Timeout;
    };
    assert_eq!(judged(None, and_timeout).1, Verdict::Void);
    let and_refused = |all: &mut Recorded, _: &mut CollectorsFound| {
        late(all);
        at_change(all).outcome = Outcome::Refused;
    };
    assert_eq!(judged(None, and_refused).1, Verdict::Failed);
}

#[test]
fn failures_before_the_change_and_missing_records_are_void() {
    let before =
        |all: &mut Recorded, _: &mut CollectorsFound| all.probes[0].outcome = Outcome::Refused;
    assert_eq!(judged(None, before), (vec!["P1".to_owned()], Verdict::Void));
    let blind = |all: &mut Recorded, _: &mut CollectorsFound| all.control.clear();
    assert_eq!(judged(None, blind).1, Verdict::Void);
    let (_, found) = good();
    assert_eq!(judge(&Recorded::default(), &settings(None), &found).verdict, Verdict::Void);
}

#[test]
fn without_the_fourth_slot_it_waits_and_is_reported() {
    let stall = |all: &mut Recorded, _: &mut CollectorsFound| {
        let moved = [
            "spawned",
            "listening",
            "term",
            "unready",
            "unroutable",
            "listener_closed",
            "exited",
            "ended",
        ];
        all.changes.retain(|change| change.ns < BEGIN || !moved.contains(&change.kind.as_str()));
        all.rows.truncate(2);
    };
    let reported = |all: &mut Recorded, found: &mut CollectorsFound| {
        stall(all, found);
        all.changes.push(change(END - 2, "report", "rollout.progress_deadline", 0, ""));
    };
    let fault = Some(Fault::NoSurgeSlot);
    assert_eq!(judged(fault, reported), (vec!["P7".to_owned()], Verdict::Waiting));
    assert_eq!(judged(fault, stall), failed(&["P7"]), "nobody was told");
    assert_eq!(judged(None, reported), failed(&["P7"]));
}
