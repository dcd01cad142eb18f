//! The binary: reads the command line, and runs what it says.

use std::process::ExitCode;

use gateway::cli::token::TokenCommand;
use gateway::cli::{Cli, Command};

/// Gives freed pages back per thread, which the runtime asks it for when a worker is idle.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = match Cli::read(std::env::args_os()) {
        Ok(cli) => cli,
        Err(error) => error.exit(),
    };
    match cli.command {
        Command::Serve(arguments) => gateway::start::serve(*arguments),
        Command::Aggregate(arguments) => gateway::start::aggregate(*arguments),
        Command::Rollout(arguments) => gateway::cli::rollout::run(*arguments),
        Command::Certs(arguments) => gateway::cli::certs::run(arguments),
        Command::Token(arguments) => match arguments.command {
            TokenCommand::New(new) => match new.text() {
                Ok(text) => {
                    print!("{text}");
                    ExitCode::SUCCESS
                }
                Err(error) => {
                    eprintln!("gateway: no randomness from the operating system: {error}");
                    ExitCode::FAILURE
                }
            },
        },
    }
}
