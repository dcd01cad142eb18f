//! P3b: match and membership with 10 Tiers against 10,000, both with eight distinct key sets.
//!
//! Prints the ratio of the two: the cost may not grow with the number of Tiers. `hot` places 64
//! collectors over and over; `cold` 10,000 of them in an order that no cache expects, which shows
//! the machine's memory and not the number of probes.
#![allow(missing_docs, reason = "criterion's macros make undocumented functions")]

use std::hint::black_box;

use benches::synthetic::{self, Description, SHAPES, Size};
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use render::attrs::Slots;
use render::snapshot::{Snapshot, compile, served};

fn snapshot(tiers: usize) -> Snapshot {
    let tree = synthetic::committed(Size::of(tiers)).expect("a synthetic estate renders");
    let served = served::from_tree(&tree, None).expect("and is served");
    let snapshot = compile(&served, |artefact, _| artefact.bytes().clone()).expect("and compiles");
    assert_eq!((snapshot.tiers.len(), snapshot.shapes()), (tiers, SHAPES));
    snapshot
}

/// Collectors spread over the Tiers by a stride that meets every Tier.
fn descriptions(tiers: usize, count: usize) -> Vec<Description> {
    (0..count).map(|number| synthetic::description(number * 7919 % tiers, number)).collect()
}

fn borrowed(list: &[(String, String)]) -> impl Iterator<Item = (&str, Option<&str>)> {
    list.iter().map(|(name, value)| (name.as_str(), Some(value.as_str())))
}

fn slots<'m>(snapshot: &Snapshot, (non_identifying, identifying): &'m Description) -> Slots<'m> {
    let mut slots = snapshot.slots();
    slots.fill(&snapshot.symbols, borrowed(non_identifying), borrowed(identifying));
    slots
}

/// Nanoseconds of the best of many rounds: the least disturbed one.
fn best(snapshot: &Snapshot, collectors: &[Slots<'_>]) -> f64 {
    let round = |rounds: u32| {
        #[expect(clippy::disallowed_methods, reason = "a bench measures time")]
        let start = std::time::Instant::now();
        for _ in 0..rounds {
            for slots in collectors {
                black_box(snapshot.place(black_box(slots)));
            }
        }
        start.elapsed().as_nanos() as f64 / f64::from(rounds) / collectors.len() as f64
    };
    (0..200).map(|_| round(100)).fold(f64::INFINITY, f64::min)
}

fn benches(c: &mut Criterion) {
    let mut least = Vec::new();
    for tiers in [10, 10_000] {
        let snapshot = snapshot(tiers);
        for (temperature, count) in [("hot", 64), ("cold", 10_000)] {
            let descriptions = descriptions(tiers, count);
            let collectors: Vec<Slots<'_>> =
                descriptions.iter().map(|description| slots(&snapshot, description)).collect();
            assert!(collectors.iter().all(|slots| snapshot.place(slots).tier.is_some()));
            let mut next = 0;
            c.bench_function(&format!("place/{tiers}_tiers_{temperature}"), |bench| {
                bench.iter(|| {
                    next = (next + 1) % collectors.len();
                    snapshot.place(black_box(&collectors[next]))
                });
            });
            if temperature == "hot" {
                least.push(best(&snapshot, &collectors));
            }
        }
        let descriptions = descriptions(tiers, 64);
        let mut next = 0;
        c.bench_function(&format!("place/{tiers}_tiers_fill_and_place"), |bench| {
            bench.iter_batched(
                || {
                    next = (next + 1) % descriptions.len();
                    &descriptions[next]
                },
                |description| snapshot.place(&slots(&snapshot, black_box(description))),
                BatchSize::SmallInput,
            );
        });
    }
    println!(
        "P3b: {:.1} ns with 10 Tiers, {:.1} ns with 10,000: ratio {:.2} (at most 1.3)",
        least[0],
        least[1],
        least[1] / least[0]
    );
}

criterion_group!(group, benches);
criterion_main!(group);
