//! Bytes in, replies out: everything between a link and a snapshot, without a socket.
//!
//! A transport keeps a [`LinkState`] per WebSocket, under a lock of its own, and calls
//!
//! * [`Server::handle_message`] for each message, and sends the one [`Outgoing`] that it returns;
//! * [`Server::redecide`] for each link after a head change ([`Server::heads`] tells), and sends
//!   what it emits;
//! * [`Server::handle_alive`] for each pong;
//! * [`Server::handle_silence`] for each link as often as [`Head::sweep_seconds`] says;
//! * [`Server::handle_closed`] when the link ends, before its [`LinkId`] is given to another;
//! * [`Server::handle_timeout`] about once per second, and does what it orders.
//!
//! An HTTP exchange is one call of [`Server::handle_poll`]; its sessions are kept in here.
//!
//! What is learned of collectors under a Rollout goes to the [`Aggregator`]. A reply that carries an
//! [`Outgoing::ticket`] waits for [`Server::durable`]; those behind it on its link wait with it.
//!
//! The head is loaded while the link's lock is held. A message that is handled with the old head
//! therefore ends before the pusher gets at that link, and nobody is left behind.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use proto::ids::InstanceUid;
use proto::peek::{Description, Peek};
use proto::session::{HeadFields, ReplyHead};
use render::artefact::{Artefact, ContentHash};
use render::rollout::evidence::Conn;
use render::snapshot::Snapshot;
use tokio::sync::watch;

use crate::aggregate::{Aggregator, Durable, Ticket};
use crate::clock::{Now, Seconds};
use crate::metrics::Metrics;
use crate::metrics::labels::{Closed, FullStateReason, Transport};
use crate::tokens::Grant;

mod budget;
mod census;
mod collectors;
mod decide;
mod duplicate;
mod failed;
mod head;
mod http_sessions;
mod kept;
mod link_state;
mod links;
mod outgoing;
mod registry;
mod track;
mod versions;

pub use budget::FULL_STATE_PER_SECOND;
pub use census::{ARMS, DELIVERIES, TierCount, delivery_label};
pub use collectors::{CollectorRow, Cursor, PAGE_MAX, Page, ParseCursorError};
pub use duplicate::{CONTESTS_MAX, Order, PING_SECONDS, VERDICT_SECONDS, VERDICTS_MAX};
pub use failed::FAILED_AGENTS_MAX;
pub use head::{Head, HeadMeta, arm_label, long_offers};
pub use http_sessions::{SESSION_SECONDS, SESSIONS_MAX};
pub use kept::KEPT_BYTES_MAX;
pub use link_state::LinkState;
pub use links::{LinkId, Linked, Links, LinksFull, Pages};
pub use outgoing::Outgoing;
pub use proto::session::Delivery;
pub use registry::Owner;
pub use track::OFFER_ARRIVES_SECONDS;
pub use versions::{VERSION_BYTES_MAX, VERSIONS_MAX};

use budget::Budget;
use duplicate::Duplicates;
use failed::FailedMemory;
use head::Known;
use http_sessions::{Ended, HttpSessions, Keep};
use kept::Kept;
use registry::Registry;
use track::{Heard, Leave, Teller};
use versions::Versions;

/// What a [`Server`] may be told at its start.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Full states asked for per second, of all agents together.
    pub full_state_per_second: u32,
    /// HTTP sessions at one time.
    pub http_sessions_max: usize,
    /// Agents of all links and HTTP sessions together.
    pub agents_max: usize,
    /// Randomness for new instance uids.
    pub random: fn() -> [u8; 10],
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            full_state_per_second: FULL_STATE_PER_SECOND,
            http_sessions_max: SESSIONS_MAX,
            agents_max: AGENTS_TOTAL_MAX,
            random: || {
                // A uid has to be unique, not secret.
                let mut random = [0; 10];
                fastrand::Rng::new().fill(&mut random);
                random
            },
        }
    }
}

