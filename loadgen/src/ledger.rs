//! What one collector was sent, judged message by message.
//!
//! The books are kept apart from the [`Agent`](crate::agent::Agent), which believes what it is
//! told: the ledger believes nothing. Each message of the server is one of: an *ack* (exactly uid
//! and capabilities), a *right offer* (byte for byte what the plain model expects), a full-state
//! request where one is due, or it goes into the books as wrong, a duplicate, or bytes beyond acks.
//!
//! Replies and pushes look alike on a WebSocket. A message without an offer can only be a reply; an
//! offer that comes while a reply is owed counts as that reply, and is taken for a push after all
//! when the owed reply still comes. The first answer on a link is never a push.

mod entries;
mod judge;
pub(crate) mod offer;

use std::sync::Arc;

use bytes::Bytes;
use proto::capabilities::{SERVER_CAPABILITIES, SERVER_REPORT_FULL_STATE};
use proto::ids::InstanceUid;
use proto::opamp as wire;
use smallvec::SmallVec;

use crate::agent::Sent;
use crate::clock::Micros;
use crate::heads::{Epoch, Heads};
use crate::model::Artefact;
pub use entries::{Delivery, Finding, Noted, Sums, Wrong};

/// Offers that no head explains yet and that wait for a head to be seen; one more is wrong at once.
const WAITING_MAX: usize = 8;
/// Explanations that one collector keeps; the first ones say what is wrong.
const FINDINGS_MAX: usize = 4;
/// How long after a push the reply that it overtook may come.
const OVERTAKEN_MAX: Micros = 10_000_000;
/// A server may ping a link that has been silent for 45 s (serving.md, decision 2); a second less,
/// for two clocks that tick apart.
const PING_AFTER: Micros = 44_000_000;
/// From our first sight of a brake to the last moment at which a candidate that was on its way may
/// still come.
const BRAKE_LATE: Micros = 3_000_000;

#[derive(Clone, Debug)]
struct Held {
    epoch: Epoch,
    artefact: Arc<Artefact>,
}

#[derive(Clone, Debug)]
struct Waiting {
    at: Micros,
    hash: Bytes,
    body: Bytes,
}

/// Whether the collector has said its last word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goodbye {
    Unsaid,
    Said,
    Answered,
}

/// The books of one collector.
#[derive(Debug)]
pub struct Ledger {
    index: u32,
    accepts: bool,
    held: Option<Held>,
    deliveries: SmallVec<[Delivery; 1]>,
    owed: SmallVec<[Micros; 2]>,
    answered_on_link: bool,
    sent_at: Micros,
    goodbye: Goodbye,
    full_state_due: bool,
    candidate_offers: u32,
    sums: Sums,
    /// What most collectors never have.
    rare: Option<Box<Rare>>,
}

/// What is there only once something has gone another way than usual.
#[derive(Clone, Debug, Default)]
struct Rare {
    waiting: Vec<Waiting>,
    maybe_pushes: Vec<Micros>,
    /// Contents of which FAILED was told, and not yet acknowledged.
    failing: Vec<u64>,
    /// Contents of which FAILED was told and acknowledged.
    failed: Vec<u64>,
    beyond_by_epoch: Vec<(Epoch, u64)>,
    wrongs: Vec<(Wrong, u32)>,
    findings: Vec<Finding>,
}

impl Rare {
    fn is_empty(&self) -> bool {
        self.waiting.is_empty()
            && self.maybe_pushes.is_empty()
            && self.failing.is_empty()
            && self.failed.is_empty()
            && self.beyond_by_epoch.is_empty()
            && self.wrongs.is_empty()
            && self.findings.is_empty()
    }
}

/// What is left of a ledger at the end.
#[derive(Debug)]
pub struct Closed {
    /// Which collector.
    pub index: u32,
    /// Whether it takes offers.
    pub accepts: bool,
    /// Sums.
    pub sums: Sums,
    /// Right offers, in order.
    pub deliveries: Vec<Delivery>,
    /// The content of the last right offer.
    pub held: Option<u64>,
    /// Offers of a Rollout's candidate, right or not.
    pub candidate_offers: u32,
    /// Bytes beyond acks by the head in force when they came.
    pub beyond_by_epoch: Vec<(Epoch, u64)>,
    /// How often what went wrong.
    pub wrongs: Vec<(Wrong, u32)>,
    /// The first explanations.
    pub findings: Vec<Finding>,
}

