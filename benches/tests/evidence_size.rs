//! What a member costs, everything in: slab, index, counters.
#![expect(unsafe_code, reason = "a global allocator can only be written with it")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicIsize, Ordering};

use benches::evidence;
use gateway::aggregate::{Aggregator, Settings};
use gateway::metrics::Metrics;

/// Bytes that are allocated and not freed.
struct Live;

static LIVE: AtomicIsize = AtomicIsize::new(0);

// SAFETY: every call goes to `System` unchanged; the counter is an atomic.
unsafe impl GlobalAlloc for Live {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        LIVE.fetch_add(size as isize - layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.realloc(block, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Live = Live;

#[test]
fn a_member_costs_at_most_128_bytes() {
    let aggregator = Aggregator::in_memory(Settings::default(), Metrics::leak(), evidence::now(0));
    let snapshot = evidence::snapshot();
    let cells = aggregator.handle_head(evidence::now(0), &snapshot, "c1");
    let before = LIVE.load(Ordering::Relaxed);
    let members = 100_000;
    for number in 0..members {
        evidence::observe(&aggregator, &cells[0], number, evidence::now(1));
    }
    let bytes = LIVE.load(Ordering::Relaxed) - before;
    let each = bytes as f64 / f64::from(members);
    assert_eq!(cells[0].len(), members as usize);
    assert!((90.0..=128.0).contains(&each), "{each} bytes");
}
