//! How Rollouts are judged, and what outlives the process (rollouts.md, decisions 9, 18 and 19).

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::cli::value;
use crate::config::{self, EvidenceConfig};

/// Flags of evidence.
#[derive(Debug, Args)]
pub struct EvidenceArgs {
    /// Keep failures, brakes and who took a candidate in this file over restarts [default: they die
    /// with the process].
    #[arg(long, value_name = "FILE", env = "TIDEGATE_STORE", help_heading = HEADING)]
    pub store: Option<PathBuf>,

    /// Replicas that must report on a Rollout before a verdict is whole: the least number that run,
    /// such as an autoscaler's minimum [default: 1].
    #[arg(long, value_name = "N", env = "TIDEGATE_EXPECT_REPLICAS", help_heading = HEADING)]
    pub expect_replicas: Option<NonZeroU32>,

    /// What the collectors of a drained or vanished replica get on top of dark_after before their
    /// silence counts; also how much longer evidence gathers after a start.
    #[arg(long, value_name = "DURATION", env = "TIDEGATE_EVIDENCE_GRACE", help_heading = HEADING)]
    #[arg(value_parser = value::duration, allow_hyphen_values = true, default_value = "1m")]
    pub evidence_grace: Duration,

    /// After this long, the collectors of a replica that vanished and was not replaced count no
    /// more, so that nothing waits for ever.
    #[arg(long, value_name = "DURATION", env = "TIDEGATE_FORGET_REPLICA", help_heading = HEADING)]
    #[arg(value_parser = value::interval, allow_hyphen_values = true, default_value = "1h")]
    pub forget_replica: Duration,
}

const HEADING: &str = "Evidence";

impl EvidenceArgs {
    /// Nothing here depends on another flag.
    pub fn resolve(self) -> EvidenceConfig {
        EvidenceConfig {
            store: self.store,
            expect_replicas: self.expect_replicas.unwrap_or(config::EXPECT_REPLICAS),
            grace: self.evidence_grace,
            forget: self.forget_replica,
        }
    }
}
