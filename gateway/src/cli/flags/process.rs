//! The process: threads and its log.

use std::num::NonZeroUsize;

use clap::{Args, ValueEnum};

/// Flags of the process.
#[derive(Debug, Args)]
pub struct ProcessArgs {
    /// Worker threads [default: one per core].
    #[arg(long, value_name = "N", env = "TIDEGATE_WORKERS", help_heading = HEADING)]
    pub workers: Option<NonZeroUsize>,

    /// Form of the log on stderr.
    #[arg(long, value_name = "FORM", env = "TIDEGATE_LOG_FORMAT", help_heading = HEADING)]
    #[arg(value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,

    /// What is logged: error, warn, info, debug or trace, or directives such as
    /// 'info,gateway::source=debug'.
    #[arg(long, value_name = "FILTER", env = "TIDEGATE_LOG", help_heading = HEADING)]
    #[arg(default_value = "info")]
    pub log: String,
}

const HEADING: &str = "Process";

/// Form of the log on stderr.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One line of text each.
    Text,
    /// One JSON object each.
    Json,
}
