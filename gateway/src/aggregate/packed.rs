//! A [`Record`] in the fewest bytes that hold it: half a million of them are kept at once.
//!
//! What most changes touch is in one part, which is a line of the processor's cache, and the rest
//! in another. A change is merged into the bytes: what it does not speak of is not read.

mod bits;
mod stored;

use std::cmp::Ordering;
use std::sync::Arc;

use proto::prefetch;
use render::rollout::evidence::{Conn, ErrorId, Identity, Millis, Record, Session, Stamp};

use super::class::Class;
use super::replicas::Owners;
use bits::{APPLIED, ARM, CONN, FAILED, FIRST_TO, OBSERVED};

pub(super) use bits::Vouched;
pub(super) use stored::{STORED_BYTES, decode, encode};

/// Number (40 bits), place in the shard's list of incarnations (16 bits), epoch (48 bits).
type PackedStamp = [u8; 13];

/// The first part of a member: who it is, what it is counted as, what is learned most often, and
/// what is known of it here alone.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Hot {
    identity: Identity,
    conn: PackedStamp,
    arm: PackedStamp,
    heard: [u8; 6],
    bits: u16,
    seat: u16,
    /// Folded uid of the newest open session; 0: none.
    uid: u32,
    class: Class,
    tries: u8,
    local: u8,
    /// A bit per aggregator that it waits to be sent to.
    waits: u8,
}

/// The second part.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Cold {
    failed: PackedStamp,
    applied: PackedStamp,
    observed: PackedStamp,
    first_to: [u8; 6],
    error: [u8; 4],
}

const _: () = assert!(size_of::<Hot>() == 64);
const _: () = assert!(size_of::<Cold>() == 49 && align_of::<Cold>() == 1);

/// A member.
#[derive(Debug)]
pub(super) struct Slot<'s> {
    pub(super) hot: &'s mut Hot,
    pub(super) cold: &'s mut Cold,
}

/// A member that is only looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packed<'s> {
    pub(super) hot: &'s Hot,
    pub(super) cold: &'s Cold,
}

/// Room for one more incarnation in a shard: 16 bits of a stamp name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooManyIncarnations;

/// Incarnations that the stamps of a shard name, so that each takes two bytes instead of four.
#[derive(Debug)]
pub(super) struct Incarnations {
    owners: Arc<Owners>,
    /// And whether its replica reports.
    known: Vec<(u32, bool)>,
    /// Where the one is that was asked for last.
    last: usize,
}

/// What a merge did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Merged {
    /// Something is not as it was.
    pub(super) changed: bool,
    /// `failed` is newer than before.
    pub(super) failed: bool,
}

/// A stamp whose order is that of its numbers, but for two incarnations in one millisecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    /// Epoch, then the place of the incarnation.
    high: u64,
    n: u64,
}

/// What is known of a member here alone, and is never merged.
impl Hot {
    /// It lacks a hash attribute.
    pub(super) const NO_BUCKET: u8 = 1;
    /// It waits to be written.
    pub(super) const DIRTY: u8 = 2;
    /// Texts are kept of it.
    pub(super) const ABOUT: u8 = 4;
    /// Other live uids have its identity.
    pub(super) const RIVALS: u8 = 8;
    /// Nobody is in this slot.
    pub(super) const FREE: u8 = 16;
    /// The full state that its newest session's process is sending, or sent last, had that session.
    pub(super) const LISTED: u8 = 32;
    /// Time alone will make it something else: it is due at some time.
    pub(super) const TIMED: u8 = 64;

    pub(super) const EMPTY: Self = Self {
        identity: Identity(0),
        conn: [0; 13],
        arm: [0; 13],
        heard: [0; 6],
        bits: 0,
        seat: 0,
        uid: 0,
        class: Class::NOWHERE,
        tries: 0,
        local: Self::FREE,
        waits: 0,
    };

    /// Somebody of whom nothing is known.
    pub(super) fn new(identity: Identity) -> Self {
        Self { identity, local: 0, ..Self::EMPTY }
    }

    pub(super) fn identity(&self) -> Identity {
        self.identity
    }

    pub(super) fn has(&self, local: u8) -> bool {
        self.local & local != 0
    }

    pub(super) fn set(&mut self, local: u8, on: bool) {
        self.local = if on { self.local | local } else { self.local & !local };
    }

    pub(super) fn uid(&self) -> u32 {
        self.uid
    }

