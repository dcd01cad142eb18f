//! What a collector comes to while a replica that reports vouches for it: most do, most of the
//! time.
//!
//! Then it is heard now, and by the clock it becomes nothing else: what it comes to follows from a
//! few small values (a property test of [`classify`](render::rollout::evidence::classify) says so),
//! which are looked up.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use render::rollout::evidence::{self, Conn, ErrorId, Owner, Record, Session, Stamp, classify};

use super::class::Class;
use super::packed::Vouched;

/// Combinations that are remembered: a Rollout of three stages in progress has about twelve.
const KNOWN: usize = 64;

/// What combinations came to, under one context.
pub(super) struct Memo(Box<[AtomicU64; KNOWN]>);

impl Memo {
    // hot
    pub(super) fn class(&self, vouched: Vouched, terms: &evidence::Context) -> Class {
        let key = vouched.key();
        let known = &self.0[(key.wrapping_mul(0x9e37_79b9) >> 26) as usize % KNOWN];
        let found = known.load(Ordering::Relaxed);
        if (found >> 32) as u32 == key {
            return Class::from_bits(found as u32);
        }
        let class = Self::work_out(vouched, terms);
        known.store(u64::from(key) << 32 | u64::from(class.bits()), Ordering::Relaxed);
        class
    }

    #[cold]
    fn work_out(vouched: Vouched, terms: &evidence::Context) -> Class {
        let stamp = Stamp { epoch_ms: 0, incarnation: 0, n: 0 };
        let record = Record {
            failed: vouched.failed().then_some((stamp, ErrorId(0))),
            arm: vouched.arm().map(|reading| (stamp, reading)),
            conn: Some((Session { epoch_ms: 0, incarnation: 0, n: 0 }, Conn::Open)),
            observed: vouched.observed().map(|observed| (stamp, observed)),
            first_to_ms: vouched.took().then_some(0),
            ..Record::default()
        };
        Class::new(&classify(&record, terms, Owner::Reporting), vouched.no_bucket())
    }
}

impl Default for Memo {
    fn default() -> Self {
        Self(Box::new([const { AtomicU64::new(0) }; KNOWN]))
    }
}

/// What is known is of one context only.
impl Clone for Memo {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl fmt::Debug for Memo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Memo")
    }
}
