//! What carries messages: WebSocket links of our own, plain HTTP through hyper.

pub mod budget;
pub mod encoding;
