//! `/api/v1/rollouts…` and `/api/v1/explain`: how Rollouts stand, who would join, and why a
//! collector gets what it gets.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use render::rollout::bundle::Bundle;
use render::rollout::explain::{Explanation, explain as explain_attributes};
use render::rollout::plan::{Plan, Planner, label};
use render::rollout::report::{ProposalState, RolloutReport};
use render::snapshot::CompiledRollout;
use serde::Serialize;
use tokio::sync::Semaphore;

use super::Admin;
use super::api::{CellRow, PageQuery, Problem, Refused, Rows, cells, page, page_of, refuse};
use crate::serve::{Cursor, PAGE_MAX, TierCount};

/// Ids that a 404 names.
const KNOWN_MAX: usize = 50;

/// Attributes that `/api/v1/explain` takes.
pub const ATTRIBUTES_MAX: usize = 128;

/// Walks over all collectors at one time; further ones are refused with 503. One takes a thread
/// and, with a million collectors, a few seconds of it.
pub const PLANS_MAX: usize = 1;

static PLANS: Semaphore = Semaphore::const_new(PLANS_MAX);

/// `AcceptsRemoteConfig`: who lacks it is Foreign.
const ACCEPTS_REMOTE_CONFIG: u64 = 0x2;

/// A stage, as authored.
#[derive(Debug, Serialize)]
pub struct StageRow {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    r#match: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hosts: Option<HostsRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    percent: Option<u32>,
    soak_seconds: u64,
}

/// Hosts of a stage; how many, as there may be thousands.
#[derive(Debug, Serialize)]
pub struct HostsRow {
    attribute: String,
    values: usize,
}

/// A Rollout and where its Tier's collectors stand.
#[derive(Debug, Serialize)]
pub struct RolloutRow {
    id: Box<str>,
    tier: Box<str>,
    owner: Box<str>,
    from: Box<str>,
    to: Box<str>,
    stage: u32,
    stages: Vec<StageRow>,
    hold: bool,
    cells: Vec<CellRow>,
    /// What it comes to; `None` until it was judged once.
    verdict: Option<VerdictRow>,
}

/// A verdict in short; the report says the rest.
#[derive(Debug, Serialize)]
pub struct VerdictRow {
    kind: &'static str,
    why: String,
    seen: u64,
    /// On the candidate or taking it.
    to: u64,
    failed: u64,
    dark: u64,
    soaked_ms: u64,
    soak_ms: u64,
    braked: bool,
    proposal: Option<ProposalState>,
}

impl From<&RolloutReport> for VerdictRow {
    fn from(report: &RolloutReport) -> Self {
        let verdict = &report.verdict;
        Self {
            kind: verdict.kind.label(),
            why: verdict.why.clone(),
            seen: verdict.seen,
            to: report.tally.stages.iter().map(|counts| counts.to + counts.taking).sum(),
            failed: verdict.failed,
            dark: verdict.dark,
            soaked_ms: verdict.soaked_ms,
            soak_ms: report.terms.soak_ms,
            braked: report.braked_since_ms.is_some(),
            proposal: report.proposal.clone(),
        }
    }
}

/// `/api/v1/rollouts`: in byte order of their ids; `cursor` is the last id of the page before.
pub async fn list(
    State(admin): State<Arc<Admin>>,
    query: Result<Query<PageQuery>, QueryRejection>,
) -> Result<Json<Rows<RolloutRow>>, Refused> {
    let query = page(query)?;
    let head = admin.server.head();
    let counts = admin.server.tiers();
    let reports = admin.aggregator.reports();
    let by_id: BTreeMap<&str, &TierCount> =
        counts.iter().filter_map(|count| Some((count.tier.as_deref()?, count))).collect();
    let rows = page_of(
        &head.snapshot.rollouts,
        |compiled| &compiled.rollout.id,
        &query,
        |rollout| {
            let report = reports.get(&rollout.rollout.id);
            rollout_row(rollout, by_id.get(&*rollout.rollout.tier).copied(), report)
        },
    );
    Ok(Json(rows))
}

fn rollout_row(
    compiled: &CompiledRollout,
    count: Option<&TierCount>,
    report: Option<&Arc<RolloutReport>>,
) -> RolloutRow {
    let rollout = &compiled.rollout;
    let stages = rollout.stages.iter().map(|stage| StageRow {
        r#match: stage.cohort.matches.clone(),
        hosts: stage.cohort.hosts.as_ref().map(|hosts| HostsRow {
            attribute: hosts.attribute.clone(),
            values: hosts.values.len(),
        }),
        percent: Some(stage.cohort.percent).filter(|percent| *percent > 0),
        soak_seconds: stage.soak.as_secs(),
    });
    RolloutRow {
        id: rollout.id.clone(),
        tier: rollout.tier.clone(),
        owner: rollout.owner.clone(),
        from: rollout.from.clone(),
        to: rollout.to.clone(),
        stage: rollout.stage,
        stages: stages.collect(),
        hold: rollout.hold,
        cells: count.map(cells).unwrap_or_default(),
        verdict: report.map(|report| (&**report).into()),
    }
}

/// `/api/v1/rollouts/{team}/{name}`: the whole [`RolloutReport`].
pub async fn report(
    State(admin): State<Arc<Admin>>,
    Path((team, name)): Path<(String, String)>,
) -> Response {
    let id = format!("{team}/{name}");
    match admin.aggregator.reports().get(&*id) {
        Some(report) => Json(&**report).into_response(),
        None => match unknown(&admin, &id) {
            Some(refused) => refused.into_response(),
            None => not_judged(&id).into_response(),
        },
    }
}

