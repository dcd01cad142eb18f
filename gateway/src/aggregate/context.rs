//! What the members of a cell are classified by.

use std::sync::Arc;

use render::rollout::evidence::{self, Conn, Identity, Millis, Owner, Record};

use super::class::Class;
use super::packed::Vouched;
use super::replicas::Owners;
use super::vouched::Memo;

/// The same for all members of a cell until its head, its times or its replicas change.
#[derive(Clone, Debug)]
pub(super) struct Context {
    /// `now_ms` in it is of no meaning.
    pub(super) terms: evidence::Context,
    pub(super) owners: Arc<Owners>,
    pub(super) seed: Seed,
    /// There is a store to write to.
    pub(super) is_stored: bool,
    /// Aggregators that members are sent to.
    pub(super) uplinks: usize,
    pub(super) memo: Memo,
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

    /// What a collector comes to for as long as it is vouched for.
    pub(super) fn class_of(&self, vouched: Vouched) -> Class {
        self.memo.class(vouched, &self.terms)
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

    /// Whose word about a collector's silence counts.
    ///
    /// A session that has ended tells nothing of what another replica heard since. So where one is
    /// missing, what became silent meanwhile is told by nobody, just as the silence of its own
    /// collectors is.
    fn owner(&self, record: &Record) -> Owner {
        let Some((session, conn)) = record.conn else { return Owner::Reporting };
        let owner = self.owners.of(session.incarnation);
        let Some(ended) = self.owners.of_ended() else { return owner };
        let open = conn == Conn::Open;
        let (blind_ms, seen_ms) = match ended {
            Owner::Gone { since_ms, at_ms } => (since_ms, Some(at_ms)),
            Owner::Unobserved { since_ms } | Owner::Forgotten { since_ms } => (since_ms, None),
            Owner::Reporting => return owner,
        };
        let cut = |since_ms: Millis| if open { since_ms } else { since_ms.min(blind_ms) };
        match owner {
            Owner::Reporting if open => owner,
            Owner::Reporting => ended,
            Owner::Unobserved { since_ms } => Owner::Unobserved { since_ms: cut(since_ms) },
            Owner::Gone { since_ms, at_ms } => {
                let terms = &self.terms;
                let counted_ms = at_ms.max(terms.evidence_since_ms);
                let dark_ms =
                    counted_ms.saturating_add(terms.dark_after_ms).saturating_add(terms.grace_ms);
                match seen_ms {
                    // It was dark before, or went after.
                    _ if dark_ms <= blind_ms => owner,
                    Some(seen_ms) if at_ms >= seen_ms => owner,
                    Some(at_ms) => Owner::Gone { since_ms: cut(since_ms), at_ms },
                    None => Owner::Unobserved { since_ms: cut(since_ms) },
                }
            }
            Owner::Forgotten { .. } => owner,
        }
    }
}
