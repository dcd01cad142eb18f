//! The aggregator's end: takes in what a replica knows, and tells it what is halted.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use proto::uplink::{
    Ack, Decoder, FORMATS, Frame, Head, Hello, KEYS_MAX, Kept, Key, Records, Welcome,
    common_format, encode, encode_halted, encode_state,
};
use render::artefact::ContentHash;
use render::rollout::evidence::{EvidenceKey, Millis, ReportKey};

use super::{ALIVE_EVERY, SILENCE_MAX, UplinkError, convert, millis, newest};
use crate::aggregate::{Aggregator, Arrival, Cell, Durable, FromReplica, Refusal, Ticket};
use crate::clock::Now;

/// Halted collectors that are told in one go.
const HALTED_AT_ONCE: usize = 4_096;

/// One connection of a replica.
///
/// The shell feeds what it reads, writes what [`poll_transmit`](Self::poll_transmit) gives, waits
/// for [`poll_commit`](Self::poll_commit), and calls [`handle_timeout`](Self::handle_timeout) when
/// [`poll_timeout`](Self::poll_timeout) has passed or [`Aggregator::halts`] changes.
#[derive(Debug)]
pub struct AggregatorUplink {
    aggregator: Arc<Aggregator>,
    certified: Option<Box<str>>,
    decoder: Decoder,
    out: Vec<u8>,
    /// `None` until it was let in.
    talk: Option<Talk>,
    /// It is over: why is said already.
    over: bool,
    heard_ms: Millis,
    said_ms: Millis,
}

#[derive(Debug)]
struct Talk {
    format: u16,
    name: Box<str>,
    incarnation: u32,
    connection: u64,
    /// When it was heard on an earlier connection.
    before_ms: Millis,
    keys: Vec<Filed>,
    /// The newest batch.
    seq: u64,
    /// Batches that were not acknowledged yet, in their order.
    pending: VecDeque<Pending>,
    syncs: bool,
    vouched_ms: Millis,
    said_bye: bool,
}

/// A change that the replica has named.
#[derive(Debug)]
struct Filed {
    key: EvidenceKey,
    cell: Arc<Cell>,
    /// The newest change of who is halted that was told.
    halted: u64,
    /// What else was told, by its version; `None`: nothing yet.
    in_force: Option<u64>,
}

/// A batch that was taken in.
#[derive(Clone, Copy, Debug)]
struct Pending {
    seq: u64,
    /// It must be on the disk before.
    ticket: Option<Ticket>,
    kept: Kept,
}

impl AggregatorUplink {
    /// `certified` is the name in the client's certificate, which the replica must call itself by;
    /// `None` where there are no certificates.
    pub fn new(aggregator: Arc<Aggregator>, certified: Option<Box<str>>, now: Now) -> Self {
        let now_ms = aggregator.now_ms(now);
        Self {
            aggregator,
            certified,
            decoder: Decoder::default(),
            out: Vec::new(),
            talk: None,
            over: false,
            heard_ms: now_ms,
            said_ms: now_ms,
        }
    }

    /// Bytes have come.
    ///
    /// # Errors
    /// The connection is of no further use: write what [`poll_transmit`](Self::poll_transmit) still
    /// gives, close it, call [`handle_disconnected`](Self::handle_disconnected).
    pub fn handle_bytes(&mut self, now: Now, bytes: &[u8]) -> Result<(), UplinkError> {
        if self.over {
            return Ok(());
        }
        self.is_current()?;
        let now_ms = self.aggregator.now_ms(now);
        self.heard_ms = now_ms;
        self.decoder.push(bytes);
        let taken = self.read(now, now_ms);
        if let Err(error) = &taken {
            self.over = true;
            if !matches!(error, UplinkError::Bye | UplinkError::Superseded) {
                let why = error.to_string();
                encode(&Frame::Refuse(&why), FORMATS[0], &mut self.out);
            }
        }
        taken
    }

