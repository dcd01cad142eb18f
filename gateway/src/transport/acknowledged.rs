//! What the kernel knows of a connection: whether what was sent has arrived at the other machine,
//! whoever reads it there, and whether something came that nobody here has read.

use rustix::ioctl::{Getter, Opcode, ioctl};
use tokio::net::TcpStream;

/// `SIOCOUTQ` of Linux on every architecture that this is built for: bytes that were written and
/// that the peer's kernel has not acknowledged. It also tells of a connection that was reset.
const SIOCOUTQ: Opcode = 0x5411;

/// Whether the peer's kernel has acknowledged every byte; false where that cannot be told.
#[expect(unsafe_code, reason = "rustix has no function for this request")]
pub(super) fn is_acknowledged(io: &TcpStream) -> bool {
    // SAFETY: SIOCOUTQ reads nothing and writes one int, which is what the getter holds.
    let unacknowledged = unsafe { ioctl(io, Getter::<SIOCOUTQ, i32>::new()) };
    unacknowledged.is_ok_and(|bytes| bytes == 0)
}

/// Whether the peer has sent what was not read yet; false where that cannot be told.
pub(super) fn has_unread(io: &TcpStream) -> bool {
    rustix::io::ioctl_fionread(io).is_ok_and(|bytes| bytes > 0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use super::*;

    /// More than the kernels of both sides buffer.
    const MUCH: usize = 64 << 20;

    #[tokio::test]
    async fn bytes_that_nobody_reads_are_acknowledged_while_the_peer_has_room_for_them() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (peer, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (peer, (mut io, _)) = (peer.unwrap(), accepted.unwrap());
        io.write_all(b"an offer").await.unwrap();
        tokio::time::timeout(Duration::from_secs(20), async {
            while !is_acknowledged(&io) {
                tokio::task::yield_now().await;
            }
        })
        .await
        .unwrap();
        let much = vec![0; MUCH];
        let written = tokio::time::timeout(Duration::from_millis(50), io.write_all(&much)).await;
        assert!(written.is_err(), "the peer reads nothing");
        assert!(!is_acknowledged(&io));
        socket2::SockRef::from(&peer).set_linger(Some(Duration::ZERO)).unwrap();
        drop(peer);
        assert!(!is_acknowledged(&io), "what was lost has not arrived");
    }

    #[tokio::test]
    async fn what_arrived_before_a_reset_did_arrive() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (peer, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (peer, (mut io, _)) = (peer.unwrap(), accepted.unwrap());
        io.write_all(b"an offer").await.unwrap();
        peer.readable().await.unwrap();
        socket2::SockRef::from(&peer).set_linger(Some(Duration::ZERO)).unwrap();
        drop(peer);
        let mut byte = [0; 1];
        while io
            .try_read(&mut byte)
            .is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
        {
            tokio::task::yield_now().await;
        }
        assert!(is_acknowledged(&io));
    }
}
