//! `/api/v1/…`: what is served, and to whom. No effective configuration and no artefact's text is
//! ever shown: both may hold secrets.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use render::snapshot::{Offer, TierEntry};
use serde::{Deserialize, Serialize};

use super::Admin;
use render::rollout::evidence::Reading;
use render::rollout::words::moment;

use crate::serve::{CollectorRow, Cursor, Head, Owner, TierCount, arm_label, delivery_label};
use crate::source::status::Report;
use crate::tokens::new::hex;

/// Tiers and Rollouts on one page.
pub const PAGE_MAX: usize = 10_000;
/// Rows of a page when nobody says how many.
const PAGE_DEFAULT: usize = 100;

/// What an answer looks like when there is nothing to answer.
pub(super) type Refused = (StatusCode, Json<Problem>);

/// The body of a refusal.
#[derive(Debug, Serialize)]
pub struct Problem {
    /// In words.
    pub error: String,
}

/// Which page.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageQuery {
    limit: Option<usize>,
    cursor: Option<String>,
}

/// One page of rows.
#[derive(Debug, Serialize)]
pub struct Rows<T> {
    /// The rows.
    pub items: Vec<T>,
    /// The `cursor` of the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// The head in a few words.
#[derive(Debug, Serialize)]
pub struct HeadSummary {
    /// The commit; empty when nothing told it.
    pub commit: Box<str>,
    /// Hash of all that is served: replicas that agree on it serve every collector alike.
    pub digest: String,
    /// `estate`, `repo` or `snapshot`.
    pub source: Box<str>,
    /// When the commit was made, where the source says so.
    pub committed_at: Option<String>,
    /// When it was put in force here.
    pub loaded_at: String,
    /// Tiers with a selector.
    pub tiers: usize,
    /// Rollouts of these Tiers.
    pub rollouts: usize,
}

impl HeadSummary {
    /// Of the head that is served.
    pub fn of(head: &Head) -> Self {
        Self {
            commit: head.meta.commit.clone(),
            digest: hex(&head.snapshot.digest),
            source: head.meta.source.clone(),
            committed_at: head.meta.committed_unix_seconds.map(|s| moment(s * 1_000)),
            loaded_at: moment(head.meta.loaded_unix_ms),
            tiers: head.snapshot.tiers.len(),
            rollouts: head.snapshot.rollouts.len(),
        }
    }
}

/// The body of `/api/v1/head`.
#[derive(Debug, Serialize)]
pub struct HeadAnswer {
    /// What is served.
    #[serde(flatten)]
    pub head: HeadSummary,
    /// Counts the heads of this process that served something new, from 1.
    pub generation: u32,
    /// Distinct sets of attribute names among selectors: what a match costs.
    pub selector_shapes: usize,
    /// What the looks at the source came to.
    pub source_status: Report,
}

/// `/api/v1/head`.
pub async fn head(State(admin): State<Arc<Admin>>) -> Json<HeadAnswer> {
    let head = admin.server.head();
    Json(HeadAnswer {
        head: HeadSummary::of(&head),
        generation: head.generation,
        selector_shapes: head.snapshot.shapes(),
        source_status: admin.status.report(),
    })
}

/// An artefact by its identities.
#[derive(Debug, Serialize)]
pub struct ArtefactRow {
    content_hash: String,
    raw_hash: String,
    bytes: usize,
}

impl From<&Offer> for ArtefactRow {
    fn from(offer: &Offer) -> Self {
        Self {
            content_hash: offer.content.to_string(),
            raw_hash: hex(&offer.raw),
            bytes: offer.artefact_len,
        }
    }
}

/// How many collectors are in an arm and a state.
#[derive(Debug, Serialize)]
pub struct CellRow {
    arm: &'static str,
    status: &'static str,
    count: u64,
}

/// A Tier, what it is served, and who is there.
#[derive(Debug, Serialize)]
pub struct TierRow {
    id: Box<str>,
    environment: Box<str>,
    selector: BTreeMap<Box<str>, Box<str>>,
    artefact: ArtefactRow,
    #[serde(skip_serializing_if = "Option::is_none")]
    candidate: Option<ArtefactRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rollout: Option<Box<str>>,
    collectors: u64,
    cells: Vec<CellRow>,
}

/// The body of `/api/v1/tiers`.
#[derive(Debug, Serialize)]
pub struct TiersAnswer {
    #[serde(flatten)]
    rows: Rows<TierRow>,
    /// What a collector gets that no selector matches.
    unmatched: ArtefactRow,
    /// How many there are of those.
    unmatched_collectors: u64,
}

/// `/api/v1/tiers`: in byte order of their ids; `cursor` is the last id of the page before.
pub async fn tiers(
    State(admin): State<Arc<Admin>>,
    query: Result<Query<PageQuery>, QueryRejection>,
) -> Result<Json<TiersAnswer>, Refused> {
    let query = page(query)?;
    let head = admin.server.head();
    let counts = admin.server.tiers();
    let by_id: BTreeMap<Option<&str>, &TierCount> =
        counts.iter().map(|count| (count.tier.as_deref(), count)).collect();
    let rows = page_of(
        &head.snapshot.tiers,
        |tier| &tier.id,
        &query,
        |tier| tier_row(&head, tier, by_id.get(&Some(&*tier.id)).copied()),
    );
    Ok(Json(TiersAnswer {
        rows,
        unmatched: (&head.snapshot.unmatched).into(),
        unmatched_collectors: by_id.get(&None).map_or(0, |count| count.total()),
    }))
}

fn tier_row(head: &Head, tier: &TierEntry, count: Option<&TierCount>) -> TierRow {
    let rollout = tier.rollout.and_then(|rollout| head.snapshot.rollouts.get(rollout as usize));
    TierRow {
        id: tier.id.clone(),
        environment: tier.environment.clone(),
        selector: tier.selector.iter().cloned().collect(),
        artefact: (&tier.base).into(),
        candidate: tier.candidate.as_ref().map(|candidate| (&candidate.offer).into()),
        rollout: rollout.map(|compiled| compiled.rollout.id.clone()),
        collectors: count.map_or(0, TierCount::total),
        cells: count.map(cells).unwrap_or_default(),
    }
}

pub(super) fn cells(count: &TierCount) -> Vec<CellRow> {
    count
        .cells()
        .filter(|(_, _, count)| *count > 0)
        .map(|(arm, delivery, count)| CellRow {
            arm: arm_label(arm),
            status: delivery_label(delivery),
            count,
        })
        .collect()
}

/// One collector as its session remembers it.
#[derive(Debug, Serialize)]
pub struct CollectorAnswer {
    uid: String,
    transport: &'static str,
    described: bool,
    tier: Option<Box<str>>,
    rollout: Option<Box<str>>,
    arm: Option<&'static str>,
    /// What it runs, under a Rollout: `taking`, `to`, `from`, `other` or `unknown`.
    running: Option<&'static str>,
    no_bucket: bool,
    status: Option<&'static str>,
    /// First half of a content hash, as is `reported`.
    offered: Option<String>,
    reported: Option<String>,
    healthy: Option<bool>,
    capabilities: u64,
    sequence: u64,
    heard_seconds_ago: u32,
    attributes: BTreeMap<Box<str>, Box<str>>,
}

impl From<CollectorRow> for CollectorAnswer {
    fn from(row: CollectorRow) -> Self {
        Self {
            uid: row.uid.to_string(),
            transport: match row.owner {
                Owner::Link(_) => "ws",
                Owner::Http => "http",
            },
            described: row.described,
            tier: row.tier,
            rollout: row.rollout,
            arm: row.arm.map(arm_label),
            running: row.running.map(reading_label),
            no_bucket: row.no_bucket,
            status: row.delivery.map(delivery_label),
            offered: row.offered.map(|key| hex(key.as_bytes())),
            reported: row.reported.map(|key| hex(key.as_bytes())),
            healthy: row.healthy,
            capabilities: row.capabilities,
            sequence: row.sequence,
            heard_seconds_ago: row.heard_seconds_ago,
            attributes: row.attributes.into_iter().collect(),
        }
    }
}

fn reading_label(reading: Reading) -> &'static str {
    match reading {
        Reading::Taking => "taking",
        Reading::To => "to",
        Reading::From => "from",
        Reading::Other => "other",
        Reading::Unknown => "unknown",
    }
}

