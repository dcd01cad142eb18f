//! From an accepted socket to a link: TLS, the request head, the credential, admission, the answer.
//!
//! One task per socket, under one deadline. All that it needs is gone when it ends: a WebSocket goes
//! on as a task of its own that holds none of it (idle-links.md, point 2).

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use proto::ids::InstanceUid;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use super::Front;
use super::head::{self, Head, Parsed, Refusal, Wish};
use super::room::Place;
use super::socket::{Rewound, Socket};
use crate::admission;
use crate::metrics::labels::RejectReason;
use crate::tokens::Grant;
use crate::transport::{http, link};

/// Bytes of a request head: four times what the largest client sends with a long token.
pub const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Headers of a request.
pub const HEADERS_MAX: usize = 64;
/// Room for the head of every client that we know.
const HEAD_BYTES_USUAL: usize = 1_024;
/// Bytes read and thrown away after a refusal, so that the peer reads it and not a reset.
const LINGER_BYTES_MAX: usize = 256 * 1024;

/// What a head, whole or not, leads to.
#[derive(Debug)]
enum Judgement {
    /// More bytes are needed.
    Incomplete,
    /// A WebSocket is granted.
    Upgrade(Upgrade),
    /// hyper answers it, whatever it is.
    Plain,
    /// Answered here, and closed.
    Refused(Refusal),
}

/// A granted upgrade.
#[derive(Debug)]
struct Upgrade {
    /// Bytes of the head; what follows are frames.
    head_bytes: usize,
    accept: String,
    grant: Grant,
    /// The uid that the peer shows, if it does.
    uid: Option<InstanceUid>,
}

/// Greets one accepted socket, and serves it if it turns out to be plain HTTP.
pub(super) async fn greet(front: Arc<Front>, stream: TcpStream, place: Place) {
    let accepted = front.clock.elapsed();
    let deadline = front.limits.handshake_deadline;
    match tokio::time::timeout(deadline, handshake(&front, stream, accepted, &place)).await {
        Ok(Some((socket, ahead))) => {
            drop(place);
            http::serve(front, Rewound::new(ahead, socket)).await;
        }
        Ok(None) => {}
        Err(_) => front.reject(RejectReason::HandshakeDeadline),
    }
}

/// The socket and what was read from it, when hyper is to go on with it.
async fn handshake(
    front: &Arc<Front>,
    stream: TcpStream,
    accepted: Duration,
    place: &Place,
) -> Option<(Socket, Bytes)> {
    // Nothing is set aside for a peer that has not said anything.
    stream.readable().await.ok()?;
    place.spoke();
    let mut socket = match &front.tls {
        None => Socket::Plain(stream),
        Some(tls) => match TlsAcceptor::from(tls.current()).accept(stream).into_fallible().await {
            Ok(stream) => Socket::Tls(Box::new(stream)),
            Err((error, stream)) => {
                if front.metrics.peer_log.allow(front.clock.seconds()) {
                    let peer = stream.peer_addr().ok();
                    tracing::info!(?peer, %error, "TLS handshake failed");
                }
                front.reject(RejectReason::Tls);
                return None;
            }
        },
    };
    let mut read = BytesMut::with_capacity(HEAD_BYTES_USUAL);
    loop {
        let before = read.len();
        match socket.read_buf(&mut read).await {
            Ok(1..) => {}
            // Gone before it asked for anything: a port scan, or a balancer's health check.
            Ok(0) | Err(_) => return None,
        }
        // A head can only be complete once a line ends: one byte at a time costs one parse a line.
        if before > 0 && !read[before..].contains(&b'\n') && read.len() <= HEAD_BYTES_MAX {
            continue;
        }
        match judge(front, &read, socket.certificate()) {
            Judgement::Incomplete => {}
            Judgement::Plain => {
                return match front.admission.take_place() {
                    Ok(()) => Some((socket, read.freeze())),
                    Err(reason) => {
                        front.reject(reason);
                        refuse(socket, busy(false)).await;
                        None
                    }
                };
            }
            Judgement::Refused(refusal) => {
                front.count_refusal(refusal);
                refuse(socket, refusal).await;
                return None;
            }
            Judgement::Upgrade(upgrade) => {
                let known = upgrade.uid.is_some_and(|uid| front.knows(uid));
                if let Err(reason) = front.admission.enter(front.clock.elapsed()) {
                    front.reject(reason);
                    refuse(socket, busy(known)).await;
                    return None;
                }
                let frames = read.split_off(upgrade.head_bytes);
                let answer = front.switching_protocols(&upgrade.accept);
                if let Err(error) =
                    link::begin(front, socket, upgrade.grant, &answer, frames, accepted)
                {
                    // Admission counts to the same limit, so this takes a fault of ours.
                    tracing::error!(%error, "a link was admitted and there was no slot for it");
                    front.admission.leave();
                    front.reject(RejectReason::Links);
                }
                return None;
            }
        }
    }
}

/// What the bytes read so far ask for. The credential is looked at before anything else is built.
fn judge(front: &Front, read: &[u8], certificate: Option<&[u8]>) -> Judgement {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let head_bytes = match request.parse(read) {
        Ok(httparse::Status::Complete(head_bytes)) if head_bytes <= HEAD_BYTES_MAX => head_bytes,
        Ok(httparse::Status::Partial) if read.len() <= HEAD_BYTES_MAX => {
            return Judgement::Incomplete;
        }
        Ok(_) | Err(httparse::Error::TooManyHeaders) => {
            return Judgement::Refused(Refusal::HeadTooLarge);
        }
        Err(_) => return Judgement::Refused(Refusal::Malformed),
    };
    let head = Parsed(&request);
    match head::wish(&head) {
        Wish::Exchange | Wish::Refused(_) => Judgement::Plain,
        Wish::Upgrade { accept } => {
            match front.credentials.check(head.single("authorization"), certificate) {
                Ok(grant) => Judgement::Upgrade(Upgrade {
                    head_bytes,
                    accept,
                    grant,
                    uid: head.single(head::UID_HEADER).and_then(head::uid_from_text),
                }),
                Err(denied) => Judgement::Refused(Refusal::Credential(denied)),
            }
        }
    }
}

fn busy(known: bool) -> Refusal {
    Refusal::Busy { retry_after: admission::retry_after_seconds(known) }
}

/// Answers and closes, so that the peer gets to read the answer: what it still sends is read and
/// thrown away until it closes too, up to a limit. The caller's deadline bounds the time.
async fn refuse(mut socket: Socket, refusal: Refusal) {
    if socket.write_all(&refusal.to_bytes()).await.is_err() || socket.shutdown().await.is_err() {
        return;
    }
    let mut sink = [0; 1_024];
    let mut left = LINGER_BYTES_MAX;
    while let Ok(read @ 1..) = socket.read(&mut sink).await {
        left = left.saturating_sub(read);
        if left == 0 {
            return;
        }
    }
}
