//! The small values of a record in sixteen bits.

use render::rollout::evidence::{Conn, Observed, Reading, Seat};

// Which fields are there, then their small values. Also in the store's records: never renumber.
pub(super) const FAILED: u16 = 1;
pub(super) const APPLIED: u16 = 1 << 1;
pub(super) const ARM: u16 = 1 << 2;
pub(super) const CONN: u16 = 1 << 3;
pub(super) const OBSERVED: u16 = 1 << 4;
pub(super) const FIRST_TO: u16 = 1 << 5;
const READING: u16 = 6;
const STATE: u16 = 9;
const SEAT: u16 = 11;
const FOREIGN: u16 = 1 << 13;
const HEALTH: u16 = 14;

/// The small values of an arm, of a session, and of what was observed.
pub(super) const OF_ARM: u16 = 7 << READING;
pub(super) const OF_CONN: u16 = 3 << STATE;
pub(super) const OF_OBSERVED: u16 = 3 << SEAT | FOREIGN | 3 << HEALTH;
/// All of them that a collector is counted by while it is vouched for, but whether it failed.
const COUNTED: u16 = ARM | CONN | OBSERVED | FIRST_TO | OF_ARM | 3 << SEAT | FOREIGN;

/// All that a collector is counted by while a replica that reports vouches for it, in one number
/// that is never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Vouched(u32);

impl Vouched {
    /// `failed`: as [`Record::failed_now`](render::rollout::evidence::Record::failed_now).
    pub(super) fn new(bits: u16, seat: u16, failed: bool, no_bucket: bool) -> Self {
        let failed = if failed { FAILED } else { 0 };
        let no_bucket = if no_bucket { APPLIED } else { 0 };
        let bits = bits & COUNTED | CONN | failed | no_bucket;
        Self(u32::from(bits) << 16 | u32::from(seat))
    }

    pub(in super::super) fn key(self) -> u32 {
        self.0
    }

    /// Health counts for nothing.
    pub(in super::super) fn observed(self) -> Option<Observed> {
        (self.bits() & OBSERVED != 0).then(|| observed_of(self.bits(), self.0 as u16))
    }

    pub(in super::super) fn arm(self) -> Option<Reading> {
        (self.bits() & ARM != 0).then(|| reading_of(self.bits()))
    }

    pub(in super::super) fn failed(self) -> bool {
        self.bits() & FAILED != 0
    }

    pub(in super::super) fn took(self) -> bool {
        self.bits() & FIRST_TO != 0
    }

    pub(in super::super) fn no_bucket(self) -> bool {
        self.bits() & APPLIED != 0
    }

    fn bits(self) -> u16 {
        (self.0 >> 16) as u16
    }
}

pub(super) fn reading_of(bits: u16) -> Reading {
    match bits >> READING & 7 {
        0 => Reading::Taking,
        1 => Reading::To,
        2 => Reading::From,
        3 => Reading::Other,
        _ => Reading::Unknown,
    }
}

pub(super) fn of_reading(reading: Reading) -> u16 {
    let value = match reading {
        Reading::Taking => 0,
        Reading::To => 1,
        Reading::From => 2,
        Reading::Other => 3,
        Reading::Unknown => 4,
    };
    value << READING
}

pub(super) fn conn_of(bits: u16) -> Conn {
    match bits >> STATE & 3 {
        0 => Conn::Open,
        1 => Conn::Drained,
        2 => Conn::Lost,
        _ => Conn::Left,
    }
}

pub(super) fn of_conn(conn: Conn) -> u16 {
    let value = match conn {
        Conn::Open => 0,
        Conn::Drained => 1,
        Conn::Lost => 2,
        Conn::Left => 3,
    };
    value << STATE
}

pub(super) fn observed_of(bits: u16, stage: u16) -> Observed {
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

pub(super) fn of_observed(observed: Observed) -> (u16, u16) {
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
