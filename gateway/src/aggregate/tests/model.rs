//! The cell against a slow model: plain records, all classified anew at each look.

use std::collections::BTreeMap;

use proptest::prelude::*;
use render::rollout::evidence::{
    Conn, Identity, Observed, Owner, Reading, Record, Seat, Session, Stamp, classify, error_id,
};
use render::rollout::verdict::Tally;

use super::*;

/// What a link may come to know, and what else happens.
#[derive(Clone, Debug)]
enum Step {
    /// A fragment about a collector, by the process `replica` of two.
    Observe {
        collector: u32,
        replica: u32,
        ago: u64,
        n: u64,
        what: What,
    },
    /// Time passes.
    Wait(u32),
    /// The other process comes, or goes with or without a word.
    Hello,
    Bye(bool),
    /// Another stage.
    Stage(u32),
    /// The process ends, and another one finds what it left.
    Restart,
}

#[derive(Clone, Debug)]
struct What {
    failed: bool,
    applied: bool,
    arm: Option<Reading>,
    conn: Option<Conn>,
    seat: Option<Seat>,
    foreign: bool,
    took: bool,
    heard: bool,
}

fn what() -> impl Strategy<Value = What> {
    let reading = prop_oneof![
        Just(Reading::Taking),
        Just(Reading::To),
        Just(Reading::From),
        Just(Reading::Other),
        Just(Reading::Unknown)
    ];
    let conn = prop_oneof![4 => Just(Conn::Open), 1 => Just(Conn::Drained), 2 => Just(Conn::Lost), 1 => Just(Conn::Left)];
    let seat = prop_oneof![
        Just(Seat::Stage(0)),
        Just(Seat::Stage(1)),
        Just(Seat::Control),
        Just(Seat::Outside)
    ];
    (
        prop::bool::weighted(0.15),
        prop::bool::weighted(0.15),
        prop::option::of(reading),
        prop::option::of(conn),
        prop::option::weighted(0.8, seat),
        prop::bool::weighted(0.1),
        prop::bool::weighted(0.4),
        prop::bool::weighted(0.8),
    )
        .prop_map(|(failed, applied, arm, conn, seat, foreign, took, heard)| What {
            failed,
            applied,
            arm,
            conn,
            seat,
            foreign,
            took,
            heard,
        })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0..24_u32, 0..2_u32, 0..50_u64, 1..1_000_u64, what()).prop_map(
            |(collector, replica, ago, n, what)| Step::Observe { collector, replica, ago, n, what }
        ),
        3 => (0..120_u32).prop_map(Step::Wait),
        1 => Just(Step::Hello),
        1 => any::<bool>().prop_map(Step::Bye),
        1 => (0..2_u32).prop_map(Step::Stage),
    ]
}

/// Everything the cell is supposed to know, in the simplest form.
struct Model {
    records: BTreeMap<Identity, Record>,
    stage: u32,
}

impl Model {
    fn tally(&self, cell: &Cell, now_ms: Millis) -> Tally {
        let context = cell.context();
        let mut tally = Tally::new(self.stage);
        for record in self.records.values() {
            let owner = record
                .conn
                .map_or(Owner::Reporting, |(session, _)| context.owners.of(session.incarnation));
            let terms = render::rollout::evidence::Context { now_ms, ..context.terms };
            tally.add(&classify(record, &terms, owner));
        }
        tally
    }
}

/// A scene, the model of it, and a clock.
struct Play {
    scene: Scene,
    model: Model,
    head: Head,
    seconds: u32,
    file: Option<std::path::PathBuf>,
    incarnation: u32,
}

impl Play {
    fn new(file: Option<std::path::PathBuf>) -> Self {
        let model = Model { records: BTreeMap::new(), stage: 0 };
        let scene = Self::open(file.as_deref(), 7, 100);
        let mut play = Self { scene, model, head: Head::new(), seconds: 100, file, incarnation: 7 };
        play.scene.head(100, &play.head);
        play
    }

    fn open(file: Option<&std::path::Path>, incarnation: u32, seconds: u32) -> Scene {
        let store = file.map(Into::into);
        let settings = Settings { store, incarnation, ..settings() };
        let aggregator = Aggregator::open(settings, Metrics::leak(), at(seconds)).unwrap();
        Scene { aggregator, cell: None }
    }

    fn play(&mut self, step: Step) {
        let seconds = self.seconds;
        match step {
            Step::Observe { collector, replica, ago, n, what } => {
                let replica = if replica == 0 { self.incarnation } else { 8 };
                self.observe(collector, replica, ago, n, &what);
            }
            Step::Wait(more) => self.seconds += more,
            Step::Hello => self.scene.aggregator.replica_hello(at(seconds), 8, "other"),
            Step::Bye(said) => self.scene.aggregator.replica_bye(at(seconds), 8, said),
            Step::Stage(stage) => {
                self.model.stage = stage;
                self.head = Head::new().with(|rollout| rollout.stage = stage);
                self.scene.head(seconds, &self.head);
            }
            Step::Restart => {
                if self.file.is_none() {
                    return;
                }
                self.scene.aggregator.close();
                self.scene.cell = None;
                self.incarnation += 10;
                self.seconds += 1;
                // The old one lets go of the file before the new one takes it.
                self.scene = Scene {
                    aggregator: Aggregator::in_memory(settings(), Metrics::leak(), at(seconds)),
                    cell: None,
                };
                self.scene = Self::open(self.file.as_deref(), self.incarnation, self.seconds);
                self.scene.head(self.seconds, &self.head);
                self.model.records.retain(|_, record| !record.is_idle());
            }
        }
    }

