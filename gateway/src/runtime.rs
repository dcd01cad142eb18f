//! The tokio runtime, and memory given back after a burst.

use std::cell::Cell;
use std::io;
use std::num::NonZeroUsize;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use crate::clock::Clock;

/// Shortest time between two collections on one worker: after a burst of 19,000 × 60 kB the memory
/// was back within a second at no measurable cost (idle-links.md, 2026-11).
const COLLECT_EVERY: Duration = Duration::from_millis(250);

thread_local! {
    /// When this worker collected last, since the process started.
    static COLLECTED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// A multi-threaded runtime with `workers` threads, one per core if not given.
///
/// Idle links allocate nothing, so the allocator never gets an occasion to hand freed pages back,
/// and no thread can collect another's heap: each worker does it itself when it has nothing to do.
///
/// # Errors
///
/// When the kernel gives no threads or no epoll descriptor.
pub fn build(workers: Option<NonZeroUsize>, clock: Clock) -> io::Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    if let Some(workers) = workers {
        builder.worker_threads(workers.get());
    }
    builder
        .enable_all()
        .thread_name("tidegate")
        .on_thread_park(move || collect_at_times(clock.elapsed()))
        .build()
}

/// Collects this thread's heap if the last time is long enough ago.
fn collect_at_times(now: Duration) {
    let due = COLLECTED.with(|last| {
        let due = now.saturating_sub(last.get()) >= COLLECT_EVERY;
        if due {
            last.set(now);
        }
        due
    });
    if due {
        collect();
    }
}

/// Hands this thread's freed pages back to the kernel. Does nothing worth mentioning where mimalloc
/// is not the global allocator, as in tests.
#[expect(unsafe_code, reason = "mi_collect is a C function without preconditions")]
fn collect() {
    // SAFETY: it takes a flag, touches only the calling thread's heap, and may be called at any
    // time from a thread that runs Rust code.
    unsafe { libmimalloc_sys::mi_collect(true) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_collects_at_most_every_so_often() {
        std::thread::spawn(|| {
            let last = || COLLECTED.with(Cell::get);
            collect_at_times(Duration::from_millis(100));
            assert_eq!(last(), Duration::ZERO);
            collect_at_times(Duration::from_millis(300));
            assert_eq!(last(), Duration::from_millis(300));
            collect_at_times(Duration::from_millis(549));
            assert_eq!(last(), Duration::from_millis(300));
            collect_at_times(Duration::from_millis(550));
            assert_eq!(last(), Duration::from_millis(550));
        })
        .join()
        .unwrap();
    }
}
