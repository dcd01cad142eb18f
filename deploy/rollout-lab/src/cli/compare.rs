//! `rollout-lab compare`

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use rollout_lab::compare::{self, Amount, Question};

use super::files::Files;

/// Lay three arithmetics side by side: the baseline's, strict mode's, and that of a Kubernetes
/// Deployment.
#[derive(Debug, Args)]
pub(super) struct Compare {
    /// Replicas.
    #[arg(long, value_name = "R")]
    replicas: i64,

    /// Replicas that may be lacking: a number, or a percentage, rounded down.
    #[arg(long, value_name = "U")]
    max_unavailable: Amount,

    /// Replicas beyond R: a number, or a percentage, rounded up.
    #[arg(long, value_name = "S")]
    max_surge: Amount,

    /// Old replicas that are unhealthy and stay so.
    #[arg(long, value_name = "N", default_value_t = 0)]
    unhealthy_old: i64,

    /// Never report the end of a process.
    #[arg(long)]
    no_acknowledgement: bool,

    /// Seed of all ids.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// How to print it.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,

    /// A plot of every step, as SVG.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,

    /// Replace a plot that exists.
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Table,
    Json,
    Svg,
}

impl Compare {
    pub(super) fn run(self) -> anyhow::Result<bool> {
        let comparison = compare::compare(&Question {
            replicas: self.replicas,
            max_unavailable: self.max_unavailable,
            max_surge: self.max_surge,
            unhealthy_old: self.unhealthy_old,
            acknowledge: !self.no_acknowledgement,
            seed: self.seed,
        })?;
        if let Some(path) = &self.plot {
            Files::new(self.force).write(path, &compare::svg(&comparison))?;
        }
        match self.output {
            Output::Table => print!("{}", compare::table(&comparison)),
            Output::Json => println!("{}", serde_json::to_string_pretty(&comparison)?),
            Output::Svg => print!("{}", compare::svg(&comparison)),
        }
        Ok(true)
    }
}