/// Agents of a process: with [`KEPT_BYTES_MAX`] and the size of an agent's state, what peers can
/// make it remember of themselves stays below 4.3 GB, however many agents each link carries.
pub const AGENTS_TOTAL_MAX: usize = 1_000_000;

/// What [`Server::install`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Installed {
    /// Of the head that is served now.
    pub generation: u32,
    /// Whether its snapshot differs from the one before: only then has anybody to be decided again.
    pub changed: bool,
}

/// Everything that the links of a process share.
#[derive(Debug)]
pub struct Server {
    head: ArcSwap<Head>,
    heads: watch::Sender<u32>,
    registry: Registry,
    /// In sessions, not uids: clones on two links are two.
    agents: AtomicUsize,
    agents_max: usize,
    duplicates: Mutex<Duplicates>,
    /// The number of contests, so that a message need not take the lock to find none.
    contests: AtomicBool,
    polling: HttpSessions<LinkState>,
    failed: FailedMemory,
    aggregator: Arc<Aggregator>,
    versions: Versions,
    full_states: Budget,
    /// Serialises installs; readers never wait for it.
    installing: Mutex<()>,
    metrics: &'static Metrics,
    random: fn() -> [u8; 10],
}

/// How a link ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parting {
    /// When anything was heard on it last; 0 when nothing but its messages tells.
    pub heard: Seconds,
    /// This replica sent its collectors elsewhere.
    pub drained: bool,
}

/// How long a reply waits for its evidence to be on the disk; then it is sent anyway.
pub const DURABLE_WITHIN: Duration = Duration::from_secs(2);

/// A message that is refused: the text goes to the peer, the reason into
/// `tidegate_bad_messages_total`.
struct Refused {
    uid: Option<InstanceUid>,
    reason: &'static str,
    text: String,
}

/// The offer of an artefact, for [`render::snapshot::compile`].
pub fn encode_offer(artefact: &Artefact, content: &ContentHash) -> Bytes {
    proto::session::encode_offer(artefact.bytes(), &content.to_hex())
}

impl Server {
    /// Serves `snapshot`. There is always a head: without one nothing may listen. What is learned of
    /// collectors under Rollouts goes to `aggregator`.
    pub fn new(
        snapshot: Snapshot,
        meta: HeadMeta,
        metrics: &'static Metrics,
        settings: Settings,
        aggregator: Arc<Aggregator>,
        now: Now,
    ) -> Self {
        let known = known(&aggregator, &snapshot, &meta, now);
        let head = Head::first(snapshot, meta, metrics, known);
        Self {
            heads: watch::Sender::new(head.generation),
            head: ArcSwap::from_pointee(head),
            registry: Registry::default(),
            agents: AtomicUsize::new(0),
            agents_max: settings.agents_max,
            duplicates: Mutex::default(),
            contests: AtomicBool::new(false),
            polling: HttpSessions::new(settings.http_sessions_max),
            failed: FailedMemory::default(),
            aggregator,
            versions: Versions::default(),
            full_states: Budget::new(settings.full_state_per_second),
            installing: Mutex::new(()),
            metrics,
            random: settings.random,
        }
    }

    /// Swaps the head. HTTP sessions learn of it at their next poll; for the links see
    /// [`Server::heads`]. Brakes and failures that are known of its Rollouts are in force from its
    /// first decision on.
    pub fn install(&self, snapshot: Snapshot, meta: HeadMeta, now: Now) -> Installed {
        let _installing = self.installing.lock().unwrap_or_else(PoisonError::into_inner);
        let previous = self.head.load_full();
        let changed = previous.snapshot.digest != snapshot.digest;
        let known = known(&self.aggregator, &snapshot, &meta, now);
        let head = if changed {
            Head::after(&previous, snapshot, meta, self.metrics, known)
        } else {
            Head::again(&previous, meta, self.metrics, known)
        };
        let installed = Installed { generation: head.generation, changed };
        let head = Arc::new(head);
        self.head.store(Arc::clone(&head));
        self.metrics.offers.retain(|labels| {
            labels.get(1).is_none_or(|rollout| {
                rollout.is_empty()
                    || head.snapshot.rollouts.iter().any(|known| known.rollout.id == *rollout)
            })
        });
        if changed {
            self.metrics.head_swaps.increment(1);
            self.heads.send_replace(installed.generation);
        }
        installed
    }

