//! loadgen's collectors, on a thread of their own.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use loadgen::{Config, Report, RunError, Running, Transport};
use tokio::sync::oneshot;

use super::DrillError;
use super::certificates::Certificates;

/// Where WebSocket collectors come from.
pub(super) const WEBSOCKETS: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 2, 1));
/// Where polling collectors come from.
pub(super) const POLLERS: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 3, 1));
/// Between two messages of a collector.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// Until all have what the head says.
const SETTLE_MAX: Duration = Duration::from_secs(60);

/// Collectors that go on until they are told to leave.
pub(super) struct Collectors {
    settled: Option<oneshot::Receiver<bool>>,
    leave: oneshot::Sender<()>,
    thread: std::thread::JoinHandle<Result<Report, RunError>>,
}

impl Collectors {
    /// Starts so many, through the route.
    pub(super) fn start(
        count: u32,
        transport: Transport,
        route: SocketAddr,
        estate: &Path,
        certificates: Option<&Certificates>,
    ) -> Result<Self, DrillError> {
        let (scheme, source) = match (transport, certificates) {
            (Transport::Ws, None) => ("ws", WEBSOCKETS),
            (Transport::Ws, Some(_)) => ("wss", WEBSOCKETS),
            (Transport::Http, None) => ("http", POLLERS),
            (Transport::Http, Some(_)) => ("https", POLLERS),
        };
        let config = Config {
            transport: Some(transport),
            source: Some(source),
            ca: certificates.map(|made| made.authority.clone()),
            heartbeat: Some(HEARTBEAT),
            connect_rate: 200.0,
            timeout: SETTLE_MAX,
            allow_lost_links: true,
            ..Config::new(count, format!("{scheme}://{route}/v1/opamp"), estate)
        };
        let (settled_to, settled) = oneshot::channel();
        let (leave, leaving) = oneshot::channel();
        let thread =
            std::thread::Builder::new().name("collectors".to_owned()).spawn(move || {
                let runtime = tokio::runtime::Builder::new_multi_thread()
                    .worker_threads(1)
                    .enable_all()
                    .build()
                    .map_err(|error| RunError::Usage(error.to_string()))?;
                runtime.block_on(live(config, settled_to, leaving))
            })?;
        Ok(Self { settled: Some(settled), leave, thread })
    }

    /// Waits until all have what the head says.
    pub(super) async fn settled(&mut self) -> bool {
        match self.settled.take() {
            Some(settled) => settled.await.unwrap_or(false),
            None => true,
        }
    }

    /// All leave; what they found.
    pub(super) async fn finish(self) -> Result<Report, DrillError> {
        // Nobody listens any more when they could not start, which is in their result.
        let _ = self.leave.send(());
        let joined = tokio::task::spawn_blocking(move || self.thread.join()).await;
        match joined {
            Ok(Ok(report)) => Ok(report?),
            Ok(Err(_)) | Err(_) => {
                Err(DrillError::Cannot("the collectors' thread died".to_owned()))
            }
        }
    }
}

async fn live(
    config: Config,
    settled: oneshot::Sender<bool>,
    leaving: oneshot::Receiver<()>,
) -> Result<Report, RunError> {
    let mut running = Running::start(config).await?;
    let held = running.settled(SETTLE_MAX).await;
    // Nobody waits for it when the drill ended before.
    let _ = settled.send(held);
    let _ = leaving.await;
    // The newest revision is on its way to somebody who reconnects.
    running.settled(Duration::from_secs(10)).await;
    Ok(running.finish().await)
}
