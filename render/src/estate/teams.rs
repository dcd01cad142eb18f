//! `teams.yaml` (estate.md 1.3).

use std::sync::Arc;

use super::decode::{Decoder, Fields, KeyPath, shown};
use super::model::{Team, Teams};
use super::names;
use super::object::read_one;
use super::report::Report;
use crate::problem::Refusal;
use crate::tree::Tree;
use crate::yaml::{Node, Pos};

const HEADER: &str = "invalid teams:";

/// Reads `teams.yaml`.
///
/// # Errors
///
/// Every team without an id or with one that is taken or cannot be a name, every owner that is
/// empty or listed twice.
pub fn load_teams(tree: &Tree) -> Result<Teams, Refusal> {
    let help = "write the teams of the estate, as `teams: [{id: platform, owners: [...]}]`";
    read_one(tree, "teams.yaml", HEADER, help, |node, decoder, report| {
        let fields = decoder.document(node, &["teams"]);
        let file = Arc::clone(&decoder.file);
        let mut reader = Reader { decoder, report, file, teams: Teams::default() };
        if reader.children(&fields, None, true) == 0 {
            reader.add(fields.at("teams"), "teams".to_owned(), "no teams", "add a team");
        }
        reader.teams
    })
}

struct Reader<'r> {
    decoder: &'r mut Decoder,
    report: &'r mut Report,
    file: Arc<str>,
    teams: Teams,
}

impl Reader<'_> {
    /// Reads the nodes below one, and says how many there are. A node that was refused is not
    /// `live`: what is below it is read for its form only.
    fn children(&mut self, fields: &Fields<'_, '_>, parent: Option<&str>, live: bool) -> usize {
        let list = KeyPath::Key(&fields.path, "teams");
        let nodes = self.decoder.list(fields, "teams");
        for (index, node) in nodes.iter().enumerate() {
            self.team(node, KeyPath::Index(&list, index), parent, live);
        }
        nodes.len()
    }

    fn team(&mut self, node: &Node, path: KeyPath<'_>, parent: Option<&str>, live: bool) {
        let fields = self.decoder.fields(node, path, &["id", "name", "owners", "teams"]);
        let id = self.decoder.string(&fields, "id");
        let name = self.decoder.string(&fields, "name");
        let owners = self.decoder.strings(&fields, "owners");
        let live = live && self.check_id(&fields, &id.value);
        self.children(&fields, Some(&id.value), live);
        if !live {
            return;
        }
        for (index, owner) in owners.iter().enumerate() {
            let fault = if owner.value.is_empty() {
                Some("is empty".to_owned())
            } else if owner.value.contains(|c: char| c.is_whitespace() || c.is_control()) {
                // It becomes a word of a line in CODEOWNERS.
                Some("holds white space or a control character".to_owned())
            } else {
                let first = self.teams.owner_team.insert(owner.value.clone(), id.value.clone());
                first.map(|first| format!("is already listed by team {}", shown(&first)))
            };
            if let Some(fault) = fault {
                let text =
                    format!("team {} owner {} {fault}", shown(&id.value), shown(&owner.value));
                let path = format!("{}[{index}]", fields.path_of("owners"));
                self.add(owner.at, path, &text, "an owner belongs to one team, once");
            }
        }
        let team = Team {
            id: id.value.clone(),
            name: name.value,
            owners: owners.into_iter().map(|owner| owner.value).collect(),
            parent: parent.map(str::to_owned),
            at: id.at,
        };
        self.teams.by_id.insert(id.value, team);
    }

    fn check_id(&mut self, fields: &Fields<'_, '_>, id: &str) -> bool {
        let (text, help) = if id.is_empty() {
            (format!("{} has no id", fields.path), "add `id:`, the name of the team's directory")
        } else if let Some(fault) = names::fault(id) {
            (format!("team {} {fault}", shown(id)), "an id is the name of the team's directory")
        } else if !self.reserve(id, fields.at) {
            (format!("team {} is declared twice", shown(id)), "keep one of the two")
        } else {
            return true;
        };
        self.add(fields.at("id"), fields.path_of("id"), &text, help);
        false
    }

    /// Takes an id in document order, before the teams below it.
    fn reserve(&mut self, id: &str, at: Pos) -> bool {
        let is_new = !self.teams.by_id.contains_key(id);
        if is_new {
            let team = Team {
                id: id.to_owned(),
                name: String::new(),
                owners: Vec::new(),
                parent: None,
                at,
            };
            self.teams.by_id.insert(id.to_owned(), team);
        }
        is_new
    }

    fn add(&mut self, at: Pos, path: String, text: &str, help: &str) {
        let text = format!("{}: {text}", self.file);
        self.report.add(text, &self.file, Some(at), path, help);
    }
}
