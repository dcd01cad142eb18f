//! `loadgen flood`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use loadgen::flood;

use super::{DEMO, Form, gateway_binary, unless_interrupted};

#[derive(Debug, Args)]
pub(super) struct Flood {
    /// The estate that is served, with its rendered files
    #[arg(long, value_name = "DIR", default_value = DEMO)]
    estate: PathBuf,

    /// The gateway's binary; absent, the one beside this binary
    #[arg(long, value_name = "FILE")]
    gateway: Option<PathBuf>,

    /// Honest collectors
    #[arg(long, value_name = "N", default_value_t = 5_000)]
    honest: u32,

    /// Connections that never finish their handshake
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    half_open: u32,

    /// Links that ask and never read
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    slow_readers: u32,

    /// Peers that send garbage, and come again
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    garbage: u32,

    /// How long the honest stay once all have their offer, in each of the two runs
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = loadgen::duration::parse)]
    duration: Duration,

    /// Form of what is told
    #[arg(short, long, value_enum, default_value_t = Form::Text)]
    output: Form,

    /// What the gateway is started with besides
    #[arg(last = true)]
    arguments: Vec<String>,
}

impl Flood {
    pub(super) fn run(self) -> anyhow::Result<bool> {
        let options = flood::Options {
            gateway: gateway_binary(self.gateway)?,
            estate: self.estate,
            honest: self.honest,
            half_open: self.half_open,
            slow_readers: self.slow_readers,
            garbage: self.garbage,
            duration: self.duration,
            arguments: self.arguments,
        };
        let sockets = u64::from(options.honest)
            + u64::from(options.half_open)
            + u64::from(options.slow_readers)
            + u64::from(options.garbage);
        let limit = loadgen::host::raise_descriptors().unwrap_or(u64::MAX);
        if sockets + 100 > limit {
            anyhow::bail!(
                "{sockets} peers need as many open files, and {limit} are allowed: ask for fewer"
            );
        }
        let outcome = unless_interrupted(flood::flood(&options))?;
        self.output.tell(&outcome)?;
        Ok(outcome.passed)
    }
}
