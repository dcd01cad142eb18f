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

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn counters_are_what_classifying_everybody_would_count(
        steps in prop::collection::vec(step(), 1..120)
    ) {
        let mut scene = Scene::new(&Head::new());
        let mut model = Model { records: BTreeMap::new(), stage: 0 };
        let mut seconds = 100;
        for step in steps {
            match step {
                Step::Observe { collector, replica, ago, n, what } => {
                    let now_ms = scene.aggregator.now_ms(at(seconds));
                    let incarnation = 7 + replica;
                    let session = Session { epoch_ms: now_ms - ago * 1_000, incarnation, n };
                    let stamp: Stamp = session.stamp(n + 1);
                    let healthy = Some(n % 2 == 0);
                    let change = Record {
                        failed: what.failed.then(|| (stamp, error_id("e"))),
                        applied: what.applied.then_some(stamp),
                        arm: what.arm.map(|arm| (stamp, arm)),
                        conn: what.conn.map(|conn| (session, conn)),
                        observed: what.seat.map(|seat| {
                            (stamp, Observed { seat, foreign: what.foreign, healthy })
                        }),
                        heard_ms: if what.heard { now_ms } else { 0 },
                        first_to_ms: what.took.then_some(now_ms),
                        tries: (n % 3) as u8,
                    };
                    // One uid each, so that no record depends on how many are live.
                    let mut uid = [1; 16];
                    uid[..4].copy_from_slice(&collector.to_le_bytes());
                    let about = About {
                        uid: InstanceUid(uid),
                        label: "",
                        version: "",
                        error: "",
                        no_bucket: false,
                    };
                    scene.cell().observe(at(seconds), identity(collector), &change, about);
                    model.records.entry(identity(collector)).or_default().merge(&change);
                }
                Step::Wait(more) => seconds += more,
                Step::Hello => scene.aggregator.replica_hello(at(seconds), 8, "other"),
                Step::Bye(said) => scene.aggregator.replica_bye(at(seconds), 8, said),
                Step::Stage(stage) => {
                    model.stage = stage;
                    scene.head(seconds, &Head::new().with(|rollout| rollout.stage = stage));
                }
            }
            scene.aggregator.handle_timeout(at(seconds));
            let now_ms = scene.aggregator.now_ms(at(seconds));
            prop_assert_eq!(scene.cell().tally(), model.tally(scene.cell(), now_ms));
            for (identity, record) in &model.records {
                match scene.cell().record(*identity) {
                    Some(known) => prop_assert_eq!(known, *record),
                    None => prop_assert!(record.is_idle(), "{:?} was dropped", record),
                }
            }
            // What was dropped begins anew.
            model.records.retain(|identity, _| scene.cell().record(*identity).is_some());
        }
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
        use super::super::packed::{Incarnations, Slot, decode, encode};
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
        let mut known = Incarnations::default();
        let mut slot = Slot::EMPTY;
        prop_assert!(slot.set_record(&record, &mut known).is_ok());
        prop_assert_eq!(slot.record(&known), record);
        prop_assert_eq!(decode(&encode(&record, no_bucket)), Some((record, no_bucket)));
        prop_assert_eq!(decode(&encode(&record, no_bucket)[1..]), None);
    }
}