    fn read(&mut self, now: Now, now_ms: Millis) -> Result<(), UplinkError> {
        let Self { aggregator, certified, decoder, out, talk, .. } = self;
        loop {
            let format = talk.as_ref().map_or(FORMATS[0], |talk| talk.format);
            let Some(frame) = decoder.next_frame(format)? else { break };
            match (frame, &mut *talk) {
                (Frame::Hello(hello), None) => {
                    let begun = Talk::new(aggregator, certified.as_deref(), now, &hello);
                    let begun = begun.map_err(|why| UplinkError::Refuses(why.to_string()))?;
                    let (name, incarnation) = (aggregator.replica_name(), aggregator.incarnation());
                    let welcome = Welcome { format: begun.format, name, incarnation, now_ms };
                    encode(&Frame::Welcome(welcome), begun.format, out);
                    *talk = Some(begun);
                }
                (Frame::Alive, Some(_)) => {}
                (Frame::Key(key), Some(talk)) => talk.handle_key(aggregator, now, &key)?,
                (Frame::Head(head), Some(talk)) => talk.handle_head(aggregator, now, &head)?,
                (Frame::Records(records), Some(talk)) => {
                    talk.handle_records(aggregator, now_ms, &records)?;
                }
                (Frame::SyncBegin, Some(talk)) => {
                    talk.syncs = true;
                    aggregator.begin_listing(talk.incarnation);
                }
                (Frame::SyncEnd { seq }, Some(talk)) if talk.syncs => {
                    talk.next(seq)?;
                    talk.syncs = false;
                    let Talk { incarnation, name, before_ms, .. } = talk;
                    aggregator.end_listing(now, *incarnation, name, *before_ms);
                    let kept = if aggregator.is_stored() { Kept::Stored } else { Kept::Memory };
                    talk.pending.push_back(Pending { seq, ticket: None, kept });
                }
                (Frame::Bye, Some(talk)) => {
                    talk.said_bye = true;
                    return Err(UplinkError::Bye);
                }
                (frame, _) => return Err(UplinkError::OutOfTurn(super::kind_of(&frame))),
            }
        }
        if let Some(talk) = talk
            && now_ms >= talk.vouched_ms.saturating_add(1_000)
        {
            talk.vouched_ms = now_ms;
            aggregator.replica_heard(now, talk.incarnation);
        }
        Ok(())
    }

    /// Time has passed, or what is halted has changed.
    ///
    /// # Errors
    /// As [`handle_bytes`](Self::handle_bytes).
    pub fn handle_timeout(&mut self, now: Now) -> Result<(), UplinkError> {
        if self.over {
            return Ok(());
        }
        self.is_current()?;
        let now_ms = self.aggregator.now_ms(now);
        if now_ms >= self.heard_ms.saturating_add(millis(SILENCE_MAX)) {
            self.over = true;
            return Err(UplinkError::Silent);
        }
        if let Some(talk) = &self.talk
            && now_ms >= self.said_ms.saturating_add(millis(ALIVE_EVERY))
        {
            self.said_ms = now_ms;
            encode(&Frame::Alive, talk.format, &mut self.out);
        }
        Ok(())
    }

    /// What has to be on the disk before the next acknowledgement: wait for
    /// [`Aggregator::committed`], then call [`handle_committed`](Self::handle_committed) with what
    /// it gave. The same until then.
    pub fn poll_commit(&self) -> Option<Ticket> {
        self.talk.as_ref()?.pending.iter().find_map(|pending| pending.ticket)
    }

    /// See [`poll_commit`](Self::poll_commit).
    pub fn handle_committed(&mut self, ticket: Ticket, durable: Durable) {
        let Some(talk) = &mut self.talk else { return };
        for pending in &mut talk.pending {
            if pending.ticket.is_some_and(|waits| waits <= ticket) {
                pending.ticket = None;
                pending.kept = match durable {
                    Durable::Stored => Kept::Stored,
                    Durable::Memory => Kept::Memory,
                    Durable::Failed => Kept::Failed,
                };
            }
        }
    }

