//! Hostile peers, on real sockets.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use proto::opamp as wire;
use serde::Serialize;
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

use crate::source;

/// Time until a peer that was thrown out comes again: it is as eager as it can be without being what
/// uses up the machine.
const AGAIN: Duration = Duration::from_secs(2);
/// A link that never reads asks so often at first, until no socket takes in any more, ... A thousand
/// of them are 10,000 messages a second: more would use up two processors by asking alone.
const ASKS_AT_FIRST: (u64, Duration) = (150, Duration::from_millis(100));
/// ... and then so often.
const ASKS: Duration = Duration::from_secs(1);
/// Time between two peers that come.
const SPREAD: Duration = Duration::from_micros(200);
/// Longest that a peer waits for an upgrade that it is due.
const UPGRADE_MAX: Duration = Duration::from_secs(10);

/// What a peer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Connects, and says nothing or half a request.
    HalfOpen,
    /// A link that asks all the time and never reads an answer.
    SlowReader,
    /// Sends noise: as a request, or as frames after a good upgrade.
    Garbage,
}

/// What the crowd did.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Tally {
    /// Connections that were opened.
    pub connects: u64,
    /// Connections that could not be opened.
    pub refused: u64,
    /// Connections that the gateway ended.
    pub thrown_out: u64,
    /// Peers that were there at once, at most.
    pub most: u64,
}

/// All of them, until they leave.
pub(super) struct Crowd {
    peers: JoinSet<()>,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    connects: AtomicU64,
    refused: AtomicU64,
    thrown_out: AtomicU64,
    present: AtomicU64,
    most: AtomicU64,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { connects, refused, thrown_out, most } = self;
        write!(f, "{most} at once, {connects} connects, {refused} refused, {thrown_out} thrown out")
    }
}

impl Crowd {
    /// Sends them all to one address; each comes again when it is thrown out.
    pub(super) fn gather(
        kinds: impl IntoIterator<Item = (Kind, u32)>,
        address: SocketAddr,
    ) -> Self {
        let counts = Arc::new(Counts::default());
        let mut peers = JoinSet::new();
        let all = kinds.into_iter().flat_map(|(kind, count)| (0..count).map(move |_| kind));
        for (number, kind) in (0_u32..).zip(all) {
            let counts = Arc::clone(&counts);
            peers.spawn(async move {
                tokio::time::sleep(SPREAD * number).await;
                loop {
                    be(kind, number, address, &counts).await;
                    tokio::time::sleep(AGAIN).await;
                }
            });
        }
        Self { peers, counts }
    }

    /// How many are connected.
    pub(super) fn present(&self) -> u64 {
        self.counts.present.load(Ordering::Relaxed)
    }

    /// All of them go.
    pub(super) async fn leave(mut self) -> Tally {
        self.peers.shutdown().await;
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let Counts { connects, refused, thrown_out, present: _, most } = &*self.counts;
        Tally {
            connects: read(connects),
            refused: read(refused),
            thrown_out: read(thrown_out),
            most: read(most),
        }
    }
}

/// Counts a peer as present while it lives.
struct Present<'c>(&'c Counts);

impl<'c> Present<'c> {
    fn new(counts: &'c Counts) -> Self {
        counts.connects.fetch_add(1, Ordering::Relaxed);
        let present = counts.present.fetch_add(1, Ordering::Relaxed) + 1;
        counts.most.fetch_max(present, Ordering::Relaxed);
        Self(counts)
    }
}

