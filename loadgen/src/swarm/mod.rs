//! Very many collectors on one thread: an epoll loop of their own, and nothing per collector but its
//! state. What a collector does and how it is judged is [`Collector`]'s, as everywhere here.
//!
//! A link holds a socket and, only while something is under way, a buffer. Everything that is read
//! goes through one scratch buffer; timers are numbers in a [`calendar`]; the open-loop schedule is
//! the same as that of a run on tokio: collector `n` at `n / rate`, however slow the server is.

mod calendar;
mod figures;
pub(crate) mod frames;
mod link;
pub(crate) mod upgrade;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use mio::{Events, Poll, Token, Waker};
use proto::prefetch;

use crate::agent::Habits;
use crate::clock::{Clock, Micros, micros};
use crate::collector::World;
use crate::heads::{Epoch, Head, Heads};
use crate::ledger::Closed;
use crate::plan::Plan;
use calendar::Calendar;
pub use figures::Ends;
pub(crate) use figures::{Figures, Interval};
pub(crate) use link::socket::{open, send};
pub(crate) use link::{CLOSE_TIMEOUT, MESSAGE_MAX};
use link::{Link, Stage};

/// Largest read at once.
const SCRATCH: usize = 64 << 10;
/// Events taken from the kernel at once.
const EVENTS: usize = 1_024;
/// Collectors on their way from `connect` to the server's first answer, or for as long as a handshake
/// may take, at once: what a listen queue has room for, with others beside, and what stays in a
/// processor's cache meanwhile. More of them make nothing faster, and each waits longer.
const COMING_MAX: u32 = 128;
/// Attempts to connect between two looks at what has come in.
const CONNECTS_AT_ONCE: u32 = 32;
/// Collectors of a worker that say goodbye at once. With 512, and with 128, in each of 26 workers at
/// the same time, some were not answered within 5 s.
const FAREWELLS_MAX: u32 = 64;
/// Kinds of errors that are told apart.
const ERRORS_MAX: usize = 16;
/// How long the loop sleeps where nothing is due: what a change of heads may wait. Dozens of workers
/// that wait for their turn, or between two rounds of heartbeats, are not to keep processors busy.
const IDLE: Duration = Duration::from_millis(100);
/// How many collectors before its turn a collector is asked for from memory: one takes longer than
/// memory does.
const AHEAD: usize = 2;
/// Between two [`Said::Progress`].
const PROGRESS: Duration = Duration::from_millis(500);
/// What wakes the loop for a command.
const WAKE: Token = Token(usize::MAX);

/// The world of a swarm. Somebody else pushes heads.
#[derive(Debug)]
pub(crate) struct Realm {
    pub(crate) clock: Clock,
    pub(crate) plan: Plan,
    pub(crate) habits: Habits,
    pub(crate) heads: Heads,
}

impl Realm {
    pub(crate) fn world(&self) -> World<'_> {
        World { plan: &self.plan, habits: &self.habits, heads: &self.heads }
    }
}

/// What a swarm is made with.
#[derive(Debug)]
pub(crate) struct Given {
    pub(crate) realm: Arc<Realm>,
    /// Where collectors connect.
    pub(crate) targets: Vec<SocketAddr>,
    pub(crate) homes: Homes,
    /// The number of the first collector among those of all swarms.
    pub(crate) first: u32,
    /// Path and query of the URL.
    pub(crate) path: String,
    /// Local addresses, taken in turn; the kernel's choice where there are none.
    pub(crate) sources: Vec<IpAddr>,
    /// Microseconds between two starts.
    pub(crate) every: f64,
    pub(crate) reply_timeout: Micros,
    /// Longest wait before another attempt to connect.
    pub(crate) reconnect_within: Option<Micros>,
}

/// Which target a collector tries first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Homes {
    /// Number `n` of all collectors: target `n` modulo their count.
    InTurn,
    /// The first so many of all these collectors: the first target, and so on.
    Blocks(u32),
}

