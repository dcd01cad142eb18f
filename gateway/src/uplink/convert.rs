//! Records as evidence has them, and as frames do. `proto` and `render` never see each other.

use proto::uplink as wire;
use render::rollout::evidence::{
    Conn, ErrorId, Millis, Observed, Reading, Record, Seat, Session, Stamp,
};

/// Times of this process in the aggregator's.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Offset(pub(super) i64);

impl Offset {
    /// 0 says never in either time.
    pub(super) fn shift(self, ms: Millis) -> Millis {
        if ms == 0 { 0 } else { ms.saturating_add_signed(self.0).max(1) }
    }

    pub(super) fn session(self, session: Session) -> wire::Stamp {
        let Session { epoch_ms, incarnation, n } = session;
        wire::Stamp { epoch_ms: self.shift(epoch_ms), incarnation, n }
    }

    fn stamp(self, stamp: Stamp) -> wire::Stamp {
        let Stamp { epoch_ms, incarnation, n } = stamp;
        wire::Stamp { epoch_ms: self.shift(epoch_ms), incarnation, n }
    }

    /// A record of this process for an aggregator.
    pub(super) fn record(self, record: &Record) -> wire::Record {
        wire::Record {
            failed: record.failed.map(|(stamp, ErrorId(error))| (self.stamp(stamp), error)),
            applied: record.applied.map(|stamp| self.stamp(stamp)),
            arm: record.arm.map(|(stamp, reading)| (self.stamp(stamp), reading_out(reading))),
            conn: record.conn.map(|(session, conn)| (self.session(session), conn_out(conn))),
            observed: record
                .observed
                .map(|(stamp, observed)| (self.stamp(stamp), observed_out(observed))),
            heard_ms: self.shift(record.heard_ms),
            first_to_ms: record.first_to_ms.map(|ms| self.shift(ms)),
            tries: record.tries,
        }
    }
}

/// A record of a replica; it is in the aggregator's time already.
pub(crate) fn record(record: &wire::Record) -> Record {
    Record {
        failed: record.failed.map(|(at, error)| (stamp(at), ErrorId(error))),
        applied: record.applied.map(stamp),
        arm: record.arm.map(|(at, reading)| (stamp(at), reading_in(reading))),
        conn: record.conn.map(|(at, conn)| (session(at), conn_in(conn))),
        observed: record.observed.map(|(at, observed)| (stamp(at), observed_in(observed))),
        heard_ms: record.heard_ms,
        first_to_ms: record.first_to_ms,
        tries: record.tries,
    }
}

/// A session of a replica.
pub(crate) fn session(stamp: wire::Stamp) -> Session {
    let wire::Stamp { epoch_ms, incarnation, n } = stamp;
    Session { epoch_ms, incarnation, n }
}

fn stamp(stamp: wire::Stamp) -> Stamp {
    let wire::Stamp { epoch_ms, incarnation, n } = stamp;
    Stamp { epoch_ms, incarnation, n }
}

/// Whether every moment in it is of this process.
pub(super) fn is_of(line: &wire::Line<'_>, incarnation: u32) -> bool {
    let wire::Record { failed, applied, arm, conn, observed, .. } = &line.record;
    let stamps = [
        failed.map(|(stamp, _)| stamp),
        *applied,
        arm.map(|(stamp, _)| stamp),
        conn.map(|(stamp, _)| stamp),
        observed.map(|(stamp, _)| stamp),
    ];
    let rivals = line.rivals.iter().map(|(stamp, _)| stamp);
    stamps.into_iter().flatten().chain(rivals).all(|stamp| stamp.incarnation == incarnation)
}

fn reading_out(reading: Reading) -> wire::Reading {
    match reading {
        Reading::Taking => wire::Reading::Taking,
        Reading::To => wire::Reading::To,
        Reading::From => wire::Reading::From,
        Reading::Other => wire::Reading::Other,
        Reading::Unknown => wire::Reading::Unknown,
    }
}

fn reading_in(reading: wire::Reading) -> Reading {
    match reading {
        wire::Reading::Taking => Reading::Taking,
        wire::Reading::To => Reading::To,
        wire::Reading::From => Reading::From,
        wire::Reading::Other => Reading::Other,
        wire::Reading::Unknown => Reading::Unknown,
    }
}

fn conn_out(conn: Conn) -> wire::Conn {
    match conn {
        Conn::Open => wire::Conn::Open,
        Conn::Drained => wire::Conn::Drained,
        Conn::Lost => wire::Conn::Lost,
        Conn::Left => wire::Conn::Left,
    }
}

fn conn_in(conn: wire::Conn) -> Conn {
    match conn {
        wire::Conn::Open => Conn::Open,
        wire::Conn::Drained => Conn::Drained,
        wire::Conn::Lost => Conn::Lost,
        wire::Conn::Left => Conn::Left,
    }
}

fn observed_out(observed: Observed) -> wire::Observed {
    let Observed { seat, foreign, healthy } = observed;
    let seat = match seat {
        Seat::Stage(stage) => wire::Seat::Stage(stage),
        Seat::Control => wire::Seat::Control,
        Seat::Outside => wire::Seat::Outside,
    };
    wire::Observed { seat, foreign, healthy }
}

fn observed_in(observed: wire::Observed) -> Observed {
    let wire::Observed { seat, foreign, healthy } = observed;
    let seat = match seat {
        wire::Seat::Stage(stage) => Seat::Stage(stage),
        wire::Seat::Control => Seat::Control,
        wire::Seat::Outside => Seat::Outside,
    };
    Observed { seat, foreign, healthy }
}
