//! The local address that a collector connects from.

use std::io;
use std::net::{IpAddr, SocketAddr};

use socket2::SockRef;

/// Gives a socket its local address and leaves the port to `connect`, which shares ports among
/// destinations. `bind` would take one for this socket alone: past some 14,000 of an address, each
/// takes milliseconds to find.
///
/// # Errors
/// Those of `bind(2)`, as where no interface has the address.
pub(crate) fn bind(socket: SockRef<'_>, address: IpAddr) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    leave_port(&socket)?;
    socket.bind(&SocketAddr::new(address, 0).into())
}

/// `IP_BIND_ADDRESS_NO_PORT` of ip(7).
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "neither socket2 nor rustix has this option")]
fn leave_port(socket: &SockRef<'_>) -> io::Result<()> {
    use std::os::fd::AsRawFd;

    let yes: libc::c_int = 1;
    // SAFETY: the descriptor is open as long as `socket` is borrowed, and the kernel reads one int.
    let outcome = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_BIND_ADDRESS_NO_PORT,
            (&raw const yes).cast(),
            size_of_val(&yes) as libc::socklen_t,
        )
    };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use socket2::{Domain, Socket, Type};

    use super::*;

    #[test]
    fn a_port_is_taken_by_connect_and_not_before() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let address = IpAddr::V4(Ipv4Addr::new(127, 0, 1, 9));
        bind(SockRef::from(&socket), address).unwrap();
        let local = || socket.local_addr().unwrap().as_socket().unwrap();
        assert_eq!((local().ip(), local().port()), (address, 0));
        socket.connect(&listener.local_addr().unwrap().into()).unwrap();
        assert_ne!(local().port(), 0);
        assert_eq!(listener.accept().unwrap().1, local());
    }

    #[test]
    fn an_address_of_another_machine_is_refused() {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let elsewhere = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
        let refused = bind(SockRef::from(&socket), elsewhere).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AddrNotAvailable);
    }
}
