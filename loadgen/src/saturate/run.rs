//! What all links of a run share, and how a run goes on.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use hdrhistogram::Histogram;
use mio::{Events, Poll};

use super::link::Link;
use super::messages::Speaker;
use super::outcome::{Mark, Outcome};
use super::reply::Expected;
use super::{Kind, Length, Options};
use crate::clock::{Clock, Micros, micros};
use crate::endpoint::Endpoint;
use crate::swarm::CLOSE_TIMEOUT;

/// Links on their way at once.
const COMING_MAX: u32 = 64;
/// Events taken from the kernel at once.
const EVENTS: usize = 1_024;
/// Largest read at once.
const SCRATCH: usize = 64 << 10;
/// Kinds of complaints that are told apart.
const COMPLAINTS_MAX: usize = 16;
/// How long the loop sleeps at most.
const PATIENCE: Duration = Duration::from_millis(100);

/// Shared by all links.
pub(super) struct Run {
    pub(super) clock: Clock,
    pub(super) endpoint: Endpoint,
    pub(super) seed: u64,
    pub(super) rng: fastrand::Rng,
    pub(super) scratch: Vec<u8>,
    pub(super) out: Vec<u8>,
    pub(super) kind: Kind,
    pub(super) in_flight: usize,
    /// How many messages may yet be sent.
    pub(super) left: u64,
    pub(super) sent: u64,
    pub(super) answered: u64,
    /// When something was last answered.
    pub(super) answered_at: Micros,
    /// Messages that are unanswered on links that live.
    pub(super) owed: usize,
    pub(super) wrong: u64,
    pub(super) lost: u32,
    pub(super) ready: u32,
    pub(super) gone: u32,
    /// Of the longest message.
    pub(super) message_bytes: usize,
    pub(super) round_trip: Histogram<u64>,
    pub(super) complaints: BTreeMap<String, u64>,
}

impl Run {
    pub(super) fn new(options: &Options, endpoint: Endpoint) -> Self {
        let clock = Clock::start();
        Self {
            clock,
            endpoint,
            seed: fastrand::u64(..),
            rng: fastrand::Rng::new(),
            scratch: vec![0; SCRATCH],
            out: Vec::with_capacity(SCRATCH),
            kind: options.message,
            in_flight: usize::try_from(options.in_flight).unwrap_or(usize::MAX),
            left: 0,
            sent: 0,
            answered: 0,
            answered_at: clock.now(),
            owed: 0,
            wrong: 0,
            lost: 0,
            ready: 0,
            gone: 0,
            message_bytes: 0,
            round_trip: crate::histogram::new(3),
            complaints: BTreeMap::new(),
        }
    }

    /// Counts something that is not right.
    pub(super) fn complain(&mut self, text: String) {
        let room = self.complaints.len() < COMPLAINTS_MAX || self.complaints.contains_key(&text);
        *self.complaints.entry(if room { text } else { "others".to_owned() }).or_default() += 1;
    }
}

/// How far a run has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Links come up, are offered and tell APPLIED.
    Gathering,
    /// All send; nothing counts yet, until then.
    Warming(Micros),
    /// What is answered counts, until then or until all is.
    Measuring(Option<Micros>),
    /// Nothing is sent any more; what is under way is answered.
    Draining,
    /// Goodbyes, until then at the latest.
    Leaving(Micros),
    Over,
}

/// A closed loop over all links, on the thread that calls [`Pump::run`].
pub(super) struct Pump<'o> {
    options: &'o Options,
    poll: Poll,
    run: Run,
    waiting: std::vec::IntoIter<(Speaker, Expected, bool)>,
    links: Vec<Link>,
    phase: Phase,
    begin: Option<Mark>,
    end: Option<Mark>,
}

impl<'o> Pump<'o> {
    pub(super) fn new(
        options: &'o Options,
        run: Run,
        who: Vec<(Speaker, Expected, bool)>,
    ) -> io::Result<Self> {
        Ok(Self {
            options,
            poll: Poll::new()?,
            run,
            links: Vec::with_capacity(who.len()),
            waiting: who.into_iter(),
            phase: Phase::Gathering,
            begin: None,
            end: None,
        })
    }

