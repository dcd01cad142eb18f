//! `teams/<team>/services/<name>.yaml` (estate.md 1.9).

use std::sync::Arc;

use super::decode::{Decoder, KeyPath};
use super::model::{Located, Name, Service};
use super::names;
use super::object::Object;
use super::report::Report;
use crate::yaml::Node;

/// A Service as far as it could be read.
#[derive(Debug)]
pub(crate) struct ServiceDraft {
    /// Each step of each path, with the path of its key.
    pub(crate) steps: Vec<(Located<Name>, String)>,
    /// Its file.
    pub(crate) file: Arc<str>,
    /// The whole, unless something was reported.
    pub(crate) service: Option<Service>,
}

pub(crate) fn read(
    object: &Object<'_>,
    node: &Node,
    decoder: &mut Decoder,
    report: &mut Report,
) -> ServiceDraft {
    let before = report.len();
    let fields = decoder.document(node, &["name", "owner", "class", "paths"]);
    let owner = report.name_and_owner(object, &fields, decoder);
    let class = decoder.string(&fields, "class");
    report.require(object, &fields, "class", &class);

    let list = KeyPath::Key(&fields.path, "paths");
    let mut paths = Vec::new();
    let mut steps = Vec::new();
    for (index, node) in decoder.list(&fields, "paths").iter().enumerate() {
        let path = decoder.fields(node, KeyPath::Index(&list, index), &["through"]);
        let through = decoder.strings(&path, "through");
        if through.is_empty() {
            let text = format!("has a path through nothing (paths[{index}])");
            let help = "list the Tiers as team/name, or drop the path";
            report.about(object, path.at("through"), path.path_of("through"), &text, help);
        }
        let mut tiers = Vec::with_capacity(through.len());
        let list = KeyPath::Key(&path.path, "through");
        for (index, step) in through.into_iter().enumerate() {
            let path = KeyPath::Index(&list, index).to_string();
            match names::qualified(&step.value) {
                Ok(value) => {
                    let tier = Located { value, at: step.at };
                    steps.push((tier.clone(), path));
                    tiers.push(tier);
                }
                Err(fault) => {
                    let text = format!("has a bad step: {fault}");
                    report.about(object, step.at, path, &text, "name a Tier as team/name");
                }
            }
        }
        paths.push(tiers);
    }

    let service = (report.len() == before).then(|| Service {
        id: object.id.clone(),
        owner: owner.value,
        class: class.value,
        paths,
        file: Arc::clone(&object.file),
    });
    ServiceDraft { steps, file: Arc::clone(&object.file), service }
}
