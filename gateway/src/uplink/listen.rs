//! Where replicas connect: QUIC, a certificate from each, one stream each.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use proto::uplink::{Decoder, FORMATS, Frame, encode};
use quinn::{
    Connection, ConnectionId, ConnectionIdGenerator, Endpoint, EndpointConfig, Incoming,
    RecvStream, SendStream, VarInt,
};
use tokio::time::timeout;

use super::meter::Meter;
use super::room::{Room, Rooms};
use super::tls::{Certificates, Listens, Shown};
use super::{AggregatorUplink, UplinkError};
use crate::aggregate::{Aggregator, Durable, Ticket};
use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::metrics::labels::UplinkRefused;
use crate::peer_log::Escaped;

/// From the first packet to the last byte of Hello.
pub const GREETING_MAX: Duration = Duration::from_secs(10);
/// Bytes of a stream before its first frame is whole; a Hello is much shorter.
pub const HELLO_BYTES_MAX: usize = 4 << 10;
/// Handshakes that wait to be looked at; QUIC refuses more.
pub const INCOMING_MAX: usize = 1_024;
/// How long a peer may take to read why it is refused.
const LAST_WORD: Duration = Duration::from_secs(1);
/// Bytes read at once.
const READ_MAX: usize = 256 << 10;

/// Why QUIC was told to close.
mod code {
    /// As it should be.
    pub(super) const DONE: u32 = 0;
    /// The stream says why.
    pub(super) const REFUSED: u32 = 1;
    /// The aggregator ends.
    pub(super) const ENDS: u32 = 2;
}

/// The aggregator's socket.
#[derive(Debug)]
pub struct Listener {
    endpoint: Endpoint,
    certificates: Arc<Certificates<Listens>>,
    aggregator: Arc<Aggregator>,
    rooms: Arc<Rooms>,
    metrics: &'static Metrics,
    clock: Clock,
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error(transparent)]
    Said(#[from] UplinkError),
    #[error("the connection is lost: {0}")]
    Lost(String),
    #[error("it sends more frames than {} a second", super::meter::FRAMES_PER_SECOND)]
    Floods,
}

impl Listener {
    /// Takes the socket. Nobody is answered before [`run`](Self::run).
    ///
    /// # Errors
    /// The operating system refuses it.
    pub fn bind(
        addr: SocketAddr,
        certificates: Arc<Certificates<Listens>>,
        aggregator: Arc<Aggregator>,
        metrics: &'static Metrics,
        clock: Clock,
    ) -> io::Result<Self> {
        let runtime = quinn::default_runtime().ok_or_else(|| io::Error::other("no runtime"))?;
        let socket = UdpSocket::bind(addr)?;
        let resets = certificates.current().resets(&place(socket.local_addr()?));
        let mut config = EndpointConfig::new(Arc::new(resets));
        config.cid_generator(|| Box::new(Names));
        let server = Some(server_config(&certificates));
        let endpoint = Endpoint::new(config, server, socket, runtime)?;
        metrics.uplink_replicas.cell(&[]).set(0.0);
        let rooms = Arc::default();
        Ok(Self { endpoint, certificates, aggregator, rooms, metrics, clock })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The operating system does not say.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.endpoint.local_addr()
    }

    /// The certificates were read again: the next handshake takes them.
    pub fn renew(&self) {
        self.endpoint.set_server_config(Some(server_config(&self.certificates)));
    }

    /// Takes replicas in until [`close`](Self::close).
    pub async fn run(self: Arc<Self>) {
        while let Some(incoming) = self.endpoint.accept().await {
            if !incoming.remote_address_validated() && incoming.may_retry() {
                // Whoever can be counted by its address has shown that it is there.
                if let Err(refused) = incoming.retry() {
                    refused.into_incoming().refuse();
                }
                continue;
            }
            let peer = incoming.remote_address();
            match self.rooms.enter(peer.ip()) {
                Some(room) => drop(tokio::spawn(Arc::clone(&self).greet(incoming, room))),
                None => {
                    self.refused(UplinkRefused::Busy, peer, "too many connections");
                    incoming.refuse();
                }
            }
        }
    }

    /// Tells every replica that this aggregator ends, and waits a little for it to be heard.
    pub async fn close(&self) {
        self.endpoint.close(VarInt::from_u32(code::ENDS), b"the aggregator ends");
        // Whoever did not hear it finds out by silence.
        let _ = timeout(LAST_WORD, self.endpoint.wait_idle()).await;
    }

