//! The text of a report, in the states that an operator meets.

use insta::assert_snapshot;
use render::rollout::report::{
    CohortLine, HaltedMember, ProposalState, ReplicaLine, RolloutReport,
};
use render::rollout::verdict::{Control, Counts, Tally, Terms, Times, Told, judge};

use super::*;

/// 2026-10-01T12:00:00Z.
pub(crate) const NOON: u64 = 1_790_856_000_000;
const HOUR: u64 = 3_600_000;
const MINUTE: u64 = 60_000;

/// The demo estate's Rollout at stage 2 of 3, soaked for 3 of 24 hours; `change` it, and it is
/// judged as a gateway does.
pub(crate) fn report(change: impl FnOnce(&mut RolloutReport)) -> RolloutReport {
    let line =
        |cohort: &str, hours: u64| CohortLine { cohort: cohort.to_owned(), soak_ms: hours * HOUR };
    let terms = Terms {
        stage: 1,
        stages: 3,
        soak_ms: 24 * HOUR,
        abort_at_percent: 10,
        dark_after_ms: 90_000,
        min_seen: 0,
        hold: false,
        same_content: false,
        expect_replicas: 2,
        grace_ms: MINUTE,
    };
    let times = Times {
        now_ms: NOON,
        evidence_since_ms: NOON - 30 * HOUR,
        stage_since_ms: NOON - 3 * HOUR - 5 * MINUTE,
        stage_since: Told::History,
        candidate_since_ms: None,
        soak_since_ms: NOON - 3 * HOUR - 5 * MINUTE,
    };
    let first = Counts { seen: 2, to: 2, ..Counts::default() };
    let second = Counts { seen: 20, taking: 2, to: 17, from: 1, ..Counts::default() };
    let replica = |name: &str, age_ms| ReplicaLine {
        name: name.to_owned(),
        incarnation: "1f".to_owned(),
        reporting: true,
        same_head: true,
        age_ms,
    };
    let mut report = RolloutReport {
        rollout: "data-flow/bridge-canary".to_owned(),
        tier: "data-flow/kafka-bridge".to_owned(),
        owner: "gateway-owners".to_owned(),
        from: "data-flow/bridge-standard@2".to_owned(),
        to: "data-flow/bridge-next@1".to_owned(),
        head: "5a7e3c1f9b2d4e6f8091a2b3c4d5e6f708192a3b".to_owned(),
        origin: None,
        base: "aa".repeat(32),
        candidate: "3f9a01c2d4e5".repeat(5) + "3f9a",
        cohorts: vec![line("hosts host.name (2)", 2), line("25%", 24), line("100%", 24)],
        verdict: judge(&terms, &Tally::new(1), &times),
        terms,
        times,
        tally: Tally {
            stages: vec![first, second],
            taken: 21,
            control: Control { seen: 78, dark: 1, unobserved: 0 },
            served_in_tier: 100,
            replicas: 2,
            ..Tally::default()
        },
        braked_since_ms: None,
        halted: Vec::new(),
        replicas: vec![replica("gw-a", 0), replica("gw-b", 4_200)],
        notices: Vec::new(),
        proposal: None,
    };
    change(&mut report);
    report.verdict = judge(&report.terms, &report.tally, &report.times);
    report
}

/// One that halted so many minutes before noon.
pub(crate) fn member(condition: &str, error: &str, label: &str, minutes: u64) -> HaltedMember {
    HaltedMember {
        condition: condition.to_owned(),
        error: error.to_owned(),
        version: "0.158.0".to_owned(),
        label: label.to_owned(),
        identity: format!("{label:x<32}"),
        stage: 1,
        since_ms: NOON - minutes * MINUTE,
    }
}

fn text(report: &RolloutReport) -> String {
    super::report(report, report.times.now_ms, Style::default())
}

/// Every row of members adds up, in every state.
#[track_caller]
fn check_sums(text: &str) {
    let mut rows = 0;
    for line in text.lines().filter(|line| line.contains("─ ")) {
        let numbers: Vec<u64> =
            line.split_whitespace().rev().take(7).filter_map(|word| word.parse().ok()).collect();
        if numbers.len() == 7 {
            rows += 1;
            assert_eq!(numbers[6], numbers[2..6].iter().sum::<u64>(), "{line}");
        }
    }
    assert!(rows > 0, "{text}");
}

#[test]
fn a_healthy_hold() {
    let text = text(&report(|_| {}));
    check_sums(&text);
    assert_snapshot!(text);
}

#[test]
fn a_block_names_who_and_why() {
    let text = text(&report(|report| {
        let row = &mut report.tally.stages[1];
        (row.to, row.from, row.failed) = (16, 2, 1);
        let error = "'exporters' unknown type: \"kafka2\" for id: \"kafka2\"";
        report.halted = vec![member("failed", error, "bridge-b7", 12)];
    }));
    check_sums(&text);
    assert_snapshot!(text);
}

