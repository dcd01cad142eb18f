//! TLS of a link after its handshake: rustls without a wrapper, so that a link reads and writes it
//! under its own lock, like a plain socket.

use std::io::{self, IoSlice, Read, Write};

use rustls::ServerConnection;
use tokio::net::TcpStream;

/// A socket that says `WouldBlock` where it would block.
struct Now<'s>(&'s TcpStream);

impl Read for Now<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(buf)
    }
}

impl Write for Now<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.try_write(buf)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(bufs)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads decrypted bytes; 0 is the end, announced or not.
///
/// What rustls has decrypted is handed out before the socket is touched, so that nothing decrypted
/// is left behind when this returns `WouldBlock`.
///
/// # Errors
///
/// `WouldBlock`, whatever the socket says, and `InvalidData` for what is not TLS.
pub(super) fn read(
    tls: &mut ServerConnection,
    socket: &TcpStream,
    out: &mut [u8],
) -> io::Result<usize> {
    loop {
        match tls.reader().read(out) {
            Ok(read) => return Ok(read),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // The peer ended the socket without a close_notify; a message cut short shows anyway.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
            Err(error) => return Err(error),
        }
        if tls.read_tls(&mut Now(socket))? == 0 {
            return Ok(0);
        }
        if let Err(error) = tls.process_new_packets() {
            // The alert says what is wrong, if the socket still takes it.
            let _ = flush(tls, socket);
            return Err(io::Error::new(io::ErrorKind::InvalidData, error));
        }
    }
}

/// Takes what rustls has decrypted already; 0 when that is all. The socket is not touched, so that
/// this ends however fast the peer sends.
pub(super) fn read_decrypted(tls: &mut ServerConnection, out: &mut [u8]) -> usize {
    // The reader task meets the end of the stream, and whatever is wrong with it.
    tls.reader().read(out).unwrap_or(0)
}

/// Writes `parts` as far as it goes now; returns how many bytes of them were taken. Encrypted bytes
/// may be left over: [`ServerConnection::wants_write`].
///
/// # Errors
///
/// Whatever the socket says, `WouldBlock` excepted.
pub(super) fn write(
    tls: &mut ServerConnection,
    socket: &TcpStream,
    parts: [&[u8]; 2],
) -> io::Result<usize> {
    let [mut first, mut second] = parts;
    let mut taken = 0;
    loop {
        if !flush(tls, socket)? {
            return Ok(taken);
        }
        if first.is_empty() && second.is_empty() {
            return Ok(taken);
        }
        let more = tls.writer().write_vectored(&[IoSlice::new(first), IoSlice::new(second)])?;
        let of_first = more.min(first.len());
        first = &first[of_first..];
        second = &second[more - of_first..];
        taken += more;
    }
}

/// Sends what is encrypted already; false if the socket is full.
///
/// # Errors
///
/// Whatever the socket says, `WouldBlock` excepted.
pub(super) fn flush(tls: &mut ServerConnection, socket: &TcpStream) -> io::Result<bool> {
    while tls.wants_write() {
        match tls.write_tls(&mut Now(socket)) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}
