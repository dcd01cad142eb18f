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
use proto::peek::{Peek, PeekError};
use proto::session::{HeadFields, ReplyHead};
use render::artefact::{Artefact, ContentHash};
use render::rollout::evidence::Conn;
use render::snapshot::Snapshot;
use tokio::sync::watch;

use crate::aggregate::{Aggregator, Durable, Ticket};
use crate::clock::{Now, Seconds};
use crate::metrics::Metrics;
use crate::metrics::labels::{Closed, Transport};
use crate::tokens::Grant;

mod ahead;
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
mod message;
mod outgoing;
mod registry;
mod track;
mod versions;

pub use ahead::{
    Ahead, EARLY_LOOK_MAX, EARLY_LOOK_SECONDS, EARLY_LOOKS_BURST, HELD_LINKS_MAX, UNKNOWN_MAX,
};
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
use registry::Registry;
use track::{Leave, Teller};
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
    ahead: Ahead,
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
            ahead: Ahead::default(),
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
        head.introduce_populations();
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

    /// One HTTP exchange: a message, as far as it could be read, and its reply.
    pub fn handle_poll(
        &self,
        grant: &Grant,
        now: Now,
        peeked: Result<Peek<'_>, PeekError>,
    ) -> Outgoing {
        let peek = match peeked {
            Ok(peek) => peek,
            Err(error) => return self.refuse(error.into()),
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
        self.decide_again(link, now, Again::Outdated, emit)
    }

    /// Decides every agent of a link again whose offer was held ([`Ahead::end`] names the links), and
    /// emits what it takes, as [`Server::redecide`] does.
    pub fn release(
        &self,
        link: &mut LinkState,
        now: Now,
        emit: &mut dyn FnMut(Outgoing) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        self.decide_again(link, now, Again::All, emit)
    }

    fn decide_again(
        &self,
        link: &mut LinkState,
        now: Now,
        again: Again,
        emit: &mut dyn FnMut(Outgoing) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let head = self.head.load();
        let teller = self.teller(&head, now, link.owner);
        for agent in link.session.agents_mut() {
            let is_decided = again == Again::Outdated && agent.placed.placement(&head).is_some();
            if is_decided || !decide::settle(&head, agent) {
                continue;
            }
            teller.follow(agent, None);
            let offer = decide::decide(&head, agent, now.seconds, decide::Occasion::Push);
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

    /// Whether an agent of a link was sent the candidate and has not shown yet that it came.
    pub fn awaits_arrival(&self, link: &mut LinkState) -> bool {
        link.session.agents_mut().any(|agent| track::awaits_arrival(agent))
    }

    /// The kernel at the other end of a link has acknowledged everything that was sent on it.
    pub fn handle_arrived(&self, link: &mut LinkState, now: Now) {
        let head = self.head.load();
        let teller = self.teller(&head, now, link.owner);
        link.session.agents_mut().for_each(|agent| teller.handle_arrived(agent));
    }

    /// Looks which agents of a link have fallen silent, or are heard again; `heard` is when anything
    /// came on it last. A link that ever carried several agents vouches for none of them: whoever
    /// answers its pings is not them.
    ///
    /// `unread`: whether something came on it that nobody has read yet; asked before an agent
    /// counts as silent.
    pub fn handle_silence(
        &self,
        link: &mut LinkState,
        now: Now,
        heard: Seconds,
        unread: &dyn Fn() -> bool,
    ) {
        let head = self.head.load();
        let teller = self.teller(&head, now, link.owner);
        let heard = if link.session.ever_many() { 0 } else { heard };
        link.session.agents_mut().for_each(|agent| teller.look(agent, heard, unread));
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

    /// Who waits for a look at the source.
    pub fn ahead(&self) -> &Ahead {
        &self.ahead
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

/// Which agents of a link are decided again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Again {
    /// Those that the newest head has not decided.
    Outdated,
    All,
}

/// What is known of a head before it is served.
fn known(aggregator: &Aggregator, snapshot: &Snapshot, meta: &HeadMeta, now: Now) -> Known {
    let evidence = aggregator.handle_head(now, snapshot, &meta.commit);
    Known { evidence, now_ms: aggregator.now_ms(now) }
}

#[cfg(test)]
mod tests;
