//! `telemetry.yaml` (estate.md 1.4).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::decode::{KeyPath, shown};
use super::model::SelfTelemetry;
use super::object::read_one;
use crate::problem::Refusal;
use crate::tree::Tree;
use crate::yaml::{Node, Pos};

const HEADER: &str = "invalid telemetry:";

const KEYS: [&str; 4] = ["endpoint", "protocol", "environments", "new_pipeline_telemetry"];

/// Reads `telemetry.yaml`.
///
/// # Errors
///
/// A missing file or endpoint, another protocol than the two, an override with an empty side.
pub fn load_telemetry(tree: &Tree) -> Result<SelfTelemetry, Refusal> {
    let help = "say where collectors send their own telemetry: `self_telemetry: {endpoint: ...}`";
    read_one(tree, "telemetry.yaml", HEADER, help, |node, decoder, report| {
        let document = decoder.document(node, &["self_telemetry"]);
        let nothing = Node::null(document.at);
        let block = document.get("self_telemetry").unwrap_or(&nothing);
        let path = KeyPath::Key(&document.path, "self_telemetry");
        let fields = decoder.fields(block, path, &KEYS);
        let endpoint = decoder.string(&fields, "endpoint");
        let protocol = decoder.string(&fields, "protocol");
        let overrides = decoder.string_map(&fields, "environments");
        // Authors of the reference may write it; it changes nothing there, nor here.
        decoder.boolean(&fields, "new_pipeline_telemetry");

        let file = Arc::clone(&decoder.file);
        let mut add = |at: Pos, path: String, text: &str, help: &str| {
            report.add(format!("{file}: {text}"), &file, Some(at), path, help);
        };
        if endpoint.value.is_empty() {
            let path = fields.path_of("endpoint");
            add(endpoint.at, path, "self-telemetry has no endpoint", "add `endpoint:`");
        }
        if !matches!(protocol.value.as_str(), "" | "grpc" | "http/protobuf") {
            let text = format!("self-telemetry protocol {} is unknown", shown(&protocol.value));
            let help = "write grpc or http/protobuf, or drop the field for http/protobuf";
            add(protocol.at, fields.path_of("protocol"), &text, help);
        }
        let mut environments = BTreeMap::new();
        for (environment, endpoint) in overrides {
            let path = fields.path_of("environments");
            if environment.value.is_empty() {
                let text = "self-telemetry override for an Environment without a name";
                add(environment.at, path, text, "name the Environment, or drop the override");
            } else if endpoint.value.is_empty() {
                let name = shown(&environment.value);
                let text = format!("self-telemetry override for Environment {name} is empty");
                add(endpoint.at, path, &text, "write an endpoint, or drop the override");
            } else {
                environments.insert(environment.value, endpoint.value);
            }
        }
        let protocol = match protocol.value {
            absent if absent.is_empty() => "http/protobuf".to_owned(),
            protocol => protocol,
        };
        SelfTelemetry { endpoint: endpoint.value, protocol, environments }
    })
}
