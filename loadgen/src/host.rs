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
    processor_seconds_in(&fs::read_to_string("/proc/self/stat").unwrap_or_default())
}

fn processor_seconds_in(stat: &str) -> (f64, f64) {
    // The name in parentheses may hold blanks; fields are counted after it.
    let fields: Vec<&str> =
        stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
    let ticks =
        |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) / TICKS_PER_SECOND, ticks(12) / TICKS_PER_SECOND)
}

/// Memory of this process that is in use, in bytes. Zero where `/proc` is not.
pub fn resident_bytes() -> u64 {
    status_bytes("/proc/self/status", "VmRSS")
}

/// A field of a `status` or `meminfo` file, in bytes.
fn status_bytes(file: &str, name: &str) -> u64 {
    field_bytes(&fs::read_to_string(file).unwrap_or_default(), name).unwrap_or(0)
}

/// `NAME:   123 kB`, in bytes.
pub(crate) fn field_bytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1_024)
}

/// What the whole machine still has, in bytes.
pub fn available_bytes() -> u64 {
    status_bytes("/proc/meminfo", "MemAvailable")
}

/// Memory in use and processor seconds (user, system) of another process; `None` once it has gone.
pub fn usage_of(pid: u32) -> Option<(u64, (f64, f64))> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // One that has ended and was not waited for has no memory any more.
    Some((field_bytes(&status, "VmRSS").unwrap_or(0), processor_seconds_in(&stat)))
}

/// `USER_HZ`, the same on every Linux that this runs on.
const TICKS_PER_SECOND: f64 = 100.0;

/// How many processors this process may use at once.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
