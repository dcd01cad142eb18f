//! How many frames a peer sends, without reading them.

use std::time::Duration;

/// Frames per second that one connection may send for ever. Twenty batches a second are what a
/// replica makes; a batch holds up to a thousand records.
pub const FRAMES_PER_SECOND: u64 = 2_000;
/// Frames at once: every change of a large head is named in a frame of its own.
pub const FRAMES_BURST: u64 = 40_000;

/// Counts the frames that begin in a stream of bytes, against a bucket of tokens.
#[derive(Debug)]
pub struct Meter {
    /// Bytes of a length that have come, and what they say so far.
    header: (u32, u32),
    /// Bytes until the next length.
    skip: u64,
    tokens: u64,
    /// Milliseconds since the process started that the tokens are good for.
    at_ms: u64,
}

impl Meter {
    /// Full.
    pub fn new(elapsed: Duration) -> Self {
        Self { header: (0, 0), skip: 0, tokens: FRAMES_BURST, at_ms: millis(elapsed) }
    }

    /// Bytes have come. Whether the peer may go on.
    pub fn take(&mut self, elapsed: Duration, mut bytes: &[u8]) -> bool {
        let now_ms = millis(elapsed);
        let whole = now_ms.saturating_sub(self.at_ms).saturating_mul(FRAMES_PER_SECOND) / 1_000;
        if whole > 0 {
            self.tokens = self.tokens.saturating_add(whole).min(FRAMES_BURST);
            self.at_ms = now_ms;
        }
        loop {
            let passed = usize::try_from(self.skip).unwrap_or(usize::MAX).min(bytes.len());
            bytes = &bytes[passed..];
            self.skip -= passed as u64;
            let Some((byte, rest)) = bytes.split_first() else { return true };
            bytes = rest;
            let (have, length) = self.header;
            let length = length | u32::from(*byte) << (8 * have);
            self.header = (have + 1, length);
            if self.header.0 == 4 {
                (self.header, self.skip) = ((0, 0), u64::from(length));
                let Some(left) = self.tokens.checked_sub(1) else { return false };
                self.tokens = left;
            }
        }
    }
}

fn millis(elapsed: Duration) -> u64 {
    u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn frame(length: usize) -> Vec<u8> {
        [&u32::try_from(length).unwrap().to_le_bytes()[..], &vec![0xff; length]].concat()
    }

    #[test]
    fn a_burst_and_then_so_many_a_second() {
        let mut meter = Meter::new(SECOND);
        let empty = frame(0);
        let sent =
            |meter: &mut Meter, at: Duration| (0..).find(|_| !meter.take(at, &empty)).unwrap();
        assert_eq!(sent(&mut meter, SECOND), FRAMES_BURST);
        assert_eq!(sent(&mut meter, SECOND * 2), FRAMES_PER_SECOND);
        assert_eq!(sent(&mut meter, SECOND * 2 + Duration::from_millis(10)), 20);
        assert_eq!(sent(&mut meter, SECOND * 1_000), FRAMES_BURST);
    }

    proptest! {
        #[test]
        fn frames_are_counted_in_whatever_pieces_they_come(
            lengths in proptest::collection::vec(0_usize..40, 0..50),
            pieces in proptest::collection::vec(1_usize..17, 1..9),
        ) {
            let bytes: Vec<u8> = lengths.iter().flat_map(|length| frame(*length)).collect();
            let (mut meter, mut rest) = (Meter::new(SECOND), &bytes[..]);
            for piece in pieces.iter().cycle() {
                let (now, later) = rest.split_at((*piece).min(rest.len()));
                prop_assert!(meter.take(SECOND, now));
                rest = later;
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(FRAMES_BURST - meter.tokens, lengths.len() as u64);
        }
    }
}
