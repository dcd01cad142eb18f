//! P3: membership in a Rollout of three stages of all forms, with two hash attributes.
#![allow(missing_docs, reason = "criterion's macros make undocumented functions")]

use std::collections::BTreeMap;
use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use render::attrs::{Slots, Symbols};
use render::estate::{Cohort, Hosts};
use render::rollout::cohort::{Cohorts, member};

fn stages() -> Vec<Cohort> {
    let cohort = |number: u32| Cohort {
        hosts: Some(Hosts {
            attribute: "host.name".to_owned(),
            values: (0..3).map(|host| format!("bridge-{number}{host}")).collect(),
        }),
        matches: BTreeMap::from([
            ("k8s.cluster.name".to_owned(), format!("eu-west-{number}")),
            ("deployment.environment.name".to_owned(), "production".to_owned()),
        ]),
        percent: 5 * (number + 1),
    };
    (0..3).map(cohort).collect()
}

/// Nanoseconds of the best of many rounds: the least disturbed one.
fn best(cohorts: &Cohorts, collectors: &[Slots<'_>]) -> f64 {
    let round = |rounds: u32| {
        #[expect(clippy::disallowed_methods, reason = "a bench measures time")]
        let start = std::time::Instant::now();
        for _ in 0..rounds {
            for slots in collectors {
                black_box(member(black_box(cohorts), black_box(slots)));
            }
        }
        start.elapsed().as_nanos() as f64 / f64::from(rounds) / collectors.len() as f64
    };
    (0..200).map(|_| round(100)).fold(f64::INFINITY, f64::min)
}

fn benches(c: &mut Criterion) {
    let symbols = Symbols::new([
        "deployment.environment.name",
        "host.name",
        "k8s.cluster.name",
        "service.instance.id",
    ]);
    let hash_attributes = ["service.instance.id".to_owned(), "host.name".to_owned()];
    let seeded = Some("2026-q4");
    for (name, salt) in [("member/three_stages", None), ("member/three_stages_salted", seeded)] {
        let cohorts = Cohorts::new(&symbols, &stages(), 2, &hash_attributes, salt)
            .expect("every name has a symbol");
        let instances: Vec<String> =
            (0..16).map(|number| format!("01890a5d-ac96-774b-bcce-{number:012x}")).collect();
        let mut collectors: Vec<Slots<'_>> = Vec::new();
        for instance in &instances {
            let mut slots = Slots::new(&symbols);
            // Nothing but its bucket can admit it, and in most cases that does not either: all
            // forms of all stages are asked.
            for (attribute, value) in [
                ("deployment.environment.name", "production"),
                ("host.name", "bridge-a1.example.com"),
                ("k8s.cluster.name", "us-east-1"),
                ("service.instance.id", instance),
            ] {
                slots.set(symbols.get(attribute).expect("named above"), Some(value));
            }
            collectors.push(slots);
        }
        println!("P3: {name}: {:.1} ns (at most 60)", best(&cohorts, &collectors));
        let mut next = 0;
        c.bench_function(name, |bench| {
            bench.iter(|| {
                next = (next + 1) & 15;
                member(black_box(&cohorts), black_box(&collectors[next]))
            });
        });
    }
}

criterion_group!(group, benches);
criterion_main!(group);
