//! What could not be written at once: a queue that exists only while the socket is full, or while
//! an answer waits for its evidence to be on the disk.

use std::collections::VecDeque;
use std::task::Waker;

use bytes::Bytes;

use crate::clock::Seconds;

/// Bytes that may wait for one peer beyond what is being sent. Past it the peer does not read, and
/// is dropped. Offers in it are shared; what a link adds of its own is far less.
pub const OUTBOX_BYTES_MAX: usize = 256 * 1024;
/// Bytes waiting for a peer from which on nothing more is read from it: who asks faster than it reads
/// answers is slowed down, not dropped.
pub const OUTBOX_BYTES_SOFT: usize = 64 * 1024;
/// Messages that may wait for one peer, since each costs us some bytes of its own.
pub const OUTBOX_CHUNKS_MAX: usize = 8_192;
/// Seconds that a peer may go without taking a single byte of what waits for it.
pub const WRITE_SECONDS_MAX: Seconds = 30;

/// The queue of one link. `G` is what parts of it wait for.
#[derive(Debug)]
pub struct Outbox<G> {
    /// What may be written.
    chunks: VecDeque<Bytes>,
    /// Empty, or a gate and what is behind it.
    held: VecDeque<Held<G>>,
    /// Of all chunks, held ones included.
    bytes: usize,
    /// A task writes it as the socket allows.
    pub draining: bool,
    /// When the peer last took something, or when the queue began.
    moved_at: Seconds,
    /// The link's reader, which waits for this queue to end.
    reader: Option<Waker>,
}

#[derive(Debug)]
enum Held<G> {
    Gate(G),
    Chunk(Bytes),
}

/// The peer does not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl<G: Copy> Outbox<G> {
    /// An empty queue that begins now.
    pub fn new(now: Seconds) -> Self {
        Self {
            chunks: VecDeque::new(),
            held: VecDeque::new(),
            bytes: 0,
            draining: false,
            moved_at: now,
            reader: None,
        }
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty() && self.held.is_empty()
    }

    /// Whether nothing is left that may be written now.
    pub fn is_drained(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Puts a gate at the end: what is appended from now on waits for it. Returns whether it is the
    /// first one, for which somebody has to wait.
    pub fn hold(&mut self, gate: G) -> bool {
        self.held.push_back(Held::Gate(gate));
        self.held.len() == 1
    }

    /// Takes away the first gate, and returns the next one.
    pub fn open(&mut self, now: Seconds) -> Option<G> {
        if self.chunks.is_empty() {
            // The peer could take nothing while nothing was let out.
            self.moved_at = now;
        }
        self.held.pop_front();
        loop {
            match self.held.front() {
                Some(Held::Gate(next)) => return Some(*next),
                Some(Held::Chunk(_)) => {
                    if let Some(Held::Chunk(chunk)) = self.held.pop_front() {
                        self.chunks.push_back(chunk);
                    }
                }
                None => return None,
            }
        }
    }

    /// Appends what nobody asked for. One message is taken however long it is, as long as the limit
    /// was not reached.
    ///
    /// # Errors
    ///
    /// [`Full`], and the message is not taken.
    pub fn push(&mut self, parts: impl IntoIterator<Item = Bytes>) -> Result<(), Full> {
        if self.bytes >= OUTBOX_BYTES_MAX
            || self.chunks.len() + self.held.len() >= OUTBOX_CHUNKS_MAX
        {
            return Err(Full);
        }
        self.push_answer(parts);
        Ok(())
    }

    /// Appends an answer. There is no limit but that of the questions: with
    /// [`OUTBOX_BYTES_SOFT`] waiting no more of them are read, and one read gives so many at most.
    pub fn push_answer(&mut self, parts: impl IntoIterator<Item = Bytes>) {
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            self.bytes += part.len();
            if self.held.is_empty() {
                self.chunks.push_back(part);
            } else {
                self.held.push_back(Held::Chunk(part));
            }
        }
    }

    /// What to write next, in order: at most `out.len()` slices; returns how many.
    pub fn fill<'a>(&'a self, out: &mut [std::io::IoSlice<'a>]) -> usize {
        let mut filled = 0;
        for (slot, chunk) in out.iter_mut().zip(&self.chunks) {
            *slot = std::io::IoSlice::new(chunk);
            filled += 1;
        }
        filled
    }

    /// Takes away `written` bytes from the front.
    pub fn advance(&mut self, mut written: usize, now: Seconds) {
        if written > 0 {
            self.moved_at = now;
        }
        self.bytes = self.bytes.saturating_sub(written);
        while let Some(front) = self.chunks.front_mut() {
            if written < front.len() {
                bytes::Buf::advance(front, written);
                return;
            }
            written -= front.len();
            self.chunks.pop_front();
        }
        debug_assert_eq!(written, 0, "no more is written than was queued");
    }

    /// Whether so much waits that the peer should read before it gets more.
    pub fn is_long(&self) -> bool {
        self.bytes >= OUTBOX_BYTES_SOFT
    }

    /// Leaves the reader's waker until this queue is gone, if it is long; false if it is not.
    pub fn holds_back(&mut self, reader: &Waker) -> bool {
        let long = self.is_long();
        if long {
            self.reader = Some(reader.clone());
        }
        long
    }

    /// Whether the peer took nothing for too long.
    pub fn is_stuck(&self, now: Seconds) -> bool {
        let may_take = !self.chunks.is_empty() || self.held.is_empty();
        may_take && now.saturating_sub(self.moved_at) >= WRITE_SECONDS_MAX
    }
}

