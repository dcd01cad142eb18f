//! The command line. This half of the program is the only one that opens files and asks for the time.

mod check;
mod compare;
mod files;
mod model;

use clap::{Parser, Subcommand};

/// Model the upgrade of a set of gateway replicas.
///
/// Exit codes: 0 as it must be; 1 a conclusion does not hold or a figure was changed; 2 it could not
/// be done.
#[derive(Debug, Parser)]
#[command(name = "rollout-lab", version, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Model(model::Model),
    Check(check::Check),
    Compare(compare::Compare),
}

impl Arguments {
    /// Whether everything was as it must be.
    pub(crate) fn run(self) -> anyhow::Result<bool> {
        match self.command {
            Command::Model(model) => model.run(),
            Command::Check(check) => check.run(),
            Command::Compare(compare) => compare.run(),
        }
    }
}
