//! `allow-lists.yaml` and `grants.yaml` (estate.md 1.5).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::catalogue::Catalogue;
use super::palette::selects;
use super::pattern::Pattern;
use crate::estate::Teams;
use crate::problem::{Problem, Refusal, Spot};
use crate::tree::Tree;
use crate::yaml::{self, Node, Pos, Value};

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
    pub fn load(tree: &Tree, teams: &Teams, catalogue: &Catalogue) -> Result<Self, Refusal> {
        let mut lists = Reader::new(tree, "allow-lists.yaml");
        let authored_lists = lists.entries("allow_lists", &["team", "owner", "allow"])?;
        let mut grants = Reader::new(tree, "grants.yaml");
        let authored_grants = grants.entries("grants", &["id", "owner", "team", "adds"])?;

        let mut policy = Self::default();
        policy.add_lists(&mut lists, authored_lists, teams, catalogue);
        policy.add_grants(&mut grants, authored_grants, teams, catalogue);
        let mut problems = lists.problems;
        problems.append(&mut grants.problems);
        if problems.is_empty() { Ok(policy) } else { Err(refusal(problems)) }
    }

    /// Indices of the grants to a team, in id order.
    pub(super) fn grants_to(&self, team: &str) -> &[u32] {
        self.by_target.get(team).map_or(&[], Vec::as_slice)
    }

    fn add_lists(
        &mut self,
        reader: &mut Reader,
        authored: Vec<Entry>,
        teams: &Teams,
        catalogue: &Catalogue,
    ) {
        for entry in authored {
            let team = reader.team(&entry, teams);
            let owner = reader.owner(&entry, teams);
            let allow = reader.patterns(&entry, "allow", catalogue);
            let Some(team) = team else { continue };
            let list = AllowList {
                team: team.clone(),
                owner: owner.map(|(owner, _)| owner).unwrap_or_default(),
                allow,
            };
            if self.lists.insert(team.clone(), list).is_some() {
                let text = format!("has two lists for team {team:?}");
                reader.say(&text, &entry, "team", "merge them into one");
            }
        }
    }

    fn add_grants(
        &mut self,
        reader: &mut Reader,
        authored: Vec<Entry>,
        teams: &Teams,
        catalogue: &Catalogue,
    ) {
        let mut ids = BTreeSet::new();
        for entry in authored {
            let id = entry.text("id");
            if id.is_empty() {
                reader.say("has a grant without an id", &entry, "id", "give it a unique id");
            } else if !ids.insert(id.clone()) {
                let text = format!("has two grants with the id {id:?}");
                reader.say(&text, &entry, "id", "give each grant an id of its own");
            }
            let team = reader.team(&entry, teams);
            let owner = reader.owner(&entry, teams);
            let adds = reader.patterns(&entry, "adds", catalogue);
            let (Some(team), Some((owner, owner_team))) = (team, owner) else { continue };
            let chain = teams.chain(&team);
            let above = chain.split_last().map_or(&[][..], |(_, above)| above);
            if !above.iter().any(|ancestor| ancestor.id == owner_team) {
                let text = format!(
                    "has a grant {id:?} to team {team:?} by {owner:?} of team {owner_team:?}, which \
                     is not above it"
                );
                let help = "only an owner of a team above may give a grant";
                reader.say(&text, &entry, "owner", help);
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

/// One item of the top list: its scalar fields and its one list of texts.
struct Entry {
    at: Pos,
    path: String,
    texts: BTreeMap<String, (String, Pos)>,
    items: Vec<(String, Pos)>,
    items_at: Option<Pos>,
}

impl Entry {
    fn text(&self, key: &str) -> String {
        self.texts.get(key).map(|(text, _)| text.clone()).unwrap_or_default()
    }
}

struct Reader {
    file: Arc<str>,
    bytes: Option<Arc<[u8]>>,
    problems: Vec<Problem>,
}

impl Reader {
    fn new(tree: &Tree, path: &str) -> Self {
        Self { file: tree.display(path), bytes: tree.get(path).cloned(), problems: Vec::new() }
    }

    /// The items of the top list. Faults of shape end the load with this file's problems only.
    fn entries(&mut self, top: &str, keys: &[&str]) -> Result<Vec<Entry>, Refusal> {
        let Some(bytes) = self.bytes.take() else { return Ok(Vec::new()) };
        let root = match yaml::parse(&bytes) {
            Ok(root) => root,
            Err(error) => {
                let help = error.kind.help();
                self.push(&error.to_string(), error.at, "", help);
                return Err(refusal(std::mem::take(&mut self.problems)));
            }
        };
        let mut read = Vec::new();
        let entries = self.mapping(&root, "", &[top]);
        match entries.into_iter().next().map(|(_, value)| value) {
            Some(list) if !list.is_null() => {
                for (index, item) in self.sequence(list, top).iter().enumerate() {
                    read.push(self.entry(item, format!("{top}[{index}]"), keys));
                }
                if read.is_empty() && self.problems.is_empty() {
                    let help = "add an entry, or delete the file";
                    self.push(&format!("has no {top}"), Some(list.at), top, help);
                }
            }
            Some(_) | None if self.problems.is_empty() => {
                let help = "add an entry, or delete the file";
                self.push(&format!("has no {top}"), Some(root.at), top, help);
            }
            Some(_) | None => {}
        }
        if self.problems.is_empty() {
            Ok(read)
        } else {
            Err(refusal(std::mem::take(&mut self.problems)))
        }
    }

    fn entry(&mut self, node: &Node, path: String, keys: &[&str]) -> Entry {
        let mut entry =
            Entry { at: node.at, path, texts: BTreeMap::new(), items: Vec::new(), items_at: None };
        for (key, value) in self.mapping(node, &entry.path, keys) {
            let here = format!("{}.{key}", entry.path);
            if matches!(key.as_str(), "allow" | "adds") {
                entry.items_at = Some(value.at);
                if value.is_null() {
                    continue;
                }
                for (index, item) in self.sequence(value, &here).iter().enumerate() {
                    let text = self.text(item, &format!("{here}[{index}]"));
                    entry.items.push((text, item.at));
                }
            } else {
                let text = self.text(value, &here);
                entry.texts.insert(key, (text, value.at));
            }
        }
        entry
    }

    fn mapping<'n>(
        &mut self,
        node: &'n Node,
        path: &str,
        known: &[&str],
    ) -> Vec<(String, &'n Node)> {
        let Value::Mapping(entries) = &node.value else {
            self.push(&wants("a mapping", path), Some(node.at), path, "write a mapping");
            return Vec::new();
        };
        let mut read = Vec::new();
        for (key, value) in entries {
            let name = key.as_scalar().map(|key| key.text.as_str()).unwrap_or_default();
            if known.contains(&name) {
                read.push((name.to_owned(), value));
            } else {
                let here = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
                let help = format!("remove it; the keys here are {}", known.join(", "));
                self.push(&format!("has an unknown key {name:?}"), Some(key.at), &here, &help);
            }
        }
        read
    }

    fn sequence<'n>(&mut self, node: &'n Node, path: &str) -> &'n [Node] {
        match &node.value {
            Value::Sequence(items) => items,
            Value::Scalar(_) | Value::Mapping(_) => {
                self.push(&wants("a list", path), Some(node.at), path, "write a list");
                &[]
            }
        }
    }

    /// The text of a scalar; null is the empty text.
    fn text(&mut self, node: &Node, path: &str) -> String {
        if node.is_null() {
            return String::new();
        }
        match node.as_scalar() {
            Some(scalar) => scalar.text.clone(),
            None => {
                self.push(&wants("a string", path), Some(node.at), path, "write a string");
                String::new()
            }
        }
    }

    fn team(&mut self, entry: &Entry, teams: &Teams) -> Option<String> {
        let team = entry.text("team");
        if team.is_empty() {
            self.say("has an entry without a team", entry, "team", "name a team of teams.yaml");
            return None;
        }
        if !teams.by_id.contains_key(&team) {
            let text = format!("names team {team:?}, which is not in teams.yaml");
            self.say(&text, entry, "team", "name a team of teams.yaml");
            return None;
        }
        Some(team)
    }

    /// The owner and the owner's team.
    fn owner(&mut self, entry: &Entry, teams: &Teams) -> Option<(String, String)> {
        let owner = entry.text("owner");
        if owner.is_empty() {
            let help = "name an owner of teams.yaml";
            self.say("has an entry without an owner", entry, "owner", help);
            return None;
        }
        match teams.owner_team.get(&owner) {
            Some(team) => Some((owner, team.clone())),
            None => {
                let text = format!("names owner {owner:?}, which is not in teams.yaml");
                self.say(&text, entry, "owner", "name an owner of teams.yaml");
                None
            }
        }
    }

    fn patterns(&mut self, entry: &Entry, key: &str, catalogue: &Catalogue) -> Vec<Pattern> {
        let path = format!("{}.{key}", entry.path);
        if entry.items.is_empty() {
            let text = format!("has an entry with nothing in {key}");
            let at = entry.items_at.unwrap_or(entry.at);
            self.push(&text, Some(at), &path, "add at least one class/type-pattern");
        }
        let mut seen = BTreeSet::new();
        let mut patterns = Vec::new();
        for (index, (text, at)) in entry.items.iter().enumerate() {
            let here = format!("{path}[{index}]");
            if !seen.insert(text) {
                let what = format!("has the entry {text:?} twice in one list");
                self.push(&what, Some(*at), &here, "keep one of the two");
                continue;
            }
            match Pattern::parse(text) {
                Err(error) => {
                    let what = format!("has an entry {text:?} that {error}");
                    let help = "write class/type-pattern, such as receiver/otlp or processor/*";
                    self.push(&what, Some(*at), &here, help);
                }
                Ok(pattern) => {
                    let one = std::slice::from_ref(&pattern);
                    if !catalogue.components().iter().any(|component| selects(one, component)) {
                        let what = format!("has an entry {text:?} that selects nothing");
                        let help = format!(
                            "look the type up in the catalogue {} {}",
                            catalogue.repository, catalogue.reference
                        );
                        self.push(&what, Some(*at), &here, &help);
                    }
                    patterns.push(pattern);
                }
            }
        }
        patterns
    }

    fn say(&mut self, text: &str, entry: &Entry, key: &str, help: &str) {
        let at = entry.texts.get(key).map_or(entry.at, |(_, at)| *at);
        self.push(text, Some(at), &format!("{}.{key}", entry.path), help);
    }

    fn push(&mut self, text: &str, at: Option<Pos>, path: &str, help: &str) {
        self.problems.push(Problem {
            text: format!("{}: {text}", self.file),
            spot: Some(Spot { file: self.file.clone(), pos: at, path: path.to_owned() }),
            help: help.to_owned(),
        });
    }
}

fn wants(what: &str, path: &str) -> String {
    let name = if path.is_empty() { "the document" } else { path };
    format!("wants {what} at {name}")
}

fn refusal(problems: Vec<Problem>) -> Refusal {
    Refusal { header: "invalid allow-list policy:".to_owned(), problems }
}
