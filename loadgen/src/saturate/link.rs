//! One link, from its connect to its end.

use std::collections::VecDeque;
use std::io::{self, Read};

use bytes::Bytes;
use mio::event::Event;
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use prost::Message;

use super::messages::{Speaker, Template};
use super::reply::Expected;
use super::run::Run;
use crate::clock::Micros;
use crate::swarm::frames::{self, Partial};
use crate::swarm::upgrade::{self, Response};
use crate::swarm::{MESSAGE_MAX, open, send};

/// Where a link stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The request is out, or on its way.
    Upgrading,
    /// The first report is out.
    Introduced,
    /// That the offer is applied is told.
    Applied,
    /// Its messages count.
    Ready,
    /// The goodbye is out.
    Leaving,
    /// There is none any more.
    Gone,
}

/// One collector's link.
pub(super) struct Link {
    speaker: Speaker,
    accepts: bool,
    expected: Expected,
    socket: Option<TcpStream>,
    partial: Option<Box<Partial>>,
    stage: Stage,
    key: [u8; 24],
    /// The number of the next message.
    sequence: u64,
    /// When the messages that are unanswered were sent.
    owed: VecDeque<Micros>,
    template: Option<Template>,
    goodbye_answered: bool,
}

impl Link {
    /// Opens one, with the index as its token.
    pub(super) fn open(
        (speaker, expected, accepts): (Speaker, Expected, bool),
        index: u32,
        run: &mut Run,
        registry: &Registry,
    ) -> Self {
        let mut link = Self {
            speaker,
            accepts,
            expected,
            socket: None,
            partial: None,
            stage: Stage::Upgrading,
            key: upgrade::key(run.seed, index, 0),
            sequence: 0,
            owed: VecDeque::new(),
            template: None,
            goodbye_answered: false,
        };
        let token = Token(usize::try_from(index).unwrap_or(usize::MAX));
        let opened = open(run.endpoint.address, run.endpoint.source).and_then(|mut socket| {
            registry.register(&mut socket, token, Interest::READABLE | Interest::WRITABLE)?;
            Ok(socket)
        });
        let done = match opened {
            Ok(socket) => {
                link.socket = Some(socket);
                run.out.clear();
                let Run { out, endpoint, .. } = run;
                upgrade::write_request(out, &endpoint.authority, &endpoint.path, &link.key);
                link.flush(run)
            }
            Err(error) => Err(format!("connect: {error}")),
        };
        link.settle(done, run);
        link
    }

    /// The kernel says that something is to be done.
    pub(super) fn handle_event(&mut self, event: &Event, run: &mut Run) {
        run.out.clear();
        let waits = self.partial.as_ref().is_some_and(|partial| !partial.output.is_empty());
        let done = if event.is_writable() && waits { self.flush(run) } else { Ok(()) };
        let done = done.and_then(|()| self.read(event.is_read_closed(), run));
        self.settle(done, run);
    }

    /// Sends as much as may be under way.
    pub(super) fn start(&mut self, run: &mut Run) {
        run.out.clear();
        let done = self.fill(run);
        self.settle(done, run);
    }

    /// Says goodbye.
    pub(super) fn leave(&mut self, run: &mut Run) {
        match self.stage {
            Stage::Ready => {
                run.out.clear();
                let goodbye = self.speaker.goodbye(self.sequence).encode_to_vec();
                frames::write_message(&mut run.out, &goodbye, &mut run.rng);
                frames::write_close(&mut run.out, 1000, &mut run.rng);
                self.stage = Stage::Leaving;
                let done = self.flush(run);
                self.settle(done, run);
            }
            Stage::Upgrading | Stage::Introduced | Stage::Applied => {
                self.stage = Stage::Leaving;
                self.settle(Err("not needed any more".to_owned()), run);
            }
            Stage::Leaving | Stage::Gone => {}
        }
    }

    /// Counts a link that is over.
    fn settle(&mut self, done: Result<(), String>, run: &mut Run) {
        let Err(why) = done else { return };
        match self.stage {
            Stage::Gone => return,
            Stage::Leaving => {}
            Stage::Upgrading | Stage::Introduced | Stage::Applied | Stage::Ready => {
                run.lost += 1;
                run.complain(why);
            }
        }
        self.stage = Stage::Gone;
        self.socket = None;
        run.gone += 1;
        run.owed -= self.owed.len();
        self.owed.clear();
    }

