//! HTTP polls, as opamp-go's client makes them (serving.md 3.2).

use std::io::Read;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use flate2::read::GzDecoder;
use flate2::{Compression, write::GzEncoder};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HOST, HeaderMap, HeaderValue,
};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::sync::watch;

use super::{MESSAGE_MAX, Presence, Seat, alarm, ordered, retry_after};
use crate::clock::Micros;
use crate::endpoint::CONNECT_TIMEOUT;
use crate::ledger::Noted;

const PROTOBUF: HeaderValue = HeaderValue::from_static("application/x-protobuf");
const GZIP: HeaderValue = HeaderValue::from_static("gzip");

/// Polls through the run. Returns whether the last exchange worked.
pub(super) async fn live(seat: &mut Seat, stop: &mut watch::Receiver<bool>) -> bool {
    seat.collector.handle_connected(seat.shared.world());
    let mut sender = None;
    loop {
        match seat.wait_until_present(stop).await {
            Presence::Here => {}
            Presence::Fresh => seat.collector.handle_connected(seat.shared.world()),
            Presence::Over => return false,
        }
        while let Some((_, message)) = seat.next_message() {
            if !deliver(seat, &mut sender, message, stop).await {
                return false;
            }
        }
        let deadline = seat.deadline();
        tokio::select! {
            () = alarm(&seat.shared, &mut seat.alarm, deadline) => seat.handle_timeout(deadline),
            () = ordered(&mut seat.orders) => {}
            // No goodbye: opamp-go's HTTP client says none.
            _ = stop.wait_for(|stop| *stop) => return true,
        }
    }
}

