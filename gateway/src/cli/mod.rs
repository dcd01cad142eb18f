//! The command line: flags, their environment variables, and what they resolve to.

use std::ffi::OsString;

use clap::{Parser, Subcommand};

pub mod aggregate;
pub mod certs;
pub mod flags;
pub mod rollout;
pub mod serve;
pub mod token;
pub mod value;

/// An OpAMP gateway: tells every collector which rendered configuration it should run.
#[derive(Debug, Parser)]
#[command(name = "gateway", version, about, subcommand_required = true)]
#[command(arg_required_else_help = true, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve an estate's rendered configurations to collectors over OpAMP.
    Serve(Box<serve::ServeArgs>),
    /// Gather the evidence of all replicas, judge Rollouts by it, and propose what follows.
    Aggregate(Box<aggregate::AggregateArgs>),
    /// Show, judge, plan and explain Rollouts.
    Rollout(Box<rollout::RolloutArgs>),
    /// Make bearer tokens for collectors and operators.
    Token(token::TokenArgs),
    /// Make certificates for trying TLS and the uplink out.
    Certs(certs::CertsArgs),
}

impl Cli {
    /// Reads a command line; every long flag may also be written with one dash.
    ///
    /// # Errors
    ///
    /// A usage error (exit code 2), or the help and version texts (exit code 0).
    pub fn read(arguments: impl Iterator<Item = OsString>) -> Result<Self, clap::Error> {
        Self::try_parse_from(render::args::long_flags(arguments))
    }
}