    /// Reads until there is nothing more; to the end, where that has come as well.
    fn read(&mut self, ended: bool, run: &mut Run) -> Result<(), String> {
        loop {
            let Some(socket) = &mut self.socket else { return Ok(()) };
            let mut scratch = std::mem::take(&mut run.scratch);
            let more = match socket.read(&mut scratch) {
                Ok(0) => Err("the server closed the socket".to_owned()),
                // A short read has emptied the socket: an event announces what comes later, but not
                // an end that came together with these bytes.
                Ok(count) => self
                    .take(scratch.get(..count).unwrap_or_default(), run)
                    .map(|()| ended || count == scratch.len()),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::NotConnected => Ok(false),
                    io::ErrorKind::Interrupted => Ok(true),
                    _ => Err(error.to_string()),
                },
            };
            run.scratch = scratch;
            if !more? {
                return Ok(());
            }
        }
    }

    /// Takes what was read, and sends what may follow, all at once.
    fn take(&mut self, bytes: &[u8], run: &mut Run) -> Result<(), String> {
        let kept = self.partial.as_deref_mut().map(|partial| std::mem::take(&mut partial.input));
        let whole;
        let mut rest = bytes;
        if let Some(mut input) = kept.filter(|input| !input.is_empty()) {
            input.extend_from_slice(bytes);
            whole = input;
            rest = &whole;
        }
        run.out.clear();
        if self.stage == Stage::Upgrading {
            match upgrade::read_response(rest, &self.key) {
                Response::More => {}
                Response::Upgraded(used) => {
                    rest = rest.get(used..).unwrap_or_default();
                    self.stage = Stage::Introduced;
                    let report = self.speaker.described(0, &Bytes::new());
                    self.say(&report.encode_to_vec(), run);
                }
                Response::Throttled(_) => return Err("upgrade refused: too busy".to_owned()),
                Response::Refused(why) => return Err(why),
            }
        }
        if self.stage != Stage::Upgrading {
            let used = self.take_frames(rest, run)?;
            rest = rest.get(used..).unwrap_or_default();
        }
        if !rest.is_empty() {
            self.partial.get_or_insert_default().input = rest.to_vec();
        }
        self.fill(run)
    }

    /// Takes every frame that is whole; how many bytes that was.
    fn take_frames(&mut self, bytes: &[u8], run: &mut Run) -> Result<usize, String> {
        let now = run.clock.now();
        let mut partial = self.partial.take();
        let mut used = 0;
        loop {
            let rest = bytes.get(used..).unwrap_or_default();
            let (event, took) = frames::next(rest, &mut partial, MESSAGE_MAX)?;
            used += took;
            match event {
                Some(frames::Event::Binary(payload, _)) => self.handle_reply(payload, now, run)?,
                Some(frames::Event::Ping(payload, _)) => {
                    frames::write_pong(&mut run.out, payload, &mut run.rng);
                }
                Some(frames::Event::Pong) => {}
                Some(frames::Event::Text(_)) => return Err("a text frame".to_owned()),
                Some(frames::Event::Close(code)) => {
                    return Err(format!("Close {code} of the server"));
                }
                None => break,
            }
        }
        self.partial = partial;
        Ok(used)
    }

    /// An error is one after which the link cannot go on.
    fn handle_reply(&mut self, payload: &[u8], now: Micros, run: &mut Run) -> Result<(), String> {
        match self.stage {
            Stage::Introduced => match self.expected.check(payload, self.accepts) {
                Ok(Some(hash)) => {
                    self.stage = Stage::Applied;
                    let report = self.speaker.applied(self.sequence, &hash);
                    self.say(&report.encode_to_vec(), run);
                    self.prepare(&hash, run);
                }
                Ok(None) => {
                    self.prepare(&Bytes::new(), run);
                    self.handle_ready(run);
                }
                Err(why) => {
                    run.wrong += 1;
                    return Err(why);
                }
            },
            Stage::Applied => {
                self.judge(payload, run);
                self.handle_ready(run);
            }
            Stage::Ready | Stage::Leaving => {
                if let Some(sent_at) = self.owed.pop_front() {
                    run.owed -= 1;
                    run.answered += 1;
                    run.answered_at = now;
                    run.round_trip.saturating_record(now.saturating_sub(sent_at));
                } else if self.stage == Stage::Ready
                    || std::mem::replace(&mut self.goodbye_answered, true)
                {
                    run.wrong += 1;
                    run.complain("a reply to nothing".to_owned());
                }
                self.judge(payload, run);
            }
            Stage::Upgrading | Stage::Gone => {}
        }
        Ok(())
    }

    fn judge(&mut self, payload: &[u8], run: &mut Run) {
        if let Err(why) = self.expected.check(payload, false) {
            run.wrong += 1;
            run.complain(why);
        }
    }

    fn handle_ready(&mut self, run: &mut Run) {
        self.stage = Stage::Ready;
        run.ready += 1;
        run.answered_at = run.clock.now();
    }

    /// Makes what is sent from now on.
    fn prepare(&mut self, hash: &Bytes, run: &mut Run) {
        let message = self.speaker.message(run.kind, self.sequence, hash);
        let template = Template::new(message, &mut run.rng);
        run.message_bytes = run.message_bytes.max(template.size);
        self.template = Some(template);
    }

    fn say(&mut self, protobuf: &[u8], run: &mut Run) {
        frames::write_message(&mut run.out, protobuf, &mut run.rng);
        self.sequence += 1;
    }

    /// Sends as much as may be under way, and whatever waits.
    fn fill(&mut self, run: &mut Run) -> Result<(), String> {
        if self.stage == Stage::Ready
            && run.left > 0
            && let Some(template) = &mut self.template
        {
            let now = run.clock.now();
            while self.owed.len() < run.in_flight && run.left > 0 {
                run.left -= 1;
                template.write(self.sequence, &mut run.out, &mut run.rng);
                self.sequence += 1;
                self.owed.push_back(now);
                run.owed += 1;
                run.sent += 1;
            }
        }
        self.flush(run)
    }

    fn flush(&mut self, run: &mut Run) -> Result<(), String> {
        let Some(socket) = &mut self.socket else { return Ok(()) };
        send(socket, &mut self.partial, &mut run.out)
    }
}
