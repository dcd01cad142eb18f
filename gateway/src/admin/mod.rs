//! The operator's listener: health, metrics, API (serving.md decisions 1 and 15).
//!
//! [`guard`] decides who may ask; [`health`], [`scrape`], [`api`], [`rollouts`], [`events`] and
//! [`page`] answer; [`login`] lets a browser in, which [`sessions`] remembers; [`stall`] drops who
//! does not read. It has limits of its own and shares none with
//! collectors, so that it answers while they storm.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::{HeaderName, HeaderValue, header};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{get, post};
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::admission::Admission;
use crate::aggregate::Aggregator;
use crate::clock::Clock;
use crate::drain::Drain;
use crate::metrics::Metrics;
use crate::serve::{Pages, Server};
use crate::source::status::Status;

pub mod api;
pub mod events;
pub mod guard;
pub mod health;
pub mod login;
pub mod page;
pub mod rollouts;
pub mod scrape;
pub mod sessions;
pub mod stall;
pub mod tokens;

use events::Streams;
use page::Newest;
use sessions::Sessions;
use stall::{Impatient, WRITE_MAX};
use tokens::AdminTokens;

/// Connections at one time; further ones wait in the kernel's queue.
pub const CONNECTIONS_MAX: usize = 256;

/// Largest request head.
pub const HEAD_BYTES_MAX: usize = 16 << 10;

/// A connection that sends no whole request head for this long is closed: longer than the usual
/// scrape interval, so that scrapers keep theirs.
pub const IDLE_MAX: Duration = Duration::from_secs(75);

/// Wait after the kernel refused to give a socket.
const BACK_OFF: Duration = Duration::from_millis(100);

/// What the answers are made from.
pub struct Admin {
    /// Head and sessions.
    pub server: Arc<Server>,
    /// The links that `server` pages through.
    pub links: Arc<dyn Pages + Send + Sync>,
    /// Where the replica stands on its way out.
    pub drain: Drain,
    /// What is known of each Rollout.
    pub aggregator: Arc<Aggregator>,
    /// Who watches Rollouts.
    pub streams: Streams,
    /// The status page as it was last drawn.
    pub page: Newest,
    /// Browsers that signed in.
    pub sessions: Sessions,
    /// Who of the collectors may come in; `None` where none connect.
    pub admission: Option<Arc<Admission>>,
    /// What the looks at the source came to.
    pub status: Arc<Status>,
    /// Who may ask; swapped when the file changes.
    pub tokens: Arc<ArcSwap<AdminTokens>>,
    /// Names that a `Host` header may carry beside localhost and IP addresses, in lower case.
    pub hosts: Vec<String>,
    /// Everything that is counted.
    pub metrics: &'static Metrics,
    /// The process's clock.
    pub clock: Clock,
}

/// Every route, behind the guard.
pub fn router(admin: Arc<Admin>) -> Router {
    Router::new()
        .route("/", get(page::index))
        .route("/ui/{build}/{name}", get(page::assets::asset))
        .route(
            "/login",
            get(login::form)
                .post(login::sign_in)
                .layer(DefaultBodyLimit::max(login::FORM_BYTES_MAX)),
        )
        .route("/logout", post(login::sign_out))
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .route("/metrics", get(scrape::metrics))
        .route("/api/v1/head", get(api::head))
        .route("/api/v1/tiers", get(api::tiers))
        .route("/api/v1/rollouts", get(rollouts::list))
        .route("/api/v1/rollouts/{team}/{name}", get(rollouts::report))
        .route("/api/v1/rollouts/{team}/{name}/events", get(events::one))
        .route("/api/v1/rollouts/{team}/{name}/plan", get(rollouts::plan))
        .route("/api/v1/rollouts/{team}/{name}/bundle", get(rollouts::bundle))
        .route("/api/v1/events", get(events::all))
        .route("/api/v1/explain", get(rollouts::explain))
        .route("/api/v1/collectors", get(api::collectors))
        .layer(middleware::from_fn(harden))
        .layer(middleware::from_fn_with_state(Arc::clone(&admin), guard::guard))
        .with_state(admin)
}

/// Answers on `listener` until it is dropped.
pub async fn run(admin: Arc<Admin>, listener: TcpListener) {
    let router = router(admin);
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        // The semaphore is never closed.
        let Ok(permit) = Arc::clone(&connections).acquire_owned().await else { return };
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept for operators");
                tokio::time::sleep(BACK_OFF).await;
                continue;
            }
        };
        let service = FromPeer { peer, inner: TowerToHyperService::new(router.clone()) };
        tokio::spawn(async move {
            let served = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(IDLE_MAX)
                .max_buf_size(HEAD_BYTES_MAX)
                .serve_connection(TokioIo::new(Impatient::new(stream, WRITE_MAX)), service)
                .await;
            if let Err(error) = served {
                tracing::debug!(%error, "a connection of an operator ended early");
            }
            drop(permit);
        });
    }
}

/// The address that a request came from.
#[derive(Clone, Copy, Debug)]
pub struct Peer(IpAddr);

/// Tells handlers the [`Peer`].
struct FromPeer {
    peer: SocketAddr,
    inner: TowerToHyperService<Router>,
}

impl hyper::service::Service<hyper::Request<Incoming>> for FromPeer {
    type Response = <TowerToHyperService<Router> as hyper::service::Service<
        hyper::Request<Incoming>,
    >>::Response;
    type Error =
        <TowerToHyperService<Router> as hyper::service::Service<hyper::Request<Incoming>>>::Error;
    type Future =
        <TowerToHyperService<Router> as hyper::service::Service<hyper::Request<Incoming>>>::Future;

    fn call(&self, mut request: hyper::Request<Incoming>) -> Self::Future {
        request.extensions_mut().insert(Peer(self.peer.ip()));
        self.inner.call(request)
    }
}

/// `/` for programs: what there is to ask.
fn index(admin: &Admin) -> String {
    let head = admin.server.head();
    format!(
        "Tidegate {}\nserving {} at commit {}\n\n\
         /                    this list, and for browsers the status page\n\
         /healthz             200 while the process lives\n\
         /readyz              200 while collectors should come here, and why not\n\
         /metrics             Prometheus\n\
         /api/v1/head         what is served, and the source it comes from\n\
         /api/v1/tiers        Tiers, their artefacts and their collectors\n\
         /api/v1/rollouts     Rollouts, their verdicts, and where their members stand\n\
         /api/v1/rollouts/TEAM/NAME  one of them: report; below it /events, /plan, /bundle\n\
         /api/v1/events       every Rollout as it changes (server-sent events)\n\
         /api/v1/explain      where attributes lead, and why (?service.name=...&host.name=...)\n\
         /api/v1/collectors   who is connected, page by page (?limit=N&cursor=C)\n",
        env!("CARGO_PKG_VERSION"),
        admin.status.place(),
        if head.meta.commit.is_empty() { "(unknown)" } else { &head.meta.commit },
    )
}

/// Nothing here is meant to be cached, framed, loaded by pages of others, or guessed about, unless
/// the answer says otherwise.
async fn harden(request: Request, next: Next) -> Response {
    const FOR_US: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
    let mut response = next.run(request).await;
    let headers: [(HeaderName, &'static str); 6] = [
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
        (FOR_US, "same-origin"),
    ];
    for (name, value) in headers {
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}