impl Ledger {
    /// Empty books of one collector of the plan.
    pub fn new(index: u32, accepts: bool) -> Self {
        Self {
            index,
            accepts,
            held: None,
            deliveries: SmallVec::new(),
            owed: SmallVec::new(),
            answered_on_link: false,
            sent_at: 0,
            goodbye: Goodbye::Unsaid,
            full_state_due: false,
            candidate_offers: 0,
            sums: Sums::default(),
            rare: None,
        }
    }

    fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// A message went out; a reply is owed. Whoever says goodbye has waited for all others: what
    /// is owed then is missing. The reply to a goodbye may come or cross the close.
    pub fn handle_sent(&mut self, now: Micros, sent: Sent) {
        self.sums.sent += 1;
        match sent {
            Sent::Hello => self.full_state_due = true,
            Sent::Full => self.full_state_due = false,
            Sent::Delta | Sent::Heartbeat => {}
            Sent::Disconnect => {
                self.give_up_owed(now);
                self.goodbye = Goodbye::Said;
                // No answer tells when the server read it: a ping may be from before.
                return;
            }
        }
        self.sent_at = now;
        self.owed.push(now);
    }

    /// The message that went out says that this content FAILED.
    pub fn handle_failed(&mut self, content: u64) {
        let rare = self.rare();
        if !rare.failing.contains(&content) && !rare.failed.contains(&content) {
            rare.failing.push(content);
        }
    }

    /// A new process under the same attributes: it holds nothing. What FAILED is remembered, as the
    /// server must.
    pub fn handle_restarted(&mut self) {
        self.handle_connected();
        self.held = None;
        if let Some(rare) = &mut self.rare {
            rare.waiting.clear();
        }
        self.full_state_due = false;
    }

    /// Contents that FAILED, as far as the server has acknowledged it.
    pub fn failed(&self) -> usize {
        self.rare.as_ref().map_or(0, |rare| rare.failed.len())
    }

    /// A new link: what the last one owed is forgiven, and a FAILED that it did not acknowledge is
    /// none.
    pub fn handle_connected(&mut self) {
        self.owed.clear();
        self.answered_on_link = false;
        if let Some(rare) = &mut self.rare {
            rare.failing.clear();
            rare.maybe_pushes.clear();
        }
        self.rare.take_if(|rare| rare.is_empty());
    }

    /// A message came that is not even protobuf.
    pub fn handle_undecodable(
        &mut self,
        now: Micros,
        bytes: usize,
        why: &str,
        heads: &Heads,
    ) -> Noted {
        let mut noted = Noted::default();
        self.receive(bytes);
        self.beyond(bytes, heads);
        self.wrong(&mut noted, Wrong::Undecodable, now, || why.to_owned());
        noted
    }

    /// An exact ack came.
    pub fn handle_ack(&mut self, now: Micros, bytes: usize, heads: &Heads) -> Noted {
        let mut noted = Noted::default();
        self.receive(bytes);
        if self.settle_reply(now, false, &mut noted) {
            self.sums.acks += 1;
        } else {
            self.beyond(bytes, heads);
            self.wrong(&mut noted, Wrong::Extra, now, || {
                "an ack, though no message of ours was unanswered".to_owned()
            });
        }
        noted
    }

    /// Anything else came, addressed or not to `uid`.
    pub fn handle_message(
        &mut self,
        now: Micros,
        uid: InstanceUid,
        message: &wire::ServerToAgent,
        bytes: usize,
        heads: &Heads,
    ) -> Noted {
        let mut noted = Noted::default();
        self.receive(bytes);
        if !self.settle_reply(now, message.remote_config.is_some(), &mut noted) {
            self.wrong(&mut noted, Wrong::Extra, now, || {
                format!("{}, though no message of ours was unanswered", summary(message))
            });
        }
        self.check_envelope(now, uid, message, heads, &mut noted);
        if let Some(offer) = &message.remote_config {
            self.check_offer(now, offer, heads, &mut noted);
        }
        if noted.wrong > 0 {
            self.beyond(bytes, heads);
        }
        noted
    }

