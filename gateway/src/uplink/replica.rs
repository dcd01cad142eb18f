//! The replica's end: sends what its aggregator knows, and keeps what comes back.
//!
//! Nothing of what is on its way is kept: a connection begins with everybody, and whoever changes
//! again before the acknowledgement waits to be sent again. So memory is bounded by the number of
//! members, however much they change and however slow the peer is.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use proto::uplink::{
    Ack, Decoder, FORMATS, Frame, HaltedLine, HeadLine, KEYS_MAX, Kept, Key, Line, Record, Rivals,
    State, Texts, Welcome, Writer, encode, encode_head, encode_hello,
};
use render::rollout::evidence::{Identity, Millis};

use super::convert::Offset;
use super::{
    ALIVE_EVERY, BATCH_DELAY, SILENCE_MAX, URGENT_SPACING, UplinkError, WINDOW, millis, newest,
};
use crate::aggregate::{Aggregator, Cell, Durable, InForce, Told};
use crate::clock::Now;

/// Time between two looks at how many collectors are awaited.
const AWAITED_EVERY_MS: Millis = 1_000;

/// One aggregator, from the replica's side: one connection after another.
///
/// The shell dials; on success it calls [`handle_connected`](Self::handle_connected), feeds what it
/// reads, writes what [`poll_transmit`](Self::poll_transmit) gives, and calls
/// [`handle_timeout`](Self::handle_timeout) when [`poll_timeout`](Self::poll_timeout) has passed or
/// [`Aggregator::uplink_woken`] resolves.
#[derive(Debug)]
pub struct ReplicaUplink {
    aggregator: Arc<Aggregator>,
    link: usize,
    /// `None` while there is no connection.
    connection: Option<Connection>,
    draining: bool,
}

/// What is forgotten with a connection.
#[derive(Debug)]
struct Connection {
    decoder: Decoder,
    /// `None` until it is welcomed.
    talk: Option<Talk>,
    /// Written before anything else.
    out: Vec<u8>,
    greeted_ms: Millis,
    heard_ms: Millis,
    said_ms: Millis,
}

#[derive(Debug)]
struct Talk {
    format: u16,
    offset: Offset,
    /// Name and incarnation of the aggregator.
    peer: (Box<str>, u32),
    keys: Keys,
    /// The newest one that was sent; they count from 1.
    seq: u64,
    acked: u64,
    /// What the acknowledgements of some of them are awaited for.
    awaits: VecDeque<Awaits>,
    sync: Sync,
    /// The head that was told last, and how many are awaited under each of its Rollouts.
    head: u64,
    awaited: Vec<u64>,
    looked_ms: Millis,
    /// When what waits is sent at the latest.
    due_ms: Option<Millis>,
    /// When the newest batch was sent.
    sent_ms: Millis,
    said_bye: bool,
}

/// What an acknowledgement means.
#[derive(Clone, Copy, Debug)]
struct Awaits {
    seq: u64,
    /// Everybody who waits for this ticket may be answered.
    ticket: u64,
    is_sync: bool,
}

/// How far the full state is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sync {
    /// Being sent; it covers all tickets through this one.
    Sends { covers: u64 },
    /// Sent.
    Ended,
    /// Taken in.
    Done,
}

/// A change that this connection has a number for.
#[derive(Debug)]
struct Named {
    cell: Arc<Cell>,
    /// Who is halted, until all of them were told.
    staged: Option<HashMap<Identity, u8>>,
}

/// The changes that this connection has a number for.
#[derive(Debug, Default)]
struct Keys {
    /// By its number.
    told: Vec<Named>,
    /// By the number of the cell.
    of: HashMap<u32, u32>,
}

impl Keys {
    /// The number of a cell's change; says what it stands for when it is new. `None`: there are too
    /// many.
    fn of(&mut self, cell: &Arc<Cell>, format: u16, out: &mut Vec<u8>) -> Option<u32> {
        if let Some(key) = self.of.get(&cell.number()) {
            return Some(*key);
        }
        let index = u32::try_from(self.told.len()).ok().filter(|index| *index < KEYS_MAX)?;
        let key = cell.key();
        let (rollout, origin) = (&*key.rollout, key.origin.as_deref());
        let key = Key { index, rollout, origin, candidate: &key.candidate.0 };
        encode(&Frame::Key(key), format, out);
        self.of.insert(cell.number(), index);
        self.told.push(Named { cell: Arc::clone(cell), staged: Some(HashMap::new()) });
        Some(index)
    }
}

impl ReplicaUplink {
    /// `link` is the aggregator's place in the list of `--uplink`.
    pub fn new(aggregator: Arc<Aggregator>, link: usize) -> Self {
        Self { aggregator, link, connection: None, draining: false }
    }

