//! The binary `render`: what it is asked, in which order it loads, and how it exits
//! (estate.md 2.1; the guide).
//!
//! What was done and found goes to stdout, what went wrong to stderr as `render: <error>`.

mod check;
mod history;
mod load;
mod palette;
mod report;
mod snapshot;
mod write;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand, ValueEnum};
use render::args::long_flags;
use render::problem::Refusal;

/// Runs the binary with these arguments, the first of them its own name.
pub(crate) fn run(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(long_flags(arguments)) {
        Err(error) => return usage(&error),
        Ok(cli) => cli,
    };
    let (outcome, format) = match cli {
        Cli { command: Some(Command::Check(arguments)), .. } => {
            (check::run(&arguments), arguments.output.format)
        }
        Cli { command: Some(Command::Palette(arguments)), .. } => {
            (palette::run(&arguments), arguments.output.format)
        }
        Cli { command: Some(Command::Snapshot(arguments)), .. } => {
            (snapshot::run(&arguments), Format::Text)
        }
        Cli { command: None, render } => (write::run(&render), render.output.format),
    };
    match outcome {
        Ok(Done { output, good }) => match io::stdout().lock().write_all(output.as_bytes()) {
            // A reader of stdout that has gone (`| head`) changes nothing about what was done.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                fail(REFUSED, &format!("cannot write to stdout: {error}"))
            }
            Ok(()) | Err(_) if good => ExitCode::SUCCESS,
            Ok(()) | Err(_) => ExitCode::from(REFUSED),
        },
        Err(Failure { code, text, mut output }) => {
            if output.is_empty() && format == Format::Json {
                output = report::line(&report::error(&text));
            }
            // The text on stderr says the same; a reader of stdout that has gone loses nothing.
            let _ = io::stdout().lock().write_all(output.as_bytes());
            fail(code, &text)
        }
    }
}

/// Refused, not written, or different from what is on disk.
const REFUSED: u8 = 1;

/// Wrong usage, or sources that do not load.
const NOT_LOADED: u8 = 2;

/// What goes to stdout, and whether the exit is 0 or 1.
struct Done {
    output: String,
    good: bool,
}

impl Done {
    fn good(output: String) -> Self {
        Self { output, good: true }
    }
}

/// Why a command ended early.
struct Failure {
    code: u8,
    /// For stderr, after `render: `.
    text: String,
    /// For stdout.
    output: String,
}

impl Failure {
    /// Exit 2.
    fn not_loaded(text: String) -> Self {
        Self { code: NOT_LOADED, text, output: String::new() }
    }

    /// Exit 1.
    fn refused(text: String) -> Self {
        Self { code: REFUSED, text, output: String::new() }
    }

    /// Tells the problems on stdout too where JSON is asked for.
    fn from_refusal(code: u8, refusal: &Refusal, format: Format) -> Self {
        let output = match format {
            Format::Text => String::new(),
            Format::Json => report::line(&report::refusal(refusal)),
        };
        Self { code, text: refusal.to_string(), output }
    }
}

fn fail(code: u8, text: &str) -> ExitCode {
    let _ = writeln!(io::stderr().lock(), "render: {text}");
    ExitCode::from(code)
}

/// Help and the version are what was asked for and go to stdout; help exits 2, as the guide's
/// program does.
fn usage(error: &clap::Error) -> ExitCode {
    let text = error.render().to_string();
    match error.kind() {
        ErrorKind::DisplayVersion => {
            let _ = write!(io::stdout().lock(), "{text}");
            ExitCode::SUCCESS
        }
        ErrorKind::DisplayHelp => {
            let _ = write!(io::stdout().lock(), "{text}");
            ExitCode::from(NOT_LOADED)
        }
        _ => fail(NOT_LOADED, text.strip_prefix("error: ").unwrap_or(&text).trim_end()),
    }
}

/// Renders an estate: one configuration per Tier, the candidates of active Rollouts, the
/// Supervisors' start configurations, Unmatched and CODEOWNERS.
#[derive(Parser)]
#[command(
    name = "render",
    version,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Every long flag may be written with one dash (-estate DIR).\n\n\
        Exit status: 0 rendered, with or without findings; 1 refused, not written, or (--check) \
        different; 2 wrong usage or sources that do not load. Nothing is written unless all is \
        good."
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    render: RenderArgs,
}

#[derive(Subcommand)]
enum Command {
    /// Load, validate and render in memory; print the findings and write nothing
    Check(CheckArgs),
    /// Print what a team may place, and why
    Palette(PaletteArgs),
    /// Write what the estate serves as one self-checking file
    Snapshot(SnapshotArgs),
}

#[derive(Args)]
struct RenderArgs {
    /// The estate's directory
    #[arg(long, value_name = "DIR", required = true)]
    estate: Option<PathBuf>,
    /// The Catalogue, a JSON file
    #[arg(long, value_name = "FILE", required = true)]
    catalogue: Option<PathBuf>,
    /// The commit stamped into what is rendered: 7 to 64 lower-case hexadecimal digits. With
    /// --check, the one that the tree on disk is stamped with unless given
    #[arg(long, value_name = "SHA", required_unless_present = "check")]
    commit: Option<String>,
    /// Where rendered/ and CODEOWNERS are written; the estate itself unless given
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Write nothing; compare with the tree on disk and exit 1 with the paths that differ
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Args)]
struct CheckArgs {
    /// The estate's directory
    #[arg(long, value_name = "DIR")]
    estate: PathBuf,
    /// The Catalogue, a JSON file
    #[arg(long, value_name = "FILE")]
    catalogue: PathBuf,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Args)]
struct PaletteArgs {
    /// The estate's directory
    #[arg(long, value_name = "DIR")]
    estate: PathBuf,
    /// The Catalogue, a JSON file
    #[arg(long, value_name = "FILE")]
    catalogue: PathBuf,
    /// The team, by its id in teams.yaml
    #[arg(long, value_name = "TEAM")]
    team: String,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Args)]
struct SnapshotArgs {
    /// The estate's directory, with its rendered tree
    #[arg(long, value_name = "DIR")]
    estate: PathBuf,
    /// The snapshot file, replaced as a whole
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// The commit that the estate is at; the one its rendered tree is stamped with unless given
    #[arg(long, value_name = "SHA")]
    commit: Option<String>,
    /// Sign with this Ed25519 private key, a PKCS#8 PEM file
    #[arg(long, value_name = "KEY")]
    sign: Option<PathBuf>,
}

#[derive(Args, Clone, Copy)]
struct OutputArgs {
    /// How to print
    #[arg(short = 'o', long = "output", value_enum, default_value_t = Format::Text, value_name = "FORMAT")]
    format: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Lines for people
    Text,
    /// One JSON document
    Json,
}
