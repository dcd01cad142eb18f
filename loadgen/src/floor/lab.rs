//! One thread that plays both ends of connections over loopback, and times the calls.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use rustix::io::Errno;
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use super::{Costs, FloorError};
use crate::clock::{Clock, micros};
use crate::source;

/// Bytes of the five messages, the client's first: request and answer, description and offer, APPLIED.
const MESSAGES: [usize; 5] = [250, 130, 700, 2_600, 120];
/// How long all of it may take, but for the connection that is under way.
const BUDGET: Duration = Duration::from_secs(1);
/// How long what a loopback does at once may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// Where clients connect from, as workers do from addresses of their own.
const SOURCE: Ipv4Addr = Ipv4Addr::new(127, 0, 1, 1);
/// Connections that the listener keeps until it is asked for them.
const BACKLOG: i32 = 1_024;
/// What a gateway lets the kernel hold for a peer that does not read.
const SEND_BUFFER: usize = 64 << 10;

/// That many batches, fewer where time is up; and the bytes that were read.
pub(super) fn play(batches: usize, size: u32) -> Result<(Vec<Batch>, usize), FloorError> {
    let mut lab = Lab::open()?;
    let mut measured = Vec::new();
    while measured.len() < batches && (measured.is_empty() || !lab.is_late()) {
        let batch = lab.batch(size)?;
        // One that was cut short says something only where there is no other.
        if batch.connections == size || measured.is_empty() {
            measured.push(batch);
        }
    }
    Ok((measured, lab.bytes))
}

/// Connections in turn, and the nanoseconds of all of them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Batch {
    pub(super) connections: u32,
    pub(super) connect: u64,
    pub(super) register: u64,
    pub(super) exchange: u64,
}

impl Batch {
    pub(super) fn costs(&self) -> Costs {
        #[expect(clippy::cast_precision_loss, reason = "seconds in nanoseconds have 53 bits")]
        let each = |nanos: u64| nanos as f64 / 1e3 / f64::from(self.connections.max(1));
        Costs {
            connect_us: each(self.connect),
            register_us: each(self.register),
            exchange_us: each(self.exchange),
        }
    }
}

/// Both ends of all connections.
struct Lab {
    clock: Clock,
    listener: TcpListener,
    address: SocketAddr,
    server: Poll,
    client: Poll,
    events: Events,
    scratch: Vec<u8>,
    bytes: usize,
}

impl Lab {
    fn open() -> io::Result<Self> {
        let listener = socket()?;
        listener.set_send_buffer_size(SEND_BUFFER)?;
        listener.set_keepalive(true)?;
        listener.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
        listener.listen(BACKLOG)?;
        let listener = TcpListener::from_std(listener.into());
        Ok(Self {
            clock: Clock::start(),
            address: listener.local_addr()?,
            listener,
            server: Poll::new()?,
            client: Poll::new()?,
            events: Events::with_capacity(1),
            scratch: vec![0; 8_192],
            bytes: 0,
        })
    }

    fn is_late(&self) -> bool {
        u128::from(self.clock.nanos()) >= BUDGET.as_nanos()
    }

    /// Connections one after the other, each with its messages.
    fn batch(&mut self, size: u32) -> io::Result<Batch> {
        let mut batch = Batch::default();
        let mut open = Vec::new();
        while batch.connections < size && (batch.connections == 0 || !self.is_late()) {
            let began = self.clock.nanos();
            let (mut client, mut server) = self.connect()?;
            let connected = self.clock.nanos();
            self.register(&mut client, &mut server, open.len())?;
            let registered = self.clock.nanos();
            self.exchange(&mut client, &mut server)?;
            let ended = self.clock.nanos();
            batch.connections += 1;
            batch.connect += connected.saturating_sub(began);
            batch.register += registered.saturating_sub(connected);
            batch.exchange += ended.saturating_sub(registered);
            open.push((client, server));
        }
        for (client, _) in &open {
            // Their ports are free at once: what comes next finds the machine as it was.
            SockRef::from(client).set_linger(Some(Duration::ZERO))?;
        }
        Ok(batch)
    }

    fn connect(&self) -> io::Result<(TcpStream, TcpStream)> {
        let socket = socket()?;
        source::bind(SockRef::from(&socket), SOURCE.into())?;
        match socket.connect(&self.address.into()) {
            Err(error) if error.raw_os_error() != Some(Errno::INPROGRESS.raw_os_error()) => {
                return Err(error);
            }
            Ok(()) | Err(_) => {}
        }
        let (accepted, _) = soon(self.clock, || self.listener.accept())?;
        Ok((TcpStream::from_std(socket.into()), accepted))
    }

    fn register(
        &mut self,
        client: &mut TcpStream,
        server: &mut TcpStream,
        number: usize,
    ) -> io::Result<()> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        self.server.registry().register(server, Token(number), interest)?;
        self.client.registry().register(client, Token(number), interest)?;
        self.server.poll(&mut self.events, Some(Duration::ZERO))?;
        self.client.poll(&mut self.events, Some(Duration::ZERO))
    }

    fn exchange(&mut self, client: &mut TcpStream, server: &mut TcpStream) -> io::Result<()> {
        for (turn, size) in MESSAGES.into_iter().enumerate() {
            let (from, to, poll) = if turn % 2 == 0 {
                (&mut *client, &mut *server, &mut self.server)
            } else {
                (&mut *server, &mut *client, &mut self.client)
            };
            // An empty buffer of the kernel takes all of it.
            from.write_all(self.scratch.get(..size).unwrap_or_default())?;
            poll.poll(&mut self.events, Some(Duration::ZERO))?;
            let mut left = size;
            while left > 0 {
                match soon(self.clock, || to.read(&mut self.scratch))? {
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    count => left = left.saturating_sub(count),
                }
            }
            self.bytes += size;
        }
        Ok(())
    }
}

fn socket() -> io::Result<Socket> {
    let socket =
        Socket::new(Domain::IPV4, Type::STREAM.nonblocking().cloexec(), Some(Protocol::TCP))?;
    socket.set_tcp_nodelay(true)?;
    Ok(socket)
}

/// What comes of an operation that a loopback carries out at once, or a moment later where the kernel
/// leaves it to a thread of its own.
fn soon<T>(clock: Clock, mut operation: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let mut since = None;
    loop {
        match operation() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let now = clock.now();
                if now > micros(PATIENCE).saturating_add(*since.get_or_insert(now)) {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                std::thread::yield_now();
            }
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::floor::Floor;

    #[test]
    fn connections_over_loopback_carry_every_byte() {
        let (batches, bytes) = play(3, 20).unwrap();
        let connections: u32 = batches.iter().map(|batch| batch.connections).sum();
        // Where time is up early, there are fewer.
        assert!((1..=60).contains(&connections), "{batches:?}");
        assert!(bytes >= connections as usize * MESSAGES.iter().sum::<usize>(), "{bytes}");
        let floor = Floor::of(&batches, 2);
        let Costs { connect_us, register_us, exchange_us } = floor.least;
        assert!(connect_us > 0.0 && register_us > 0.0 && exchange_us > 0.0, "{floor:?}");
        assert!(floor.median_us >= floor.total_us && floor.connects_per_s_max > 0.0, "{floor:?}");
        assert_eq!(floor.connections, connections);
    }
}
