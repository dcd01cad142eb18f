//! Everything that is wrong with an estate's files, collected to be told in one go.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::decode::{Decoder, Fields, Form, shown};
use super::model::Located;
use super::names;
use super::object::Object;
use crate::problem::{Problem, Refusal, Spot};
use crate::tree::ObjectPath;
use crate::yaml::Pos;

/// What is wrong with all files together.
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

    /// What Tiers, Services and Rollouts begin with: a name that may be left out, and an owner,
    /// which is returned.
    pub(crate) fn name_and_owner(
        &mut self,
        object: &Object<'_>,
        fields: &Fields<'_, '_>,
        decoder: &mut Decoder,
    ) -> Located<String> {
        let name = decoder.string(fields, "name");
        if !name.value.is_empty() {
            self.own_name(object, fields, &name);
        }
        let owner = decoder.string(fields, "owner");
        self.require(object, fields, "owner", &owner);
        owner
    }

    /// Ends the load: `value` if there is nothing to report.
    pub(crate) fn finish<T>(self, header: &str, value: T) -> Result<T, Refusal> {
        if self.problems.is_empty() { Ok(value) } else { Err(self.refusal(header)) }
    }

    /// Everything that was reported.
    pub(crate) fn refusal(self, header: &str) -> Refusal {
        Refusal { header: header.to_owned(), problems: self.problems }
    }

    /// Adds what is wrong with a file's form, by place, ahead of what was said since `before` about
    /// its meaning; and takes back whatever of that only follows from the form.
    pub(crate) fn add_form(&mut self, mut form: Form, before: usize) {
        if form.problems.is_empty() {
            return;
        }
        let causes = Causes::of(&form);
        let mut meaning = self.problems.split_off(before);
        meaning.retain(|problem| !causes.explain(problem));
        form.problems.sort_by_key(|problem| problem.spot.as_ref().and_then(|spot| spot.pos));
        self.problems.append(&mut form.problems);
        self.problems.append(&mut meaning);
    }

    /// Names that may not be, of the object and of its team; each team is told once.
    pub(crate) fn check_path(&mut self, object: &Object<'_>) {
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

/// Paths at which a file's form is wrong. What is said about the meaning of such a value, of one
/// below it or of one that holds it, would be said about something that nobody wrote: a misspelt
/// `ownr` is not also a missing owner.
struct Causes {
    paths: BTreeSet<String>,
}

impl Causes {
    fn of(form: &Form) -> Self {
        let at = form.problems.iter().filter_map(|problem| problem.spot.as_ref());
        Self { paths: at.map(|spot| &spot.path).chain(&form.meant).cloned().collect() }
    }

    fn explain(&self, problem: &Problem) -> bool {
        let Some(Spot { path, .. }) = &problem.spot else { return false };
        // The document's own path is empty, and above all others.
        let ends = path.char_indices().filter(|&(_, c)| matches!(c, '.' | '[')).map(|(at, _)| at);
        if ends.chain([0, path.len()]).any(|end| self.paths.contains(&path[..end])) {
            return true;
        }
        ['.', '['].into_iter().any(|separator| {
            let start = format!("{path}{separator}");
            let next = self.paths.range(start.clone()..).next();
            next.is_some_and(|cause| cause.starts_with(&start))
        })
    }
}