    /// Runs to the end.
    pub(super) fn run(mut self) -> io::Result<Outcome> {
        let mut events = Events::with_capacity(EVENTS);
        while self.phase != Phase::Over {
            match self.poll.poll(&mut events, Some(self.patience())) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            for event in &events {
                if let Some(link) = self.links.get_mut(event.token().0) {
                    link.handle_event(event, &mut self.run);
                }
            }
            self.go_on();
        }
        Ok(Outcome::of(self.options, &self.run, self.begin.zip(self.end)))
    }

    fn patience(&self) -> Duration {
        let until = match self.phase {
            Phase::Gathering if self.has_room() => return Duration::ZERO,
            Phase::Warming(until) | Phase::Measuring(Some(until)) | Phase::Leaving(until) => until,
            Phase::Gathering | Phase::Measuring(None) | Phase::Draining | Phase::Over => {
                return PATIENCE;
            }
        };
        PATIENCE.min(Duration::from_micros(until.saturating_sub(self.run.clock.now())))
    }

    /// Whether another link may be opened.
    fn has_room(&self) -> bool {
        let opened = u32::try_from(self.links.len()).unwrap_or(u32::MAX);
        let coming = opened.saturating_sub(self.run.ready + self.run.gone);
        coming < COMING_MAX && self.waiting.len() > 0
    }

    /// Does what is due in this phase, or begins the next one.
    fn go_on(&mut self) {
        let now = self.run.clock.now();
        let silent = now.saturating_sub(self.run.answered_at) > micros(self.options.reply_timeout);
        let failed = self.run.lost > 0;
        match self.phase {
            Phase::Gathering if failed => self.leave(now),
            Phase::Gathering if silent => {
                self.run.complain("no answer in time while links came up".to_owned());
                self.leave(now);
            }
            Phase::Gathering => {
                while self.has_room()
                    && let Some(who) = self.waiting.next()
                {
                    let index = u32::try_from(self.links.len()).unwrap_or(u32::MAX);
                    let link = Link::open(who, index, &mut self.run, self.poll.registry());
                    self.links.push(link);
                }
                let all = self.waiting.len() == 0
                    && usize::try_from(self.run.ready).is_ok_and(|ready| ready == self.links.len());
                if all {
                    self.start(now);
                }
            }
            Phase::Warming(_) | Phase::Measuring(_) if silent || self.run.owed == 0 && failed => {
                self.end();
                if silent {
                    self.run.complain("no answer in time".to_owned());
                }
                self.leave(now);
            }
            Phase::Warming(until) if now >= until => self.measure(now),
            Phase::Measuring(until) => {
                let all = self.run.left == 0 && self.run.owed == 0;
                if all || until.is_some_and(|until| now >= until) {
                    self.end();
                    self.run.left = 0;
                    self.phase = Phase::Draining;
                }
            }
            Phase::Draining if self.run.owed == 0 || silent => self.leave(now),
            Phase::Leaving(until) => {
                let gone =
                    usize::try_from(self.run.gone).is_ok_and(|gone| gone >= self.links.len());
                if gone || now >= until {
                    self.phase = Phase::Over;
                }
            }
            Phase::Warming(_) | Phase::Draining | Phase::Over => {}
        }
    }

    /// All links are ready.
    fn start(&mut self, now: Micros) {
        match self.options.length {
            Length::Messages(messages) => {
                self.run.left = messages;
                self.measure(now);
            }
            Length::For { warm_up, .. } => {
                self.run.left = u64::MAX;
                self.phase = Phase::Warming(now.saturating_add(micros(warm_up)));
            }
        }
        for link in &mut self.links {
            link.start(&mut self.run);
        }
    }

    fn measure(&mut self, now: Micros) {
        self.run.round_trip.reset();
        self.begin = Some(Mark::now(&self.run, self.options.server_pid));
        self.phase = Phase::Measuring(match self.options.length {
            Length::Messages(_) => None,
            Length::For { duration, .. } => Some(now.saturating_add(micros(duration))),
        });
    }

    fn end(&mut self) {
        self.end = Some(Mark::now(&self.run, self.options.server_pid));
    }

    fn leave(&mut self, now: Micros) {
        self.run.left = 0;
        self.phase = Phase::Leaving(now.saturating_add(micros(CLOSE_TIMEOUT)));
        for link in &mut self.links {
            link.leave(&mut self.run);
        }
    }
}
