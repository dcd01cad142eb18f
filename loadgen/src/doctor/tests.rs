//! Machines that fit and machines that do not.

use std::fs;

use super::*;
use crate::floor::{Costs, Floor};

/// A machine that carries half a million.
fn large() -> Host {
    Host {
        nofile_hard: Some(20_000),
        nr_open: Some(1_048_576),
        file_max: Some(2_466_174),
        somaxconn: Some(4_096),
        tcp_max_syn_backlog: Some(2_048),
        port_range: Some([32_768, 60_999]),
        tcp_mem: Some([287_898, 383_866, 575_796]),
        processors: 2,
        memory_available: Some(22 << 30),
    }
}

fn states(diagnosis: &Diagnosis) -> Vec<(&'static str, State)> {
    let odd = diagnosis.findings.iter().filter(|finding| finding.state != State::Fits);
    odd.map(|finding| (finding.name, finding.state)).collect()
}

#[test]
fn half_a_million_fit_on_two_processors_and_24_gib() {
    let diagnosis = examine(&large(), 500_000);
    assert_eq!((diagnosis.fits, states(&diagnosis)), (true, vec![]), "{diagnosis}");
    assert_eq!((diagnosis.workers, diagnosis.replicas), (26, 26));
    assert!(diagnosis.findings.iter().all(|finding| finding.remedy.is_empty()));
}

#[test]
fn every_limit_that_is_too_small_is_told_with_what_to_set() {
    let check = |change: &dyn Fn(&mut Host), name: &str, state: State, remedy: &str| {
        let mut host = large();
        change(&mut host);
        let diagnosis = examine(&host, 500_000);
        assert_eq!(states(&diagnosis), [(name, state)], "{diagnosis}");
        assert_eq!(diagnosis.fits, state != State::TooSmall);
        let finding = diagnosis.findings.iter().find(|finding| finding.name == name).unwrap();
        assert!(finding.remedy.contains(remedy), "{}", finding.remedy);
        assert!(diagnosis.to_string().contains(remedy));
    };
    check(
        &|host| (host.nofile_hard, host.memory_available) = (Some(1_050), Some(64 << 30)),
        "nofile (hard limit)",
        State::TooSmall,
        "ulimit -Hn 20000",
    );
    check(
        &|host| host.file_max = Some(100_000),
        "fs.file-max",
        State::TooSmall,
        "sysctl -w fs.file-max=100",
    );
    check(
        &|host| host.nr_open = Some(1_024),
        "fs.nr_open",
        State::TooSmall,
        "sysctl -w fs.nr_open=20000",
    );
    check(
        &|host| host.somaxconn = Some(128),
        "net.core.somaxconn",
        State::Tight,
        "sysctl -w net.core.somaxconn=1024",
    );
    check(
        &|host| host.tcp_max_syn_backlog = Some(128),
        "net.ipv4.tcp_max_syn_backlog",
        State::Tight,
        "net.ipv4.tcp_max_syn_backlog=1024",
    );
    check(
        &|host| host.port_range = Some([60_000, 60_999]),
        "net.ipv4.ip_local_port_range",
        State::TooSmall,
        "\"1024 65535\"",
    );
    check(
        &|host| host.tcp_mem = Some([1_000, 2_000, 3_000]),
        "net.ipv4.tcp_mem (third value)",
        State::Tight,
        "sysctl -w net.ipv4.tcp_mem=\"250000 375000 500000\"",
    );
    check(&|host| host.processors = 1, "processors", State::Tight, "--endpoint");
    check(
        &|host| host.memory_available = Some(4 << 30),
        "memory (available)",
        State::TooSmall,
        "fewer collectors",
    );
}

#[test]
fn a_small_run_fits_on_a_small_machine() {
    let host = Host {
        nofile_hard: Some(1_024),
        memory_available: Some(2 << 30),
        tcp_mem: Some([1_000, 2_000, 3_000]),
        ..large()
    };
    assert!(examine(&host, 600).fits);
    let bare = Host { processors: 2, nofile_hard: None, ..Host::default() };
    let diagnosis = examine(&bare, 600);
    assert!(diagnosis.fits, "what cannot be read is not too small: {diagnosis}");
    assert!(states(&diagnosis).iter().all(|(_, state)| *state == State::Unknown));
}

#[test]
fn speed_is_told_in_a_section_of_its_own_and_decides_nothing() {
    let mut diagnosis = examine(&large(), 500_000);
    let without = diagnosis.to_string();
    assert!(
        !without.contains("speed") && !serde_json::to_string(&diagnosis).unwrap().contains("speed")
    );
    let costs = Costs { connect_us: 45.0, register_us: 7.0, exchange_us: 58.0 };
    diagnosis.speed = Some(Speed::Floor(Floor::new(costs, 118.0, 4_000, 2)));
    let told = diagnosis.to_string();
    let expected = "\
speed      a connect costs this kernel at least 110 µs (118 in the median batch): 45 to connect and accept, 7 in epoll, 58 for five messages, both ends
           1.47 times the 75 µs of the machine where the figures of docs/performance.md were set; 2 processors cannot pass 18182 connects/s
";
    assert_eq!(told.replace(expected, ""), without, "{told}");
    let json = serde_json::to_value(&diagnosis).unwrap();
    assert_eq!((&json["fits"], &json["speed"]["connections"]), (&true.into(), &4_000.into()));
    diagnosis.speed = Some(Speed::Unknown { why: "no descriptors".to_owned() });
    assert!(diagnosis.fits);
    assert!(diagnosis.to_string().contains("\nspeed      not measured: no descriptors\nit fits\n"));
}

#[test]
fn a_proc_is_read_as_the_kernel_writes_it() {
    let proc = tempfile::TempDir::new().unwrap();
    let write = |path: &str, text: &str| {
        let path = proc.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("sys/fs/nr_open", "1048576\n");
    write("sys/fs/file-max", "9223372036854775807\n");
    write("sys/net/core/somaxconn", "4096\n");
    write("sys/net/ipv4/tcp_max_syn_backlog", "garbage\n");
    write("sys/net/ipv4/ip_local_port_range", "32768\t60999\n");
    write("sys/net/ipv4/tcp_mem", "287898\t383866\t575796\n");
    write("meminfo", "MemTotal:       24659392 kB\nMemAvailable:   23003068 kB\n");
    let host = Host::read_from(proc.path());
    let expected = Host {
        nofile_hard: None,
        nr_open: Some(1_048_576),
        file_max: Some(9_223_372_036_854_775_807),
        somaxconn: Some(4_096),
        tcp_max_syn_backlog: None,
        port_range: Some([32_768, 60_999]),
        tcp_mem: Some([287_898, 383_866, 575_796]),
        processors: 0,
        memory_available: Some(23_003_068 * 1_024),
    };
    assert_eq!(host, expected);
    assert_eq!(host.ports(), Some(28_232));
    assert_eq!(Host::read_from(&proc.path().join("nothing")), Host::default());
}
