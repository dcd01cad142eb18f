//! The command line.

mod flood;
mod rehearse;
mod saturate;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Parser, Subcommand, ValueEnum};
use loadgen::doctor;
use loadgen::floor::Speed;
use loadgen::progress::{Bar, REDRAW};
use loadgen::scale::{self, Outcome};
use loadgen::{Config, Report, Running, Transport};

use self::flood::Flood;
use self::rehearse::Rehearse;
use self::saturate::Saturate;

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

    /// How many collectors to simulate
    #[arg(long, value_name = "N", default_value_t = 100)]
    collectors: u32,

    /// Where the gateway listens, ws:// or http://; may be given several times, and collectors are
    /// shared out. Without it, loadgen starts gateways of its own
    #[arg(long, value_name = "URL")]
    endpoint: Vec<String>,

    /// The estate that the gateway serves, with its rendered files
    #[arg(long, value_name = "DIR", default_value = DEMO)]
    estate: PathBuf,

    /// How to talk; what the URL says when absent
    #[arg(long, value_enum)]
    transport: Option<Transport>,

    /// Who the collectors are (TOML, see loadgen/plans/demo.toml); derived from the estate when
    /// absent: a share for every Tier with a selector, hosts that Cohorts name included, some
    /// without hash attributes, some that match nothing
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,

    /// Collectors started per second, whether or not the gateway keeps up [default: 2000; 10000 over
    /// all workers]
    #[arg(long, value_name = "PER_SECOND")]
    connect_rate: Option<f64>,

    /// How long to stay once every collector has applied its offer
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = loadgen::duration::parse)]
    duration: Duration,

    /// Stay until the estate has changed that often, and for one --head-window more; fewer changes
    /// within --timeout each are a failure
    #[arg(long, value_name = "N", default_value_t = 0)]
    expect_changes: u32,

    /// How long it may take until every collector has applied its offer, and until each expected
    /// change comes [default: 2m; 5m with workers]
    #[arg(long, value_name = "DURATION", value_parser = loadgen::duration::parse)]
    timeout: Option<Duration>,

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

    /// Authority to believe, PEM, for wss:// and https://
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,

    /// Compress the bodies of HTTP requests
    #[arg(long)]
    gzip: bool,

    /// Links that break are no failure as long as their collectors come back
    #[arg(long)]
    allow_lost_links: bool,

    /// Write the report there too, as JSON
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,

    /// Form of the report on stdout
    #[arg(short, long, value_enum, default_value_t = Form::Text)]
    output: Form,

    #[command(flatten)]
    many: Many,
}

/// Flags of a run over many processes.
#[derive(Debug, Args)]
#[command(
    next_help_heading = "Many processes (no --endpoint, --workers, or more than one process holds)"
)]
struct Many {
    /// Worker processes [default: as many as the limit of open files asks for]
    #[arg(long, value_name = "N")]
    workers: Option<u32>,

    /// Workers that connect at a time, and leave: the next one when one is through [default: as many
    /// as there are processors; all with --endpoint]
    #[arg(long, value_name = "N")]
    lanes: Option<u32>,

    /// Gateways to start [default: as many as the limit of open files asks for]
    #[arg(long, value_name = "N")]
    replicas: Option<u32>,

    /// The gateway's binary; absent, the one beside this binary
    #[arg(long, value_name = "FILE")]
    gateway: Option<PathBuf>,

    /// A further flag of each gateway, such as --gateway-flag=--drain=5s; may be given several times
    #[arg(long, value_name = "FLAG", allow_hyphen_values = true)]
    gateway_flag: Vec<String>,

    /// Kill a gateway with -9 that long after all have settled; its collectors must be served rightly
    /// again
    #[arg(long, value_name = "DURATION", value_parser = loadgen::duration::parse)]
    kill_replica_at: Option<Duration>,

    /// Start another gateway in its place
    #[arg(long, requires = "kill_replica_at")]
    restart_killed: bool,

    /// Replace every gateway, one after the other, once all have settled: a new one first, then
    /// SIGTERM to the old one
    #[arg(long)]
    roll_replicas: bool,

    /// Change every artefact in a copy of the estate, again and again
    #[arg(long, value_name = "DURATION", value_parser = loadgen::duration::parse)]
    push_every: Option<Duration>,

    /// Reset all links at once and open them again, again and again
    #[arg(long, value_name = "DURATION", value_parser = loadgen::duration::parse)]
    storm: Option<Duration>,

    /// From an offer to APPLIED, instead of the plan's
    #[arg(long, value_name = "DURATION", value_parser = loadgen::duration::parse)]
    apply_delay: Option<Duration>,

    /// Each apply takes a random time from --apply-delay to this
    #[arg(long, value_name = "DURATION", requires = "apply_delay", value_parser = loadgen::duration::parse)]
    apply_delay_max: Option<Duration>,

    /// Collectors tell APPLIED and not APPLYING before it
    #[arg(long)]
    no_applying: bool,

    /// Longest wait before another attempt to connect [default: a minute and a half]
    #[arg(long, value_name = "DURATION", value_parser = loadgen::duration::parse)]
    reconnect_within: Option<Duration>,

