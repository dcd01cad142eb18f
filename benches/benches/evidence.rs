//! How many changes the aggregator takes in: with as many members as one replica has links here,
//! and with the half million of a whole fleet, where each change waits for memory.

use std::hint::black_box;

use benches::evidence::{Changes, Mix, identity, now, observe, observe_change, snapshot};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use gateway::aggregate::{Aggregator, Observation, Settings};
use gateway::metrics::Metrics;
use render::rollout::evidence::{Conn, Reading, Record, error_id};

/// What a replica sends up at once.
const BATCH: usize = 1_000;

fn replica(criterion: &mut Criterion) {
    changes(criterion, 20_000);
}

fn fleet(criterion: &mut Criterion) {
    changes(criterion, 500_000);
}

fn changes(criterion: &mut Criterion, members: u32) {
    let aggregator = Aggregator::in_memory(Settings::default(), Metrics::leak(), now(0));
    let cells = aggregator.handle_head(now(0), &snapshot(), "c1");
    let cell = &cells[0];
    for number in 0..members {
        observe(&aggregator, cell, number, now(1));
    }
    let mut group = criterion.benchmark_group(format!("evidence, {members} members"));

    group.throughput(Throughput::Elements(BATCH as u64));
    for (name, mix) in [("lives", Mix::Lives), ("vouches", Mix::Vouches)] {
        let mut changes = Changes::new(&aggregator, members, mix);
        let mut batch = Vec::with_capacity(BATCH);
        let mut fill = |batch: &mut Vec<_>| {
            batch.clear();
            batch.extend(changes.by_ref().take(BATCH));
        };
        group.bench_function(format!("{name}, each alone"), |bencher| {
            bencher.iter_batched(
                || {
                    fill(&mut batch);
                    std::mem::take(&mut batch)
                },
                |batch: Vec<Observation<'_>>| {
                    for one in &batch {
                        black_box(cell.observe(now(2), one.identity, &one.change, one.about));
                    }
                    batch
                },
                BatchSize::PerIteration,
            );
        });
        group.bench_function(format!("{name}, {BATCH} at once"), |bencher| {
            bencher.iter_batched(
                || {
                    fill(&mut batch);
                    std::mem::take(&mut batch)
                },
                |batch: Vec<Observation<'_>>| {
                    black_box(cell.observe_batch(now(2), &batch));
                    batch
                },
                BatchSize::PerIteration,
            );
        });
    }

    group.throughput(Throughput::Elements(1));
    let mut number = 0_u32;
    group.bench_function("observe_mixed", |bencher| {
        bencher.iter(|| {
            // Strides over all members, so that caches help as little as they do in earnest.
            number = (number + 7_919) % members;
            let session = aggregator.begin_session(now(2));
            let stamp = session.stamp(aggregator.next_n());
            let mut change = Record { heard_ms: aggregator.now_ms(now(2)), ..Record::default() };
            match number % 8 {
                0 => change.conn = Some((session, Conn::Open)),
                1 => change.arm = Some((stamp, Reading::Taking)),
                2 => change.applied = Some(stamp),
                3 if number % 64 == 3 => change.failed = Some((stamp, error_id("cannot bind"))),
                _ => change.arm = Some((stamp, Reading::To)),
            }
            observe_change(cell, number, &change, now(2));
        });
    });
    group.bench_function("failed", |bencher| {
        bencher.iter(|| {
            number = (number + 7_919) % members;
            black_box(cell.failed(identity(number)))
        });
    });
    group.bench_function("handle_timeout", |bencher| {
        bencher.iter(|| aggregator.handle_timeout(now(3)));
    });
    group.finish();
}

criterion_group!(benches, replica, fleet);
criterion_main!(benches);
