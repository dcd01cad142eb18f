//! What the members of a cell are classified by.

use std::sync::Arc;

use render::rollout::evidence::{self, Conn, Identity, Millis, Owner, Record};

use super::class::Class;
use super::replicas::Owners;

/// The same for all members of a cell until its head, its times or its replicas change.
#[derive(Clone, Debug)]
pub(super) struct Context {
    /// `now_ms` in it is of no meaning.
    pub(super) terms: evidence::Context,
    pub(super) owners: Arc<Owners>,
    pub(super) seed: Seed,
    /// There is a store to write to.
    pub(super) is_stored: bool,
}

/// An idle record that counts for nothing stays at least this long past its last word.
const IDLE_MS: Millis = 60_000;

/// Keeps peers from choosing identities that collide: random for each process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seed(pub(super) [u64; 2]);

impl Seed {
    pub(super) fn hash(self, identity: Identity) -> u64 {
        let [low, high] = [identity.0 as u64 ^ self.0[0], (identity.0 >> 64) as u64 ^ self.0[1]];
        let folded = u128::from(low) * u128::from(high | 1);
        (folded as u64 ^ (folded >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

impl Context {
    /// What a record comes to, and when that changes by time alone.
    pub(super) fn classify(
        &self,
        now_ms: Millis,
        record: &Record,
        no_bucket: bool,
    ) -> (Class, Option<Millis>) {
        let meaning = self.meaning(now_ms, record);
        (Class::new(&meaning, no_bucket), meaning.next_ms)
    }

    pub(super) fn meaning(&self, now_ms: Millis, record: &Record) -> evidence::Class {
        let context = evidence::Context { now_ms, ..self.terms };
        evidence::classify(record, &context, self.owner(record))
    }

    /// Whether its newest session goes on at a replica that reports.
    pub(super) fn is_open(&self, record: &Record) -> bool {
        matches!(record.conn, Some((_, Conn::Open))) && self.owner(record) == Owner::Reporting
    }

    /// An idle record that counts for nothing may be dropped from then on.
    pub(super) fn idle_until(&self, record: &Record) -> Millis {
        record.heard_ms.saturating_add(self.terms.dark_after_ms.max(IDLE_MS))
    }

    fn owner(&self, record: &Record) -> Owner {
        record.conn.map_or(Owner::Reporting, |(session, _)| self.owners.of(session.incarnation))
    }
}
