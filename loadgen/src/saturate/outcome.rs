//! What came of a run.

use std::fmt;

use serde::Serialize;

use super::run::Run;
use super::{Kind, Options};
use crate::clock::Micros;
use crate::host;
use crate::report::Latency;

/// A share of its one processor above which loadgen's thread is what was measured.
const BUSY_MAX: f64 = 0.9;

/// What a run found out. Times are in the unit that their names end with.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Every message was answered, once and rightly.
    pub all_right: bool,
    /// What is not right, one sentence each.
    pub problems: Vec<String>,
    /// What was sent.
    pub message: Kind,
    /// Bytes of the longest such message as protobuf, without frame and header.
    pub message_bytes: usize,
    /// Links.
    pub links: u32,
    /// Messages under way on each.
    pub in_flight: u32,
    /// Messages sent, in the warm-up and while the last ones were answered too.
    pub sent: u64,
    /// Of these, answered.
    pub answered: u64,
    /// Replies that were not as they must be.
    pub wrong: u64,
    /// Links that broke, or did not come up.
    pub links_lost: u32,
    /// How long was measured.
    pub measured_s: f64,
    /// Messages answered meanwhile: what the figures below are of.
    pub measured: u64,
    /// The same per second.
    pub messages_per_s: f64,
    /// From a message to its reply.
    pub round_trip: Latency,
    /// The server's processor time; `None` without its process id.
    pub server: Option<Cost>,
    /// loadgen's own.
    pub own: Cost,
    /// Why messages per second say nothing about the server, where loadgen was the bottleneck.
    pub bottleneck: Option<String>,
}

/// Processor time while it was measured, as the kernel accounts for it, in steps of 10 ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Cost {
    /// In user mode, microseconds per message.
    pub user_us: f64,
    /// In the kernel, microseconds per message.
    pub system_us: f64,
    /// Both.
    pub both_us: f64,
    /// Processors that were busy with it.
    pub processors: f64,
}

/// A moment of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    at: Micros,
    answered: u64,
    own: (f64, f64),
    server: Option<(f64, f64)>,
}

impl Mark {
    pub(super) fn now(run: &Run, server: Option<u32>) -> Self {
        Self {
            at: run.clock.now(),
            answered: run.answered,
            own: host::processor_seconds(),
            server: server.and_then(host::usage_of).map(|(_, cpu)| cpu),
        }
    }
}

impl Cost {
    #[expect(clippy::cast_precision_loss, reason = "fewer messages than 2^52")]
    fn between(begin: (f64, f64), end: (f64, f64), messages: u64, seconds: f64) -> Self {
        let (user, system) = (end.0 - begin.0, end.1 - begin.1);
        let per = |time: f64| if messages == 0 { 0.0 } else { 1e6 * time / messages as f64 };
        Self {
            user_us: per(user),
            system_us: per(system),
            both_us: per(user + system),
            processors: if seconds > 0.0 { (user + system) / seconds } else { 0.0 },
        }
    }
}

impl Outcome {
    #[expect(clippy::cast_precision_loss, reason = "a run has fewer microseconds than 2^52")]
    pub(super) fn of(options: &Options, run: &Run, marks: Option<(Mark, Mark)>) -> Self {
        let mut outcome = Self {
            all_right: false,
            problems: Vec::new(),
            message: options.message,
            message_bytes: run.message_bytes,
            links: options.links,
            in_flight: options.in_flight,
            sent: run.sent,
            answered: run.answered,
            wrong: run.wrong,
            links_lost: run.lost,
            measured_s: 0.0,
            measured: 0,
            messages_per_s: 0.0,
            round_trip: Latency::of(&run.round_trip),
            server: None,
            own: Cost::default(),
            bottleneck: None,
        };
        if let Some((begin, end)) = marks {
            let seconds = end.at.saturating_sub(begin.at) as f64 / 1e6;
            let messages = end.answered - begin.answered;
            outcome.measured_s = seconds;
            outcome.measured = messages;
            outcome.messages_per_s = if seconds > 0.0 { messages as f64 / seconds } else { 0.0 };
            outcome.own = Cost::between(begin.own, end.own, messages, seconds);
            outcome.server = begin
                .server
                .zip(end.server)
                .map(|(begin, end)| Cost::between(begin, end, messages, seconds));
        }
        if outcome.own.processors > BUSY_MAX {
            outcome.bottleneck = Some(format!(
                "loadgen's thread was busy {:.0} % of the time: messages/s are what it can send, not what the server can answer",
                100.0 * outcome.own.processors
            ));
        }
        outcome.find_problems(options, run);
        outcome.all_right = outcome.problems.is_empty();
        outcome
    }

    fn find_problems(&mut self, options: &Options, run: &Run) {
        if self.links_lost > 0 {
            self.problems.push(format!("{} links broke or did not come up", self.links_lost));
        }
        if self.wrong > 0 {
            self.problems.push(format!("{} replies were wrong", self.wrong));
        }
        if self.sent > self.answered {
            self.problems.push(format!("{} messages were not answered", self.sent - self.answered));
        }
        self.problems
            .extend(run.complaints.iter().map(|(text, count)| format!("{count} x {text}")));
        if self.measured == 0 {
            self.problems.push("nothing was measured".to_owned());
        }
        if let Some(pid) = options.server_pid.filter(|_| self.server.is_none()) {
            self.problems.push(format!("process {pid} ended meanwhile"));
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.message {
            Kind::Described => "described",
            Kind::Heartbeat => "heartbeat",
        };
        writeln!(
            f,
            "{kind}, {} bytes; {} links, {} messages under way on each; {:.1} s",
            self.message_bytes, self.links, self.in_flight, self.measured_s
        )?;
        writeln!(f, "messages    {} answered, {:.0}/s", self.measured, self.messages_per_s)?;
        let Latency { p50_ms, p99_ms, max_ms, .. } = self.round_trip;
        writeln!(f, "round trip  p50 {p50_ms:.2} ms, p99 {p99_ms:.2} ms, max {max_ms:.2} ms")?;
        if let Some(server) = &self.server {
            writeln!(f, "server      {server}")?;
        }
        writeln!(f, "loadgen     {}", self.own)?;
        if let Some(bottleneck) = &self.bottleneck {
            writeln!(f, "void        {bottleneck}")?;
        }
        for problem in &self.problems {
            writeln!(f, "NOT         {problem}")?;
        }
        writeln!(f, "{}", if self.all_right { "all right" } else { "not right" })
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { user_us, system_us, both_us, processors } = self;
        write!(
            f,
            "{user_us:.2} µs user + {system_us:.2} µs system = {both_us:.2} µs a message; {processors:.2} processors"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_shared_out_over_the_messages_of_the_window() {
        let cost = Cost::between((1.0, 2.0), (2.0, 5.0), 1_000_000, 8.0);
        assert_eq!((cost.user_us, cost.system_us, cost.both_us), (1.0, 3.0, 4.0));
        assert_eq!(cost.processors, 0.5);
        let none = Cost::between((1.0, 1.0), (1.0, 1.0), 0, 0.0);
        assert_eq!(none, Cost::default());
    }
}
