//! All Rollouts of a head on a line each, worst first.

use render::problem::printable;
use render::rollout::report::ProposalState;
use render::rollout::verdict::Kind;
use render::rollout::words::span;
use serde::Deserialize;
use serde_json::Value;

use super::client::{Client, ClientError, encoded};
use super::style::{Style, age, clean, columns};

/// Rollouts that are asked for at once.
const PAGE: usize = 1_000;

/// A row of `/api/v1/rollouts`, as far as it is shown.
#[derive(Clone, Debug, Deserialize)]
pub struct Row {
    /// `team/name`.
    pub id: String,
    tier: String,
    stage: u32,
    stages: Vec<serde::de::IgnoredAny>,
    verdict: Option<VerdictRow>,
}

#[derive(Clone, Debug, Deserialize)]
struct VerdictRow {
    kind: Kind,
    why: String,
    seen: u64,
    to: u64,
    failed: u64,
    dark: u64,
    soaked_ms: u64,
    soak_ms: u64,
    proposal: Option<ProposalState>,
}

#[derive(Deserialize)]
struct Page {
    items: Vec<Value>,
    next: Option<String>,
}

/// Every row, as the API says it, worst first.
///
/// # Errors
/// When a page cannot be had.
pub async fn fetch(client: &Client) -> Result<Vec<(Row, Value)>, ClientError> {
    let mut rows = Vec::new();
    let mut cursor = None;
    loop {
        let after = cursor.map_or(String::new(), |id: String| format!("&cursor={}", encoded(&id)));
        let page: Page = client.get(&format!("/api/v1/rollouts?limit={PAGE}{after}")).await?;
        for item in page.items {
            let row: Row = serde_json::from_value(item.clone())
                .map_err(|error| client.not_a_gateway(error.to_string()))?;
            rows.push((row, item));
        }
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    // Not judged yet is worse than well, and better than anything that was judged ill.
    let rank = |row: &Row| row.verdict.as_ref().map_or(Kind::Hold, |verdict| verdict.kind);
    rows.sort_by(|(one, _), (other, _)| (rank(one), &one.id).cmp(&(rank(other), &other.id)));
    Ok(rows)
}

/// The rows as a table.
pub fn text<'r>(rows: impl Iterator<Item = &'r Row>, style: Style) -> String {
    let header =
        ["VERDICT", "ROLLOUT", "TIER", "STAGE", "SEEN", "TO", "FAILED", "DARK", "SOAKED", "WHY"];
    let mut table = vec![header.map(str::to_owned).to_vec()];
    let mut kinds = Vec::new();
    for row in rows {
        kinds.push(row.verdict.as_ref().map(|verdict| verdict.kind));
        table.push(cells(row));
    }
    let plain = columns(&table, |at| at < 3 || at == 9);
    let mut lines = plain.lines();
    let mut text = format!("{}\n", lines.next().unwrap_or_default());
    for (line, kind) in lines.zip(kinds) {
        // Coloured last: escape codes have no width.
        let line = kind.map_or_else(
            || line.to_owned(),
            |kind| line.replacen(&Style::default().verdict(kind), &style.verdict(kind), 1),
        );
        text.push_str(&line);
        text.push('\n');
    }
    text
}

fn cells(row: &Row) -> Vec<String> {
    let mut cells = vec![
        row.verdict
            .as_ref()
            .map_or_else(|| "· new".into(), |one| Style::default().verdict(one.kind)),
        clean(&row.id).into_owned(),
        clean(&row.tier).into_owned(),
        format!("{}/{}", u64::from(row.stage) + 1, row.stages.len()),
    ];
    let Some(verdict) = &row.verdict else {
        cells.extend(std::iter::repeat_n("-".to_owned(), 5));
        cells.push("not judged yet".into());
        return cells;
    };
    let VerdictRow { why, seen, to, failed, dark, soaked_ms, soak_ms, proposal, .. } = verdict;
    cells.extend([seen, to, failed, dark].map(u64::to_string));
    cells.push(format!("{} of {}", age(*soaked_ms), span(*soak_ms)));
    let proposal = proposal.as_ref();
    let proposal = proposal
        .map_or(String::new(), |one| format!(" [{} {}]", clean(&one.kind), clean(&one.state)));
    cells.push(format!("{}{proposal}", printable(why)));
    cells
}
