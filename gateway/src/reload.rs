//! Files that are read again when they change: certificates and tokens.
//!
//! Polled by `stat`, which also sees what file notifications miss (a Kubernetes secret swaps a
//! symbolic link two levels up; network file systems notify nobody).

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::metrics::Metrics;

/// How stale a certificate or a revoked token may be.
pub const INTERVAL: Duration = Duration::from_secs(2);

/// What `stat` says about a file; differs when the file was written or replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// Of the file that `path` leads to, links followed; `None` when it cannot be looked at.
    pub fn of(path: &Path) -> Option<Self> {
        std::fs::metadata(path).ok().as_ref().map(Self::from)
    }
}

impl From<&std::fs::Metadata> for Stamp {
    fn from(meta: &std::fs::Metadata) -> Self {
        Self {
            device: meta.dev(),
            inode: meta.ino(),
            size: meta.size(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        }
    }
}

/// Calls `load` whenever one of `files` changed, for the rest of the process's life; a failure is
/// logged and counted as `what`, and leaves in force what was there.
///
/// Take the first `stamps` before the first load, so that a change in between is not missed.
pub async fn watch<E: std::error::Error + Send + 'static>(
    what: &'static str,
    files: Vec<PathBuf>,
    mut seen: Vec<Option<Stamp>>,
    metrics: &'static Metrics,
    load: impl Fn() -> Result<(), E> + Send + Sync + 'static,
) {
    let load = Arc::new(load);
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let stamps = stamps(&files);
        if stamps == seen {
            continue;
        }
        seen = stamps;
        let load = Arc::clone(&load);
        let outcome = match tokio::task::spawn_blocking(move || load()).await {
            Ok(Ok(())) => {
                tracing::info!(what, "read again after a change");
                "loaded"
            }
            Ok(Err(error)) => {
                tracing::error!(what, %error, "changed, but not usable: the old one stays in force");
                "failed"
            }
            Err(error) => {
                tracing::error!(what, %error, "changed, and reading it went wrong");
                "failed"
            }
        };
        metrics.reloads.count(&[what, outcome]);
    }
}

/// The stamp of each file.
pub fn stamps(files: &[PathBuf]) -> Vec<Option<Stamp>> {
    files.iter().map(|file| Stamp::of(file)).collect()
}
