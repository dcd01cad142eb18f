//! Asking the processor for memory before it is needed.

/// The line of the cache where `what` begins is near soon. Nothing waits for it, as something would
/// for a read: a processor has only so many instructions under way, and the reads that they wait
/// for come a few at a time. Does nothing on processors other than x86-64.
#[inline]
#[cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "the standard library has no other way to ask")
)]
pub(super) fn near_soon<T>(what: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has the instruction, and it neither reads nor faults.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(what).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    std::hint::black_box(what);
}
