//! Cases E01 to E09 of rollouts.md, the sentences, and the edges in time.

use super::*;

/// Past the soak and past late silence.
fn soaked() -> Times {
    after(25 * HOUR)
}

#[test]
fn e01_two_on_the_candidate_and_one_that_lags_advance_after_the_soak() {
    let verdict = judge(&terms(), &tally(2, 1), &soaked());
    assert_eq!(verdict.kind, Kind::Advance);
    assert_eq!(
        verdict.why,
        "2 of 3 members run the candidate, 1 lag on the base, none is halted, and it soaked for 24h"
    );
    assert_eq!(verdict.soaked_ms, 25 * HOUR);
    let last = Terms { stage: 2, ..terms() };
    assert_eq!(judge(&last, &tally(2, 1), &soaked()).kind, Kind::Complete);
}

#[test]
fn e03_nobody_on_the_candidate_holds_however_long_it_soaks() {
    let mut unknown = tally(0, 3);
    unknown.stages[0] = Counts { seen: 3, unknown: 3, ..Counts::default() };
    let mut taking = tally(0, 3);
    taking.stages[0] = Counts { seen: 3, taking: 3, ..Counts::default() };
    for tally in [tally(0, 3), tally(0, 0), unknown, taking] {
        let verdict = judge(&terms(), &tally, &soaked());
        assert_eq!((verdict.kind, verdict.due_ms), (Kind::Hold, None), "{tally:?}");
        assert!(verdict.why.starts_with("none of "), "{}", verdict.why);
    }
}

#[test]
fn e05_a_tenth_of_the_seen_members_aborts_and_fewer_block() {
    for (seen, failed, expected, why) in [
        (1, 1, Kind::Abort, "1 of 1 member failed; 1 or more abort"),
        (5, 1, Kind::Abort, "1 of 5 members failed; 1 or more abort"),
        (9, 1, Kind::Abort, "1 of 9 members failed; 1 or more abort"),
        (10, 1, Kind::Abort, "1 of 10 members failed; 1 or more abort"),
        (11, 1, Kind::Blocked, "1 of 11 members failed; 2 would abort"),
        (20, 1, Kind::Blocked, "1 of 20 members failed; 2 would abort"),
        (21, 1, Kind::Blocked, "1 of 21 members failed; 3 would abort"),
        (20, 2, Kind::Abort, "2 of 20 members failed; 2 or more abort"),
    ] {
        let verdict = judge(&terms(), &with_failed(tally(seen, 0), failed), &soaked());
        assert_eq!((verdict.kind, verdict.why.as_str()), (expected, why));
    }
}

#[test]
fn who_has_no_place_yet_may_be_a_member_too() {
    let early = |awaited| Tally { awaited, ..with_failed(tally(1, 0), 1) };
    let verdict = judge(&terms(), &early(19), &soaked());
    assert_eq!((verdict.kind, verdict.aborts_at), (Kind::Blocked, 2));
    assert_eq!(
        verdict.why,
        "1 of 1 member failed, while 19 more of the Tier get their place; 2 would abort"
    );
    assert_eq!(kind(&early(9), &soaked()), Kind::Abort, "one of ten, whoever else is a member");
    // 4 of 44 that have a place are members, so 4 more of another 44 are to be expected.
    let mut among_others = Tally { awaited: 44, ..with_failed(tally(4, 0), 1) };
    among_others.control.seen = 40;
    among_others.served_in_tier = 44;
    assert_eq!(judge(&terms(), &among_others, &soaked()).aborts_at, 1);
    assert_eq!(kind(&among_others, &soaked()), Kind::Abort);
}

#[test]
fn who_is_dark_for_a_moment_is_not_compared_with_the_control_group_yet() {
    let mut tally = with_dark(tally(20, 0), 4);
    tally.long_dark = 1;
    assert_eq!(kind(&tally, &soaked()), Kind::Abort, "without a control group there is no outage");
    tally.control.seen = 20;
    tally.served_in_tier = 40;
    let verdict = judge(&terms(), &tally, &soaked());
    assert_eq!((verdict.kind, verdict.dark, verdict.dark_beyond_control), (Kind::Blocked, 4, 1));
    tally.long_dark = 2;
    assert_eq!(kind(&tally, &soaked()), Kind::Abort);
}

