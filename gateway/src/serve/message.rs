//! What one message comes to: exactly one reply.

use std::sync::atomic::Ordering;

use proto::ids::InstanceUid;
use proto::peek::{Description, Gathered, Peek, PeekError};
use proto::session::{HeadFields, ReplyHead};
use render::rollout::evidence::Conn;

use super::head::Head;
use super::kept::Kept;
use super::track::{Heard, Leave};
use super::{LinkState, Outgoing, Owner, Server, decide};
use crate::clock::Now;
use crate::metrics::labels::{Closed, FullStateReason};
use crate::tokens::Grant;

/// A message that is refused: the text goes to the peer, the reason into
/// `tidegate_bad_messages_total`.
pub(super) struct Refused {
    pub(super) uid: Option<InstanceUid>,
    pub(super) reason: &'static str,
    pub(super) text: String,
}

impl From<PeekError> for Refused {
    fn from(error: PeekError) -> Self {
        Self { uid: error.uid(), reason: error.reason(), text: error.to_string() }
    }
}

impl Server {
    /// Takes in one message of a link, protobuf without a header, and returns the one reply that it
    /// gets. Bad input gets an error for its sender and harms nobody else on the link.
    pub fn handle_message(&self, link: &mut LinkState, now: Now, message: &[u8]) -> Outgoing {
        match Peek::parse(message, &mut Gathered::default()) {
            Ok(peek) => self.handle_peeked(link, now, &peek),
            Err(error) => self.refuse(error.into()),
        }
    }

    // hot: once per message. A heartbeat allocates nothing and takes no lock but its link's.
    pub(super) fn handle_peeked(
        &self,
        link: &mut LinkState,
        now: Now,
        peek: &Peek<'_>,
    ) -> Outgoing {
        let head = self.head.load();
        let slots = peek.description.as_ref().map(|description| head.slots_of(description));
        if let (Some(description), Some(slots)) = (&peek.description, &slots) {
            let checked =
                check_grant(&link.grant, description).map_err(|text| ("binding", text)).and_then(
                    |()| Kept::check(slots).map_err(|error| ("attributes", error.to_string())),
                );
            if let Err((reason, text)) = checked {
                return self.refuse(Refused { uid: Some(peek.uid), reason, text });
            }
        }

        let exchange = link.exchange();
        let (owner, many) = (link.owner, link.session.ever_many());
        let content_of_raw = |raw: &[u8; 32]| head.snapshot.content_of_raw(raw).map(|hash| hash.0);
        if self.agents.load(Ordering::Relaxed) >= self.agents_max
            && link.session.get(peek.uid).is_none()
        {
            let text = format!("this gateway knows {} agents already", self.agents_max);
            return self.refuse(Refused { uid: Some(peek.uid), reason: "agents", text });
        }
        let received = link.session.handle_message(now.seconds, exchange, peek, content_of_raw);
        let received = match received {
            Ok(received) => received,
            Err(error) => {
                let (uid, text) = (Some(peek.uid), error.to_string());
                return self.refuse(Refused { uid, reason: "agents", text });
            }
        };
        let (agent, news) = (received.agent, received.news);
        if news.first {
            self.agents.fetch_add(1, Ordering::Relaxed);
        }
        if news.first || received.renamed_from.is_some() {
            self.register(peek, owner, many, now, received.renamed_from);
        }
        let mut is_other = false;
        if let (Some(description), Some(slots)) = (&peek.description, &slots) {
            is_other = decide::describe(&head, agent, slots, description);
        }
        if let Some(who) = agent.placed.plain() {
            let known = if is_other { self.failed.get(who) } else { None };
            let restored = known.is_some();
            if let Some(failures) = known {
                agent.restore_failures(failures);
            }
            let brought = is_other && agent.failures().is_some();
            if restored || brought || news.failed.is_some() || news.recovered {
                self.failed.keep(who, agent.failures());
            }
        }
        if let Some(content) = news.failed
            && self.metrics.peer_log.allow(now.seconds)
        {
            log_failed(peek, content);
        }
        if news.disconnect {
            return self.farewell(&head, link, now, peek.uid);
        }

        let teller = self.teller(&head, now, owner);
        let heard = Heard { peek, news };
        let offer = if decide::settle(&head, agent) {
            teller.follow(agent, peek.description.is_some().then_some(peek));
            teller.read_wiring(agent, heard);
            let occasion = decide::Occasion::Reply { ahead: &self.ahead, owner };
            decide::decide(&head, agent, now.seconds, occasion)
        } else {
            None
        };
        let ticket = teller.report(agent, Some(heard), offer.is_some());
        let full_state = agent.poll_full_state(now.seconds, || self.full_states.take(now.seconds));
        if let Some(reason) = full_state {
            let reason = full_state_label(reason, owner);
            self.metrics.full_state_requests.get(reason).increment(1);
        }
        let fields = HeadFields {
            full_state: full_state.is_some(),
            new_uid: self.new_uid(link, now, peek),
            capabilities: offer.is_none(),
        };
        let body = offer.map(|offer| offer.bytes.clone());
        Outgoing { head: ReplyHead::new(peek.uid, fields), body, refused: false, ticket }
    }

