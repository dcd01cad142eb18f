//! Evidence that outlives the process: one redb file (rollouts.md, decision 18).
//!
//! Kept are records that hold `failed` or took the candidate, what is readable of failed members,
//! which changes were seen and when, brakes, and which processes wrote. [`file`] opens the file and
//! reads it whole, [`writer`] is the thread that alone writes it. `docs/rollouts-store.md` says
//! what is on the disk when.

use std::collections::BTreeMap;

use render::rollout::evidence::{EvidenceKey, Identity, Millis, Record};
use serde::{Deserialize, Serialize};

use super::shard::Text;

pub(super) mod file;
pub(super) mod writer;

/// What rows there are besides records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// A [`CellRow`], by its number.
    Cell = 1,
    /// A [`Sight`], by its Rollout.
    Sight = 2,
    /// A [`ProcessRow`], by its incarnation.
    Process = 3,
}

/// Names a row: kind, number (0 for sights), Rollout (empty but for sights).
pub(super) type RowKey = (u8, u32, Box<str>);

/// The name of a row.
pub(super) fn row_key(kind: Kind, number: u32, rollout: &str) -> RowKey {
    (kind as u8, number, rollout.into())
}

/// One change that was in head: an evidence key, and what belongs to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CellRow {
    pub(super) rollout: Box<str>,
    pub(super) origin: Option<Box<str>>,
    /// Hex.
    pub(super) candidate: Box<str>,
    /// When it left head; `None` while it is there.
    pub(super) left_ms: Option<Millis>,
    /// Digest of the `halt` block it was last in head with.
    pub(super) halt: u64,
    /// By digest of the `halt` block, in which the thresholds are.
    pub(super) brakes: BTreeMap<u64, Brake>,
}

/// A brake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Brake {
    /// When it was put on first.
    pub(super) since_ms: Millis,
    /// When its key left head; `None` while it is there.
    pub(super) left_ms: Option<Millis>,
}

/// What was seen of a Rollout here, whatever its candidate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Sight {
    pub(super) origin: Option<Box<str>>,
    pub(super) stage: u32,
    /// When this stage was first seen here.
    pub(super) stage_ms: Millis,
    /// Another stage was seen here before.
    pub(super) stage_changed: bool,
    /// Hex.
    pub(super) candidate: Box<str>,
    /// When the candidate changed to this, if that was seen here.
    pub(super) candidate_ms: Option<Millis>,
    /// When the soak began, as it was last told.
    pub(super) soak_since_ms: Millis,
    /// When the window of the soak in force closes.
    pub(super) window_until_ms: Millis,
    /// When the window of an earlier soak closed.
    pub(super) earlier_until_ms: Millis,
    /// When the Rollout left head; `None` while it is there.
    pub(super) left_ms: Option<Millis>,
}

/// A process that wrote here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ProcessRow {
    pub(super) name: Box<str>,
    pub(super) heard_ms: Millis,
}

/// Everything a file held.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    pub(super) cells: BTreeMap<u32, (EvidenceKey, CellRow)>,
    pub(super) sights: BTreeMap<Box<str>, Sight>,
    pub(super) processes: BTreeMap<u32, ProcessRow>,
    pub(super) records: Vec<StoredRecord>,
    /// As they were read, to be written again should the file be lost.
    pub(super) rows: BTreeMap<RowKey, Vec<u8>>,
}

/// A record of a file.
#[derive(Debug)]
pub(super) struct StoredRecord {
    pub(super) cell: u32,
    pub(super) identity: Identity,
    pub(super) record: Record,
    pub(super) no_bucket: bool,
    pub(super) text: Option<Text>,
}
