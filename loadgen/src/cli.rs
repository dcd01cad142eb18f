//! The command line.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Parser, Subcommand, ValueEnum};
use loadgen::progress::{Bar, REDRAW};
use loadgen::rehearse::{self, GivenGateway, Options};
use loadgen::{Config, Report, Running, Transport};

/// Simulates collectors against an OpAMP gateway and checks every offer against a plain model of
/// its own.
///
/// Each collector connects, reports like a Supervisor's collector does, applies what it is offered,
/// sends heartbeats, reconnects when its link breaks, and says goodbye. What it must be offered is
/// computed from the estate with code that the gateway does not use; the estate is followed while
/// the run goes on, so a change may be made under connected collectors.
///
/// Exit: 0 when everything was right; 1 when anything was wrong, lost or beyond what was due; 2 when
/// the run could not start.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,

    /// How many collectors to simulate, at most 19,900 in one process
    #[arg(long, value_name = "N", default_value_t = 100)]
    collectors: u32,

    /// Where the gateway listens, ws:// or http://
    #[arg(long, value_name = "URL", default_value = "ws://127.0.0.1:4320/v1/opamp")]
    endpoint: String,

    /// The estate that the gateway serves, with its rendered files
    #[arg(long, value_name = "DIR", required = true)]
    estate: Option<PathBuf>,

    /// How to talk; what the URL says when absent
    #[arg(long, value_enum)]
    transport: Option<Transport>,

    /// Who the collectors are (TOML, see loadgen/plans/demo.toml); derived from the estate when
    /// absent: a share for every Tier with a selector, hosts that Cohorts name included, some
    /// without hash attributes, some that match nothing
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,

    /// Collectors started per second, whether or not the gateway keeps up
    #[arg(long, value_name = "PER_SECOND", default_value_t = 2_000.0)]
    connect_rate: f64,

    /// How long to stay once every collector has applied its offer
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = loadgen::duration::parse)]
    duration: Duration,

    /// Stay until the estate has changed that often, and for one --head-window more; fewer changes
    /// within --timeout each are a failure
    #[arg(long, value_name = "N", default_value_t = 0)]
    expect_changes: u32,

    /// How long it may take until every collector has applied its offer, and until each expected
    /// change comes
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = loadgen::duration::parse)]
    timeout: Duration,

    /// How much sooner or later than loadgen the gateway may see a change of the estate. An offer is
    /// right when it is exactly what a head asks for that was in force at some moment at most this
    /// far from the offer
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = loadgen::duration::parse)]
    head_window: Duration,

    /// How long a reply may take
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = loadgen::duration::parse)]
    reply_timeout: Duration,

    /// Interval between heartbeats, instead of the plan's
    #[arg(long, value_name = "DURATION", value_parser = loadgen::duration::parse)]
    heartbeat: Option<Duration>,

    /// Local address to connect from: give each of several processes its own, 127.0.1.1 and on
    #[arg(long, value_name = "ADDRESS")]
    source: Option<IpAddr>,

    /// Compress the bodies of HTTP requests
    #[arg(long)]
    gzip: bool,

    /// Links that break are no failure as long as their collectors come back
    #[arg(long)]
    allow_lost_links: bool,

    /// Write the report there too, as JSON
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Play a Rollout from a scenario file, with real gateways and a real repository.
    ///
    /// What happened is told on stdout. Exit: 0 when everything was as the scenario says; 1 when
    /// anything was not; 2 when it could not be played.
    Rehearse(Rehearse),
}

#[derive(Debug, Args)]
struct Rehearse {
    /// The scenario (TOML, see docs/rehearsals.md and fixtures/scenarios)
    #[arg(long, value_name = "FILE")]
    scenario: PathBuf,

    /// The gateway's binary; absent, the one beside this binary
    #[arg(long, value_name = "FILE")]
    gateway: Option<PathBuf>,

    /// Operators' address of a gateway that runs already, which serves estate.git in --keep
    #[arg(long, value_name = "URL", requires_all = ["endpoint", "keep"])]
    admin_url: Option<String>,

