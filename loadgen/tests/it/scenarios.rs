//! The shipped scenarios.

use std::path::Path;

use loadgen::rehearse::Scenario;

#[test]
fn every_shipped_scenario_can_be_read() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/scenarios");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        if let Err(error) = Scenario::parse(&text, &path.display().to_string()) {
            panic!("{error}");
        }
        count += 1;
    }
    assert!(count >= 20, "{count}");
}

#[test]
fn mistakes_are_told_with_their_place() {
    let good = include_str!("../../../fixtures/scenarios/blocked.toml");
    let check = |from: &str, to: &str, expected: &str| {
        assert!(good.contains(from), "{from}");
        let text = good.replacen(from, to, 1);
        let error = Scenario::parse(&text, "s.toml").unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    check("about = ", "abuot = ", "s.toml:1:1: unknown field `abuot`");
    check("soak = \"6s\"", "soak = \"soon\"", "\"soon\" is not a duration");
    check("rollout = \"data-flow/bridge-canary\"", "rollout = \"canary\"", "is not team/name");
    check("\"verdict blocked\"", "\"verdict blokced\"", "\"blokced\" is no verdict");
    check("group = \"members\"", "group = \"membres\"", "no collector of the group \"membres\"");
    check("count = 1 }", "count = 21 }", "\"members\" has fewer than 21 such collectors");
    check("fail = {", "slow = \"1s\"\nfail = {", "exactly one of fail, dark, slow");
    check("\"no brake\"", "\"soaks since never\"", "there is no step \"never\" before it");
}
