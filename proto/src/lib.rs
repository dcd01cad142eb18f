//! OpAMP on the wire and in a session. Pure: bytes and times are arguments, there is no socket,
//! clock, task or file in here.
//!
//! * [`frame`]: the header in front of a message on a WebSocket
//! * [`peek`]: what the gateway reads of an `AgentToServer`, borrowed, without allocation
//! * [`ws`]: RFC 6455 framing for the server's side
//! * [`opamp`]: the schema's messages as types, for everything that is not hot
//! * [`session`]: what is said to the agents of a connection, and remembered of them
//! * [`ids`], [`capabilities`]: identities, bits and flags
//! * [`prefetch`]: what is looked at next is asked for from memory, for walks over many sessions
//! * [`uplink`]: what a replica and an aggregator say to each other

pub mod capabilities;
pub mod frame;
pub mod ids;
#[rustfmt::skip]
#[allow(missing_docs, clippy::all, clippy::use_self, reason = "generated from proto/opamp.proto")]
#[path = "gen/opamp.proto.v1.rs"]
pub mod opamp;
pub mod peek;
pub mod prefetch;
pub mod session;
pub mod uplink;
mod wire;
pub mod ws;