#[test]
fn e07_a_dark_member_among_twenty_blocks_also_before_the_soak_ends() {
    for times in [after(HOUR), soaked()] {
        let verdict = judge(&terms(), &with_dark(tally(20, 0), 1), &times);
        assert_eq!(verdict.kind, Kind::Blocked);
        assert_eq!(verdict.why, "1 of 20 members went dark; 2 would abort");
    }
}

#[test]
fn e09_one_on_the_candidate_and_99_that_lag_advance() {
    assert_eq!(kind(&tally(1, 99), &soaked()), Kind::Advance);
}

#[test]
fn an_advance_waits_for_late_silence_after_the_soak() {
    let tail = 150 * SECOND;
    let due_ms = Some(START + 24 * HOUR + tail);
    for (soaked_ms, why) in [
        (
            24 * HOUR - 1,
            "soaks for 24h until 2084-01-30T16:00:00Z; an advance is due at 2084-01-30T16:02:30Z",
        ),
        (
            24 * HOUR,
            "soaked for 24h; late silence is awaited for 2m30s more, so an advance is due at \
             2084-01-30T16:02:30Z",
        ),
        (
            24 * HOUR + tail - 1,
            "soaked for 24h; late silence is awaited for 2m30s more, so an advance is due at \
             2084-01-30T16:02:30Z",
        ),
    ] {
        let verdict = judge(&terms(), &tally(20, 0), &after(soaked_ms));
        assert_eq!((verdict.kind, verdict.due_ms), (Kind::Hold, due_ms));
        assert_eq!(verdict.why, why);
    }
    let verdict = judge(&terms(), &tally(20, 0), &after(24 * HOUR + tail));
    assert_eq!((verdict.kind, verdict.due_ms), (Kind::Advance, None), "equal is enough");
}

#[test]
fn young_evidence_does_not_advance_either() {
    let since = START + 30 * HOUR;
    let times = |now_ms| Times { now_ms, evidence_since_ms: since, ..after(0) };
    assert_eq!(kind(&tally(20, 0), &times(since + 150 * SECOND - 1)), Kind::Hold);
    assert_eq!(kind(&tally(20, 0), &times(since + 150 * SECOND)), Kind::Advance);
}

#[test]
fn an_abort_is_not_newly_reached_while_evidence_is_young() {
    let since = START + HOUR;
    let times = |now_ms| Times { now_ms, evidence_since_ms: since, ..after(0) };
    let halted = with_failed(tally(20, 0), 2);
    let verdict = judge(&terms(), &halted, &times(since + 150 * SECOND - 1));
    assert_eq!(verdict.kind, Kind::Blocked);
    assert_eq!(
        verdict.why,
        "2 of 20 members failed; enough to abort, if that is still so at 2084-01-29T17:02:30Z: \
         evidence starts at 2084-01-29T17:00:00Z"
    );
    assert_eq!(kind(&halted, &times(since + 150 * SECOND)), Kind::Abort);
    let braked = Tally { braked: true, ..halted };
    assert_eq!(kind(&braked, &times(since)), Kind::Abort, "a stored one holds");
    let recovered = Tally { braked: true, ..tally(20, 0) };
    assert_eq!(kind(&recovered, &times(since)), Kind::Hold, "a brake alone is no abort");
    let late = judge(&terms(), &recovered, &times(since + 1_000 * HOUR));
    assert_eq!(late.kind, Kind::Hold, "nor is anything widened that nobody may be offered");
    assert!(late.why.starts_with("the brake is on"), "{}", late.why);
    assert_eq!(late.due_ms, None);
}

