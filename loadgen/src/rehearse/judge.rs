//! What must have come of a rehearsal: verdicts, branches, offers, books, bundles.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use super::Trouble;
use super::gateway::ask;
use super::play::Stage;
use crate::fleet::who;
use crate::ledger::Closed;

/// Figures of each bundle that are changed, one at a time, to see that it is refused then.
const FIGURES: usize = 3;

/// Says the first deviation.
pub(super) async fn judge(
    stage: &Stage<'_>,
    closed: &[Closed],
    complaints: &[String],
) -> Result<(), Trouble> {
    let expect = &stage.scenario.expect;
    if let Some(expected) = &expect.verdicts {
        expected.matches(&stage.verdicts).map_err(Trouble::Deviates)?;
    }
    if let Some(expected) = &expect.branches {
        let there: Vec<String> = stage.branches().keys().cloned().collect();
        let mut expected = expected.clone();
        expected.sort();
        if there != expected {
            return deviates(format!("branches: expected {expected:?}, there are {there:?}"));
        }
    }
    for (branch, expected) in &expect.diff {
        let tip = stage.newest.get(branch).and_then(|tip| stage.tips.get(tip));
        let Some(tip) = tip else { return deviates(format!("there was no branch {branch}")) };
        let mut expected = expected.clone();
        let mut found = tip.diff.clone();
        expected.files.sort();
        found.files.sort();
        if found != expected {
            return deviates(format!(
                "branch {} changes something else: expected {expected:?}, found {found:?}",
                tip.branch
            ));
        }
    }
    for (branch, expected) in &expect.tips {
        let count = stage.tips.values().filter(|tip| tip.branch == *branch).count();
        if count != *expected {
            return deviates(format!("branch {branch} had {count} commits, not {expected}"));
        }
    }
    if let Some(complaint) = complaints.first() {
        return deviates(complaint.clone());
    }
    check_offers(stage, closed)?;
    check_books(stage, closed)?;
    if stage.bundles.len() < expect.bundles {
        return deviates(format!(
            "{} evidence bundles were expected, {} came",
            expect.bundles,
            stage.bundles.len()
        ));
    }
    for bundle in &stage.bundles {
        verify(&stage.options.gateway, bundle, stage.scenario.seed).await?;
    }
    Ok(())
}

fn deviates(text: String) -> Result<(), Trouble> {
    Err(Trouble::Deviates(text))
}

fn check_offers(stage: &Stage<'_>, closed: &[Closed]) -> Result<(), Trouble> {
    let plan = stage.plan();
    let offers: BTreeMap<u32, u32> =
        closed.iter().map(|books| (books.index, books.candidate_offers)).collect();
    for expected in &stage.scenario.expect.offers {
        for index in stage.scenario.members(plan, &expected.who).map_err(Trouble::Cannot)? {
            let got = offers.get(&index).copied().unwrap_or_default();
            if got != expected.candidate {
                return deviates(format!(
                    "{} got {got} offers of the candidate, not {}",
                    who(plan, index),
                    expected.candidate
                ));
            }
        }
    }
    Ok(())
}

/// What the second opinion says of everything that the gateways sent.
fn check_books(stage: &Stage<'_>, closed: &[Closed]) -> Result<(), Trouble> {
    let first = closed
        .iter()
        .flat_map(|books| books.findings.iter().map(move |finding| (finding.at, books, finding)))
        .min_by_key(|(at, _, _)| *at);
    let Some((at, books, finding)) = first else { return Ok(()) };
    let count: u64 =
        closed.iter().flat_map(|books| &books.wrongs).map(|(_, count)| u64::from(*count)).sum();
    deviates(format!(
        "{count} messages to collectors were wrong, the first at {} ms to {}: {:?}: {}",
        stage.since_begin(at) / 1_000,
        who(stage.plan(), books.index),
        finding.wrong,
        finding.text
    ))
}

/// The bundle as it is must be reproduced, and with a changed figure it must be refused.
async fn verify(gateway: &Path, bundle: &Path, seed: u64) -> Result<(), Trouble> {
    let name = bundle.display().to_string();
    let (code, said) = ask(gateway, &["rollout", "verify", &name]).await?;
    if code != 0 {
        return deviates(format!("rollout verify {name}: exit {code}, not 0: {said}"));
    }
    let text = std::fs::read_to_string(bundle)
        .map_err(|error| Trouble::Cannot(format!("{name}: {error}")))?;
    let value: Value = serde_json::from_str(&text)
        .map_err(|error| Trouble::Deviates(format!("{name} is not JSON: {error}")))?;
    let mut figures = Vec::new();
    find_figures(&value, &mut String::new(), &mut figures);
    if figures.is_empty() {
        return deviates(format!("{name} holds no figures"));
    }
    fastrand::Rng::with_seed(seed).shuffle(&mut figures);
    for pointer in figures.iter().take(FIGURES) {
        let mut changed = value.clone();
        if let Some(figure) = changed.pointer_mut(pointer) {
            *figure = figure.as_u64().unwrap_or_default().saturating_add(1).into();
        }
        let file = bundle.with_extension("changed.json");
        std::fs::write(&file, changed.to_string())
            .map_err(|error| Trouble::Cannot(format!("{}: {error}", file.display())))?;
        let changed = file.display().to_string();
        let (code, said) = ask(gateway, &["rollout", "verify", &changed]).await?;
        if code != 1 {
            return deviates(format!(
                "rollout verify {name} with another {pointer}: exit {code}, not 1: {said}"
            ));
        }
    }
    Ok(())
}

/// JSON pointers to every whole number.
fn find_figures(value: &Value, at: &mut String, found: &mut Vec<String>) {
    let length = at.len();
    match value {
        Value::Number(number) if number.is_u64() => found.push(at.clone()),
        Value::Array(list) => {
            for (number, value) in list.iter().enumerate() {
                at.push_str(&format!("/{number}"));
                find_figures(value, at, found);
                at.truncate(length);
            }
        }
        Value::Object(map) => {
            for (key, value) in map {
                at.push('/');
                at.push_str(&key.replace('~', "~0").replace('/', "~1"));
                find_figures(value, at, found);
                at.truncate(length);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_of_a_bundle_is_found() {
        let value = serde_json::json!({"a": 1, "b/c": [2, {"d": 3}], "e": "4", "f": null});
        let mut found = Vec::new();
        find_figures(&value, &mut String::new(), &mut found);
        assert_eq!(found, ["/a", "/b~1c/0", "/b~1c/1/d"]);
        assert!(found.iter().all(|pointer| value.pointer(pointer).is_some()));
    }
}
