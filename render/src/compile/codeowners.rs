//! CODEOWNERS: who reviews a team's sources and what is rendered of them (estate.md 2.6).

use std::collections::BTreeSet;

use super::header::GENERATED;
use crate::estate::{Team, Teams};
use crate::problem::Problem;

/// The file's text. An owner whose name would break a line is a problem.
pub(super) fn codeowners(teams: &Teams, problems: &mut Vec<Problem>) -> String {
    for (owner, team) in &teams.owner_team {
        if owner.chars().any(char::is_control) {
            problems.push(Problem {
                text: format!("owner {owner:?} of team {team} holds a control character"),
                spot: None,
                help: "CODEOWNERS has one line per team: rename the owner in teams.yaml".to_owned(),
            });
        }
    }
    let mut text = format!(
        "{GENERATED}\n# Who reviews a change: the owners of the team and of every team above it.\n\
         # Sources and what is rendered of them have the same owners.\n"
    );
    let mut root_owners: Vec<&str> = Vec::new();
    for team in teams.by_id.values() {
        if team.parent.is_none() {
            root_owners.extend(team.owners.iter().map(String::as_str));
        }
        let handles = handles(upwards(teams, team));
        if handles.is_empty() {
            continue;
        }
        text.push_str(&format!(
            "\n/teams/{}/{handles}\n/rendered/{}/{handles}\n",
            team.id, team.id
        ));
    }
    let handles = handles(root_owners.into_iter());
    if !handles.is_empty() {
        text.push_str(&format!("\n/rendered/_estate/{handles}\n"));
    }
    text
}

/// Own owners first, then the parent's, up to the root.
fn upwards<'t>(teams: &'t Teams, team: &'t Team) -> impl Iterator<Item = &'t str> {
    let chain = std::iter::successors(Some(team), |team| {
        team.parent.as_deref().and_then(|parent| teams.by_id.get(parent))
    });
    chain.flat_map(|team| team.owners.iter().map(String::as_str))
}

/// ` @a @b`, each once.
fn handles<'t>(owners: impl Iterator<Item = &'t str>) -> String {
    let mut seen = BTreeSet::new();
    owners.filter(|owner| seen.insert(*owner)).map(|owner| format!(" @{owner}")).collect()
}
