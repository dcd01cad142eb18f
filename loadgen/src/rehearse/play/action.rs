//! What steps do.

use std::time::Duration;

use super::super::repo::{Signature, edit, remove, write};
use super::super::scenario::{Action, Change, Cut, Merge, Plant, Reach, Who};
use super::super::{Timeline, Trouble, estate};
use super::{Process, Stage, arguments};
use crate::clock::{Clock, micros};

impl Stage<'_> {
    /// Does it, and tells what it committed, if it did.
    pub(super) async fn act(
        &mut self,
        action: &Action,
        title: &str,
    ) -> Result<Option<String>, Trouble> {
        match action {
            Action::Commit(change) => self.commit(change, title).await.map(Some),
            Action::Merge(merge) => self.merge(merge).await.map(Some),
            Action::CommitOnBranch(change) => {
                let (branch, desk) = (&change.branch, self.repo.desk().to_owned());
                self.repo.update_to_branch(branch).await?;
                edit(&desk, &change.edit)?;
                for (file, text) in &change.write {
                    write(&desk, file, text)?;
                }
                let by = Signature::human(Clock::unix_ms());
                let commit = self.repo.commit("A human's own change", by).await?;
                self.repo.push(&self.repo.branch(branch)).await?;
                self.note(format!("a human commits on {branch}"));
                Ok(Some(commit))
            }
            Action::Plant(plant) => self.plant(plant).await.map(Some),
            Action::DeleteBranch(name) => {
                self.repo.delete(name).await?;
                self.note(format!("{name} is deleted on the remote"));
                Ok(None)
            }
            Action::Remote(reach) => {
                self.repo.set_reachable(*reach == Reach::Up)?;
                let how = if *reach == Reach::Up { "there again" } else { "away" };
                self.note(format!("the remote is {how}"));
                Ok(None)
            }
            Action::Kill(number) => {
                self.take(*number)?.kill().await?;
                self.note(format!("gateway {number} is killed"));
                self.connect().await.map(|()| None)
            }
            Action::Drain(number) => {
                let gateway = self.take(*number)?;
                self.note(format!("gateway {number} is drained"));
                gateway.drain().await?;
                self.connect().await.map(|()| None)
            }
            Action::Start(number) => self.start(*number).await.map(|()| None),
            Action::Cut(cut) => self.cut(cut).map(|()| None),
            Action::Return(who) => {
                let who = self.members(who)?;
                self.note(format!("{} collectors return", who.len()));
                self.bring_back(&who);
                Ok(None)
            }
            Action::Restart(who) => {
                let who = self.members(who)?;
                self.note(format!("{} collectors are started anew", who.len()));
                for index in who {
                    self.running.shared().order(index, |order| order.restarts += 1);
                }
                Ok(None)
            }
            Action::Run(run) => {
                for index in self.members(&run.who)? {
                    self.running.shared().order(index, |order| order.runs = Some(run.runs));
                }
                self.note(format!("Foreign collectors run {:?}", run.runs));
                Ok(None)
            }
        }
    }

    /// The commit that adds the Rollout's file, made that many milliseconds ago; the timeline begins
    /// with it.
    pub(super) async fn begin_rollout(&mut self, text: &str, ago: u64) -> Result<(), Trouble> {
        let desk = self.repo.desk().to_owned();
        write(&desk, &estate::rollout_file(&self.scenario.rollout)?, text)?;
        estate::render(&desk, &self.scenario.estate.catalogue)?;
        let by = Signature::human(Clock::unix_ms().saturating_sub(ago));
        let commit = self.repo.commit("The Rollout", by).await?;
        self.begin = self.clock.now();
        self.timeline = Timeline::new(self.options.verbose);
        self.publish(&commit, "the Rollout begins").await
    }

    async fn commit(&mut self, change: &Change, title: &str) -> Result<String, Trouble> {
        self.repo.update().await?;
        let desk = self.repo.desk().to_owned();
        edit(&desk, &change.edit)?;
        for (file, text) in &change.write {
            write(&desk, file, text)?;
        }
        for file in &change.remove {
            remove(&desk, file)?;
        }
        estate::render(&desk, &self.scenario.estate.catalogue)?;
        let commit = self.repo.commit(&format!("Step {title}"), ago(change.committed)).await?;
        self.publish(&commit, "a human commits").await?;
        Ok(commit)
    }

    async fn merge(&mut self, merge: &Merge) -> Result<String, Trouble> {
        let commit = match merge.fast_forward_committed {
            None => self.repo.merge(&merge.branch, ago(Duration::ZERO)).await?,
            Some(committed) => self.repo.fast_forward(&merge.branch, ago(committed)).await?,
        };
        self.publish(&commit, &format!("a human merges {}", merge.branch)).await?;
        Ok(commit)
    }

    /// Pushes the desk as the new head; the collectors' books know it before any gateway can.
    async fn publish(&mut self, commit: &str, what: &str) -> Result<(), Trouble> {
        if !self.running.push_head(estate::model(self.repo.desk())?) {
            return Err(Trouble::Cannot("the estate changed too often".to_owned()));
        }
        self.note(format!("{what}: head is {}", commit.get(..8).unwrap_or(commit)));
        self.repo.push("main").await
    }

    async fn plant(&mut self, plant: &Plant) -> Result<String, Trouble> {
        self.repo.update().await?;
        let by = Signature::proposer(Clock::unix_ms());
        let message = plant.message.as_deref().unwrap_or("nothing");
        if plant.message.is_some() {
            self.repo.commit(message, by).await?;
        }
        let commit = self.repo.head().await?;
        self.repo.push(&self.repo.branch(&plant.branch)).await?;
        self.note(format!("somebody pushes {}", plant.branch));
        Ok(commit)
    }

    fn take(&mut self, number: usize) -> Result<Process, Trouble> {
        let gateway = self.gateways.get_mut(number).and_then(Option::take);
        if number == 0 {
            self.address.send_replace(None);
        }
        gateway.ok_or_else(|| Trouble::Cannot(format!("gateway {number} was not started here")))
    }

    async fn start(&mut self, number: usize) -> Result<(), Trouble> {
        if self.options.given.is_some() {
            return Err(Trouble::Cannot("a given gateway is not started here".to_owned()));
        }
        if self.gateways.get(number).is_some_and(Option::is_some) {
            return Err(Trouble::Cannot(format!("gateway {number} runs already")));
        }
        let arguments = arguments(self.scenario, &self.repo, self.root, number);
        let gateway = Process::start(&self.options.gateway, &arguments, &self.log).await?;
        self.note(format!("gateway {number} is started"));
        if number == 0 {
            self.address.send_replace(Some(gateway.admin));
        }
        if let Some(place) = self.gateways.get_mut(number) {
            *place = Some(gateway);
        }
        self.connect().await
    }

    fn cut(&mut self, cut: &Cut) -> Result<(), Trouble> {
        let who = self.members(&cut.who)?;
        for index in &who {
            self.running.shared().order(*index, |order| order.down = Some(cut.how));
        }
        self.note(format!("{} collectors are cut off ({:?})", who.len(), cut.how));
        if let Some(lasts) = cut.lasts {
            self.returns.push((self.clock.now().saturating_add(micros(lasts)), who));
        }
        Ok(())
    }

    /// Whatever took these away.
    pub(super) fn bring_back(&self, who: &[u32]) {
        for index in who {
            self.running.shared().order(*index, |order| {
                order.absent = false;
                order.down = None;
                order.returns += 1;
            });
        }
    }

    fn members(&self, who: &[Who]) -> Result<Vec<u32>, Trouble> {
        self.scenario.members(&self.running.shared().plan, who).map_err(Trouble::Cannot)
    }
}

fn ago(time: Duration) -> Signature {
    let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    Signature::human(Clock::unix_ms().saturating_sub(millis))
}
