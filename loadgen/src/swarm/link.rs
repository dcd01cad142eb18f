//! One collector's link, from its connect to its end.

mod ends;
pub(super) mod socket;

use std::io::{self, Read};
use std::time::Duration;

use mio::Token;
use mio::net::TcpStream;

use super::calendar::Armed;
use super::frames::{self, Partial};
use super::upgrade::{self, Response};
use super::{End, Swarm};
use crate::agent::Sent;
use crate::agent::backoff::Backoff;
use crate::clock::{Micros, micros};
use crate::collector::Collector;
use crate::endpoint::CONNECT_TIMEOUT;
use crate::ledger::Noted;
use crate::plan::Plan;
use socket::{interest, open, send, waits};

/// Largest message taken from a server (serving.md 1.2, W4).
pub(crate) const MESSAGE_MAX: usize = 64 << 20;
/// How long opamp-go waits for the server's Close.
pub(crate) const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Where a link stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// There is none; the collector waits, or wants one.
    Away,
    /// The request is out, or on its way.
    Upgrading,
    /// A WebSocket.
    Up,
    /// Our Close is out.
    Closing,
    /// The collector has left.
    Done,
}

/// One collector and its link.
pub(super) struct Link {
    pub(super) collector: Collector,
    pub(super) stage: Stage,
    pub(super) armed: Armed,
    /// When the handshake or the close is late, or the wait before another attempt is over.
    due: Micros,
    /// When the last link broke, until the next one is up; 0 is never.
    lost_at: Micros,
    socket: Option<TcpStream>,
    partial: Option<Box<Partial>>,
    backoff: Backoff,
    /// Links and attempts so far: what makes each handshake's key.
    connections: u32,
    instance: u16,
    /// Attempts since the last link.
    attempts: u8,
    offered: bool,
    ever_connected: bool,
    /// Whether the server has said anything on this link.
    answered: bool,
    /// Whether it counts among those who are on their way.
    coming: bool,
    /// Whether the kernel is to say when the socket takes something again.
    hears_writable: bool,
    settled: bool,
    leaving: bool,
    pub(super) said_goodbye: bool,
}

impl Link {
    pub(super) fn new(index: u32, unix_ms: u64, rng: fastrand::Rng, plan: &Plan) -> Self {
        Self {
            collector: Collector::new(index, unix_ms, rng, plan),
            stage: Stage::Away,
            armed: 0,
            due: 0,
            lost_at: 0,
            socket: None,
            partial: None,
            backoff: Backoff::default(),
            connections: 0,
            instance: 0,
            attempts: 0,
            offered: false,
            ever_connected: false,
            answered: false,
            coming: false,
            hears_writable: false,
            settled: false,
            leaving: false,
            said_goodbye: false,
        }
    }
}

impl Swarm {
    /// Opens a link: to the collector's own target first, then to others, each collector in an order
    /// of its own.
    pub(super) fn connect(&mut self, index: u32) {
        let now = self.now();
        let intended = self.intended(index).unwrap_or(now);
        let Some(target) = self.target_of(index) else { return };
        let Some(link) = self.links.get_mut(usize::try_from(index).unwrap_or(usize::MAX)) else {
            return;
        };
        if link.stage != Stage::Away {
            return;
        }
        if link.connections == 0 {
            let late = now.saturating_sub(intended);
            self.figures.timings.connect_lateness.saturating_record(late);
            self.begun += 1;
        }
        link.connections = link.connections.wrapping_add(1);
        link.instance = target;
        let Some(instance) = self.instances.get(usize::from(target)) else { return };
        let key = upgrade::key(self.seed, index, link.connections);
        self.out.clear();
        upgrade::write_request(&mut self.out, &instance.authority, &self.given.path, &key);
        let source = (!self.given.sources.is_empty()).then(|| {
            let turn = usize::try_from(index).unwrap_or_default() + usize::from(link.attempts);
            self.given.sources[turn % self.given.sources.len()] // not empty, and a remainder
        });
        let opened = open(instance.address, source).and_then(|mut socket| {
            // Over loopback the request goes out at once: no event has to say that it may.
            let sent = send(&mut socket, &mut link.partial, &mut self.out);
            sent.map_err(io::Error::other)?;
            link.hears_writable = waits(link.partial.as_deref());
            let interest = interest(link.hears_writable);
            self.poll.registry().register(&mut socket, token(index), interest)?;
            Ok(socket)
        });
        match opened {
            Ok(socket) => {
                link.socket = Some(socket);
                link.stage = Stage::Upgrading;
                link.due = now.saturating_add(micros(CONNECT_TIMEOUT));
                link.answered = false;
                link.coming = true;
                self.coming += 1;
                self.calendar.arm(index, &mut link.armed, link.due);
            }
            Err(error) => self.handle_failure(index, None, Some(format!("connect: {error}"))),
        }
    }

