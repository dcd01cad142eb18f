//! The status page: the whole picture at `/`, drawn here so that it is complete without a script
//! (observability.md, "Status page").
//!
//! [`picture`] is what it shows, [`view`] draws it with [`html`], [`assets`] are its style and script.
//! It is drawn at most once a second, however many look, on a thread that serves no collector.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};
use tokio::sync::Mutex;
use tokio::task::JoinError;

use super::Admin;
use crate::tokens::new::hex;

pub(super) mod assets;
mod bars;
mod card;
mod halted;
pub(super) mod html;
mod picture;
mod stages;
#[cfg(test)]
mod tests;
mod tiers;
mod view;
mod words;

pub use tiers::TIERS_MAX;
pub use view::{CARDS_MAX, REPLICAS_MAX};

use picture::{HeadFacts, LinkFacts, Picture, ReplicaFacts, TierFacts};

/// A page is shown again for this long before another is drawn.
pub const FRESH: Duration = Duration::from_secs(1);

/// Bytes of the largest page, whatever is served and whoever is halted.
pub const PAGE_BYTES_MAX: usize = 4 << 20;

/// What a page may load and do: nothing but our own style, script, icon and requests. Whatever
/// slipped through escaping would still not run.
pub(super) const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; \
     img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; \
     frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

/// The newest page.
#[derive(Default)]
pub struct Newest(Arc<Mutex<Option<Made>>>);

impl fmt::Debug for Newest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Newest(..)")
    }
}

impl Newest {
    /// The page, drawn with `draw` on a thread of its own unless it is [`FRESH`] at `now`. Whoever
    /// comes meanwhile waits for it, and whoever leaves meanwhile stops nothing: two are never drawn
    /// at one time.
    async fn get(
        &self,
        now: Duration,
        draw: impl FnOnce() -> view::Page + Send + 'static,
    ) -> Result<Made, JoinError> {
        let mut newest = Arc::clone(&self.0).lock_owned().await;
        if let Some(made) = &*newest
            && now.saturating_sub(made.at) < FRESH
        {
            return Ok(made.clone());
        }
        tokio::task::spawn_blocking(move || {
            let drawn = draw();
            let made = Made { at: now, tag: tag(&drawn), body: drawn.html.into() };
            *newest = Some(made.clone());
            made
        })
        .await
    }
}

/// A page as it is sent.
#[derive(Clone, Debug)]
struct Made {
    /// Since the process started.
    at: Duration,
    /// Equal for pages that differ in nothing but the time they were made at.
    tag: HeaderValue,
    body: Bytes,
}

/// `/` for browsers.
pub async fn page(admin: &Arc<Admin>, headers: &HeaderMap) -> Response {
    let drawn = {
        let admin = Arc::clone(admin);
        move || draw(&admin)
    };
    let made = match admin.page.get(admin.clock.elapsed(), drawn).await {
        Ok(made) => made,
        Err(error) => {
            tracing::error!(%error, "the status page was not drawn");
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        }
    };
    let known = made.tag.to_str().is_ok_and(|tag| knows(headers, tag));
    let mut answer = if known { StatusCode::NOT_MODIFIED.into_response() } else { sent(made.body) };
    answer.headers_mut().insert(header::ETAG, made.tag);
    answer
        .headers_mut()
        .insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    answer
}

/// `State` and headers, for the router.
pub async fn index(State(admin): State<Arc<Admin>>, headers: HeaderMap) -> Response {
    let mut answer = if wants_page(&headers) {
        page(&admin, &headers).await
    } else {
        super::index(&admin).into_response()
    };
    answer.headers_mut().insert(header::VARY, HeaderValue::from_static("accept"));
    answer
}

/// Whether `headers` are a browser's that looks for a page; programs say `*/*`, and get text.
pub(super) fn wants_page(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT);
    accept
        .and_then(|accept| accept.to_str().ok())
        .is_some_and(|accept| accept.contains("text/html"))
}

/// Whether whoever asks has what `tag` names.
fn knows(headers: &HeaderMap, tag: &str) -> bool {
    let weak = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
    headers
        .get_all(header::IF_NONE_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|known| weak(known) == weak(tag))
}

/// Page and policy of a document.
pub(super) fn sent(body: impl Into<Bytes>) -> Response {
    const OPENER: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        // Forms say where they come from, which `no-referrer` would forbid.
        (header::REFERRER_POLICY, "same-origin"),
        (OPENER, "same-origin"),
    ];
    (headers, body.into()).into_response()
}

fn tag(page: &view::Page) -> HeaderValue {
    let html = page.html.as_bytes();
    let mut hash = Sha256::new();
    hash.update(html.get(..page.made_at.start).unwrap_or_default());
    hash.update(html.get(page.made_at.end..).unwrap_or_default());
    HeaderValue::try_from(format!("W/\"{}\"", hex(&hash.finalize()[..16])))
        .unwrap_or_else(|_| HeaderValue::from_static("W/\"\""))
}

fn draw(admin: &Admin) -> view::Page {
    let now = admin.clock.now();
    let (head, counts) = (admin.server.head(), admin.server.tiers());
    let (reports, source) = (admin.aggregator.reports(), admin.status.report());
    let (settings, notices) = (admin.aggregator.settings(), admin.aggregator.notices());
    let rollouts = &head.snapshot.rollouts;
    let picture = Picture {
        unix_ms: now.unix_ms,
        now_ms: admin.aggregator.now_ms(now),
        head: HeadFacts {
            commit: &head.meta.commit,
            committed_unix_ms: head.meta.committed_unix_seconds.map(|s| s.saturating_mul(1_000)),
            loaded_unix_ms: head.meta.loaded_unix_ms,
            source: &source,
        },
        rollouts: rollouts.iter().map(|compiled| &*compiled.rollout.id).collect(),
        reports: &reports,
        tiers: head
            .snapshot
            .tiers
            .iter()
            .map(|tier| TierFacts {
                id: &tier.id,
                environment: &tier.environment,
                rollout: tier
                    .rollout
                    .and_then(|at| rollouts.get(at as usize))
                    .map(|compiled| &*compiled.rollout.id),
            })
            .collect(),
        counts: &counts,
        replica: ReplicaFacts {
            name: &settings.replica,
            role: settings.role,
            phase: admin.drain.phase(),
            agents: admin.server.agents() as u64,
            polling: admin.server.polling() as u64,
            links: admin.admission.as_ref().map(|admission| LinkFacts {
                live: admission.live().into(),
                max: admission.live_max().into(),
                rejected: admission.rejected(),
            }),
            store: settings.store.as_deref(),
            notices: &notices,
            expect_replicas: settings.expect_replicas,
        },
        signed_in: admin.tokens.load().required(),
    };
    view::page(&picture)
}
