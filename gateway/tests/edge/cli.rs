//! Flags, exit codes and the texts that go with them.

use std::net::TcpListener;

use clap::CommandFactory;
use gateway::cli::Cli;
use rustix::process::Signal;

use super::support::estate::{Estate, RENDERED_AT};
use super::support::gateway::{Gateway, command, run, run_command};
use super::support::{opamp, until};

#[track_caller]
fn check(arguments: &[&str], code: i32, text: &str) {
    let ended = run(arguments);
    assert_eq!(ended.code, Some(code), "{arguments:?}: {}", ended.err);
    assert!(ended.err.contains(text), "{arguments:?}: {}", ended.err);
    assert_eq!(ended.out, "", "nothing is served: {}", ended.out);
}

#[test]
fn exactly_one_source_is_a_matter_of_usage() {
    check(&["serve"], 2, "--estate <DIR>|--repo <URL>|--snapshot <FILE>");
    check(&["serve", "--estate", "a", "--repo", "b"], 2, "cannot be used with");
    check(&["serve", "--estate", "a", "--snapshot", "b"], 2, "cannot be used with");
    for (flag, source) in [("--ref", "--estate"), ("--path", "--snapshot"), ("--cache", "--estate")]
    {
        check(&["serve", source, "a", flag, "x"], 2, "cannot be used with");
    }
    check(&["serve", "--repo", "/a", "--snapshot-key", "x"], 2, "cannot be used with");
    check(&["serve", "--ref", "main"], 2, "--repo <URL>");
    check(&["serve", "--repo=-upload"], 2, "begins with '-'");
    check(&["serve", "--repo", "ext::sh -c true"], 2, "another protocol");
    check(&["serve", "--repo", "/x", "--ref", "a:b"], 2, "not a branch");
    check(&["serve", "--repo", "/x", "--path", "../y"], 2, "not a folder inside");
}

#[test]
fn an_interval_has_a_unit_and_is_longer_than_zero() {
    for bad in ["0", "5", "0s", "-1s", "-30s", "1.5s", "soon"] {
        check(&["serve", "--estate", "a", "--fetch-interval", bad], 2, "--fetch-interval");
    }
    check(&["serve", "-estate", "a", "-fetch-interval", "-1s"], 2, "is negative");
}

#[test]
fn sizes_and_rates_are_checked() {
    let serve = |flag, value| ["serve", "--estate", "a", flag, value];
    check(&serve("--push-rate", "0"), 2, "--push-rate");
    check(&serve("--max-message-bytes", "65MiB"), 2, "--max-message-bytes: 68157440 is not within");
    check(&serve("--max-bytes-in-flight", "1MiB"), 2, "less than one message may have");
    check(&serve("--instance-label", "a b"), 2, "--instance-label");
    check(&serve("--tls-cert", "a"), 2, "--tls-key");
    check(&serve("--log", "gateway=loud"), 2, "--log");
    check(&serve("--no-such-flag", "a"), 2, "--no-such-flag");
}

#[test]
fn an_address_that_cannot_be_listened_on_ends_it() {
    let estate = Estate::new();
    let estate = estate.path().to_str().unwrap();
    check(&["serve", "--estate", estate, "--listen", "nowhere"], 1, "--listen 'nowhere'");
    check(&["serve", "--estate", estate, "--admin", "127.0.0.1"], 1, "--admin '127.0.0.1'");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap().to_string();
    check(
        &["serve", "--estate", estate, "--listen", &addr],
        1,
        &format!("cannot listen on --listen {addr}: Address already in use"),
    );
}

#[test]
fn a_store_belongs_to_one_process() {
    let (estate, dir) = (Estate::new(), tempfile::tempdir().unwrap());
    let estate = estate.path().to_str().unwrap();
    let file = dir.path().join("evidence.redb");
    let file = file.to_str().unwrap();
    let first = Gateway::serve(&["--estate", estate, "--store", file]);
    let serve = |file| ["serve", "--estate", estate, "--store", file];
    check(&serve(file), 1, &format!("cannot use --store {file}: another process has it open"));
    check(&serve("/nonexistent/evidence.redb"), 1, "there is no folder /nonexistent");
    drop(first);
}

#[test]
fn what_is_no_estate_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let name = dir.path().to_str().unwrap();
    check(&["serve", "--estate", name], 1, &format!("{name} holds no estate"));
    check(&["serve", "--estate", "/nonexistent/estate"], 1, "/nonexistent/estate");
    check(&["serve", "--snapshot", "/nonexistent/file"], 1, "/nonexistent/file");
    let missing = format!("file://{name}/missing.git");
    check(&["serve", "--repo", &missing], 1, "git fetch failed: ");
    check(&["serve", "--repo", &missing], 1, "missing.git");
}

