//! The page, taken apart again: what it says, that it is whole, and that it stays small.

mod look;
mod parse;
mod size;

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use render::rollout::report::{ProposalState, ReplicaLine, RolloutReport};
use render::rollout::verdict::{Counts, Kind};

use super::picture::{HeadFacts, LinkFacts, Picture, ReplicaFacts, TierFacts};
use super::view::{self, page};
use crate::aggregate::Role;
use crate::cli::rollout::style::glyph;
use crate::cli::rollout::text::tests::{NOON, member, report};
use crate::drain::Phase;
use crate::serve::TierCount;
use crate::source::status::{FailureReport, Report};
use parse::{Node, parsed};

/// What a page is drawn from, to be changed.
struct Scene {
    reports: BTreeMap<Box<str>, Arc<RolloutReport>>,
    rollouts: Vec<String>,
    tiers: Vec<String>,
    counts: Vec<TierCount>,
    source: Report,
    notices: Vec<String>,
    phase: Phase,
    role: Role,
    unix_ms: u64,
    signed_in: bool,
}

impl Scene {
    fn new(reports: impl IntoIterator<Item = RolloutReport>) -> Self {
        let reports: BTreeMap<Box<str>, Arc<RolloutReport>> = reports
            .into_iter()
            .map(|report| (report.rollout.as_str().into(), Arc::new(report)))
            .collect();
        Self {
            rollouts: reports.keys().map(|id| id.to_string()).collect(),
            reports,
            tiers: vec!["data-flow/kafka-bridge".to_owned()],
            counts: Vec::new(),
            source: Report {
                kind: "estate",
                place: "/srv/estate".to_owned(),
                last_success: None,
                last_success_unix_ms: Some(NOON - 2_000),
                failure: None,
            },
            notices: Vec::new(),
            phase: Phase::Serving,
            role: Role::Alone,
            unix_ms: NOON,
            signed_in: false,
        }
    }

    fn draw(&self) -> view::Page {
        let rollout = self.rollouts.first().map(String::as_str);
        page(&Picture {
            unix_ms: self.unix_ms,
            now_ms: NOON,
            head: HeadFacts {
                commit: "5a7e3c1f9b2d4e608c7a1b3d5f9e2c4a6b8d0f13",
                committed_unix_ms: Some(NOON - 90_000_000),
                loaded_unix_ms: NOON - 7_200_000,
                source: &self.source,
            },
            rollouts: self.rollouts.iter().map(String::as_str).collect(),
            reports: &self.reports,
            tiers: self
                .tiers
                .iter()
                .map(|id| TierFacts { id, environment: "production", rollout })
                .collect(),
            counts: &self.counts,
            replica: ReplicaFacts {
                name: "gw-a",
                role: self.role,
                phase: self.phase,
                agents: 400,
                polling: 3,
                links: Some(LinkFacts { live: 397, max: 20_000, rejected: 12 }),
                store: None,
                notices: &self.notices,
                expect_replicas: 2,
            },
            signed_in: self.signed_in,
        })
    }

    /// The page, which is well formed.
    fn page(&self) -> Node {
        parsed(&self.draw().html)
    }
}

fn judged(kind: Kind) -> RolloutReport {
    let mut report = report(|_| {});
    report.rollout = format!("team/{}", kind.label());
    report.verdict.kind = kind;
    report.verdict.why = format!("because it is to {}", kind.label());
    report
}

/// Two failed and one went dark, of 22; the brake is on and the abort proposed.
fn aborted() -> RolloutReport {
    let mut report = report(|report| {
        report.tally.stages[1].failed = 2;
        report.tally.stages[1].dark = 1;
        report.braked_since_ms = Some(NOON - 65_000);
        report.halted = vec![
            member("failed", "cannot start the <sampler>", "bridge-a1", 5),
            member("failed", "cannot start the <sampler>", "bridge-a2", 4),
            member("went_dark", "", "bridge-a3", 3),
        ];
        report.proposal = Some(ProposalState {
            kind: "abort".to_owned(),
            branch: "tidegate/rollout/data-flow/bridge-canary/abort-2".to_owned(),
            state: "pushed".to_owned(),
            commit: Some("9d8c7b6a5f4e3d2c1b0a".to_owned()),
            url: Some("https://forge.example/estate/pulls/7".to_owned()),
            error: None,
            attempts: 1,
        });
    });
    report.notices.push("The store cannot be written.".to_owned());
    report
}

