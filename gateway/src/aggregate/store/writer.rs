//! The thread that alone writes the file.
//!
//! Whoever reports FAILED and whoever puts on a brake hands in what changed and wakes it: it commits
//! at once, and what is handed in meanwhile shares the next commit. Everything else it fetches once
//! per second from the cells, in transactions small enough that nothing urgent waits long. A file
//! that cannot be written is opened again, less and less often; until then everything stays in
//! memory, and everything is written when it can be.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};

use redb::Database;
use render::rollout::evidence::{Identity, Millis};
use tokio::sync::watch;

use super::file::{self, Opened};
use super::{Kind, RowKey, row_key};
use crate::aggregate::cell::Cell;
use crate::aggregate::notices::Notices;
use crate::aggregate::packed::STORED_BYTES;
use crate::aggregate::{Durable, Ticket, lock};
use crate::metrics::Metrics;

/// Records in one transaction that nobody waits for.
const BATCH_RECORDS: usize = 1_024;
/// Longest time between two tries to open a file that cannot be written, in ticks of a second.
const RETRY_TICKS_MAX: u32 = 30;

/// A record as it is written.
pub(in crate::aggregate) struct Written {
    pub(in crate::aggregate) identity: Identity,
    pub(in crate::aggregate) record: [u8; STORED_BYTES],
    pub(in crate::aggregate) text: Option<Vec<u8>>,
}

/// How far the disk is behind the tickets given out.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    stored: u64,
    given_up: u64,
}

/// What waits to be written.
#[derive(Debug, Default)]
struct Queue {
    urgent: Vec<(u32, Identity)>,
    rows: BTreeMap<RowKey, Option<Vec<u8>>>,
    rows_urgent: bool,
    dropped: Vec<u32>,
    asked: u64,
    tick: Option<Millis>,
    closing: bool,
    /// The thread ends as if the process had been killed.
    #[cfg(test)]
    killed: bool,
}

/// The handle of the writer.
#[derive(Debug)]
pub(in crate::aggregate) struct Store {
    queue: Mutex<Queue>,
    ready: Condvar,
    progress: watch::Sender<Progress>,
    cells: Mutex<BTreeMap<u32, Weak<Cell>>>,
}

/// Opens the file again: given the wall clock, says what came of it.
pub(in crate::aggregate) type Reopen = Box<dyn FnMut(Millis) -> Result<Opened, String> + Send>;

