//! `--estate`.

use std::fs;

use gateway::source::SourceError;
use gateway::source::dir::DirSource;
use render::artefact::Artefact;

use super::support::estate::{Estate, RENDERED_AT, artefact};
use super::support::gateway::Gateway;
use super::support::git::git;
use super::support::{opamp, until};

const WEB: &str = "rendered/shop/web.yaml";

#[test]
fn a_change_is_served_and_a_broken_head_is_not() {
    let estate = Estate::new();
    let dir = estate.path().to_str().unwrap();
    let gateway = Gateway::serve(&["--estate", dir, "--fetch-interval", "50ms"]);
    let served = |text: &str| {
        let offered = opamp::offered(gateway.listen, 1, "web");
        offered.contains(&format!("text: {text}\n")).then_some(())
    };
    served("first").unwrap();

    fs::write(estate.file(WEB), artefact("web", "second")).unwrap();
    until("the second version", || served("second"));

    fs::remove_file(estate.file("rendered/_estate/unmatched.yaml")).unwrap();
    fs::write(estate.file(WEB), artefact("web", "third")).unwrap();
    let failure = gateway.fails("invalid");
    let detail = failure["detail"].as_str().unwrap();
    assert!(detail.contains("rendered/_estate/unmatched.yaml is missing"), "{detail}");
    served("second").unwrap();
    let ready = gateway.get("/readyz");
    assert_eq!(ready.status, 200, "the old head is as good as it was");
    let metrics = gateway.metrics();
    assert!(metrics["tidegate_head_refused_total{reason=\"invalid\"}"] >= 1.0);
    assert!(metrics["tidegate_source_fetch_seconds_count{outcome=\"failed\"}"] >= 1.0);
    let lines = |log: &str| log.matches("the head in force stays").count();
    until("more than one failed look", || {
        let failed = gateway.metrics()["tidegate_head_refused_total{reason=\"invalid\"}"];
        (failed >= 3.0).then_some(())
    });
    assert_eq!(lines(&gateway.log()), 1, "one fault is one line: {}", gateway.log());

    let unmatched = fs::read_to_string(Estate::new().file("rendered/_estate/unmatched.yaml"));
    fs::write(estate.file("rendered/_estate/unmatched.yaml"), unmatched.unwrap()).unwrap();
    gateway.heals();
    until("the third version", || served("third"));
    gateway.logged("the source can be read again");
}

#[test]
fn a_collector_that_has_what_the_next_head_says_makes_the_source_be_looked_at_at_once() {
    let estate = Estate::new();
    let dir = estate.path().to_str().unwrap();
    let gateway = Gateway::serve(&["--estate", dir, "--fetch-interval", "1h"]);
    assert!(opamp::offered(gateway.listen, 1, "web").contains("text: first\n"));

    let second = artefact("web", "second");
    fs::write(estate.file(WEB), &second).unwrap();
    let hash = Artefact::new(second.into_bytes()).unwrap().content_hash().to_hex().to_vec();
    let coming = opamp::applied(2, &[("service.name", "web")], hash);
    let reply = opamp::reply(&opamp::request(coming).send(gateway.listen));
    assert!(reply.remote_config.is_none(), "it would be taken back");
    until("the second version", || {
        opamp::offered(gateway.listen, 3, "web").contains("text: second\n").then_some(())
    });

    let foreign = opamp::applied(4, &[("service.name", "web")], b"0123456789abcdef".repeat(4));
    let held = || opamp::reply(&opamp::request(foreign.clone()).send(gateway.listen));
    assert!(held().remote_config.is_none());
    until("an offer, since nothing newer was found", || held().remote_config);
    let looks = |outcome: &str| {
        gateway.metrics()[&format!("tidegate_early_looks_total{{outcome=\"{outcome}\"}}")]
    };
    assert_eq!((looks("newer"), looks("nothing")), (1.0, 1.0));
}

#[test]
fn a_stale_artefact_is_refused_with_a_way_out() {
    let estate = Estate::new();
    let dir = estate.path().to_str().unwrap();
    let gateway = Gateway::serve(&["--estate", dir, "--fetch-interval", "50ms"]);
    let tier = estate.file("teams/shop/tiers/web.yaml");
    let authored = fs::read_to_string(&tier).unwrap();
    fs::write(&tier, authored.replace("shop/web@1", "shop/web@2")).unwrap();
    let failure = gateway.fails("invalid");
    let detail = failure["detail"].as_str().unwrap();
    assert!(detail.contains("rendered/shop/web.yaml is stale"), "{detail}");
    assert!(detail.contains("render --estate"), "{detail}");
    assert!(opamp::offered(gateway.listen, 1, "web").contains("text: first"));
}

#[test]
fn a_directory_that_is_being_written_is_not_believed() {
    let estate = Estate::new();
    let mut versions = 0..;
    let mut source = DirSource::new(estate.path().to_owned());
    let torn = source.look_pausing(|| {
        let version = versions.next().unwrap_or_default().to_string();
        fs::write(estate.file(WEB), artefact("web", &version)).unwrap();
    });
    assert!(matches!(torn, Err(SourceError::Changing { .. })), "{torn:?}");

    let settled = source.look().unwrap().unwrap();
    let last = fs::read(estate.file(WEB)).unwrap();
    assert_eq!(settled.served.tiers["shop/web"].base.bytes()[..], last[..]);
    assert!(source.look().unwrap().is_none(), "nothing changed since");
}

#[test]
fn the_commit_is_what_git_says_of_this_very_directory() {
    let estate = Estate::new();
    let commit = |source: &mut DirSource| {
        source.look().unwrap().map(|loaded| (loaded.served.commit, loaded.commit_unix_ms))
    };
    let mut source = DirSource::new(estate.path().to_owned());
    assert_eq!(commit(&mut source), Some((RENDERED_AT.into(), None)));

    git(estate.path(), &["init", "--quiet"]);
    git(estate.path(), &["add", "."]);
    git(estate.path(), &["commit", "--quiet", "-m", "one"]);
    let head = git(estate.path(), &["rev-parse", "HEAD"]);
    let (told, time) = commit(&mut source).unwrap();
    assert_eq!(&*told, head.trim());
    assert!(time.is_some());

    git(estate.path(), &["commit", "--quiet", "--allow-empty", "-m", "two"]);
    let head = git(estate.path(), &["rev-parse", "HEAD"]);
    assert_eq!(&*commit(&mut source).unwrap().0, head.trim(), "a commit alone is a change");

    let inner = estate.file("inner");
    super::support::estate::write(&inner);
    let mut source = DirSource::new(inner);
    assert_eq!(&*commit(&mut source).unwrap().0, RENDERED_AT, "an enclosing repository is none");
}
