//! Collectors under a Rollout, as the aggregator is told of them.

use std::time::Duration;

use gateway::aggregate::{About, Aggregator, Cell, Observation};
use gateway::clock::Now;
use proto::ids::InstanceUid;
use render::artefact::Artefact;
use render::estate::{Cohort, Halt};
use render::rollout::evidence::{Conn, Identity, Observed, Reading, Record, Seat, error_id};
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
    cell.observe(now, identity(number), change, about(number));
}

/// Who a member is.
pub fn about(number: u32) -> About<'static> {
    let mut uid = [0; 16];
    uid[..4].copy_from_slice(&number.to_le_bytes());
    About {
        uid: InstanceUid(uid),
        label: "host.example",
        version: "0.158.0",
        error: "",
        no_bucket: false,
    }
}

/// What comes to be known of members that are known already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// Each member goes round a life under a Rollout, each at a place of its own: it connects with
    /// the base (session, seat, arm), is offered the candidate (arm), applies it (arm, APPLIED,
    /// that it took it); one life in 64 ends in FAILED instead. All are heard.
    Lives,
    /// Members that poll are vouched for: a session that is over, and when they were heard.
    Vouches,
}

/// Changes without end, in strides over all members, so that caches help as little as they do in
/// earnest.
#[derive(Debug)]
pub struct Changes<'a> {
    aggregator: &'a Aggregator,
    mix: Mix,
    members: u64,
    made: u64,
}

impl<'a> Changes<'a> {
    /// Of the members below `members`, which 7,919 does not divide.
    pub fn new(aggregator: &'a Aggregator, members: u32, mix: Mix) -> Self {
        Self { aggregator, mix, members: members.into(), made: 0 }
    }
}

impl Iterator for Changes<'_> {
    type Item = Observation<'static>;

    fn next(&mut self) -> Option<Self::Item> {
        const STRIDE: u64 = 7_919;
        let number = (self.made * STRIDE % self.members) as u32;
        // All of them once, then all of them again.
        let round = self.made / self.members;
        self.made += 1;
        let now = now(2);
        let heard_ms = self.aggregator.now_ms(now);
        let session = self.aggregator.begin_session(now);
        let stamp = session.stamp(self.aggregator.next_n());
        let mut change = Record { heard_ms, ..Record::default() };
        let step = round + u64::from(number);
        match (self.mix, step % 3) {
            (Mix::Vouches, _) => change.conn = Some((session, Conn::Lost)),
            (Mix::Lives, 0) => {
                let observed =
                    Observed { seat: Seat::Stage(0), foreign: false, healthy: Some(true) };
                change.conn = Some((session, Conn::Open));
                change.observed = Some((stamp, observed));
                change.arm = Some((stamp, Reading::From));
            }
            (Mix::Lives, 1) => change.arm = Some((stamp, Reading::Taking)),
            (Mix::Lives, _) if (step / 3).is_multiple_of(64) => {
                change.failed = Some((stamp, error_id("cannot bind")));
                change.arm = Some((stamp, Reading::From));
            }
            (Mix::Lives, _) => {
                change.applied = Some(stamp);
                change.arm = Some((stamp, Reading::To));
                change.first_to_ms = Some(heard_ms);
            }
        }
        Some(Observation { identity: identity(number), change, about: about(number) })
    }
}