#[test]
fn evidence_that_is_not_whole_is_said_so() {
    let base = tally(20, 0);
    let mut unobserved = base.clone();
    unobserved.stages[0].unobserved = 1;
    let mut control = base.clone();
    control.control = Control { seen: 3, dark: 0, unobserved: 3 };
    let overflow = Tally { overflow: 2, ..base.clone() };
    let alone = Tally { replicas: 0, ..base.clone() };
    for (tally, why) in [
        (unobserved, "1 collector is known only to replicas that do not report"),
        (control, "3 collectors are known only to replicas that do not report"),
        (overflow, "2 collectors are beyond what evidence has room for"),
        (alone, "0 of 1 replicas report this candidate, stage and Cohort"),
    ] {
        let verdict = judge(&terms(), &tally, &soaked());
        assert_eq!((verdict.kind, verdict.why.as_str()), (Kind::Inconclusive, why));
    }
    let demanding = Terms { min_seen: 21, ..terms() };
    let verdict = judge(&demanding, &base, &soaked());
    assert_eq!(verdict.kind, Kind::Inconclusive);
    assert_eq!(verdict.why, "20 of the 21 members that must be seen were seen");
}

#[test]
fn what_is_not_staged_or_held_never_advances() {
    let same = Terms { same_content: true, ..terms() };
    let verdict = judge(&same, &tally(2, 0), &soaked());
    assert_eq!((verdict.kind, verdict.due_ms), (Kind::Hold, None));
    assert_eq!(verdict.why, "candidate and base have equal content, so nothing is staged");
    let held = Terms { hold: true, ..terms() };
    let verdict = judge(&held, &tally(2, 0), &soaked());
    assert_eq!(
        (verdict.kind, verdict.why.as_str()),
        (Kind::Hold, "the Rollout's file says hold: true")
    );
}

#[test]
fn foreign_members_answer_only_where_nobody_is_served() {
    let foreign = Counts { seen: 4, to: 3, from: 1, ..Counts::default() };
    let only = Tally { foreign: foreign.clone(), ..tally(0, 0) };
    let verdict = judge(&terms(), &only, &soaked());
    assert_eq!(verdict.kind, Kind::Advance);
    assert_eq!(
        verdict.why,
        "3 of 4 members that git delivers to run the candidate, 1 lag on the base, none is halted, \
         and it soaked for 24h"
    );
    let mixed = Tally { foreign, ..tally(0, 1) };
    assert_eq!(kind(&mixed, &soaked()), Kind::Hold);
}

#[test]
fn an_outage_of_both_arms_is_no_abort() {
    let control = |seen, dark| Control { seen, dark, unobserved: 0 };
    let zone = Tally { control: control(80, 20), ..with_dark(tally(20, 0), 5) };
    let verdict = judge(&terms(), &zone, &after(HOUR));
    assert_eq!((verdict.kind, verdict.dark_beyond_control), (Kind::Blocked, 0));
    assert_eq!(
        verdict.why,
        "5 of 20 members went dark, 0 of them beyond the control group's rate (20 of 80 dark); 2 \
         would abort"
    );
    let worse = Tally { control: control(80, 20), ..with_dark(tally(20, 0), 20) };
    assert_eq!(kind(&worse, &after(HOUR)), Kind::Abort, "the candidate goes dark more often");
    let small = Tally { control: control(19, 19), ..with_dark(tally(20, 0), 5) };
    assert_eq!(kind(&small, &after(HOUR)), Kind::Abort, "nineteen say nothing about an outage");
}

#[test]
fn a_verdict_changes_its_words_only_when_something_happens() {
    for tally in
        [tally(20, 0), with_dark(tally(20, 0), 1), with_failed(tally(20, 0), 3), tally(0, 2)]
    {
        let one = judge(&terms(), &tally, &after(HOUR));
        let other = judge(&terms(), &tally, &after(2 * HOUR));
        assert_eq!(Verdict { soaked_ms: one.soaked_ms, ..other }, one);
    }
}