#[test]
fn it_does_not_listen_openly_by_accident() {
    let estate = Estate::new();
    let estate = estate.path().to_str().unwrap();
    let open = ["serve", "--estate", estate, "--listen", "0.0.0.0:0"];
    let check = |more: &[&str], text: &str| check(&[&open[..], more].concat(), 1, text);
    check(&[], "not loopback, without TLS and a credential. Either add --tls-cert");
    check(&[], "--insecure");
    check(&["--token-file", "t"], "without TLS. Either add --tls-cert");
    check(&["--tls-cert", "c", "--tls-key", "k"], "without a credential. Either add --token-file");
    check(
        &["--admin", "0.0.0.0:0"],
        "refusing to listen on 0.0.0.0:0 for operators, which is not loopback, without a token",
    );
}

#[test]
fn every_flag_of_a_role_is_documented_and_has_its_variable() {
    let cli = Cli::command();
    let files = ["tls-cert", "tls-key", "client-ca", "uplink-ca", "uplink-cert", "uplink-key"];
    let roles = ["serve", "aggregate"].map(|role| cli.find_subcommand(role).unwrap());
    let flags = roles.into_iter().flat_map(|role| role.get_arguments());
    for flag in flags.filter(|flag| flag.get_id() != "help") {
        let long = flag.get_long().unwrap();
        let variable = format!("TIDEGATE_{}", long.to_uppercase().replace('-', "_"));
        assert_eq!(flag.get_env().unwrap().to_str(), Some(&*variable), "--{long}");
        let help = flag.get_help().unwrap().to_string();
        let takes_value = flag.get_action().takes_values();
        let tells_default = !flag.get_default_values().is_empty()
            || help.contains("[default: ")
            || ["estate", "repo", "snapshot"].contains(&long)
            || long.ends_with("-file")
            || ["admin-host", "propose-as", "catalogue"].contains(&long)
            || files.contains(&long);
        assert!(help.len() > 20 && (!takes_value || tells_default), "--{long}: {help}");
    }
}

#[test]
fn it_says_what_it_serves_and_where() {
    let estate = Estate::new();
    let dir = estate.path().to_str().unwrap();
    let mut gateway = Gateway::serve(&["-estate", dir, "-instance-label=blue"]);
    assert_eq!(
        gateway.announced,
        [
            format!("serving   estate {dir}"),
            format!("head      commit {}, Tiers: 2, Rollouts: 0", &RENDERED_AT[..12]),
            format!("listen    ws://{0}/v1/opamp and http://{0}/v1/opamp", gateway.listen),
            format!("admin     http://{}/", gateway.admin),
            format!("metrics   http://{}/metrics", gateway.admin),
        ]
    );
    assert!(gateway.listen.port() != 0 && gateway.admin.port() != 0);
    let answer = opamp::request(opamp::report(1, &[("service.name", "web")])).send(gateway.listen);
    let header = answer.head.to_ascii_lowercase();
    assert!(header.contains("\r\ntidegate-instance: blue/0.1.0/"), "{header}");

    let limits =
        std::fs::read_to_string(format!("/proc/{}/limits", gateway.pid().as_raw_nonzero()))
            .unwrap();
    let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let words: Vec<&str> = files.split_whitespace().collect();
    assert_eq!(words[3], words[4], "the soft limit is the hard one: {files}");

    gateway.signal(Signal::INT);
    assert_eq!(gateway.wait().code(), Some(0));
}

#[test]
fn the_environment_stands_in_for_flags() {
    let estate = Estate::new();
    let mut command = command(&["serve", "--listen", "127.0.0.1:0"]);
    command.env("TIDEGATE_ESTATE", estate.path()).env("TIDEGATE_LOG_FORMAT", "json");
    let gateway = Gateway::start(command, &[]);
    gateway.logged("a new head is in force");
    for line in gateway.log().lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["level"], "INFO", "{line}");
    }
}

#[test]
fn a_wrong_value_in_the_environment_is_no_default() {
    let mut command = command(&["serve", "--estate", "a"]);
    command.env("TIDEGATE_FETCH_INTERVAL", "0s");
    let ended = run_command(command);
    assert_eq!(ended.code, Some(2), "{}", ended.err);
}

#[test]
fn the_first_signal_drains_and_the_second_ends_it_at_once() {
    let estate = Estate::new();
    let dir = estate.path().to_str().unwrap();
    let command = command(&["serve", "--listen", "127.0.0.1:0", "--drain-delay", "1h"]);
    let mut gateway = Gateway::start(command, &["--estate", dir]);
    assert_eq!(gateway.get("/readyz").status, 200);

    gateway.signal(Signal::TERM);
    let answer = until("readiness to fail", || {
        Some(gateway.get("/readyz")).filter(|answer| answer.status == 503)
    });
    assert!(answer.text().contains("\"phase\":\"leaving\""), "{answer:?}");
    assert_eq!(gateway.get("/healthz").status, 200, "it lives");
    let still = opamp::offered(gateway.listen, 1, "web");
    assert!(still.contains("text: first"), "who comes all the same is served");

    gateway.signal(Signal::TERM);
    assert_eq!(gateway.wait().code(), Some(130));
}

#[test]
fn help_and_version_are_no_errors() {
    for arguments in [&["--help"][..], &["serve", "--help"], &["-help"], &["--version"]] {
        assert_eq!(run(arguments).code, Some(0), "{arguments:?}");
    }
    assert_eq!(run(&[]).code, Some(2));
}
