//! The files of one kind, one by one: which object each declares, and what is wrong with it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::decode::{Decoder, Fields, shown};
use super::model::{Located, Name};
use super::names;
use crate::problem::{Problem, Refusal, Spot};
use crate::tree::{ObjectPath, Tree};
use crate::yaml::{Node, Pos};

/// An authored object: what its path says about it.
#[derive(Clone, Debug)]
pub(crate) struct Object<'t> {
    /// `team/name` after directory and file name.
    pub(crate) id: Name,
    /// The file as the user would write it.
    pub(crate) file: Arc<str>,
    /// `tier`, `blueprint`, …
    pub(crate) noun: &'static str,
    /// Its path, taken apart.
    pub(crate) path: ObjectPath<'t>,
}

/// Problems of meaning, collected over all files.
#[derive(Debug, Default)]
pub(crate) struct Report {
    problems: Vec<Problem>,
    faulty_teams: BTreeSet<String>,
}

impl Report {
    /// How many there are so far: an object that added none is whole.
    pub(crate) fn len(&self) -> usize {
        self.problems.len()
    }

    /// `<file>: <noun> "<id>" <text>`
    pub(crate) fn about(
        &mut self,
        object: &Object<'_>,
        at: Pos,
        path: String,
        text: &str,
        help: &str,
    ) {
        let Object { id, file, noun, .. } = object;
        let text = format!("{file}: {noun} {} {text}", shown(id.as_str()));
        self.add(text, file, Some(at), path, help);
    }

    /// A problem in the words of `text`.
    pub(crate) fn add(
        &mut self,
        text: String,
        file: &Arc<str>,
        pos: Option<Pos>,
        path: String,
        help: &str,
    ) {
        let spot = Some(Spot { file: Arc::clone(file), pos, path });
        self.problems.push(Problem { text, spot, help: help.to_owned() });
    }

    /// A field that must be there and is not.
    pub(crate) fn require(
        &mut self,
        object: &Object<'_>,
        fields: &Fields<'_, '_>,
        key: &str,
        value: &Located<String>,
    ) -> bool {
        if value.value.is_empty() {
            let text = format!("has no {key}");
            self.about(object, value.at, fields.path_of(key), &text, &format!("add `{key}:`"));
        }
        !value.value.is_empty()
    }

    /// A `name` that differs from the file's.
    pub(crate) fn own_name(
        &mut self,
        object: &Object<'_>,
        fields: &Fields<'_, '_>,
        name: &Located<String>,
    ) {
        if name.value != object.path.name {
            let text = format!("is named {} in its file", shown(&name.value));
            let help = "name the file after the object, or the object after the file";
            self.about(object, name.at, fields.path_of("name"), &text, help);
        }
    }

    /// Ends the load: `value` if there is nothing to report.
    pub(crate) fn finish<T>(self, header: &str, value: T) -> Result<T, Refusal> {
        if self.problems.is_empty() {
            return Ok(value);
        }
        Err(Refusal { header: header.to_owned(), problems: self.problems })
    }

    fn check_path(&mut self, object: &Object<'_>) {
        let ObjectPath { team, name, .. } = object.path;
        if let Some(fault) = names::fault(team)
            && self.faulty_teams.insert(team.to_owned())
        {
            let text = format!("{}: team directory {} {fault}", object.file, shown(team));
            self.add(text, &object.file, None, String::new(), "rename the directory");
        }
        if let Some(fault) = names::fault(name) {
            let text = format!("{}: {} name {} {fault}", object.file, object.noun, shown(name));
            self.add(text, &object.file, None, String::new(), "rename the file");
        }
    }
}

/// Reads every object of a kind, in byte order of the paths, each with `read`.
///
/// # Errors
///
/// The problems of form (estate.md 1.2) of the first file that has any, and nothing else.
pub(crate) fn read_all<'t, T>(
    tree: &'t Tree,
    kind: &'static str,
    report: &mut Report,
    mut read: impl FnMut(&Object<'t>, &Node, &mut Decoder, &mut Report) -> T,
) -> Result<BTreeMap<Name, T>, Vec<Problem>> {
    // "tiers" holds tiers: the noun is the kind without its `s`.
    let noun = kind.strip_suffix('s').unwrap_or(kind);
    let mut files: BTreeMap<Name, Arc<str>> = BTreeMap::new();
    let mut all = BTreeMap::new();
    for (path, bytes) in tree.objects(kind) {
        let id = Name::new(path.team, path.name);
        let object = Object { id: id.clone(), file: tree.display(path.path), noun, path };
        let mut decoder = Decoder::new(Arc::clone(&object.file));
        let value = decoder.parse(bytes).map(|node| read(&object, &node, &mut decoder, report));
        let problems = decoder.into_problems();
        if !problems.is_empty() {
            return Err(problems);
        }
        report.check_path(&object);
        if let Some(first) = files.get(&id) {
            let text =
                format!("{}: {noun} {} is already declared", object.file, shown(id.as_str()));
            let help = format!("keep one of the two files; the other is {first}");
            report.add(text, &object.file, None, String::new(), &help);
            continue;
        }
        files.insert(id.clone(), object.file);
        if let Some(value) = value {
            all.insert(id, value);
        }
    }
    Ok(all)
}

/// Reads the one file at `path`; `help` says what belongs in it when it is missing.
pub(crate) fn read_one<T>(
    tree: &Tree,
    path: &str,
    header: &str,
    help: &str,
    read: impl FnOnce(&Node, &mut Decoder, &mut Report) -> T,
) -> Result<T, Refusal> {
    let file = tree.display(path);
    let mut report = Report::default();
    let Some(bytes) = tree.get(path) else {
        report.add(format!("{file}: missing file"), &file, None, String::new(), help);
        return Err(Refusal { header: header.to_owned(), problems: report.problems });
    };
    let mut decoder = Decoder::new(file);
    let value = decoder.parse(bytes).map(|node| read(&node, &mut decoder, &mut report));
    match (value, decoder.into_problems()) {
        (Some(value), problems) if problems.is_empty() => report.finish(header, value),
        (_, problems) => Err(Refusal { header: header.to_owned(), problems }),
    }
}