    /// A ping of the server's WebSocket.
    pub fn handle_ping(&mut self, now: Micros, bytes: usize, heads: &Heads) -> Noted {
        let mut noted = Noted::default();
        self.receive(bytes);
        self.sums.pings += 1;
        let silent = now.saturating_sub(self.sent_at);
        // One that it has not answered may have crossed the ping, or wait to be read.
        if silent < PING_AFTER && self.owed.is_empty() {
            self.beyond(bytes, heads);
            self.wrong(&mut noted, Wrong::Unexpected, now, || {
                format!("a ping {} ms after our last message", silent / 1_000)
            });
        }
        noted
    }

    /// An HTTP status that no good message of ours should get.
    pub fn handle_http_status(&mut self, now: Micros, status: u16, text: &str) -> Noted {
        let mut noted = Noted::default();
        self.take_owed();
        self.wrong(&mut noted, Wrong::HttpStatus, now, || {
            format!("HTTP status {status}: {}", text.chars().take(200).collect::<String>())
        });
        noted
    }

    /// Judges offers that waited for a head to be seen.
    pub fn handle_heads(&mut self, now: Micros, heads: &Heads) -> Noted {
        let mut noted = Noted::default();
        self.judge_waiting(now, heads, &mut noted);
        noted
    }

    /// When offers that wait have waited for long enough.
    pub fn waits_until(&self, heads: &Heads) -> Option<Micros> {
        let waiting = self.rare.as_ref()?.waiting.first();
        waiting.map(|waiting| waiting.at.saturating_add(heads.window()))
    }

    /// When the newest message that is unanswered was sent, if one is.
    pub fn owed_since(&self) -> Option<Micros> {
        self.owed.last().copied()
    }

    /// The content of the last right offer.
    pub fn held(&self) -> Option<&Arc<Artefact>> {
        self.held.as_ref().map(|held| &held.artefact)
    }

    /// Closes the books. Offers that wait are judged by the heads that are known; what is owed on a
    /// link that is up, and was waited for, is missing.
    pub fn close(mut self, now: Micros, connected: bool, heads: &Heads) -> Closed {
        self.judge_waiting(Micros::MAX, heads, &mut Noted::default());
        if connected {
            self.give_up_owed(now);
        }
        let rare = self.rare.take().map_or_else(Rare::default, |rare| *rare);
        Closed {
            index: self.index,
            accepts: self.accepts,
            sums: self.sums,
            deliveries: self.deliveries.into_vec(),
            held: self.held.map(|held| held.artefact.short),
            candidate_offers: self.candidate_offers,
            beyond_by_epoch: rare.beyond_by_epoch,
            wrongs: rare.wrongs,
            findings: rare.findings,
        }
    }

    /// Takes one owed reply off; false when none is owed and this cannot be a push.
    fn settle_reply(&mut self, now: Micros, is_offer: bool, noted: &mut Noted) -> bool {
        if let Some(sent_at) = self.take_owed() {
            noted.reply_after = Some(now.saturating_sub(sent_at));
            if is_offer && self.answered_on_link {
                self.rare().maybe_pushes.push(now);
            }
            self.answered_on_link = true;
            let all_answered = self.owed.is_empty();
            if let Some(rare) = self.rare.as_mut().filter(|_| all_answered) {
                rare.failed.append(&mut rare.failing);
            }
            return true;
        }
        if is_offer {
            return true;
        }
        if let Some(rare) = &mut self.rare {
            rare.maybe_pushes.retain(|at| now.saturating_sub(*at) < OVERTAKEN_MAX);
            if rare.maybe_pushes.pop().is_some() {
                return true;
            }
        }
        let due = self.goodbye == Goodbye::Said;
        if due {
            self.goodbye = Goodbye::Answered;
        }
        due
    }