    /// The instance to which a collector's next attempt goes.
    fn target_of(&self, index: u32) -> Option<u16> {
        let count = u32::try_from(self.targets.len()).ok().filter(|count| *count > 0)?;
        let number = self.given.first.wrapping_add(index);
        let home = self.given.homes.of(number, count);
        let attempts = self.links.get(usize::try_from(index).ok()?)?.attempts;
        let turn = if attempts == 0 || count == 1 {
            home
        } else {
            let step = (number / count).wrapping_add(u32::from(attempts)) % (count - 1);
            (home + 1 + step) % count
        };
        self.targets.get(usize::try_from(turn).ok()?).copied()
    }

    /// The kernel says that something is to be done.
    pub(super) fn handle_event(&mut self, index: u32, writable: bool, ended: bool) {
        let Some(link) = self.link(index) else { return };
        if link.socket.is_none() {
            return; // of a socket that is closed already
        }
        if writable && waits(link.partial.as_deref()) {
            self.out.clear();
            self.flush(index);
        }
        self.read(index, ended);
    }

    /// Reads until there is nothing more; to the end, where that has come as well.
    fn read(&mut self, index: u32, ended: bool) {
        loop {
            let mut scratch = std::mem::take(&mut self.scratch);
            let Some(link) = self.link(index) else { return self.scratch = scratch };
            let Some(socket) = &mut link.socket else { return self.scratch = scratch };
            let read = socket.read(&mut scratch);
            let (end, more) = match read {
                Ok(0) => (Some(End::Fin), false),
                Ok(count) => {
                    let now = self.now();
                    let end = self.take(index, now, scratch.get(..count).unwrap_or_default());
                    // A short read has emptied the socket: an event announces what comes later, but
                    // not an end that came together with these bytes.
                    (end, ended || count == scratch.len())
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => (None, false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => (None, true),
                Err(error) if error.kind() == io::ErrorKind::NotConnected => (None, false),
                Err(error) => (Some(End::Error(error.to_string())), false),
            };
            self.scratch = scratch;
            if let Some(end) = end {
                return self.handle_end(index, end);
            }
            if !more {
                return;
            }
        }
    }

    /// Takes what was read then, and does what follows from it.
    fn take(&mut self, index: u32, now: Micros, bytes: &[u8]) -> Option<End> {
        let link = self.link(index)?;
        let kept = link.partial.as_deref_mut().map(|partial| &mut partial.input);
        let kept = kept.filter(|input| !input.is_empty()).map(std::mem::take);
        let whole;
        let mut rest = bytes;
        if let Some(mut input) = kept {
            input.extend_from_slice(bytes);
            whole = input;
            rest = &whole;
        }
        self.out.clear();
        if self.link(index)?.stage == Stage::Upgrading {
            match self.upgrade(index, now, rest) {
                Ok(used) => rest = rest.get(used..).unwrap_or_default(),
                Err(end) => return Some(end),
            }
        }
        if matches!(self.link(index)?.stage, Stage::Up | Stage::Closing) {
            match self.take_frames(index, now, rest) {
                Ok(used) => rest = rest.get(used..).unwrap_or_default(),
                Err(end) => return Some(end),
            }
        }
        let link = self.link(index)?;
        if !rest.is_empty() {
            link.partial.get_or_insert_default().input = rest.to_vec();
        } else if link.partial.as_ref().is_some_and(|partial| partial.is_empty()) {
            link.partial = None;
        }
        self.drive(index, now);
        None
    }

    /// The server answers the request for a WebSocket.
    fn upgrade(&mut self, index: u32, now: Micros, bytes: &[u8]) -> Result<usize, End> {
        let seed = self.seed;
        let Some(link) = self.link(index) else { return Ok(0) };
        let key = upgrade::key(seed, index, link.connections);
        match upgrade::read_response(bytes, &key) {
            Response::More => Ok(0),
            Response::Upgraded(used) => {
                self.handle_up(index, now);
                Ok(used)
            }
            Response::Throttled(after) => {
                self.figures.live.throttled += 1;
                Err(End::Refused(after))
            }
            Response::Refused(why) => {
                self.count_error(why);
                Err(End::Refused(None))
            }
        }
    }

    fn handle_up(&mut self, index: u32, now: Micros) {
        let Self { links, figures, given, .. } = self;
        let Some(link) = links.get_mut(usize::try_from(index).unwrap_or(usize::MAX)) else {
            return;
        };
        link.stage = Stage::Up;
        link.attempts = 0;
        link.backoff.handle_connected();
        figures.connected += 1;
        if !std::mem::replace(&mut link.ever_connected, true) {
            figures.live.ever_connected += 1;
        }
        let lost_at = std::mem::take(&mut link.lost_at);
        if lost_at > 0 {
            figures.timings.away.saturating_record(now.saturating_sub(lost_at));
        }
        link.collector.handle_connected(given.realm.world());
    }

    /// Takes every frame that is whole; how many bytes that was.
    fn take_frames(&mut self, index: u32, now: Micros, bytes: &[u8]) -> Result<usize, End> {
        let at = usize::try_from(index).unwrap_or(usize::MAX);
        let Some(link) = self.links.get_mut(at) else { return Ok(0) };
        let mut partial = link.partial.take();
        let mut used = 0;
        let taken = loop {
            let rest = bytes.get(used..).unwrap_or_default();
            let (event, took) = match frames::next(rest, &mut partial, MESSAGE_MAX) {
                Ok(next) => next,
                Err(why) => break Err(End::Broken(why)),
            };
            used += took;
            let Some(event) = event else { break Ok(used) };
            self.give_room(index);
            let Some(link) = self.links.get_mut(at) else { break Ok(used) };
            let realm = &self.given.realm;
            link.answered = true;
            let noted = match event {
                frames::Event::Binary(payload, wire) => {
                    link.collector.handle_websocket(now, payload, wire, realm.world())
                }
                frames::Event::Text(wire) => {
                    link.collector.handle_undecodable(now, wire, "a text frame", realm.world())
                }
                frames::Event::Ping(payload, wire) => {
                    frames::write_pong(&mut self.out, payload, &mut self.rng);
                    link.collector.handle_ping(now, wire, realm.world())
                }
                frames::Event::Pong => Noted::default(),
                frames::Event::Close(code) => break Err(End::Close(code)),
            };
            self.note(index, &noted);
        };
        if let Some(link) = self.links.get_mut(at) {
            link.partial = partial;
        }
        taken
    }

    /// Sends what the collector has to say, and sees to it that it is looked at in time.
    pub(super) fn drive(&mut self, index: u32, now: Micros) {
        self.try_goodbye(index, now);
        let at = usize::try_from(index).unwrap_or(usize::MAX);
        while let Some(link) = self.links.get_mut(at).filter(|link| link.stage == Stage::Up) {
            let world = self.given.realm.world();
            let Some((sent, message)) = link.collector.poll_transmit(now, world) else { break };
            self.figures.live.messages += 1;
            frames::write_message(&mut self.out, &message, &mut self.rng);
            if sent == Sent::Disconnect {
                frames::write_close(&mut self.out, 1000, &mut self.rng);
                link.stage = Stage::Closing;
                link.said_goodbye = true;
                link.due = now.saturating_add(micros(CLOSE_TIMEOUT));
            }
        }
        self.flush(index);
        self.update_settled(index);
        self.arm(index);
    }

    /// Writes what waits, then what is in `out`; what the socket does not take waits.
    fn flush(&mut self, index: u32) {
        let at = usize::try_from(index).unwrap_or(usize::MAX);
        let Some(link) = self.links.get_mut(at) else { return };
        let Some(socket) = &mut link.socket else { return };
        let mut sent = send(socket, &mut link.partial, &mut self.out);
        if sent.is_ok() && !link.hears_writable && waits(link.partial.as_deref()) {
            link.hears_writable = true;
            let watched = self.poll.registry().reregister(socket, token(index), interest(true));
            sent = watched.map_err(|error| error.to_string());
        }
        if let Err(why) = sent {
            self.handle_end(index, End::Error(why));
        }
    }

    fn arm(&mut self, index: u32) {
        let reply_timeout = self.given.reply_timeout;
        let world = self.given.realm.world();
        let at = usize::try_from(index).unwrap_or(usize::MAX);
        let Some(link) = self.links.get_mut(at) else { return };
        let deadline = match link.stage {
            Stage::Up => {
                let goodbye = link.collector.owed_since().filter(|_| link.leaving);
                let goodbye = goodbye.map(|since| since.saturating_add(reply_timeout));
                [link.collector.poll_timeout(world), goodbye].into_iter().flatten().min()
            }
            Stage::Upgrading | Stage::Closing => Some(link.due),
            Stage::Away | Stage::Done => None,
        };
        if let Some(deadline) = deadline {
            self.calendar.arm(index, &mut link.armed, deadline);
        }
    }

    /// Something may be due.
    pub(super) fn handle_timeout(&mut self, index: u32) {
        let now = self.now();
        let Some(link) = self.link(index) else { return };
        let (stage, due) = (link.stage, link.due);
        match stage {
            Stage::Done => {}
            Stage::Away if link.due > 0 => {
                if now >= due {
                    link.due = 0;
                    self.wanting.push_back(index);
                } else {
                    self.calendar_at(index, due);
                }
            }
            Stage::Away => {}
            Stage::Upgrading | Stage::Closing => {
                if now >= due {
                    self.handle_end(index, End::Late);
                } else {
                    self.arm(index);
                }
            }
            Stage::Up => {
                if now >= due {
                    self.give_room(index); // a server that says nothing keeps nobody else out
                }
                let Self { links, given, figures, .. } = self;
                let at = usize::try_from(index).unwrap_or(usize::MAX);
                let Some(link) = links.get_mut(at) else { return };
                let world = given.realm.world();
                let deadline = link.collector.poll_timeout(world);
                if let Some(deadline) = deadline.filter(|deadline| now >= *deadline) {
                    let late = now.saturating_sub(deadline);
                    figures.timings.timer_lateness.saturating_record(late);
                    let noted = link.collector.handle_timeout(now, world);
                    self.note(index, &noted);
                }
                self.out.clear();
                self.drive(index, now);
            }
        }
    }

    /// It is not on its way any more.
    pub(super) fn give_room(&mut self, index: u32) {
        if self.link(index).is_some_and(|link| std::mem::take(&mut link.coming)) {
            self.coming -= 1;
        }
    }

    fn calendar_at(&mut self, index: u32, deadline: Micros) {
        let at = usize::try_from(index).unwrap_or(usize::MAX);
        if let Some(link) = self.links.get_mut(at) {
            self.calendar.arm(index, &mut link.armed, deadline);
        }
    }

    /// Counts a collector among those that run what the newest head says, or no longer.
    pub(super) fn update_settled(&mut self, index: u32) {
        let Self { links, figures, given, head, .. } = self;
        let at = usize::try_from(index).unwrap_or(usize::MAX);
        let Some(link) = links.get_mut(at) else { return };
        let plan = &given.realm.plan;
        // A heartbeat that is not answered yet unsettles nobody.
        let settled = link.stage == Stage::Up
            && (link.collector.is_settled_under(&head.1, plan)
                || (link.settled && link.collector.runs_what_says(&head.1, plan)));
        match (std::mem::replace(&mut link.settled, settled), settled) {
            (false, true) => figures.settled += 1,
            (true, false) => figures.settled = figures.settled.saturating_sub(1),
            _ => {}
        }
    }

    /// Leaves the figures of what just happened.
    fn note(&mut self, index: u32, noted: &Noted) {
        let intended = self.intended(index);
        let Self { links, figures, given, .. } = self;
        figures.live.wrong += u64::from(noted.wrong);
        if let Some(after) = noted.reply_after {
            figures.record_reply(after);
        }
        let Some((delivery, _)) = &noted.right else { return };
        let at = usize::try_from(index).unwrap_or(usize::MAX);
        let Some(link) = links.get_mut(at) else { return };
        figures.live.offers += 1;
        figures.note_offer(delivery.epoch, delivery.at);
        if std::mem::replace(&mut link.offered, true) {
            let seen_at = given.realm.heads.seen_at(delivery.epoch).unwrap_or(delivery.at);
            figures.record_change(delivery.at.saturating_sub(seen_at));
        } else {
            figures.live.first_offers += 1;
            let intended = intended.unwrap_or(delivery.at);
            figures.record_first_offer(delivery.at.saturating_sub(intended));
        }
    }
}

fn token(index: u32) -> Token {
    Token(usize::try_from(index).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::net::{Ipv4Addr, TcpListener};
    use std::sync::mpsc::channel;

    use super::socket::OUTPUT_MAX;
    use super::*;
    use crate::swarm::Command;
    use crate::swarm::tests::{swarm, until, upgrade_and_fall_silent};

    #[test]
    fn what_the_socket_did_not_take_is_sent_as_soon_as_it_does() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut swarm = swarm(1, listener.local_addr().unwrap());
        let (commands, orders) = channel();
        commands.send(Command::Go(0)).unwrap();
        until(&mut swarm, &orders, &|swarm| swarm.coming == 1);
        assert!(!swarm.links[0].hears_writable);
        let server = upgrade_and_fall_silent(&listener);
        until(&mut swarm, &orders, &|swarm| swarm.figures.live.messages == 1);
        server.set_nonblocking(true).unwrap();
        let heard = Cell::new(0);
        let listen = || {
            let mut bytes = vec![0; OUTPUT_MAX];
            while let Ok(count) = (&server).read(&mut bytes) {
                heard.set(heard.get() + count);
            }
        };
        listen();
        let (report, mut said) = (heard.take(), 0);
        assert!(report > 0);
        while !waits(swarm.links[0].partial.as_deref()) {
            swarm.out.resize(OUTPUT_MAX / 2, 7);
            said += swarm.out.len();
            swarm.flush(0);
        }
        assert!(swarm.links[0].hears_writable);
        until(&mut swarm, &orders, &|swarm| {
            listen();
            !waits(swarm.links[0].partial.as_deref()) && heard.get() == said
        });
        assert_eq!(swarm.figures.live.links_lost, 0);
    }

    #[test]
    fn a_collector_with_its_link_is_small() {
        // With four bytes in the plan, four in each head and some in the calendar it has to stay
        // below 1,024 resident bytes; the rest is what an allocator rounds up to.
        assert!(size_of::<Link>() <= 384, "{}", size_of::<Link>());
        assert!(size_of::<Collector>() <= 320, "{}", size_of::<Collector>());
    }
}
