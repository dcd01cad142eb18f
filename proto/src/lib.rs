//! OpAMP on the wire and in a session. Pure: bytes and times are arguments, there is no socket,
//! clock, task or file in here.
//!
//! * [`frame`]: the header in front of a message on a WebSocket
//! * [`peek`]: what the gateway reads of an `AgentToServer`, borrowed, without allocation
//! * [`session`]: what is said to the agents of a connection, and remembered of them
//! * [`ids`], [`capabilities`]: identities, bits and flags

pub mod capabilities;
pub mod frame;
pub mod ids;
pub mod peek;
pub mod session;
mod wire;
