//! A change of a collector that is known allocates nothing, unless it FAILED or was lost.

use benches::counting::{Counting, allocations};
use benches::evidence::{identity, now, observe, observe_change, snapshot};
use gateway::aggregate::{Aggregator, Settings};
use gateway::metrics::Metrics;
use render::rollout::evidence::{Conn, Reading, Record, error_id};

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn what_is_learned_of_a_known_member_allocates_nothing() {
    let aggregator = Aggregator::in_memory(Settings::default(), Metrics::leak(), now(0));
    let cells = aggregator.handle_head(now(0), &snapshot(), "c1");
    let cell = &cells[0];
    for number in 0..1_000 {
        observe(&aggregator, cell, number, now(1));
    }
    let again = |number| {
        let session = aggregator.begin_session(now(2));
        let stamp = session.stamp(aggregator.next_n());
        let heard_ms = aggregator.now_ms(now(2));
        for change in [
            Record { conn: Some((session, Conn::Open)), heard_ms, ..Record::default() },
            Record { arm: Some((stamp, Reading::Taking)), heard_ms, ..Record::default() },
            Record { applied: Some(stamp), heard_ms, ..Record::default() },
            Record { conn: Some((session, Conn::Left)), heard_ms, ..Record::default() },
        ] {
            // The last one is a loss: what is to be read of it may be kept.
            let (allocated, ()) = allocations(|| observe_change(cell, number, &change, now(2)));
            let lost = matches!(change.conn, Some((_, Conn::Left)));
            assert!(allocated == 0 || lost, "{allocated} for {change:?}");
        }
    };
    (0..1_000).for_each(again);

    let stamp = aggregator.begin_session(now(3)).stamp(aggregator.next_n());
    let failed = Record { failed: Some((stamp, error_id("e"))), ..Record::default() };
    let (allocated, ()) = allocations(|| observe_change(cell, 5, &failed, now(3)));
    assert!(allocated > 0, "the counter counts");
    let (allocated, failed) = allocations(|| cell.failed(identity(5)));
    assert_eq!((allocated, failed), (0, Some(0)));
}
