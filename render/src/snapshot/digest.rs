//! What a snapshot was compiled from, as one hash: two replicas that agree on it serve every
//! collector alike (estate.md, decision 13).
//!
//! The encoding below is part of what replicas of different versions compare, so it outlives the
//! file format: it may grow only by fields that are left out while they hold their default.

use sha2::{Digest, Sha256};

use super::served::{Served, ServedRollout, ServedTier};

impl Served {
    /// SHA-256 over all that decides what a collector is offered and how a Rollout is judged.
    ///
    /// Neither the commit nor history is in it: two checkouts that hold the same files at
    /// different commits serve the same.
    pub fn digest(&self) -> [u8; 32] {
        let mut hash = Fields(Sha256::new());
        hash.text("tidegate served 1");
        hash.0.update(self.unmatched.raw_hash());
        hash.count(self.tiers.len());
        for (id, tier) in &self.tiers {
            hash.text(id);
            hash.tier(tier);
        }
        hash.count(self.rollouts.len());
        for rollout in self.rollouts.values() {
            hash.rollout(rollout);
        }
        hash.0.finalize().into()
    }
}

/// Feeds fields so that no two different sequences of them feed the same bytes.
struct Fields(Sha256);

impl Fields {
    fn number(&mut self, number: u64) {
        self.0.update(number.to_le_bytes());
    }

    fn count(&mut self, count: usize) {
        self.number(count as u64);
    }

    fn text(&mut self, text: &str) {
        self.count(text.len());
        self.0.update(text);
    }

    fn texts(&mut self, texts: &[String]) {
        self.count(texts.len());
        texts.iter().for_each(|text| self.text(text));
    }

    fn pairs(&mut self, pairs: &std::collections::BTreeMap<String, String>) {
        self.count(pairs.len());
        for (name, value) in pairs {
            self.text(name);
            self.text(value);
        }
    }

    fn tier(&mut self, tier: &ServedTier) {
        self.text(&tier.environment);
        self.text(&tier.blueprint);
        self.pairs(&tier.selector);
        self.0.update(tier.base.raw_hash());
        self.count(tier.next.iter().len());
        if let Some(next) = &tier.next {
            self.0.update(next.raw_hash());
        }
    }

    fn rollout(&mut self, rollout: &ServedRollout) {
        for text in [&rollout.id, &rollout.tier, &rollout.owner, &rollout.from, &rollout.to] {
            self.text(text);
        }
        self.number(rollout.stage.into());
        self.count(rollout.stages.len());
        for stage in &rollout.stages {
            let cohort = &stage.cohort;
            self.count(cohort.hosts.iter().len());
            if let Some(hosts) = &cohort.hosts {
                self.text(&hosts.attribute);
                self.texts(&hosts.values);
            }
            self.pairs(&cohort.matches);
            self.number(cohort.percent.into());
            self.0.update(stage.soak.as_nanos().to_le_bytes());
        }
        self.texts(&rollout.hash_attributes);
        self.count(rollout.hash_salt.iter().len());
        if let Some(salt) = &rollout.hash_salt {
            self.text(salt);
        }
        self.texts(&rollout.identity);
        self.number(rollout.hold.into());
        let halt = &rollout.halt;
        self.number(halt.abort_at_percent.into());
        self.0.update(halt.dark_after.as_nanos().to_le_bytes());
        self.number(halt.min_seen.into());
        self.number(halt.retry_failed.into());
    }
}
