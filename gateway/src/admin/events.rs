//! Rollouts as they change, as server-sent events: `/api/v1/events` for all of them,
//! `/api/v1/rollouts/{team}/{name}/events` for one.
//!
//! `event: report` carries a whole [`RolloutReport`], on connect and after each change, or with
//! `?brief=true` only its id and verdict;
//! `event: gone` the id of a Rollout that left head; `event: end` is the last word of a gateway
//! that drains. Comments keep the connection alive. A reader that falls behind misses states in
//! between, never the newest one.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use render::rollout::report::RolloutReport;
use serde::Deserialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{MissedTickBehavior, interval};

use super::Admin;
use super::api::{Problem, refuse};
use super::rollouts::unknown;
use crate::aggregate::tells_the_same;
use crate::drain::Phase;

/// Streams at one time; further ones are refused with 503. A quarter of the connections, so that
/// watchers never keep a scrape out.
pub const STREAMS_MAX: usize = 64;

/// Time between two comments on a stream. Proxies close what is silent for 60 s.
pub const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// How long a client is told to wait before it connects again.
const RETRY: &str = "retry: 2000\n\n";

/// What all streams share.
#[derive(Debug)]
pub struct Streams {
    permits: Arc<Semaphore>,
    /// The newest report of each Rollout as an event, made once for all streams.
    encoded: Mutex<BTreeMap<Box<str>, Encoded>>,
}

/// A report and the event that carries it.
type Encoded = (Arc<RolloutReport>, Bytes);

impl Default for Streams {
    fn default() -> Self {
        Self { permits: Arc::new(Semaphore::new(STREAMS_MAX)), encoded: Mutex::default() }
    }
}

impl Streams {
    fn encode(&self, id: &str, report: &Arc<RolloutReport>) -> Result<Bytes, serde_json::Error> {
        let mut encoded = self.encoded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, event)) = encoded.get(id)
            && Arc::ptr_eq(known, report)
        {
            return Ok(event.clone());
        }
        let event = event("report", &serde_json::to_string(&**report)?);
        encoded.insert(id.into(), (Arc::clone(report), event.clone()));
        Ok(event)
    }

    /// Gives back what the last reader needed.
    fn handle_ended(&self, permit: OwnedSemaphorePermit) {
        drop(permit);
        if self.permits.available_permits() == STREAMS_MAX {
            self.encoded.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
    }
}

/// `data` must be one line.
fn event(name: &str, data: &str) -> Bytes {
    format!("event: {name}\ndata: {data}\n\n").into()
}

/// How much of each report.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventsQuery {
    /// Only `{"rollout": ID, "verdict": KIND}`.
    #[serde(default)]
    brief: bool,
}

/// `/api/v1/events`.
pub async fn all(
    State(admin): State<Arc<Admin>>,
    query: Result<Query<EventsQuery>, QueryRejection>,
) -> Response {
    match query {
        Ok(Query(query)) => open(admin, None, query),
        Err(rejection) => refuse(&rejection.body_text()).into_response(),
    }
}

/// `/api/v1/rollouts/{team}/{name}/events`.
pub async fn one(
    State(admin): State<Arc<Admin>>,
    Path((team, name)): Path<(String, String)>,
    query: Result<Query<EventsQuery>, QueryRejection>,
) -> Response {
    let query = match query {
        Ok(Query(query)) => query,
        Err(rejection) => return refuse(&rejection.body_text()).into_response(),
    };
    let id = format!("{team}/{name}");
    match unknown(&admin, &id) {
        Some(refused) => refused.into_response(),
        None => open(admin, Some(id), query),
    }
}

