//! The binary `render`, from outside: the guide walked top to bottom, and the cases of
//! estate.md, section 2.

mod common;
mod determinism;
mod documents;
mod findings;
mod guide;
mod palette;
mod refusals;
mod snapshot;
mod writing;
