//! A collector's socket: how it is opened, what it is watched for, and how it is written to.

use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};

use mio::Interest;
use mio::net::TcpStream;
use rustix::io::Errno;
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::source;
use crate::swarm::frames::Partial;

/// Bytes that wait for a server that does not read; more ends the link.
pub(super) const OUTPUT_MAX: usize = 1 << 20;

/// Whether something is to be written before anything else.
pub(super) fn waits(partial: Option<&Partial>) -> bool {
    partial.is_some_and(|partial| !partial.output.is_empty())
}

pub(super) fn interest(writable: bool) -> Interest {
    if writable { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE }
}

/// Writes what waits, then what is in `out`, and empties that; what the socket does not take waits.
///
/// # Errors
///
/// Why the link is over.
pub(crate) fn send(
    socket: &mut TcpStream,
    partial: &mut Option<Box<Partial>>,
    out: &mut Vec<u8>,
) -> Result<(), String> {
    let waiting = partial.as_deref_mut().map(|partial| &mut partial.output);
    if let Some(output) = waiting.filter(|output| !output.is_empty()) {
        let first = std::mem::take(output);
        out.splice(0..0, first);
    }
    let mut written = 0;
    let sent = loop {
        let rest = out.get(written..).unwrap_or_default();
        if rest.is_empty() {
            break Ok(());
        }
        match socket.write(rest) {
            Ok(count) => written += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::NotConnected
                ) =>
            {
                if rest.len() > OUTPUT_MAX {
                    break Err("the server does not read".to_owned());
                }
                partial.get_or_insert_default().output = rest.to_vec();
                break Ok(());
            }
            Err(error) => break Err(error.to_string()),
        }
    };
    out.clear();
    sent
}

/// A socket that connects, without delay of small segments.
pub(crate) fn open(address: SocketAddr, source: Option<IpAddr>) -> io::Result<TcpStream> {
    let kind = Type::STREAM.nonblocking().cloexec();
    let socket = Socket::new(Domain::for_address(address), kind, Some(Protocol::TCP))?;
    socket.set_tcp_nodelay(true)?;
    // What is received is acknowledged with what is said next, which comes at once: two segments of
    // seventeen fewer for a collector.
    socket.set_tcp_quickack(false)?;
    if let Some(source) = source {
        source::bind(SockRef::from(&socket), source)?;
    }
    match socket.connect(&address.into()) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(Errno::INPROGRESS.raw_os_error()) => {}
        Err(error) => return Err(error),
    }
    Ok(TcpStream::from_std(socket.into()))
}
