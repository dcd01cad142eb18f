//! Two aggregators that propose the same.

use super::super::proposals::{ABORT, CATALOGUE, branches};
use super::super::support::git::Remote;
use super::*;

#[test]
fn two_aggregators_reach_one_verdict_and_leave_one_branch() {
    let certs = Certs::new(&["edge-1"]);
    let remote = Remote::with(|root| {
        copy(&demo(), root);
        impatient(root);
    });
    let url = remote.url();
    let source = ["--repo", &*url, "--fetch-interval", "1s"];
    let propose = [
        "--propose",
        "--catalogue",
        CATALOGUE,
        "--propose-as",
        "Tidegate <tidegate@example.com>",
        "--expect-replicas",
        "1",
    ];
    let both = [0, 1].map(|_| aggregator(&certs, &source, &propose));
    let one = replica(&certs, "edge-1", &source, &both.each_ref().map(|both| both.listen));
    connected(&one, 2.0);
    comes_to_be_offered(&one, 1..50, "bridge-a1", "candidate");
    fail(&one, 60, "bridge-a1");
    for aggregator in &both {
        comes_to_say(aggregator, "an abort", |told| told["verdict"]["kind"] == "abort");
        comes_to_say(aggregator, "its branch", |told| told["proposal"]["branch"] == ABORT);
    }
    let left = branches(&remote);
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!(left[0].0, ABORT);
    let outcome = |aggregator: &Gateway, outcome: &str| {
        let series = format!("tidegate_proposals_total{{kind=\"abort\",outcome=\"{outcome}\"}}");
        aggregator.metrics().get(&series).copied().unwrap_or(0.0)
    };
    let pushed: f64 = both.iter().map(|aggregator| outcome(aggregator, "pushed")).sum();
    assert_eq!(pushed, 1.0, "whoever comes second finds it there");
}