    async fn greet(self: Arc<Self>, incoming: Incoming, _room: Room) {
        let peer = incoming.remote_address();
        let handshake = async {
            match incoming.accept() {
                Ok(connecting) => connecting.await,
                Err(error) => Err(error),
            }
        };
        let connection = match timeout(GREETING_MAX, handshake).await {
            Ok(Ok(connection)) => connection,
            Ok(Err(error)) => {
                return self.refused(UplinkRefused::Tls, peer, &format!("handshake: {error}"));
            }
            Err(_) => return self.refused(UplinkRefused::Silent, peer, "handshake: took too long"),
        };
        match timeout(GREETING_MAX, hear_hello(&connection)).await {
            Ok(Ok((mut send, recv, first))) => match self.certified(&connection, &first) {
                Ok(name) => {
                    self.serve(&connection, send, recv, &first, name).await;
                }
                Err((reason, why)) => {
                    self.refused(reason, peer, &why);
                    let mut out = Vec::new();
                    encode(&Frame::Refuse(&why), FORMATS[0], &mut out);
                    say_last(&mut send, &out).await;
                    connection.close(VarInt::from_u32(code::REFUSED), b"");
                }
            },
            Ok(Err(error)) => {
                self.refused(UplinkRefused::Unreadable, peer, &error);
                connection.close(VarInt::from_u32(code::REFUSED), b"no Hello");
            }
            Err(_) => {
                self.refused(UplinkRefused::Silent, peer, "no Hello in time");
                connection.close(VarInt::from_u32(code::REFUSED), b"no Hello in time");
            }
        }
    }

    /// The name in the first frame, if the certificate is for it.
    fn certified(
        &self,
        connection: &Connection,
        first: &[u8],
    ) -> Result<Box<str>, (UplinkRefused, String)> {
        let mut decoder = Decoder::default();
        decoder.push(first);
        let name = match decoder.next_frame(FORMATS[0]) {
            Ok(Some(Frame::Hello(hello))) => hello.name,
            Ok(_) => {
                return Err((UplinkRefused::Unreadable, "it does not begin with Hello".into()));
            }
            Err(error) => return Err((UplinkRefused::Unreadable, error.to_string())),
        };
        if Shown::of(connection).is_some_and(|shown| shown.covers(name)) {
            return Ok(name.into());
        }
        let why = format!(
            "it calls itself {}, which its certificate is not for; --instance-label must be a \
             DNS name in the certificate",
            Escaped(name)
        );
        Err((UplinkRefused::Name, why))
    }

    async fn serve(
        &self,
        connection: &Connection,
        mut send: SendStream,
        recv: RecvStream,
        first: &[u8],
        name: Box<str>,
    ) {
        let peer = connection.remote_address();
        let mut uplink = AggregatorUplink::new(
            Arc::clone(&self.aggregator),
            Some(name.clone()),
            self.clock.now(),
        );
        let replicas = self.metrics.uplink_replicas.cell(&[]);
        replicas.add(1.0);
        tracing::info!(replica = %Escaped(&name), %peer, "a replica connects");
        let (mut out, mut written) = (Vec::new(), 0);
        let ended =
            self.converse(&mut uplink, &mut send, recv, first, (&mut out, &mut written)).await;
        uplink.poll_transmit(self.clock.now(), &mut out);
        say_last(&mut send, &out[written..]).await;
        uplink.handle_disconnected(self.clock.now());
        replicas.add(-1.0);
        let replica = Escaped(&name);
        let reason = match &ended {
            Ended::Said(UplinkError::Bye) => {
                tracing::info!(%replica, %peer, "a replica was drained, and said Bye");
                return connection.close(VarInt::from_u32(code::DONE), b"Bye");
            }
            Ended::Said(UplinkError::FiledAnew) => {
                tracing::info!(%replica, %peer, "a replica is to connect anew");
                let why = ended.to_string();
                return connection.close(VarInt::from_u32(code::DONE), why.as_bytes());
            }
            Ended::Said(UplinkError::Superseded) | Ended::Lost(_) => None,
            Ended::Said(UplinkError::Silent) => Some(UplinkRefused::Silent),
            Ended::Said(UplinkError::Refuses(_) | UplinkError::Refused(_)) => {
                Some(UplinkRefused::Refused)
            }
            Ended::Said(UplinkError::Frame(_) | UplinkError::OutOfTurn(_)) => {
                Some(UplinkRefused::Unreadable)
            }
            Ended::Floods => Some(UplinkRefused::Flood),
        };
        if let Some(reason) = reason {
            self.metrics.uplink_refused.get(reason).increment(1);
        }
        if self.metrics.peer_log.allow(self.clock.seconds()) {
            let why = ended.to_string();
            tracing::warn!(%replica, %peer, why = %Escaped(&why), "a replica is gone");
        }
        connection.close(VarInt::from_u32(code::REFUSED), ended.to_string().as_bytes());
    }

