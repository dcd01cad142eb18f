//! What the process itself costs, under the names that Prometheus' client libraries give it: read
//! from `/proc` when somebody scrapes, and left out where there is none.

use std::fs;

use rustix::process::{Resource, getrlimit};

use super::family::write_single;
use super::names::{
    Definition, PROCESS_CPU_SECONDS, PROCESS_MAX_FDS, PROCESS_OPEN_FDS, PROCESS_RESIDENT_BYTES,
};

/// The kernel's `USER_HZ`: what it counts CPU time in towards programs, on every architecture that
/// we build for (proc_pid_stat(5)).
const TICKS_PER_SECOND: f64 = 100.0;

/// Appends the lines of this process, as it is now.
pub(super) fn render(out: &mut String) {
    let stat = fs::read_to_string("/proc/self/stat").ok();
    let status = fs::read_to_string("/proc/self/status").ok();
    let readings: [(&Definition, Option<f64>); 4] = [
        (PROCESS_CPU_SECONDS, stat.as_deref().and_then(cpu_seconds)),
        (PROCESS_RESIDENT_BYTES, status.as_deref().and_then(resident_bytes)),
        (PROCESS_OPEN_FDS, open_fds()),
        (PROCESS_MAX_FDS, getrlimit(Resource::Nofile).current.map(to_f64)),
    ];
    for (definition, reading) in readings {
        if let Some(value) = reading {
            write_single(definition, value, out);
        }
    }
}

/// User and system time: fields 14 and 15 of `/proc/PID/stat`, whose second field is a name in
/// parentheses that may hold anything.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(") ")?;
    // The first one here is field 3.
    let mut fields = fields.split(' ').skip(11).map(|field| field.parse::<f64>().ok());
    Some((fields.next()?? + fields.next()??) / TICKS_PER_SECOND)
}

/// `VmRSS` of `/proc/PID/status`, which is in KiB.
fn resident_bytes(status: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: f64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1024.0)
}

/// Since Linux 6.2 the folder's size is their number; before, they are counted, which takes long
/// where there are very many.
fn open_fds() -> Option<f64> {
    let told = fs::metadata("/proc/self/fd").ok()?.len();
    if told > 0 {
        return Some(to_f64(told));
    }
    let counted = fs::read_dir("/proc/self/fd").ok()?.count();
    // One of them is the folder that is being read.
    u64::try_from(counted).ok().map(|count| to_f64(count.saturating_sub(1)))
}

#[expect(
    clippy::cast_precision_loss,
    reason = "nobody has 2^53 descriptors; no limit is a big number"
)]
fn to_f64(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_read_past_any_name() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194560 900 0 0 0 250 175 9 9 20 0 3 0 100 1 2";
        assert_eq!(cpu_seconds(stat), Some(4.25));
        for bad in ["", "7 (a) S 1", "7 (a) S 1 7 7 0 -1 1 900 0 0 0 x 1 0 0"] {
            assert_eq!(cpu_seconds(bad), None, "{bad}");
        }
    }

    #[test]
    fn resident_memory_is_in_bytes() {
        assert_eq!(resident_bytes("Name:\tx\nVmRSS:\t    1200 kB\n"), Some(1_228_800.0));
        assert_eq!(resident_bytes("Name:\tx\n"), None);
    }

    #[test]
    fn this_process_can_be_read() {
        let mut out = String::new();
        render(&mut out);
        let value = |name: &str| -> f64 {
            let line = out.lines().find(|line| line.split(' ').next() == Some(name)).unwrap();
            line.split(' ').nth(1).unwrap().parse().unwrap()
        };
        assert!(value("process_resident_memory_bytes") > 1e5);
        assert!(value("process_open_fds") >= 3.0);
        assert!(value("process_max_fds") >= value("process_open_fds"));
        assert!(value("process_cpu_seconds_total") >= 0.0);
        assert!(out.contains("# TYPE process_cpu_seconds_total counter\n"));
    }

    #[test]
    fn a_descriptor_more_is_counted() {
        let before = open_fds().unwrap();
        let held: Vec<_> = (0..300).map(|_| fs::File::open("/dev/null").unwrap()).collect();
        assert!(open_fds().unwrap() >= before + 200.0);
        drop(held);
    }
}
