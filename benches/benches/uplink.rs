//! How many records an aggregator takes in from one replica: frames read, records merged, counted
//! and acknowledged; without QUIC. And how many a replica writes.

use std::hint::black_box;
use std::sync::Arc;

use benches::evidence::{identity, now, observe, snapshot};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use gateway::aggregate::{Aggregator, Role, Settings};
use gateway::metrics::Metrics;
use gateway::uplink::{AggregatorUplink, ReplicaUplink};
use proto::uplink::{
    Conn, FORMATS, Frame, Key, Line, Observed, Reading, Record, Rivals, Seat, Stamp, Writer,
    encode, encode_hello,
};

/// Records of one batch.
const BATCH: u32 = 1_000;
const INCARNATION: u32 = 77;

/// Writes what a replica would, in strides over all members.
struct Peer {
    members: u32,
    number: u32,
    n: u64,
    seq: u64,
}

impl Peer {
    /// A batch of changes of members that are known: a third each connects, takes and applies.
    fn batch(&mut self) -> Vec<u8> {
        let mut out = Vec::with_capacity(128 << 10);
        self.seq += 1;
        let mut writer = Writer::new(self.seq, &mut out);
        for _ in 0..BATCH {
            self.number = (self.number + 7_919) % self.members;
            self.n += 2;
            let epoch_ms = 1_700_000_000_000 + self.n;
            let stamp = |n| Stamp { epoch_ms, incarnation: INCARNATION, n };
            let observed = Observed { seat: Seat::Stage(0), foreign: false, healthy: Some(true) };
            let took = self.n.is_multiple_of(3);
            // A replica sends all that it knows of a member, whatever changed.
            let record = Record {
                applied: took.then(|| stamp(self.n + 1)),
                arm: Some((stamp(self.n + 1), if took { Reading::To } else { Reading::From })),
                conn: Some((stamp(self.n), Conn::Open)),
                observed: Some((stamp(self.n + 1), observed)),
                heard_ms: epoch_ms,
                first_to_ms: took.then_some(epoch_ms),
                ..Record::default()
            };
            let line = Line {
                key: 0,
                identity: identity(self.number).0,
                uid: self.number + 1,
                no_bucket: false,
                record,
                texts: None,
                rivals: Rivals::default(),
            };
            writer.push(&line, &[]);
        }
        writer.finish();
        out
    }
}

fn ingest(criterion: &mut Criterion) {
    for members in [20_000, 500_000] {
        let settings = Settings { role: Role::Aggregator, ..Settings::default() };
        let aggregator = Aggregator::in_memory(settings, Metrics::leak(), now(0));
        let cells = aggregator.handle_head(now(0), &snapshot(), "c1");
        let mut uplink = AggregatorUplink::new(Arc::clone(&aggregator), None, now(1));
        let mut hello = Vec::new();
        encode_hello("edge-1", INCARNATION, 1, 1, &mut hello);
        let candidate = cells[0].key().candidate.0;
        let rollout = &cells[0].key().rollout;
        let key = Key { index: 0, rollout, origin: None, candidate: &candidate };
        encode(&Frame::Key(key), FORMATS[0], &mut hello);
        encode(&Frame::SyncBegin, FORMATS[0], &mut hello);
        assert!(uplink.handle_bytes(now(1), &hello).is_ok(), "the replica is let in");
        let mut peer = Peer { members, number: 0, n: 0, seq: 0 };
        let mut out = Vec::new();
        let mut take = |bytes: &[u8]| {
            let taken = uplink.handle_bytes(now(1), bytes);
            assert!(taken.is_ok(), "{taken:?}");
            out.clear();
            black_box(uplink.poll_transmit(now(1), &mut out));
        };
        while cells[0].len() < members as usize {
            take(&peer.batch());
        }
        take(&{
            let mut end = Vec::new();
            peer.seq += 1;
            encode(&Frame::SyncEnd { seq: peer.seq }, FORMATS[0], &mut end);
            end
        });
        let mut group = criterion.benchmark_group(format!("uplink, {members} members"));
        group.throughput(Throughput::Elements(u64::from(BATCH)));
        group.bench_function("take_in", |bencher| {
            bencher.iter_batched(|| peer.batch(), |bytes| take(&bytes), BatchSize::PerIteration);
        });
        group.finish();
        uplink.handle_disconnected(now(1));
    }
}

/// A full state is written, and taken in by the other end.
fn sync(criterion: &mut Criterion) {
    let members = 20_000;
    let settings = Settings { role: Role::Replica { uplinks: 1 }, ..Settings::default() };
    let replica = Aggregator::in_memory(settings, Metrics::leak(), now(0));
    let cells = replica.handle_head(now(0), &snapshot(), "c1");
    for number in 0..members {
        observe(&replica, &cells[0], number, now(1));
    }
    let mut group = criterion.benchmark_group(format!("uplink, {members} members"));
    group.throughput(Throughput::Elements(u64::from(members)));
    group.bench_function("full_state", |bencher| {
        bencher.iter(|| {
            let settings = Settings { role: Role::Aggregator, ..Settings::default() };
            let aggregator = Aggregator::in_memory(settings, Metrics::leak(), now(2));
            let mut there = AggregatorUplink::new(Arc::clone(&aggregator), None, now(2));
            let mut here = ReplicaUplink::new(Arc::clone(&replica), 0);
            here.handle_connected(now(2));
            let (mut up, mut down) = (Vec::new(), Vec::new());
            while !here.is_synced() {
                up.clear();
                here.poll_transmit(now(2), &mut up);
                assert!(there.handle_bytes(now(2), &up).is_ok());
                down.clear();
                there.poll_transmit(now(2), &mut down);
                assert!(here.handle_bytes(now(2), &down).is_ok());
            }
            here.handle_disconnected(now(2));
            there.handle_disconnected(now(2));
            black_box(aggregator);
        });
    });
    group.finish();
}

criterion_group!(benches, ingest, sync);
criterion_main!(benches);
