//! The verdict against decision 14 restated slowly, and the cases of rollouts.md.

mod cases;
mod model;

use super::*;

const SECOND: Millis = 1_000;
const HOUR: Millis = 3_600 * SECOND;

/// The second of three stages; soaks a day, aborts at 10 %.
fn terms() -> Terms {
    Terms {
        stage: 1,
        stages: 3,
        soak_ms: 24 * HOUR,
        abort_at_percent: 10,
        dark_after_ms: 90 * SECOND,
        min_seen: 0,
        hold: false,
        same_content: false,
        expect_replicas: 1,
        grace_ms: 60 * SECOND,
    }
}

const START: Millis = 1_000_000 * HOUR;

/// So long after the soak began, with evidence from long before.
fn after(ms: Millis) -> Times {
    Times {
        now_ms: START + ms,
        evidence_since_ms: START - 24 * HOUR,
        stage_since_ms: START,
        stage_since: Told::History,
        candidate_since_ms: None,
        soak_since_ms: START,
    }
}

/// Served members of the first stage, on the candidate and on the base.
fn tally(to: u64, from: u64) -> Tally {
    let row = Counts { seen: to + from, to, from, ..Counts::default() };
    Tally {
        stages: vec![row, Counts::default()],
        taken: to,
        served_in_tier: to + from,
        replicas: 1,
        ..Tally::default()
    }
}

fn with_failed(mut tally: Tally, failed: u64) -> Tally {
    tally.stages[0].failed = failed;
    tally
}

fn with_dark(mut tally: Tally, dark: u64) -> Tally {
    tally.stages[0].dark = dark;
    tally.long_dark = dark;
    tally
}

fn kind(tally: &Tally, times: &Times) -> Kind {
    judge(&terms(), tally, times).kind
}
