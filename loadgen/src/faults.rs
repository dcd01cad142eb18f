//! How a collector takes an offer. All of them apply what they are given; collectors that fail,
//! hang or vanish are decided here, in one place, per collector and offer.

use std::ops::Range;

use crate::clock::Micros;

/// What becomes of an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaction {
    /// APPLYING at once, APPLIED that much later.
    Apply {
        /// Microseconds.
        after: Micros,
    },
}

/// Decides for one offer to one collector.
pub(crate) fn react(apply_delay: &Range<Micros>, rng: &mut fastrand::Rng) -> Reaction {
    Reaction::Apply { after: within(apply_delay, rng) }
}

/// A random number of the range, its start where it is empty.
fn within(range: &Range<Micros>, rng: &mut fastrand::Rng) -> Micros {
    if range.is_empty() { range.start } else { rng.u64(range.clone()) }
}