impl Homes {
    /// The target of collector `number`, of so many targets (not 0).
    fn of(self, number: u32, targets: u32) -> u32 {
        match self {
            Self::InTurn => number % targets,
            Self::Blocks(collectors) => {
                let target = u64::from(number) * u64::from(targets) / u64::from(collectors.max(1));
                u32::try_from(target).unwrap_or(u32::MAX).min(targets - 1)
            }
        }
    }
}

/// What a swarm is told while it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// The first collector starts at that moment of the realm's clock.
    Go(Micros),
    /// From now on, collectors of that target connect there.
    Target(u16, SocketAddr),
    /// What listens at that target is going to end: its links may break.
    Condemn(u16),
    /// All links are reset at once, and opened again.
    Storm,
    /// Everybody leaves.
    Finish,
}

/// What a swarm says.
#[derive(Debug)]
pub(crate) enum Said {
    /// Every collector has tried to connect.
    Begun,
    /// Links to that target are no longer counted as lost.
    Condemned(u16),
    /// How far it has come.
    Progress(Interval),
}

/// Somebody who listens at a target, from its announcement to its end.
#[derive(Debug)]
struct Instance {
    address: SocketAddr,
    authority: String,
    condemned: bool,
}

/// How a link ended.
#[derive(Debug)]
enum End {
    /// The server's Close.
    Close(u16),
    /// The server's kernel, with a FIN.
    Fin,
    /// The server's kernel, with an RST, or ours.
    Error(String),
    /// The server does not speak WebSocket.
    Broken(&'static str),
    /// Too busy, or no WebSocket.
    Refused(Option<Micros>),
    /// Ours: a handshake or a close took too long.
    Late,
}

/// The swarm.
pub(crate) struct Swarm {
    given: Given,
    poll: Poll,
    links: Vec<Link>,
    calendar: Calendar,
    scratch: Vec<u8>,
    out: Vec<u8>,
    rng: fastrand::Rng,
    seed: u64,
    /// By number; a target's present one in `targets`.
    instances: Vec<Instance>,
    targets: Vec<u16>,
    /// Collectors that want to connect.
    wanting: VecDeque<u32>,
    /// Collectors that have not begun their goodbye.
    staying: VecDeque<u32>,
    /// How many have tried to connect.
    begun: u32,
    /// How many are on their way.
    coming: u32,
    leaving: u32,
    begin: Option<Micros>,
    stopping: bool,
    head: (Epoch, Arc<Head>),
    figures: Figures,
    errors: BTreeMap<String, u64>,
    progress_at: Micros,
    /// Whether all had settled when that was last said.
    whole: bool,
}

/// What is left of a swarm.
pub(crate) struct Remains {
    pub(crate) closed: Vec<Closed>,
    pub(crate) figures: Figures,
    pub(crate) errors: BTreeMap<String, u64>,
}

impl Swarm {
    /// A swarm that waits for [`Command::Go`].
    pub(crate) fn new(given: Given) -> io::Result<Self> {
        let instance = |address: &SocketAddr| Instance {
            address: *address,
            authority: address.to_string(),
            condemned: false,
        };
        let plan = &given.realm.plan;
        let count = usize::try_from(plan.len()).unwrap_or(usize::MAX);
        let served = (0..plan.len()).filter(|index| !plan.is_report_only(*index)).count();
        Ok(Self {
            poll: Poll::new()?,
            links: Vec::with_capacity(count),
            calendar: Calendar::default(),
            scratch: vec![0; SCRATCH],
            out: Vec::with_capacity(SCRATCH),
            rng: fastrand::Rng::new(),
            seed: fastrand::u64(..),
            instances: given.targets.iter().map(instance).collect(),
            targets: (0..).take(given.targets.len()).collect(),
            wanting: VecDeque::new(),
            staying: VecDeque::new(),
            begun: 0,
            coming: 0,
            leaving: 0,
            begin: None,
            stopping: false,
            head: given.realm.heads.latest(),
            figures: Figures::new(served as u64),
            errors: BTreeMap::new(),
            progress_at: 0,
            whole: false,
            given,
        })
    }