    pub(super) fn set_uid(&mut self, folded: u32) {
        self.uid = folded;
    }

    /// Which aggregators it waits to be sent to.
    pub(super) fn waits(&self) -> u8 {
        self.waits
    }

    pub(super) fn set_waits(&mut self, links: u8) {
        self.waits = links;
    }

    pub(super) fn class(&self) -> Class {
        self.class
    }

    pub(super) fn set_class(&mut self, class: Class) {
        self.class = class;
    }

    /// Whether its newest session goes on, as far as its replica said.
    pub(super) fn is_open(&self) -> bool {
        self.bits & CONN != 0 && bits::conn_of(self.bits) == Conn::Open
    }

    pub(super) fn took_candidate(&self) -> bool {
        self.bits & FIRST_TO != 0
    }

    /// As [`Record::is_idle`].
    pub(super) fn is_idle(&self) -> bool {
        self.bits & (FAILED | FIRST_TO) == 0
    }
}

impl Cold {
    pub(super) const EMPTY: Self = Self {
        failed: [0; 13],
        applied: [0; 13],
        observed: [0; 13],
        first_to: [0; 6],
        error: [0; 4],
    };

    /// All of it is near soon: it begins in one line of the cache and may end in the next.
    pub(super) fn prefetch(&self) {
        prefetch::near_soon(&self.failed);
        prefetch::near_soon(&self.error);
    }
}

impl Packed<'_> {
    pub(super) fn record(self, incarnations: &Incarnations) -> Record {
        let Self { hot, cold } = self;
        let stamp = |packed: &PackedStamp, bit: u16| {
            (hot.bits & bit != 0).then(|| Key::of(packed).stamp(incarnations))
        };
        Record {
            failed: stamp(&cold.failed, FAILED)
                .map(|stamp| (stamp, ErrorId(u32::from_le_bytes(cold.error)))),
            applied: stamp(&cold.applied, APPLIED),
            arm: stamp(&hot.arm, ARM).map(|stamp| (stamp, bits::reading_of(hot.bits))),
            conn: stamp(&hot.conn, CONN).map(|Stamp { epoch_ms, incarnation, n }| {
                (Session { epoch_ms, incarnation, n }, bits::conn_of(hot.bits))
            }),
            observed: stamp(&cold.observed, OBSERVED)
                .map(|stamp| (stamp, bits::observed_of(hot.bits, hot.seat))),
            heard_ms: millis(&hot.heard),
            first_to_ms: (hot.bits & FIRST_TO != 0).then(|| millis(&cold.first_to)),
            tries: hot.tries,
        }
    }

    /// Its newest session alone.
    pub(super) fn conn(self, incarnations: &Incarnations) -> Option<(Session, Conn)> {
        (self.hot.bits & CONN != 0).then(|| {
            let Stamp { epoch_ms, incarnation, n } = Key::of(&self.hot.conn).stamp(incarnations);
            (Session { epoch_ms, incarnation, n }, bits::conn_of(self.hot.bits))
        })
    }

    /// As [`Record::failed_now`].
    pub(super) fn failed_now(self, incarnations: &Incarnations) -> bool {
        if self.hot.bits & FAILED == 0 {
            return false;
        }
        let Self { hot, cold } = self;
        let applied = hot.bits & APPLIED != 0;
        Record {
            failed: Some((Key::of(&cold.failed).stamp(incarnations), ErrorId(0))),
            applied: applied.then(|| Key::of(&cold.applied).stamp(incarnations)),
            ..Record::default()
        }
        .failed_now()
    }

    /// How often it was tried again, while it is failed.
    pub(super) fn halted_after(self, incarnations: &Incarnations) -> Option<u8> {
        self.failed_now(incarnations).then_some(self.hot.tries)
    }

    /// All that it is counted by, while a replica that reports vouches for it.
    pub(super) fn vouched(self, incarnations: &Incarnations) -> Option<Vouched> {
        let hot = self.hot;
        if !hot.is_open() || !incarnations.reports(Key::of(&hot.conn).place()) {
            return None;
        }
        let failed = self.failed_now(incarnations);
        Some(Vouched::new(hot.bits, hot.seat, failed, hot.has(Hot::NO_BUCKET)))
    }
}