#[test]
fn each_verdict_is_told_by_glyph_word_and_sentence() {
    for kind in Kind::ALL {
        let page = Scene::new([judged(kind)]).page();
        let card = page.only("article");
        assert_eq!(card.attribute("data-verdict"), Some(kind.label()));
        let title = card.only("h3").text();
        assert_eq!(title, format!("{}{}team/{}", glyph(kind), kind.label(), kind.label()));
        let why = card.with_class("why").text();
        assert_eq!(why, format!("because it is to {}", kind.label()));
        let counted = page.with_class("verdicts").text();
        assert_eq!(counted, format!("{}{}1", glyph(kind), kind.label()));
    }
}

#[test]
fn the_worst_is_the_headline_and_the_first_card() {
    let kinds = [Kind::Complete, Kind::Hold, Kind::Blocked, Kind::Advance, Kind::Abort];
    let mut scene = Scene::new(kinds.map(judged));
    scene.rollouts.push("team/new".to_owned());
    let page = scene.page();
    let order: Vec<&str> =
        page.all("article").iter().filter_map(|card| card.attribute("data-verdict")).collect();
    assert_eq!(order, ["abort", "blocked", "hold", "new", "advance", "complete"]);
    assert_eq!(page.only("h1").text(), "✖1 Rollout calls for an abort");
    assert_eq!(page.only("title").text(), "✖ 1 Rollout calls for an abort · Tidegate");
    assert_eq!(page.with_class("top").attribute("data-alarm"), Some("critical"));

    let headline = |change: fn(&mut Scene)| {
        let mut scene = Scene::new([judged(Kind::Hold)]);
        change(&mut scene);
        scene.page().only("h1").text()
    };
    assert_eq!(headline(|_| {}), "✔No Rollout calls for attention");
    let on = Scene::new([judged(Kind::Advance), judged(Kind::Hold)]).page();
    assert_eq!(on.only("h1").text(), "✔1 Rollout may go on");
    assert_eq!(headline(|scene| scene.phase = Phase::Draining), "!This replica is leaving");
    assert_eq!(
        headline(|scene| scene.notices.push("Lost.".to_owned())),
        "!The evidence is not kept as it should be"
    );
    assert_eq!(
        headline(|scene| {
            scene.source.failure = Some(FailureReport {
                reason: "invalid",
                detail: String::new(),
                since: String::new(),
                since_unix_ms: NOON,
            });
        }),
        "!The newest head is not in force"
    );
}

