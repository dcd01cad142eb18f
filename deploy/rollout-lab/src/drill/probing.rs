//! The probe streams: an open loop on a thread of its own. Every probe has an intended time, kept or
//! not; none waits for the one before it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::certificates::Target;
use super::clock::{Clock, Nanos};
use super::exchange::exchange;
use super::records::{Outcome, Probe, Tape};

/// Between two probes of a route stream, and of the control stream.
pub const PERIOD: Duration = Duration::from_millis(20);
/// Between two probes of a direct stream.
pub const DIRECT_PERIOD: Duration = Duration::from_millis(50);
/// Staggered route streams: together they act as one of a quarter of the period.
pub const STREAMS: u32 = 4;
/// Where probes come from, by which the route's records tell them from collectors.
pub const SOURCE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 1, 1));
/// Longest wait for the echo.
const ECHO_MAX: Duration = Duration::from_millis(250);

/// The streams while they go on.
#[derive(Debug)]
pub struct Probing {
    shared: Arc<Shared>,
    thread: Option<std::thread::JoinHandle<std::io::Result<()>>>,
}

#[derive(Debug)]
struct Shared {
    clock: Clock,
    tape: Tape,
    stop: AtomicBool,
    /// Nanoseconds for which the thread is held, once: a prober that was not scheduled.
    hold: AtomicU64,
    direct: Mutex<BTreeMap<String, SocketAddr>>,
}

impl Probing {
    /// Starts the streams to the route, and the control stream to an echo that nobody restarts.
    ///
    /// # Errors
    /// When there is no thread.
    pub fn start(clock: Clock, tape: Tape, route: Target, seed: u64) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            clock,
            tape,
            stop: AtomicBool::new(false),
            hold: AtomicU64::new(0),
            direct: Mutex::default(),
        });
        let own = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("probes".to_owned()).spawn(move || {
            tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?
                .block_on(run(own, route, seed))
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// The gateways that get a stream of their own.
    pub fn set_direct(&self, gateways: BTreeMap<String, SocketAddr>) {
        *self.shared.direct.lock().unwrap_or_else(PoisonError::into_inner) = gateways;
    }

    /// Holds the thread, as a machine does that has no time for it.
    pub fn hold(&self, pause: Duration) {
        let nanos = u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX);
        self.shared.hold.store(nanos, Ordering::Relaxed);
    }

    /// Ends all streams.
    ///
    /// # Errors
    /// What ended them before.
    pub fn stop(mut self) -> std::io::Result<()> {
        self.shared.stop.store(true, Ordering::Relaxed);
        match self.thread.take().map(std::thread::JoinHandle::join) {
            Some(Ok(ended)) => ended,
            Some(Err(_)) => Err(std::io::Error::other("the probes' thread died")),
            None => Ok(()),
        }
    }
}

