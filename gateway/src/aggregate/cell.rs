//! The evidence of one [`EvidenceKey`].

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use proto::ids::InstanceUid;
use render::rollout::evidence::{EvidenceKey, Identity, Millis, Record};
use render::snapshot::Arm;

use super::Ticket;
use crate::clock::Now;

/// What is known of each collector under one Rollout; a head holds one per Rollout.
#[derive(Debug)]
pub struct Cell {
    key: EvidenceKey,
    braked: AtomicBool,
    records: Mutex<HashMap<Identity, Record>>,
}

/// Who is observed, for people to read. Texts are the peer's.
#[derive(Clone, Copy, Debug)]
pub struct About<'a> {
    /// What it calls itself now.
    pub uid: InstanceUid,
    /// `host.name` or `service.instance.id`; may be empty.
    pub label: &'a str,
    /// `service.version`; may be empty.
    pub version: &'a str,
    /// What it said when it FAILED; may be empty.
    pub error: &'a str,
    /// It lacks a hash attribute, so that no `percent` admits it.
    pub no_bucket: bool,
}

impl Cell {
    pub(super) fn new(key: EvidenceKey) -> Self {
        Self { key, braked: AtomicBool::new(false), records: Mutex::default() }
    }

    /// Which change this is the evidence of.
    pub fn key(&self) -> &EvidenceKey {
        &self.key
    }

    /// Whether the candidate may be offered to nobody new.
    pub fn is_braked(&self) -> bool {
        self.braked.load(Ordering::Relaxed)
    }

    /// Whether the candidate has failed on this collector, and how often it was offered again since.
    pub fn failed(&self, identity: Identity) -> Option<u8> {
        let records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        records.get(&identity).filter(|record| record.failed_now()).map(|record| record.tries)
    }

    /// Takes in what was learned of a collector. `Some` when the change must be on the disk before
    /// the collector is answered: see [`super::Aggregator::committed`].
    pub fn observe(
        &self,
        _now: Now,
        identity: Identity,
        change: &Record,
        _about: About<'_>,
    ) -> Option<Ticket> {
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        records.entry(identity).or_default().merge(change);
        None
    }

    /// A collector runs what it was last offered, `took_ms` after a head first wanted that.
    pub fn converged(&self, _took_ms: Millis, _arm: Arm) {}
}
