//! Asking the processor for memory before it is needed.

/// Bytes that a processor fetches at once.
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;

/// `what` is near soon: each line of the cache that begins within it, counted from its first byte.
/// Nothing waits for it, as something would for a read: a processor has only so many instructions
/// under way, and the reads that they wait for come a few at a time. Does nothing on processors
/// other than x86-64.
#[inline]
#[cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "the standard library has no other way to ask")
)]
pub fn near_soon<T>(what: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let first = std::ptr::from_ref(what).cast::<i8>();
        for line in (0..size_of::<T>()).step_by(LINE) {
            // SAFETY: every x86-64 has the instruction, which neither reads nor faults, and the
            // address lies within `what`.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(first.add(line)) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    std::hint::black_box(what);
}