async fn run(shared: Arc<Shared>, route: Target, seed: u64) -> std::io::Result<()> {
    let echo = TcpListener::bind(("127.0.0.1", 0)).await?;
    let echo_at = echo.local_addr()?;
    let (echo_stop, echo_stopped) = std::sync::mpsc::channel::<()>();
    // The echo has a thread of its own, so that only the prober's lateness is in the control stream.
    let echo = echo.into_std()?;
    let echoing = std::thread::Builder::new()
        .name("echo".to_owned())
        .spawn(move || echo_thread(echo, &echo_stopped))?;
    let begin = shared.clock.now() + 50_000_000;
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut streams = JoinSet::new();
    let period = nanos(PERIOD);
    for number in 0..STREAMS {
        let uid = rng.u128(..).to_be_bytes();
        let name = format!("route-{number}");
        let phase = begin + period * u64::from(number) / u64::from(STREAMS);
        streams.spawn(stream(Arc::clone(&shared), name, route.clone(), uid, phase, period));
    }
    streams.spawn(control(Arc::clone(&shared), echo_at, begin + period / 8));
    let mut direct: BTreeMap<String, tokio::task::AbortHandle> = BTreeMap::new();
    while !shared.stop.load(Ordering::Relaxed) {
        let wanted = shared.direct.lock().unwrap_or_else(PoisonError::into_inner).clone();
        direct.retain(|name, task| {
            let keep = wanted.contains_key(name);
            if !keep {
                task.abort();
            }
            keep
        });
        for (name, address) in wanted {
            let Entry::Vacant(place) = direct.entry(name) else { continue };
            let uid = rng.u128(..).to_be_bytes();
            let (stream_name, begin) = (format!("direct-{}", place.key()), shared.clock.now());
            let period = nanos(DIRECT_PERIOD);
            let target = route.at(address);
            let task = stream(Arc::clone(&shared), stream_name, target, uid, begin, period);
            place.insert(streams.spawn(task));
        }
        let hold = shared.hold.swap(0, Ordering::Relaxed);
        if hold > 0 {
            std::thread::sleep(Duration::from_nanos(hold));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    streams.shutdown().await;
    drop(echo_stop);
    match echoing.join() {
        Ok(ended) => ended,
        Err(_) => Err(std::io::Error::other("the echo's thread died")),
    }
}

fn nanos(duration: Duration) -> Nanos {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

async fn stream(
    shared: Arc<Shared>,
    name: String,
    target: Target,
    uid: [u8; 16],
    begin: Nanos,
    period: Nanos,
) {
    let mut under_way = JoinSet::new();
    for seq in 0.. {
        let intended_ns = begin + period * seq;
        tokio::time::sleep_until(shared.clock.instant(intended_ns)).await;
        let (shared, stream) = (Arc::clone(&shared), name.clone());
        let target = target.clone();
        under_way.spawn(async move {
            let seen = exchange(shared.clock, SOURCE, &target, uid, seq).await;
            shared.tape.probe(Probe {
                stream,
                seq,
                intended_ns,
                sent_ns: seen.sent_ns,
                connected_ns: seen.connected_ns,
                first_byte_ns: seen.first_byte_ns,
                done_ns: seen.done_ns,
                port: seen.port,
                answer: seen.answer,
                outcome: seen.outcome,
            });
        });
        while under_way.try_join_next().is_some() {}
    }
}

/// The same schedule to an echo: what is late here is the prober.
async fn control(shared: Arc<Shared>, echo: SocketAddr, begin: Nanos) {
    for seq in 0.. {
        let intended_ns = begin + nanos(PERIOD) * seq;
        tokio::time::sleep_until(shared.clock.instant(intended_ns)).await;
        let sent_ns = shared.clock.now();
        let asked = async {
            let mut stream = tokio::net::TcpStream::connect(echo).await?;
            stream.write_all(b"?").await?;
            stream.read_exact(&mut [0]).await
        };
        let outcome = match tokio::time::timeout(ECHO_MAX, asked).await {
            Ok(Ok(_)) => Outcome::Ok,
            Ok(Err(_)) => Outcome::Reset,
            Err(_) => Outcome::Timeout,
        };
        shared.tape.probe(Probe {
            stream: "control".to_owned(),
            seq,
            intended_ns,
            sent_ns,
            connected_ns: 0,
            first_byte_ns: 0,
            done_ns: shared.clock.now(),
            port: 0,
            answer: String::new(),
            outcome,
        });
    }
}

fn echo_thread(
    listener: std::net::TcpListener,
    stopped: &std::sync::mpsc::Receiver<()>,
) -> std::io::Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let listener = TcpListener::from_std(listener)?;
        let mut open = JoinSet::new();
        while stopped.try_recv() != Err(std::sync::mpsc::TryRecvError::Disconnected) {
            let accept = tokio::time::timeout(Duration::from_millis(100), listener.accept()).await;
            if let Ok(Ok((mut stream, _))) = accept {
                open.spawn(async move {
                    let mut byte = [0];
                    // A prober that goes away needs no echo.
                    if stream.read_exact(&mut byte).await.is_ok() {
                        let _ = stream.write_all(&byte).await;
                    }
                });
            }
            while open.try_join_next().is_some() {}
        }
        Ok(())
    })
}
