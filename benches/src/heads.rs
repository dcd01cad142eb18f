//! Heads of any size, of the shape that the figures are given for (PERFORMANCE.md, P3b): eight
//! distinct sets of selector keys.

use std::collections::BTreeMap;
use std::time::Duration;

use render::artefact::{Artefact, BlankArtefact};
use render::estate::{Cohort, Halt, Hosts};
use render::snapshot::served::{Served, ServedRollout, ServedStage, ServedTier};

/// Selector keys, in the order that key sets take them from.
pub const KEYS: [&str; 4] = ["tier", "region", "deployment.environment", "service.namespace"];

/// `tiers` Tiers with eight distinct key sets. Tier `n` selects `tier=t<n>` and more, and is staged
/// when `n` is even: one host by name, a quarter by hash.
///
/// # Errors
///
/// Never in practice: no artefact in here is blank.
pub fn served(tiers: usize) -> Result<Served, BlankArtefact> {
    let mut served = Served {
        commit: "0123456789abcdef".into(),
        rendered_at: None,
        tiers: BTreeMap::new(),
        rollouts: BTreeMap::new(),
        unmatched: artefact("unmatched", 0)?,
    };
    for n in 0..tiers {
        let id: Box<str> = format!("team-{:02}/tier-{n:05}", n % 50).into();
        let selector =
            KEYS.iter().enumerate().filter(|(key, _)| *key == 0 || ((n % 8) >> (key - 1)) & 1 == 1);
        let selector = selector.map(|(key, name)| (String::from(*name), value(key, n)));
        let staged = is_staged(n);
        let tier = ServedTier {
            environment: "production".into(),
            blueprint: "team/blueprint@1".into(),
            selector: selector.collect(),
            base: artefact("base", n)?,
            next: if staged { Some(artefact("next", n)?) } else { None },
        };
        served.tiers.insert(id.clone(), tier);
        if staged {
            served.rollouts.insert(id.clone(), rollout(id));
        }
    }
    Ok(served)
}

/// Whether Tier `n` is under a Rollout.
pub fn is_staged(n: usize) -> bool {
    n.is_multiple_of(2)
}

/// What a collector of Tier `n` reports under `KEYS[key]`.
pub fn value(key: usize, n: usize) -> String {
    match key {
        0 => format!("t{n}"),
        1 => "eu-central-1".into(),
        2 => "production".into(),
        _ => "payments".into(),
    }
}

fn rollout(tier: Box<str>) -> ServedRollout {
    let hosts = Hosts { attribute: "host.name".into(), values: vec!["canary-1".into()] };
    let cohorts = [
        Cohort { hosts: Some(hosts), ..Cohort::default() },
        Cohort { percent: 25, ..Cohort::default() },
    ];
    let stages = cohorts.map(|cohort| ServedStage { cohort, soak: Duration::from_secs(3_600) });
    ServedRollout {
        id: tier.clone(),
        tier,
        owner: "team".into(),
        from: "team/blueprint@1".into(),
        to: "team/blueprint@2".into(),
        stage: 1,
        stages: stages.into(),
        hash_attributes: vec!["host.name".into()],
        hash_salt: None,
        identity: Vec::new(),
        hold: false,
        halt: Halt::default(),
        stage_started_ms: None,
        origin: None,
    }
}

/// About 4 kB, different for each name and number.
fn artefact(name: &str, n: usize) -> Result<Artefact, BlankArtefact> {
    let mut text = format!("receivers:\n  otlp/{name}-{n}:\n");
    for line in 0..80 {
        text.push_str(&format!("    # setting {line:03} of a configuration of usual size\n"));
    }
    Artefact::new(text.into_bytes())
}
