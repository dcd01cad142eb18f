//! Behaviour of `proto` as its users see it.

mod generated;
