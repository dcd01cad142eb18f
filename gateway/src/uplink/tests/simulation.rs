//! Random lives of replicas, aggregators and the network between them, against the slow model: all
//! records of all replicas merged in one map.

use proptest::prelude::*;

use super::*;
use crate::uplink::convert::{self, Offset};

const REPLICAS: usize = 3;
const AGGREGATORS: usize = 2;
const COLLECTORS: u32 = 24;

#[derive(Clone, Debug)]
enum Step {
    Join {
        replica: usize,
        collector: u32,
        seat: Seat,
    },
    Take {
        replica: usize,
        collector: u32,
    },
    Fail {
        replica: usize,
        collector: u32,
    },
    Leave {
        replica: usize,
        collector: u32,
        conn: Conn,
    },
    /// Time passes, and nobody says anything.
    Wait(Millis),
    Connect(usize, usize),
    /// A connection breaks with what is on its way.
    Break(usize, usize),
    Cut(usize, usize),
    Heal(usize, usize),
    /// A few chunks of one connection arrive.
    Carry {
        replica: usize,
        aggregator: usize,
        most: usize,
    },
    /// All there is to say is said.
    Settle,
    RestartReplica(usize),
    RestartAggregator(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let collector = 0..COLLECTORS;
    let (replica, aggregator) = (0..REPLICAS, 0..AGGREGATORS);
    let seat = prop_oneof![
        4 => Just(Seat::Stage(0)),
        1 => Just(Seat::Stage(1)),
        2 => Just(Seat::Control)
    ];
    let conn = prop_oneof![3 => Just(Conn::Lost), 1 => Just(Conn::Drained), 1 => Just(Conn::Left)];
    let pair = (replica.clone(), aggregator);
    let who = (replica, collector);
    prop_oneof![
        8 => (who.clone(), seat)
            .prop_map(|((replica, collector), seat)| Step::Join { replica, collector, seat }),
        8 => who.clone().prop_map(|(replica, collector)| Step::Take { replica, collector }),
        2 => who.clone().prop_map(|(replica, collector)| Step::Fail { replica, collector }),
        4 => (who, conn)
            .prop_map(|((replica, collector), conn)| Step::Leave { replica, collector, conn }),
        4 => (1..3_000_u64).prop_map(Step::Wait),
        4 => pair.clone().prop_map(|(replica, aggregator)| Step::Connect(replica, aggregator)),
        2 => pair.clone().prop_map(|(replica, aggregator)| Step::Break(replica, aggregator)),
        1 => pair.clone().prop_map(|(replica, aggregator)| Step::Cut(replica, aggregator)),
        1 => pair.clone().prop_map(|(replica, aggregator)| Step::Heal(replica, aggregator)),
        12 => (pair, 1..4_usize).prop_map(|((replica, aggregator), most)| Step::Carry {
            replica,
            aggregator,
            most
        }),
        2 => Just(Step::Settle),
    ]
}

fn step_or_restart() -> impl Strategy<Value = Step> {
    prop_oneof![
        40 => step(),
        1 => (0..REPLICAS).prop_map(Step::RestartReplica),
        1 => (0..AGGREGATORS).prop_map(Step::RestartAggregator),
    ]
}

struct Play {
    world: World,
}

impl Play {
    fn new(skew_ms: [i64; REPLICAS + AGGREGATORS]) -> Self {
        Self { world: World::with_skew(REPLICAS, AGGREGATORS, |at| skew_ms[at]) }
    }