    /// Appends bytes that are to be written; whether there were any. Asked again when they were
    /// written.
    pub fn poll_transmit(&mut self, now: Now, out: &mut Vec<u8>) -> bool {
        let before = out.len();
        out.append(&mut self.out);
        if let Some(talk) = self.talk.as_mut().filter(|_| !self.over) {
            talk.acknowledge(out);
            talk.tell(out);
        }
        let any = out.len() > before;
        if any {
            self.said_ms = self.aggregator.now_ms(now);
        }
        any
    }

    /// How long until [`handle_timeout`](Self::handle_timeout) has something to do.
    pub fn poll_timeout(&self, now: Now) -> Duration {
        let now_ms = self.aggregator.now_ms(now);
        let alive_ms = self.said_ms.saturating_add(millis(ALIVE_EVERY));
        let silent_ms = self.heard_ms.saturating_add(millis(SILENCE_MAX));
        let next_ms = if self.talk.is_some() { alive_ms.min(silent_ms) } else { silent_ms };
        Duration::from_millis(next_ms.saturating_sub(now_ms))
    }

    /// The connection is gone.
    pub fn handle_disconnected(&mut self, now: Now) {
        self.over = true;
        if let Some(talk) = self.talk.take() {
            let Talk { name, incarnation, connection, said_bye, .. } = talk;
            self.aggregator.dismiss(now, &name, incarnation, connection, said_bye);
        }
    }

    /// What the replica calls itself, once it is welcomed.
    pub fn replica(&self) -> Option<&str> {
        self.talk.as_ref().map(|talk| &*talk.name)
    }

    fn is_current(&mut self) -> Result<(), UplinkError> {
        let current = self
            .talk
            .as_ref()
            .is_none_or(|talk| self.aggregator.is_current(&talk.name, talk.connection));
        if current {
            return Ok(());
        }
        self.over = true;
        Err(UplinkError::Superseded)
    }
}

impl Talk {
    fn new(
        aggregator: &Aggregator,
        certified: Option<&str>,
        now: Now,
        hello: &Hello<'_>,
    ) -> Result<Self, Refusal> {
        let Hello { name, incarnation, started_ms, .. } = *hello;
        if name.is_empty() {
            return Err(Refusal::NoName);
        }
        if let Some(certified) = certified
            && certified != name
        {
            return Err(Refusal::Name { name: name.into(), certified: certified.into() });
        }
        let format = common_format(hello)
            .ok_or_else(|| Refusal::Formats { theirs: hello.formats().collect() })?;
        let let_in = aggregator.admit(now, Arrival { name, incarnation, started_ms })?;
        Ok(Self {
            format,
            name: name.into(),
            incarnation,
            connection: let_in.connection,
            before_ms: let_in.heard_ms,
            keys: Vec::new(),
            seq: 0,
            pending: VecDeque::new(),
            syncs: false,
            vouched_ms: aggregator.now_ms(now),
            said_bye: false,
        })
    }

    fn handle_key(
        &mut self,
        aggregator: &Aggregator,
        now: Now,
        key: &Key<'_>,
    ) -> Result<(), UplinkError> {
        if key.index as usize != self.keys.len() || key.index >= KEYS_MAX {
            return Err(UplinkError::OutOfTurn("a key"));
        }
        let key = EvidenceKey {
            rollout: key.rollout.into(),
            origin: key.origin.map(Into::into),
            candidate: ContentHash(*key.candidate),
        };
        let cell = aggregator.file(now, &key);
        self.keys.push(Filed { key, cell, halted: 0, in_force: None });
        Ok(())
    }

    fn handle_head(
        &mut self,
        aggregator: &Aggregator,
        now: Now,
        head: &Head<'_>,
    ) -> Result<(), UplinkError> {
        let (mut keys, mut awaited) = (BTreeMap::new(), BTreeMap::new());
        for line in head.lines.iter() {
            let EvidenceKey { rollout, candidate, .. } = &self.filed(line.key)?.key;
            let (stage, cohorts) = (line.stage, line.cohorts);
            keys.insert(rollout.clone(), ReportKey { candidate: *candidate, stage, cohorts });
            if line.awaited > 0 {
                awaited.insert(rollout.clone(), line.awaited);
            }
        }
        // What the replica does not know of a change's origin may be known since.
        for filed in self.keys.iter_mut().filter(|filed| filed.key.origin.is_none()) {
            if !Arc::ptr_eq(newest(&filed.cell), &aggregator.file(now, &filed.key)) {
                return Err(UplinkError::FiledAnew);
            }
        }
        aggregator.replica_vouch(now, self.incarnation, keys, awaited);
        Ok(())
    }

