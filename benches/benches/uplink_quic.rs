//! How fast a replica's full state gets into an aggregator: frames, TLS, QUIC and loopback, both
//! ends on one thread, so that records per second are records per second and core.

use std::sync::Arc;
use std::time::Duration;

use benches::evidence::{observe, snapshot};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use gateway::aggregate::{Aggregator, Role, Settings};
use gateway::certs;
use gateway::clock::Clock;
use gateway::config::{DialConfig, Remote, UplinkTls};
use gateway::metrics::Metrics;
use gateway::uplink::dial::{Parts, Uplinks};
use gateway::uplink::listen::Listener;
use gateway::uplink::tls::Certificates;

/// As many members as one replica may have.
const MEMBERS: u32 = 100_000;

fn certificates(dir: &std::path::Path, clock: Clock) -> [UplinkTls; 2] {
    let request = certs::Request {
        names: vec!["localhost".to_owned()],
        collectors: Vec::new(),
        replicas: vec!["edge-1".to_owned()],
        aggregator: true,
        days: 1,
    };
    let plan = certs::plan(&request, clock.unix_ms()).expect("certificates are made");
    plan.write(dir, false).expect("the folder takes them");
    ["aggregator", "replica-edge-1"].map(|who| UplinkTls {
        ca: dir.join("uplink-ca.crt"),
        cert: dir.join(format!("{who}.crt")),
        key: dir.join(format!("{who}.key")),
    })
}

fn full_state(criterion: &mut Criterion) {
    let clock = Clock::start();
    let dir = tempfile::tempdir().expect("a folder for certificates");
    let [above, below] = certificates(dir.path(), clock);
    let listens = Arc::new(Certificates::load(above).expect("they fit"));
    let dials = Arc::new(Certificates::load(below).expect("they fit"));
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let metrics = Metrics::leak();
    let mut group = criterion.benchmark_group("uplink");
    group.throughput(Throughput::Elements(u64::from(MEMBERS))).sample_size(10);
    group.measurement_time(Duration::from_secs(20));
    group.bench_function(format!("full state of {MEMBERS} over QUIC"), |bencher| {
        bencher.iter_custom(|times| {
            let mut spent = Duration::ZERO;
            for _ in 0..times {
                let open = |role, name: &str| {
                    let settings = Settings { role, replica: name.into(), ..Settings::default() };
                    Aggregator::in_memory(settings, metrics, clock.now())
                };
                let aggregator = open(Role::Aggregator, "aggregator");
                aggregator.handle_head(clock.now(), &snapshot(), "c1");
                let replica = open(Role::Replica { uplinks: 1 }, "edge-1");
                let cells = replica.handle_head(clock.now(), &snapshot(), "c1");
                for number in 0..MEMBERS {
                    observe(&replica, &cells[0], number, clock.now());
                }
                spent += runtime.block_on(async {
                    let listener = Listener::bind(
                        ([127, 0, 0, 1], 0).into(),
                        Arc::clone(&listens),
                        Arc::clone(&aggregator),
                        metrics,
                        clock,
                    );
                    let listener = Arc::new(listener.expect("a port"));
                    let port = listener.local_addr().expect("its port").port();
                    let gathers = tokio::spawn(Arc::clone(&listener).run());
                    let judges = tokio::spawn(Arc::clone(&aggregator).run(clock));
                    let begin = clock.elapsed();
                    let uplinks = Uplinks::start(Parts {
                        aggregator: Arc::clone(&replica),
                        config: DialConfig {
                            aggregators: vec![Remote { host: "127.0.0.1".into(), port }],
                            name: Some("localhost".to_owned()),
                            tls: UplinkTls {
                                ca: dir.path().into(),
                                cert: dir.path().into(),
                                key: dir.path().into(),
                            },
                        },
                        certificates: Arc::clone(&dials),
                        metrics,
                        clock,
                    });
                    // Until all of it was taken in, a replica behaves as braked.
                    while cells[0].is_braked() {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                    let spent = clock.elapsed() - begin;
                    uplinks.drain().await;
                    judges.abort();
                    listener.close().await;
                    gathers.await.expect("it ends when its socket is closed");
                    spent
                });
            }
            spent
        });
    });
    group.finish();
}

criterion_group!(benches, full_state);
criterion_main!(benches);
