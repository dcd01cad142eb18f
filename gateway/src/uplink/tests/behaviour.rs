//! What comes of being connected, one thing at a time.

use render::rollout::verdict::Kind;

use super::*;
use crate::aggregate::Durable;

#[test]
fn a_failure_on_one_replica_is_known_on_all_and_so_is_its_end() {
    let mut world = World::new(3, 2);
    world.settle();
    world.join(0, 7, Seat::Stage(0));
    world.fail(0, 7);
    world.settle();
    for replica in &world.replicas {
        assert_eq!(replica.process.cell().failed(identity(7)), Some(0));
    }
    // It comes back elsewhere, more than 2 s later, and runs the candidate.
    world.wait(5_000);
    world.join(2, 7, Seat::Stage(0));
    world.take(2, 7);
    world.settle();
    for replica in &world.replicas[1..] {
        assert_eq!(replica.process.cell().failed(identity(7)), None);
    }
    assert_eq!(world.report(0).verdict.failed, 0);
}

#[test]
fn the_brake_of_an_aggregator_holds_on_every_replica_and_over_restarts() {
    let mut world = World::new(2, 1);
    world.settle();
    let braked = |world: &World| -> Vec<bool> {
        world.replicas.iter().map(|replica| replica.process.cell().is_braked()).collect()
    };
    for collector in 0..10 {
        world.join(0, collector, Seat::Stage(0));
        world.take(0, collector);
    }
    world.wait(60_000);
    assert_eq!(braked(&world), [false, false]);
    world.fail(0, 3);
    world.settle();
    assert_eq!(braked(&world), [true, true], "one of ten is past 5 %");
    world.restart_replica(1);
    assert!(braked(&world)[1], "before the first full state everybody behaves as braked");
    world.wait(3_000);
    assert_eq!(braked(&world), [true, true]);
    let mut head = world.head.clone();
    head = head.with(|rollout| rollout.halt.abort_at_percent = 50);
    world.set_head(head);
    assert_eq!(braked(&world), [true, true], "nothing was judged by the new thresholds");
    world.wait(2_000);
    assert_eq!(braked(&world), [false, false]);
}

#[test]
fn a_replica_offers_nothing_before_an_aggregator_has_its_full_state() {
    let mut world = World::new(1, 2);
    assert!(world.replicas[0].process.cell().is_braked());
    world.cut(0, 0);
    world.wait(2_000);
    assert!(world.replicas[0].uplinks[1].is_synced());
    assert!(!world.replicas[0].process.cell().is_braked(), "one of the two is enough");
}

#[test]
fn the_store_of_an_aggregator_keeps_what_replicas_told() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("evidence.redb");
    let mut world = World::new(2, 1);
    world.restart_aggregator(0, Some(store.clone()));
    world.settle();
    for collector in 0..10 {
        world.join(0, collector, Seat::Stage(0));
        world.take(0, collector);
    }
    world.wait(60_000);
    world.fail(0, 3);
    world.settle();
    world.wait(2_000);
    assert!(world.replicas[1].process.cell().is_braked());
    // The replica that knew of it is gone for good, and the aggregator starts again.
    world.cut(0, 0);
    world.restart_aggregator(0, Some(store));
    world.restart_replica(1);
    world.wait(3_000);
    assert!(world.replicas[1].process.cell().is_braked());
    assert_eq!(world.replicas[1].process.cell().failed(identity(3)), Some(0));
    world.aggregators[0].aggregator.close();
}

#[test]
fn a_failure_is_acknowledged_once_an_aggregator_has_it() {
    let mut world = World::new(1, 2);
    world.cut(0, 1);
    world.settle();
    world.join(0, 1, Seat::Stage(0));
    let ticket = world.fail(0, 1).expect("somebody waits for it");
    let aggregator = Arc::clone(&world.replicas[0].process.aggregator);
    let mut waits = Box::pin(aggregator.committed(ticket));
    let waker = std::task::Waker::noop();
    let mut context = std::task::Context::from_waker(waker);
    assert!(waits.as_mut().poll(&mut context).is_pending());
    // Nobody waits 50 ms for it.
    world.now_ms += 5;
    while world.turn((0, 0), usize::MAX) {}
    assert_eq!(wait(waits), Durable::Memory, "the aggregator has no store");
}

#[test]
fn a_failure_from_before_the_connection_is_acknowledged_with_the_full_state() {
    let mut world = World::new(1, 1);
    world.join(0, 1, Seat::Stage(0));
    let ticket = world.fail(0, 1).expect("somebody waits for it");
    world.settle();
    let aggregator = Arc::clone(&world.replicas[0].process.aggregator);
    assert_eq!(wait(aggregator.committed(ticket)), Durable::Memory);
}

