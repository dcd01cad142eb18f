//! Asking the processor for memory before it is needed.

/// All of `what` is near soon: one of twenty thousand links has left every cache since it was looked
/// at last, and each of its lines would be waited for by itself. Does nothing on processors other
/// than x86-64.
#[inline]
#[cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "the standard library has no other way to ask")
)]
pub(super) fn near_soon<T>(what: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        /// Bytes that come at once.
        const LINE: usize = 64;
        let first = std::ptr::from_ref(what).cast::<i8>();
        for line in (0..size_of::<T>()).step_by(LINE) {
            // SAFETY: every x86-64 has the instruction, which neither reads nor faults, and the
            // address is within `what`.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(first.add(line)) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    std::hint::black_box(what);
}
