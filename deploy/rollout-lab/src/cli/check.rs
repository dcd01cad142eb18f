//! `rollout-lab check`

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use rollout_lab::lab;

/// Bytes read of a captured file; a run's own are some ten thousand.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Look at a captured run again: derive its conclusions from the figures, play its seed anew, and
/// compare every figure. Exit code 1 when anything was changed.
#[derive(Debug, Args)]
pub(super) struct Check {
    /// The timeline.
    #[arg(value_name = "timeline.csv")]
    timeline: PathBuf,

    /// What `model` printed.
    #[arg(value_name = "observation.json")]
    document: PathBuf,
}

impl Check {
    pub(super) fn run(self) -> anyhow::Result<bool> {
        let (timeline, document) = (read(&self.timeline)?, read(&self.document)?);
        let found = lab::check(&timeline, &document);
        if found.is_empty() {
            println!("accepted: every figure follows from the seed, and A1 to A10 hold");
            println!("not claimed: traffic availability, container removal, durability");
            return Ok(true);
        }
        for difference in &found {
            println!("{difference}");
        }
        println!("refused: {} differences", found.len());
        Ok(false)
    }
}

/// Bytes that are not UTF-8 become replacement characters, which no captured figure has.
fn read(path: &Path) -> anyhow::Result<String> {
    let context = || format!("cannot read {}", path.display());
    let length = std::fs::metadata(path).with_context(context)?.len();
    anyhow::ensure!(length <= FILE_BYTES_MAX, "{} has more than 4 MiB", path.display());
    let bytes = std::fs::read(path).with_context(context)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
