//! P8: an estate of 10,000 Tiers, 1,000 Rollouts and 2,000 Blueprints: load, validate, render,
//! read what is served, compile. One core. Prints each step's time, how much longer twice the
//! estate takes, and the most memory the process ever held.
#![allow(missing_docs, reason = "criterion's macros make undocumented functions")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use benches::synthetic::{self, Size};
use criterion::{Criterion, criterion_group, criterion_main};
use render::snapshot::served::{self, Served};
use render::snapshot::{Snapshot, compile, file};

fn timed<T>(into: &mut Duration, work: impl FnOnce() -> T) -> T {
    #[expect(clippy::disallowed_methods, reason = "a bench measures time")]
    let start = std::time::Instant::now();
    let done = work();
    *into = (*into).min(start.elapsed());
    done
}

/// The least time of each step over some passes.
struct Steps {
    load: Duration,
    render: Duration,
    serve: Duration,
    compile: Duration,
    whole: Duration,
}

fn compiled(served: &Served) -> Snapshot {
    compile(served, |artefact, _| artefact.bytes().clone()).expect("a synthetic estate compiles")
}

fn pass(size: Size, passes: usize) -> Steps {
    let authored = synthetic::authored(size);
    let catalogue = synthetic::catalogue().expect("the catalogue is fine");
    let long = Duration::MAX;
    let mut steps = Steps { load: long, render: long, serve: long, compile: long, whole: long };
    for _ in 0..passes {
        let mut tree = authored.clone();
        let mut whole = Duration::MAX;
        timed(&mut whole, || {
            let (sources, policy) = timed(&mut steps.load, || {
                synthetic::load(&tree, &catalogue).expect("a synthetic estate loads")
            });
            let rendered = timed(&mut steps.render, || {
                synthetic::rendered(&sources, &catalogue, &policy).expect("and renders")
            });
            let files: BTreeMap<_, Arc<[u8]>> =
                rendered.files.into_iter().map(|(path, bytes)| (path, bytes.into())).collect();
            tree.files.extend(files);
            let served = timed(&mut steps.serve, || {
                served::from_topology(&sources.topology, &tree, None).expect("and is served")
            });
            let snapshot = timed(&mut steps.compile, || compiled(&served));
            assert_eq!(
                (snapshot.tiers.len(), snapshot.rollouts.len()),
                (size.tiers, size.rollouts)
            );
        });
        steps.whole = steps.whole.min(whole);
    }
    steps
}

/// The `VmHWM` of this process in MiB, 0 where the system does not tell.
fn most_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) >> 10
}

fn benches(c: &mut Criterion) {
    let one = pass(Size::P8, 3);
    println!(
        "P8: load {:?}, render {:?}, read what is served {:?}, compile {:?}: whole {:?} (at most \
         3 s), most memory {} MiB (at most 600)",
        one.load,
        one.render,
        one.serve,
        one.compile,
        one.whole,
        most_memory()
    );
    let two = pass(Size::of(20_000), 2);
    println!(
        "P8: 20,000 Tiers {:?}: {:.2} times (at most 2.2)",
        two.whole,
        two.whole.as_secs_f64() / one.whole.as_secs_f64()
    );

    let tree = synthetic::committed(Size::P8).expect("a synthetic estate renders");
    let served = served::from_tree(&tree, None).expect("and is served");
    let bytes = file::encode(&served, 0, None).expect("it fits a file");
    println!("snapshot file: {} bytes", bytes.len());
    let mut group = c.benchmark_group("snapshot");
    group.sample_size(10);
    group.bench_function("compile/10000_tiers", |bench| bench.iter(|| compiled(&served)));
    group.bench_function("from_tree/10000_tiers", |bench| {
        bench.iter(|| served::from_tree(&tree, None));
    });
    group.bench_function("decode_file/10000_tiers", |bench| {
        bench.iter(|| file::decode(bytes.clone(), None));
    });
    group.finish();
}

criterion_group!(group, benches);
criterion_main!(group);