impl Slot<'_> {
    pub(super) fn as_packed(&self) -> Packed<'_> {
        Packed { hot: self.hot, cold: self.cold }
    }

    /// Does what [`Record::merge`] does, but that what is said of `applied` may be left out. Leaves
    /// the member as it was when there is no room.
    // hot
    pub(super) fn merge(
        &mut self,
        said: &Record,
        with_applied: bool,
        incarnations: &mut Incarnations,
    ) -> Result<Merged, TooManyIncarnations> {
        // All of them before anything is changed.
        let mut place = |said: Option<u32>| said.map_or(Ok(0), |said| incarnations.place(said));
        let failed_by = place(said.failed.map(|(stamp, _)| stamp.incarnation))?;
        let applied_by = place(said.applied.filter(|_| with_applied).map(|by| by.incarnation))?;
        let arm_by = place(said.arm.map(|(stamp, _)| stamp.incarnation))?;
        let conn_by = place(said.conn.map(|(session, _)| session.incarnation))?;
        let observed_by = place(said.observed.map(|(stamp, _)| stamp.incarnation))?;

        let Self { hot, cold } = self;
        let mut merged = Merged::default();
        // Whether a field is as it is said from now on. Equal stamps are told apart by what they
        // carry.
        let wins = |bit: u16, bits: u16, key: Key, packed: &mut PackedStamp, tie: Ordering| {
            let wins = bits & bit == 0 || key.cmp(Key::of(packed), incarnations).then(tie).is_gt();
            if wins {
                key.put(packed);
            }
            wins
        };
        if let Some((stamp, error)) = said.failed {
            let key = Key::new(stamp, failed_by);
            let tie = error.0.cmp(&u32::from_le_bytes(cold.error));
            if wins(FAILED, hot.bits, key, &mut cold.failed, tie) {
                cold.error = error.0.to_le_bytes();
                hot.bits |= FAILED;
                merged = Merged { changed: true, failed: true };
            }
        }
        if with_applied
            && let Some(stamp) = said.applied
            && let key = Key::new(stamp, applied_by)
            && wins(APPLIED, hot.bits, key, &mut cold.applied, Ordering::Equal)
        {
            hot.bits |= APPLIED;
            merged.changed = true;
        }
        if let Some((stamp, reading)) = said.arm {
            let key = Key::new(stamp, arm_by);
            let tie = reading.cmp(&bits::reading_of(hot.bits));
            if wins(ARM, hot.bits, key, &mut hot.arm, tie) {
                hot.bits = hot.bits & !bits::OF_ARM | ARM | bits::of_reading(reading);
                merged.changed = true;
            }
        }
        if let Some((session, conn)) = said.conn {
            let key = Key::new(stamp_of(session), conn_by);
            let tie = conn.cmp(&bits::conn_of(hot.bits));
            if wins(CONN, hot.bits, key, &mut hot.conn, tie) {
                hot.bits = hot.bits & !bits::OF_CONN | CONN | bits::of_conn(conn);
                merged.changed = true;
            }
        }
        if let Some((stamp, seen)) = said.observed {
            let key = Key::new(stamp, observed_by);
            let tie = seen.cmp(&bits::observed_of(hot.bits, hot.seat));
            if wins(OBSERVED, hot.bits, key, &mut cold.observed, tie) {
                let (of_observed, seat) = bits::of_observed(seen);
                hot.bits = hot.bits & !bits::OF_OBSERVED | OBSERVED | of_observed;
                hot.seat = seat;
                merged.changed = true;
            }
        }
        let heard_ms = said.heard_ms.min(MILLIS_MAX);
        if heard_ms > millis(&hot.heard) {
            hot.heard = low_bytes(heard_ms);
            merged.changed = true;
        }
        if let Some(first_ms) = said.first_to_ms
            && (hot.bits & FIRST_TO == 0 || first_ms < millis(&cold.first_to))
        {
            cold.first_to = low_bytes(first_ms);
            hot.bits |= FIRST_TO;
            merged.changed = true;
        }
        if said.tries > hot.tries {
            hot.tries = said.tries;
            merged.changed = true;
        }
        Ok(merged)
    }

    /// Names the incarnations of a member by their places in another list.
    pub(super) fn rename(
        &mut self,
        from: &Incarnations,
        to: &mut Incarnations,
    ) -> Result<(), TooManyIncarnations> {
        let bits = self.hot.bits;
        let Self { hot, cold } = self;
        for (bit, packed) in [
            (FAILED, &mut cold.failed),
            (APPLIED, &mut cold.applied),
            (OBSERVED, &mut cold.observed),
            (ARM, &mut hot.arm),
            (CONN, &mut hot.conn),
        ] {
            if bits & bit != 0 {
                let stamp = Key::of(packed).stamp(from);
                let place = to.place(stamp.incarnation)?;
                Key::new(stamp, place).put(packed);
            }
        }
        Ok(())
    }
}

