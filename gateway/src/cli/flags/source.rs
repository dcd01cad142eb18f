//! Where the head comes from.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args};

use super::ConfigError;
use crate::cli::value;
use crate::config::{Place, SourceConfig};

/// Flags of the source.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("source").args(["estate", "repo", "snapshot"]).required(true)))]
pub struct SourceArgs {
    /// Serve the rendered tree of this directory. It is read again when a file in it changes, and
    /// taken once two reads 200 ms apart are equal.
    #[arg(long, value_name = "DIR", env = "TIDEGATE_ESTATE", help_heading = HEADING)]
    pub estate: Option<PathBuf>,

    /// Serve the rendered tree of this git repository (https, ssh or file URL, host:path, or an
    /// absolute path). Credentials are those that git itself finds; it never prompts.
    #[arg(long, value_name = "URL", env = "TIDEGATE_REPO", help_heading = HEADING)]
    #[arg(allow_hyphen_values = true)]
    pub repo: Option<String>,

    /// Serve a file that 'render snapshot' wrote; refused when its group or others may write it.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_SNAPSHOT", help_heading = HEADING)]
    pub snapshot: Option<PathBuf>,

    /// Branch, tag or full ref of --repo [default: the remote's HEAD].
    #[arg(long = "ref", value_name = "REF", env = "TIDEGATE_REF", help_heading = HEADING)]
    #[arg(conflicts_with_all = ["estate", "snapshot"])]
    pub reference: Option<String>,

    /// Folder of the estate inside --repo [default: its root].
    #[arg(long, value_name = "FOLDER", env = "TIDEGATE_PATH", help_heading = HEADING)]
    #[arg(conflicts_with_all = ["estate", "snapshot"])]
    pub path: Option<String>,

    /// Where --repo keeps its bare clone between runs. A clone of another remote in it is replaced
    /// [default: a temporary directory, removed on exit].
    #[arg(long, value_name = "DIR", env = "TIDEGATE_CACHE", help_heading = HEADING)]
    #[arg(conflicts_with_all = ["estate", "snapshot"])]
    pub cache: Option<PathBuf>,

    /// Ed25519 public key (PEM) that must have signed --snapshot [default: signatures are not
    /// asked for].
    #[arg(long, value_name = "FILE", env = "TIDEGATE_SNAPSHOT_KEY", help_heading = HEADING)]
    #[arg(conflicts_with_all = ["estate", "repo"])]
    pub snapshot_key: Option<PathBuf>,

    /// Time between two looks at the source, such as 30s or 1m30s [default: 30s for --repo, 2s for
    /// --estate and --snapshot].
    #[arg(long, value_name = "DURATION", env = "TIDEGATE_FETCH_INTERVAL", help_heading = HEADING)]
    #[arg(value_parser = value::interval, allow_hyphen_values = true)]
    pub fetch_interval: Option<Duration>,

    /// Longest that one git command may take before it is killed; the head in force stays.
    #[arg(long, value_name = "DURATION", env = "TIDEGATE_FETCH_TIMEOUT", help_heading = HEADING)]
    #[arg(value_parser = value::interval, allow_hyphen_values = true, default_value = "2m")]
    pub fetch_timeout: Duration,
}

const HEADING: &str = "Source (exactly one of --estate, --repo, --snapshot)";

/// serving.md 3.1.
const REPO_INTERVAL: Duration = Duration::from_secs(30);
/// A look at files that did not change costs a `stat` each.
const FILES_INTERVAL: Duration = Duration::from_secs(2);

impl SourceArgs {
    /// # Errors
    ///
    /// A remote, a reference or a folder that cannot be one.
    pub fn resolve(&self) -> Result<SourceConfig, ConfigError> {
        let place = self.place()?;
        let interval = self.fetch_interval.unwrap_or(match place {
            Place::Repo { .. } => REPO_INTERVAL,
            Place::Estate { .. } | Place::Snapshot { .. } => FILES_INTERVAL,
        });
        Ok(SourceConfig { place, interval, timeout: self.fetch_timeout })
    }

    fn place(&self) -> Result<Place, ConfigError> {
        if let Some(dir) = &self.estate {
            return Ok(Place::Estate { dir: dir.clone() });
        }
        if let Some(file) = &self.snapshot {
            return Ok(Place::Snapshot { file: file.clone(), key: self.snapshot_key.clone() });
        }
        let usage = |flag| move |why| ConfigError::Usage { flag, why };
        let url = self.repo.clone().unwrap_or_default();
        crate::source::git::check_url(&url).map_err(usage("--repo"))?;
        if let Some(reference) = &self.reference {
            crate::source::git::check_reference(reference).map_err(usage("--ref"))?;
        }
        let path = self.path.as_deref().unwrap_or_default();
        let path = crate::source::git::check_folder(path).map_err(usage("--path"))?;
        let (reference, cache) = (self.reference.clone(), self.cache.clone());
        Ok(Place::Repo { url, reference, path, cache })
    }
}
