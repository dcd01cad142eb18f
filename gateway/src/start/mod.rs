//! `gateway serve` and `gateway aggregate`: put the parts together, and take them apart again.
//!
//! [`core`] is what both roles have (source, evidence, operators), [`head`] how a head gets into
//! force, [`serve`] and [`gather`] are the roles.

use std::net::SocketAddr;
use std::process::ExitCode;

use tokio::net::TcpListener;

use crate::cli::aggregate::AggregateArgs;
use crate::cli::flags::ConfigError;
use crate::cli::flags::process::{LogFormat, ProcessArgs};
use crate::cli::serve::ServeArgs;

mod core;
mod gather;
mod head;
mod serve;

/// Runs until a signal ends it. Faults before it serves go to stderr: exit code 2 for a usage
/// error, 1 for everything else.
pub fn serve(arguments: ServeArgs) -> ExitCode {
    run(arguments, |arguments| &arguments.process, ServeArgs::resolve, serve::run)
}

/// As [`serve()`], for the aggregator.
pub fn aggregate(arguments: AggregateArgs) -> ExitCode {
    run(arguments, |arguments| &arguments.process, AggregateArgs::resolve, gather::run)
}

fn run<Arguments, Config>(
    arguments: Arguments,
    process: impl FnOnce(&Arguments) -> &ProcessArgs,
    resolve: impl FnOnce(Arguments) -> Result<Config, ConfigError>,
    role: impl FnOnce(Config) -> anyhow::Result<()>,
) -> ExitCode {
    let ProcessArgs { log_format, log: filter, .. } = process(&arguments);
    if let Err(fault) = log(*log_format, filter) {
        eprintln!("gateway: --log: {fault}");
        return ExitCode::from(2);
    }
    let config = match resolve(arguments) {
        Ok(config) => config,
        Err(error) => {
            eprintln!("gateway: {error}");
            return ExitCode::from(error.exit_code());
        }
    };
    match role(config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Each error says its cause itself.
            eprintln!("gateway: {error}");
            ExitCode::FAILURE
        }
    }
}

fn log(format: LogFormat, filter: &str) -> Result<(), String> {
    use tracing_subscriber::EnvFilter;
    let filter = EnvFilter::try_new(filter).map_err(|error| error.to_string())?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let installed = match format {
        LogFormat::Text => {
            use std::io::IsTerminal;
            builder.with_ansi(std::io::stderr().is_terminal()).try_init()
        }
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    installed.map_err(|error| error.to_string())
}

/// What a listener that cannot be had is told by.
fn bound(
    flag: &str,
    addr: SocketAddr,
    bound: std::io::Result<TcpListener>,
) -> anyhow::Result<TcpListener> {
    bound.map_err(|error| anyhow::anyhow!("cannot listen on {flag} {addr}: {error}"))
}

/// What an operator wants to see on stdout, lines of it.
fn announce(text: &str) {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // Nobody reads it; that is no reason not to serve.
        tracing::debug!(%error, "cannot write to stdout");
    }
}
