//! What git tells of the Rollouts of a head: when their stage began, and which commit added them
//! (rollouts.md, decisions 6 and 15).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use render::history::{History, Told, log_arguments};
use render::snapshot::served::Served;

use super::command::Git;
use super::{GitError, objects};

/// What `git log` may print about Rollout files: some hundred thousand changes.
const LOG_BYTES_MAX: u64 = 32 << 20;

/// Remembers what it read, so that a head whose Rollouts did not change costs one `git log`, and
/// the same commit none.
#[derive(Debug, Default)]
pub struct HistoryReader {
    /// The commit that `history` ends with.
    at: Option<String>,
    history: History,
    /// Contents of the blobs that `history` names.
    blobs: BTreeMap<String, Arc<[u8]>>,
}

impl HistoryReader {
    /// Fills in what the history of `commit`, which must be whole, tells of its Rollouts; gives the
    /// ids of those of which it tells nothing. `fetch`: blobs may have to be fetched.
    ///
    /// # Errors
    ///
    /// When git fails.
    pub fn fill(
        &mut self,
        git: &Git,
        commit: &str,
        folder: &str,
        fetch: bool,
        served: &mut Served,
    ) -> Result<Vec<String>, GitError> {
        if served.rollouts.is_empty() {
            return Ok(Vec::new());
        }
        self.read(git, commit, folder, fetch)?;
        let blobs = &self.blobs;
        Ok(self.history.fill(served, |blob| blobs.get(blob).map(|bytes| bytes.to_vec())))
    }

    /// What the history of `commit`, which must be whole, tells of one Rollout at `stage`; blobs
    /// are fetched.
    ///
    /// # Errors
    ///
    /// When git fails.
    pub fn tell(
        &mut self,
        git: &Git,
        commit: &str,
        folder: &str,
        rollout: &str,
        stage: u32,
    ) -> Result<Option<Told>, GitError> {
        self.read(git, commit, folder, true)?;
        let blobs = &self.blobs;
        let read = |blob: &str| blobs.get(blob).map(|bytes| bytes.to_vec());
        Ok(self.history.tell(rollout, stage, read))
    }

    fn read(&mut self, git: &Git, commit: &str, folder: &str, fetch: bool) -> Result<(), GitError> {
        if self.at.as_deref() == Some(commit) {
            return Ok(());
        }
        self.at = None;
        let arguments = log_arguments(commit, folder);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let log = git.run(&arguments, Vec::new(), LOG_BYTES_MAX)?;
        let history = String::from_utf8(log).ok().and_then(|log| History::parse(&log, folder));
        self.history = history.ok_or_else(|| GitError::Output { command: "git log".to_owned() })?;
        let named: BTreeSet<&str> = self.history.blobs().collect();
        self.blobs.retain(|blob, _| named.contains(&**blob));
        let new: BTreeSet<&str> =
            named.into_iter().filter(|blob| !self.blobs.contains_key(*blob)).collect();
        if !new.is_empty() {
            if fetch {
                objects::fetch(git, &new)?;
            }
            let read = objects::blobs(git, &new)?;
            self.blobs.extend(read);
        }
        self.at = Some(commit.to_owned());
        Ok(())
    }
}