fn open(admin: Arc<Admin>, only: Option<String>, query: EventsQuery) -> Response {
    let refused = |error: String| {
        let retry = [(header::RETRY_AFTER, "5")];
        (StatusCode::SERVICE_UNAVAILABLE, retry, Json(Problem { error })).into_response()
    };
    if admin.drain.phase() != Phase::Serving {
        return refused("this gateway is draining; ask another replica".to_owned());
    }
    let Ok(permit) = Arc::clone(&admin.streams.permits).try_acquire_owned() else {
        return refused(format!("{STREAMS_MAX} streams are open already; try again later"));
    };
    // One frame waits while another is written: what comes later is seen when it is its turn.
    let (frames, body) = mpsc::channel(1);
    tokio::spawn(async move {
        feed(&admin, only.as_deref(), query, &frames).await;
        admin.streams.handle_ended(permit);
    });
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (X_ACCEL_BUFFERING, "no")];
    (headers, Body::new(Frames(body))).into_response()
}

/// Asks nginx not to hold events back.
const X_ACCEL_BUFFERING: header::HeaderName = header::HeaderName::from_static("x-accel-buffering");

/// Writes until the reader goes, the Rollout goes, or the gateway does.
async fn feed(admin: &Admin, only: Option<&str>, query: EventsQuery, frames: &mpsc::Sender<Bytes>) {
    let mut changes = admin.aggregator.changes();
    let mut told = BTreeMap::new();
    let mut keep_alive = interval(KEEP_ALIVE);
    keep_alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
    keep_alive.reset();
    if frames.send(RETRY.into()).await.is_err() {
        return;
    }
    loop {
        changes.mark_unchanged();
        let reports = admin.aggregator.reports();
        let news = news(&mut told, &reports, only);
        // Reports are only looked up again once these are taken, so a slow reader skips states.
        drop(reports);
        for piece in news {
            let frame = match &piece {
                News::Report(id, report) if query.brief => {
                    let kind = report.verdict.kind.label();
                    let brief = serde_json::json!({ "rollout": &**id, "verdict": kind });
                    event("report", &brief.to_string())
                }
                News::Report(id, report) => match admin.streams.encode(id, report) {
                    Ok(frame) => frame,
                    Err(error) => {
                        tracing::error!(%error, rollout = &**id, "a report cannot be encoded");
                        return;
                    }
                },
                News::Gone(id) => event("gone", &serde_json::Value::from(&**id).to_string()),
            };
            if frames.send(frame).await.is_err() {
                return;
            }
            if only.is_some() && matches!(piece, News::Gone(_)) {
                return;
            }
        }
        let frame = tokio::select! {
            changed = changes.changed() => match changed {
                Ok(()) => continue,
                Err(_) => return,
            },
            () = admin.drain.reached(Phase::Leaving) => {
                // Whether or not it is read, this was the last word.
                let _ = frames.send(event("end", "\"draining\"")).await;
                return;
            }
            () = frames.closed() => return,
            _ = keep_alive.tick() => Bytes::from_static(b":\n\n"),
        };
        if frames.send(frame).await.is_err() {
            return;
        }
    }
}

/// What a stream has not told yet.
#[derive(Debug)]
enum News {
    Report(Box<str>, Arc<RolloutReport>),
    Gone(Box<str>),
}

/// What differs between `told` and `reports`, which it becomes.
fn news(
    told: &mut BTreeMap<Box<str>, Arc<RolloutReport>>,
    reports: &BTreeMap<Box<str>, Arc<RolloutReport>>,
    only: Option<&str>,
) -> Vec<News> {
    let mut news = Vec::new();
    told.retain(|id, _| {
        let stays = reports.contains_key(id);
        if !stays {
            news.push(News::Gone(id.clone()));
        }
        stays
    });
    for (id, report) in reports {
        if only.is_some_and(|only| only != &**id) {
            continue;
        }
        if told
            .get(id)
            .is_some_and(|told| Arc::ptr_eq(told, report) || tells_the_same(told, report))
        {
            continue;
        }
        told.insert(id.clone(), Arc::clone(report));
        news.push(News::Report(id.clone(), Arc::clone(report)));
    }
    news
}

/// The body of a stream.
#[derive(Debug)]
struct Frames(mpsc::Receiver<Bytes>);

impl hyper::body::Body for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.get_mut().0.poll_recv(cx).map(|frame| frame.map(|bytes| Ok(Frame::data(bytes))))
    }
}
