//! `allow-lists.yaml` and `grants.yaml` (estate.md 1.5).

use std::collections::{BTreeMap, BTreeSet};

use super::catalogue::Catalogue;
use super::palette::selects;
use super::pattern::Pattern;
use crate::estate::Teams;
use crate::estate::decode::{Decoder, Fields, KeyPath, shown};
use crate::estate::object::read_file;
use crate::estate::report::Report;
use crate::problem::Refusal;
use crate::tree::Tree;
use crate::yaml::{Node, Pos};

/// What a team narrows its inherited palette to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowList {
    /// Whom it narrows, with all teams below.
    pub team: String,
    /// Who answers for it.
    pub owner: String,
    /// At least one.
    pub allow: Vec<Pattern>,
}

/// An exception that a team above gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Unique.
    pub id: String,
    /// Who gives it.
    pub owner: String,
    /// The owner's team, a proper ancestor of `team`.
    pub owner_team: String,
    /// Who gets it.
    pub team: String,
    /// At least one.
    pub adds: Vec<Pattern>,
}

/// Both files; an absent one is an empty set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// By team.
    pub lists: BTreeMap<String, AllowList>,
    /// In id order.
    pub grants: Vec<Grant>,
    by_target: BTreeMap<String, Vec<u32>>,
}

impl Policy {
    /// Reads both files, where they are.
    ///
    /// # Errors
    ///
    /// All problems of both files, the lists first.
    pub fn load(tree: &Tree, teams: &Teams, catalogue: &Catalogue) -> Result<Self, Refusal> {
        let mut report = Report::default();
        let mut policy = Self::default();
        let mut read = |path: &str, take: fn(&mut Self, &mut Reader<'_>, &Node)| {
            let Some(bytes) = tree.get(path) else { return };
            read_file(tree.display(path), bytes, &mut report, |node, decoder, report| {
                take(&mut policy, &mut Reader { teams, catalogue, decoder, report }, node);
            });
        };
        read("allow-lists.yaml", Self::add_lists);
        read("grants.yaml", Self::add_grants);
        report.finish("invalid allow-list policy:", policy)
    }

    /// Indices of the grants to a team, in id order.
    pub(super) fn grants_to(&self, team: &str) -> &[u32] {
        self.by_target.get(team).map_or(&[], Vec::as_slice)
    }

    fn add_lists(&mut self, reader: &mut Reader<'_>, document: &Node) {
        let list = KeyPath::Key(&KeyPath::Root, "allow_lists");
        for (index, node) in reader.items(document, "allow_lists").iter().enumerate() {
            let path = KeyPath::Index(&list, index);
            let fields = reader.decoder.fields(node, path, &["team", "owner", "allow"]);
            let team = reader.team(&fields);
            let owner = reader.owner(&fields);
            let allow = reader.patterns(&fields, "allow");
            let Some(team) = team else { continue };
            let owner = owner.map(|(owner, _)| owner).unwrap_or_default();
            let list = AllowList { team: team.clone(), owner, allow };
            if self.lists.insert(team.clone(), list).is_some() {
                let text = format!("has two lists for team {}", shown(&team));
                reader.say(&fields, "team", &text, "merge them into one");
            }
        }
    }

    fn add_grants(&mut self, reader: &mut Reader<'_>, document: &Node) {
        let list = KeyPath::Key(&KeyPath::Root, "grants");
        let mut ids = BTreeSet::new();
        for (index, node) in reader.items(document, "grants").iter().enumerate() {
            let path = KeyPath::Index(&list, index);
            let fields = reader.decoder.fields(node, path, &["id", "owner", "team", "adds"]);
            let id = reader.decoder.string(&fields, "id").value;
            if id.is_empty() {
                reader.say(&fields, "id", "has a grant without an id", "give it a unique id");
            } else if !ids.insert(id.clone()) {
                let text = format!("has two grants with the id {}", shown(&id));
                reader.say(&fields, "id", &text, "give each grant an id of its own");
            }
            let team = reader.team(&fields);
            let owner = reader.owner(&fields);
            let adds = reader.patterns(&fields, "adds");
            let (Some(team), Some((owner, owner_team))) = (team, owner) else { continue };
            let chain = reader.teams.chain(&team);
            let above = chain.split_last().map_or(&[][..], |(_, above)| above);
            if !above.iter().any(|ancestor| ancestor.id == owner_team) {
                let text = format!(
                    "has a grant {} to team {} by {} of team {}, which is not above it",
                    shown(&id),
                    shown(&team),
                    shown(&owner),
                    shown(&owner_team)
                );
                let help = "only an owner of a team above may give a grant";
                reader.say(&fields, "owner", &text, help);
                continue;
            }
            self.grants.push(Grant { id, owner, owner_team, team, adds });
        }
        self.grants.sort_by(|a, b| a.id.cmp(&b.id));
        for (index, grant) in self.grants.iter().enumerate() {
            let index = u32::try_from(index).unwrap_or(u32::MAX);
            self.by_target.entry(grant.team.clone()).or_default().push(index);
        }
    }
}

