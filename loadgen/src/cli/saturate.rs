//! `loadgen saturate`.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use loadgen::saturate::{self, Kind, Length, Options};

use super::{DEMO, Form};

#[derive(Debug, Args)]
pub(super) struct Saturate {
    /// Where the server listens, ws://, with the path
    #[arg(id = "server", long = "endpoint", value_name = "URL")]
    endpoint: String,

    /// The estate that it serves, with its rendered files
    #[arg(long, value_name = "DIR", default_value = DEMO)]
    estate: PathBuf,

    /// Who the collectors are (TOML, see loadgen/plans/demo.toml); derived from the estate when absent
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,

    /// How many links
    #[arg(long, value_name = "N", default_value_t = 64)]
    links: u32,

    /// How many messages are under way on each
    #[arg(long, value_name = "N", default_value_t = 16)]
    in_flight: u32,

    /// What is sent. Described: uid, sequence number, capabilities, the whole agent description and
    /// the status APPLIED with the offered hash; no effective config and no health. Heartbeat: uid,
    /// sequence number and capabilities
    #[arg(long, value_enum, default_value_t = Kind::Described)]
    message: Kind,

    /// How long is measured
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = loadgen::duration::parse)]
    duration: Duration,

    /// How long is sent before that
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = loadgen::duration::parse)]
    warm_up: Duration,

    /// Send that many in all and measure all of them, however long it takes
    #[arg(long, value_name = "N", conflicts_with_all = ["duration", "warm_up"])]
    messages: Option<u64>,

    /// The server's process on this machine: what a message costs it, from /proc
    #[arg(long, value_name = "PID")]
    server_pid: Option<u32>,

    /// Local address to connect from
    #[arg(long, value_name = "ADDRESS")]
    source: Option<IpAddr>,

    /// How long no reply at all may come
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = loadgen::duration::parse)]
    reply_timeout: Duration,

    /// Form of what is told
    #[arg(short, long, value_enum, default_value_t = Form::Text)]
    output: Form,
}

impl Saturate {
    pub(super) fn into_options(self) -> Options {
        Options {
            endpoint: self.endpoint,
            estate: self.estate,
            plan: self.plan,
            links: self.links,
            in_flight: self.in_flight,
            message: self.message,
            length: match self.messages {
                Some(messages) => Length::Messages(messages),
                None => Length::For { warm_up: self.warm_up, duration: self.duration },
            },
            server_pid: self.server_pid,
            source: self.source,
            reply_timeout: self.reply_timeout,
        }
    }

    pub(super) fn run(self) -> anyhow::Result<bool> {
        let output = self.output;
        // Nothing is started that Ctrl-C would have to end.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let outcome = runtime.block_on(saturate::run(self.into_options()))?;
        output.tell(&outcome)?;
        Ok(outcome.all_right)
    }
}
