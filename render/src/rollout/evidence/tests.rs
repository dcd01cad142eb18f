//! Laws of the merge, and what records mean.

mod classify;
mod merge;
mod text;