    fn observe(&mut self, collector: u32, incarnation: u32, ago: u64, n: u64, what: &What) {
        let now_ms = self.scene.aggregator.now_ms(at(self.seconds));
        let session = Session { epoch_ms: now_ms - ago * 1_000, incarnation, n };
        let stamp: Stamp = session.stamp(n + 1);
        let (foreign, healthy) = (what.foreign, Some(n.is_multiple_of(2)));
        let change = Record {
            failed: what.failed.then(|| (stamp, error_id("e"))),
            applied: what.applied.then_some(stamp),
            arm: what.arm.map(|arm| (stamp, arm)),
            conn: what.conn.map(|conn| (session, conn)),
            observed: what.seat.map(|seat| (stamp, Observed { seat, foreign, healthy })),
            heard_ms: if what.heard { now_ms } else { 0 },
            first_to_ms: what.took.then_some(now_ms),
            tries: (n % 3) as u8,
        };
        // One uid each, so that no record depends on how many are live.
        let mut uid = [1; 16];
        uid[..4].copy_from_slice(&collector.to_le_bytes());
        let about =
            About { uid: InstanceUid(uid), label: "", version: "", error: "", no_bucket: false };
        self.scene.cell().observe(at(self.seconds), identity(collector), &change, about);
        self.model.records.entry(identity(collector)).or_default().merge(&change);
    }

    fn check(&mut self) -> Result<(), TestCaseError> {
        self.scene.aggregator.handle_timeout(at(self.seconds));
        let now_ms = self.scene.aggregator.now_ms(at(self.seconds));
        let cell = self.scene.cell();
        prop_assert_eq!(cell.tally(), self.model.tally(cell, now_ms));
        for (identity, record) in &self.model.records {
            match cell.record(*identity) {
                Some(known) => prop_assert_eq!(known, *record),
                None => prop_assert!(record.is_idle(), "{:?} was dropped", record),
            }
        }
        // What was dropped begins anew.
        self.model.records.retain(|identity, _| cell.record(*identity).is_some());
        prop_assert_eq!(cell.len(), self.model.records.len());
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn counters_are_what_classifying_everybody_would_count(
        steps in prop::collection::vec(step(), 1..120)
    ) {
        let mut play = Play::new(None);
        for step in steps {
            play.play(step);
            play.check()?;
        }
        evidence::verified(&play.scene.aggregator.reports()[ROLLOUT]);
    }

    #[test]
    fn a_packed_record_is_the_record(
        what in what(),
        epochs in prop::array::uniform5(0_u64..1 << 48),
        incarnations in prop::array::uniform5(any::<u32>()),
        numbers in prop::array::uniform5(0_u64..1 << 40),
        (heard_ms, tries, stage, error) in (0_u64..1 << 48, any::<u8>(), any::<u16>(), any::<u32>()),
        no_bucket in any::<bool>(),
    ) {
        use super::super::packed::{Cold, Hot, Incarnations, Slot, decode, encode};
        use super::super::replicas::Replicas;
        let stamp = |at: usize| Stamp {
            epoch_ms: epochs[at],
            incarnation: incarnations[at],
            n: numbers[at],
        };
        let Stamp { epoch_ms, incarnation, n } = stamp(3);
        let seat = what.seat.map(|seat| if seat == Seat::Stage(1) { Seat::Stage(stage) } else { seat });
        let record = Record {
            failed: what.failed.then(|| (stamp(0), render::rollout::evidence::ErrorId(error))),
            applied: what.applied.then(|| stamp(1)),
            arm: what.arm.map(|arm| (stamp(2), arm)),
            conn: what.conn.map(|conn| (Session { epoch_ms, incarnation, n }, conn)),
            observed: seat.map(|seat| {
                (stamp(4), Observed { seat, foreign: what.foreign, healthy: what.took.then_some(what.heard) })
            }),
            heard_ms,
            first_to_ms: what.took.then_some(epochs[0]),
            tries,
        };
        let owners = Arc::new(Replicas::new(0, 1, 0).owners());
        let mut known = Incarnations::new(owners);
        let (mut hot, mut cold) = (Hot::EMPTY, Cold::EMPTY);
        let mut slot = Slot { hot: &mut hot, cold: &mut cold };
        prop_assert!(slot.merge(&record, true, &mut known).is_ok());
        prop_assert_eq!(slot.as_packed().record(&known), record);
        prop_assert_eq!(decode(&encode(&record, no_bucket)), Some((record, no_bucket)));
        prop_assert_eq!(decode(&encode(&record, no_bucket)[1..]), None);
    }
}

proptest! {
    // Each waits for a disk.
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn whoever_is_worth_keeping_outlives_the_process(
        steps in prop::collection::vec(prop_oneof![5 => step(), 1 => Just(Step::Restart)], 1..60)
    ) {
        let folder = tempfile::tempdir().unwrap();
        let mut play = Play::new(Some(folder.path().join("evidence.redb")));
        for step in steps {
            play.play(step);
            play.check()?;
        }
    }
}
