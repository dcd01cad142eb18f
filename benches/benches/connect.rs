//! P3c: the connect path in memory, from the frame's payload to an offer that is ready to write;
//! and a heartbeat, which is what a gateway does nearly all the time.

use std::hint::black_box;

use benches::{heads, messages};
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use gateway::aggregate::{self, Aggregator};
use gateway::clock::Now;
use gateway::metrics::Metrics;
use gateway::serve::{HeadMeta, LinkId, LinkState, Server, Settings, encode_offer};
use gateway::tokens::Grant;
use proto::frame::strip_header;
use render::snapshot::compile;

const NOW: Now = Now { seconds: 1, unix_ms: 1_700_000_000_000 };

fn server(tiers: usize) -> Server {
    let served = heads::served(tiers).expect("no artefact is blank");
    let snapshot = compile(&served, encode_offer).expect("compiles");
    let metrics = Metrics::leak();
    let aggregator = Aggregator::in_memory(aggregate::Settings::default(), metrics, NOW);
    Server::new(snapshot, HeadMeta::default(), metrics, Settings::default(), aggregator, NOW)
}

fn link() -> LinkState {
    LinkState::new(LinkId(0), Grant::default())
}

fn connect(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("connect");
    for tiers in [10, 10_000] {
        let server = server(tiers);
        for (name, tier) in [("plain", 5), ("staged", 6)] {
            let first = messages::described(1, 0, tier);
            group.bench_function(format!("{name}, {tiers} Tiers"), |bencher| {
                bencher.iter_batched_ref(
                    link,
                    |link| {
                        let message = strip_header(black_box(&first)).expect("a header");
                        let reply = server.handle_message(link, NOW, message);
                        assert!(reply.body.is_some());
                        reply
                    },
                    BatchSize::SmallInput,
                );
            });
        }
    }
    group.finish();
}

fn heartbeat(criterion: &mut Criterion) {
    let server = server(1_000);
    let mut link = link();
    let first = messages::described(1, 0, 6);
    server.handle_message(&mut link, NOW, strip_header(&first).expect("a header"));
    let heartbeat = messages::heartbeat(1, 0);
    criterion.bench_function("heartbeat", |bencher| {
        bencher.iter(|| {
            let message = strip_header(black_box(&heartbeat)).expect("a header");
            server.handle_message(&mut link, NOW, message)
        });
    });
}

criterion_group!(benches, connect, heartbeat);
criterion_main!(benches);
