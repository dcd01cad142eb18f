//! Plays a question: every target placed and healthy at once, every ended process acknowledged at
//! once (unless asked otherwise), until it is done or nothing moves.

use super::kubernetes::{Cluster, fenceposts};
use super::{Answer, Comparison, Question, QuestionError, REPLICAS_MAX, Step};
use crate::controller::{Counts, Decision};
use crate::error::Error;
use crate::fleet::{Fleet, Setup};
use crate::records::Limits;
use crate::rules::Rules;
use crate::status::TaskStatus;

/// Passes without any change after which a mode stalls. A deployment without input is at its fixed
/// point after two.
const STILL_PASSES: i64 = 3;

/// What nobody may read into a comparison.
const NOT_CLAIMED: [&str; 4] = [
    "traffic availability: counts of tasks, no request was sent",
    "session load: a count of replicas does not see how many collectors each one holds",
    "time: every target is healthy at once, so a pass says nothing of seconds",
    "a cluster: the Kubernetes column is its arithmetic restated, not a run of it",
];

/// Asks all three.
///
/// # Errors
/// [`QuestionError`] for a question that is out of range.
pub fn compare(question: &Question) -> Result<Comparison, QuestionError> {
    if !(1..=REPLICAS_MAX).contains(&question.replicas) {
        return Err(QuestionError::Replicas);
    }
    if !(0..=question.replicas).contains(&question.unhealthy_old) {
        return Err(QuestionError::Unhealthy);
    }
    let (max_unavailable, max_surge, raised_to_one) =
        fenceposts(question.replicas, question.max_unavailable, question.max_surge)?;
    let limits = Limits { max_unavailable, max_surge };
    let answers = vec![
        simulate("baseline", Rules::baseline(), question, limits)?,
        simulate("strict", Rules::strict(), question, limits)?,
        kubernetes(question, limits),
    ];
    Ok(Comparison {
        schema: "rollout-lab-compare/1",
        replicas: question.replicas,
        max_unavailable_asked: question.max_unavailable.to_string(),
        max_surge_asked: question.max_surge.to_string(),
        max_unavailable,
        max_surge,
        raised_to_one,
        unhealthy_old: question.unhealthy_old,
        acknowledged: question.acknowledge,
        answers,
        not_claimed: NOT_CLAIMED.to_vec(),
    })
}

/// Plays a question under these rules.
///
/// # Errors
/// What the store refuses.
pub fn simulate(
    mode: &str,
    rules: Rules,
    question: &Question,
    limits: Limits,
) -> Result<Answer, Error> {
    let mut fleet = Fleet::healthy(Setup::of(question.replicas, question.seed, rules))?;
    let sick = usize::try_from(question.unhealthy_old).unwrap_or(0);
    for task in fleet.ids(|_| true).into_iter().take(sick) {
        fleet.report(task, TaskStatus::Unhealthy)?;
    }
    fleet.rollout(limits)?;
    let mut tape = Tape::new(mode, &step(0, "requested".to_owned(), &fleet.counts()?));
    let mut still = 0;
    loop {
        let pass = fleet.pass();
        let Some(handled) = pass.handled.into_iter().next() else { break };
        let done = handled.decision == Decision::Complete;
        let moved = handled.created + handled.stopped > 0 || done;
        if moved {
            let action = match (handled.created, handled.stopped, done) {
                (created, 0, false) => format!("create {created}"),
                (0, stopped, false) => format!("stop {stopped}"),
                (created, stopped, false) => format!("create {created}, stop {stopped}"),
                (_, 0, true) => "complete".to_owned(),
                (_, stopped, true) => format!("stop {stopped}, complete"),
            };
            still = 0;
            let number = tape.answer.passes + 1;
            tape.add(&step(number, action, &fleet.counts()?));
        } else {
            still += 1;
        }
        if done {
            "succeeded".clone_into(&mut tape.answer.outcome);
            break;
        }
        if still >= STILL_PASSES {
            tape.answer.why = handled.blocks.iter().map(ToString::to_string).collect();
            break;
        }
        if question.acknowledge {
            fleet.acknowledge()?;
        }
        fleet.schedule()?;
        fleet.settle()?;
        tape.saw_processes(fleet.counts()?.processes);
    }
    Ok(tape.answer)
}

fn kubernetes(question: &Question, limits: Limits) -> Answer {
    let mut cluster = Cluster::starting(question, limits.max_unavailable, limits.max_surge);
    let state = |number: i64, action: String, cluster: &Cluster| Step {
        step: number,
        action,
        old: cluster.old,
        new: cluster.new,
        available: cluster.old_available + cluster.new_available,
        processes: cluster.old + cluster.new + cluster.terminating,
    };
    let mut tape = Tape::new("kubernetes", &state(0, "requested".to_owned(), &cluster));
    while !cluster.is_complete() {
        let action = match cluster.sync() {
            (0, 0) => {
                tape.answer.why = vec!["no sync scales anything".to_owned()];
                return tape.answer;
            }
            (up, 0) => format!("create {up}"),
            (_, down) => format!("stop {}", -down),
        };
        let number = tape.answer.passes + 1;
        tape.add(&state(number, action, &cluster));
        cluster.new_available = cluster.new;
        if question.acknowledge {
            cluster.terminating = 0;
        }
    }
    "succeeded".clone_into(&mut tape.answer.outcome);
    tape.answer
}

fn step(step: i64, action: String, counts: &Counts) -> Step {
    let (old, new) = (counts.old, counts.new);
    Step { step, action, old, new, available: counts.available(), processes: counts.processes }
}

/// An answer that grows.
struct Tape {
    answer: Answer,
}

impl Tape {
    fn new(mode: &str, first: &Step) -> Self {
        let answer = Answer {
            mode: mode.to_owned(),
            outcome: "stalls".to_owned(),
            why: Vec::new(),
            passes: 0,
            min_available: first.available,
            max_active: first.old + first.new,
            max_processes: first.processes,
            steps: vec![first.clone()],
        };
        Self { answer }
    }

    /// Placing a target makes a process without a pass.
    fn saw_processes(&mut self, processes: i64) {
        let answer = &mut self.answer;
        answer.max_processes = answer.max_processes.max(processes);
        if let Some(last) = answer.steps.last_mut() {
            last.processes = last.processes.max(processes);
        }
    }

    fn add(&mut self, step: &Step) {
        let answer = &mut self.answer;
        answer.passes += 1;
        answer.min_available = answer.min_available.min(step.available);
        answer.max_active = answer.max_active.max(step.old + step.new);
        answer.max_processes = answer.max_processes.max(step.processes);
        answer.steps.push(step.clone());
    }
}
