//! What a collector puts into a message.

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::Message;
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
        capabilities: agent.capabilities(),
        agent_description: pending.description.then(|| describe(&attributes())),
        effective_config: pending.config.then(|| effective_config(agent, habits)),
        remote_config_status: (pending.status && !agent.report_only).then(|| status(agent)),
        health: pending.health.then(|| health(agent)),
        agent_disconnect: pending.goodbye.then_some(wire::AgentDisconnect {}),
        ..wire::AgentToServer::default()
    };
    message.encode_to_vec().into()
}

fn describe(attributes: &Attributes) -> wire::AgentDescription {
    let convert = |list: &[(String, Value)]| {
        list.iter()
            .map(|(key, value)| {
                let value = match value {
                    Value::Text(text) => wire::any_value::Value::StringValue(text.clone()),
                    Value::Integer(number) => wire::any_value::Value::IntValue(*number),
                    Value::Truth(truth) => wire::any_value::Value::BoolValue(*truth),
                };
                wire::KeyValue {
                    key: key.clone(),
                    value: Some(wire::AnyValue { value: Some(value) }),
                }
            })
            .collect()
    };
    wire::AgentDescription {
        identifying_attributes: convert(&attributes.identifying),
        non_identifying_attributes: convert(&attributes.non_identifying),
    }
}

/// A Supervisor sends one file under the empty name, without a content type (serving.md 3.3).
fn effective_config(agent: &Agent, habits: &Habits) -> wire::EffectiveConfig {
    let body = match &agent.running {
        Running::First | Running::Applying { .. } => habits.first_config.clone(),
        Running::Applied { body, .. } => body.clone(),
    };
    let file = wire::AgentConfigFile { body, ..wire::AgentConfigFile::default() };
    wire::EffectiveConfig {
        config_map: Some(wire::AgentConfigMap {
            config_map: BTreeMap::from([(String::new(), file)]),
        }),
    }
}

fn status(agent: &Agent) -> wire::RemoteConfigStatus {
    let (hash, status) = match &agent.running {
        Running::First => (Bytes::new(), wire::RemoteConfigStatuses::Unset),
        Running::Applying { hash, .. } => (hash.clone(), wire::RemoteConfigStatuses::Applying),
        Running::Applied { hash, .. } => (hash.clone(), wire::RemoteConfigStatuses::Applied),
    };
    wire::RemoteConfigStatus {
        last_remote_config_hash: hash,
        status: status.into(),
        error_message: String::new(),
    }
}

/// A Supervisor's first report says unhealthy: its collector does not run yet.
fn health(agent: &Agent) -> wire::ComponentHealth {
    let healthy = matches!(agent.running, Running::Applied { .. });
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
