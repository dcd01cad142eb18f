//! `gateway rollout …`: against listeners that play a part, and against a real gateway.

mod commands;
mod live;
