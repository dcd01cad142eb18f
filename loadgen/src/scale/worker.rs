//! A worker process: a [`Swarm`], somebody who follows the estate, and the two pipes.

use std::io::{self, BufRead, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::time::Duration;

use mio::Waker;

use super::protocol::{Distributions, FromWorker, Part, Task, ToWorker};
use crate::agent::Habits;
use crate::clock::{Clock, Micros};
use crate::heads::{Head, Heads};
use crate::host;
use crate::plan::Plan;
use crate::report::{Ending, Marks, Report};
use crate::swarm::{Command, Given, Homes, Interval, Realm, Remains, Said, Swarm};
use crate::watch::{LOOK, Seen, Watcher};

/// Lines that wait for the coordinator to read them; a worker waits for it past that.
const LINES_MAX: usize = 256;

/// Runs a worker on this process's stdin and stdout. Ends when it is told to, and when the
/// coordinator goes away.
pub fn main(parent: u32) -> ExitCode {
    super::leash::tie(parent);
    let (lines, outgoing) = sync_channel::<FromWorker>(LINES_MAX);
    let writer = std::thread::spawn(move || {
        let mut out = io::stdout().lock();
        for line in outgoing {
            let written = serde_json::to_writer(&mut out, &line)
                .map_err(io::Error::from)
                .and_then(|()| out.write_all(b"\n"))
                .and_then(|()| out.flush());
            if written.is_err() {
                std::process::exit(1); // nobody is there to tell
            }
        }
    });
    let ended = work(&lines);
    let code = match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            // Nobody is there to tell when this fails.
            let _ = lines.send(FromWorker::Failed { why });
            ExitCode::from(1)
        }
    };
    drop(lines);
    if writer.join().is_err() {
        return ExitCode::from(1);
    }
    code
}

/// The coordinator's commands, as they come.
fn next_command(input: &mut impl BufRead) -> Result<Option<ToWorker>, String> {
    let mut line = String::new();
    match input.read_line(&mut line) {
        Ok(0) => Ok(None),
        Ok(_) => serde_json::from_str(&line)
            .map(Some)
            .map_err(|error| format!("a command that is none: {error}: {}", line.trim())),
        Err(error) => Err(format!("stdin: {error}")),
    }
}

fn work(lines: &SyncSender<FromWorker>) -> Result<(), String> {
    let clock = Clock::start();
    let mut input = io::BufReader::new(io::stdin());
    let Some(ToWorker::Prepare(task)) = next_command(&mut input)? else {
        return Err("the first command does not prepare anything".to_owned());
    };
    host::raise_descriptors();
    let (watcher, realm) = prepare(&task, clock)?;
    let realm = Arc::new(realm);
    let begin_cpu = Marks::begin(clock.now());
    let swarm = Swarm::new(Given {
        realm: Arc::clone(&realm),
        targets: task.targets.clone(),
        homes: if task.blocks { Homes::Blocks(task.collectors) } else { Homes::InTurn },
        first: task.first,
        path: task.path.clone(),
        sources: task.sources.clone(),
        every: task.every_us,
        reply_timeout: task.reply_timeout_us,
        reconnect_within: task.reconnect_within_us,
    });
    let swarm = swarm.map_err(|error| format!("epoll: {error}"))?;
    let waker = swarm.waker().map_err(|error| format!("epoll: {error}"))?;
    let (commands, orders) = channel();
    let early = Arc::new(AtomicBool::new(false));
    let marks = Arc::clone(&early);
    let (look, looks) = channel();
    std::thread::spawn(move || listen(&mut input, clock, &commands, &look, &waker, &marks));
    let watched = Arc::new(Watched::default());
    let (world, seen) = (Arc::clone(&realm), Arc::clone(&watched));
    std::thread::spawn(move || follow(watcher, &looks, &world, &seen));
    send(lines, FromWorker::Ready)?;
    let mut at_first = Firsts { rss_before: host::resident_bytes(), ..Firsts::default() };
    let remains = swarm.run(&orders, |said| {
        let line = match said {
            Said::Begun => FromWorker::Begun,
            Said::Condemned(target) => FromWorker::Condemned { target },
            Said::Progress(progress) => {
                at_first.look(clock.now(), &progress, &realm.plan);
                FromWorker::Progress { progress }
            }
        };
        // The coordinator's end shows at stdin as well.
        let _ = lines.send(line);
    });
    let remains = remains.map_err(|error| error.to_string())?;
    watched.stop.store(true, Ordering::Relaxed);
    let early = early.load(Ordering::Relaxed);
    let part = judge(begin_cpu, remains, &realm, &watched, at_first, early);
    send(lines, FromWorker::Done { part: Box::new(part) })
}

