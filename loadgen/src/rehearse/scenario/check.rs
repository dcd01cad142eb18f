//! Whether a scenario makes sense, and whom it means.

use super::{Action, Cut, REPLICAS_MAX, Run, Scenario, Step, Who};
use crate::plan::{Place, Plan, PlanError};

impl Scenario {
    /// Reads a scenario and the plan of its population; `file` is its name in error texts.
    ///
    /// # Errors
    ///
    /// Anything that is not exactly a scenario, with file, line and column where there is one.
    pub fn parse(text: &str, file: &str) -> Result<(Self, Plan), PlanError> {
        let place = Place { text, file };
        let scenario: Self = toml::from_str(text).map_err(|error| place.toml(&error))?;
        let population = &scenario.population;
        let plan = Plan::from_raw(&population.plan, &place, population.collectors)?;
        let whole = |message: String| PlanError::whole(file, message);
        let Some((team, name)) = scenario.rollout.split_once('/') else {
            return Err(whole(format!("rollout: \"{}\" is not team/name", scenario.rollout)));
        };
        if team.is_empty() || name.is_empty() || name.contains('/') {
            return Err(whole(format!("rollout: \"{}\" is not team/name", scenario.rollout)));
        }
        scenario.check(&plan).map_err(whole)?;
        Ok((scenario, plan))
    }

    fn check(&self, plan: &Plan) -> Result<(), String> {
        let replicas = self.gateway.replicas;
        if replicas == 0 || replicas > REPLICAS_MAX {
            return Err(format!("gateway.replicas: between 1 and {REPLICAS_MAX}"));
        }
        if self.gateway.started.is_some_and(|started| started == 0 || started > replicas) {
            return Err("gateway.started: between 1 and gateway.replicas".to_owned());
        }
        for fault in &self.faults {
            let kinds = [
                fault.fail.is_some(),
                fault.dark.is_some(),
                fault.slow.is_some(),
                fault.flap.is_some(),
                fault.failed_before.is_some(),
                fault.runs.is_some(),
            ];
            if kinds.iter().filter(|there| **there).count() != 1 {
                return Err("fault: exactly one of fail, dark, slow, flap, failed_before and runs"
                    .to_owned());
            }
            self.members(plan, &fault.who)?;
        }
        for group in &self.population.absent {
            self.members(plan, &[Who::group(group)])?;
        }
        for (number, step) in self.steps.iter().enumerate() {
            let in_step = |error: String| format!("step {}: {error}", step.title(number));
            let gateway = |number: &usize| {
                if *number < replicas {
                    Ok(Vec::new())
                } else {
                    Err(format!("there is no gateway {number}"))
                }
            };
            match &step.action {
                Some(Action::Cut(Cut { who, .. }) | Action::Run(Run { who, .. })) => {
                    self.members(plan, who)
                }
                Some(Action::Return(who) | Action::Restart(who)) => self.members(plan, who),
                Some(Action::Kill(number) | Action::Drain(number) | Action::Start(number)) => {
                    gateway(number)
                }
                Some(
                    Action::Commit(_)
                    | Action::Merge(_)
                    | Action::CommitOnBranch(_)
                    | Action::Plant(_)
                    | Action::DeleteBranch(_)
                    | Action::Remote(_),
                )
                | None => Ok(Vec::new()),
            }
            .map_err(in_step)?;
            let earlier = self.steps.iter().take(number + 1).filter_map(|step| step.name.as_ref());
            for condition in step.after.iter().chain(&step.expect) {
                if let Some(name) = condition.step()
                    && !earlier.clone().any(|earlier| earlier == name)
                {
                    return Err(in_step(format!("there is no step \"{name}\" before it")));
                }
            }
        }
        for offers in &self.expect.offers {
            self.members(plan, &offers.who)?;
        }
        Ok(())
    }

    /// Groups that do not run until they are told to return.
    pub fn absent(&self, plan: &Plan, index: u32) -> bool {
        self.population.absent.iter().any(|group| group == plan.group_name(index))
    }

    /// The collectors that these name, in the plan's order.
    ///
    /// # Errors
    ///
    /// A group that the plan does not have, or fewer collectors than it should have.
    pub fn members(&self, plan: &Plan, who: &[Who]) -> Result<Vec<u32>, String> {
        let mut members = Vec::new();
        for who in who {
            let of = |index: &u32| {
                who.group.as_ref().is_none_or(|group| group == plan.group_name(*index))
            };
            let mut group: Vec<u32> = (0..plan.len()).filter(of).collect();
            group.sort_by_key(|index| (plan.group_name(*index), plan.number_in_group(*index)));
            let called = who.group.as_deref().unwrap_or("everybody");
            if group.is_empty() {
                return Err(format!("there is no collector of the group \"{called}\""));
            }
            if let Some(percent) = who.percent {
                fastrand::Rng::with_seed(self.seed).shuffle(&mut group);
                let share = group.len() * usize::try_from(percent.min(100)).unwrap_or(100) / 100;
                group.truncate(share);
            }
            let skip = usize::try_from(who.skip).unwrap_or(usize::MAX).min(group.len());
            let mut group = group.split_off(skip);
            if let Some(count) = who.count {
                let count = usize::try_from(count).unwrap_or(usize::MAX);
                if group.len() < count {
                    return Err(format!("\"{called}\" has fewer than {count} such collectors"));
                }
                group.truncate(count);
            }
            members.append(&mut group);
        }
        members.sort_unstable();
        members.dedup();
        Ok(members)
    }
}

impl Who {
    fn group(name: &str) -> Self {
        Self { group: Some(name.to_owned()), skip: 0, count: None, percent: None }
    }
}

impl Step {
    /// Its name, else its number from 1.
    pub fn title(&self, number: usize) -> String {
        self.name.clone().unwrap_or_else(|| (number + 1).to_string())
    }
}
