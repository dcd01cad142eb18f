//! What carries messages: WebSocket links of our own, plain HTTP through hyper.
//!
//! A [`link`] is read by [`input`], written by [`output`] (with an [`outbox`] while its socket is
//! full) and, where it is encrypted, through [`tls`]. [`http`] holds a connection, [`exchange`] one
//! request of it, [`encoding`] its content codings. The [`budget`] bounds what both may hold of
//! messages that have not arrived whole, and [`glance`] finds those that have. Whether what was sent
//! arrived says [`acknowledged`].

mod acknowledged;
pub mod budget;
mod encoding;
mod exchange;
mod glance;
pub mod http;
mod input;
pub mod link;
pub mod outbox;
mod output;
mod tls;

pub use exchange::BODY_DEADLINE;