    /// Wakes the loop after a command was sent.
    pub(crate) fn waker(&self) -> io::Result<Waker> {
        Waker::new(self.poll.registry(), WAKE)
    }

    /// Runs until everybody has left, or the other end of `commands` is gone.
    pub(crate) fn run(
        mut self,
        commands: &Receiver<Command>,
        mut say: impl FnMut(Said),
    ) -> io::Result<Remains> {
        let mut events = Events::with_capacity(EVENTS);
        while !(self.stopping && self.staying.is_empty() && self.leaving == 0) {
            self.turn(&mut events, commands, &mut say)?;
        }
        Ok(self.end())
    }

    /// Waits for something to do, and does it.
    fn turn(
        &mut self,
        events: &mut Events,
        commands: &Receiver<Command>,
        say: &mut impl FnMut(Said),
    ) -> io::Result<()> {
        match self.poll.poll(events, Some(self.patience())) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            Err(error) => return Err(error),
        }
        let mut ahead = events.iter().skip(AHEAD);
        for event in &*events {
            if let Some(later) = ahead.next() {
                self.expect(later.token().0);
            }
            if let Ok(index) = u32::try_from(event.token().0)
                && event.token() != WAKE
            {
                self.handle_event(index, event.is_writable(), event.is_read_closed());
            }
        }
        loop {
            match commands.try_recv() {
                Ok(command) => self.obey(command, say),
                Err(std::sync::mpsc::TryRecvError::Empty) => break,
                Err(std::sync::mpsc::TryRecvError::Disconnected) => {
                    return Err(io::Error::other("nobody gives commands any more"));
                }
            }
        }
        self.follow();
        self.handle_due();
        self.start_due();
        self.connect_some(say);
        self.leave_some();
        let now = self.now();
        let whole = self.figures.settled == self.given.realm.plan.len();
        if now >= self.progress_at || whole != self.whole {
            self.whole = whole;
            self.progress_at = now.saturating_add(micros(PROGRESS));
            say(Said::Progress(self.figures.interval(self.head.0)));
        }
        Ok(())
    }

    fn now(&self) -> Micros {
        self.given.realm.clock.now()
    }

    /// How long nothing has to be done unless something comes in.
    fn patience(&self) -> Duration {
        let room = self.coming < COMING_MAX && !self.wanting.is_empty();
        let farewell = self.leaving < FAREWELLS_MAX && !self.staying.is_empty();
        if room || farewell {
            return Duration::ZERO;
        }
        let next = [self.next_start(), self.calendar.next_due()].into_iter().flatten().min();
        next.map_or(IDLE, |at| IDLE.min(Duration::from_micros(at.saturating_sub(self.now()))))
    }

    fn obey(&mut self, command: Command, say: &mut impl FnMut(Said)) {
        match command {
            Command::Go(begin) => self.begin = Some(begin),
            Command::Target(target, address) => {
                let number = u16::try_from(self.instances.len()).unwrap_or(u16::MAX);
                self.instances.push(Instance {
                    address,
                    authority: address.to_string(),
                    condemned: false,
                });
                if let Some(slot) = self.targets.get_mut(usize::from(target)) {
                    *slot = number;
                }
            }
            Command::Condemn(target) => {
                let number = self.targets.get(usize::from(target)).copied();
                if let Some(instance) =
                    number.and_then(|number| self.instances.get_mut(usize::from(number)))
                {
                    instance.condemned = true;
                }
                say(Said::Condemned(target));
            }
            Command::Storm => self.storm(),
            Command::Finish => self.stop(),
        }
    }

    /// A new head puts every collector elsewhere, perhaps.
    fn follow(&mut self) {
        if self.given.realm.heads.latest_epoch() == self.head.0 {
            return;
        }
        self.head = self.given.realm.heads.latest();
        for index in self.indices() {
            self.update_settled(index);
        }
    }

