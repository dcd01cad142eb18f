//! A collector that polls once over HTTP.

use std::io::{Read, Write};
use std::net::SocketAddr;

use prost::Message;
use proto::opamp::{
    AgentDescription, AgentToServer, AnyValue, KeyValue, RemoteConfigStatus, RemoteConfigStatuses,
    ServerToAgent, any_value,
};

use super::http::{Answer, Request};

/// First report of a collector of the Tier that selects `service.name` = `service`.
pub(crate) fn report(uid: u8, attributes: &[(&str, &str)]) -> Vec<u8> {
    first_report(uid, attributes).encode_to_vec()
}

/// The same with the word that it runs the configuration of this hash.
pub(crate) fn applied(uid: u8, attributes: &[(&str, &str)], hash: Vec<u8>) -> Vec<u8> {
    let status = RemoteConfigStatus {
        last_remote_config_hash: hash.into(),
        status: RemoteConfigStatuses::Applied.into(),
        ..Default::default()
    };
    let report =
        AgentToServer { remote_config_status: Some(status), ..first_report(uid, attributes) };
    report.encode_to_vec()
}

/// The same with the word that the configuration of this hash FAILED on it.
pub(crate) fn failed(uid: u8, attributes: &[(&str, &str)], hash: Vec<u8>, why: &str) -> Vec<u8> {
    let status = RemoteConfigStatus {
        last_remote_config_hash: hash.into(),
        status: RemoteConfigStatuses::Failed.into(),
        error_message: why.to_owned(),
    };
    let report = AgentToServer {
        sequence_num: 1,
        remote_config_status: Some(status),
        ..first_report(uid, attributes)
    };
    report.encode_to_vec()
}

fn first_report(uid: u8, attributes: &[(&str, &str)]) -> AgentToServer {
    let pair = |(key, value): &(&str, &str)| KeyValue {
        key: (*key).to_owned(),
        value: Some(AnyValue { value: Some(any_value::Value::StringValue((*value).to_owned())) }),
    };
    AgentToServer {
        instance_uid: vec![uid; 16].into(),
        capabilities: 0x1 | 0x2 | 0x1000,
        agent_description: Some(AgentDescription {
            identifying_attributes: attributes.iter().map(pair).collect(),
            ..Default::default()
        }),
        ..Default::default()
    }
}

pub(crate) fn request(body: Vec<u8>) -> Request {
    Request::new("POST", "/v1/opamp").header("Content-Type", "application/x-protobuf").body(body)
}

/// What a collector of `service` is offered.
#[track_caller]
pub(crate) fn offered(to: SocketAddr, uid: u8, service: &str) -> String {
    body(&request(report(uid, &[("service.name", service)])).send(to))
}

/// The same over a stream that is open already.
pub(crate) fn offered_over(
    stream: impl Read + Write,
    uid: u8,
    service: &str,
) -> std::io::Result<String> {
    request(report(uid, &[("service.name", service)])).send_over(stream).map(|answer| body(&answer))
}

#[track_caller]
pub(crate) fn reply(answer: &Answer) -> ServerToAgent {
    assert_eq!(answer.status, 200, "{answer:?}");
    ServerToAgent::decode(&*answer.body).unwrap()
}

#[track_caller]
fn body(answer: &Answer) -> String {
    let reply = reply(answer);
    let config = reply.remote_config.unwrap().config.unwrap();
    String::from_utf8(config.config_map[""].body.to_vec()).unwrap()
}
