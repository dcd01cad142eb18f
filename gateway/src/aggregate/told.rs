//! What the two ends of an uplink ask of an aggregator: [`crate::uplink`] says when.

use std::collections::HashMap;
use std::sync::Arc;

use proto::uplink::{HaltedLine, Line, Rivals, Texts};
use render::rollout::evidence::{Conn, EvidenceKey, Identity, Millis, Record};

use super::above::Word;
use super::cell::{Cell, Learned, Others, Said};
use super::links::{Batch, Served};
use super::registry::{Arrival, Refusal};
use super::waiting::Told;
use super::{Aggregator, Durable, Ticket, lock};
use crate::clock::Now;
use crate::uplink::convert;

/// What is told about a change besides who is halted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct InForce {
    pub(crate) judged: Vec<u64>,
    pub(crate) braked: Vec<u64>,
}

/// What a replica knows of one collector.
#[derive(Debug)]
pub(crate) struct FromReplica<'f> {
    identity: Identity,
    record: Record,
    said: Said<'f>,
    rivals: Rivals<'f>,
}

impl<'f> FromReplica<'f> {
    // hot: for each record of each replica.
    pub(crate) fn new(line: &Line<'f>) -> Self {
        let Texts { label, version, error } = line.texts.unwrap_or_default();
        Self {
            identity: Identity(line.identity),
            record: convert::record(&line.record),
            said: Said { uid: line.uid.max(1), label, version, error, no_bucket: line.no_bucket },
            rivals: line.rivals,
        }
    }
}

impl Learned for FromReplica<'_> {
    fn identity(&self) -> Identity {
        self.identity
    }

    fn change(&self) -> &Record {
        &self.record
    }

    fn said(&self) -> Said<'_> {
        self.said
    }

    fn others(&self) -> Option<Others> {
        let session = |(stamp, uid): (_, u32)| (convert::session(stamp), uid.max(1));
        Some(self.rivals.iter().map(session).collect())
    }
}

/// A replica that was let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LetIn {
    /// Which connection it is.
    pub(crate) connection: u64,
    /// When it was heard before.
    pub(crate) heard_ms: Millis,
}

/// A replica's side: `link` is the aggregator's place in the list.
impl Aggregator {
    pub(crate) fn replica_name(&self) -> &str {
        &self.shared.settings.replica
    }

    pub(crate) fn incarnation(&self) -> u32 {
        self.shared.settings.incarnation
    }

    /// When this process started, in its own time.
    pub(crate) fn started_ms(&self) -> Millis {
        self.shared.now_ms(self.shared.start)
    }

    pub(crate) fn served(&self) -> Arc<Served> {
        self.shared.links.head()
    }

    pub(crate) fn link_connect(&self, link: usize) -> u64 {
        self.shared.links.connect(link)
    }

    pub(crate) fn link_disconnect(&self, now: Now, link: usize) {
        self.shared.links.disconnect(link, self.now_ms(now));
    }

    pub(crate) fn link_offset(&self, link: usize, measured_ms: i64) -> i64 {
        self.shared.links.set_offset(link, measured_ms)
    }

    pub(crate) fn link_take(
        &self,
        link: usize,
        take: impl FnMut(&Arc<Cell>, &Told<'_>) -> bool,
    ) -> Batch {
        self.shared.links.take(link, take)
    }

    pub(crate) fn link_has_waiting(&self, link: usize) -> bool {
        self.shared.links.has_waiting(link)
    }

    pub(crate) fn link_has_urgent(&self, link: usize) -> bool {
        self.shared.links.has_urgent(link)
    }

    pub(crate) fn link_sync_left(&self, link: usize) -> usize {
        self.shared.links.sync_left(link)
    }

    /// A batch was taken in by the aggregator; with `is_sync` all of the full state was.
    pub(crate) fn link_acknowledged(
        &self,
        link: usize,
        ticket: u64,
        is_sync: bool,
        durable: Durable,
    ) {
        self.shared.links.acknowledge(link, ticket, is_sync, durable);
        if is_sync {
            self.shared.links.set_synced(link);
            self.refresh_brakes(&self.judging());
        }
    }
}

/// An aggregator's side.
impl Aggregator {
    /// A replica says Hello.
    ///
    /// # Errors
    /// Why it is not talked to.
    pub(crate) fn admit(&self, now: Now, arrival: Arrival<'_>) -> Result<LetIn, Refusal> {
        let now_ms = self.now_ms(now);
        let Arrival { name, incarnation, .. } = arrival;
        let mut judging = self.judging();
        let owner = judging.replicas().name(incarnation).filter(|known| *known != name);
        if let Some(owner) = owner {
            return Err(Refusal::Incarnation(owner.into()));
        }
        if incarnation == self.incarnation() {
            return Err(Refusal::Incarnation(self.replica_name().into()));
        }
        let admitted = lock(&self.registry).admit(arrival)?;
        if let Some(ousted) = admitted.ousted {
            judging.replica_bye(&self.shared, now_ms, ousted, false);
        }
        let heard_ms = judging.replica_connects(now_ms, incarnation, name);
        self.shared.wake.notify_one();
        Ok(LetIn { connection: admitted.connection, heard_ms })
    }