    fn play(&mut self, step: Step) {
        let world = &mut self.world;
        match step {
            Step::Join { replica, collector, seat } => world.join(replica, collector, seat),
            Step::Take { replica, collector } => world.take(replica, collector),
            Step::Fail { replica, collector } => drop(world.fail(replica, collector)),
            Step::Leave { replica, collector, conn } => {
                if world.replicas[replica].sessions.contains_key(&collector) {
                    world.leave(replica, collector, conn);
                }
            }
            Step::Wait(ms) => world.now_ms += ms,
            Step::Connect(replica, aggregator) => world.connect(replica, aggregator),
            Step::Break(replica, aggregator) => world.disconnect(replica, aggregator),
            Step::Cut(replica, aggregator) => world.cut(replica, aggregator),
            Step::Heal(replica, aggregator) => drop(world.cut.remove(&(replica, aggregator))),
            Step::Carry { replica, aggregator, most } => {
                world.turn((replica, aggregator), most);
            }
            Step::Settle => world.settle(),
            Step::RestartReplica(at) => world.restart_replica(at),
            Step::RestartAggregator(at) => world.restart_aggregator(at, None),
        }
    }

    /// What a replica knows, in the time of an aggregator.
    fn shifted(&self, replica: usize, aggregator: usize, record: &Record) -> Record {
        let process = &self.world.replicas[replica].process;
        // The offset is known by now; this measure is none that could replace it.
        let offset = Offset(process.aggregator.link_offset(aggregator, i64::MIN));
        convert::record(&offset.record(record))
    }

    /// Once all have been heard, an aggregator knows what all replicas know, merged.
    fn check(&mut self, restarted: bool) -> Result<(), TestCaseError> {
        self.world.cut.clear();
        self.world.settle();
        for (at, aggregator) in self.world.aggregators.iter().enumerate() {
            for identity in all() {
                let mut merged: Option<Record> = None;
                for replica in 0..REPLICAS {
                    let cell = self.world.replicas[replica].process.cell();
                    if let Some(record) = cell.record(identity) {
                        let shifted = self.shifted(replica, at, &record);
                        merged.get_or_insert_default().merge(&shifted);
                    }
                }
                let known = aggregator.cell().record(identity);
                if restarted {
                    // It may know more, of processes that have ended.
                    let mut more = known;
                    if let Some(merged) = &merged {
                        more.get_or_insert_default().merge(merged);
                    }
                    prop_assert_eq!(more, known, "{} lacks something", identity);
                } else {
                    prop_assert_eq!(known, merged, "of {}", identity);
                }
            }
        }
        Ok(())
    }

    /// Who failed is failed for every replica, whichever of them it failed on.
    fn check_halts(&self) -> Result<(), TestCaseError> {
        for identity in all() {
            let failed = |process: &Process| {
                process.cell().record(identity).is_some_and(|record| record.failed_now())
            };
            let above = self.world.aggregators.iter().any(failed);
            for replica in &self.world.replicas {
                let known = replica.process.cell().failed(identity).is_some();
                prop_assert_eq!(known, above || failed(&replica.process), "of {}", identity);
            }
        }
        Ok(())
    }
}

fn skews() -> impl Strategy<Value = [i64; REPLICAS + AGGREGATORS]> {
    prop::array::uniform5(-600_000_i64..600_000)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn merged_evidence_is_what_all_replicas_know(
        skew_ms in skews(),
        steps in prop::collection::vec(step(), 1..150),
    ) {
        let mut play = Play::new(skew_ms);
        // Whose Hello is answered late is wrong about the aggregator's clock by half of that, and
        // then who came first may differ between two aggregators.
        play.world.settle();
        for step in steps {
            play.play(step);
        }
        play.check(false)?;
        play.check_halts()?;
        let silent = |error: &String| error.starts_with("nothing was heard");
        prop_assert!(play.world.errors.iter().all(silent), "{:?}", play.world.errors);
        // Both aggregators see the same, each by its own clock.
        play.world.wait(2_000);
        let (one, other) = (play.world.report(0), play.world.report(1));
        prop_assert_eq!(&one.tally, &other.tally);
        prop_assert_eq!(one.verdict.kind, other.verdict.kind);
    }

    #[test]
    fn restarts_lose_nothing_that_a_living_replica_knows(
        skew_ms in skews(),
        steps in prop::collection::vec(step_or_restart(), 1..150),
    ) {
        let mut play = Play::new(skew_ms);
        for step in steps {
            play.play(step);
        }
        play.check(true)?;
        play.check_halts()?;
    }
}