    /// Write a picture of the run there (SVG)
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,

    /// A figure that is missed is a failure, too
    #[arg(long)]
    strict: bool,

    /// Tell nothing on stderr while it goes on
    #[arg(long)]
    quiet: bool,
}

impl Many {
    /// Whether any flag is given that needs workers.
    fn is_asked_for(&self) -> bool {
        self.workers.is_some()
            || self.lanes.is_some()
            || self.replicas.is_some()
            || self.kill_replica_at.is_some()
            || self.roll_replicas
            || self.push_every.is_some()
            || self.storm.is_some()
            || self.apply_delay.is_some()
            || self.no_applying
            || self.plot.is_some()
            || self.strict
    }
}

/// The estate of those who name none.
const DEMO: &str = "fixtures/estates/demo";

#[derive(Debug, Subcommand)]
enum Command {
    /// Play a Rollout from a scenario file, with real gateways and a real repository.
    ///
    /// What happened is told on stdout. Exit: 0 when everything was as the scenario says; 1 when
    /// anything was not; 2 when it could not be played.
    Rehearse(Rehearse),
    /// Lay honest collectors alone and beside a crowd of hostile peers side by side.
    ///
    /// A gateway is started for it. Exit: 0 when the crowd harms nobody; 1 when it does; 2 when
    /// nothing could be measured.
    Flood(Flood),
    /// Keep a server busy, and say what a message costs it.
    ///
    /// A closed loop against any OpAMP server that serves the estate: each link describes itself, takes
    /// its offer and tells APPLIED, then sends another message whenever one is answered. Every reply
    /// is checked. Exit: 0 when all were right; 1 when any was not, or none came; 2 when it could not
    /// start.
    Saturate(Saturate),
    /// Say whether this machine can carry a run, and what to set where it cannot.
    ///
    /// Looks at limits and changes none. Says what a connect costs this kernel at present as well, of
    /// which nothing depends. Exit: 0 when it fits, 1 when it does not.
    Doctor {
        /// How many collectors, with gateways for them on the same machine
        #[arg(long, value_name = "N", default_value_t = 500_000)]
        collectors: u32,

        /// Leave out how fast the machine is, which takes up to a second of one processor
        #[arg(long)]
        no_speed: bool,

        /// Form of what is told
        #[arg(short, long, value_enum, default_value_t = Form::Text)]
        output: Form,
    },
    /// A worker of a run over many processes.
    #[command(hide = true)]
    Worker {
        /// The process that it belongs to.
        parent: u32,
    },
    /// Becomes a program that dies with the process that started it.
    #[command(hide = true)]
    Leash {
        /// The process that it belongs to.
        parent: u32,
        /// Program and arguments.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        program: Vec<std::ffi::OsString>,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Form {
    Text,
    Json,
}

impl Form {
    /// On stdout.
    fn tell(self, outcome: &(impl std::fmt::Display + serde::Serialize)) -> anyhow::Result<()> {
        match self {
            Self::Text => print!("{outcome}"),
            Self::Json => println!("{}", serde_json::to_string_pretty(outcome)?),
        }
        Ok(())
    }
}

/// What comes of it, unless Ctrl-C comes first; what it started ends with the future.
fn unless_interrupted<T, E>(work: impl Future<Output = Result<T, E>>) -> anyhow::Result<T>
where
    anyhow::Error: From<E>,
{
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        tokio::select! {
            outcome = work => Ok(outcome?),
            _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
        }
    })
}

/// The given one, or the one beside this program.
fn gateway_binary(given: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    let gateway = match given {
        Some(gateway) => gateway,
        None => std::env::current_exe()?.with_file_name("gateway"),
    };
    if !gateway.is_file() {
        anyhow::bail!("there is no gateway at {}; name it with --gateway", gateway.display());
    }
    Ok(gateway)
}

fn write(path: &Path, text: String) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

impl Arguments {
    /// Runs, prints the report, and gives the exit code.
    pub(crate) fn run(mut self) -> anyhow::Result<ExitCode> {
        let code = |right: bool| if right { ExitCode::SUCCESS } else { ExitCode::from(1) };
        match self.command.take() {
            Some(Command::Rehearse(rehearse)) => return rehearse.run().map(code),
            Some(Command::Flood(flood)) => return flood.run().map(code),
            Some(Command::Saturate(saturate)) => return saturate.run().map(code),
            Some(Command::Doctor { collectors, no_speed, output }) => {
                let mut diagnosis = doctor::examine(&doctor::Host::read(), collectors);
                diagnosis.speed = (!no_speed).then(Speed::measure);
                output.tell(&diagnosis)?;
                return Ok(code(diagnosis.fits));
            }
            Some(Command::Worker { parent }) => return Ok(scale::worker::main(parent)),
            Some(Command::Leash { parent, program }) => {
                return Ok(scale::leash::main(parent, &program));
            }
            None => {}
        }
        if !self.estate.is_dir() {
            anyhow::bail!(
                "there is no estate at {}; name one with --estate, or start in the repository",
                self.estate.display()
            );
        }
        let fits = self.endpoint.len() == 1 && self.collectors <= loadgen::COLLECTORS_MAX;
        if !fits || self.many.is_asked_for() {
            return self.run_many().map(code);
        }
        let (report_file, output) = (self.report.clone(), self.output);
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let report = runtime.block_on(watch(self.into_config()))?;
        output.tell(&report)?;
        if let Some(path) = report_file {
            write(&path, serde_json::to_string_pretty(&report)? + "\n")?;
        }
        Ok(code(report.all_right))
    }

