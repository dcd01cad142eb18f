//! Taking sockets from the listener, as fast as they can be greeted and no faster.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};

use super::room::Place;
use super::{Front, greeter};
use crate::drain::Phase;

/// Time between two looks whether a socket may be taken again, once the process has as many as it
/// may have.
const WAIT_FOR_ROOM: Duration = Duration::from_millis(10);
/// First and longest wait after the kernel refused to give a socket.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// Accepts until the drain closes the listener; what is in its queue then is still taken in.
///
/// No error ends it: out of descriptors it waits and tries again, since links that end free some.
pub(super) async fn accept(front: Arc<Front>, listener: TcpListener) {
    let mut back_off = BACK_OFF.0;
    let draining = front.drain.reached(Phase::Draining);
    tokio::pin!(draining);
    loop {
        let place = place(&front).await;
        let accepting = async {
            // This place is counted as a socket already.
            while front.sockets() > front.limits.max_sockets.get() {
                front.count_made_room(front.room.make_room(front.clock.elapsed()));
                tokio::time::sleep(WAIT_FOR_ROOM).await;
            }
            listener.accept().await
        };
        let accepted = tokio::select! {
            biased;
            () = &mut draining => break,
            accepted = accepting => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                back_off = BACK_OFF.0;
                greet(&front, stream, place);
            }
            Err(error) if is_exhaustion(&error) => {
                tracing::warn!(%error, wait = ?back_off, "cannot accept; waiting for resources");
                tokio::time::sleep(back_off).await;
                back_off = (back_off * 2).min(BACK_OFF.1);
            }
            Err(error) => {
                // The peer is gone before we got to it; the next one is none the worse for it.
                tracing::debug!(%error, "an accepted connection was already gone");
            }
        }
    }
    let listener = match listener.into_std() {
        Ok(listener) => listener,
        Err(error) => return tracing::warn!(%error, "the accept queue cannot be emptied"),
    };
    while let Some(stream) = queued(&listener) {
        let place = place(&front).await;
        greet(&front, stream, place);
    }
}

async fn place(front: &Front) -> Place {
    front.room.enter(|| front.clock.elapsed(), |made| front.count_made_room(made)).await
}

fn greet(front: &Arc<Front>, stream: TcpStream, place: Place) {
    let slot = place.slot();
    let task = tokio::spawn(greeter::greet(Arc::clone(front), stream, place));
    front.room.seat(slot, task.abort_handle());
}

/// The next socket of the queue, if there is one now. The kernel is asked and not tokio, which may
/// not have heard yet of those who came last.
fn queued(listener: &std::net::TcpListener) -> Option<TcpStream> {
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                let stream =
                    stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream));
                if let Ok(stream) = stream {
                    return Some(stream);
                }
            }
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted
                ) => {}
            Err(_) => return None,
        }
    }
}

/// Whether the machine or the process is out of something that comes back.
fn is_exhaustion(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let Some(code) = error.raw_os_error() else { return false };
    [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM]
        .iter()
        .any(|errno| errno.raw_os_error() == code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_out_of_descriptors_is_told_from_a_peer_that_left() {
        for (errno, expected) in [
            (rustix::io::Errno::MFILE, true),
            (rustix::io::Errno::NFILE, true),
            (rustix::io::Errno::NOBUFS, true),
            (rustix::io::Errno::CONNABORTED, false),
        ] {
            let error = io::Error::from_raw_os_error(errno.raw_os_error());
            assert_eq!(is_exhaustion(&error), expected, "{error}");
        }
    }
}