    /// A stream is open: says Hello.
    pub fn handle_connected(&mut self, now: Now) {
        self.handle_disconnected(now);
        let now_ms = self.aggregator.now_ms(now);
        let (name, incarnation) = (self.aggregator.replica_name(), self.aggregator.incarnation());
        let mut out = Vec::new();
        encode_hello(name, incarnation, self.aggregator.started_ms(), now_ms, &mut out);
        self.connection = Some(Connection {
            decoder: Decoder::default(),
            talk: None,
            out,
            greeted_ms: now_ms,
            heard_ms: now_ms,
            said_ms: now_ms,
        });
    }

    /// Bytes have come.
    ///
    /// # Errors
    /// The connection is of no further use: close it, call
    /// [`handle_disconnected`](Self::handle_disconnected), dial again after a while.
    pub fn handle_bytes(&mut self, now: Now, bytes: &[u8]) -> Result<(), UplinkError> {
        let now_ms = self.aggregator.now_ms(now);
        let Some(connection) = &mut self.connection else { return Ok(()) };
        connection.heard_ms = now_ms;
        connection.decoder.push(bytes);
        loop {
            let format = connection.talk.as_ref().map_or(FORMATS[0], |talk| talk.format);
            let Some(frame) = connection.decoder.next_frame(format)? else { return Ok(()) };
            match (frame, &mut connection.talk) {
                (Frame::Welcome(welcome), talk @ None) => {
                    let between_ms = connection.greeted_ms.midpoint(now_ms);
                    *talk = Some(Talk::new(&self.aggregator, self.link, &welcome, between_ms)?);
                }
                (Frame::Refuse(reason), _) => {
                    return Err(UplinkError::Refused(reason.to_owned()));
                }
                (Frame::Alive, _) => {}
                (Frame::Ack(ack), Some(talk)) => {
                    talk.handle_ack(&self.aggregator, self.link, ack)?;
                }
                (Frame::Halted(lines), Some(talk)) => {
                    lines.iter().try_for_each(|line| talk.handle_halted(self.link, line))?;
                }
                (Frame::State(state), Some(talk)) => talk.handle_state(self.link, &state)?,
                (frame, _) => return Err(UplinkError::OutOfTurn(super::kind_of(&frame))),
            }
        }
    }

    /// Time has passed, or something waits to be sent.
    ///
    /// # Errors
    /// As [`handle_bytes`](Self::handle_bytes).
    pub fn handle_timeout(&mut self, now: Now) -> Result<(), UplinkError> {
        let now_ms = self.aggregator.now_ms(now);
        let Some(connection) = &mut self.connection else { return Ok(()) };
        if now_ms >= connection.heard_ms.saturating_add(millis(SILENCE_MAX)) {
            return Err(UplinkError::Silent);
        }
        let format = connection.talk.as_ref().map_or(FORMATS[0], |talk| talk.format);
        if connection.talk.is_some()
            && now_ms >= connection.said_ms.saturating_add(millis(ALIVE_EVERY))
        {
            connection.said_ms = now_ms;
            encode(&Frame::Alive, format, &mut connection.out);
        }
        if let Some(talk) = &mut connection.talk
            && self.aggregator.link_has_waiting(self.link)
        {
            let due_ms = if self.aggregator.link_has_urgent(self.link) {
                talk.sent_ms.saturating_add(millis(URGENT_SPACING)).max(now_ms)
            } else {
                now_ms.saturating_add(millis(BATCH_DELAY))
            };
            talk.due_ms = Some(talk.due_ms.map_or(due_ms, |known| known.min(due_ms)));
        }
        Ok(())
    }

    /// Appends bytes that are to be written; whether there were any. Asked again when they were
    /// written, so that what is not taken by the peer waits here, in its newest state.
    pub fn poll_transmit(&mut self, now: Now, out: &mut Vec<u8>) -> bool {
        let now_ms = self.aggregator.now_ms(now);
        let Some(connection) = &mut self.connection else { return false };
        let before = out.len();
        out.append(&mut connection.out);
        if let Some(talk) = &mut connection.talk {
            talk.transmit(&self.aggregator, self.link, now_ms, out);
            if self.draining && !talk.said_bye && talk.is_through(&self.aggregator, self.link) {
                talk.said_bye = true;
                encode(&Frame::Bye, talk.format, out);
            }
        }
        let any = out.len() > before;
        if any {
            connection.said_ms = now_ms;
        }
        any
    }

