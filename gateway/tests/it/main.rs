//! The gateway on real sockets, on loopback, port 0.
//!
//! `support` starts one and speaks to it, as bytes or as messages; the other modules are named after
//! the behaviour they look at.

#![expect(clippy::unwrap_used, reason = "helpers of tests, where a panic is the report")]

mod admission;
mod drain;
mod duplicate;
mod durable;
mod http;
mod link;
mod push;
mod slow;
mod support;
mod tls;
mod upgrade;