/// One of the two files, with what its entries may name.
struct Reader<'r> {
    teams: &'r Teams,
    catalogue: &'r Catalogue,
    decoder: &'r mut Decoder,
    report: &'r mut Report,
}

impl Reader<'_> {
    /// The items of the top list, of which there must be one.
    fn items<'n>(&mut self, document: &'n Node, top: &str) -> &'n [Node] {
        let fields = self.decoder.document(document, &[top]);
        let items = self.decoder.list(&fields, top);
        if items.is_empty() {
            let help = "add an entry, or delete the file";
            self.say(&fields, top, &format!("has no {top}"), help);
        }
        items
    }

    fn team(&mut self, fields: &Fields<'_, '_>) -> Option<String> {
        let team = self.decoder.string(fields, "team").value;
        let help = "name a team of teams.yaml";
        if team.is_empty() {
            self.say(fields, "team", "has an entry without a team", help);
            return None;
        }
        if !self.teams.by_id.contains_key(&team) {
            let text = format!("names team {}, which is not in teams.yaml", shown(&team));
            self.say(fields, "team", &text, help);
            return None;
        }
        Some(team)
    }

    /// The owner and the owner's team.
    fn owner(&mut self, fields: &Fields<'_, '_>) -> Option<(String, String)> {
        let owner = self.decoder.string(fields, "owner").value;
        let help = "name an owner of teams.yaml";
        if owner.is_empty() {
            self.say(fields, "owner", "has an entry without an owner", help);
            return None;
        }
        let Some(team) = self.teams.owner_team.get(&owner) else {
            let text = format!("names owner {}, which is not in teams.yaml", shown(&owner));
            self.say(fields, "owner", &text, help);
            return None;
        };
        Some((owner, team.clone()))
    }

    fn patterns(&mut self, fields: &Fields<'_, '_>, key: &str) -> Vec<Pattern> {
        let entries = self.decoder.strings(fields, key);
        if entries.is_empty() {
            let text = format!("has an entry with nothing in {key}");
            self.say(fields, key, &text, "add at least one class/type-pattern");
        }
        let mut seen = BTreeSet::new();
        let mut patterns = Vec::new();
        for (index, entry) in entries.iter().enumerate() {
            let mut add = |text: &str, help: &str| {
                let path = format!("{}[{index}]", fields.path_of(key));
                add(self.report, self.decoder, entry.at, path, text, help);
            };
            let named = shown(&entry.value);
            if !seen.insert(&entry.value) {
                add(&format!("has the entry {named} twice in one list"), "keep one of the two");
                continue;
            }
            match Pattern::parse(&entry.value) {
                Err(error) => {
                    let help = "write class/type-pattern, such as receiver/otlp or processor/*";
                    add(&format!("has an entry {named} that {error}"), help);
                }
                Ok(pattern) => {
                    let one = std::slice::from_ref(&pattern);
                    let mut components = self.catalogue.components().iter();
                    if !components.any(|component| selects(one, component)) {
                        let help = format!(
                            "look the type up in the catalogue {} {}",
                            self.catalogue.repository, self.catalogue.reference
                        );
                        add(&format!("has an entry {named} that selects nothing"), &help);
                    }
                    patterns.push(pattern);
                }
            }
        }
        patterns
    }

    fn say(&mut self, fields: &Fields<'_, '_>, key: &str, text: &str, help: &str) {
        add(self.report, self.decoder, fields.at(key), fields.path_of(key), text, help);
    }
}

fn add(report: &mut Report, decoder: &Decoder, at: Pos, path: String, text: &str, help: &str) {
    report.add(format!("{}: {text}", decoder.file), &decoder.file, Some(at), path, help);
}