    /// Collectors' URL of that gateway
    #[arg(id = "endpoint", long = "endpoint", value_name = "URL", requires = "admin_url")]
    endpoint: Option<String>,

    /// Keep the repository, the stores, the bundles and the gateways' log there
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,

    /// Form of what is told
    #[arg(short, long, value_enum, default_value_t = Form::Text)]
    output: Form,

    /// Tell nothing on stderr while it goes on
    #[arg(long)]
    quiet: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Form {
    Text,
    Json,
}

impl Rehearse {
    fn run(self) -> anyhow::Result<bool> {
        let output = self.output;
        let options = self.into_options()?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let outcome = runtime.block_on(async {
            tokio::select! {
                outcome = rehearse::run(&options) => Ok(outcome?),
                // What it started ends with the future.
                _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
            }
        })?;
        match output {
            Form::Text => print!("{outcome}"),
            Form::Json => println!("{}", serde_json::to_string_pretty(&outcome)?),
        }
        Ok(outcome.passed)
    }

    fn into_options(self) -> anyhow::Result<Options> {
        let given = match (self.admin_url, self.endpoint) {
            (Some(url), Some(endpoint)) => {
                let admin = url.strip_prefix("http://").unwrap_or(&url).trim_end_matches('/');
                let admin: SocketAddr = admin.parse().with_context(|| {
                    format!("--admin-url: {url} is not http:// with an address and a port")
                })?;
                Some(GivenGateway { admin, endpoint })
            }
            _ => None,
        };
        let gateway = match self.gateway {
            Some(gateway) => gateway,
            None => std::env::current_exe()?.with_file_name("gateway"),
        };
        if !gateway.is_file() {
            anyhow::bail!("there is no gateway at {}; name it with --gateway", gateway.display());
        }
        Ok(Options {
            scenario: self.scenario,
            gateway,
            given,
            keep: self.keep,
            verbose: !self.quiet,
        })
    }
}

impl Arguments {
    /// Runs, prints the report, and says whether all was right.
    pub(crate) fn run(self) -> anyhow::Result<bool> {
        if let Some(Command::Rehearse(rehearse)) = self.command {
            return rehearse.run();
        }
        let report_file = self.report.clone();
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let report = runtime.block_on(watch(self.into_config()))?;
        print!("{report}");
        if let Some(path) = report_file {
            let json = serde_json::to_string_pretty(&report)?;
            std::fs::write(&path, json + "\n")
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(report.all_right)
    }

    fn into_config(self) -> Config {
        Config {
            transport: self.transport,
            source: self.source,
            plan: self.plan,
            heartbeat: self.heartbeat,
            connect_rate: self.connect_rate,
            duration: self.duration,
            expect_changes: self.expect_changes,
            timeout: self.timeout,
            head_window: self.head_window,
            reply_timeout: self.reply_timeout,
            gzip: self.gzip,
            allow_lost_links: self.allow_lost_links,
            ..Config::new(self.collectors, self.endpoint, self.estate.unwrap_or_default())
        }
    }
}

/// The run with a progress line; Ctrl-C ends it early and still gives a report.
async fn watch(config: Config) -> anyhow::Result<Report> {
    let bar = Bar::new(config.collectors);
    let mut running = Running::start(config).await?;
    let viewer = running.viewer();
    let drawing = async {
        loop {
            bar.show(&viewer.progress());
            tokio::time::sleep(REDRAW).await;
        }
    };
    let interrupted = tokio::select! {
        () = running.to_the_end() => false,
        () = drawing => false,
        _ = tokio::signal::ctrl_c() => true,
    };
    if interrupted {
        running.interrupt();
    }
    let report = running.finish().await;
    bar.clear();
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Arguments::command().debug_assert();
    }

    #[test]
    fn the_defaults_are_those_of_the_library() {
        let arguments = Arguments::try_parse_from(["loadgen", "--estate", "e"]).unwrap();
        let config = format!("{:?}", arguments.into_config());
        let expected = Config::new(100, "ws://127.0.0.1:4320/v1/opamp", "e");
        assert_eq!(config, format!("{expected:?}"));
    }
}
