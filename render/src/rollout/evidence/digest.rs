//! Short names of longer things, equal in every process: XXH3 over an encoding in which each text
//! is preceded by its length, so that no two things share one.

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::ErrorId;
use crate::estate::{Cohort, Halt};
use crate::snapshot::served::ServedRollout;

/// Names an error text; two texts that [`super::scrub`] makes equal should be scrubbed first.
pub fn error_id(text: &str) -> ErrorId {
    ErrorId(xxh3_64(text.as_bytes()) as u32)
}

/// Digest of a `halt` block's resolved values (decision 6): authored defaults are no change.
pub fn halt_digest(halt: &Halt) -> u64 {
    let Halt { abort_at_percent, dark_after, min_seen, retry_failed } = halt;
    let mut digest = Digest::new();
    digest.number(u64::from(*abort_at_percent));
    digest.number(dark_after.as_secs());
    digest.number(u64::from(dark_after.subsec_nanos()));
    digest.number(u64::from(*min_seen));
    digest.number(u64::from(*retry_failed));
    digest.0.digest()
}

/// Digest of who may be in the Cohort: every Cohort up to the active stage, and what buckets hash
/// over (decision 6). The order of enumerated values means nothing.
pub fn cohort_digest(rollout: &ServedRollout) -> u64 {
    let mut digest = Digest::new();
    digest.number(u64::from(rollout.stage));
    for stage in rollout.stages.iter().take((rollout.stage as usize).saturating_add(1)) {
        digest.cohort(&stage.cohort);
    }
    digest.texts(rollout.hash_attributes.iter());
    digest.texts(rollout.hash_salt.iter());
    digest.0.digest()
}

struct Digest(Xxh3);

impl Digest {
    fn new() -> Self {
        Self(Xxh3::new())
    }

    fn number(&mut self, number: u64) {
        self.0.update(&number.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.update(text.as_bytes());
    }

    fn texts<'t>(&mut self, texts: impl ExactSizeIterator<Item = &'t String>) {
        self.number(texts.len() as u64);
        texts.for_each(|text| self.text(text));
    }

    fn cohort(&mut self, cohort: &Cohort) {
        let Cohort { hosts, matches, percent } = cohort;
        self.number(u64::from(hosts.is_some()));
        if let Some(hosts) = hosts {
            self.text(&hosts.attribute);
            let mut values: Vec<&String> = hosts.values.iter().collect();
            values.sort_unstable();
            values.dedup();
            self.texts(values.into_iter());
        }
        self.number(matches.len() as u64);
        for (name, value) in matches {
            self.text(name);
            self.text(value);
        }
        self.number(u64::from(*percent));
    }
}