    pub(crate) fn is_current(&self, name: &str, connection: u64) -> bool {
        lock(&self.registry).is_current(name, connection)
    }

    /// A connection has ended.
    pub(crate) fn dismiss(
        &self,
        now: Now,
        name: &str,
        incarnation: u32,
        connection: u64,
        said: bool,
    ) {
        let current = lock(&self.registry).leave(name, connection);
        if current {
            self.replica_bye(now, incarnation, said);
        }
    }

    pub(crate) fn replica_heard(&self, now: Now, incarnation: u32) {
        let now_ms = self.now_ms(now);
        self.judging().replica_heard(now_ms, incarnation);
    }

    /// Where evidence of a change goes.
    pub(crate) fn file(&self, now: Now, key: &EvidenceKey) -> Arc<Cell> {
        let now_ms = self.now_ms(now);
        self.judging().file(&self.shared, now_ms, key)
    }

    /// A replica begins to send its full state.
    pub(crate) fn begin_listing(&self, incarnation: u32) {
        for cell in self.all_cells() {
            cell.each(|shard| shard.begin_listing(incarnation));
        }
    }

    /// A replica has sent its full state, and reports from now on. Its sessions that were not in it
    /// are over since it was heard last before.
    pub(crate) fn end_listing(&self, now: Now, incarnation: u32, name: &str, heard_ms: Millis) {
        let now_ms = self.now_ms(now);
        for cell in self.all_cells() {
            cell.end_listing(now_ms, incarnation, heard_ms.min(now_ms));
        }
        self.replica_hello(now, incarnation, name);
    }

    /// What becomes of what replicas send.
    pub(crate) fn is_stored(&self) -> bool {
        self.shared.store.is_some()
    }

    fn all_cells(&self) -> Vec<Arc<Cell>> {
        self.judging().cells().cloned().collect()
    }
}

impl Cell {
    /// Takes in what a replica knows of collectors. `Some` when some of it must be on the disk before
    /// it is acknowledged.
    pub(crate) fn ingest(&self, now_ms: Millis, told: &[FromReplica<'_>]) -> Option<Ticket> {
        self.take_in_batch(now_ms, told)
    }

    fn end_listing(&self, now_ms: Millis, incarnation: u32, heard_ms: Millis) {
        let mut ended = Vec::new();
        self.each(|shard| ended.extend(shard.end_listing(now_ms, incarnation)));
        for (identity, session) in ended {
            let known = self.record(identity).unwrap_or_default();
            let change = Record {
                conn: Some((session, Conn::Lost)),
                heard_ms: heard_ms.max(known.heard_ms),
                ..Record::default()
            };
            let no_bucket = self.lacks_bucket(identity);
            let said = Said { uid: 1, no_bucket, ..Said::default() };
            self.take_in(now_ms, identity, &change, &said);
        }
    }

    /// Who is halted or was, and changed after `version`.
    pub(crate) fn halted_since(
        &self,
        version: u64,
        key: u32,
        most: usize,
    ) -> (Vec<HaltedLine>, u64) {
        let changed = self.halts().since(version, most);
        let newest = changed.last().map_or(version, |(version, _)| *version);
        let line = |(_, identity): &(u64, Identity)| HaltedLine {
            key,
            identity: identity.0,
            tries: self.failed(*identity),
        };
        (changed.iter().map(line).collect(), newest)
    }

    pub(crate) fn halts_version(&self) -> u64 {
        self.halts().version()
    }

    pub(crate) fn in_force_version(&self) -> u64 {
        self.halts().state_version()
    }

    pub(crate) fn in_force(&self) -> InForce {
        let (judged, braked) = self.state().told();
        InForce { judged, braked }
    }

    /// An aggregator has told everything about this change.
    pub(crate) fn told_all(&self, link: usize, failed: HashMap<Identity, u8>, said: InForce) {
        let InForce { judged, braked } = said;
        self.above().replace(link, Word { judged: judged.into(), braked: braked.into(), failed });
        self.refresh_brake(&self.state());
    }

    /// An aggregator has told what is in force.
    pub(crate) fn told_in_force(&self, link: usize, said: InForce) {
        self.above().set_state(link, said.judged.into(), said.braked.into());
        self.refresh_brake(&self.state());
    }

    /// An aggregator has told whether a collector is halted.
    pub(crate) fn told_failed(&self, link: usize, identity: Identity, tries: Option<u8>) {
        self.above().set_failed(link, identity, tries);
    }
}
