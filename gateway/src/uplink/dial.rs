//! A replica's connections: one to each aggregator, dialled again for as long as it takes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use quinn::{Connection, Endpoint, RecvStream, SendStream, VarInt};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::backoff::Backoff;
use super::tls::{Certificates, Dials};
use super::{ReplicaUplink, SILENCE_MAX, UplinkError};
use crate::aggregate::Aggregator;
use crate::clock::Clock;
use crate::config::{DialConfig, Remote};
use crate::metrics::Metrics;
use crate::metrics::family::GaugeCell;
use crate::peer_log::Escaped;

/// How long one address of an aggregator may take to answer before the next one is tried.
pub const CONNECT_MAX: Duration = Duration::from_secs(5);
/// How long the aggregators may take to take in what a drained replica still knows, and its Bye.
pub const BYE_MAX: Duration = Duration::from_secs(5);
/// Bytes read at once.
const READ_MAX: usize = 64 << 10;

/// What all connections of a replica share.
#[derive(Debug)]
pub struct Parts {
    /// Where evidence is kept.
    pub aggregator: Arc<Aggregator>,
    /// Whom to dial.
    pub config: DialConfig,
    /// What is shown.
    pub certificates: Arc<Certificates<Dials>>,
    /// Where everything is counted.
    pub metrics: &'static Metrics,
    /// The process's clock.
    pub clock: Clock,
}

/// All connections of a replica.
#[derive(Debug)]
pub struct Uplinks {
    tasks: Vec<JoinHandle<()>>,
    drain: watch::Sender<bool>,
}

/// One aggregator.
struct Dialler {
    parts: Arc<Parts>,
    remote: Remote,
    link: usize,
    drain: watch::Receiver<bool>,
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error(transparent)]
    Said(#[from] UplinkError),
    #[error("cannot connect: {0}")]
    Unreached(String),
    #[error("the connection is lost: {0}")]
    Lost(String),
    #[error("drained")]
    Drained,
}

impl Uplinks {
    /// Dials all of them, from now on.
    pub fn start(parts: Parts) -> Self {
        let parts = Arc::new(parts);
        let drain = watch::Sender::new(false);
        parts.metrics.uplink_connected.cell(&[]).set(0.0);
        parts.metrics.uplink_lag.cell(&[]).set(0.0);
        let remotes = parts.config.aggregators.clone();
        let dial = |(link, remote): (usize, Remote)| {
            let dialler =
                Dialler { parts: Arc::clone(&parts), remote, link, drain: drain.subscribe() };
            tokio::spawn(dialler.run())
        };
        let tasks = remotes.into_iter().enumerate().map(dial).collect();
        Self { tasks, drain }
    }

    /// Sends what is still to be sent, says Bye, and waits for both to be taken in, but no longer
    /// than [`BYE_MAX`].
    pub async fn drain(self) {
        self.drain.send_replace(true);
        let all = async {
            for task in self.tasks {
                if let Err(error) = task.await {
                    tracing::error!(%error, "an uplink ended before its time");
                }
            }
        };
        if timeout(BYE_MAX, all).await.is_err() {
            tracing::warn!("an aggregator did not take in the last evidence of this replica");
        }
    }
}

