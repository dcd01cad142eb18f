//! What the host gives this process: descriptors and processor time.

use std::fs;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit on descriptors to the hard limit and returns it; `None` is unlimited.
pub fn raise_descriptors() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let wanted = Rlimit { current: limit.maximum, maximum: limit.maximum };
    match setrlimit(Resource::Nofile, wanted) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current, // the soft limit still counts, and the caller compares with it
    }
}

/// Processor time of this process so far, in seconds: user and system. Zero where `/proc` is not.
pub fn processor_seconds() -> (f64, f64) {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name in parentheses may hold blanks; fields are counted after it.
    let fields: Vec<&str> =
        stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
    let ticks =
        |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) / TICKS_PER_SECOND, ticks(12) / TICKS_PER_SECOND)
}

/// `USER_HZ`, the same on every Linux that this runs on.
const TICKS_PER_SECOND: f64 = 100.0;

/// How many processors this process may use at once.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