fn send(lines: &SyncSender<FromWorker>, line: FromWorker) -> Result<(), String> {
    lines.send(line).map_err(|_| "stdout is closed".to_owned())
}

fn prepare(task: &Task, clock: Clock) -> Result<(Watcher, Realm), String> {
    let (watcher, model) = Watcher::open(&task.estate).map_err(|error| error.to_string())?;
    let mut plan = match &task.plan {
        Some(path) => read_plan(path, task.collectors)?,
        None => Plan::derive(&model, task.collectors).map_err(|error| error.to_string())?,
    };
    if let Some(heartbeat) = task.heartbeat_us {
        plan.behaviour_mut().heartbeat = Duration::from_micros(heartbeat);
    }
    if let Some((shortest, longest)) = task.apply_delay_us {
        plan.behaviour_mut().apply_delay =
            Duration::from_micros(shortest)..Duration::from_micros(longest);
    }
    if task.no_applying {
        plan.behaviour_mut().report_applying = false;
    }
    let plan = plan.slice(task.first..task.first.saturating_add(task.count));
    plan.check_claims(&model).map_err(|error| error.to_string())?;
    let heads = Heads::new(Head::new(model, clock.now(), &plan, None), task.head_window_us);
    let habits = Habits::new(plan.behaviour());
    Ok((watcher, Realm { clock, plan, habits, heads }))
}

fn read_plan(path: &Path, collectors: u32) -> Result<Plan, String> {
    let file = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| format!("{file}: {error}"))?;
    Plan::parse(&text, &file, collectors).map_err(|error| error.to_string())
}

/// Takes commands until there are no more: then the coordinator has gone, and so does the worker.
fn listen(
    input: &mut impl BufRead,
    clock: Clock,
    commands: &Sender<Command>,
    look: &Sender<Micros>,
    waker: &Waker,
    early: &AtomicBool,
) {
    while let Ok(Some(command)) = next_command(input) {
        let command = match command {
            ToWorker::Prepare(_) => return, // not twice
            // Who waited for its turn is late, and says so.
            ToWorker::Go { unix_us } => Command::Go(clock.at_unix_us(unix_us)),
            ToWorker::Look { since_unix_us } => {
                // Who follows has ended only after too many heads, which is complained of.
                let _ = look.send(clock.at_unix_us(since_unix_us));
                continue;
            }
            ToWorker::Target { target, address } => Command::Target(target, address),
            ToWorker::Condemn { target } => Command::Condemn(target),
            ToWorker::Storm => Command::Storm,
            ToWorker::Finish { early: is_early } => {
                early.store(is_early, Ordering::Relaxed);
                Command::Finish
            }
        };
        if commands.send(command).is_err() || waker.wake().is_err() {
            return;
        }
    }
}

/// What the follower of the estate leaves for the report.
#[derive(Debug, Default)]
struct Watched {
    stop: AtomicBool,
    too_many: AtomicBool,
    refused: std::sync::Mutex<(u64, Option<String>)>,
}

/// Looks at the estate when told to, until it has settled. A change is as old as `looks` say.
fn follow(mut watcher: Watcher, looks: &Receiver<Micros>, realm: &Realm, watched: &Watched) {
    loop {
        let since = if watcher.is_changing() {
            std::thread::sleep(LOOK);
            realm.clock.now()
        } else {
            let Ok(since) = looks.recv() else { return };
            since.min(realm.clock.now())
        };
        if watched.stop.load(Ordering::Relaxed) {
            return;
        }
        match watcher.look(since) {
            Seen::Same => {}
            Seen::Refused(error) => {
                if let Ok(mut refused) = watched.refused.lock() {
                    *refused = (refused.0 + 1, Some(error.to_string()));
                }
            }
            Seen::Head(model, seen_at) => {
                let (_, before) = realm.heads.latest();
                let head = Head::new(*model, seen_at, &realm.plan, Some(&before));
                if !realm.heads.push(head) {
                    watched.too_many.store(true, Ordering::Relaxed);
                    return;
                }
            }
        }
    }
}