/// Sends one message until it is answered; false when the run ended before. A run that ends waits
/// for a reply as long as it would on a WebSocket.
async fn deliver(
    seat: &mut Seat,
    sender: &mut Option<SendRequest<Full<Bytes>>>,
    message: Bytes,
    stop: &mut watch::Receiver<bool>,
) -> bool {
    loop {
        let outcome = tokio::select! {
            outcome = exchange(seat, sender, message.clone()) => outcome,
            () = patience_after(stop, seat.shared.reply_timeout) => return true,
        };
        let wait = match outcome {
            Ok((status, headers, body)) => {
                if !matches!(
                    status,
                    StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS
                ) {
                    seat.handle_response(status, &headers, body);
                    return true;
                }
                seat.shared.live.throttled.fetch_add(1, Ordering::Relaxed);
                retry_after(&headers)
            }
            // A kept connection that the server closed meanwhile: Go's transport opens another.
            Err(Trouble::Stale) => {
                seat.shared.live.reopened.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            Err(Trouble::Failed(text)) => {
                seat.shared.count_error(text);
                seat.shared.live.connect_failures.fetch_add(1, Ordering::Relaxed);
                None
            }
        };
        if seat.wait_to_retry(wait, stop).await {
            return false;
        }
    }
}

async fn patience_after(stop: &mut watch::Receiver<bool>, patience: Duration) {
    // An error means that whoever stops runs is gone, which ends this one as well.
    let _stopped = stop.wait_for(|stop| *stop).await.is_ok();
    tokio::time::sleep(patience).await;
}

enum Trouble {
    Stale,
    Failed(String),
}

async fn exchange(
    seat: &Seat,
    sender: &mut Option<SendRequest<Full<Bytes>>>,
    message: Bytes,
) -> Result<(StatusCode, HeaderMap, Bytes), Trouble> {
    let kept = sender.take().filter(|sender| !sender.is_closed());
    let fresh = kept.is_none();
    let mut open = match kept {
        Some(open) => open,
        None => open_connection(seat).await?,
    };
    let request = compose(seat, message).map_err(Trouble::Failed)?;
    let response = match open.send_request(request).await {
        Ok(response) => response,
        Err(_) if !fresh => return Err(Trouble::Stale),
        Err(error) => return Err(Trouble::Failed(format!("request: {error}"))),
    };
    let (parts, body) = response.into_parts();
    let body = Limited::new(body, MESSAGE_MAX).collect().await;
    let body = body.map_err(|error| Trouble::Failed(format!("response: {error}")))?.to_bytes();
    *sender = Some(open);
    Ok((parts.status, parts.headers, body))
}

async fn open_connection(seat: &Seat) -> Result<SendRequest<Full<Bytes>>, Trouble> {
    let stream = seat.endpoint().connect().await;
    let stream = stream.map_err(|error| Trouble::Failed(format!("connect: {error}")))?;
    let handshake = tokio::time::timeout(CONNECT_TIMEOUT, http1::handshake(TokioIo::new(stream)));
    let (sender, connection) = handshake
        .await
        .map_err(|_| Trouble::Failed("handshake: timed out".to_owned()))?
        .map_err(|error| Trouble::Failed(format!("handshake: {error}")))?;
    // Ends with the sender or with the server; its error shows at the sender.
    tokio::spawn(connection);
    Ok(sender)
}

fn compose(seat: &Seat, message: Bytes) -> Result<Request<Full<Bytes>>, String> {
    let endpoint = seat.endpoint();
    let mut request = Request::post(endpoint.path.as_str())
        .header(HOST, endpoint.authority.as_str())
        .header(CONTENT_TYPE, PROTOBUF)
        .header(ACCEPT_ENCODING, GZIP)
        .header("OpAMP-Instance-UID", seat.collector.uid_text());
    let mut body = message;
    if seat.shared.gzip {
        request = request.header(CONTENT_ENCODING, GZIP);
        body = zip(&body).map_err(|error| format!("gzip: {error}"))?;
    }
    request.body(Full::new(body)).map_err(|error| format!("request: {error}"))
}

impl Seat {
    fn handle_response(&mut self, status: StatusCode, headers: &HeaderMap, body: Bytes) {
        let now = self.now();
        let noted = self.judge_response(now, status, headers, body);
        if status == StatusCode::OK && !self.ever_connected {
            self.ever_connected = true;
            self.shared.live.connected.fetch_add(1, Ordering::Relaxed);
            self.shared.live.ever_connected.fetch_add(1, Ordering::Relaxed);
        }
        self.backoff.handle_connected();
        self.note(&noted);
    }

    fn judge_response(
        &mut self,
        now: Micros,
        status: StatusCode,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Noted {
        if status != StatusCode::OK {
            let text = String::from_utf8_lossy(&body);
            return self.collector.handle_http_status(now, status.as_u16(), &text);
        }
        let world = self.shared.world();
        let bytes = body.len();
        if headers.get(CONTENT_TYPE) != Some(&PROTOBUF) {
            let text = format!("content type {:?}", headers.get(CONTENT_TYPE));
            return self.collector.handle_undecodable(now, bytes, &text, world);
        }
        let plain = match headers.get(CONTENT_ENCODING) {
            None => Ok(body),
            Some(encoding) if encoding == GZIP => unzip(&body),
            Some(encoding) => Err(format!("content encoding {encoding:?}")),
        };
        match plain {
            Ok(plain) => {
                let bytes = plain.len();
                self.collector.handle_protobuf(now, &plain, bytes, world)
            }
            Err(text) => self.collector.handle_undecodable(now, bytes, &text, world),
        }
    }
}

fn zip(plain: &[u8]) -> std::io::Result<Bytes> {
    use std::io::Write;
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(plain)?;
    Ok(encoder.finish()?.into())
}

fn unzip(body: &[u8]) -> Result<Bytes, String> {
    let limit = MESSAGE_MAX as u64;
    let mut plain = Vec::new();
    GzDecoder::new(body)
        .take(limit + 1)
        .read_to_end(&mut plain)
        .map_err(|error| format!("gzip: {error}"))?;
    if plain.len() > MESSAGE_MAX {
        return Err(format!("more than {MESSAGE_MAX} bytes after inflation"));
    }
    Ok(plain.into())
}
