//! One buffer per thread that every socket is read into.
//!
//! A message that arrives whole is parsed where it was read and never allocates: at half a million
//! links, a read buffer per link is the largest thing that a link could own (idle-links.md).

use std::cell::RefCell;

/// Bytes of the buffer: a first report with its effective configuration fits whole.
pub const SCRATCH_BYTES: usize = 64 * 1024;

thread_local! {
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; SCRATCH_BYTES].into_boxed_slice());
    static ANSWERS: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Lends this thread's read buffer and its (empty) buffer of small answers.
///
/// The content is whatever the last reader left; only what you read into it is yours. Nested calls
/// would need a second buffer and get fresh ones, so that a mistake costs time and not a panic.
pub fn with<R>(work: impl FnOnce(&mut [u8], &mut Vec<u8>) -> R) -> R {
    SCRATCH.with(|scratch| {
        ANSWERS.with(|answers| match (scratch.try_borrow_mut(), answers.try_borrow_mut()) {
            (Ok(mut scratch), Ok(mut answers)) => {
                answers.clear();
                work(&mut scratch, &mut answers)
            }
            _ => work(&mut vec![0; SCRATCH_BYTES], &mut Vec::new()),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nested_loan_does_not_share_the_buffer() {
        with(|outer, _| {
            outer[0] = 7;
            with(|inner, _| inner[0] = 9);
            assert_eq!(outer[0], 7);
        });
    }

    #[test]
    fn answers_start_empty() {
        with(|_, answers| answers.extend_from_slice(b"left over"));
        with(|_, answers| assert!(answers.is_empty()));
    }
}
