//! Starts a gateway on a free port and speaks to it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gateway::aggregate::{self, Aggregator};
use gateway::clock::{Clock, Now, Seconds};
use gateway::config::{DrainConfig, LinkConfig};
use gateway::drain::Phase;
use gateway::listen::{self, Front, Parts};
use gateway::metrics::Metrics;
use gateway::serve::{HeadMeta, Links, Server, Settings, encode_offer};
use gateway::tls::Tls;
use gateway::tokens::Credentials;
use render::artefact::Artefact;
use render::snapshot::Snapshot;
use render::snapshot::served::{Served, ServedTier};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub(crate) mod message;
pub(crate) mod raw;

/// Longest that anything here waits for something that has to happen: a failure, not a delay.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// How a test's gateway differs from the default.
pub(crate) struct Setup {
    pub(crate) limits: LinkConfig,
    pub(crate) drain: DrainConfig,
    pub(crate) credentials: Credentials,
    pub(crate) tls: Option<Tls>,
    pub(crate) instance: Option<Box<str>>,
    pub(crate) store: Option<PathBuf>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            limits: LinkConfig::default(),
            drain: DrainConfig { delay: Duration::ZERO, over: Duration::from_millis(50) },
            credentials: Credentials::OPEN,
            tls: None,
            instance: None,
            store: None,
        }
    }
}

impl Setup {
    /// At most `bytes` of a message.
    pub(crate) fn message_bytes(bytes: usize) -> Self {
        let limits = LinkConfig { max_message_bytes: bytes, ..LinkConfig::default() };
        Self { limits, ..Self::default() }
    }

    /// `rate` new links a second, `burst` at once, and at most `live`.
    pub(crate) fn admission(rate: u32, burst: u32, live: usize) -> Self {
        let limits = LinkConfig {
            admission_rate: NonZeroU32::new(rate).unwrap(),
            admission_burst: NonZeroU32::new(burst).unwrap(),
            max_links: NonZeroUsize::new(live).unwrap(),
            ..LinkConfig::default()
        };
        Self { limits, ..Self::default() }
    }

    /// Starts it, serving [`estate`] of version 1.
    pub(crate) fn start(self) -> Gateway {
        let metrics = Metrics::leak();
        let snapshot = snapshot(&estate(1));
        let clock = Clock::start();
        let (meta, settings) = (HeadMeta::default(), Settings::default());
        let evidence = aggregate::Settings { store: self.store, ..aggregate::Settings::default() };
        let aggregator = Aggregator::open(evidence, metrics, clock.now()).unwrap();
        let server = Server::new(snapshot, meta, metrics, settings, aggregator, clock.now());
        let server = Arc::new(server);
        let front = Arc::new(Front::new(Parts {
            server: Arc::clone(&server),
            links: Arc::new(Links::new(u32::try_from(self.limits.max_links.get()).unwrap())),
            limits: self.limits,
            credentials: Arc::new(self.credentials),
            tls: self.tls.map(Arc::new),
            instance: self.instance,
            metrics,
            clock,
        }));
        let listener = listen::bind(([127, 0, 0, 1], 0).into(), false).unwrap();
        let addr = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let run = tokio::spawn(listen::run(Arc::clone(&front), listener, self.drain, async move {
            let _ = stopped.await;
        }));
        Gateway { addr, server, front, metrics, clock, stop: Some(stop), run }
    }
}

/// A running gateway.
pub(crate) struct Gateway {
    pub(crate) addr: SocketAddr,
    pub(crate) server: Arc<Server>,
    pub(crate) front: Arc<Front>,
    metrics: &'static Metrics,
    clock: Clock,
    stop: Option<oneshot::Sender<()>>,
    pub(crate) run: JoinHandle<()>,
}

impl Gateway {
    /// With the default setup.
    pub(crate) fn start() -> Self {
        Setup::default().start()
    }

    /// What a Prometheus sample stands at, named as in the text format; 0 if it is not there.
    pub(crate) fn metric(&self, sample: &str) -> f64 {
        let text = self.metrics.render();
        text.lines()
            .find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '))
            .map_or(0.0, |value| value.parse().unwrap())
    }

    /// Waits until something is true. It has to become so by itself, soon.
    pub(crate) async fn until(&self, what: &str, mut is_true: impl FnMut(&Self) -> bool) {
        let waiting = async {
            while !is_true(self) {
                tokio::task::yield_now().await;
            }
        };
        assert!(tokio::time::timeout(PATIENCE, waiting).await.is_ok(), "never true: {what}");
    }

    /// As the sweep of some second.
    pub(crate) fn sweep(&self, now: Seconds) {
        self.front.sweep(Now { seconds: now, unix_ms: 1_800_000_000_000 });
    }

    /// As the tick of some second.
    pub(crate) fn tick(&self, seconds: Seconds) {
        self.front.handle_timeout(Now { seconds, unix_ms: 1_800_000_000_000 });
    }

    /// Puts another estate in force.
    pub(crate) fn install(&self, served: &Served) {
        let now = self.clock.now();
        self.server.install(snapshot(served), HeadMeta::default(), now);
    }

    /// As SIGTERM.
    pub(crate) fn stop(&mut self) {
        self.stop.take().unwrap().send(()).unwrap();
    }

    pub(crate) async fn reached(&self, phase: Phase) {
        self.until("the phase", |gateway| gateway.front.phase() >= phase).await;
    }
}

/// Tiers `shop/kafka` (role = kafka) and `shop/web` (role = web), and what others get; the
/// artefacts say `version`.
pub(crate) fn estate(version: u32) -> Served {
    let tier = |role: &str| ServedTier {
        environment: "production".into(),
        blueprint: "shop/base@1".into(),
        selector: BTreeMap::from([("role".to_owned(), role.to_owned())]),
        base: artefact(role, version),
        next: None,
    };
    Served {
        commit: "".into(),
        rendered_at: None,
        tiers: BTreeMap::from([
            ("shop/kafka".into(), tier("kafka")),
            ("shop/web".into(), tier("web")),
        ]),
        rollouts: BTreeMap::new(),
        unmatched: artefact("unmatched", 1),
    }
}

/// 4 kB of configuration for a role.
pub(crate) fn artefact(role: &str, version: u32) -> Artefact {
    Artefact::new(artefact_text(role, version).into_bytes()).unwrap()
}

/// Its text.
pub(crate) fn artefact_text(role: &str, version: u32) -> String {
    // Not in a comment at the top: that is no content.
    format!("x-{role}: {version}\n{}", "receivers: {otlp: {protocols: {grpc: {}}}}\n".repeat(90))
}

pub(crate) fn snapshot(served: &Served) -> Snapshot {
    render::snapshot::compile(served, encode_offer).unwrap()
}