impl Store {
    /// Starts the thread. `reopen` is asked when the file cannot be written.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(in crate::aggregate) fn start(
        opened: Opened,
        reopen: Reopen,
        notices: Arc<Notices>,
        metrics: &'static Metrics,
    ) -> std::io::Result<(Arc<Self>, std::thread::JoinHandle<()>)> {
        let store = Arc::new(Self {
            queue: Mutex::default(),
            ready: Condvar::new(),
            progress: watch::Sender::new(Progress::default()),
            cells: Mutex::default(),
        });
        let mut writer = Writer {
            store: Arc::clone(&store),
            database: opened.database,
            reopen,
            rows: opened.loaded.rows,
            urgent: Vec::new(),
            pending: BTreeMap::new(),
            dropped: Vec::new(),
            wait_ticks: 1,
            waited_ticks: 0,
            notices,
            metrics,
        };
        let up = if writer.database.is_some() { 1.0 } else { 0.0 };
        metrics.evidence_store_up.cell(&[]).set(up);
        let builder = std::thread::Builder::new().name("evidence-store".to_owned());
        let thread = builder.spawn(move || writer.run())?;
        Ok((store, thread))
    }

    /// Cells are read by the writer as long as they live.
    pub(in crate::aggregate) fn register(&self, number: u32, cell: &Arc<Cell>) {
        lock(&self.cells).insert(number, Arc::downgrade(cell));
    }

    /// A record that somebody waits for.
    pub(in crate::aggregate) fn write_soon(&self, cell: u32, identity: Identity) -> Ticket {
        let mut queue = lock(&self.queue);
        queue.urgent.push((cell, identity));
        queue.asked += 1;
        let ticket = Ticket(queue.asked);
        drop(queue);
        self.ready.notify_one();
        ticket
    }

    /// A row to be written, at once or within a second.
    pub(in crate::aggregate) fn put_row(&self, key: RowKey, value: Vec<u8>, urgent: bool) {
        let mut queue = lock(&self.queue);
        queue.rows.insert(key, Some(value));
        queue.rows_urgent |= urgent;
        drop(queue);
        if urgent {
            self.ready.notify_one();
        }
    }

    /// A row that is needed no more.
    pub(in crate::aggregate) fn drop_row(&self, key: RowKey) {
        lock(&self.queue).rows.insert(key, None);
    }

    /// A cell that is needed no more: its row and all its records.
    pub(in crate::aggregate) fn drop_cell(&self, number: u32) {
        lock(&self.cells).remove(&number);
        let mut queue = lock(&self.queue);
        queue.rows.insert(row_key(Kind::Cell, number, ""), None);
        queue.dropped.push(number);
    }

    /// A second has passed.
    pub(in crate::aggregate) fn tick(&self, unix_ms: Millis) {
        lock(&self.queue).tick = Some(unix_ms);
        self.ready.notify_one();
    }

    /// Writes what waits, then ends the thread.
    pub(in crate::aggregate) fn close(&self) {
        lock(&self.queue).closing = true;
        self.ready.notify_one();
    }

    /// Ends the thread without another byte, and without closing the file.
    #[cfg(test)]
    pub(in crate::aggregate) fn kill(&self) {
        let mut queue = lock(&self.queue);
        (queue.killed, queue.closing) = (true, true);
        drop(queue);
        self.ready.notify_one();
    }

    /// Waits for the commit that holds what the ticket was given for.
    pub(in crate::aggregate) async fn committed(&self, Ticket(ticket): Ticket) -> Durable {
        let mut progress = self.progress.subscribe();
        loop {
            let seen = *progress.borrow_and_update();
            if seen.stored >= ticket {
                return Durable::Stored;
            }
            if seen.given_up >= ticket || progress.changed().await.is_err() {
                return Durable::Failed;
            }
        }
    }

    fn wait(&self) -> Queue {
        let mut queue = lock(&self.queue);
        loop {
            let idle = queue.urgent.is_empty()
                && !queue.rows_urgent
                && queue.tick.is_none()
                && !queue.closing;
            if !idle {
                let rest = Queue { asked: queue.asked, ..Queue::default() };
                return std::mem::replace(&mut *queue, rest);
            }
            queue = self.ready.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// What is urgent, if anything is, and all rows: the brake that a FAILED caused is on the disk
    /// with it.
    fn take_urgent(&self) -> Option<Queue> {
        let mut queue = lock(&self.queue);
        (!queue.urgent.is_empty() || queue.rows_urgent).then(|| Queue {
            urgent: std::mem::take(&mut queue.urgent),
            rows: std::mem::take(&mut queue.rows),
            rows_urgent: std::mem::take(&mut queue.rows_urgent),
            asked: queue.asked,
            ..Queue::default()
        })
    }

    fn cells(&self) -> Vec<Arc<Cell>> {
        lock(&self.cells).values().filter_map(Weak::upgrade).collect()
    }

    fn cell(&self, number: u32) -> Option<Arc<Cell>> {
        lock(&self.cells).get(&number)?.upgrade()
    }
}

struct Writer {
    store: Arc<Store>,
    /// `None` while it cannot be written.
    database: Option<Database>,
    reopen: Reopen,
    /// Every row there is, should the file be lost.
    rows: BTreeMap<RowKey, Vec<u8>>,
    urgent: Vec<(u32, Identity)>,
    pending: BTreeMap<RowKey, Option<Vec<u8>>>,
    dropped: Vec<u32>,
    wait_ticks: u32,
    waited_ticks: u32,
    notices: Arc<Notices>,
    metrics: &'static Metrics,
}

impl Writer {
    fn run(&mut self) {
        loop {
            let work = self.store.wait();
            #[cfg(test)]
            if work.killed {
                std::mem::forget(self.database.take());
                return;
            }
            let (tick, closing) = (work.tick, work.closing);
            self.take(work.rows);
            self.urgent.extend(work.urgent);
            self.dropped.extend(work.dropped);
            if let Some(unix_ms) = tick
                && self.database.is_none()
            {
                self.try_again(unix_ms);
            }
            self.write_urgent(work.asked);
            if tick.is_some() || closing {
                self.write_rest();
            }
            if closing {
                // Nobody waits for what is never written.
                self.store.progress.send_modify(|progress| progress.given_up = u64::MAX);
                return;
            }
        }
    }

    fn take(&mut self, rows: BTreeMap<RowKey, Option<Vec<u8>>>) {
        for (key, value) in rows {
            match &value {
                Some(value) => drop(self.rows.insert(key.clone(), value.clone())),
                None => drop(self.rows.remove(&key)),
            }
            self.pending.insert(key, value);
        }
    }

    /// Commits what somebody waits for, and all rows.
    fn write_urgent(&mut self, through: u64) {
        if self.urgent.is_empty() && self.pending.is_empty() {
            return;
        }
        let mut records: Vec<(u32, Written)> = Vec::with_capacity(self.urgent.len());
        for (number, identity) in &self.urgent {
            let cell = self.store.cell(*number);
            let written = cell.and_then(|cell| cell.written(*identity));
            records.extend(written.map(|written| (*number, written)));
        }
        if self.commit(&records, true, &[]) {
            self.urgent.clear();
            self.pending.clear();
            self.store.progress.send_modify(|progress| progress.stored = through);
        } else {
            // When it can be written again, everything is.
            self.urgent.clear();
            self.pending.clear();
            self.store.progress.send_modify(|progress| progress.given_up = through);
        }
    }

    /// Everything that changed since, in pieces; what is urgent goes between them.
    fn write_rest(&mut self) {
        for cell in self.store.cells() {
            while self.database.is_some() && cell.has_dirty() {
                let number = cell.number();
                let mut records = Vec::with_capacity(BATCH_RECORDS);
                cell.take_dirty(BATCH_RECORDS, |written| records.push((number, written)));
                if records.is_empty() {
                    break;
                }
                self.commit(&records, false, &[]);
                self.write_between();
            }
        }
        while let Some(number) = self.dropped.first().copied().filter(|_| self.database.is_some()) {
            let doomed = self.doomed(number);
            if doomed.is_empty() {
                self.dropped.remove(0);
            }
            let keys: Vec<(u32, u128)> = doomed.into_iter().map(|id| (number, id)).collect();
            if !keys.is_empty() && !self.commit(&[], false, &keys) {
                return;
            }
            self.write_between();
        }
    }

    fn write_between(&mut self) {
        if let Some(work) = self.store.take_urgent() {
            self.take(work.rows);
            self.urgent.extend(work.urgent);
            self.write_urgent(work.asked);
        }
    }

    /// Some identities that a dropped cell still has in the file.
    fn doomed(&mut self, number: u32) -> Vec<u128> {
        let Some(database) = &self.database else { return Vec::new() };
        let read = || -> Result<Vec<u128>, redb::Error> {
            use redb::ReadableDatabase as _;
            let read = database.begin_read()?;
            let records = read.open_table(file::RECORDS)?;
            let range = records.range((number, 0)..=(number, u128::MAX))?;
            range.take(BATCH_RECORDS).map(|row| Ok(row?.0.value().1)).collect()
        };
        match guarded(read) {
            Ok(doomed) => doomed,
            Err(error) => {
                self.fail(&error);
                Vec::new()
            }
        }
    }

    /// Whether it is on the disk now.
    fn commit(&mut self, records: &[(u32, Written)], rows: bool, doomed: &[(u32, u128)]) -> bool {
        let Some(database) = &self.database else { return false };
        let pending = &self.pending;
        let write = || -> Result<(), redb::Error> {
            // A transaction is durable when `commit` returns, unless it is told otherwise.
            let write = database.begin_write()?;
            {
                let mut table = write.open_table(file::RECORDS)?;
                let mut texts = write.open_table(file::TEXTS)?;
                for (number, written) in records {
                    let key = (*number, written.identity.0);
                    table.insert(key, &written.record[..])?;
                    match &written.text {
                        Some(text) => drop(texts.insert(key, &text[..])?),
                        None => drop(texts.remove(key)?),
                    }
                }
                for key in doomed {
                    table.remove(*key)?;
                    texts.remove(*key)?;
                }
                if rows {
                    let mut table = write.open_table(file::ROWS)?;
                    for ((kind, number, rollout), value) in pending {
                        let key = (*kind, *number, &**rollout);
                        match value {
                            Some(value) => drop(table.insert(key, &value[..])?),
                            None => drop(table.remove(key)?),
                        }
                    }
                }
            }
            Ok(write.commit()?)
        };
        match guarded(write) {
            Ok(()) => true,
            Err(error) => {
                self.fail(&error);
                false
            }
        }
    }

    /// The file cannot be written: whatever it lacks is written when it can be again.
    fn fail(&mut self, why: &str) {
        self.metrics.evidence_store_failures.count(&["write"]);
        self.metrics.evidence_store_up.cell(&[]).set(0.0);
        self.notices.set_unwritable(why);
        tracing::error!(
            why,
            "the store cannot be written: evidence, halts and brakes die with this process until it can be"
        );
        let database = self.database.take();
        // After a fault, redb may panic when it is closed; there is nothing left to lose in it.
        let closed = std::panic::catch_unwind(AssertUnwindSafe(move || drop(database)));
        if closed.is_err() {
            tracing::debug!("closing the store panicked");
        }
        (self.wait_ticks, self.waited_ticks) = (1, 0);
    }

    fn try_again(&mut self, unix_ms: Millis) {
        self.waited_ticks += 1;
        if self.waited_ticks < self.wait_ticks {
            return;
        }
        let opened = (self.reopen)(unix_ms);
        let why = match opened {
            Ok(Opened { database: Some(database), set_aside, .. }) => {
                if let Some(set_aside) = set_aside {
                    self.metrics.evidence_store_failures.count(&["damaged"]);
                    // Everything that it held is in memory, and is written below.
                    tracing::error!("{set_aside}; all that is known is written to a new one");
                }
                self.database = Some(database);
                self.pending =
                    self.rows.iter().map(|(key, row)| (key.clone(), Some(row.clone()))).collect();
                self.store.cells().iter().for_each(|cell| cell.dirty_all());
                self.notices.set_writable();
                self.metrics.evidence_store_up.cell(&[]).set(1.0);
                tracing::info!("the store can be written again");
                return;
            }
            Ok(Opened { unwritable, .. }) => unwritable.unwrap_or_default(),
            Err(why) => why,
        };
        self.metrics.evidence_store_failures.count(&["open"]);
        self.notices.set_unwritable(&why);
        (self.wait_ticks, self.waited_ticks) = ((self.wait_ticks * 2).min(RETRY_TICKS_MAX), 0);
        tracing::warn!(why, again_in_seconds = self.wait_ticks, "the store cannot be opened");
    }
}

/// A fault as text; redb may panic over a file that was altered behind its back.
fn guarded<T>(run: impl FnOnce() -> Result<T, redb::Error>) -> Result<T, String> {
    match std::panic::catch_unwind(AssertUnwindSafe(run)) {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(_) => Err("writing it panicked".to_owned()),
    }
}
