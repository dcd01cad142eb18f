//! What a collector puts into a message.

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::Message;
use proto::capabilities::AgentCapabilities;
use proto::opamp as wire;

use super::{Agent, Habits, Pending, Running};
use crate::model::{Attributes, Value};

pub(super) fn compose(
    agent: &Agent,
    pending: &Pending,
    habits: &Habits,
    attributes: impl FnOnce() -> Attributes,
) -> Bytes {
    let message = wire::AgentToServer {
        instance_uid: Bytes::copy_from_slice(&agent.uid.0),
        sequence_num: agent.sequence,
        capabilities: capabilities(agent.report_only),
        agent_description: pending.description.then(|| describe(attributes())),
        effective_config: pending.config.then(|| effective_config(agent, habits)),
        remote_config_status: (pending.status && !agent.report_only).then(|| status(agent)),
        health: pending.health.then(|| health(agent)),
        agent_disconnect: pending.goodbye.then_some(wire::AgentDisconnect {}),
        ..wire::AgentToServer::default()
    };
    message.encode_to_vec().into()
}

/// What a Supervisor says it can do.
pub(crate) fn capabilities(report_only: bool) -> u64 {
    let reports = AgentCapabilities::REPORTS_STATUS
        | AgentCapabilities::REPORTS_EFFECTIVE_CONFIG
        | AgentCapabilities::REPORTS_HEALTH
        | AgentCapabilities::REPORTS_HEARTBEAT;
    if report_only {
        return reports.0;
    }
    let accepts =
        AgentCapabilities::ACCEPTS_REMOTE_CONFIG | AgentCapabilities::REPORTS_REMOTE_CONFIG;
    (reports | accepts).0
}

/// Attributes as they are sent.
pub(crate) fn describe(attributes: Attributes) -> wire::AgentDescription {
    let convert = |list: Vec<(String, Value)>| {
        list.into_iter()
            .map(|(key, value)| {
                let value = match value {
                    Value::Text(text) => wire::any_value::Value::StringValue(text),
                    Value::Integer(number) => wire::any_value::Value::IntValue(number),
                    Value::Truth(truth) => wire::any_value::Value::BoolValue(truth),
                };
                wire::KeyValue { key, value: Some(wire::AnyValue { value: Some(value) }) }
            })
            .collect()
    };
    wire::AgentDescription {
        identifying_attributes: convert(attributes.identifying),
        non_identifying_attributes: convert(attributes.non_identifying),
    }
}

/// A Supervisor sends one file under the empty name, without a content type (serving.md 3.3).
fn effective_config(agent: &Agent, habits: &Habits) -> wire::EffectiveConfig {
    let body = match (&agent.foreign, &agent.running) {
        (Some(body), _) => Some(&**body),
        (None, Running::Applied(applied)) => Some(&applied.body),
        (None, Running::Applying(applying)) => applying.before.as_ref().map(|held| &held.body),
        (None, Running::Failed(failed)) => failed.before.as_ref().map(|held| &held.body),
        (None, Running::First) => None,
    };
    let body = body.unwrap_or(&habits.first_config).clone();
    let file = wire::AgentConfigFile { body, ..wire::AgentConfigFile::default() };
    wire::EffectiveConfig {
        config_map: Some(wire::AgentConfigMap {
            config_map: BTreeMap::from([(String::new(), file)]),
        }),
    }
}

fn status(agent: &Agent) -> wire::RemoteConfigStatus {
    use wire::RemoteConfigStatuses::{Applied, Applying, Failed, Unset};
    let (hash, status, error) = match &agent.running {
        Running::First => match &agent.faults.profile().failed_before {
            Some(text) => (Bytes::from_static(ANOTHER_HASH), Failed, &**text),
            None => (Bytes::new(), Unset, ""),
        },
        Running::Applying(applying) => (applying.content.hash.clone(), Applying, ""),
        Running::Applied(applied) => (applied.hash.clone(), Applied, ""),
        Running::Failed(failed) => (failed.hash.clone(), Failed, &*failed.text),
    };
    wire::RemoteConfigStatus {
        last_remote_config_hash: hash,
        status: status.into(),
        error_message: error.to_owned(),
    }
}

/// The hash of a configuration that nobody offers.
const ANOTHER_HASH: &[u8] = b"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// A Supervisor's first report says unhealthy: its collector does not run yet.
fn health(agent: &Agent) -> wire::ComponentHealth {
    let healthy = match &agent.running {
        Running::Applied(_) => true,
        Running::Failed(failed) => failed.before.is_some(),
        Running::First | Running::Applying(_) => false,
    };
    let nanos = agent.started_unix_ms.saturating_mul(1_000_000);
    wire::ComponentHealth {
        healthy,
        start_time_unix_nano: if healthy { nanos } else { 0 },
        status_time_unix_nano: nanos,
        status: if healthy { "StatusOK" } else { "StatusStarting" }.to_owned(),
        ..wire::ComponentHealth::default()
    }
}

/// A configuration of that many bytes, which no Tier has.
pub(super) fn some_config(bytes: usize) -> Bytes {
    let mut text = Vec::with_capacity(bytes + 256);
    text.extend_from_slice(
        b"receivers:\n  nop: {}\nexporters:\n  nop: {}\nservice:\n  pipelines:\n    traces:\n      receivers: [nop]\n      exporters: [nop]\n",
    );
    while text.len() < bytes {
        text.extend_from_slice(b"# what a collector of some size has in its configuration file\n");
    }
    text.truncate(bytes);
    text.into()
}
