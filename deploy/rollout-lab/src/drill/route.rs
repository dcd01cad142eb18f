//! A small L4 route: forwards each connection to one backend of an epoch-numbered table, and
//! acknowledges the epochs it has applied.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::clock::Clock;
use super::records::{Passage, Tape};

/// Connections through a route at once; one more is closed at once, and recorded without a backend.
pub const CONNECTIONS_MAX: usize = 16_384;
/// Longest wait for a backend.
const DIAL_MAX: Duration = Duration::from_secs(2);

/// Which backend a connection gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// The one with the fewest connections.
    LeastSessions,
    /// Any, drawn evenly.
    Uniform,
}

/// Where connections may go.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table {
    /// Goes up with every change.
    pub epoch: u64,
    /// Name and address of each backend.
    pub backends: Vec<(String, SocketAddr)>,
}

/// The route's ends, held by whoever changes the table.
#[derive(Debug)]
pub struct Route {
    /// Where clients connect.
    pub address: SocketAddr,
    table: watch::Sender<Table>,
    applied: watch::Receiver<u64>,
    forwarding: tokio::task::AbortHandle,
}

struct Shared {
    clock: Clock,
    tape: Tape,
    choice: Choice,
    sessions: Mutex<BTreeMap<SocketAddr, usize>>,
    rng: Mutex<fastrand::Rng>,
}

impl Route {
    /// Listens on a free port of the loopback, with an empty table.
    ///
    /// # Errors
    /// When there is no port.
    pub async fn open(
        clock: Clock,
        tape: Tape,
        choice: Choice,
        seed: u64,
    ) -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let (table, seen) = watch::channel(Table::default());
        let (applied_to, applied) = watch::channel(0);
        let shared = Arc::new(Shared {
            clock,
            tape,
            choice,
            sessions: Mutex::default(),
            rng: Mutex::new(fastrand::Rng::with_seed(seed)),
        });
        let forwarding = tokio::spawn(forward(listener, shared, seen, applied_to)).abort_handle();
        Ok(Self { address, table, applied, forwarding })
    }

    /// Puts another table in force under the next epoch; returns it.
    pub fn publish(&self, change: impl FnOnce(&mut Vec<(String, SocketAddr)>)) -> u64 {
        let mut epoch = 0;
        self.table.send_modify(|table| {
            change(&mut table.backends);
            table.epoch += 1;
            epoch = table.epoch;
        });
        epoch
    }

    /// The table in force.
    pub fn table(&self) -> Table {
        self.table.borrow().clone()
    }

    /// Waits until an epoch, or one after it, is applied.
    pub async fn reached(&self, epoch: u64) {
        // The sender lives in the task of this route, which ends with it.
        let _ = self.applied.clone().wait_for(|applied| *applied >= epoch).await;
    }

    /// Ends all forwarding.
    pub fn close(&self) {
        self.forwarding.abort();
    }
}

async fn forward(
    listener: TcpListener,
    shared: Arc<Shared>,
    mut seen: watch::Receiver<Table>,
    applied: watch::Sender<u64>,
) {
    let mut table = Table::default();
    let mut open = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            changed = seen.changed() => {
                if changed.is_err() {
                    return;
                }
                table = seen.borrow_and_update().clone();
                shared.tape.change(shared.clock.now(), "applied", "route", table.epoch, "");
                applied.send_replace(table.epoch);
            }
            accepted = listener.accept() => {
                // A connection that is gone before it is accepted is nobody's.
                let Ok((client, from)) = accepted else { continue };
                let backend = (open.len() < CONNECTIONS_MAX).then(|| shared.choose(&table)).flatten();
                open.spawn(carry(Arc::clone(&shared), client, from, backend, table.epoch));
            }
            Some(_) = open.join_next(), if !open.is_empty() => {}
        }
    }
}

async fn carry(
    shared: Arc<Shared>,
    mut client: TcpStream,
    from: SocketAddr,
    backend: Option<(String, SocketAddr)>,
    epoch: u64,
) {
    let accepted_ns = shared.clock.now();
    let mut held = Held {
        passage: Passage {
            client: from.to_string(),
            accepted_ns,
            epoch,
            backend: String::new(),
            dialed_ns: 0,
            closed_ns: 0,
        },
        at: None,
        shared,
    };
    let Some((name, address)) = backend else { return };
    held.passage.backend = name;
    held.at = Some(address);
    let dial = tokio::time::timeout(DIAL_MAX, TcpStream::connect(address)).await;
    let Ok(Ok(mut server)) = dial else { return };
    held.passage.dialed_ns = held.shared.clock.now();
    // Neither end is worth anything without it.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    // How it ends is the ends' own affair; that it ends is what is recorded.
    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
    held.passage.closed_ns = held.shared.clock.now();
}

/// Records a connection however it ends, and gives its place free.
struct Held {
    passage: Passage,
    at: Option<SocketAddr>,
    shared: Arc<Shared>,
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(at) = self.at {
            let mut sessions = self.shared.sessions.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(count) = sessions.get_mut(&at) {
                *count = count.saturating_sub(1);
            }
        }
        self.shared.tape.passage(self.passage.clone());
    }
}

impl Shared {
    fn choose(&self, table: &Table) -> Option<(String, SocketAddr)> {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let chosen = match self.choice {
            Choice::LeastSessions => table
                .backends
                .iter()
                .min_by_key(|(_, address)| sessions.get(address).copied().unwrap_or(0))?,
            Choice::Uniform => {
                let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner);
                let count = table.backends.len();
                table.backends.get(if count == 0 { 0 } else { rng.usize(..count) })?
            }
        };
        *sessions.entry(chosen.1).or_default() += 1;
        Some(chosen.clone())
    }
}