    /// How long until [`handle_timeout`](Self::handle_timeout) has something to do.
    pub fn poll_timeout(&self, now: Now) -> Duration {
        let now_ms = self.aggregator.now_ms(now);
        let Some(connection) = &self.connection else { return ALIVE_EVERY };
        let alive_ms = connection.said_ms.saturating_add(millis(ALIVE_EVERY));
        let silent_ms = connection.heard_ms.saturating_add(millis(SILENCE_MAX));
        let talk = connection.talk.as_ref();
        let look_ms = talk.map(|talk| talk.looked_ms.saturating_add(AWAITED_EVERY_MS));
        let due_ms = talk.filter(|talk| talk.has_room()).and_then(|talk| talk.due_ms);
        let next_ms = [Some(alive_ms), Some(silent_ms), look_ms, due_ms];
        let next_ms = next_ms.into_iter().flatten().min().unwrap_or(alive_ms);
        Duration::from_millis(next_ms.saturating_sub(now_ms))
    }

    /// The connection is gone.
    pub fn handle_disconnected(&mut self, now: Now) {
        if self.connection.take().is_some_and(|connection| connection.talk.is_some()) {
            self.aggregator.link_disconnect(now, self.link);
        }
    }

    /// The process drains: Bye is sent behind everything that is known. True once the connection may
    /// be closed: all was acknowledged and Bye was given to be written, or there is no connection.
    pub fn drain(&mut self) -> bool {
        self.draining = true;
        let talk = self.connection.as_ref().and_then(|connection| connection.talk.as_ref());
        talk.is_none_or(|talk| talk.said_bye)
    }

    /// Whether the aggregator has welcomed this replica on the present connection.
    pub fn is_welcomed(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| connection.talk.is_some())
    }

    /// Whether the full state was taken in on the present connection.
    pub fn is_synced(&self) -> bool {
        let talk = self.connection.as_ref().and_then(|connection| connection.talk.as_ref());
        talk.is_some_and(|talk| talk.sync == Sync::Done)
    }

    /// Name and incarnation of the aggregator, while it has welcomed this replica.
    pub fn peer(&self) -> Option<(&str, u32)> {
        let talk = self.connection.as_ref()?.talk.as_ref()?;
        Some((&talk.peer.0, talk.peer.1))
    }
}

impl Talk {
    /// Begins with everybody.
    fn new(
        aggregator: &Aggregator,
        link: usize,
        welcome: &Welcome<'_>,
        between_ms: Millis,
    ) -> Result<Self, UplinkError> {
        let Welcome { format, name, incarnation, now_ms } = *welcome;
        if !FORMATS.contains(&format) {
            return Err(UplinkError::OutOfTurn("a format that it was not offered"));
        }
        let measured_ms = i64::try_from(i128::from(now_ms) - i128::from(between_ms));
        let Ok(measured_ms) = measured_ms else {
            return Err(UplinkError::OutOfTurn("a time that is none"));
        };
        let offset = Offset(aggregator.link_offset(link, measured_ms));
        let covers = aggregator.link_connect(link);
        Ok(Self {
            format,
            offset,
            peer: (name.into(), incarnation),
            keys: Keys::default(),
            seq: 0,
            acked: 0,
            awaits: VecDeque::new(),
            sync: Sync::Sends { covers },
            head: 0,
            awaited: Vec::new(),
            looked_ms: 0,
            due_ms: None,
            sent_ms: 0,
            said_bye: false,
        })
    }

    fn handle_ack(
        &mut self,
        aggregator: &Aggregator,
        link: usize,
        ack: Ack,
    ) -> Result<(), UplinkError> {
        if ack.seq <= self.acked || ack.seq > self.seq {
            return Err(UplinkError::OutOfTurn("an acknowledgement"));
        }
        self.acked = ack.seq;
        let durable = match ack.kept {
            Kept::Stored => Durable::Stored,
            Kept::Memory => Durable::Memory,
            Kept::Failed => Durable::Failed,
        };
        while let Some(awaits) = self.awaits.pop_front_if(|awaits| awaits.seq <= ack.seq) {
            if awaits.is_sync {
                self.sync = Sync::Done;
            }
            aggregator.link_acknowledged(link, awaits.ticket, awaits.is_sync, durable);
        }
        Ok(())
    }

    fn handle_halted(&mut self, link: usize, line: HaltedLine) -> Result<(), UplinkError> {
        let HaltedLine { key, identity, tries } = line;
        let identity = Identity(identity);
        let Named { cell, staged } = self.named(key)?;
        match (staged, tries) {
            (Some(staged), Some(tries)) => drop(staged.insert(identity, tries)),
            (Some(staged), None) => drop(staged.remove(&identity)),
            (None, tries) => newest(cell).told_failed(link, identity, tries),
        }
        Ok(())
    }

    fn handle_state(&mut self, link: usize, state: &State<'_>) -> Result<(), UplinkError> {
        let in_force = InForce {
            judged: state.judged.iter().collect(),
            braked: state.braked.iter().collect(),
        };
        let Named { cell, staged } = self.named(state.key)?;
        match staged.take() {
            Some(failed) => newest(cell).told_all(link, failed, in_force),
            None => newest(cell).told_in_force(link, in_force),
        }
        Ok(())
    }

