//! On a replica: what waits to be sent to each aggregator, and what each has taken in
//! (rollouts.md, decisions 8, 9, 17 and 18).
//!
//! Members wait in their shards ([`super::waiting`]), cells that have such members in [`Link::ready`].
//! Whoever FAILED goes before all others, since its collector waits for an answer. A connection
//! begins with everybody, so nothing needs to be remembered about what was on its way when one
//! breaks.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use render::rollout::evidence::{Identity, Millis, ReportKey};
use tokio::sync::{Notify, watch};

use super::cell::Cell;
use super::waiting::Told;
use super::{Durable, Ticket, lock};
use crate::uplink::AGGREGATORS_MAX;

const _: () = assert!(AGGREGATORS_MAX <= u8::BITS as usize);

/// FAILED that are sent before everything else, to one aggregator. Past it they are sent with the
/// rest, and whoever waits for their acknowledgement waits in vain.
pub const URGENT_MAX: usize = 65_536;
/// Members of one shard in a row, so that no shard waits for another one's storm.
const TURN: usize = 16;
/// What an aggregator that is not connected said holds for so long, if another one is.
const WORD_HOLDS_MS: Millis = 3_600_000;
/// A connection's offset replaces the one before when it is later by so much: an aggregator whose
/// clock was set forward. Smaller differences are the network's.
const OFFSET_STEP_MS: i64 = 5_000;

/// What a cell has for one aggregator.
#[derive(Debug, Default)]
pub(super) struct Sends {
    /// It is in [`Link::ready`].
    ready: AtomicBool,
    /// Members of the full state that were not sent yet.
    of_sync: AtomicUsize,
}

/// All aggregators of a replica; none for a process that is no replica of others.
#[derive(Debug)]
pub(super) struct Links {
    links: Box<[Link]>,
    /// A bit per aggregator that is connected.
    connected: AtomicU8,
    /// A bit per aggregator whose word counts.
    counting: AtomicU8,
    /// A bit per aggregator that has taken in a full state since the process began.
    synced: AtomicU8,
    cells: Mutex<BTreeMap<u32, Weak<Cell>>>,
    tickets: Mutex<Tickets>,
    progress: watch::Sender<u64>,
    head: Mutex<Arc<Served>>,
}

#[derive(Debug, Default)]
struct Link {
    wake: Notify,
    /// Numbers of cells that have members that wait; each once.
    ready: Mutex<VecDeque<u32>>,
    /// About how many members wait.
    waiting: AtomicUsize,
    /// From this process's time to the aggregator's.
    offset_ms: Mutex<Option<i64>>,
    /// When it was last connected, by this process's time; `None` while it is.
    lost_ms: Mutex<Option<Millis>>,
}

/// What a replica serves, for aggregators to be told.
#[derive(Debug, Default)]
pub(crate) struct Served {
    /// Changes with each head.
    pub(crate) version: u64,
    pub(crate) commit: Box<str>,
    pub(crate) rollouts: Box<[Reported]>,
}

/// One Rollout of it.
#[derive(Debug)]
pub(crate) struct Reported {
    pub(crate) cell: Arc<Cell>,
    pub(crate) key: ReportKey,
    /// Digest of the `halt` block.
    pub(crate) halt: u64,
}

/// Who waits for which acknowledgement.
#[derive(Debug, Default)]
struct Tickets {
    asked: u64,
    links: Vec<Progress>,
}

/// How far one aggregator is.
#[derive(Debug, Default)]
struct Progress {
    connected: bool,
    /// Tickets through this one are covered by the full state of the present connection.
    before_sync: u64,
    /// Not on their way yet.
    urgent: VecDeque<(u64, u32, Identity)>,
    stored: Reach,
    handled: Reach,
    /// What became of the last that was not stored.
    kept: Option<Durable>,
}

/// Tickets that were acknowledged.
#[derive(Clone, Copy, Debug, Default)]
struct Reach {
    /// Through this one.
    all: u64,
    /// Of those after the full state began, through this one.
    since_sync: u64,
}

impl Reach {
    fn covers(self, ticket: u64, before_sync: u64) -> bool {
        ticket <= self.all || (ticket > before_sync && ticket <= self.since_sync)
    }
}

/// What was taken to be sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Batch {
    /// The newest ticket in it; 0: none.
    pub(crate) ticket: u64,
    /// Others wait.
    pub(crate) more: bool,
}