    /// When the next collector is to be started.
    fn next_start(&self) -> Option<Micros> {
        let next = self.started();
        (next < self.given.realm.plan.len() && !self.stopping).then_some(())?;
        self.intended(next)
    }

    /// When collector `index` was or is to be started.
    fn intended(&self, index: u32) -> Option<Micros> {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "not negative, and a float saturates"
        )]
        let offset = (f64::from(index) * self.given.every) as Micros;
        Some(self.begin?.saturating_add(offset))
    }

    fn started(&self) -> u32 {
        u32::try_from(self.links.len()).unwrap_or(u32::MAX)
    }

    fn indices(&self) -> std::ops::Range<u32> {
        0..self.started()
    }

    /// Makes everybody who is due, and remembers how late that is.
    fn start_due(&mut self) {
        let now = self.now();
        while let Some(intended) = self.next_start()
            && intended <= now
        {
            let index = self.started();
            let link = Link::new(index, Clock::unix_ms(), self.rng.fork(), &self.given.realm.plan);
            self.links.push(link);
            self.figures.live.started += 1;
            self.wanting.push_back(index);
        }
    }

    /// Opens links as far as there is room for those who are coming.
    fn connect_some(&mut self, say: &mut impl FnMut(Said)) {
        let (before, all) = (self.begun, self.given.realm.plan.len());
        for _ in 0..CONNECTS_AT_ONCE {
            if self.coming >= COMING_MAX || self.stopping {
                break;
            }
            let Some(index) = self.wanting.pop_front() else { break };
            self.connect(index);
        }
        if before < all && self.begun == all {
            say(Said::Begun);
        }
    }

    /// Lets some more say goodbye.
    fn leave_some(&mut self) {
        while self.leaving < FAREWELLS_MAX
            && let Some(index) = self.staying.pop_front()
        {
            self.leave(index);
        }
    }

    /// Looks at everybody whose time has come.
    fn handle_due(&mut self) {
        let now = self.now();
        let tick = Calendar::tick_of(now);
        for indices in self.calendar.take_due(now) {
            for (at, index) in indices.iter().copied().enumerate() {
                if let Some(later) = indices.get(at + AHEAD) {
                    self.expect(usize::try_from(*later).unwrap_or(usize::MAX));
                }
                let Some(link) = self.link(index) else { continue };
                if link.armed <= tick {
                    link.armed = 0;
                }
                self.handle_timeout(index);
            }
        }
    }

    /// The collector at that place is going to be looked at.
    fn expect(&self, at: usize) {
        if let Some(link) = self.links.get(at) {
            prefetch::near_soon(link);
        }
    }

    fn link(&mut self, index: u32) -> Option<&mut Link> {
        self.links.get_mut(usize::try_from(index).ok()?)
    }

    fn count_error(&mut self, text: String) {
        if self.errors.len() < ERRORS_MAX || self.errors.contains_key(&text) {
            *self.errors.entry(text).or_default() += 1;
        } else {
            *self.errors.entry("others".to_owned()).or_default() += 1;
        }
    }

    fn stop(&mut self) {
        self.stopping = true;
        self.wanting.clear();
        for index in self.indices() {
            let Some(link) = self.link(index) else { continue };
            match link.stage {
                Stage::Up => self.staying.push_back(index),
                Stage::Away | Stage::Upgrading | Stage::Closing | Stage::Done => {
                    self.abandon(index);
                }
            }
        }
    }

    fn end(self) -> Remains {
        let now = self.now();
        let heads = &self.given.realm.heads;
        let close = |link: Link| {
            let said = link.said_goodbye;
            link.collector.into_ledger().close(now, said, heads)
        };
        Remains {
            closed: self.links.into_iter().map(close).collect(),
            figures: self.figures,
            errors: self.errors,
        }
    }
}

#[cfg(test)]
mod tests;
