//! `/healthz` and `/readyz`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;

use super::Admin;
use super::api::HeadSummary;
use crate::drain::Phase;
use crate::source::status::Report;

/// 200 as long as somebody is here to answer.
pub async fn healthz() -> &'static str {
    "ok\n"
}

/// The body of `/readyz`.
#[derive(Debug, Serialize)]
pub struct Readiness {
    /// Whether collectors should come here.
    pub ready: bool,
    /// `serving`, `leaving`, `draining` or `drained`.
    pub phase: &'static str,
    /// What is served. A source that fails does not make a replica unready: it goes on serving
    /// this, and `source` says why.
    pub head: HeadSummary,
    /// What the looks at the source came to.
    pub source: Report,
}

/// 200 while in service, 503 on the way out. A gateway that has no head does not listen at all.
pub async fn readyz(State(admin): State<Arc<Admin>>) -> (StatusCode, Json<Readiness>) {
    let phase = admin.drain.phase();
    let ready = phase == Phase::Serving;
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let body = Readiness {
        ready,
        phase: match phase {
            Phase::Serving => "serving",
            Phase::Leaving => "leaving",
            Phase::Draining => "draining",
            Phase::Drained => "drained",
        },
        head: HeadSummary::of(&admin.server.head()),
        source: admin.status.report(),
    };
    (status, Json(body))
}
