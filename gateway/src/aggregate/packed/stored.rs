//! A record as the store keeps it: its form is part of the file's format.

use render::rollout::evidence::{ErrorId, Record, Session, Stamp};

use super::bits::{self, APPLIED, ARM, CONN, FAILED, FIRST_TO, OBSERVED};
use super::{MILLIS_MAX, N_MAX, low_bytes, millis, stamp_of};

/// Bytes of a record in the store.
pub(in super::super) const STORED_BYTES: usize = 97;

/// A record, and whether its collector lacks a hash attribute.
pub(in super::super) fn encode(record: &Record, no_bucket: bool) -> [u8; STORED_BYTES] {
    let Record { failed, applied, arm, conn, observed, heard_ms, first_to_ms, tries } = *record;
    let mut out = [0; STORED_BYTES];
    let mut at = 0;
    let mut put = |bytes: &[u8]| {
        out[at..at + bytes.len()].copy_from_slice(bytes);
        at += bytes.len();
    };
    let stamps = [
        (FAILED, failed.map(|(stamp, _)| stamp)),
        (APPLIED, applied),
        (ARM, arm.map(|(stamp, _)| stamp)),
        (CONN, conn.map(|(session, _)| stamp_of(session))),
        (OBSERVED, observed.map(|(stamp, _)| stamp)),
    ];
    let mut bits = 0;
    for (bit, stamp) in stamps {
        bits |= if stamp.is_some() { bit } else { 0 };
        let Stamp { epoch_ms, incarnation, n } =
            stamp.unwrap_or(Stamp { epoch_ms: 0, incarnation: 0, n: 0 });
        put(&low_bytes(epoch_ms));
        put(&incarnation.to_le_bytes());
        put(&n.min(N_MAX).to_le_bytes()[..5]);
    }
    let (of_observed, seat) = observed.map_or((0, 0), |(_, observed)| bits::of_observed(observed));
    bits |= arm.map_or(0, |(_, reading)| bits::of_reading(reading));
    bits |= conn.map_or(0, |(_, conn)| bits::of_conn(conn)) | of_observed;
    bits |= if first_to_ms.is_some() { FIRST_TO } else { 0 };
    put(&low_bytes(heard_ms.min(MILLIS_MAX)));
    put(&low_bytes(first_to_ms.unwrap_or(0)));
    put(&failed.map_or(0, |(_, error)| error.0).to_le_bytes());
    put(&seat.to_le_bytes());
    put(&bits.to_le_bytes());
    put(&[tries, u8::from(no_bucket)]);
    out
}

/// What [`encode`] wrote. `None`: it did not write that.
pub(in super::super) fn decode(bytes: &[u8]) -> Option<(Record, bool)> {
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
    let conn = Session { epoch_ms, incarnation, n };
    let record = Record {
        failed: (bits & FAILED != 0).then_some((failed, error)),
        applied: (bits & APPLIED != 0).then_some(applied),
        arm: (bits & ARM != 0).then(|| (arm, bits::reading_of(bits))),
        conn: (bits & CONN != 0).then(|| (conn, bits::conn_of(bits))),
        observed: (bits & OBSERVED != 0).then(|| (observed, bits::observed_of(bits, stage))),
        heard_ms,
        first_to_ms: (bits & FIRST_TO != 0).then_some(first_to),
        tries,
    };
    (rest.is_empty() && no_bucket <= 1).then_some((record, no_bucket == 1))
}
