//! The command line. It and the drill are the only parts that open files and ask for the time.

mod check;
mod compare;
#[cfg(feature = "drill")]
mod drill;
mod files;
mod model;
#[cfg(feature = "drill")]
mod series;

use clap::{Parser, Subcommand};

/// Model the upgrade of a set of gateway replicas, and measure it.
///
/// Exit codes: 0 as it must be; 1 a conclusion does not hold or a figure was changed; 2 it could not
/// be done; 3 a drill whose instrument was not good enough.
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
    #[cfg(feature = "drill")]
    Drill(drill::Drill),
    #[cfg(feature = "drill")]
    DrillReport(drill::DrillReport),
    #[cfg(feature = "drill")]
    DrillSeries(series::DrillSeries),
}

impl Arguments {
    /// The exit code.
    pub(crate) fn run(self) -> anyhow::Result<u8> {
        let right = match self.command {
            Command::Model(model) => model.run(),
            Command::Check(check) => check.run(),
            Command::Compare(compare) => compare.run(),
            #[cfg(feature = "drill")]
            Command::Drill(drill) => return drill.run(),
            #[cfg(feature = "drill")]
            Command::DrillReport(report) => report.run(),
            #[cfg(feature = "drill")]
            Command::DrillSeries(series) => return series.run(),
        }?;
        Ok(u8::from(!right))
    }
}
