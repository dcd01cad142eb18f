//! An aggregator without sockets: time, heads and what links would tell are given by hand.

use std::sync::Arc;
use std::time::Duration;

use proto::ids::InstanceUid;
use render::artefact::Artefact;
use render::estate::{Cohort, Halt};
use render::rollout::evidence::{
    Conn, Identity, Millis, Observed, Reading, Record, Seat, Session, error_id,
};
use render::rollout::report::RolloutReport;
use render::snapshot::served::{Served, ServedRollout, ServedStage, ServedTier};
use render::snapshot::{Snapshot, compile};

use super::{About, Aggregator, Cell, Settings, Ticket};
use crate::clock::Now;
use crate::metrics::Metrics;

mod batch;
mod brakes;
mod evidence;
mod model;
mod packed;
mod restart;

/// When the process starts, in milliseconds since 1970.
const START: Millis = 1_700_000_000_000;
pub(crate) const ROLLOUT: &str = "team/canary";

fn at(seconds: u32) -> Now {
    Now { seconds: seconds + 1, unix_ms: START + u64::from(seconds) * 1_000 }
}

fn settings() -> Settings {
    Settings { grace_ms: 10_000, incarnation: 7, ..Settings::default() }
}

/// A head with one Rollout in two stages, the first of 60 s.
#[derive(Clone)]
pub(crate) struct Head {
    rollout: Option<ServedRollout>,
    next: String,
}

impl Head {
    pub(crate) fn new() -> Self {
        let stage = |percent, soak| ServedStage {
            cohort: Cohort { percent, ..Cohort::default() },
            soak: Duration::from_secs(soak),
        };
        let rollout = ServedRollout {
            id: ROLLOUT.into(),
            tier: "team/tier".into(),
            owner: "team".into(),
            from: "team/blueprint@1".into(),
            to: "team/blueprint@2".into(),
            stage: 0,
            stages: vec![stage(25, 60), stage(100, 0)],
            hash_attributes: vec!["host.name".into()],
            hash_salt: None,
            identity: Vec::new(),
            hold: false,
            halt: Halt { dark_after: Duration::from_secs(30), ..Halt::default() },
            stage_started_ms: None,
            origin: None,
        };
        Self { rollout: Some(rollout), next: "next: 1\n".to_owned() }
    }

    pub(crate) fn with(mut self, change: impl FnOnce(&mut ServedRollout)) -> Self {
        change(self.rollout.as_mut().expect("there is a Rollout"));
        self
    }

    fn next(mut self, text: &str) -> Self {
        text.clone_into(&mut self.next);
        self
    }

    fn without_rollout(mut self) -> Self {
        self.rollout = None;
        self
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let artefact =
            |text: &str| Artefact::new(text.to_owned().into_bytes()).expect("it is not blank");
        let tier = ServedTier {
            environment: "production".into(),
            blueprint: "team/blueprint@1".into(),
            selector: [("tier".to_owned(), "tier".to_owned())].into(),
            base: artefact("base: 1\n"),
            next: self.rollout.as_ref().map(|_| artefact(&self.next)),
        };
        let served = Served {
            commit: "c1".into(),
            rendered_at: None,
            tiers: [("team/tier".into(), tier)].into(),
            rollouts: self.rollout.iter().map(|one| (one.id.clone(), one.clone())).collect(),
            unmatched: artefact("unmatched: 1\n"),
        };
        compile(&served, crate::serve::encode_offer).expect("it fits together")
    }
}

/// An aggregator, and the cell of its one Rollout.
struct Scene {
    aggregator: Arc<Aggregator>,
    cell: Option<Arc<Cell>>,
}

/// A collector as a link knows it.
#[derive(Clone, Copy)]
struct Collector {
    number: u32,
    session: Session,
    seat: Seat,
    foreign: bool,
}

impl Scene {
    fn new(head: &Head) -> Self {
        let aggregator = Aggregator::in_memory(settings(), Metrics::leak(), at(0));
        let mut scene = Self { aggregator, cell: None };
        scene.head(0, head);
        scene
    }

    fn head(&mut self, seconds: u32, head: &Head) {
        let cells = self.aggregator.handle_head(at(seconds), &head.snapshot(), "c1");
        self.cell = cells.first().cloned();
    }

    fn cell(&self) -> &Arc<Cell> {
        self.cell.as_ref().expect("a Rollout is in head")
    }

    fn report(&self, seconds: u32) -> Arc<RolloutReport> {
        self.aggregator.handle_timeout(at(seconds));
        Arc::clone(&self.aggregator.reports()[ROLLOUT])
    }

    /// A collector connects.
    fn connect(&self, seconds: u32, number: u32, seat: Seat) -> Collector {
        let session = self.aggregator.begin_session(at(seconds));
        let collector = Collector { number, session, seat, foreign: false };
        self.say(seconds, collector, |_| {});
        collector
    }

    /// Something is learned of a collector whose link is open.
    fn say(
        &self,
        seconds: u32,
        collector: Collector,
        more: impl FnOnce(&mut Record),
    ) -> Option<Ticket> {
        self.say_as(seconds, collector, collector.number, more)
    }

    /// The same under the uid of another number.
    fn say_as(
        &self,
        seconds: u32,
        collector: Collector,
        uid: u32,
        more: impl FnOnce(&mut Record),
    ) -> Option<Ticket> {
        let stamp = collector.session.stamp(self.aggregator.next_n());
        let Collector { seat, foreign, .. } = collector;
        let mut change = Record {
            conn: Some((collector.session, Conn::Open)),
            observed: Some((stamp, Observed { seat, foreign, healthy: None })),
            heard_ms: self.aggregator.now_ms(at(seconds)),
            ..Record::default()
        };
        more(&mut change);
        let label = format!("host-{}", collector.number);
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&uid.to_le_bytes());
        let about = About {
            uid: InstanceUid(bytes),
            label: &label,
            version: "0.158.0",
            error: "cannot bind",
            no_bucket: false,
        };
        self.cell().observe(at(seconds), identity(collector.number), &change, about)
    }

    fn takes(&self, seconds: u32, collector: Collector, reading: Reading) {
        let stamp = collector.session.stamp(self.aggregator.next_n());
        let now_ms = self.aggregator.now_ms(at(seconds));
        self.say(seconds, collector, |change| {
            change.arm = Some((stamp, reading));
            change.first_to_ms = Some(now_ms);
            change.applied = (reading == Reading::To).then_some(stamp);
        });
    }

    fn fails(&self, seconds: u32, collector: Collector) -> Option<Ticket> {
        let stamp = collector.session.stamp(self.aggregator.next_n());
        self.say(seconds, collector, |change| {
            change.failed = Some((stamp, error_id("cannot bind")));
            change.arm = Some((stamp, Reading::From));
        })
    }

    fn closes(&self, seconds: u32, collector: Collector, conn: Conn) {
        self.say(seconds, collector, |change| change.conn = Some((collector.session, conn)));
    }
}

pub(crate) fn identity(number: u32) -> Identity {
    // Spread like a hash, so that shards and buckets are used as they are in earnest.
    Identity(u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
}

/// `count` members that run the candidate.
fn members(scene: &Scene, seconds: u32, count: u32) -> Vec<Collector> {
    (0..count)
        .map(|number| {
            let collector = scene.connect(seconds, number, Seat::Stage(0));
            scene.takes(seconds, collector, Reading::To);
            collector
        })
        .collect()
}
