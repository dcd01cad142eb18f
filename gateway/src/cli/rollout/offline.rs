//! A head out of an estate's directory, for commands that need no gateway.

use std::path::Path;

use render::snapshot::{CompiledRollout, Snapshot, compile};

use super::RunError;
use crate::serve::encode_offer;
use crate::source::SourceError;
use crate::source::dir::DirSource;

/// Reads and compiles the rendered tree as `gateway serve --estate` does.
///
/// # Errors
/// What keeps it from being served.
pub fn head(estate: &Path) -> Result<Snapshot, RunError> {
    let mut source = DirSource::new(estate.to_owned());
    let loaded = source.look()?.ok_or_else(|| RunError::Internal("nothing was read".into()))?;
    Ok(compile(&loaded.served, encode_offer).map_err(SourceError::from)?)
}

/// One of its Rollouts.
///
/// # Errors
/// [`RunError::NoSuchRollout`].
pub fn rollout<'s>(
    head: &'s Snapshot,
    id: &str,
    estate: &Path,
) -> Result<&'s CompiledRollout, RunError> {
    head.rollouts.iter().find(|compiled| &*compiled.rollout.id == id).ok_or_else(|| {
        let known: Vec<&str> = head.rollouts.iter().map(|one| &*one.rollout.id).collect();
        RunError::NoSuchRollout {
            id: id.to_owned(),
            place: estate.display().to_string(),
            known: if known.is_empty() { "none".to_owned() } else { known.join(", ") },
        }
    })
}
