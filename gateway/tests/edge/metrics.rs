//! The registry, its documentation, and what a scraper makes of it.

use std::collections::BTreeSet;
use std::path::Path;
use std::{env, fs};

use gateway::metrics::labels::{Closed, FetchOutcome, Transport};
use gateway::metrics::names::{self, Kind};
use gateway::metrics::{Metrics, tier_label};

use super::support::exposition;

#[test]
fn the_documentation_is_that_of_the_names() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/metrics.md");
    let fresh = names::documentation();
    if env::var_os("UPDATE_GEN").is_some() {
        fs::write(&page, &fresh).unwrap();
    }
    let stale = fs::read_to_string(&page).unwrap_or_default() != fresh;
    assert!(!stale, "docs/metrics.md is stale; run this test with UPDATE_GEN=1");
}

#[test]
fn names_carry_the_prefix_the_unit_and_the_right_ending() {
    let mut seen = BTreeSet::new();
    for definition in names::ALL {
        let name = definition.name;
        assert!(seen.insert(name), "{name} twice");
        // What any process has goes by the names that every dashboard knows.
        assert!(name.starts_with("tidegate_") || name.starts_with("process_"), "{name}");
        assert_eq!(name.ends_with("_total"), definition.kind == Kind::Counter, "{name}");
        assert!(definition.kind != Kind::Histogram || name.ends_with("_seconds"), "{name}");
        assert!(definition.help.ends_with('.') && !definition.help.contains(['\n', '|']), "{name}");
    }
}

#[test]
fn a_scrape_parses_and_holds_nothing_undocumented() {
    let metrics = Metrics::new();
    metrics.connects.get(Transport::Ws).increment(3);
    metrics.disconnects.get(Transport::Http).get(Closed::Expired).increment(1);
    metrics.offers.cell(&["a/b", "", "none"]).add(2);
    metrics.bad_messages.count(&["tru\"nc\\ated\n"]);
    metrics.collectors.tally(&["a/b", "none", "applied"]).add(1.0);
    metrics.collectors.tally(&["a/c", "none", "applied"]).add(0.0);
    metrics.source_fetch.get(FetchOutcome::Loaded).record(std::time::Duration::from_millis(30));

    let scrape = exposition::parse(&metrics.render());
    assert_eq!(scrape["tidegate_connects_total{transport=\"ws\"}"], 3.0);
    assert_eq!(scrape["tidegate_connects_total{transport=\"http\"}"], 0.0);
    assert_eq!(scrape["tidegate_disconnects_total{transport=\"http\",reason=\"expired\"}"], 1.0);
    assert_eq!(scrape["tidegate_offers_total{tier=\"a/b\",rollout=\"\",arm=\"none\"}"], 2.0);
    assert_eq!(scrape["tidegate_bad_messages_total{reason=\"tru\\\"nc\\\\ated\\n\"}"], 1.0);
    let bucket =
        |le| format!("tidegate_source_fetch_seconds_bucket{{outcome=\"loaded\",le=\"{le}\"}}");
    assert_eq!(scrape[&bucket("0.01")], 0.0);
    assert_eq!(scrape[&bucket("0.05")], 1.0);
    assert_eq!(scrape[&bucket("+Inf")], 1.0);
    let populations: Vec<_> =
        scrape.keys().filter(|series| series.starts_with("tidegate_collectors")).collect();
    assert_eq!(populations.len(), 1, "cells at zero are left out: {populations:?}");
}

#[test]
fn series_of_a_head_go_with_it() {
    let metrics = Metrics::new();
    metrics.rollout_stage.replace([(&["a/one"][..], 1.0), (&["a/two"][..], 0.0)]);
    metrics.rollout_stage.replace([(&["a/two"][..], 1.0)]);
    metrics.offers.cell(&["t", "a/one", "to"]).add(1);
    metrics.offers.retain(|labels| &*labels[1] != "a/one");
    let scrape = exposition::parse(&metrics.render());
    assert!(!scrape.keys().any(|series| series.contains("a/one")), "{scrape:?}");
    assert_eq!(scrape["tidegate_rollout_stage{rollout=\"a/two\"}"], 1.0);
}

#[test]
fn many_tiers_share_a_label() {
    assert_eq!(tier_label(499, "a/b"), "a/b");
    assert_eq!(tier_label(500, "a/b"), "_other");
}