#[test]
fn an_abort_with_its_brake_and_many_halted() {
    let text = text(&report(|report| {
        report.tally.braked = true;
        report.braked_since_ms = Some(NOON - 7 * MINUTE);
        let row = &mut report.tally.stages[1];
        (row.to, row.from, row.failed, row.dark) = (8, 10, 9, 2);
        report.tally.long_dark = 2;
        report.halted = (0..9)
            .map(|n| member("failed", "bind: address in use", &format!("b-{n}"), n))
            .collect();
        report.halted[8].error = "unknown field \"brokerz\"".to_owned();
        report
            .halted
            .extend([member("went_dark", "", "b-10", 3), member("went_dark", "", "b-11", 2)]);
        report.proposal = Some(ProposalState {
            kind: "abort".to_owned(),
            branch: "tidegate/rollout/data-flow/bridge-canary/abort-2".to_owned(),
            state: "retrying".to_owned(),
            commit: None,
            url: None,
            error: Some("remote: Internal Server Error".to_owned()),
            attempts: 3,
        });
    }));
    check_sums(&text);
    assert_snapshot!(text);
}

#[test]
fn inconclusive_while_a_replica_is_silent() {
    let text = text(&report(|report| {
        report.replicas[1].reporting = false;
        report.replicas[1].age_ms = 3 * MINUTE;
        report.tally.replicas = 1;
        report.tally.stages[1].unobserved = 9;
        report.notices = vec!["the store cannot be written: No space left on device".to_owned()];
    }));
    check_sums(&text);
    assert_snapshot!(text);
}

#[test]
fn an_advance_and_its_proposal() {
    let text = text(&report(|report| {
        report.times.soak_since_ms = NOON - 25 * HOUR;
        report.times.stage_since_ms = NOON - 25 * HOUR;
        report.proposal = Some(ProposalState {
            kind: "advance".to_owned(),
            branch: "tidegate/rollout/data-flow/bridge-canary/advance-3".to_owned(),
            state: "pushed".to_owned(),
            commit: Some("0123456789abcdef0123456789abcdef01234567".to_owned()),
            url: Some("https://git.example/estate/pulls/7".to_owned()),
            error: None,
            attempts: 1,
        });
    }));
    assert_snapshot!(text);
}

#[test]
fn complete_on_the_last_stage() {
    let text = text(&report(|report| {
        report.terms.stage = 2;
        report.times.soak_since_ms = NOON - 25 * HOUR;
        report.times.stage_since_ms = NOON - 25 * HOUR;
        report.tally.stages.push(Counts { seen: 77, to: 77, ..Counts::default() });
        report.tally.control = Control::default();
        report.tally.no_bucket = 1;
    }));
    check_sums(&text);
    assert_snapshot!(text);
}

#[test]
fn an_empty_cohort() {
    let text = text(&report(|report| {
        report.tally.stages = vec![Counts::default(); 2];
        report.tally.taken = 0;
    }));
    assert_snapshot!(text);
}

#[test]
fn foreign_members_only() {
    let text = text(&report(|report| {
        report.tally = Tally {
            stages: vec![Counts::default(); 2],
            foreign: Counts { seen: 6, to: 3, from: 2, unknown: 1, ..Counts::default() },
            replicas: 2,
            ..Tally::default()
        };
        report.times.stage_since = Told::Sight;
        report.head = String::new();
    }));
    check_sums(&text);
    assert_snapshot!(text);
}

#[test]
fn what_peers_and_authors_chose_moves_no_cursor() {
    let evil = "\x1b[2J\x1b]0;owned\x07\r\u{202e}\u{9b}31m";
    let report = report(|report| {
        let strings = [
            &mut report.rollout,
            &mut report.tier,
            &mut report.owner,
            &mut report.from,
            &mut report.to,
            &mut report.head,
            &mut report.candidate,
        ];
        strings.into_iter().for_each(|text| text.push_str(evil));
        report.cohorts[0].cohort.push_str(evil);
        report.replicas[0].name.push_str(evil);
        report.replicas[0].same_head = false;
        report.notices.push(evil.to_owned());
        let row = &mut report.tally.stages[1];
        (row.to, row.from, row.failed) = (16, 2, 1);
        report.halted =
            vec![HaltedMember { version: evil.to_owned(), ..member(evil, evil, evil, 1) }];
        report.proposal = Some(ProposalState {
            kind: evil.to_owned(),
            branch: evil.to_owned(),
            state: evil.to_owned(),
            commit: Some(evil.to_owned()),
            url: Some(evil.to_owned()),
            error: Some(evil.to_owned()),
            attempts: 1,
        });
    });
    let report = RolloutReport {
        verdict: render::rollout::verdict::Verdict {
            why: evil.to_owned(),
            ..report.verdict.clone()
        },
        ..report
    };
    let text = text(&report);
    let harmless = |c: char| c == '\n' || !(c.is_control() || c == '\u{202e}');
    assert!(text.chars().all(harmless), "{text:?}");
}

#[test]
fn many_kinds_of_halt_are_capped_and_counted() {
    let text = text(&report(|report| {
        report.tally.stages[1].failed = 40;
        report.halted = (0..30).map(|n| member("failed", &format!("error {n}"), "x", 0)).collect();
    }));
    assert!(text.contains("halted members (the report names 30 of 40)"), "{text}");
    assert!(text.contains("and 10 more kinds of halt, 10 members"), "{text}");
}
