//! `teams/<team>/components/<name>.yaml`, and the Components inside a Blueprint (estate.md 1.6).

use std::sync::Arc;

use super::decode::{Decoder, Fields, shown};
use super::model::{Class, Component, Located};
use super::object::Object;
use super::report::Report;
use crate::yaml::Node;

/// Keys of a shared and of a local Component. A local one must not have an owner, which is said
/// in better words than that the key is unknown.
pub(crate) const KEYS: [&str; 6] = ["name", "class", "type", "version", "owner", "config"];

/// A shared Component; `None` if something was reported.
pub(crate) fn read(
    object: &Object<'_>,
    node: &Node,
    decoder: &mut Decoder,
    report: &mut Report,
) -> Option<Component> {
    let before = report.len();
    let fields = decoder.document(node, &KEYS);
    let name = decoder.string(&fields, "name");
    if report.require(object, &fields, "name", &name) {
        report.own_name(object, &fields, &name);
    }
    let owner = decoder.string(&fields, "owner");
    report.require(object, &fields, "owner", &owner);
    let component = body(object, &fields, "", name, Some(owner.value), decoder, report);
    component.filter(|_| report.len() == before)
}

/// What shared and local Components have in common. `whose` is put before each text: nothing, or
/// which local Component it is, with a blank at its end.
pub(crate) fn body(
    object: &Object<'_>,
    fields: &Fields<'_, '_>,
    whose: &str,
    name: Located<String>,
    owner: Option<String>,
    decoder: &mut Decoder,
    report: &mut Report,
) -> Option<Component> {
    let authored = decoder.string(fields, "class");
    let class = Class::parse(&authored.value);
    if class.is_none() {
        let text = match authored.value.as_str() {
            "" => format!("{whose}has no class"),
            class => format!("{whose}has class {}", shown(class)),
        };
        let help = "write receiver, processor, exporter, connector or extension";
        report.about(object, authored.at, fields.path_of("class"), &text, help);
    }
    let kind = decoder.string(fields, "type");
    if kind.value.is_empty() {
        let help = "add `type:`, a type of the catalogue";
        report.about(object, kind.at, fields.path_of("type"), &format!("{whose}has no type"), help);
    }
    let version = version(object, fields, whose, decoder, report);
    let config = decoder.body(fields, "config");
    Some(Component {
        name,
        class: class?,
        kind,
        version: version?.value,
        owner,
        config,
        file: Arc::clone(&object.file),
    })
}

/// `version`, at least 1; reported and `None` otherwise.
pub(crate) fn version(
    object: &Object<'_>,
    fields: &Fields<'_, '_>,
    whose: &str,
    decoder: &mut Decoder,
    report: &mut Report,
) -> Option<Located<u32>> {
    let authored = decoder.integer(fields, "version");
    let version = authored.as_ref().and_then(|version| u32::try_from(version.value).ok());
    if let Some(value) = version.filter(|&version| version > 0) {
        return Some(Located { value, at: fields.at("version") });
    }
    let text = match authored {
        Some(version) => format!("{whose}has version {}", version.value),
        None => format!("{whose}has no version"),
    };
    let help = format!("write a whole number from 1 to {}", u32::MAX);
    report.about(object, fields.at("version"), fields.path_of("version"), &text, &help);
    None
}