    /// The head that is served.
    pub fn head(&self) -> Arc<Head> {
        self.head.load_full()
    }

    /// Changes to the generation of each head that has to be pushed.
    pub fn heads(&self) -> watch::Receiver<u32> {
        self.heads.subscribe()
    }

    /// Whether an agent lives here, over whichever transport.
    pub fn knows(&self, uid: &InstanceUid) -> bool {
        self.registry.get(uid).is_some()
    }

    /// Where an agent lives.
    pub fn owner(&self, uid: &InstanceUid) -> Option<Owner> {
        self.registry.get(uid)
    }

    /// Whether an agent has a live HTTP session: then its poll is no newcomer.
    pub fn polls(&self, uid: &InstanceUid, now: Now) -> bool {
        self.polling.contains(now.seconds, uid)
    }

    /// How many agents live here.
    pub fn agents(&self) -> usize {
        self.registry.len()
    }

    /// How many agents poll over HTTP.
    pub fn polling(&self) -> usize {
        self.polling.len()
    }

    /// Where every collector is, by Tier id, the Unmatched last.
    pub fn tiers(&self) -> Vec<TierCount> {
        self.head.load().census()
    }

    /// Takes in one message of a link, protobuf without a header, and returns the one reply that it
    /// gets. Bad input gets an error for its sender and harms nobody else on the link.
    pub fn handle_message(&self, link: &mut LinkState, now: Now, message: &[u8]) -> Outgoing {
        match Peek::parse(message) {
            Ok(peek) => self.handle_peeked(link, now, &peek),
            Err(error) => self.refuse(Refused {
                uid: error.uid(),
                reason: error.reason(),
                text: error.to_string(),
            }),
        }
    }

    /// One HTTP exchange: a message and its reply.
    pub fn handle_poll(&self, grant: &Grant, now: Now, message: &[u8]) -> Outgoing {
        let peek = match Peek::parse(message) {
            Ok(peek) => peek,
            Err(error) => {
                return self.refuse(Refused {
                    uid: error.uid(),
                    reason: error.reason(),
                    text: error.to_string(),
                });
            }
        };
        let mut gone = Vec::new();
        let (reply, fresh, kept) = self.polling.with(
            now.seconds,
            peek.uid,
            || LinkState::polling(grant.clone()),
            |link, fresh| {
                if link.grant.required() != grant.required() {
                    // What the session knows was said under another credential, and must not be
                    // told to this one.
                    self.handle_closed(link, now, Parting::default());
                }
                link.grant = grant.clone();
                let reply = self.handle_peeked(link, now, &peek);
                let keep = match link.session.agents().next() {
                    None => Keep::No,
                    Some(agent) => match link.session.assigned_uid(agent.uid()) {
                        Some(new) => Keep::As(new),
                        None => Keep::Yes,
                    },
                };
                ((reply, fresh, keep != Keep::No), keep)
            },
            &mut |_, session, ended| gone.push((session, ended)),
        );
        if fresh && kept {
            self.metrics.connects.get(Transport::Http).increment(1);
            self.metrics.connections.get(Transport::Http).increment(1.0);
        } else if !fresh && !kept {
            self.count_http_end(Closed::Peer);
        }
        for (mut session, ended) in gone {
            self.handle_ended(&mut session, now, ended);
        }
        reply
    }