impl Drop for Present<'_> {
    fn drop(&mut self) {
        self.0.present.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One connection, until the gateway ends it.
async fn be(kind: Kind, number: u32, address: SocketAddr, counts: &Counts) {
    let Ok(stream) = connect(number, address).await else {
        counts.refused.fetch_add(1, Ordering::Relaxed);
        return;
    };
    let present = Present::new(counts);
    match kind {
        Kind::HalfOpen => half_open(stream, number).await,
        Kind::SlowReader => slow_reader(stream, number).await,
        Kind::Garbage => garbage(stream, number).await,
    }
    drop(present);
    counts.thrown_out.fetch_add(1, Ordering::Relaxed);
}

/// From an address of the crowd's own, so that ports suffice.
async fn connect(number: u32, address: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    // It does not matter how little it takes in at once: it never reads.
    socket.set_recv_buffer_size(4_096)?;
    let [.., low] = (number / 4_096).to_be_bytes();
    source::bind(SockRef::from(&socket), Ipv4Addr::new(127, 66, 6, low.max(1)).into())?;
    socket.connect(address).await
}

/// Every other one says nothing at all; the others say the beginning of a request.
async fn half_open(mut stream: TcpStream, number: u32) {
    if number.is_multiple_of(2)
        && stream.write_all(b"GET /v1/opamp HTTP/1.1\r\nHost: flood\r\nX-Slow: ").await.is_err()
    {
        return;
    }
    until_ended(&mut stream).await;
}

async fn until_ended(stream: &mut TcpStream) {
    let mut sink = [0; 512];
    while let Ok(1..) = stream.read(&mut sink).await {}
}

async fn slow_reader(mut stream: TcpStream, number: u32) {
    if upgrade(&mut stream).await.is_none() {
        return;
    }
    let mut uid = [0; 16];
    uid[..4].copy_from_slice(&number.to_be_bytes());
    uid[15] = 0x66;
    for sequence_num in 0.. {
        let message = wire::AgentToServer {
            instance_uid: Bytes::copy_from_slice(&uid),
            sequence_num,
            // ReportsStatus, AcceptsRemoteConfig, ReportsRemoteConfig
            capabilities: 0x1003,
            agent_description: (sequence_num == 0).then(wire::AgentDescription::default),
            // What it runs is never what it was offered, so each answer carries a configuration.
            remote_config_status: Some(wire::RemoteConfigStatus {
                last_remote_config_hash: Bytes::copy_from_slice(&sequence_num.to_be_bytes()),
                status: wire::RemoteConfigStatuses::Applied.into(),
                ..Default::default()
            }),
            ..Default::default()
        };
        if stream.write_all(&frame(&message.encode_to_vec())).await.is_err() {
            return;
        }
        let (first, often) = ASKS_AT_FIRST;
        tokio::time::sleep(if sequence_num < first { often } else { ASKS }).await;
    }
}

async fn garbage(mut stream: TcpStream, number: u32) {
    let mut noise = vec![0; 1_024];
    let mut random = fastrand::Rng::with_seed(u64::from(number));
    random.fill(&mut noise);
    // In turn: noise in place of a request; in place of frames; in a good frame.
    let noise = match number % 3 {
        0 => noise,
        kind => {
            if upgrade(&mut stream).await.is_none() {
                return;
            }
            if kind == 1 { noise } else { frame(&noise) }
        }
    };
    if stream.write_all(&noise).await.is_ok() {
        until_ended(&mut stream).await;
    }
}

/// A good upgrade, answered by 101.
async fn upgrade(stream: &mut TcpStream) -> Option<()> {
    const REQUEST: &[u8] = b"GET /v1/opamp HTTP/1.1\r\nHost: flood\r\nConnection: Upgrade\r\n\
        Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    let answer = async {
        stream.write_all(REQUEST).await.ok()?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.ok()?);
        }
        head.starts_with(b"HTTP/1.1 101").then_some(())
    };
    tokio::time::timeout(UPGRADE_MAX, answer).await.ok()?
}

/// A masked binary frame of one OpAMP message; the mask is all zero, which is one as good as another
/// here.
fn frame(message: &[u8]) -> Vec<u8> {
    let length = message.len() + 1;
    let mut frame = vec![0x82];
    match u8::try_from(length) {
        Ok(short @ ..126) => frame.push(0x80 | short),
        _ => {
            frame.push(0x80 | 126);
            frame.extend_from_slice(&u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes());
        }
    }
    frame.extend_from_slice(&[0; 4]);
    frame.push(0); // the header of OpAMP's WebSocket messages
    frame.extend_from_slice(message);
    frame
}
