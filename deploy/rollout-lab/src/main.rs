//! rollout-lab

mod cli;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let arguments = match cli::Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => error.exit(), // 0 for --help and --version, 2 for anything else
    };
    match arguments.run() {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("rollout-lab: {error:#}");
            ExitCode::from(2)
        }
    }
}
