//! Collectors under a Rollout, as the aggregator is told of them.

use std::time::Duration;

use gateway::aggregate::{About, Aggregator, Cell};
use gateway::clock::Now;
use proto::ids::InstanceUid;
use render::artefact::Artefact;
use render::estate::{Cohort, Halt};
use render::rollout::evidence::{Conn, Identity, Observed, Reading, Record, Seat};
use render::snapshot::served::{Served, ServedRollout, ServedStage, ServedTier};
use render::snapshot::{Snapshot, compile};

/// A moment.
pub fn now(seconds: u32) -> Now {
    Now { seconds: seconds + 1, unix_ms: 1_700_000_000_000 + u64::from(seconds) * 1_000 }
}

/// A head with one Rollout.
///
/// # Panics
/// When it does not compile, which it does.
pub fn snapshot() -> Snapshot {
    let artefact = |text: &str| Artefact::new(text.as_bytes().to_vec()).expect("not blank");
    let tier = ServedTier {
        environment: "production".into(),
        blueprint: "team/blueprint@1".into(),
        selector: [("tier".to_owned(), "tier".to_owned())].into(),
        base: artefact("base: 1\n"),
        next: Some(artefact("next: 1\n")),
    };
    let rollout = ServedRollout {
        id: "team/canary".into(),
        tier: "team/tier".into(),
        owner: "team".into(),
        from: "team/blueprint@1".into(),
        to: "team/blueprint@2".into(),
        stage: 0,
        stages: vec![ServedStage {
            cohort: Cohort { percent: 100, ..Cohort::default() },
            soak: Duration::from_secs(3_600),
        }],
        hash_attributes: vec!["host.name".into()],
        hash_salt: None,
        identity: Vec::new(),
        hold: false,
        halt: Halt::default(),
        stage_started_ms: None,
        origin: None,
    };
    let served = Served {
        commit: "c1".into(),
        rendered_at: None,
        tiers: [("team/tier".into(), tier)].into(),
        rollouts: [("team/canary".into(), rollout)].into(),
        unmatched: artefact("unmatched: 1\n"),
    };
    compile(&served, gateway::serve::encode_offer).expect("it fits together")
}

/// An identity, spread as a hash spreads it.
pub fn identity(number: u32) -> Identity {
    Identity(u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
}

/// A member connects and takes the candidate.
pub fn observe(aggregator: &Aggregator, cell: &Cell, number: u32, now: Now) {
    let session = aggregator.begin_session(now);
    let stamp = session.stamp(aggregator.next_n());
    let observed = Observed { seat: Seat::Stage(0), foreign: false, healthy: Some(true) };
    let now_ms = aggregator.now_ms(now);
    let change = Record {
        applied: Some(stamp),
        arm: Some((stamp, Reading::To)),
        conn: Some((session, Conn::Open)),
        observed: Some((stamp, observed)),
        heard_ms: now_ms,
        first_to_ms: Some(now_ms),
        ..Record::default()
    };
    observe_change(cell, number, &change, now);
}

/// Something is learned of a member.
pub fn observe_change(cell: &Cell, number: u32, change: &Record, now: Now) {
    let mut uid = [0; 16];
    uid[..4].copy_from_slice(&number.to_le_bytes());
    let about = About {
        uid: InstanceUid(uid),
        label: "host.example",
        version: "0.158.0",
        error: "",
        no_bucket: false,
    };
    cell.observe(now, identity(number), change, about);
}