    /// Decides every agent of a link again after a head change, and emits the offers that it takes:
    /// no acknowledgements, no questions. Agents whose attributes were not kept are asked for them
    /// in the reply to their next message.
    ///
    /// When `emit` breaks, so does this, and leaves the agents that it has not reached to the next
    /// call.
    pub fn redecide(
        &self,
        link: &mut LinkState,
        now: Now,
        emit: &mut dyn FnMut(Outgoing) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let head = self.head.load();
        let teller = self.teller(&head, now, link.owner);
        for agent in link.session.agents_mut() {
            if agent.placed.placement(&head).is_some() || !decide::settle(&head, agent) {
                continue;
            }
            teller.follow(agent, None);
            let offer = decide::decide(&head, agent, now.seconds, false);
            teller.report(agent, None, offer.is_some());
            if let Some(offer) = offer {
                let head = ReplyHead::new(agent.uid(), HeadFields::default());
                let body = Some(offer.bytes.clone());
                emit(Outgoing { head, body, refused: false, ticket: None })?;
            }
        }
        ControlFlow::Continue(())
    }

    /// A link has ended: its agents are gone.
    pub fn handle_closed(&self, link: &mut LinkState, now: Now, parting: Parting) {
        let head = self.head.load();
        let many = link.session.ever_many();
        let session = std::mem::take(&mut link.session);
        let conn = if parting.drained { Conn::Drained } else { Conn::Lost };
        let heard = if many { 0 } else { parting.heard };
        let leave = Leave { conn, outside: false, heard };
        let teller = self.teller(&head, now, link.owner);
        session.into_agents(|mut agent| self.forget(&teller, &mut agent, link.owner, leave));
        if let Owner::Link(id) = link.owner
            && self.has_contests()
        {
            self.with_duplicates(|duplicates| duplicates.handle_closed(id));
        }
    }

    /// A pong came: somebody is at the other end of the link.
    pub fn handle_alive(&self, link: &mut LinkState, now: Now) {
        if let Owner::Link(id) = link.owner
            && self.has_contests()
        {
            self.with_duplicates(|duplicates| duplicates.handle_alive(now.seconds, id));
        }
        let head = self.head.load();
        let teller = self.teller(&head, now, link.owner);
        link.session.agents_mut().for_each(|agent| teller.handle_alive(agent));
    }

    /// Looks which agents of a link have fallen silent, or are heard again; `heard` is when anything
    /// came on it last. A link that ever carried several agents vouches for none of them: whoever
    /// answers its pings is not them.
    pub fn handle_silence(&self, link: &mut LinkState, now: Now, heard: Seconds) {
        let head = self.head.load();
        let teller = self.teller(&head, now, link.owner);
        let heard = if link.session.ever_many() { 0 } else { heard };
        link.session.agents_mut().for_each(|agent| teller.look(agent, heard));
    }

    /// Waits until what a reply acknowledges is on the disk, but no longer than [`DURABLE_WITHIN`]
    /// less `waited`.
    pub async fn durable(&self, ticket: Ticket, waited: Duration) {
        let within = DURABLE_WITHIN.saturating_sub(waited);
        match tokio::time::timeout(within, self.aggregator.committed(ticket)).await {
            Ok(Durable::Stored | Durable::Memory) => {}
            Ok(Durable::Failed) | Err(_) => self.metrics.late_acknowledgements.increment(1),
        }
    }

    /// What evidence is told to.
    pub fn aggregator(&self) -> &Arc<Aggregator> {
        &self.aggregator
    }

    fn teller<'s>(&'s self, head: &'s Head, now: Now, owner: Owner) -> Teller<'s> {
        let Self { aggregator, versions, .. } = self;
        Teller { aggregator, versions, head, now, polls: owner == Owner::Http }
    }

