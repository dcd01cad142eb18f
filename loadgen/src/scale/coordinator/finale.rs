//! How a run over many processes ends: goodbyes, books, figures.

use std::time::Duration;

use super::{ANSWER_MAX, COMPLAINTS_MAX, FAREWELL_MAX, FAREWELLS_PER_S, Phase, Run, Stop, seconds};
use crate::clock::{Micros, micros};
use crate::floor::Speed;
use crate::scale::merge;
use crate::scale::outcome::{Machine, Outcome};
use crate::scale::protocol::{Part, ToWorker};

impl Run<'_> {
    /// Everybody leaves, the books come in, everything ends.
    pub(super) async fn end(mut self, held_from: Option<Micros>, stop: Option<Stop>) -> Outcome {
        let ended = self.now();
        self.usage.look();
        let early = stop.is_some();
        match stop {
            Some(Stop::Interrupted) => self.problems.push("interrupted".to_owned()),
            Some(Stop::Fault(why)) => self.problems.push(why),
            None => {}
        }
        self.tell_people("everybody says goodbye");
        self.farewell(early).await;
        self.usage.look();
        self.end_processes().await;
        let floor_after = self.floor.as_ref().filter(|_| !early).map(|_| Speed::measure());
        self.view.clear();
        let held_s = held_from.map_or(0.0, |from| seconds(ended.saturating_sub(from)));
        self.outcome(held_s, floor_after)
    }

    async fn farewell(&mut self, early: bool) {
        self.phase = if early { Phase::LeavingAtOnce } else { Phase::Leaving };
        let finish = ToWorker::Finish { early };
        // In lanes, as they came: a processor that carries few goodbyes answers heartbeats meanwhile.
        let first = self.first_of_lanes();
        let lanes = u32::try_from(first.len()).unwrap_or(u32::MAX);
        for worker in if early { (0..self.layout.workers).collect() } else { first } {
            // Who hears nothing any more has been or will be complained of.
            if let (Err(Stop::Fault(why)), false) = (self.tell(worker, &finish).await, early) {
                self.problems.push(why);
            }
        }
        // One after the other in a lane, each may wait for a reply that does not come.
        let in_turn = self.layout.workers.div_ceil(lanes.max(1));
        let patience = FAREWELL_MAX
            + self.options.reply_timeout.saturating_mul(in_turn)
            + Duration::from_secs(u64::from(self.options.collectors / FAREWELLS_PER_S));
        let deadline = self.now().saturating_add(micros(patience));
        loop {
            let all = |run: &Self| run.parts.iter().all(Option::is_some);
            let dead = |run: &Self| early && run.crew_is_silent();
            match self.observe(deadline, |run| all(run) || dead(run)).await {
                Ok(true) => return,
                Ok(false) => {
                    let late = self.parts.iter().filter(|part| part.is_none()).count();
                    self.problems.push(format!("{late} workers did not come to an end"));
                    return;
                }
                Err(Stop::Interrupted) => {
                    self.problems.push("interrupted again: some books are missing".to_owned());
                    return;
                }
                Err(Stop::Fault(why)) => {
                    self.problems.push(why);
                    self.finishing = true; // further deaths of the same kind are of no interest
                    if !early {
                        return;
                    }
                }
            }
        }
    }

    /// Whether nobody is left from whom books could come.
    fn crew_is_silent(&self) -> bool {
        self.incoming.is_closed() || (self.incoming.is_empty() && self.sender.strong_count() == 1)
    }

    pub(super) async fn end_processes(&mut self) {
        for (number, worker) in self.workers.drain(..).enumerate() {
            let done = self.parts.get(number).is_some_and(Option::is_some);
            if !done {
                worker.kill().await;
                continue;
            }
            match tokio::time::timeout(ANSWER_MAX, worker.end()).await {
                Ok(Ok(())) => {}
                Ok(Err(how)) => self.problems.push(format!("worker {number} ended badly: {how}")),
                Err(_) => self.problems.push(format!("worker {number} does not end")),
            }
        }
        for (number, gateway) in self.gateways.drain(..).enumerate() {
            let Some(mut gateway) = gateway else { continue };
            if let Some(status) = gateway.ended() {
                self.problems.push(format!("gateway {number} died: {status}"));
            } else if let Err(trouble) = gateway.kill().await {
                self.problems.push(trouble.to_string());
            }
        }
    }

    fn outcome(mut self, held_s: f64, floor_after: Option<Speed>) -> Outcome {
        let parts: Vec<Part> = self.parts.iter_mut().filter_map(Option::take).collect();
        let complete = parts.len() == usize::try_from(self.layout.workers).unwrap_or(usize::MAX);
        let merged = merge::merge(&parts, self.options.collectors);
        for event in &mut self.events {
            merge::last_offer(event, &parts, self.go_unix);
        }
        if !complete {
            self.problems.push(format!(
                "the books of {} workers are missing",
                self.layout.workers.saturating_sub(u32::try_from(parts.len()).unwrap_or(u32::MAX))
            ));
        }
        let mut problems = self.problems.clone();
        if let Some(report) = &merged.report {
            problems.extend(report.problems.iter().take(COMPLAINTS_MAX).cloned());
        }
        let since = |at: Option<Micros>| at.map(|at| self.since_go(at));
        let mut outcome = Outcome {
            all_right: problems.is_empty() && complete,
            problems,
            figures: Vec::new(),
            collectors: self.options.collectors,
            replicas: self.layout.replicas,
            workers: self.layout.workers,
            all_connected_after_s: since(self.all_connected),
            all_offered_after_s: since(self.all_offered),
            all_settled_after_s: since(self.all_settled),
            held_s,
            events: std::mem::take(&mut self.events),
            expected_ends: merged.expected_ends,
            other_ends: merged.other_ends,
            storm_resets: merged.storm_resets,
            machine: Machine {
                floor: self.floor.take(),
                floor_after,
                ..self.usage.report(merged.worker_bytes_per_collector)
            },
            report: merged.report.filter(|_| complete),
            timeline: std::mem::take(&mut self.timeline),
        };
        outcome.weigh();
        outcome
    }
}
