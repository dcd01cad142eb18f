//! What the stage sees: reports, branches, bundles, collectors.

use std::sync::atomic::Ordering;
use std::time::Duration;

use render::rollout::report::RolloutReport;

use super::super::Trouble;
use super::super::follow::News;
use super::{Stage, Tip, connected};
use crate::model::short;

impl Stage<'_> {
    /// Waits until there is news, no longer than that.
    pub(super) async fn wait(&mut self, longest: Duration) {
        if let Ok(Some(news)) = tokio::time::timeout(longest, self.news.recv()).await {
            self.hear(news);
        }
    }

    /// Looks at everything that may have changed.
    pub(super) async fn look(&mut self) -> Result<(), Trouble> {
        while let Ok(news) = self.news.try_recv() {
            self.hear(news);
        }
        if let Some(text) = self.known.garbled.take() {
            return Err(Trouble::Deviates(text));
        }
        let now = self.clock.now();
        for (_, who) in self.returns.extract_if(.., |(at, _)| *at <= now).collect::<Vec<_>>() {
            self.note(format!("{} collectors are back", who.len()));
            self.bring_back(&who);
        }
        for number in 0..self.gateways.len() {
            let ended = self.gateways.get_mut(number).and_then(Option::as_mut);
            if let Some(how) = ended.and_then(super::Process::ended) {
                return Err(Trouble::Deviates(format!(
                    "gateway {number} ended by itself: {how}: {}",
                    self.log.text().trim()
                )));
            }
        }
        self.known.failures = self.live(|live| live.failures.load(Ordering::Relaxed));
        self.known.links = self.live(|live| live.connected.load(Ordering::Relaxed));
        self.known.connected = connected(self);
        self.known.log = self.log.text();
        self.look_at_branches().await
    }

    async fn look_at_branches(&mut self) -> Result<(), Trouble> {
        let Some(branches) = self.repo.branches() else { return Ok(()) };
        for (name, tip) in &branches {
            if self.known.branches.get(name) == Some(tip) {
                continue;
            }
            let place = tip.get(..8).unwrap_or(tip);
            self.note(format!("branch {name} is at {place}"));
            self.newest.insert(name.clone(), tip.clone());
            if self.tips.contains_key(tip) {
                continue;
            }
            let diff = self.repo.diff(tip).await?;
            if let Some(bundle) = self.repo.bundle(tip).await?
                && diff.files.iter().any(|file| file.contains("rollouts-evidence/"))
            {
                let file = self.root.join(format!("bundle-{name}-{place}.json"));
                std::fs::write(&file, bundle)
                    .map_err(|error| Trouble::Cannot(format!("{}: {error}", file.display())))?;
                self.bundles.push(file);
            }
            self.tips.insert(tip.clone(), Tip { branch: name.clone(), diff });
        }
        for name in self.known.branches.keys().cloned().collect::<Vec<_>>() {
            if !branches.contains_key(&name) {
                self.note(format!("branch {name} is gone"));
            }
        }
        self.known.branches = branches;
        Ok(())
    }

    fn hear(&mut self, news: News) {
        match news {
            News::Report(report) => self.hear_report(*report),
            News::Gone if self.known.gone => {}
            News::Gone => {
                self.known.gone = true;
                self.note("the Rollout is not at head".to_owned());
            }
            News::Garbled(text) => self.known.garbled = Some(text),
        }
    }

    fn hear_report(&mut self, report: RolloutReport) {
        self.known.gone = false;
        let now = self.clock.now();
        let candidate = short(report.candidate.as_bytes());
        let braked = report.braked_since_ms.is_some();
        self.running.shared().heads.set_brake(candidate, braked, now);
        if self.verdicts.last() != Some(&report.verdict.kind) {
            self.verdicts.push(report.verdict.kind);
        }
        self.known.report = Some(report);
        let state = self.state();
        if state != self.last_state {
            self.note(state.clone());
            self.last_state = state;
        }
    }

    /// The Rollout in one line.
    pub(super) fn state(&self) -> String {
        let Some(report) = self.known.report.as_ref().filter(|_| !self.known.gone) else {
            return "no report".to_owned();
        };
        let mut text = format!(
            "stage {}: {}, {}",
            report.terms.stage,
            report.verdict.kind.label(),
            report.verdict.why
        );
        let counts = report.tally.stages.iter().fold([0; 7], |sum, counts| {
            let all = [
                counts.seen,
                counts.to,
                counts.taking,
                counts.from,
                counts.failed,
                counts.dark,
                counts.unobserved,
            ];
            std::array::from_fn(|at| sum[at] + all[at])
        });
        let names = ["seen", "to", "taking", "from", "failed", "dark", "unobserved"];
        for (name, count) in names.into_iter().zip(counts).filter(|(_, count)| *count > 0) {
            text.push_str(&format!(", {name} {count}"));
        }
        if report.braked_since_ms.is_some() {
            text.push_str(", brake on");
        }
        if let Some(proposal) = &report.proposal {
            text.push_str(&format!(", {} {}", proposal.branch, proposal.state));
            if let Some(error) = &proposal.error {
                text.push_str(&format!(" ({error})"));
            }
        }
        text
    }
}
