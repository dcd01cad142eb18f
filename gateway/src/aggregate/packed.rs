//! A [`Record`] in the fewest bytes that hold it: half a million of them are kept at once.

use render::rollout::evidence::{
    Conn, ErrorId, Identity, Millis, Observed, Reading, Record, Seat, Session, Stamp,
};

/// Bytes of one member in a shard's slab, its identity included; what else it costs is counted by
/// `benches/tests/evidence_size.rs`.
pub(super) const SLOT_BYTES: usize = 108;

/// Epoch (48 bits), place in the shard's list of incarnations (16 bits), number (40 bits).
type PackedStamp = [u8; 13];

/// One member: its identity, its record, and what is known of it here alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    identity: [u8; 16],
    failed: PackedStamp,
    applied: PackedStamp,
    arm: PackedStamp,
    conn: PackedStamp,
    observed: PackedStamp,
    heard: [u8; 6],
    first_to: [u8; 6],
    error: [u8; 4],
    seat: [u8; 2],
    bits: [u8; 2],
    tries: u8,
    local: u8,
    /// Folded uid of the newest open session; 0: none.
    uid: [u8; 4],
    /// A bit per aggregator that it waits to be sent to.
    waits: u8,
}

const _: () = assert!(size_of::<Slot>() == SLOT_BYTES && align_of::<Slot>() == 1);

/// Room for one more incarnation in a shard: 16 bits of a stamp name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooManyIncarnations;

/// Incarnations that the stamps of a shard name, so that each takes two bytes instead of four.
#[derive(Debug, Default)]
pub(super) struct Incarnations(Vec<u32>);

/// What is known of a member here alone, and is never merged.
impl Slot {
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

    pub(super) const EMPTY: Self = Self {
        identity: [0; 16],
        failed: [0; 13],
        applied: [0; 13],
        arm: [0; 13],
        conn: [0; 13],
        observed: [0; 13],
        heard: [0; 6],
        first_to: [0; 6],
        error: [0; 4],
        seat: [0; 2],
        bits: [0; 2],
        tries: 0,
        local: Self::FREE,
        uid: [0; 4],
        waits: 0,
    };

    pub(super) fn identity(&self) -> Identity {
        Identity(u128::from_le_bytes(self.identity))
    }

    pub(super) fn set_identity(&mut self, identity: Identity) {
        self.identity = identity.0.to_le_bytes();
    }

    pub(super) fn has(&self, local: u8) -> bool {
        self.local & local != 0
    }

    pub(super) fn set(&mut self, local: u8, on: bool) {
        self.local = if on { self.local | local } else { self.local & !local };
    }

    pub(super) fn uid(&self) -> u32 {
        u32::from_le_bytes(self.uid)
    }

    pub(super) fn set_uid(&mut self, folded: u32) {
        self.uid = folded.to_le_bytes();
    }

    /// Which aggregators it waits to be sent to.
    pub(super) fn waits(&self) -> u8 {
        self.waits
    }

    pub(super) fn set_waits(&mut self, links: u8) {
        self.waits = links;
    }

    pub(super) fn record(&self, incarnations: &Incarnations) -> Record {
        let bits = u16::from_le_bytes(self.bits);
        let stamp = |packed: &PackedStamp, bit: u16| {
            (bits & bit != 0).then(|| unpack(packed, incarnations))
        };
        let seat = u16::from_le_bytes(self.seat);
        Record {
            failed: stamp(&self.failed, FAILED)
                .map(|stamp| (stamp, ErrorId(u32::from_le_bytes(self.error)))),
            applied: stamp(&self.applied, APPLIED),
            arm: stamp(&self.arm, ARM).map(|stamp| (stamp, reading_of(bits))),
            conn: stamp(&self.conn, CONN).map(|Stamp { epoch_ms, incarnation, n }| {
                (Session { epoch_ms, incarnation, n }, conn_of(bits))
            }),
            observed: stamp(&self.observed, OBSERVED).map(|stamp| (stamp, observed_of(bits, seat))),
            heard_ms: millis(&self.heard),
            first_to_ms: (bits & FIRST_TO != 0).then(|| millis(&self.first_to)),
            tries: self.tries,
        }
    }