impl Links {
    pub(super) fn new(uplinks: usize) -> Self {
        let uplinks = uplinks.min(AGGREGATORS_MAX);
        let progress = std::iter::repeat_with(Progress::default).take(uplinks).collect();
        Self {
            links: std::iter::repeat_with(Link::default).take(uplinks).collect(),
            connected: AtomicU8::new(0),
            counting: AtomicU8::new(u8::MAX),
            synced: AtomicU8::new(0),
            cells: Mutex::default(),
            tickets: Mutex::new(Tickets { asked: 0, links: progress }),
            progress: watch::Sender::new(0),
            head: Mutex::default(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.links.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// A bit per aggregator that changes are to be sent to. Read it under the shard's lock.
    pub(super) fn connected(&self) -> u8 {
        self.connected.load(Ordering::Acquire)
    }

    /// A bit per aggregator whose word counts.
    pub(super) fn counting(&self) -> u8 {
        self.counting.load(Ordering::Relaxed)
    }

    /// A bit per aggregator that has taken in a full state.
    pub(super) fn synced(&self) -> u8 {
        self.synced.load(Ordering::Relaxed)
    }

    pub(super) fn register(&self, number: u32, cell: &Arc<Cell>) {
        if !self.is_empty() {
            let mut cells = lock(&self.cells);
            cells.retain(|_, cell| cell.strong_count() > 0);
            cells.insert(number, Arc::downgrade(cell));
        }
    }

    pub(super) fn set_head(&self, commit: &str, rollouts: Box<[Reported]>) {
        if self.is_empty() {
            return;
        }
        let mut head = lock(&self.head);
        *head = Arc::new(Served { version: head.version + 1, commit: commit.into(), rollouts });
        drop(head);
        self.links.iter().for_each(|link| link.wake.notify_one());
    }

    pub(super) fn head(&self) -> Arc<Served> {
        Arc::clone(&lock(&self.head))
    }

    /// Some members of a cell wait.
    pub(super) fn note_waiting(&self, cell: &Cell) {
        let connected = self.connected();
        for (at, (link, sends)) in self.links.iter().zip(cell.sends()).enumerate() {
            if connected & 1 << at == 0 {
                continue;
            }
            link.waiting.fetch_add(1, Ordering::Relaxed);
            if !sends.ready.swap(true, Ordering::AcqRel) {
                lock(&link.ready).push_back(cell.number());
                link.wake.notify_one();
            }
        }
    }

    /// A member that somebody waits for.
    #[cold]
    pub(super) fn send_soon(&self, cell: u32, identity: Identity) -> Ticket {
        let mut tickets = lock(&self.tickets);
        let Tickets { asked, links } = &mut *tickets;
        let mut connected = links.iter_mut().filter(|link| link.connected);
        if links_are_full(&mut connected) {
            return Ticket(u64::MAX);
        }
        *asked += 1;
        for link in links.iter_mut().filter(|link| link.connected) {
            link.urgent.push_back((*asked, cell, identity));
        }
        let ticket = Ticket(*asked);
        drop(tickets);
        self.links.iter().for_each(|link| link.wake.notify_one());
        ticket
    }

    /// Waits until one aggregator has what the ticket was given for on its disk; or until all that
    /// are connected have it, none of them there.
    pub(super) async fn committed(&self, Ticket(ticket): Ticket) -> Durable {
        let mut progress = self.progress.subscribe();
        loop {
            progress.borrow_and_update();
            if let Some(durable) = self.durable(ticket) {
                return durable;
            }
            if progress.changed().await.is_err() {
                return Durable::Failed;
            }
        }
    }

    fn durable(&self, ticket: u64) -> Option<Durable> {
        let tickets = lock(&self.tickets);
        if tickets.links.iter().any(|link| link.stored.covers(ticket, link.before_sync)) {
            return Some(Durable::Stored);
        }
        let mut connected = tickets.links.iter().filter(|link| link.connected).peekable();
        connected.peek()?;
        let mut kept = Durable::Failed;
        for link in connected {
            if !link.handled.covers(ticket, link.before_sync) {
                return None;
            }
            if link.kept == Some(Durable::Memory) {
                kept = Durable::Memory;
            }
        }
        Some(kept)
    }

    /// A connection begins: everybody waits. The newest ticket that its full state covers.
    pub(super) fn connect(&self, link: usize) -> u64 {
        let Some(this) = self.links.get(link) else { return 0 };
        *lock(&this.lost_ms) = None;
        let before_sync = {
            let mut tickets = lock(&self.tickets);
            let asked = tickets.asked;
            if let Some(progress) = tickets.links.get_mut(link) {
                progress.connected = true;
                progress.before_sync = asked;
                progress.urgent.clear();
            }
            asked
        };
        // First the bit, so that who comes while the others are told to wait waits too.
        self.connected.fetch_or(1 << link, Ordering::AcqRel);
        let mut all = 0;
        for cell in self.cells() {
            let mut of_cell = 0;
            cell.each(|shard| of_cell += shard.wait_all(link));
            all += of_cell;
            if let Some(sends) = cell.sends().get(link) {
                sends.of_sync.store(of_cell, Ordering::Relaxed);
                if of_cell > 0 && !sends.ready.swap(true, Ordering::AcqRel) {
                    lock(&this.ready).push_back(cell.number());
                }
            }
        }
        this.waiting.store(all, Ordering::Relaxed);
        before_sync
    }

    /// The connection is gone: nobody waits for it.
    pub(super) fn disconnect(&self, link: usize, now_ms: Millis) {
        let Some(this) = self.links.get(link) else { return };
        self.connected.fetch_and(!(1 << link), Ordering::AcqRel);
        lock(&this.lost_ms).get_or_insert(now_ms);
        {
            let mut tickets = lock(&self.tickets);
            if let Some(progress) = tickets.links.get_mut(link) {
                progress.connected = false;
                progress.urgent.clear();
                // What it acknowledged out of turn is known no longer.
                progress.stored.since_sync = 0;
                progress.handled.since_sync = 0;
            }
        }
        lock(&this.ready).clear();
        for cell in self.cells() {
            cell.each(|shard| shard.forget_waiting(link));
            if let Some(sends) = cell.sends().get(link) {
                sends.ready.store(false, Ordering::Release);
                sends.of_sync.store(0, Ordering::Relaxed);
            }
        }
        this.waiting.store(0, Ordering::Relaxed);
        self.progress.send_modify(|changes| *changes += 1);
    }

    /// The full state was taken in.
    pub(super) fn set_synced(&self, link: usize) {
        self.synced.fetch_or(1 << link, Ordering::Relaxed);
        let mut tickets = lock(&self.tickets);
        if let Some(Progress { before_sync, stored, handled, .. }) = tickets.links.get_mut(link) {
            // From now on there is no gap.
            for reach in [stored, handled] {
                if reach.all >= *before_sync {
                    reach.all = reach.all.max(reach.since_sync);
                }
            }
        }
    }

    /// An aggregator has taken in everything through a ticket; with `is_sync` also what came before
    /// its full state.
    pub(super) fn acknowledge(&self, link: usize, ticket: u64, is_sync: bool, durable: Durable) {
        let mut tickets = lock(&self.tickets);
        let Some(progress) = tickets.links.get_mut(link) else { return };
        let Progress { before_sync, stored, handled, kept, .. } = progress;
        let reach = |reach: &mut Reach| {
            if is_sync || reach.all >= *before_sync {
                reach.all = reach.all.max(ticket);
            } else {
                reach.since_sync = reach.since_sync.max(ticket);
            }
        };
        reach(handled);
        match durable {
            Durable::Stored => reach(stored),
            Durable::Memory | Durable::Failed => *kept = Some(durable),
        }
        drop(tickets);
        self.progress.send_modify(|changes| *changes += 1);
    }

    /// Gives members that wait, until `take` has no room for one more. Whoever FAILED comes first.
    pub(super) fn take(
        &self,
        link: usize,
        mut take: impl FnMut(&Arc<Cell>, &Told<'_>) -> bool,
    ) -> Batch {
        let mut batch = Batch::default();
        let Some(this) = self.links.get(link) else { return batch };
        let mut room = true;
        let mut taken = 0;
        while room && let Some((ticket, cell, identity)) = self.next_urgent(link) {
            if let Some(cell) = self.cell(cell) {
                let hash = cell.shared().seed.hash(identity);
                let mut shard = cell.shard(hash);
                let told = shard.as_mut().and_then(|shard| shard.take_one(link, hash, identity));
                if let Some(told) = told {
                    taken += 1;
                    room = take(&cell, &told);
                }
            }
            batch.ticket = ticket;
        }
        while room && let Some(number) = next(&this.ready) {
            let Some(cell) = self.cell(number) else { continue };
            let Some(sends) = cell.sends().get(link) else { continue };
            // Before the look, so that who comes while it lasts is looked for again.
            sends.ready.store(false, Ordering::Release);
            let (mut more, mut of_sync) = (false, 0);
            cell.each(|shard| {
                let mut turn = 0;
                let one = shard.take_waiting(link, room, |told| {
                    turn += 1;
                    room = take(&cell, &told);
                    room && turn < TURN
                });
                taken += one.sent;
                of_sync += one.of_sync;
                more |= one.more;
            });
            sends.of_sync.fetch_sub(of_sync, Ordering::Relaxed);
            if more && !sends.ready.swap(true, Ordering::AcqRel) {
                lock(&this.ready).push_back(number);
            }
        }
        let before = this.waiting.load(Ordering::Relaxed);
        let left = before.saturating_sub(taken);
        batch.more = !lock(&this.ready).is_empty() || self.has_urgent(link);
        this.waiting.store(if batch.more { left } else { 0 }, Ordering::Relaxed);
        batch
    }

    /// Whether somebody waits for a collector's answer.
    pub(super) fn has_urgent(&self, link: usize) -> bool {
        lock(&self.tickets).links.get(link).is_some_and(|link| !link.urgent.is_empty())
    }

    /// Whether somebody waits to be sent.
    pub(super) fn has_waiting(&self, link: usize) -> bool {
        self.links.get(link).is_some_and(|link| !lock(&link.ready).is_empty())
            || self.has_urgent(link)
    }

    /// About how many wait to be sent.
    pub(super) fn waiting(&self, link: usize) -> usize {
        self.links.get(link).map_or(0, |link| link.waiting.load(Ordering::Relaxed))
    }

    /// Members of the full state that were not sent yet.
    pub(super) fn sync_left(&self, link: usize) -> usize {
        let left = |cell: Arc<Cell>| {
            cell.sends().get(link).map_or(0, |sends| sends.of_sync.load(Ordering::Relaxed))
        };
        self.cells().into_iter().map(left).sum()
    }

    /// Takes in how far the aggregator's time is ahead of ours. What is to be added to ours.
    pub(super) fn set_offset(&self, link: usize, measured_ms: i64) -> i64 {
        let Some(link) = self.links.get(link) else { return measured_ms };
        let mut offset = lock(&link.offset_ms);
        match *offset {
            Some(known) if measured_ms < known.saturating_add(OFFSET_STEP_MS) => known,
            Some(_) | None => *offset.insert(measured_ms),
        }
    }

    /// What time alone changes: an aggregator that is gone for long has no say while another one
    /// has. Whether that changed anything.
    pub(super) fn handle_timeout(&self, now_ms: Millis) -> bool {
        let (connected, synced) = (self.connected(), self.synced());
        let mut counting = u8::MAX;
        for (at, link) in self.links.iter().enumerate() {
            let gone = lock(&link.lost_ms).is_some_and(|ms| now_ms >= ms + WORD_HOLDS_MS);
            let another = connected & synced & !(1 << at) != 0;
            if gone && another {
                counting &= !(1 << at);
            }
        }
        self.counting.swap(counting, Ordering::Relaxed) != counting
    }

    pub(super) async fn woken(&self, link: usize) {
        match self.links.get(link) {
            Some(link) => link.wake.notified().await,
            None => std::future::pending().await,
        }
    }

    fn next_urgent(&self, link: usize) -> Option<(u64, u32, Identity)> {
        lock(&self.tickets).links.get_mut(link)?.urgent.pop_front()
    }

    fn cells(&self) -> Vec<Arc<Cell>> {
        lock(&self.cells).values().filter_map(Weak::upgrade).collect()
    }

    fn cell(&self, number: u32) -> Option<Arc<Cell>> {
        lock(&self.cells).get(&number)?.upgrade()
    }
}

fn next(ready: &Mutex<VecDeque<u32>>) -> Option<u32> {
    lock(ready).pop_front()
}

fn links_are_full<'p>(connected: &mut impl Iterator<Item = &'p mut Progress>) -> bool {
    connected.any(|link| link.urgent.len() >= URGENT_MAX)
}