    // hot: for each record of each replica.
    fn handle_records(
        &mut self,
        aggregator: &Aggregator,
        now_ms: Millis,
        records: &Records<'_>,
    ) -> Result<(), UplinkError> {
        self.next(records.seq)?;
        let mut ticket = None;
        let mut take_in = |key, told: &mut Vec<FromReplica<'_>>| {
            if !told.is_empty() {
                ticket = ticket.max(self.filed(key)?.cell.ingest(now_ms, told));
                told.clear();
            }
            Ok::<_, UplinkError>(())
        };
        let (mut key, mut told) = (0, Vec::with_capacity(records.lines.len()));
        for line in records.lines.iter() {
            let line = line?;
            if !convert::is_of(&line, self.incarnation) {
                return Err(UplinkError::OutOfTurn("a session of another process"));
            }
            if line.key != key {
                take_in(key, &mut told)?;
                key = line.key;
            }
            told.push(FromReplica::new(&line));
        }
        take_in(key, &mut told)?;
        let kept = if aggregator.is_stored() { Kept::Stored } else { Kept::Memory };
        self.pending.push_back(Pending { seq: records.seq, ticket, kept });
        Ok(())
    }

    fn filed(&self, key: u32) -> Result<&Filed, UplinkError> {
        let unnamed = || UplinkError::OutOfTurn("a key that was not named");
        self.keys.get(key as usize).ok_or_else(unnamed)
    }

    fn next(&mut self, seq: u64) -> Result<(), UplinkError> {
        if seq != self.seq + 1 {
            return Err(UplinkError::OutOfTurn("a batch"));
        }
        self.seq = seq;
        Ok(())
    }

    /// One acknowledgement for all batches that need no more waiting; the worst of them counts.
    fn acknowledge(&mut self, out: &mut Vec<u8>) {
        let mut ack: Option<Ack> = None;
        while let Some(Pending { seq, kept, .. }) =
            self.pending.pop_front_if(|pending| pending.ticket.is_none())
        {
            let kept = match (ack.map(|ack| ack.kept), kept) {
                (Some(Kept::Failed), _) | (_, Kept::Failed) => Kept::Failed,
                (Some(Kept::Memory), _) | (_, Kept::Memory) => Kept::Memory,
                _ => Kept::Stored,
            };
            ack = Some(Ack { seq, kept });
        }
        if let Some(ack) = ack {
            encode(&Frame::Ack(ack), self.format, out);
        }
    }

    /// Who is halted and what is in force, as far as it was not told yet. Of each change first who is
    /// halted, so that the replica knows all of them when it may offer the candidate.
    fn tell(&mut self, out: &mut Vec<u8>) {
        let mut room = HALTED_AT_ONCE;
        for (key, filed) in (0..).zip(&mut self.keys) {
            if let Some(moved) = filed.cell.moved() {
                // Everybody who is halted there is told again; nobody is halted no more by that.
                (filed.cell, filed.halted) = (Arc::clone(newest(moved)), 0);
                filed.in_force = filed.in_force.map(|_| u64::MAX);
            }
            let cell = &filed.cell;
            if cell.halts_version() > filed.halted {
                if room == 0 {
                    continue;
                }
                let (lines, newest) = cell.halted_since(filed.halted, key, room);
                room -= lines.len().min(room);
                filed.halted = newest;
                encode_halted(&lines, out);
                if cell.halts_version() > newest {
                    continue;
                }
            }
            let version = cell.in_force_version();
            if filed.in_force != Some(version) {
                let in_force = cell.in_force();
                filed.in_force = Some(version);
                encode_state(key, &in_force.judged, &in_force.braked, out);
            }
        }
    }
}
