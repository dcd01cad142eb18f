//! Distributions that can be sent from one process to another and added up there.

use hdrhistogram::Histogram;

use crate::clock::Micros;

/// Longest that is told apart: an hour.
const LONGEST: Micros = 3_600_000_000;

/// From a microsecond to an hour, to that many digits (1 to 5).
#[expect(clippy::expect_used, reason = "the bounds are constants that the library accepts")]
pub(crate) fn new(digits: u8) -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST, digits.clamp(1, 5)).expect("valid bounds")
}

/// Every value that was recorded, as exactly as the histogram has it, and how often.
pub(crate) fn pairs(histogram: &Histogram<u64>) -> Vec<(u64, u64)> {
    let recorded = histogram.iter_recorded();
    recorded.map(|step| (step.value_iterated_to(), step.count_at_value())).collect()
}

/// Adds what [`pairs`] gave of a histogram with the same bounds and digits.
pub(crate) fn add(histogram: &mut Histogram<u64>, pairs: &[(u64, u64)]) {
    for (value, count) in pairs {
        histogram.saturating_record_n(*value, *count);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn parts_that_are_sent_and_added_are_the_whole(
            parts in proptest::collection::vec(
                proptest::collection::vec(prop_oneof![0_u64..5_000, 0_u64..4_000_000_000], 0..200),
                1..6,
            ),
            digits in 2_u8..=3,
        ) {
            let (mut whole, mut sum) = (new(digits), new(digits));
            for part in &parts {
                let mut histogram = new(digits);
                for value in part {
                    histogram.saturating_record(*value);
                    whole.saturating_record(*value);
                }
                let text = serde_json::to_string(&pairs(&histogram)).unwrap();
                add(&mut sum, &serde_json::from_str::<Vec<(u64, u64)>>(&text).unwrap());
            }
            prop_assert_eq!(sum.len(), whole.len());
            for quantile in [0.0, 0.25, 0.5, 0.9, 0.99, 0.999, 1.0] {
                prop_assert_eq!(sum.value_at_quantile(quantile), whole.value_at_quantile(quantile));
            }
            prop_assert_eq!(pairs(&sum), pairs(&whole));
        }
    }
}
