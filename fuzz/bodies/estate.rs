//! An estate of any bytes: read or refused, and what is read can be written and read again.

use std::collections::BTreeMap;
use std::sync::Arc;

use render::problem::Refusal;
use render::snapshot::served;
use render::tree::Tree;
use render::{estate, yaml};

/// `data` is the files of an estate, one after another, each behind a line `=== path`.
pub(crate) fn run(data: &[u8]) {
    let tree = Tree { label: "estate".to_owned(), files: files(data) };
    for contents in tree.files.values() {
        check_yaml(contents);
    }
    read(estate::load_teams(&tree));
    read(estate::load_blueprints(&tree));
    read(estate::load_telemetry(&tree));
    read(estate::load_topology(&tree));
    read(served::from_tree(&tree, None));
}

/// A refusal is a text that names something.
fn read<T>(result: Result<T, Refusal>) {
    if let Err(refusal) = result {
        assert!(!refusal.to_string().is_empty());
    }
}

/// What our emitter writes is read again as the same, or our bytes are no contract.
fn check_yaml(contents: &[u8]) {
    let node = match yaml::parse(contents) {
        Ok(node) => node,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    if yaml::colliding_key(&node).is_some() {
        return;
    }
    let written = yaml::emit(&yaml::Out::from_node(&node));
    let again = match yaml::parse(written.as_bytes()) {
        Ok(again) => again,
        Err(error) => panic!("{error} in what we wrote:\n{written}"),
    };
    assert_eq!(yaml::emit(&yaml::Out::from_node(&again)), written);
}

fn files(data: &[u8]) -> BTreeMap<String, Arc<[u8]>> {
    const MARK: &[u8] = b"=== ";
    let mut files: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let mut file: Option<(String, Vec<u8>)> = None;
    for line in data.split_inclusive(|byte| *byte == b'\n') {
        if let Some(path) = line.strip_prefix(MARK) {
            let path = String::from_utf8_lossy(path.trim_ascii_end()).into_owned();
            files.extend(file.replace((path, Vec::new())));
        } else if let Some((_, contents)) = &mut file {
            contents.extend(line);
        }
    }
    files.extend(file);
    files.into_iter().map(|(path, contents)| (path, contents.into())).collect()
}
