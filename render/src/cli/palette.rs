//! `render palette --team T`: what a team may place, and why (estate.md 1.5).

use render::policy::{Origin, Palettes};
use serde_json::{Value, json};

use super::load::{read_policy, read_tree};
use super::{Done, Failure, Format, PaletteArgs, report};

pub(super) fn run(arguments: &PaletteArgs) -> Result<Done, Failure> {
    let tree = read_tree(&arguments.estate)?;
    let format = arguments.output.format;
    let (teams, catalogue, policy) = read_policy(&tree, &arguments.catalogue, format)?;
    let palettes = Palettes::resolve(&teams, &policy, &catalogue);
    let team = &arguments.team;
    let Some(palette) = palettes.of(team) else {
        return Err(Failure::not_loaded(format!(
            "team {team:?} is not in {}",
            tree.display("teams.yaml")
        )));
    };
    let rows: Vec<(String, Origin<'_>)> = palette
        .allowed()
        .map(|(component, origin)| (format!("{}/{}", component.class, component.kind), origin))
        .collect();
    let total = catalogue.components().len();
    let source = format!("{} {}", catalogue.repository, catalogue.reference);
    Ok(Done::good(match format {
        Format::Text => {
            let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
            let mut text = format!(
                "team {team}\ncatalogue {source}\nallowed {} of {total} components\n\n",
                rows.len()
            );
            for (name, origin) in &rows {
                text.push_str(&format!("{name:width$}  {}\n", origin_text(origin)));
            }
            text
        }
        Format::Json => {
            let components: Value = rows
                .iter()
                .map(|(name, origin)| json!({"component": name, "origin": origin_text(origin)}))
                .collect();
            report::line(&json!({
                "team": team,
                "catalogue": {"repository": catalogue.repository, "ref": catalogue.reference},
                "total": total,
                "allowed": components,
            }))
        }
    }))
}

fn origin_text(origin: &Origin<'_>) -> String {
    match origin {
        Origin::DefaultAllow => "default-allow".to_owned(),
        Origin::AllowList => "allow-list".to_owned(),
        Origin::Grant(grant) => {
            format!("grant {} (granted by {} to {})", grant.id, grant.owner_team, grant.team)
        }
    }
}