    /// The oldest message that is owed a reply, no longer owed one.
    fn take_owed(&mut self) -> Option<Micros> {
        (!self.owed.is_empty()).then(|| self.owed.remove(0))
    }

    fn give_up_owed(&mut self, now: Micros) {
        for sent_at in std::mem::take(&mut self.owed) {
            self.wrong(&mut Noted::default(), Wrong::Unanswered, now, || {
                format!("no reply for {} ms", now.saturating_sub(sent_at) / 1_000)
            });
        }
    }

    fn check_envelope(
        &mut self,
        now: Micros,
        uid: InstanceUid,
        message: &wire::ServerToAgent,
        heads: &Heads,
        noted: &mut Noted,
    ) {
        if message.instance_uid != uid.0[..] {
            self.wrong(noted, Wrong::Misaddressed, now, || {
                format!(
                    "addressed to {}, not to {uid}",
                    InstanceUid::from_slice(&message.instance_uid).map_or_else(
                        || format!("{} bytes", message.instance_uid.len()),
                        |uid| uid.to_string()
                    )
                )
            });
        }
        if let Some(error) = &message.error_response {
            self.wrong(noted, Wrong::Refused, now, || {
                format!("error_response {}: {}", error.r#type, error.error_message)
            });
            return;
        }
        if message.capabilities != SERVER_CAPABILITIES {
            self.wrong(noted, Wrong::Capabilities, now, || {
                format!("capabilities {:#x}, not {SERVER_CAPABILITIES:#x}", message.capabilities)
            });
        }
        if message.flags & SERVER_REPORT_FULL_STATE != 0 {
            self.sums.full_state_requests += 1;
            if !std::mem::take(&mut self.full_state_due) && !heads.latest().1.mentions_more {
                self.wrong(noted, Wrong::Unexpected, now, || {
                    "asked for full state, which was reported on this link and has no gap"
                        .to_owned()
                });
            }
        }
        let odd = [
            (message.flags & !SERVER_REPORT_FULL_STATE != 0, "other flags"),
            (message.agent_identification.is_some(), "another uid for the collector"),
            (message.connection_settings.is_some(), "connection settings"),
            (message.command.is_some(), "a command"),
            (message.custom_capabilities.is_some(), "custom capabilities"),
            (message.custom_message.is_some(), "a custom message"),
        ];
        for (_, what) in odd.into_iter().filter(|(there, _)| *there) {
            self.wrong(noted, Wrong::Unexpected, now, || what.to_owned());
        }
        let bare = message.flags == 0 && message.remote_config.is_none();
        if bare && noted.wrong == 0 {
            // Decodes as an ack but is not one byte for byte.
            self.wrong(noted, Wrong::Unexpected, now, || {
                "an ack with bytes in it that say nothing".to_owned()
            });
        }
    }

    fn receive(&mut self, bytes: usize) {
        self.sums.bytes_received += bytes as u64;
    }

    fn beyond(&mut self, bytes: usize, heads: &Heads) {
        let (epoch, bytes) = (heads.latest_epoch(), bytes as u64);
        self.sums.bytes_beyond_acks += bytes;
        let by_epoch = &mut self.rare().beyond_by_epoch;
        match by_epoch.last_mut() {
            Some((last, sum)) if *last == epoch => *sum += bytes,
            Some(_) | None => by_epoch.push((epoch, bytes)),
        }
    }

    fn wrong(
        &mut self,
        noted: &mut Noted,
        wrong: Wrong,
        at: Micros,
        text: impl FnOnce() -> String,
    ) {
        noted.wrong += 1;
        let rare = self.rare();
        match rare.wrongs.iter_mut().find(|(kind, _)| *kind == wrong) {
            Some((_, count)) => *count += 1,
            None => rare.wrongs.push((wrong, 1)),
        }
        if rare.findings.len() < FINDINGS_MAX {
            rare.findings.push(Finding { wrong, at, text: text() });
        }
    }
}

fn summary(message: &wire::ServerToAgent) -> &'static str {
    if message.error_response.is_some() {
        "an error_response"
    } else if message.flags != 0 {
        "flags"
    } else {
        "a message without an offer"
    }
}

#[cfg(test)]
mod tests;
