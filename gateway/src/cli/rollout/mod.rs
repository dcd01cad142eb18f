//! `gateway rollout …`: what an operator asks about Rollouts, of a running gateway or of files
//! (rollouts.md, "Commands").
//!
//! Data goes to stdout, everything else to stderr; [`Exit`] says how it went.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};

use self::client::ClientError;
use self::out::ReaderGone;
use self::roster::RosterError;
use crate::source::SourceError;

pub mod client;
pub mod diff;
pub mod explain;
pub mod get;
pub mod json;
pub mod list;
pub mod offline;
pub mod out;
pub mod plan;
pub mod propose;
pub mod roster;
pub mod sse;
pub mod status;
pub mod style;
pub mod text;
pub mod verify;
pub mod watch;

/// Arguments of `gateway rollout`.
#[derive(Debug, Args)]
pub struct RolloutArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: RolloutCommand,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum RolloutCommand {
    /// Show a Rollout as it stands, or all of them, worst first.
    Get(get::GetArgs),
    /// Wait until a Rollout is decided, and say so by the exit code: 0 good (advance, complete),
    /// 1 judged bad (blocked, abort), 2 could not run, 3 undecided at the timeout, 4 inconclusive
    /// at the timeout.
    Status(status::StatusArgs),
    /// Count who would join at the next stage, and who lacks a hash attribute.
    Plan(plan::PlanArgs),
    /// Say which Tier and Cohort a collector with these attributes is put in, and why.
    Explain(explain::ExplainArgs),
    /// Print what would be proposed for the verdict as it is now: branch, message, diff. It never
    /// pushes; a gateway that was started with --propose does.
    Propose(propose::ProposeArgs),
    /// Judge an evidence bundle again, offline: exits 0 when it comes out the same, 1 when anything
    /// differs, 2 when it is no bundle.
    Verify(verify::VerifyArgs),
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done, or judged good.
    Good = 0,
    /// Judged bad: blocked, abort; or different.
    Bad = 1,
    /// Could not run.
    CouldNotRun = 2,
    /// Not decided when the time was up.
    Undecided = 3,
    /// The evidence was not whole when the time was up.
    Inconclusive = 4,
}

/// Form of the data on stdout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
}

/// How the data is written.
#[derive(Clone, Copy, Debug, Args)]
pub struct Output {
    /// Form of the data on stdout.
    #[arg(short = 'o', long = "output", value_name = "FORM", value_enum, default_value_t)]
    pub format: Format,
}

/// Why a command could not run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The gateway did not answer, or refused.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The estate cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The roster cannot be read.
    #[error(transparent)]
    Roster(#[from] RosterError),
    /// There is no such Rollout in the estate.
    #[error("there is no Rollout '{id}' in {place}; it has {known}")]
    NoSuchRollout {
        /// As asked.
        id: String,
        /// The estate.
        place: String,
        /// Those there are.
        known: String,
    },
    /// It left head while it was watched.
    #[error("the Rollout '{id}' left head: its file was deleted, which completes it or aborts it")]
    Gone {
        /// Which.
        id: String,
    },
    /// It is no evidence bundle.
    #[error("{}: {why}", file.display())]
    Bundle {
        /// The file.
        file: PathBuf,
        /// Why not.
        why: String,
    },
    /// The Catalogue cannot be read.
    #[error("cannot read the Catalogue {}: {error}", file.display())]
    Catalogue {
        /// The file.
        file: PathBuf,
        /// Why.
        #[source]
        error: std::io::Error,
    },
    /// The verdict cannot be turned into a change of this estate.
    #[error("nothing can be proposed: {0}")]
    Proposal(String),
    /// Something that this program should have made sure of.
    #[error("{0}")]
    Internal(String),
    /// Nobody reads any more; nothing is wrong.
    #[error("nobody reads the output")]
    ReaderGone,
}

impl From<ReaderGone> for RunError {
    fn from(ReaderGone: ReaderGone) -> Self {
        Self::ReaderGone
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Runs one command to its end.
pub fn run(arguments: RolloutArgs) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            out::tell(&format!("cannot start: {error}"));
            return Exit::CouldNotRun.into();
        }
    };
    let outcome = runtime.block_on(async {
        match arguments.command {
            RolloutCommand::Get(arguments) => get::run(arguments).await,
            RolloutCommand::Status(arguments) => status::run(arguments).await,
            RolloutCommand::Plan(arguments) => plan::run(arguments).await,
            RolloutCommand::Explain(arguments) => explain::run(arguments).await,
            RolloutCommand::Propose(arguments) => propose::run(arguments).await,
            RolloutCommand::Verify(arguments) => verify::run(&arguments),
        }
    });
    match outcome {
        Ok(exit) => exit.into(),
        Err(RunError::ReaderGone) => Exit::Good.into(),
        Err(error) => {
            out::tell_lines(&error.to_string());
            Exit::CouldNotRun.into()
        }
    }
}

/// `team/name`, as a positional argument.
///
/// # Errors
/// Says what form is wanted.
pub fn rollout_id(text: &str) -> Result<String, String> {
    let plain = |part: &str| {
        !part.is_empty()
            && part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
            && !part.starts_with('.')
    };
    text.split_once('/')
        .filter(|(team, name)| plain(team) && plain(name))
        .map(|_| text.to_owned())
        .ok_or_else(|| "must be team/name, such as data-flow/bridge-canary".to_owned())
}