    /// Leaves the slot as it was when there is no room.
    pub(super) fn set_record(
        &mut self,
        record: &Record,
        incarnations: &mut Incarnations,
    ) -> Result<(), TooManyIncarnations> {
        let mut bits = 0;
        let mut pack = |stamp: Option<Stamp>, bit: u16, bits: &mut u16| match stamp {
            None => Ok([0; 13]),
            Some(stamp) => {
                *bits |= bit;
                pack(stamp, incarnations)
            }
        };
        let failed = pack(record.failed.map(|(stamp, _)| stamp), FAILED, &mut bits)?;
        let applied = pack(record.applied, APPLIED, &mut bits)?;
        let arm = pack(record.arm.map(|(stamp, _)| stamp), ARM, &mut bits)?;
        let conn = record.conn.map(|(Session { epoch_ms, incarnation, n }, _)| Stamp {
            epoch_ms,
            incarnation,
            n,
        });
        let conn = pack(conn, CONN, &mut bits)?;
        let observed = pack(record.observed.map(|(stamp, _)| stamp), OBSERVED, &mut bits)?;

        bits |= record.arm.map_or(0, |(_, reading)| bits_of_reading(reading));
        bits |= record.conn.map_or(0, |(_, conn)| bits_of_conn(conn));
        let (of_observed, seat) =
            record.observed.map_or((0, 0), |(_, observed)| bits_of_observed(observed));
        bits |= of_observed;
        if record.first_to_ms.is_some() {
            bits |= FIRST_TO;
        }
        *self = Self {
            failed,
            applied,
            arm,
            conn,
            observed,
            heard: low_bytes(record.heard_ms),
            first_to: low_bytes(record.first_to_ms.unwrap_or(0)),
            error: record.failed.map_or(0, |(_, error)| error.0).to_le_bytes(),
            seat: seat.to_le_bytes(),
            bits: bits.to_le_bytes(),
            tries: record.tries,
            ..*self
        };
        Ok(())
    }
}

impl Incarnations {
    fn get(&self, at: u16) -> u32 {
        self.0.get(usize::from(at)).copied().unwrap_or_default()
    }