#[test]
fn a_failure_overtakes_a_full_state() {
    const ALL: u32 = 20_000;
    let mut world = World::new(1, 1);
    for collector in 0..ALL {
        world.join(0, collector, Seat::Stage(0));
    }
    world.connect(0, 0);
    world.turn((0, 0), usize::MAX);
    // As many batches as may be are on their way.
    world.turn((0, 0), 1);
    for collector in (0..ALL).step_by(100) {
        world.fail(0, collector);
    }
    let failed = |world: &World| {
        let failed = |collector: &u32| {
            known(&world.aggregators[0], *collector).is_some_and(|record| record.failed_now())
        };
        (0..ALL).step_by(100).filter(failed).count()
    };
    while failed(&world) < 200 {
        world.turn((0, 0), 20);
    }
    assert!(world.aggregators[0].cell().len() < 19_000, "others wait still");
    world.settle();
    assert_eq!(world.aggregators[0].cell().len(), 20_000);
}

#[test]
fn what_changes_while_the_peer_takes_nothing_is_sent_once() {
    let mut world = World::new(1, 1);
    world.settle();
    world.join(0, 1, Seat::Stage(0));
    let aggregator = Arc::clone(&world.replicas[0].process.aggregator);
    for _ in 0..5_000 {
        world.take(0, 1);
        world.now_ms += 1;
    }
    assert!(aggregator.uplink_waiting(0) <= 1);
    world.settle();
    let (here, there) = (known(&world.replicas[0].process, 1), known(&world.aggregators[0], 1));
    assert_eq!(here, there);
    assert_eq!(aggregator.uplink_waiting(0), 0);
}

#[test]
fn the_end_of_a_full_state_closes_what_it_did_not_list() {
    let mut world = World::new(2, 1);
    world.settle();
    // Past the window in which silence of the control group is remembered.
    world.wait(100_000);
    world.join(0, 1, Seat::Control);
    world.settle();
    world.cut(0, 0);
    world.leave(0, 1, Conn::Lost);
    // Nothing is worth keeping of it, so the replica forgets it.
    world.wait(200_000);
    assert_eq!(world.replicas[0].process.cell().len(), 0);
    let open = |world: &World| {
        matches!(known(&world.aggregators[0], 1), Some(Record { conn: Some((_, Conn::Open)), .. }))
    };
    assert!(open(&world));
    world.cut.clear();
    world.settle();
    assert!(!open(&world));
}

#[test]
fn two_live_uids_of_one_identity_are_counted_and_outlive_one_another() {
    let mut world = World::new(2, 1);
    world.settle();
    world.join(0, 1, Seat::Stage(0));
    world.take(0, 1);
    let first = world.replicas[0].sessions[&1];
    // Another process under the same identity, on the same replica.
    let this = &world.replicas[0].process;
    let now = this.now(world.now_ms + 1);
    let session = this.aggregator.begin_session(now);
    let mut change = Record {
        conn: Some((session, Conn::Open)),
        heard_ms: this.aggregator.now_ms(now),
        ..Record::default()
    };
    this.cell().observe(now, identity(1), &change, about(2, "host-1"));
    world.settle();
    assert_eq!(world.report(0).tally.duplicates, 2);
    // The newer one ends; the older one is still heard.
    change.conn = Some((session, Conn::Lost));
    world.replicas[0].process.cell().observe(now, identity(1), &change, about(2, "host-1"));
    world.wait(50_000);
    assert_eq!(world.report(0).verdict.dark, 0);
    // Then that one ends as well.
    world.replicas[0].sessions.insert(1, first);
    world.leave(0, 1, Conn::Lost);
    world.wait(60_000);
    let report = world.report(0);
    assert_eq!((report.tally.duplicates, report.verdict.dark), (0, 1));
}

#[test]
fn evidence_of_a_replica_without_history_is_filed_under_the_origin_that_is_known() {
    let mut world = World::new(2, 1);
    let told = world.head.clone().with(|rollout| rollout.origin = Some("abc".into()));
    // The aggregator and one replica learn the origin, the other one cannot.
    for at in [0, 1] {
        let process =
            if at == 0 { &mut world.replicas[0].process } else { &mut world.aggregators[0] };
        let now = process.now(world.now_ms);
        process.cell = process.aggregator.handle_head(now, &told.snapshot(), "c1").first().cloned();
    }
    world.settle();
    world.join(0, 1, Seat::Stage(0));
    world.join(1, 2, Seat::Stage(0));
    world.fail(1, 2);
    world.settle();
    assert_eq!(world.aggregators[0].cell().len(), 2);
    assert_eq!(world.replicas[0].process.cell().failed(identity(2)), Some(0));
    assert_eq!(world.report(0).replicas.len(), 2);
}

#[test]
fn evidence_from_before_the_origin_was_known_moves_with_its_change() {
    let mut world = World::new(1, 1);
    world.settle();
    world.join(0, 1, Seat::Stage(0));
    world.fail(0, 1);
    world.settle();
    let told = world.head.clone().with(|rollout| rollout.origin = Some("abc".into()));
    let process = &mut world.aggregators[0];
    let now = process.now(world.now_ms);
    process.cell = process.aggregator.handle_head(now, &told.snapshot(), "c2").first().cloned();
    assert_eq!(world.aggregators[0].cell().failed(identity(1)), Some(0));
    world.join(0, 2, Seat::Stage(0));
    world.fail(0, 2);
    world.wait(2_000);
    assert_eq!(world.aggregators[0].cell().failed(identity(2)), Some(0));
    let told = world.head.clone().with(|rollout| rollout.origin = Some("abc".into()));
    world.set_head(told);
    world.wait(2_000);
    assert_eq!(world.replicas[0].process.cell().failed(identity(1)), Some(0));
    assert_eq!(world.report(0).verdict.failed, 2);
}