#[test]
fn an_abort_shows_who_halted_why_and_what_is_proposed() {
    let page = Scene::new([aborted()]).page();
    let card = page.only("article");
    let text = card.text();
    for part in [
        "Brake on for 1 minute 5 seconds: nobody new is offered the candidate.",
        "Proposal to abort: pushed, branch tidegate/rollout/data-flow/bridge-canary/abort-2 at \
         9d8c7b6a5f4e · pull request",
        "Halted 3 of 22, 13.6 %",
        "2 failed1 went dark1 blocks3 abort (10 %)",
        "Halted members: 3, of 2 kinds2 × failed · version 0.158.0cannot start the <sampler>\
         bridge-a1 stage 2, 5 minutes agobridge-a2 stage 2, 4 minutes ago1 × went_dark",
        "Control group (the Tier's others): 78 seen, 1 dark (1.2 %)",
        "Stage 2 of 3 soaked 12.8 %",
        "Replicas: 2 report, 2 expected; oldest word 4 seconds ago",
        "The store cannot be written.",
        "gateway rollout get data-flow/bridge-canary",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    let link = card.only("a");
    assert_eq!(link.attribute("href"), Some("https://forge.example/estate/pulls/7"));
    let brake = card.with_class("brake").only("time");
    assert_eq!(brake.attribute("datetime"), Some("2026-10-01T11:58:55Z"));
    let current: Vec<String> = card
        .all("li")
        .iter()
        .filter(|stage| stage.attribute("aria-current") == Some("step"))
        .map(|stage| stage.text())
        .collect();
    assert_eq!(current, ["2. 25%active"]);
    let open: Vec<bool> =
        card.all("details").iter().map(|part| part.attribute("open").is_some()).collect();
    assert_eq!(open, [true, false, false], "only who halted is shown unasked");
}

#[test]
fn an_address_that_is_no_web_page_is_no_link() {
    let mut report = aborted();
    if let Some(proposal) = &mut report.proposal {
        proposal.url = Some("javascript:alert(1)".to_owned());
    }
    let page = Scene::new([report]).page();
    assert!(page.only("article").all("a").is_empty());
    assert!(page.only("article").text().contains("javascript:alert(1)"), "but it is shown");
}

proptest! {
    #[test]
    fn the_arms_of_a_card_add_up(arms in proptest::array::uniform5(0..5_000_u64)) {
        let [taking, to, from, other, unknown] = arms;
        let seen = arms.iter().sum();
        let report = report(|report| {
            let counts = Counts { seen, taking, to, from, other, unknown, ..Counts::default() };
            report.tally.stages = vec![Counts::default(), counts];
        });
        let page = Scene::new([report]).page();
        let arms = page.with_class("arms");
        let number = |text: String| text.replace(',', "").parse::<u64>().unwrap();
        let sum: u64 = arms.all("b").iter().map(|count| number(count.text())).sum();
        prop_assert_eq!(sum, seen);
        let told = arms.with_class("sum").text();
        prop_assert_eq!(number(told.trim_end_matches(" seen").to_owned()), seen);
        // And so do the rows of the table.
        for row in page.only("article").only("tbody").all("tr") {
            let cells: Vec<String> = row.all("td").iter().map(|cell| cell.text()).collect();
            if let Ok(cells) = cells.iter().map(|cell| cell.replace(',', "").parse::<u64>()).collect::<Result<Vec<_>, _>>() {
                prop_assert_eq!(cells[0], cells[1..6].iter().sum::<u64>());
            }
        }
    }

    /// Whatever peers, estates and forges say, the page has the same elements and attributes.
    #[test]
    fn no_text_becomes_markup(
        texts in proptest::collection::vec(
            prop_oneof!["[<>&\"'/=a-z!-]{1,60}", "\\PC{1,40}", any::<String>().prop_map(|text| format!("x{text}"))],
            16,
        ),
    ) {
        let shape = |texts: &[String]| {
            let mut texts = texts.iter().cycle().cloned();
            let mut next = || texts.next().unwrap();
            let mut report = aborted();
            report.tier = next();
            report.owner = next();
            report.from = next();
            report.to = next();
            report.verdict.why = next();
            report.notices = vec![next()];
            for line in &mut report.cohorts {
                line.cohort = next();
            }
            report.halted.truncate(1);
            for member in &mut report.halted {
                member.condition = next();
                member.error = next();
                member.version = next();
                member.label = next();
            }
            for (n, replica) in report.replicas.iter_mut().enumerate() {
                (replica.name, replica.incarnation) = (next(), n.to_string());
            }
            if let Some(proposal) = &mut report.proposal {
                proposal.branch = next();
                proposal.state = next();
                proposal.url = Some(format!("javascript:{}", next()));
                proposal.error = Some(next());
            }
            let mut scene = Scene::new([report]);
            scene.notices = vec![next()];
            scene.source.place = next();
            scene.tiers = vec![next()];
            scene.page().shape()
        };
        prop_assert_eq!(shape(&texts), shape(&["tame".to_owned()]));
    }
}

#[test]
fn a_refused_head_is_told_with_its_problems() {
    let mut scene = Scene::new([judged(Kind::Hold)]);
    let problems: Vec<String> = (0..40).map(|n| format!("  - problem {n} <b>")).collect();
    scene.source.failure = Some(FailureReport {
        reason: "invalid",
        detail: format!("invalid topology sources:\n{}", problems.join("\n")),
        since: String::new(),
        since_unix_ms: NOON - 600_000,
    });
    let page = scene.page();
    let alert = page.with_class("alerts").text();
    assert_eq!(
        alert,
        "Head refused (invalid) 10 minutes ago; collectors keep commit 5a7e3c1f9b2d. Why"
    );
    let refused = page.with_class("refused").text();
    assert!(refused.contains("- problem 28 <b>"), "{refused}");
    assert!(refused.ends_with("11 more; see /readyz"), "{refused}");
}

#[test]
fn where_nothing_is_the_page_says_what_to_do() {
    let mut scene = Scene::new([]);
    scene.tiers.clear();
    let page = scene.page();
    assert_eq!(page.only("h1").text(), "○No Rollout is under way");
    let empty: Vec<String> =
        page.every_with_class("empty").iter().map(|empty| empty.text()).collect();
    assert_eq!(empty.len(), 4, "{empty:?}");
    for (text, way_out) in empty.iter().zip([
        "add teams/TEAM/rollouts/NAME.yaml",
        "Add teams/TEAM/tiers/NAME.yaml",
        "Point one at ws://HOST:4320/v1/opamp",
        "there is none to report about",
    ]) {
        assert!(text.contains(way_out), "{text}");
    }
    let unseen = report(|report| report.tally.stages.clear());
    let notes = Scene::new([unseen]).page().with_class("notes").text();
    assert!(notes.contains("gateway rollout plan data-flow/bridge-canary"), "{notes}");
}

#[test]
fn populations_are_told_by_arm_and_status_with_failures_first() {
    let mut scene = Scene::new([judged(Kind::Hold)]);
    scene.tiers = ["a/well", "b/failing", "c/empty"].map(str::to_owned).into();
    let count = |tier: Option<&str>, cells: &[(usize, usize, u64)]| {
        let mut counts = [[0; 5]; 4];
        for (arm, status, count) in cells {
            counts[*arm][*status] = *count;
        }
        TierCount { tier: tier.map(Into::into), counts }
    };
    scene.counts = vec![
        count(Some("a/well"), &[(2, 3, 1_500)]),
        count(Some("b/failing"), &[(0, 4, 2), (0, 3, 8), (1, 3, 90)]),
        count(Some("d/gone"), &[(2, 1, 1)]),
        count(None, &[(3, 3, 7)]),
    ];
    let rows: Vec<String> =
        scene.page().with_class("tiers").all("tr").iter().map(|row| row.spaced()).collect();
    assert_eq!(
        rows,
        [
            "Tier Arm failed pending applying applied foreign collectors",
            "b/failing production under team/hold candidate 2 0 0 8 0 10",
            "base 0 0 0 90 0 90",
            "a/well production under team/hold all 0 0 0 1,500 0 1,500",
            "c/empty production under team/hold – 0 0 0 0 0 0",
            "Unmatched no selector matches Unmatched 0 0 0 7 0 7",
            "d/gone left head all 0 1 0 0 0 1",
        ]
    );
}

#[test]
fn a_replica_that_is_silent_or_behind_is_told_first() {
    let mut report = judged(Kind::Inconclusive);
    let line = |name: &str, reporting, same_head| ReplicaLine {
        name: name.to_owned(),
        incarnation: name.to_owned(),
        reporting,
        same_head,
        age_ms: 90_000,
    };
    report.replicas = vec![line("a", true, true), line("b", false, true), line("c", true, false)];
    let page = Scene::new([report]).page();
    let panel = page.by_id("replicas").text();
    assert_eq!(panel, "Evidence 2 report, 2 expected");
    for list in page.every_with_class("plain") {
        let lines: Vec<String> = list.all("li").iter().map(|line| line.text()).collect();
        assert_eq!(
            lines,
            [
                "b does not report; last word 1 minute 30 seconds ago",
                "c serves another head; last word 1 minute 30 seconds ago",
                "a reports; last word 1 minute 30 seconds ago",
            ]
        );
    }
}

#[test]
fn who_judges_and_who_serves_is_told_by_the_role() {
    let mut scene = Scene::new([]);
    scene.rollouts = vec!["team/new".to_owned()];
    let text = |scene: &Scene| scene.page().only("main").spaced();
    assert!(text(&scene).contains("the first verdict comes within seconds"));
    scene.role = Role::Replica { uplinks: 2 };
    let replica = text(&scene);
    for part in
        ["this replica reports to aggregators", "Reports to 2 aggregators", "at its aggregators"]
    {
        assert!(replica.contains(part), "{part:?} is not in {replica}");
    }
    scene.role = Role::Aggregator;
    let aggregator = text(&scene);
    assert!(aggregator.contains("This aggregator"), "{aggregator}");
    assert!(aggregator.contains("Collectors connect to replicas"), "{aggregator}");
    assert!(!aggregator.contains("No collector is connected here"), "{aggregator}");
}

#[test]
fn pages_that_differ_in_their_time_alone_have_one_tag() {
    let scene = Scene::new([aborted()]);
    let later = Scene { unix_ms: NOON + 900, ..Scene::new([aborted()]) };
    let other = Scene::new([judged(Kind::Hold)]);
    assert_eq!(super::tag(&scene.draw()), super::tag(&later.draw()));
    assert_ne!(super::tag(&scene.draw()), super::tag(&other.draw()));
    let later = Scene { unix_ms: NOON + 600_000, ..Scene::new([aborted()]) };
    assert_ne!(super::tag(&scene.draw()), super::tag(&later.draw()), "ages in words moved on");
}

#[test]
fn whoever_signed_in_can_sign_out() {
    let mut scene = Scene::new([]);
    assert!(scene.page().all("form").is_empty());
    scene.signed_in = true;
    let form = scene.page().only("form");
    assert_eq!(
        (form.attribute("method"), form.attribute("action")),
        (Some("post"), Some("/logout"))
    );
}