/// Moments that are seen once.
#[derive(Debug, Default)]
struct Firsts {
    rss_before: u64,
    rss_settled: Option<u64>,
    offered: Option<Micros>,
    settled: Option<Micros>,
}

impl Firsts {
    fn look(&mut self, now: Micros, progress: &Interval, plan: &Plan) {
        if self.settled.is_none() && progress.settled == plan.len() {
            self.settled = Some(now);
            self.rss_settled = Some(host::resident_bytes());
        }
        if self.offered.is_none() && progress.all_offered {
            self.offered = Some(now);
        }
    }
}

fn judge(
    mut marks: Marks,
    remains: Remains,
    realm: &Realm,
    watched: &Watched,
    firsts: Firsts,
    early: bool,
) -> Part {
    let now = realm.clock.now();
    marks.end(now);
    marks.first(firsts.offered, firsts.settled);
    let mut complaints = Vec::new();
    if early {
        complaints.push("the run was ended before its time".to_owned());
    }
    if watched.too_many.load(Ordering::Relaxed) {
        complaints.push(format!(
            "the estate changed more than {} times: later offers could not be judged",
            crate::heads::HEADS_MAX
        ));
    }
    let (heads_refused, last_refusal) =
        watched.refused.lock().map_or((0, None), |refused| refused.clone());
    let unix = |at: Micros| Clock::unix_us().saturating_sub(now.saturating_sub(at));
    let Remains { closed, figures, errors } = remains;
    let heads = realm.heads.all();
    let last_offers = heads.iter().enumerate().map(|(epoch, head)| {
        let last_offer = figures.last_offers.get(epoch).copied().flatten().map(unix);
        (head.model.fingerprint(), last_offer)
    });
    let last_offers = last_offers.collect();
    let report = Report::judge(Ending {
        plan: &realm.plan,
        heads: &realm.heads,
        counts: figures.live,
        timings: &figures.timings,
        errors,
        allow_lost_links: false,
        marks,
        closed,
        heads_refused,
        last_refusal,
    });
    Part {
        report,
        complaints,
        distributions: Distributions::of(&figures.timings),
        expected_ends: figures.expected_ends,
        other_ends: figures.other_ends,
        storm_resets: figures.storm_resets,
        last_offers,
        rss_before: firsts.rss_before,
        rss_settled: firsts.rss_settled,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_as_old_as_the_coordinator_says() {
        let estate = crate::testing::estate();
        let (watcher, model) = Watcher::open(estate.path()).unwrap();
        let clock = Clock::start().later(Duration::from_secs(60));
        let plan = Plan::derive(&model, 10).unwrap();
        let habits = Habits::new(plan.behaviour());
        let heads = Heads::new(Head::new(model, 0, &plan, None), 0);
        let realm = Realm { clock, plan, habits, heads };
        let (look, looks) = channel();
        // It is told of it late: written 20 s ago, a coordinator's clock that is ahead, nothing new.
        let written = 40_000_000;
        for since in [written, u64::MAX, u64::MAX] {
            look.send(since).unwrap();
        }
        drop(look);
        estate.set_stage(1);
        follow(watcher, &looks, &realm, &Watched::default());
        let heads = realm.heads.all();
        assert_eq!(heads.iter().map(|head| head.seen_at).collect::<Vec<_>>(), [0, written]);
    }

    #[test]
    fn times_of_several_processes_are_laid_on_a_clock() {
        let clock = Clock::start().later(Duration::from_secs(60));
        let (now, unix_now) = (clock.now(), Clock::unix_us());
        let close = |one: Micros, other: Micros| one.abs_diff(other) < 10_000_000;
        assert!(close(clock.at_unix_us(unix_now - 30_000_000), now - 30_000_000));
        assert!(close(clock.at_unix_us(unix_now + 30_000_000), now + 30_000_000));
        assert_eq!(clock.at_unix_us(0), 0);
    }
}