    /// The uid that the sender of `peek` is to take, if any.
    fn new_uid(&self, link: &mut LinkState, now: Now, peek: &Peek<'_>) -> Option<InstanceUid> {
        let asks = peek.flags & proto::capabilities::AGENT_REQUESTS_INSTANCE_UID != 0;
        let many = link.session.ever_many();
        let told = match link.owner {
            Owner::Link(id) if self.has_contests() => self.with_duplicates(|duplicates| {
                duplicates.handle_alive(now.seconds, id);
                duplicates.take_verdict(now.seconds, id, peek.uid, many)
            }),
            Owner::Link(_) | Owner::Http => false,
        };
        (asks || told).then(|| {
            let new = InstanceUid::v7(now.unix_ms, (self.random)());
            link.session.assign_uid(peek.uid, new)
        })
    }

    fn register(
        &self,
        peek: &Peek<'_>,
        owner: Owner,
        many: bool,
        now: Now,
        renamed_from: Option<InstanceUid>,
    ) {
        if let Some(old) = renamed_from {
            self.registry.remove(old, owner);
        }
        match (self.registry.insert(peek.uid, owner), owner) {
            (None, _) => {}
            (Some(Owner::Link(old)), Owner::Link(new)) => self.with_duplicates(|duplicates| {
                if !duplicates.handle_claim(peek.uid, old, Some(new), peek.sequence, many) {
                    tracing::debug!(uid = %peek.uid, "too many duplicate uids to settle this one");
                }
            }),
            (Some(Owner::Link(old)), Owner::Http) => self.with_duplicates(|duplicates| {
                duplicates.handle_claim(peek.uid, old, None, peek.sequence, many);
            }),
            // It polled until now; its session has nothing more to say.
            (Some(Owner::Http), _) => {
                if let Some(mut session) = self.polling.remove(peek.uid) {
                    let head = self.head.load();
                    let session = std::mem::take(&mut session.session);
                    let teller = self.teller(&head, now, Owner::Http);
                    let leave = Leave { conn: Conn::Lost, outside: false, heard: 0 };
                    session.into_agents(|mut agent| {
                        self.forget(&teller, &mut agent, Owner::Http, leave);
                    });
                    self.count_http_end(Closed::Duplicate);
                }
            }
        }
    }

    /// The reply to an agent's last message. The link stays, for whoever else is on it.
    fn farewell(&self, head: &Head, link: &mut LinkState, now: Now, uid: InstanceUid) -> Outgoing {
        if let Some(mut agent) = link.session.handle_disconnect(uid) {
            let leave = Leave { conn: Conn::Left, outside: false, heard: now.seconds };
            self.forget(&self.teller(head, now, link.owner), &mut agent, link.owner, leave);
        }
        let fields = HeadFields { capabilities: true, ..HeadFields::default() };
        Outgoing { head: ReplyHead::new(uid, fields), body: None, refused: false, ticket: None }
    }

    /// An error alone: nothing else may stand beside it.
    #[cold]
    pub(super) fn refuse(&self, refused: Refused) -> Outgoing {
        let Refused { uid, reason, text } = refused;
        self.metrics.bad_messages.count(&[reason]);
        tracing::debug!(uid = ?uid, reason, text = %text.escape_debug(), "message refused");
        let head =
            uid.map_or_else(ReplyHead::anonymous, |uid| ReplyHead::new(uid, HeadFields::default()));
        let body = Some(proto::session::encode_bad_request(&text));
        Outgoing { head, body, refused: true, ticket: None }
    }
}

/// What a credential obliges an agent to report (serving.md, decision 15), by the matching rule:
/// identifying attributes win, and so does the last of several.
fn check_grant(grant: &Grant, description: &Description<'_>) -> Result<(), String> {
    for (name, value) in grant.required() {
        let mut said = None;
        for (key, text) in description.non_identifying().chain(description.identifying()) {
            if key == &**name && text.is_some() {
                said = text;
            }
        }
        if said != Some(&**value) {
            return Err(format!("the credential requires the attribute {name} to be {value:?}"));
        }
    }
    Ok(())
}

fn full_state_label(reason: proto::session::FullStateReason, owner: Owner) -> FullStateReason {
    use proto::session::FullStateReason as Reason;
    match (reason, owner) {
        (Reason::Unknown, Owner::Link(_)) => FullStateReason::Unknown,
        (Reason::Unknown, Owner::Http) => FullStateReason::Moved,
        (Reason::Gap, _) => FullStateReason::Gap,
        (Reason::Attributes, _) => FullStateReason::Attributes,
    }
}

/// Bytes of a peer's error text that go into a log line.
const LOGGED_BYTES_MAX: usize = 256;

#[cold]
fn log_failed(peek: &Peek<'_>, content: proto::session::ContentKey) {
    let text = peek.remote_config_status.map_or("", |status| status.error_message);
    let text = &text[..text.floor_char_boundary(LOGGED_BYTES_MAX)];
    tracing::info!(uid = %peek.uid, %content, error = %text.escape_debug(), "configuration failed");
}