impl Key {
    fn new(stamp: Stamp, place: u16) -> Self {
        let high = stamp.epoch_ms.min(MILLIS_MAX) << 16 | u64::from(place);
        Self { high, n: stamp.n.min(N_MAX) }
    }

    fn of(packed: &PackedStamp) -> Self {
        let [n0, n1, n2, n3, n4, h0, h1, h2, h3, h4, h5, h6, h7] = *packed;
        Self {
            high: u64::from_le_bytes([h0, h1, h2, h3, h4, h5, h6, h7]),
            n: u64::from_le_bytes([n0, n1, n2, n3, n4, h0, h1, h2]) & N_MAX,
        }
    }

    fn put(self, packed: &mut PackedStamp) {
        let [n0, n1, n2, n3, n4, ..] = self.n.to_le_bytes();
        let [h0, h1, h2, h3, h4, h5, h6, h7] = self.high.to_le_bytes();
        *packed = [n0, n1, n2, n3, n4, h0, h1, h2, h3, h4, h5, h6, h7];
    }

    fn place(self) -> u16 {
        self.high as u16
    }

    fn stamp(self, incarnations: &Incarnations) -> Stamp {
        let incarnation = incarnations.get(self.place());
        Stamp { epoch_ms: self.high >> 16, incarnation, n: self.n }
    }

    /// As the stamps are ordered.
    fn cmp(self, other: Self, incarnations: &Incarnations) -> Ordering {
        if self.high == other.high {
            return self.n.cmp(&other.n);
        }
        if self.high >> 16 == other.high >> 16 {
            // Places are in the order in which incarnations came.
            let [one, two] = [self, other].map(|key| incarnations.get(key.place()));
            return one.cmp(&two);
        }
        self.high.cmp(&other.high)
    }
}

impl Incarnations {
    pub(super) fn new(owners: Arc<Owners>) -> Self {
        Self { owners, known: Vec::new(), last: 0 }
    }

    /// Others report from now on.
    pub(super) fn set_owners(&mut self, owners: Arc<Owners>) {
        self.known.iter_mut().for_each(|(known, reports)| *reports = owners.reports(*known));
        self.owners = owners;
    }

    fn get(&self, place: u16) -> u32 {
        self.known.get(usize::from(place)).map(|(incarnation, _)| *incarnation).unwrap_or_default()
    }

    /// Whether its replica reports.
    fn reports(&self, place: u16) -> bool {
        self.known.get(usize::from(place)).is_some_and(|(_, reports)| *reports)
    }

    fn place(&mut self, incarnation: u32) -> Result<u16, TooManyIncarnations> {
        let is = |(known, _): &(u32, bool)| *known == incarnation;
        if !self.known.get(self.last).is_some_and(is) {
            self.last = self.find_or_push(incarnation)?;
        }
        Ok(self.last as u16)
    }

    #[cold]
    fn find_or_push(&mut self, incarnation: u32) -> Result<usize, TooManyIncarnations> {
        if let Some(at) = self.known.iter().rposition(|(known, _)| *known == incarnation) {
            return Ok(at);
        }
        if self.known.len() > usize::from(u16::MAX) {
            return Err(TooManyIncarnations);
        }
        self.known.push((incarnation, self.owners.reports(incarnation)));
        Ok(self.known.len() - 1)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }
}

fn stamp_of(Session { epoch_ms, incarnation, n }: Session) -> Stamp {
    Stamp { epoch_ms, incarnation, n }
}

/// Times past the year 10889 are all the same to us.
const MILLIS_MAX: Millis = (1 << 48) - 1;
/// A process that says a million things a second reaches it after twelve days, and what it says
/// then is ordered by its sessions alone.
const N_MAX: u64 = (1 << 40) - 1;

fn low_bytes(ms: Millis) -> [u8; 6] {
    let [b0, b1, b2, b3, b4, b5, _, _] = ms.min(MILLIS_MAX).to_le_bytes();
    [b0, b1, b2, b3, b4, b5]
}

fn millis(bytes: &[u8; 6]) -> Millis {
    let [b0, b1, b2, b3, b4, b5] = *bytes;
    u64::from_le_bytes([b0, b1, b2, b3, b4, b5, 0, 0])
}
