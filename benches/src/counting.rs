//! An allocator that counts, for tests that allow no allocation.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// Declare it as a test's `#[global_allocator]`, then ask [`allocations`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Counting;

/// How often this thread has asked for memory (growing counts, giving back does not) while `work`
/// ran, and what `work` returned.
pub fn allocations<T>(work: impl FnOnce() -> T) -> (u64, T) {
    let before = ALLOCATIONS.get();
    let done = work();
    (ALLOCATIONS.get() - before, done)
}

fn count() {
    // A thread that is going away has no counter any more, and nothing left to measure.
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
}

#[expect(unsafe_code, reason = "GlobalAlloc is unsafe; every call goes to System unchanged")]
// SAFETY: each method passes its arguments to `System`, which upholds the contract; counting
// touches a `Cell` in thread-local storage and allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise is the one that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.realloc(ptr, layout, new_size) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(ptr, layout) }
    }
}
