//! The exact shapes of the generated YAML documents (estate.md 2.6).

use super::header::{self, Commit};
use super::lanes::{Pipeline, Pipelines};
use super::resolve::{Resolved, STRIP_ID};
use crate::estate::{Binding, Class, Tier};
use crate::yaml::{Out, emit};

/// What every collector is told about its own telemetry.
pub(super) struct Telemetry<'a> {
    pub(super) endpoint: &'a str,
    pub(super) protocol: &'a str,
    pub(super) commit: &'a Commit,
}

/// A Tier's artefact, or its candidate.
pub(super) fn tier(
    tier: &Tier,
    binding: &Binding,
    resolved: &Resolved<'_>,
    pipelines: &Pipelines,
    telemetry: &Telemetry<'_>,
) -> String {
    // Without a pipeline nothing passes through, so there is nothing to strip.
    let strips = tier.is_untrusted() && !pipelines.lanes.is_empty();
    let mut document = Vec::new();
    for class in Class::ALL {
        let mut section = Vec::new();
        if class == Class::Processor && strips {
            section.push((Out::text(STRIP_ID), strip()));
        }
        for (id, instance) in &resolved.instances {
            if instance.component.class == class {
                let config = instance.component.config.as_ref();
                let config = config.map_or_else(|| Out::Mapping(Vec::new()), Out::from_config);
                section.push((Out::text(id.as_str()), config));
            }
        }
        if !section.is_empty() {
            document.push((Out::text(section_name(class)), Out::Mapping(section)));
        }
    }
    let mut service = Vec::new();
    if !pipelines.extensions.is_empty() {
        service.push((Out::text("extensions"), ids(&[], &pipelines.extensions)));
    }
    if !pipelines.lanes.is_empty() {
        let lanes = pipelines.lanes.iter().map(|lane| pipeline(lane, strips)).collect();
        service.push((Out::text("pipelines"), Out::Mapping(lanes)));
    }
    let own = ("telecraft.tier", Out::text(tier.id.as_str()));
    service.push((Out::text("telemetry"), own_telemetry(telemetry, own)));
    document.push((Out::text("service"), Out::Mapping(service)));
    header::tier(tier, binding, telemetry.commit) + &emit(&Out::Mapping(document))
}

/// What a Tier's Supervisors start from.
///
/// `reports_remote_config` and `reports_heartbeat` are ours: without the first no
/// `RemoteConfigStatus` ever arrives (estate.md, decision 7).
pub(super) fn supervisor(tier: &Tier, endpoint: &str, commit: &Commit) -> String {
    let yes = || Out::Plain("true".into());
    let document = Out::mapping([
        ("server", Out::mapping([("endpoint", Out::text(endpoint))])),
        (
            "capabilities",
            Out::mapping([
                ("accepts_remote_config", yes()),
                ("reports_effective_config", yes()),
                ("reports_health", yes()),
                ("reports_remote_config", yes()),
                ("reports_heartbeat", yes()),
            ]),
        ),
        ("agent", Out::mapping([("automatic_config_rollback", yes())])),
        ("storage", Out::mapping([("directory", Out::text("/var/lib/telecraft/supervisor"))])),
    ]);
    header::supervisor(tier, commit) + &emit(&document)
}

/// For a collector that no selector matches.
pub(super) fn unmatched(telemetry: &Telemetry<'_>) -> String {
    let own = ("telecraft.unmatched", Out::Plain("true".into()));
    let service = Out::mapping([("telemetry", own_telemetry(telemetry, own))]);
    header::unmatched(telemetry.commit) + &emit(&Out::mapping([("service", service)]))
}

fn section_name(class: Class) -> &'static str {
    match class {
        Class::Receiver => "receivers",
        Class::Processor => "processors",
        Class::Exporter => "exporters",
        Class::Connector => "connectors",
        Class::Extension => "extensions",
    }
}

fn strip() -> Out<'static> {
    let action =
        Out::mapping([("action", Out::text("delete")), ("pattern", Out::text("^telecraft\\."))]);
    Out::mapping([("actions", Out::Sequence(vec![action]))])
}

fn pipeline(lane: &Pipeline, strips: bool) -> (Out<'_>, Out<'_>) {
    let mut entries = vec![(Out::text("receivers"), ids(&[], &lane.receivers))];
    let strip: &[&'static str] = if strips { &[STRIP_ID] } else { &[] };
    if !strip.is_empty() || !lane.processors.is_empty() {
        entries.push((Out::text("processors"), ids(strip, &lane.processors)));
    }
    entries.push((Out::text("exporters"), ids(&[], &lane.exporters)));
    (Out::text(lane.signal.as_str()), Out::Mapping(entries))
}

fn ids<'a>(first: &[&'static str], rest: &'a [String]) -> Out<'a> {
    let first = first.iter().map(|id| Out::text(*id));
    Out::Sequence(first.chain(rest.iter().map(|id| Out::text(id.as_str()))).collect())
}

fn own_telemetry<'a>(telemetry: &Telemetry<'a>, own: (&'a str, Out<'a>)) -> Out<'a> {
    let exporter = || {
        let otlp = Out::mapping([
            ("endpoint", Out::text(telemetry.endpoint)),
            ("protocol", Out::text(telemetry.protocol)),
        ]);
        Out::mapping([("exporter", Out::mapping([("otlp", otlp)]))])
    };
    let reader = Out::mapping([("periodic", exporter())]);
    let processor = Out::mapping([("batch", exporter())]);
    Out::mapping([
        (
            "resource",
            Out::mapping([
                ("k8s.node.name", Out::text("${env:TELECRAFT_NODE_NAME}")),
                ("telecraft.commit", Out::Quoted(telemetry.commit.as_str().into())),
                own,
            ]),
        ),
        (
            "metrics",
            Out::mapping([
                ("level", Out::text("normal")),
                ("readers", Out::Sequence(vec![reader])),
            ]),
        ),
        ("logs", Out::mapping([("processors", Out::Sequence(vec![processor]))])),
    ])
}