impl Dialler {
    async fn run(mut self) {
        let mut uplink = ReplicaUplink::new(Arc::clone(&self.parts.aggregator), self.link);
        let mut backoff = Backoff::default();
        // Said once, however often it is tried.
        let mut told = String::new();
        loop {
            let mut standing = Standing::new(self.parts.metrics.uplink_connected.cell(&[]));
            let ended = self.connect_and_converse(&mut uplink, &mut standing).await;
            if standing.lasted(self.parts.clock.elapsed()) {
                backoff.reset();
                told.clear();
            }
            drop(standing);
            let why = match ended {
                Ended::Drained => return,
                ended => ended.to_string(),
            };
            let aggregator = &self.remote;
            let shown = Escaped(&why);
            if why == told {
                tracing::debug!(%aggregator, why = %shown, "no uplink yet");
            } else {
                tracing::warn!(%aggregator, why = %shown, "no uplink: this gateway serves on, and tries again");
                told = why;
            }
            let wait = backoff.next_wait(fastrand::u32(..));
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                // Nobody is there to say Bye to.
                _ = self.drain.wait_for(|drain| *drain) => return,
            }
        }
    }

    async fn connect_and_converse(
        &self,
        uplink: &mut ReplicaUplink,
        standing: &mut Standing,
    ) -> Ended {
        let mut drain = self.drain.clone();
        let (endpoint, connection) = tokio::select! {
            connected = self.connect() => match connected {
                Ok(connected) => connected,
                Err(why) => return Ended::Unreached(why),
            },
            _ = drain.wait_for(|drain| *drain) => return Ended::Drained,
        };
        let ended = match connection.open_bi().await {
            Ok((send, recv)) => {
                let clock = self.parts.clock;
                uplink.handle_connected(clock.now());
                let ended = self.converse(uplink, send, recv, standing).await;
                uplink.handle_disconnected(clock.now());
                ended
            }
            Err(error) => Ended::Lost(super::in_full(&error)),
        };
        connection.close(VarInt::from_u32(0), b"");
        // So that the aggregator hears of it; if it does not, its silence tells.
        let _ = timeout(Duration::from_secs(1), endpoint.wait_idle()).await;
        ended
    }

    /// Tries every address that the name has now.
    async fn connect(&self) -> Result<(Endpoint, Connection), String> {
        let Remote { host, port } = &self.remote;
        let addresses: Vec<SocketAddr> = tokio::net::lookup_host((&**host, *port))
            .await
            .map_err(|error| format!("cannot resolve '{host}': {error}"))?
            .collect();
        let name = self.parts.config.name.as_deref().unwrap_or(host);
        let mut why = format!("'{host}' has no address");
        for address in addresses {
            match self.connect_to(address, name).await {
                Ok(connected) => return Ok(connected),
                Err(error) => why = error,
            }
        }
        Err(why)
    }

    async fn connect_to(
        &self,
        address: SocketAddr,
        name: &str,
    ) -> Result<(Endpoint, Connection), String> {
        let any: SocketAddr = match address {
            SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
            SocketAddr::V6(_) => ([0; 8], 0).into(),
        };
        let endpoint = Endpoint::client(any).map_err(|error| error.to_string())?;
        let config = self.parts.certificates.current().0.clone();
        let connecting = endpoint.connect_with(config, address, name);
        let connecting = connecting.map_err(|error| format!("{address}: {error}"))?;
        match timeout(CONNECT_MAX, connecting).await {
            Ok(Ok(connection)) => Ok((endpoint, connection)),
            Ok(Err(error)) => Err(format!("{address}: {error}")),
            Err(_) => Err(format!("{address}: no answer within {} s", CONNECT_MAX.as_secs())),
        }
    }

    async fn converse(
        &self,
        uplink: &mut ReplicaUplink,
        mut send: SendStream,
        mut recv: RecvStream,
        standing: &mut Standing,
    ) -> Ended {
        let Parts { aggregator, clock, .. } = &*self.parts;
        let mut drain = self.drain.clone();
        let (mut out, mut written) = (Vec::new(), 0);
        let mut heard = Ok(());
        loop {
            if let Err(ended) = heard {
                return ended;
            }
            if uplink.is_welcomed() && standing.begin(clock.elapsed()) {
                let aggregator = &self.remote;
                tracing::info!(%aggregator, "the uplink stands");
            }
            self.show_lag();
            let draining = *drain.borrow();
            let drained = draining && uplink.drain();
            if written == out.len() {
                out.clear();
                written = 0;
                uplink.poll_transmit(clock.now(), &mut out);
                if drained && out.is_empty() {
                    // What is finished is taken in before the connection is closed.
                    let _ = send.finish();
                    let _ = timeout(Duration::from_secs(1), send.stopped()).await;
                    return Ended::Drained;
                }
            }
            let due = uplink.poll_timeout(clock.now()).max(super::TICK_MIN);
            heard = tokio::select! {
                read = recv.read_chunk(READ_MAX, true) => match read {
                    Ok(Some(chunk)) => {
                        uplink.handle_bytes(clock.now(), &chunk.bytes).map_err(Ended::from)
                    }
                    Ok(None) => Err(Ended::Lost("the aggregator ended its stream".to_owned())),
                    Err(error) => Err(Ended::Lost(super::in_full(&error))),
                },
                wrote = send.write(&out[written..]), if written < out.len() => match wrote {
                    Ok(bytes) => {
                        written += bytes;
                        Ok(())
                    }
                    Err(error) => Err(Ended::Lost(super::in_full(&error))),
                },
                () = aggregator.uplink_woken(self.link), if written == out.len() => {
                    uplink.handle_timeout(clock.now()).map_err(Ended::from)
                }
                () = tokio::time::sleep(due) => {
                    uplink.handle_timeout(clock.now()).map_err(Ended::from)
                }
                _ = drain.changed(), if !draining => Ok(()),
            };
        }
    }

    /// What the aggregator that is furthest behind has not taken in.
    #[expect(clippy::cast_precision_loss, reason = "fewer records than 2^53")]
    fn show_lag(&self) {
        let Parts { aggregator, config, metrics, .. } = &*self.parts;
        let waiting = |link| aggregator.uplink_waiting(link);
        let most = (0..config.aggregators.len()).map(waiting).max().unwrap_or(0);
        metrics.uplink_lag.cell(&[]).set(most as f64);
    }
}

/// Counts one connection among those that stand, from its welcome to its end.
struct Standing {
    gauge: GaugeCell,
    since: Option<Duration>,
}

impl Standing {
    fn new(gauge: GaugeCell) -> Self {
        Self { gauge, since: None }
    }

    /// It stands. Whether it did not before.
    fn begin(&mut self, elapsed: Duration) -> bool {
        let new = self.since.is_none();
        if new {
            self.since = Some(elapsed);
            self.gauge.add(1.0);
        }
        new
    }

    /// Whether it stood long enough to say that dialling works.
    fn lasted(&self, elapsed: Duration) -> bool {
        self.since.is_some_and(|since| elapsed.saturating_sub(since) >= SILENCE_MAX)
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        if self.since.is_some() {
            self.gauge.add(-1.0);
        }
    }
}