#[test]
fn a_drained_replica_says_everything_and_then_bye() {
    let mut world = World::new(2, 1);
    world.settle();
    world.join(0, 1, Seat::Stage(0));
    world.take(0, 1);
    world.leave(0, 1, Conn::Drained);
    assert!(!world.replicas[0].uplinks[0].drain());
    world.settle();
    // The other end has closed by now.
    assert!(world.replicas[0].uplinks[0].drain());
    assert!(known(&world.aggregators[0], 1).is_some());
    let report = world.report(0);
    assert_eq!(report.replicas.len(), 1, "who said bye is gone: {:?}", report.replicas);
}

#[test]
fn a_partition_that_cuts_off_one_of_eight_is_inconclusive_and_never_an_abort() {
    let mut world = World::new(8, 2);
    world.settle();
    for collector in 0..400 {
        world.join(collector as usize % 8, collector, Seat::Stage(0));
        world.take(collector as usize % 8, collector);
    }
    world.wait(30_000);
    assert_eq!(world.report(0).verdict.kind, Kind::Hold);
    for aggregator in 0..2 {
        world.cut(3, aggregator);
    }
    for second in 0..400_u32 {
        // Collectors go from replica to replica, also to the one that is cut off and away from it.
        if second < 200 {
            let collector = second * 2 % 400;
            let (from, to) = (collector as usize % 8, if second % 4 == 0 { 3 } else { 5 });
            if world.replicas[from].sessions.contains_key(&collector) && from != to {
                world.leave(from, collector, Conn::Lost);
                world.join(to, collector, Seat::Stage(0));
                world.take(to, collector);
            }
        }
        world.wait(1_000);
        for aggregator in 0..2 {
            let report = world.report(aggregator);
            assert_eq!(report.verdict.kind, Kind::Inconclusive, "{second}: {}", report.verdict.why);
        }
        assert!(world.replicas.iter().all(|replica| !replica.process.cell().is_braked()));
    }
    world.cut.clear();
    world.wait(120_000);
    for aggregator in 0..2 {
        let report = world.report(aggregator);
        assert_eq!(report.verdict.kind, Kind::Advance, "{}", report.verdict.why);
        assert_eq!(report.verdict.seen, 400);
    }
}

#[test]
fn an_aggregator_that_starts_during_a_partition_does_not_abort_either() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("evidence.redb");
    let mut world = World::new(4, 1);
    world.restart_aggregator(0, Some(store.clone()));
    world.settle();
    for collector in 0..40 {
        world.join(collector as usize % 4, collector, Seat::Stage(0));
        world.take(collector as usize % 4, collector);
    }
    world.wait(10_000);
    world.cut(3, 0);
    world.restart_aggregator(0, Some(store));
    for _ in 0..300 {
        world.wait(1_000);
        let report = world.report(0);
        assert_eq!(report.verdict.kind, Kind::Inconclusive, "{}", report.verdict.why);
    }
    world.aggregators[0].aggregator.close();
}

#[test]
fn three_hundred_replicas_report_to_one_aggregator() {
    let mut world = World::new(300, 1);
    for replica in 0..300_u32 {
        for collector in replica * 20..(replica + 1) * 20 {
            world.join(replica as usize, collector, Seat::Stage(0));
            world.take(replica as usize, collector);
        }
    }
    world.settle();
    assert_eq!(world.errors, [""; 0]);
    world.wait_in_steps(61_000, 8_000);
    let report = world.report(0);
    assert_eq!((report.verdict.seen, report.tally.replicas), (6_000, 300));
    for replica in 0..300_u32 {
        world.fail(replica as usize, replica * 20);
        world.fail(replica as usize, replica * 20 + 1);
    }
    world.settle();
    let report = world.report(0);
    assert_eq!(report.verdict.kind, Kind::Abort, "{}", report.verdict.why);
    world.settle();
    for replica in &world.replicas {
        assert!(replica.process.cell().is_braked());
        assert_eq!(replica.process.cell().failed(identity(20 * 299)), Some(0));
    }
}

#[test]
fn collectors_that_wait_for_their_place_on_other_replicas_are_awaited() {
    #[derive(Debug)]
    struct Tier;
    impl crate::aggregate::Population for Tier {
        fn collectors(&self) -> u64 {
            30
        }
    }
    let mut world = World::new(1, 1);
    world.settle();
    world.replicas[0].process.cell().set_population(Arc::new(Tier));
    world.wait(2_000);
    assert_eq!(world.report(0).tally.awaited, 30);
    world.wait(40_000);
    assert_eq!(world.report(0).tally.awaited, 0, "who did not come for dark_after is not awaited");
}