    /// The run over many processes.
    fn run_many(self) -> anyhow::Result<bool> {
        let (report, plot, output) = (self.report.clone(), self.many.plot.clone(), self.output);
        let strict = self.many.strict;
        let options = self.into_options()?;
        // What is started dies with the thread that starts it: that is this one.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let outcome: Outcome = runtime.block_on(async {
            let (send, mut interrupts) = tokio::sync::mpsc::channel(2);
            tokio::spawn(async move {
                while tokio::signal::ctrl_c().await.is_ok() {
                    if send.send(()).await.is_err() {
                        return;
                    }
                }
            });
            scale::run(&options, &mut interrupts).await
        })?;
        output.tell(&outcome)?;
        if let Some(path) = report {
            write(&path, serde_json::to_string_pretty(&outcome)? + "\n")?;
        }
        if let Some(path) = plot {
            write(&path, outcome.plot())?;
        }
        let reached = outcome.figures.iter().all(|figure| figure.holds);
        Ok(outcome.all_right && (reached || !strict))
    }

    fn into_options(self) -> anyhow::Result<scale::Options> {
        for (flag, given) in [
            ("--transport http", self.transport == Some(Transport::Http)),
            ("--gzip", self.gzip),
            ("--expect-changes", self.expect_changes > 0),
            ("--source", self.source.is_some()),
            ("--ca", self.ca.is_some()),
            ("--allow-lost-links", self.allow_lost_links),
        ] {
            if given {
                anyhow::bail!(
                    "{flag} is for one process: it needs one --endpoint and at most {} collectors",
                    loadgen::COLLECTORS_MAX
                );
            }
        }
        let gateway = if self.endpoint.is_empty() {
            gateway_binary(self.many.gateway)?
        } else {
            PathBuf::new()
        };
        let apply_delay = self.many.apply_delay;
        let apply_delay_max = self.many.apply_delay_max;
        let own = vec![std::env::current_exe()?.into_os_string()];
        let defaults = scale::Options::new(self.collectors, self.estate, gateway, own);
        Ok(scale::Options {
            plan: self.plan,
            heartbeat: self.heartbeat,
            apply_delay: apply_delay.map(|delay| (delay, apply_delay_max.unwrap_or(delay))),
            no_applying: self.many.no_applying,
            endpoints: self.endpoint,
            gateway_flags: self.many.gateway_flag,
            replicas: self.many.replicas,
            workers: self.many.workers,
            lanes: self.many.lanes,
            connect_rate: self.connect_rate.unwrap_or(defaults.connect_rate),
            duration: self.duration,
            timeout: self.timeout.unwrap_or(defaults.timeout),
            head_window: self.head_window,
            reply_timeout: self.reply_timeout,
            reconnect_within: self.many.reconnect_within,
            kill_replica_at: self.many.kill_replica_at,
            restart_killed: self.many.restart_killed,
            roll_replicas: self.many.roll_replicas,
            push_every: self.many.push_every,
            storm_every: self.many.storm,
            quiet: self.many.quiet,
            ..defaults
        })
    }

    fn into_config(self) -> Config {
        let endpoint = self.endpoint.into_iter().next().unwrap_or_default();
        let defaults = Config::new(self.collectors, endpoint, self.estate);
        Config {
            transport: self.transport,
            source: self.source,
            ca: self.ca,
            plan: self.plan,
            heartbeat: self.heartbeat,
            connect_rate: self.connect_rate.unwrap_or(defaults.connect_rate),
            duration: self.duration,
            expect_changes: self.expect_changes,
            timeout: self.timeout.unwrap_or(defaults.timeout),
            head_window: self.head_window,
            reply_timeout: self.reply_timeout,
            gzip: self.gzip,
            allow_lost_links: self.allow_lost_links,
            ..defaults
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
        let endpoint = "ws://127.0.0.1:4320/v1/opamp";
        let line = ["loadgen", "--estate", "e", "--endpoint", endpoint];
        let arguments = Arguments::try_parse_from(line).unwrap();
        let config = format!("{:?}", arguments.into_config());
        let expected = Config::new(100, endpoint, "e");
        assert_eq!(config, format!("{expected:?}"));

        let line = ["loadgen", "saturate", "--endpoint", endpoint, "--estate", "e"];
        let arguments = Arguments::try_parse_from(line).unwrap();
        let Some(Command::Saturate(saturate)) = arguments.command else {
            panic!("another command");
        };
        let expected = loadgen::saturate::Options::new(endpoint, "e");
        assert_eq!(format!("{:?}", saturate.into_options()), format!("{expected:?}"));
    }
}