    /// The ping of [`Order::Ping`] is about to be sent on this link.
    pub fn handle_pinged(&self, link: &mut LinkState, uid: InstanceUid, now: Now) {
        let Owner::Link(id) = link.owner else { return };
        let sequence = link.session.get(uid).map(proto::session::Agent::sequence);
        let many = link.session.ever_many();
        self.with_duplicates(|duplicates| {
            duplicates.handle_pinged(now.seconds, id, uid, sequence, many);
        });
    }

    /// What is due: pings and verdicts about duplicate uids, and the end of silent HTTP sessions.
    /// Call it about once per second.
    pub fn handle_timeout(&self, now: Now, orders: &mut dyn FnMut(Order)) {
        let mut due = Vec::new();
        let replaced = self.with_duplicates(|duplicates| {
            duplicates.handle_timeout(now.seconds, &mut due);
            duplicates.replaced(now.seconds)
        });
        self.metrics.duplicate_identities.set(replaced as f64);
        due.into_iter().for_each(orders);

        let mut gone = Vec::new();
        self.polling
            .handle_timeout(now.seconds, &mut |_, session, ended| gone.push((session, ended)));
        for (mut session, ended) in gone {
            self.handle_ended(&mut session, now, ended);
        }
    }

    // hot: once per message. A heartbeat allocates nothing and takes no lock but its link's.
    fn handle_peeked(&self, link: &mut LinkState, now: Now, peek: &Peek<'_>) -> Outgoing {
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
            decide::decide(&head, agent, now.seconds, true)
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

    fn forget(
        &self,
        teller: &Teller<'_>,
        agent: &mut proto::session::Agent<decide::Placed>,
        owner: Owner,
        leave: Leave,
    ) {
        self.agents.fetch_sub(1, Ordering::Relaxed);
        decide::uncount(teller.head, &mut agent.placed);
        teller.leave(agent, leave);
        // Where it lives elsewhere by now, that link knows more.
        let was_here = self.registry.remove(agent.uid(), owner);
        if was_here
            && agent.failures().is_some()
            && let Some(who) = agent.placed.plain()
        {
            self.failed.keep(who, agent.failures());
        }
    }

    fn handle_ended(&self, session: &mut LinkState, now: Now, ended: Ended) {
        self.handle_closed(session, now, Parting::default());
        self.count_http_end(match ended {
            Ended::Expired => Closed::Expired,
            Ended::Evicted => Closed::Evicted,
        });
    }

    fn count_http_end(&self, closed: Closed) {
        self.metrics.disconnects.get(Transport::Http).get(closed).increment(1);
        self.metrics.connections.get(Transport::Http).decrement(1.0);
    }

    /// An error alone: nothing else may stand beside it.
    #[cold]
    fn refuse(&self, refused: Refused) -> Outgoing {
        let Refused { uid, reason, text } = refused;
        self.metrics.bad_messages.count(&[reason]);
        tracing::debug!(uid = ?uid, reason, text = %text.escape_debug(), "message refused");
        let head =
            uid.map_or_else(ReplyHead::anonymous, |uid| ReplyHead::new(uid, HeadFields::default()));
        let body = Some(proto::session::encode_bad_request(&text));
        Outgoing { head, body, refused: true, ticket: None }
    }

    fn has_contests(&self) -> bool {
        self.contests.load(Ordering::Acquire)
    }

    fn with_duplicates<R>(&self, with: impl FnOnce(&mut Duplicates) -> R) -> R {
        let mut duplicates: MutexGuard<'_, Duplicates> =
            self.duplicates.lock().unwrap_or_else(PoisonError::into_inner);
        let result = with(&mut duplicates);
        self.contests.store(!duplicates.is_idle(), Ordering::Release);
        result
    }
}

/// What is known of a head before it is served.
fn known(aggregator: &Aggregator, snapshot: &Snapshot, meta: &HeadMeta, now: Now) -> Known {
    let evidence = aggregator.handle_head(now, snapshot, &meta.commit);
    Known { evidence, now_ms: aggregator.now_ms(now) }
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

#[cfg(test)]
mod tests;
