//! The listening socket and what accepted ones inherit from it.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};
use tokio::net::TcpListener;

/// Connections that the kernel may hold for us while we are busy; it takes the smaller of this and
/// `net.core.somaxconn`.
const BACKLOG: i32 = 16_384;
/// Bytes that the kernel buffers for a peer that does not read (it doubles the figure). Without it
/// one stuck peer makes the kernel take 4 MB before we notice (idle-links.md). No smaller: an offer
/// should leave in one go.
const SEND_BUFFER: usize = 64 * 1024;
/// A dead peer that never said so is noticed by the kernel too, also when nothing is being sent.
const KEEPALIVE: TcpKeepalive = TcpKeepalive::new()
    .with_time(Duration::from_secs(75))
    .with_interval(Duration::from_secs(15))
    .with_retries(4);
/// Longest that sent bytes may stay without an acknowledgement before the kernel gives the link up.
const USER_TIMEOUT: Duration = Duration::from_secs(60);

/// Listens on `addr`; port 0 takes a free one (ask the result for it).
///
/// Socket options are set here once: Linux copies them to every accepted socket, which saves a
/// system call per link and option. `reuse_port` lets several replicas share the port.
///
/// # Errors
///
/// Whatever the kernel refuses: address in use, no such address, no permission.
pub fn bind(addr: SocketAddr, reuse_port: bool) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.set_reuse_address(true)?;
    if reuse_port {
        socket.set_reuse_port(true)?;
    }
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(&KEEPALIVE)?;
    socket.set_tcp_user_timeout(Some(USER_TIMEOUT))?;
    socket.set_send_buffer_size(SEND_BUFFER)?;
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Whether the kernel hands connections that a closed listener leaves behind to another listener of
/// the same port (`net.ipv4.tcp_migrate_req`): those whose handshake is under way when a replica
/// ends. Nothing that the replica itself can do reaches them. `None`: the kernel does not say.
///
/// Of the network namespace of this process.
pub fn migrates_requests() -> Option<bool> {
    let said = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_migrate_req").ok()?;
    Some(said.trim() != "0")
}

#[cfg(test)]
mod tests {
    use socket2::SockRef;

    use super::*;

    #[tokio::test]
    async fn accepted_sockets_inherit_the_options() {
        let listener = bind(([127, 0, 0, 1], 0).into(), false).unwrap();
        let peer = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        let socket = SockRef::from(&accepted);
        assert!(socket.tcp_nodelay().unwrap());
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(USER_TIMEOUT));
        assert_eq!(socket.send_buffer_size().unwrap(), 2 * SEND_BUFFER);
        drop(peer);
    }

    #[tokio::test]
    async fn two_replicas_share_a_port_only_when_told_to() {
        let first = bind(([127, 0, 0, 1], 0).into(), true).unwrap();
        let addr = first.local_addr().unwrap();
        assert!(bind(addr, true).is_ok());
        assert!(bind(addr, false).is_err());
    }
}