    async fn converse(
        &self,
        uplink: &mut AggregatorUplink,
        send: &mut SendStream,
        mut recv: RecvStream,
        first: &[u8],
        (out, written): (&mut Vec<u8>, &mut usize),
    ) -> Ended {
        let mut meter = Meter::new(self.clock.elapsed());
        let mut halts = self.aggregator.halts();
        let mut committing: Option<Commit<'_>> = None;
        // What was read to find the name is the first thing that is told.
        let mut heard = uplink.handle_bytes(self.clock.now(), first).map_err(Ended::from);
        loop {
            if let Err(ended) = heard {
                return ended;
            }
            if *written == out.len() {
                out.clear();
                *written = 0;
                uplink.poll_transmit(self.clock.now(), out);
            }
            match uplink.poll_commit() {
                None => committing = None,
                Some(ticket) if committing.as_ref().is_some_and(|held| held.ticket == ticket) => {}
                Some(ticket) => {
                    let wait = Box::pin(self.aggregator.committed(ticket));
                    committing = Some(Commit { ticket, wait });
                }
            }
            let due = uplink.poll_timeout(self.clock.now()).max(super::TICK_MIN);
            heard = tokio::select! {
                read = recv.read_chunk(READ_MAX, true) => match read {
                    Ok(Some(chunk)) if meter.take(self.clock.elapsed(), &chunk.bytes) => {
                        uplink.handle_bytes(self.clock.now(), &chunk.bytes).map_err(Ended::from)
                    }
                    Ok(Some(_)) => Err(Ended::Floods),
                    Ok(None) => Err(Ended::Lost("its stream ended".to_owned())),
                    Err(error) => Err(Ended::Lost(super::in_full(&error))),
                },
                wrote = send.write(&out[*written..]), if *written < out.len() => match wrote {
                    Ok(bytes) => {
                        *written += bytes;
                        Ok(())
                    }
                    Err(error) => Err(Ended::Lost(super::in_full(&error))),
                },
                (ticket, durable) = committed(&mut committing) => {
                    committing = None;
                    uplink.handle_committed(ticket, durable);
                    Ok(())
                }
                // The sender lives in the aggregator, which lives in us.
                _ = halts.changed() => {
                    uplink.handle_timeout(self.clock.now()).map_err(Ended::from)
                }
                () = tokio::time::sleep(due) => {
                    uplink.handle_timeout(self.clock.now()).map_err(Ended::from)
                }
            };
        }
    }

    fn refused(&self, reason: UplinkRefused, peer: SocketAddr, why: &str) {
        self.metrics.uplink_refused.get(reason).increment(1);
        if self.metrics.peer_log.allow(self.clock.seconds()) {
            tracing::warn!(%peer, why = %Escaped(why), "a replica is refused");
        }
    }
}

/// Something that must be on the disk before it is acknowledged.
struct Commit<'a> {
    ticket: Ticket,
    wait: Pin<Box<dyn Future<Output = Durable> + Send + 'a>>,
}

/// Never resolves when there is none.
async fn committed(commit: &mut Option<Commit<'_>>) -> (Ticket, Durable) {
    match commit {
        Some(Commit { ticket, wait }) => (*ticket, wait.await),
        None => std::future::pending().await,
    }
}

/// What tells this aggregator from others with its certificate, and is the same after a crash: its
/// host (in Kubernetes its pod, which a StatefulSet names the same again) and its address there.
fn place(addr: SocketAddr) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{} {addr}", host.trim())
}

/// Names of connections: random, so that those of the process before are as good as any to be
/// answered with a reset.
#[derive(Debug)]
struct Names;

/// Bytes of a name.
const NAME_BYTES: usize = 8;

impl ConnectionIdGenerator for Names {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut name = [0; NAME_BYTES];
        // The provider of TLS; without randomness there is no connection to be named.
        if aws_lc_rs::rand::fill(&mut name).is_err() {
            name = fastrand::u64(..).to_le_bytes();
        }
        ConnectionId::new(&name)
    }

    fn cid_len(&self) -> usize {
        NAME_BYTES
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

fn server_config(certificates: &Certificates<Listens>) -> quinn::ServerConfig {
    let mut config = certificates.current().server.clone();
    config.max_incoming(INCOMING_MAX);
    config
}

/// The stream, and its bytes up to the end of the first frame at least.
async fn hear_hello(connection: &Connection) -> Result<(SendStream, RecvStream, Vec<u8>), String> {
    let (send, mut recv) = connection.accept_bi().await.map_err(|error| error.to_string())?;
    let mut first = Vec::new();
    loop {
        if let Some((length, rest)) = first.split_first_chunk::<4>() {
            let length = u32::from_le_bytes(*length) as usize;
            if length > HELLO_BYTES_MAX {
                return Err("it does not begin with Hello".to_owned());
            }
            if rest.len() >= length {
                return Ok((send, recv, first));
            }
        }
        match recv.read_chunk(HELLO_BYTES_MAX, true).await {
            Ok(Some(chunk)) => first.extend_from_slice(&chunk.bytes),
            Ok(None) => return Err("its stream ended".to_owned()),
            Err(error) => return Err(super::in_full(&error)),
        }
    }
}

/// Sends the last bytes of a stream, and waits a little until they are there.
async fn say_last(send: &mut SendStream, bytes: &[u8]) {
    let saying = async {
        send.write_all(bytes).await.map_err(|error| error.to_string())?;
        // It was not finished before.
        let _ = send.finish();
        send.stopped().await.map(drop).map_err(|error| error.to_string())
    };
    // A peer that does not listen misses nothing that it could use.
    if let Ok(Err(error)) = timeout(LAST_WORD, saying).await {
        tracing::debug!(%error, "the last word was not heard");
    }
}
