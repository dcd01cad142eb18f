//! `gateway certs init`: what it writes is what a gateway and a collector take.

use std::path::Path;

use gateway::cli::Cli;
use serde_json::Value;

use super::support::estate::Estate;
use super::support::gateway::{Gateway, run};
use super::support::opamp;
use super::support::pki::connect;

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn a_gateway_serves_and_a_collector_connects_with_what_it_made() {
    let (estate, dir) = (Estate::new(), tempfile::tempdir().unwrap());
    let dir = dir.path().join("certs");
    let shown = dir.to_str().unwrap();
    let made = run(&["certs", "init", shown, "--collector", "bridge-a1,bridge-a2"]);
    assert_eq!((made.code, &*made.err), (Some(0), ""));
    assert!(made.out.contains("/collector-bridge-a1.crt  collector: bridge-a1\n"), "{}", made.out);

    let file = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    let gateway = Gateway::serve(&[
        "--estate",
        estate.path().to_str().unwrap(),
        "--tls-cert",
        &file("server.crt"),
        "--tls-key",
        &file("server.key"),
        "--client-ca",
        &file("ca.crt"),
    ]);
    let ca = text(&dir.join("ca.crt"));
    let offered = |who: &str| {
        let certificate = (file(&format!("{who}.crt")), file(&format!("{who}.key")));
        let stream = connect(gateway.listen, &ca, Some(&certificate), &[b"http/1.1"])?;
        opamp::offered_over(stream, 1, "web")
    };
    assert!(offered("collector-bridge-a1").unwrap().contains("text: first"));
    assert!(offered("collector-bridge-a2").unwrap().contains("text: first"));
    assert!(offered("server").is_err(), "no certificate of a client");
    assert!(
        connect(gateway.listen, &ca, None, &[])
            .and_then(|stream| opamp::offered_over(stream, 1, "web"))
            .is_err()
    );
}

#[test]
fn what_is_there_stays_unless_it_is_forced_away() {
    let dir = tempfile::tempdir().unwrap();
    let shown = dir.path().to_str().unwrap();
    assert_eq!(run(&["certs", "init", shown]).code, Some(0));
    let before = text(&dir.path().join("ca.crt"));
    let again = run(&["certs", "init", shown]);
    assert_eq!(again.code, Some(1));
    assert!(again.err.contains("ca.crt is there already; --force replaces it"), "{}", again.err);
    assert_eq!(again.out, "");
    assert_eq!(text(&dir.path().join("ca.crt")), before);
    assert_eq!(run(&["certs", "init", shown, "--force"]).code, Some(0));
    assert_ne!(text(&dir.path().join("ca.crt")), before);
}

#[test]
fn mistakes_are_usage_errors_and_write_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let shown = dir.path().to_str().unwrap();
    for (arguments, text) in [
        (&["--days", "0"][..], "--days"),
        (&["--days", "4000"], "--days"),
        (&["--name", "a b"], "neither a DNS name"),
        (&["--replica", "../../etc/passwd"], "is not a name such as edge-1"),
        (&["--replica", "10.0.0.1"], "is not a name such as edge-1"),
        (&["--replica", "a,b,a"], "replica-a.crt is asked for twice"),
    ] {
        let ended = run(&[&["certs", "init", shown][..], arguments].concat());
        assert_eq!(ended.code, Some(2), "{arguments:?}: {}", ended.err);
        assert!(ended.err.contains(text), "{arguments:?}: {}", ended.err);
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    let denied = run(&["certs", "init", "/proc/certs"]);
    assert_eq!(denied.code, Some(1));
    assert!(denied.err.contains("cannot write /proc/certs: "), "{}", denied.err);
}

#[test]
fn its_answer_is_also_for_programs_and_its_commands_are_real() {
    let dir = tempfile::tempdir().unwrap();
    let odd = dir.path().join("a b'c");
    let line = ["certs", "init", odd.to_str().unwrap(), "--replica", "edge-1", "--aggregator"];
    let made = run(&[&line[..], &["-o", "json"]].concat());
    assert_eq!((made.code, &*made.err), (Some(0), ""));
    let told: Value = serde_json::from_str(&made.out).unwrap();
    let files = told["files"].as_array().unwrap();
    assert_eq!(files.len(), 12, "{told:#}");
    for file in files {
        let (path, kind) = (file["path"].as_str().unwrap(), file["kind"].as_str().unwrap());
        let begin = if kind == "key" { "-----BEGIN PRIVATE" } else { "-----BEGIN CERTIFICATE" };
        assert!(text(Path::new(path)).starts_with(begin), "{path}");
    }
    assert!(told["not_after"].as_str().unwrap().ends_with('Z'));
    let mut roles = 0;
    for next in told["next"].as_array().unwrap() {
        let command = next["command"].as_str().unwrap();
        let Some(arguments) = command.strip_prefix("gateway ") else { continue };
        let words = std::process::Command::new("sh")
            .args(["-c", &format!("printf '%s\\n' gateway {arguments}")])
            .output()
            .unwrap();
        let words = String::from_utf8(words.stdout).unwrap();
        let parsed = Cli::read(words.lines().map(Into::into));
        assert!(parsed.is_ok(), "{command}: {}", parsed.unwrap_err());
        for word in words.lines().filter(|word| word.contains("a b'c")) {
            assert!(Path::new(word).is_file(), "{word}");
        }
        roles += 1;
    }
    assert_eq!(roles, 3, "serve, aggregate, serve with an uplink: {told:#}");
}