/// `/api/v1/collectors`: in an order that holds while nobody comes or goes.
pub async fn collectors(
    State(admin): State<Arc<Admin>>,
    query: Result<Query<PageQuery>, QueryRejection>,
) -> Result<Json<Rows<CollectorAnswer>>, Refused> {
    let query = page(query)?;
    let from = match &query.cursor {
        None => Cursor::default(),
        Some(cursor) => cursor.parse().map_err(|error| refuse(&error))?,
    };
    let limit = query.limit.unwrap_or(PAGE_DEFAULT);
    let page = admin.server.collectors(&*admin.links, admin.clock.now(), from, limit);
    Ok(Json(Rows {
        items: page.rows.into_iter().map(CollectorAnswer::from).collect(),
        next: page.next.map(|cursor| cursor.to_string()),
    }))
}

pub(super) fn page(query: Result<Query<PageQuery>, QueryRejection>) -> Result<PageQuery, Refused> {
    let Query(query) = query.map_err(|rejection| refuse(&rejection.body_text()))?;
    if query.limit == Some(0) {
        return Err(refuse(&"limit must be at least 1"));
    }
    Ok(query)
}

pub(super) fn refuse(why: &dyn Display) -> Refused {
    (StatusCode::BAD_REQUEST, Json(Problem { error: why.to_string() }))
}

/// The page of `sorted` after the id that the cursor names.
pub(super) fn page_of<T, R>(
    sorted: &[T],
    id: impl Fn(&T) -> &str,
    query: &PageQuery,
    row: impl Fn(&T) -> R,
) -> Rows<R> {
    let begin = match &query.cursor {
        None => 0,
        Some(cursor) => sorted.partition_point(|item| id(item) <= cursor.as_str()),
    };
    let limit = query.limit.unwrap_or(PAGE_DEFAULT).min(PAGE_MAX);
    let items = &sorted[begin..sorted.len().min(begin.saturating_add(limit))];
    let more = begin + items.len() < sorted.len();
    let next = items.last().filter(|_| more).map(|last| id(last).to_owned());
    Rows { items: items.iter().map(row).collect(), next }
}