    fn named(&mut self, key: u32) -> Result<&mut Named, UplinkError> {
        let named = self.keys.told.get_mut(key as usize);
        named.ok_or(UplinkError::OutOfTurn("a key that was not named"))
    }

    /// Whether one more batch may be on its way.
    fn has_room(&self) -> bool {
        self.seq - self.acked < WINDOW
    }

    /// Whether all that is known was taken in.
    fn is_through(&self, aggregator: &Aggregator, link: usize) -> bool {
        self.sync == Sync::Done && self.acked == self.seq && !aggregator.link_has_waiting(link)
    }

    /// Appends what is to be said now: at most one batch.
    fn transmit(
        &mut self,
        aggregator: &Aggregator,
        link: usize,
        now_ms: Millis,
        out: &mut Vec<u8>,
    ) {
        self.say_head(aggregator, now_ms, out);
        let syncs = matches!(self.sync, Sync::Sends { .. });
        if syncs && self.seq == 0 && self.awaits.is_empty() {
            encode(&Frame::SyncBegin, self.format, out);
            // An empty full state ends at once.
            self.awaits.push_back(Awaits { seq: 0, ticket: 0, is_sync: false });
        }
        let due = syncs
            || self.due_ms.is_some_and(|due_ms| now_ms >= due_ms)
            || aggregator.uplink_waiting(link) >= proto::uplink::LINES_MAX;
        if due && self.has_room() {
            self.sent_ms = now_ms;
            self.send_batch(aggregator, link, out);
        }
        if let Sync::Sends { covers } = self.sync
            && self.has_room()
            && aggregator.link_sync_left(link) == 0
        {
            self.seq += 1;
            encode(&Frame::SyncEnd { seq: self.seq }, self.format, out);
            self.awaits.push_back(Awaits { seq: self.seq, ticket: covers, is_sync: true });
            self.sync = Sync::Ended;
        }
    }

    fn send_batch(&mut self, aggregator: &Aggregator, link: usize, out: &mut Vec<u8>) {
        let Self { keys, format, offset, seq, .. } = self;
        let mut lines = Vec::new();
        let mut writer = Writer::new(*seq + 1, &mut lines);
        let batch = aggregator.link_take(link, |cell, told| {
            // Past the limit nobody else is told of; there are fewer changes in a process.
            if let Some(key) = keys.of(cell, *format, out) {
                push(&mut writer, key, *offset, told);
            }
            !writer.is_full()
        });
        let any = writer.finish() > 0;
        out.append(&mut lines);
        *seq += u64::from(any);
        if batch.ticket > 0 {
            // Without a batch of its own it was in one before.
            let awaits = Awaits { seq: *seq, ticket: batch.ticket, is_sync: false };
            if any || self.acked < self.seq {
                self.awaits.push_back(awaits);
            } else {
                aggregator.link_acknowledged(link, batch.ticket, false, Durable::Stored);
            }
        }
        // What is left is sent at once: it has waited.
        if !batch.more {
            self.due_ms = None;
        }
    }

    /// Tells what is served, when that is another head or others are awaited.
    fn say_head(&mut self, aggregator: &Aggregator, now_ms: Millis, out: &mut Vec<u8>) {
        let served = aggregator.served();
        let another = served.version != self.head;
        if !another && now_ms < self.looked_ms.saturating_add(AWAITED_EVERY_MS) {
            return;
        }
        self.looked_ms = now_ms;
        let awaited: Vec<u64> =
            served.rollouts.iter().map(|rollout| rollout.cell.awaits(now_ms)).collect();
        if !another && awaited == self.awaited {
            return;
        }
        let mut lines = Vec::with_capacity(awaited.len());
        for (rollout, awaited) in served.rollouts.iter().zip(&awaited) {
            let Some(key) = self.keys.of(&rollout.cell, self.format, out) else { continue };
            let (stage, cohorts) = (rollout.key.stage, rollout.key.cohorts);
            lines.push(HeadLine { key, stage, cohorts, halt: rollout.halt, awaited: *awaited });
        }
        encode_head(&served.commit, lines.into_iter(), self.format, out);
        (self.head, self.awaited) = (served.version, awaited);
    }
}

fn push(writer: &mut Writer<'_>, key: u32, offset: Offset, told: &Told<'_>) {
    let member = &told.member;
    let texts = member.text.map(|text| Texts {
        label: &text.label,
        version: &text.version,
        error: &text.error,
    });
    let record: Record = offset.record(&member.record);
    let line = Line {
        key,
        identity: member.identity.0,
        uid: member.uid,
        no_bucket: member.no_bucket,
        record,
        texts,
        rivals: Rivals::default(),
    };
    let rivals: smallvec::SmallVec<[_; 2]> =
        told.rivals.iter().map(|(session, uid)| (offset.session(*session), *uid)).collect();
    writer.push(&line, &rivals);
}
