//! What the tests of this folder share.

use std::path::Path;

use bytes::Bytes;

use crate::snapshot::served::{ServedRollout, from_tree};
use crate::snapshot::{Snapshot, compile};
use crate::tree::Tree;

/// The demo estate's head.
pub(super) fn demo() -> Snapshot {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/estates/demo");
    let tree = Tree::read_dir(&dir, "demo").unwrap();
    let served = from_tree(&tree, None).unwrap();
    compile(&served, |_, content| Bytes::copy_from_slice(&content.0)).unwrap()
}

/// The demo estate's one Rollout.
pub(super) fn rollout_of(snapshot: &Snapshot) -> ServedRollout {
    snapshot.rollouts[0].rollout.clone()
}
