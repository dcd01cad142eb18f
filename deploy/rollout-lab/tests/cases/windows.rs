//! T73 to T84: maintenance windows and the audited way past them.

use rollout_lab::error::Kind;
use rollout_lab::fleet::{BEGINNING, Fleet};
use rollout_lab::records::{AuditLog, Context, Outcome};
use rollout_lab::store::NewWindow;
use rollout_lab::{Rules, Utc};

use crate::setup::{LIMITS, fleet, limits, refused};

fn window(operations: &[&str]) -> NewWindow {
    NewWindow {
        name: "nightly".to_owned(),
        namespace: None,
        schedule: "0 2 * * *".to_owned(),
        timezone: String::new(),
        duration_seconds: 3600,
        operations: operations.iter().map(|word| (*word).to_owned()).collect(),
        enabled: true,
    }
}

fn with(rules: Rules, window: NewWindow) -> Fleet {
    let mut fleet = fleet(2, rules);
    fleet.store.create_window(&Context::default(), window).unwrap();
    fleet
}

/// Whether a plain rollout is let through at this time of 2026-01-01, or of another day.
fn open_at(window: &NewWindow, at: &str) -> bool {
    let at = if at.contains('T') { at.to_owned() } else { format!("2026-01-01T{at}Z") };
    let mut fleet = with(Rules::baseline(), window.clone());
    fleet.store.clock_mut().set(Utc::parse(&at).unwrap());
    match fleet.rollout(LIMITS) {
        Ok(_) => true,
        Err(error) => {
            let text = "operation rollout is outside an approved maintenance window";
            assert_eq!((error.kind(), error.to_string().as_str()), (Kind::Conflict, text));
            false
        }
    }
}

fn at_four(fleet: &mut Fleet) {
    fleet.store.clock_mut().set(BEGINNING.plus_seconds(4 * 3600));
}

fn force() -> Context {
    Context::forced("kim", "a fix cannot wait", "call-1")
}

fn roll(fleet: &mut Fleet, context: &Context, image: &str) -> Result<(), rollout_lab::Error> {
    let service = fleet.service;
    fleet.store.rollout_service(context, service, image, LIMITS).map(|_| ())
}

fn bypasses(fleet: &Fleet) -> Vec<&AuditLog> {
    fleet.store.audit().iter().filter(|record| record.action == "maintenance.bypass").collect()
}

#[test]
fn t73_a_window_is_open_from_its_minute_until_before_its_end() {
    let nightly = window(&["rollout"]);
    for (at, open) in [
        ("01:59:59", false),
        ("02:00:00", true),
        ("02:30:00", true),
        ("02:59:59", true),
        ("03:00:00", false),
        ("04:00:00", false),
    ] {
        assert_eq!(open_at(&nightly, at), open, "{at}");
    }
}

#[test]
fn t74_a_duration_that_is_no_whole_minute() {
    let short = NewWindow { duration_seconds: 90, ..window(&["rollout"]) };
    assert!(open_at(&short, "02:01:29"));
    assert!(!open_at(&short, "02:01:30"));
}

#[test]
fn windows_are_read_in_their_zone_and_follow_summer_time() {
    let stockholm = NewWindow { timezone: "Europe/Stockholm".to_owned(), ..window(&["rollout"]) };
    assert!(open_at(&stockholm, "01:00:00") && !open_at(&stockholm, "02:00:00"));
    assert!(open_at(&stockholm, "2026-07-01T00:00:00Z"));
    let spring = NewWindow { schedule: "30 2 * * *".to_owned(), duration_seconds: 60, ..stockholm };
    assert!(!open_at(&spring, "2026-03-29T00:30:00Z"), "01:30, before the clock is put forward");
    assert!(!open_at(&spring, "2026-03-29T01:30:00Z"), "03:30: there is no 02:30 on that day");
    assert!(open_at(&spring, "2026-10-25T00:30:00Z"), "the first 02:30");
    assert!(open_at(&spring, "2026-10-25T01:30:00Z"), "the second 02:30");
}

#[test]
fn t75_t76_t77_which_windows_matter() {
    let mut fleet = with(Rules::baseline(), window(&["rollout"]));
    at_four(&mut fleet);
    let service = fleet.service;
    refused(fleet.store.rollback_service(&Context::default(), service), Kind::InvalidState);

    let disabled = NewWindow { enabled: false, ..window(&["rollout"]) };
    assert!(open_at(&disabled, "04:00:00"));
    let elsewhere = NewWindow { namespace: Some("elsewhere".to_owned()), ..window(&["rollout"]) };
    assert!(open_at(&elsewhere, "04:00:00"));
    let here = NewWindow { namespace: Some("default".to_owned()), ..window(&["rollout"]) };
    assert!(!open_at(&here, "04:00:00"));

    let mut two = with(Rules::baseline(), window(&["rollout"]));
    let other = NewWindow {
        name: "always".to_owned(),
        schedule: "* * * * *".to_owned(),
        ..window(&["rollout"])
    };
    two.store.create_window(&Context::default(), other).unwrap();
    at_four(&mut two);
    two.rollout(LIMITS).unwrap();
}

