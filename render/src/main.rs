//! The binary `render`: an estate in, reviewed bytes out.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run(std::env::args_os())
}