impl<G> Drop for Outbox<G> {
    fn drop(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_long_message_is_taken_and_the_next_is_not() {
        let mut outbox = Outbox::<()>::new(1);
        assert_eq!(outbox.push([Bytes::from(vec![0; 3 * OUTBOX_BYTES_MAX])]), Ok(()));
        assert_eq!(outbox.push([Bytes::from_static(b"x")]), Err(Full));
        outbox.advance(2 * OUTBOX_BYTES_MAX + 1, 2);
        assert_eq!(outbox.push([Bytes::from_static(b"x")]), Ok(()));
    }

    #[test]
    fn a_peer_that_takes_a_byte_now_and_then_is_slow_and_not_stuck() {
        let mut outbox = Outbox::<()>::new(10);
        outbox.push([Bytes::from_static(b"abc")]).unwrap();
        assert!(!outbox.is_stuck(10 + WRITE_SECONDS_MAX - 1));
        assert!(outbox.is_stuck(10 + WRITE_SECONDS_MAX));
        outbox.advance(0, 39);
        assert!(outbox.is_stuck(40), "nothing was taken");
        outbox.advance(1, 39);
        assert!(!outbox.is_stuck(40));
    }

    proptest! {
        #[test]
        fn bytes_come_out_in_order_however_they_are_taken(
            messages in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 1..30),
            takes in proptest::collection::vec(1_usize..60, 1..200),
        ) {
            let mut outbox = Outbox::<()>::new(0);
            for message in &messages {
                let (head, body) = message.split_at(message.len() / 3);
                outbox.push([Bytes::copy_from_slice(head), Bytes::copy_from_slice(body)]).unwrap();
            }
            let mut out = Vec::new();
            for take in takes {
                let mut slices = [IoSlice::new(&[]); 4];
                let filled = outbox.fill(&mut slices);
                let offered: Vec<u8> = slices[..filled].concat_slices();
                let taken = take.min(offered.len());
                out.extend_from_slice(&offered[..taken]);
                outbox.advance(taken, 0);
            }
            let all = messages.concat();
            prop_assert!(all.starts_with(&out));
            prop_assert_eq!(outbox.is_empty(), out.len() == all.len());
            prop_assert_eq!(outbox.bytes, all.len() - out.len());
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Push(Vec<u8>),
        Hold,
        Open,
        Write(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => prop::collection::vec(any::<u8>(), 1..9).prop_map(Step::Push),
            2 => Just(Step::Hold),
            2 => Just(Step::Open),
            3 => (0usize..20).prop_map(Step::Write),
        ];
        prop::collection::vec(step, 0..60)
    }

    proptest! {
        /// The model is one row of bytes with the places of gates in it.
        #[test]
        fn nothing_passes_a_gate_and_everything_keeps_its_order(steps in steps()) {
            let mut outbox = Outbox::new(0);
            let (mut all, mut out) = (Vec::new(), Vec::new());
            let mut gates: VecDeque<(u32, usize)> = VecDeque::new();
            let mut next_gate = 0;
            for step in steps {
                match step {
                    Step::Push(bytes) => {
                        all.extend_from_slice(&bytes);
                        outbox.push_answer([Bytes::from(bytes)]);
                    }
                    Step::Hold => {
                        prop_assert_eq!(outbox.hold(next_gate), gates.is_empty());
                        gates.push_back((next_gate, all.len()));
                        next_gate += 1;
                    }
                    Step::Open if gates.is_empty() => {}
                    Step::Open => {
                        gates.pop_front();
                        prop_assert_eq!(outbox.open(0), gates.front().map(|(gate, _)| *gate));
                    }
                    Step::Write(most) => {
                        let mut slices = [IoSlice::new(&[]); 16];
                        let filled = outbox.fill(&mut slices);
                        let offered = slices[..filled].concat_slices();
                        let taken = most.min(offered.len());
                        out.extend_from_slice(&offered[..taken]);
                        outbox.advance(taken, 0);
                    }
                }
                let free = gates.front().map_or(all.len(), |(_, at)| *at);
                prop_assert!(out.len() <= free);
                prop_assert!(all.starts_with(&out));
                prop_assert_eq!(outbox.is_drained(), out.len() == free);
                prop_assert_eq!(outbox.is_empty(), out.len() == all.len() && gates.is_empty());
            }
        }
    }

    #[test]
    fn who_may_take_nothing_is_not_stuck() {
        let mut outbox = Outbox::new(10);
        outbox.hold(());
        outbox.push([Bytes::from_static(b"abc")]).unwrap();
        assert!(!outbox.is_stuck(10 + WRITE_SECONDS_MAX));
        assert_eq!(outbox.open(50), None);
        assert!(!outbox.is_stuck(50 + WRITE_SECONDS_MAX - 1));
        assert!(outbox.is_stuck(50 + WRITE_SECONDS_MAX));
    }

    trait ConcatSlices {
        fn concat_slices(&self) -> Vec<u8>;
    }

    impl ConcatSlices for [IoSlice<'_>] {
        fn concat_slices(&self) -> Vec<u8> {
            self.iter().flat_map(|slice| slice.iter().copied()).collect()
        }
    }
}