#[test]
fn t78_t79_t80_the_bypass_and_its_record() {
    let mut fleet = with(Rules::baseline(), window(&["rollout"]));
    at_four(&mut fleet);
    refused(fleet.rollout(LIMITS), Kind::Conflict);
    assert_eq!((fleet.store.deployments().count(), bypasses(&fleet).len()), (0, 0));
    let mut context = force();
    context.metadata.insert("api_token".to_owned(), "hunter2".to_owned());
    roll(&mut fleet, &context, "a:2").unwrap();
    let records = bypasses(&fleet);
    let [record] = records[..] else { panic!("{records:?}") };
    assert_eq!((record.actor_type, record.target_type), ("user", "operation"));
    assert_eq!((record.target_id.as_str(), record.outcome), ("rollout", Outcome::Success));
    assert_eq!(record.metadata["force"], "true");
    assert_eq!(record.metadata["api_token"], "[redacted]");
    assert_ne!(record.actor_id, "kim", "the baseline writes a fixed word");
    refused(roll(&mut fleet, &Context::default(), "a:2"), Kind::Conflict);
    roll(&mut fleet, &force(), "a:2").unwrap();
    assert_eq!(bypasses(&fleet).len(), 2, "a second record for the same deployment");

    let mut inside = with(Rules::baseline(), window(&["rollout"]));
    inside.store.clock_mut().set(BEGINNING.plus_seconds(2 * 3600));
    roll(&mut inside, &force(), "a:2").unwrap();
    assert_eq!(bypasses(&inside).len(), 0);
}

#[test]
fn t81_a_record_for_an_operation_that_is_then_refused() {
    for (rules, outcome) in
        [(Rules::baseline(), Outcome::Success), (Rules::strict(), Outcome::Rejected)]
    {
        let mut fleet = with(rules, window(&["rollout"]));
        fleet.store.clock_mut().set(BEGINNING.plus_seconds(2 * 3600));
        fleet.rollout(limits(1, 1)).unwrap();
        at_four(&mut fleet);
        refused(roll(&mut fleet, &force(), "a:2"), Kind::Conflict);
        let records = bypasses(&fleet);
        assert_eq!(records.len(), 1);
        assert_eq!(records[0].outcome, outcome);
    }
}

#[test]
fn strict_records_who_and_why_once_for_each_call() {
    let mut fleet = with(Rules::strict(), window(&["rollout"]));
    at_four(&mut fleet);
    for nobody in [
        Context::forced("", "why", "1"),
        Context::forced("kim", " ", "1"),
        Context::forced("kim", "why", ""),
    ] {
        refused(roll(&mut fleet, &nobody, "a:2"), Kind::InvalidState);
    }
    assert!(bypasses(&fleet).is_empty());
    roll(&mut fleet, &force(), "a:2").unwrap();
    roll(&mut fleet, &force(), "a:2").unwrap();
    let records = bypasses(&fleet);
    assert_eq!(records.len(), 1);
    assert_eq!((records[0].actor_id.as_str(), records[0].outcome), ("kim", Outcome::Applied));
    assert_eq!(records[0].metadata["reason"], "a fix cannot wait");
}

#[test]
fn t82_only_scaling_down_is_checked_and_force_bypasses_nothing_else() {
    let mut fleet =
        with(Rules::baseline(), window(&["autoscaling_scale_down", "node_drain", "rollback"]));
    at_four(&mut fleet);
    let (service, node) = (fleet.service, fleet.node);
    let plain = Context::default();
    fleet.store.scale_service(&plain, service, 3).unwrap();
    refused(fleet.store.scale_service(&plain, service, 1), Kind::Conflict);
    refused(fleet.store.drain_node(&plain, node), Kind::Conflict);
    refused(fleet.store.rollback_service(&plain, service), Kind::Conflict);
    refused(fleet.store.rollback_service(&force(), service), Kind::InvalidState);
    fleet.store.scale_service(&force(), service, 1).unwrap();
    fleet.store.drain_node(&force(), node).unwrap();
    refused(fleet.store.drain_node(&force(), rollout_lab::Id::from_bits(1)), Kind::NotFound);
    fleet.store.delete_service(&plain, service).unwrap();
}

#[test]
fn t83_t84_what_a_window_may_say() {
    let friday = NewWindow { schedule: "0 2 13 * 5".to_owned(), ..window(&["rollout"]) };
    assert!(open_at(&friday, "2026-02-13T02:00:00Z"));
    assert!(!open_at(&friday, "2026-01-13T02:00:00Z") && !open_at(&friday, "2026-02-20T02:00:00Z"));

    let mut fleet = with(Rules::baseline(), window(&["rollout"]));
    let good = || NewWindow { name: "other".to_owned(), ..window(&["rollout"]) };
    let cron = |text: &str| NewWindow { schedule: text.to_owned(), ..good() };
    for bad in [
        cron("60 * * * *"),
        cron("* * * *"),
        cron("* * * * 7"),
        NewWindow { name: "  ".to_owned(), ..good() },
        NewWindow { timezone: "Europe/Nowhere".to_owned(), ..good() },
        NewWindow { duration_seconds: -1, ..good() },
        NewWindow { duration_seconds: i64::MAX, ..good() },
        NewWindow { operations: Vec::new(), ..good() },
        NewWindow { operations: vec!["reboot".to_owned()], ..good() },
    ] {
        refused(fleet.store.create_window(&Context::default(), bad), Kind::InvalidState);
    }
    let again = fleet.store.create_window(&Context::default(), window(&["rollout"]));
    refused(again, Kind::Duplicate);
    let scoped = NewWindow { namespace: Some("default".to_owned()), ..window(&["rollout"]) };
    fleet.store.create_window(&Context::default(), scoped).unwrap();
    let hour = NewWindow { duration_seconds: 0, ..window(&["rollout"]) };
    assert!(open_at(&hour, "02:59:59") && !open_at(&hour, "03:00:00"));
}
