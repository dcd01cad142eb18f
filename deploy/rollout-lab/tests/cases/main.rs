//! The cases of the lab's specification, each named after its behaviour and its number.

#![expect(clippy::unwrap_used, reason = "a refusal that a case does not expect ends it")]

mod comparing;
mod controlling;
mod degraded;
mod invariants;
mod operations;
mod output;
mod retreat;
mod scheduling;
mod setup;
mod transitions;
mod windows;
