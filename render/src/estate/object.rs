//! From files to objects, one by one: which object each declares, and what is wrong with it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::decode::{Decoder, shown};
use super::model::Name;
use super::report::Report;
use crate::problem::Refusal;
use crate::tree::{ObjectPath, Tree};
use crate::yaml::Node;

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

/// Reads one file with `read`; `None` when it is not YAML. Whatever is wrong goes into the report.
pub(crate) fn read_file<T>(
    file: Arc<str>,
    bytes: &[u8],
    report: &mut Report,
    read: impl FnOnce(&Node, &mut Decoder, &mut Report) -> T,
) -> Option<T> {
    let before = report.len();
    let mut decoder = Decoder::new(file);
    let value = decoder.parse(bytes).map(|node| read(&node, &mut decoder, report));
    report.add_form(decoder.into_form(), before);
    value
}

/// Reads every object of a kind, in byte order of the paths, each with `read`. An object whose file
/// is not YAML is known by its name only.
pub(crate) fn read_all<'t, T>(
    tree: &'t Tree,
    kind: &'static str,
    report: &mut Report,
    mut read: impl FnMut(&Object<'t>, &Node, &mut Decoder, &mut Report) -> T,
) -> BTreeMap<Name, Option<T>> {
    // "tiers" holds tiers: the noun is the kind without its `s`.
    let noun = kind.strip_suffix('s').unwrap_or(kind);
    let mut files: BTreeMap<Name, Arc<str>> = BTreeMap::new();
    let mut all = BTreeMap::new();
    for (path, bytes) in tree.objects(kind) {
        let id = Name::new(path.team, path.name);
        let object = Object { id: id.clone(), file: tree.display(path.path), noun, path };
        let value = read_file(Arc::clone(&object.file), bytes, report, |node, decoder, report| {
            read(&object, node, decoder, report)
        });
        report.check_path(&object);
        if let Some(first) = files.get(&id) {
            let text =
                format!("{}: {noun} {} is already declared", object.file, shown(id.as_str()));
            let help = format!("keep one of the two files; the other is {first}");
            report.add(text, &object.file, None, String::new(), &help);
            continue;
        }
        files.insert(id.clone(), object.file);
        all.insert(id, value);
    }
    all
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
        return Err(report.refusal(header));
    };
    match read_file(file, bytes, &mut report, read) {
        Some(value) => report.finish(header, value),
        None => Err(report.refusal(header)),
    }
}