    fn place(&mut self, incarnation: u32) -> Result<u16, TooManyIncarnations> {
        // Newest last, and the newest is asked for most.
        if let Some(at) = self.0.iter().rposition(|known| *known == incarnation) {
            return u16::try_from(at).map_err(|_| TooManyIncarnations);
        }
        let at = u16::try_from(self.0.len()).map_err(|_| TooManyIncarnations)?;
        self.0.push(incarnation);
        Ok(at)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

fn pack(stamp: Stamp, incarnations: &mut Incarnations) -> Result<PackedStamp, TooManyIncarnations> {
    let at = incarnations.place(stamp.incarnation)?;
    let mut packed = [0; 13];
    packed[..6].copy_from_slice(&low_bytes(stamp.epoch_ms));
    packed[6..8].copy_from_slice(&at.to_le_bytes());
    packed[8..].copy_from_slice(&stamp.n.min(N_MAX).to_le_bytes()[..5]);
    Ok(packed)
}

fn unpack(packed: &PackedStamp, incarnations: &Incarnations) -> Stamp {
    let [e0, e1, e2, e3, e4, e5, i0, i1, n0, n1, n2, n3, n4] = *packed;
    Stamp {
        epoch_ms: millis(&[e0, e1, e2, e3, e4, e5]),
        incarnation: incarnations.get(u16::from_le_bytes([i0, i1])),
        n: u64::from_le_bytes([n0, n1, n2, n3, n4, 0, 0, 0]),
    }
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

// Which fields are there, then their small values. Also in the store's records: never renumber.
const FAILED: u16 = 1;
const APPLIED: u16 = 1 << 1;
const ARM: u16 = 1 << 2;
const CONN: u16 = 1 << 3;
const OBSERVED: u16 = 1 << 4;
const FIRST_TO: u16 = 1 << 5;
const READING: u16 = 6;
const STATE: u16 = 9;
const SEAT: u16 = 11;
const FOREIGN: u16 = 1 << 13;
const HEALTH: u16 = 14;

fn reading_of(bits: u16) -> Reading {
    match bits >> READING & 7 {
        0 => Reading::Taking,
        1 => Reading::To,
        2 => Reading::From,
        3 => Reading::Other,
        _ => Reading::Unknown,
    }
}

fn bits_of_reading(reading: Reading) -> u16 {
    let value = match reading {
        Reading::Taking => 0,
        Reading::To => 1,
        Reading::From => 2,
        Reading::Other => 3,
        Reading::Unknown => 4,
    };
    value << READING
}

fn conn_of(bits: u16) -> Conn {
    match bits >> STATE & 3 {
        0 => Conn::Open,
        1 => Conn::Drained,
        2 => Conn::Lost,
        _ => Conn::Left,
    }
}

fn bits_of_conn(conn: Conn) -> u16 {
    let value = match conn {
        Conn::Open => 0,
        Conn::Drained => 1,
        Conn::Lost => 2,
        Conn::Left => 3,
    };
    value << STATE
}

fn observed_of(bits: u16, stage: u16) -> Observed {
    Observed {
        seat: match bits >> SEAT & 3 {
            0 => Seat::Stage(stage),
            1 => Seat::Control,
            _ => Seat::Outside,
        },
        foreign: bits & FOREIGN != 0,
        healthy: match bits >> HEALTH & 3 {
            1 => Some(false),
            2 => Some(true),
            _ => None,
        },
    }
}

fn bits_of_observed(observed: Observed) -> (u16, u16) {
    let (seat, stage) = match observed.seat {
        Seat::Stage(stage) => (0, stage),
        Seat::Control => (1, 0),
        Seat::Outside => (2, 0),
    };
    let health = match observed.healthy {
        None => 0,
        Some(false) => 1,
        Some(true) => 2,
    };
    let foreign = if observed.foreign { FOREIGN } else { 0 };
    (seat << SEAT | health << HEALTH | foreign, stage)
}

/// Bytes of a record in the store.
pub(super) const STORED_BYTES: usize = 97;

/// A record as the store keeps it; its form is part of the file's format.
pub(super) fn encode(record: &Record, no_bucket: bool) -> [u8; STORED_BYTES] {
    let mut alone = Incarnations::default();
    let mut slot = Slot::EMPTY;
    // Five stamps name five incarnations at most.
    let packed = slot.set_record(record, &mut alone);
    debug_assert_eq!(packed, Ok(()));
    let mut out = [0; STORED_BYTES];
    let mut at = 0;
    let mut put = |bytes: &[u8]| {
        out[at..at + bytes.len()].copy_from_slice(bytes);
        at += bytes.len();
    };
    for stamp in [&slot.failed, &slot.applied, &slot.arm, &slot.conn, &slot.observed] {
        let stamp = unpack(stamp, &alone);
        put(&low_bytes(stamp.epoch_ms));
        put(&stamp.incarnation.to_le_bytes());
        put(&stamp.n.to_le_bytes()[..5]);
    }
    put(&slot.heard);
    put(&slot.first_to);
    put(&slot.error);
    put(&slot.seat);
    put(&slot.bits);
    put(&[slot.tries, u8::from(no_bucket)]);
    out
}

/// What [`encode`] wrote: the record, and whether its collector lacks a hash attribute. `None`: it
/// did not write that.
pub(super) fn decode(bytes: &[u8]) -> Option<(Record, bool)> {
    fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
        let (head, tail) = rest.split_first_chunk::<N>()?;
        *rest = tail;
        Some(*head)
    }
    let mut rest = bytes;
    let mut stamp = || {
        let epoch_ms = millis(&take(&mut rest)?);
        let incarnation = u32::from_le_bytes(take(&mut rest)?);
        let [n0, n1, n2, n3, n4] = take(&mut rest)?;
        Some(Stamp { epoch_ms, incarnation, n: u64::from_le_bytes([n0, n1, n2, n3, n4, 0, 0, 0]) })
    };
    let (failed, applied, arm, conn, observed) = (stamp()?, stamp()?, stamp()?, stamp()?, stamp()?);
    let heard_ms = millis(&take(&mut rest)?);
    let first_to = millis(&take(&mut rest)?);
    let error = ErrorId(u32::from_le_bytes(take(&mut rest)?));
    let stage = u16::from_le_bytes(take(&mut rest)?);
    let bits = u16::from_le_bytes(take(&mut rest)?);
    let [tries, no_bucket] = take(&mut rest)?;
    let Stamp { epoch_ms, incarnation, n } = conn;
    let record = Record {
        failed: (bits & FAILED != 0).then_some((failed, error)),
        applied: (bits & APPLIED != 0).then_some(applied),
        arm: (bits & ARM != 0).then(|| (arm, reading_of(bits))),
        conn: (bits & CONN != 0).then(|| (Session { epoch_ms, incarnation, n }, conn_of(bits))),
        observed: (bits & OBSERVED != 0).then(|| (observed, observed_of(bits, stage))),
        heard_ms,
        first_to_ms: (bits & FIRST_TO != 0).then_some(first_to),
        tries,
    };
    (rest.is_empty() && no_bucket <= 1).then_some((record, no_bucket == 1))
}