/// `/api/v1/rollouts/{team}/{name}/bundle`: the evidence bundle, byte for byte as a proposal
/// would carry it now.
pub async fn bundle(
    State(admin): State<Arc<Admin>>,
    Path((team, name)): Path<(String, String)>,
) -> Response {
    let id = format!("{team}/{name}");
    let reports = admin.aggregator.reports();
    let Some(report) = reports.get(&*id) else {
        return match unknown(&admin, &id) {
            Some(refused) => refused.into_response(),
            None => not_judged(&id).into_response(),
        };
    };
    match Bundle::of(report).and_then(|bundle| bundle.to_canonical_json()) {
        Ok(bytes) => ([(header::CONTENT_TYPE, "application/json")], bytes).into_response(),
        Err(error) => {
            let problem = Problem { error: error.to_string() };
            (StatusCode::INTERNAL_SERVER_ERROR, Json(problem)).into_response()
        }
    }
}

/// There is no such Rollout, and these there are.
#[derive(Debug, Serialize)]
pub struct Unknown {
    error: String,
    /// Some of those there are, in byte order.
    known: Vec<Box<str>>,
    /// How many there are.
    total: usize,
}

/// The answer to a question about a Rollout that is not at head; `None` when it is.
pub(super) fn unknown(admin: &Admin, id: &str) -> Option<(StatusCode, Json<Unknown>)> {
    let head = admin.server.head();
    let rollouts = &head.snapshot.rollouts;
    let found = rollouts.binary_search_by(|compiled| (*compiled.rollout.id).cmp(id));
    if found.is_ok() {
        return None;
    }
    let known = rollouts.iter().take(KNOWN_MAX).map(|compiled| compiled.rollout.id.clone());
    let unknown = Unknown {
        error: format!("there is no Rollout {id:?} at this head"),
        known: known.collect(),
        total: rollouts.len(),
    };
    Some((StatusCode::NOT_FOUND, Json(unknown)))
}

fn not_judged(id: &str) -> Refused {
    let error = format!("the Rollout {id:?} is new here and not judged yet; ask again in a second");
    (StatusCode::SERVICE_UNAVAILABLE, Json(Problem { error }))
}

/// `/api/v1/rollouts/{team}/{name}/plan`: who would join at the next stage, of those connected
/// here.
pub async fn plan(
    State(admin): State<Arc<Admin>>,
    Path((team, name)): Path<(String, String)>,
) -> Response {
    let id = format!("{team}/{name}");
    if let Some(refused) = unknown(&admin, &id) {
        return refused.into_response();
    }
    let busy = |error: &str| {
        let problem = Problem { error: error.to_owned() };
        (StatusCode::SERVICE_UNAVAILABLE, Json(problem)).into_response()
    };
    let Ok(permit) = PLANS.try_acquire() else {
        return busy("another plan is being made; try again");
    };
    let made = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        live_plan(&admin, &id)
    });
    match made.await {
        Ok(Ok(Some(plan))) => Json(plan).into_response(),
        Ok(Ok(None)) => busy("the head changed in between; try again"),
        Ok(Err(problem)) => problem.into_response(),
        Err(error) => {
            tracing::error!(%error, "a plan was not made");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// `None` when the Rollout is not at head any more.
fn live_plan(admin: &Admin, id: &str) -> Result<Option<Plan>, Refused> {
    let head = admin.server.head();
    let found = head.snapshot.rollouts.iter().find(|compiled| &*compiled.rollout.id == id);
    let Some(compiled) = found else { return Ok(None) };
    let mut planner = Planner::new(&head.snapshot, compiled).map_err(|error| refuse(&error))?;
    let mut cursor = Cursor::default();
    loop {
        let page = admin.server.collectors(&*admin.links, admin.clock.now(), cursor, PAGE_MAX);
        for row in page.rows.iter().filter(|row| row.described) {
            let attributes = || row.attributes.iter().map(|(name, value)| (&**name, &**value));
            let foreign = row.capabilities & ACCEPTS_REMOTE_CONFIG == 0;
            let named = || label(attributes()).map_or_else(|| row.uid.to_string(), str::to_owned);
            planner.count(attributes(), foreign, named);
        }
        match page.next {
            Some(next) => cursor = next,
            None => return Ok(Some(planner.finish())),
        }
    }
}

/// `/api/v1/explain?attribute=value&…`: where a collector with these attributes is put at this
/// head, and why.
pub async fn explain(
    State(admin): State<Arc<Admin>>,
    query: Result<Query<Vec<(String, String)>>, QueryRejection>,
) -> Result<Json<Explanation>, Refused> {
    let Query(attributes) = query.map_err(|rejection| refuse(&rejection.body_text()))?;
    if attributes.is_empty() {
        return Err(refuse(&"name at least one attribute, as in ?service.name=otelcol"));
    }
    if attributes.len() > ATTRIBUTES_MAX {
        return Err(refuse(&format!("more than {ATTRIBUTES_MAX} attributes")));
    }
    let head = admin.server.head();
    let pairs = attributes.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let mut told = explain_attributes(&head.snapshot, pairs).map_err(|error| refuse(&error))?;
    told.commit = head.meta.commit.to_string();
    if let Some(place) = &mut told.rollout {
        let reports = admin.aggregator.reports();
        let report = reports.get(&*place.rollout);
        place.braked = report.map(|report| report.braked_since_ms.is_some());
    }
    Ok(Json(told))
}
