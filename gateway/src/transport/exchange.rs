//! One message by POST: its body in, one reply out, each fault with the word that HTTP has for it.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Response, StatusCode};
use proto::ids::InstanceUid;
use proto::peek::{Gathered, Peek};

use super::budget::Budget;
use super::encoding::{self, Coding, INFLATE_STEP, Inflate};
use super::http::Answer;
use crate::admission;
use crate::listen::Front;
use crate::listen::head::{self, Head, PROTOBUF, Refusal};
use crate::metrics::labels::{RejectReason, Transport};
use crate::serve::Outgoing;
use crate::tokens::Grant;

/// How long a request's body may take to arrive.
pub const BODY_DEADLINE: Duration = Duration::from_secs(30);
/// Inflated bytes between two chances for other tasks.
const YIELD_EVERY: usize = 1 << 20;

/// Why a request has no reply in protobuf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Its head says so.
    Refused(Refusal),
    /// 415: a coding, or a pile of them, that is not taken here.
    Coding,
    /// 413: over the limit, on the wire or inflated.
    TooLarge,
    /// 408: the body did not arrive in time.
    Slow,
    /// 400: the body ended early, or its chunks are malformed.
    Body,
    /// 400: not gzip, or cut off.
    Gzip,
    /// 400: `OpAMP-Instance-UID` names another agent than the message.
    OtherUid,
    /// 503: no bytes left in flight.
    Short,
}

impl Fault {
    fn status(self) -> StatusCode {
        match self {
            Self::Refused(refusal) => {
                StatusCode::from_u16(refusal.status()).unwrap_or(StatusCode::BAD_REQUEST)
            }
            Self::Coding => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Slow => StatusCode::REQUEST_TIMEOUT,
            Self::Body | Self::Gzip | Self::OtherUid => StatusCode::BAD_REQUEST,
            Self::Short => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    fn text(self, front: &Front) -> String {
        match self {
            Self::Refused(refusal) => refusal.text(),
            Self::Coding => "Content-Encoding is gzip, identity or nothing\n".into(),
            Self::TooLarge => format!(
                "the message is larger than {} bytes, inflated\n",
                front.limits.max_message_bytes
            ),
            Self::Slow => "the body did not arrive in time\n".into(),
            Self::Body => "the body is cut off or malformed\n".into(),
            Self::Gzip => "the body is not valid gzip\n".into(),
            Self::OtherUid => "OpAMP-Instance-UID is not the instance_uid of the message\n".into(),
            Self::Short => "busy\n".into(),
        }
    }

    /// The label of `tidegate_bad_messages_total`; `None` for what is counted elsewhere.
    fn reason(self) -> Option<&'static str> {
        match self {
            Self::Refused(_) | Self::Short => None,
            Self::Coding => Some("content_encoding"),
            Self::TooLarge => Some("too_big"),
            Self::Slow => Some("body_deadline"),
            Self::Body => Some("body"),
            Self::Gzip => Some("gzip"),
            Self::OtherUid => Some("uid_header"),
        }
    }

    /// Counts it and says it.
    pub(super) fn answer(self, front: &Front) -> Answer {
        let mut headers = Vec::new();
        match self {
            Self::Refused(refusal) => {
                front.count_refusal(refusal);
                headers = refusal.headers();
            }
            Self::Short => {
                front.reject(RejectReason::Bytes);
                let seconds = admission::retry_after_seconds(true);
                headers.push(("retry-after", seconds.to_string()));
            }
            Self::Coding => headers.push(("accept-encoding", "gzip, identity".into())),
            Self::TooLarge | Self::Slow | Self::Body | Self::Gzip | Self::OtherUid => {}
        }
        if let Some(reason) = self.reason() {
            front.metrics.bad_messages.count(&[reason]);
        }
        let mut answer = Response::new(Full::new(Bytes::from(self.text(front))));
        *answer.status_mut() = self.status();
        let text = HeaderValue::from_static("text/plain; charset=utf-8");
        answer.headers_mut().insert(header::CONTENT_TYPE, text);
        for (name, value) in headers {
            if let Ok(value) = HeaderValue::from_str(&value) {
                answer.headers_mut().insert(HeaderName::from_static(name), value);
            }
        }
        answer
    }
}

/// Reads one message and answers it.
pub(super) async fn exchange(
    front: &Front,
    certificate: Option<&[u8]>,
    parts: &Parts,
    body: Incoming,
) -> Result<Answer, Fault> {
    let grant = front
        .credentials
        .check(parts.single("authorization"), certificate)
        .map_err(|denied| Fault::Refused(Refusal::Credential(denied)))?;
    let coding = Coding::of_body(parts.values("content-encoding")).ok_or(Fault::Coding)?;
    let mut booked = Booked::new(&front.budget);
    let received = tokio::time::timeout(
        BODY_DEADLINE,
        collect(body, front.limits.max_message_bytes, &mut booked),
    )
    .await
    .map_err(|_| Fault::Slow)??;
    let message = match coding {
        Coding::Identity => received,
        Coding::Gzip => inflate(&received, front.limits.max_message_bytes, &mut booked).await?,
    };
    front.metrics.messages_received.get(Transport::Http).increment(1);
    front.metrics.messages_received_bytes.get(Transport::Http).increment(message.len() as u64);
    let outgoing = answer(front, parts, &grant, &message)?;
    drop(message);
    if let Some(ticket) = outgoing.ticket {
        Box::pin(front.server.durable(ticket, Duration::ZERO)).await;
    }
    front.metrics.messages_sent.get(Transport::Http).increment(1);
    front.metrics.messages_sent_bytes.get(Transport::Http).increment(outgoing.len() as u64);
    Ok(reply(&outgoing, encoding::accepts_gzip(parts.values("accept-encoding"))))
}

/// What a message comes to, if its sender is let in.
fn answer(front: &Front, parts: &Parts, grant: &Grant, message: &[u8]) -> Result<Outgoing, Fault> {
    let now = front.clock.now();
    let started = front.clock.elapsed();
    let mut gathered = Gathered::default();
    let peeked = Peek::parse(message, &mut gathered);
    if let Ok(peek) = &peeked {
        check_shown_uid(parts, peek.uid)?;
        if !front.server.polls(&peek.uid, now)
            && let Err(reason) = front.admission.take_token(front.clock.elapsed())
        {
            front.reject(reason);
            let retry_after = admission::retry_after_seconds(front.knows(peek.uid));
            return Err(Fault::Refused(Refusal::Busy { retry_after }));
        }
    }
    let outgoing = front.server.handle_poll(grant, now, peeked);
    front.metrics.message_handle.record(front.clock.elapsed().saturating_sub(started));
    Ok(outgoing)
}

/// A shown uid that is not the message's own is a mix-up somewhere; none at all is fine (H5).
fn check_shown_uid(parts: &Parts, uid: InstanceUid) -> Result<(), Fault> {
    match parts.values(head::UID_HEADER).next() {
        Some(shown) if head::uid_from_text(shown) != Some(uid) => Err(Fault::OtherUid),
        _ => Ok(()),
    }
}

fn reply(outgoing: &Outgoing, gzip: bool) -> Answer {
    let parts = outgoing.parts();
    let gzipped = if gzip { encoding::gzip(&parts) } else { None };
    let coded = gzipped.is_some();
    let body = gzipped.unwrap_or_else(|| parts.concat());
    let mut answer = Response::new(Full::new(Bytes::from(body)));
    if outgoing.refused {
        *answer.status_mut() = StatusCode::BAD_REQUEST;
    }
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(PROTOBUF));
    if coded {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    answer
}

/// Reads a body up to `max` bytes.
async fn collect(mut body: Incoming, max: usize, booked: &mut Booked<'_>) -> Result<Bytes, Fault> {
    if body.size_hint().lower() > max as u64 {
        return Err(Fault::TooLarge);
    }
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| Fault::Body)?.into_data() else { continue };
        if first.len().max(all.len()) + data.len() > max {
            return Err(Fault::TooLarge);
        }
        booked.add(data.len())?;
        // Most bodies are one piece, and are not copied.
        if first.is_empty() && all.is_empty() {
            first = data;
        } else {
            all.extend_from_slice(&std::mem::take(&mut first));
            all.extend_from_slice(&data);
        }
    }
    Ok(if all.is_empty() { first } else { all.freeze() })
}

/// Inflates a body up to `max` bytes, step by step.
async fn inflate(body: &[u8], max: usize, booked: &mut Booked<'_>) -> Result<Bytes, Fault> {
    let mut out = Vec::new();
    let mut inflate = Inflate::new(body);
    let mut yield_at = YIELD_EVERY;
    loop {
        if out.capacity() - out.len() < INFLATE_STEP {
            // What is reserved counts, not only what is used of it.
            let doubled = (2 * out.capacity()).min(max + INFLATE_STEP);
            let capacity = doubled.max(out.len() + INFLATE_STEP);
            booked.add(capacity - out.capacity())?;
            out.reserve_exact(capacity - out.len());
        }
        let more = inflate.step(&mut out).map_err(|_| Fault::Gzip)?;
        if out.len() > max {
            return Err(Fault::TooLarge);
        }
        if !more {
            return Ok(out.into());
        }
        if out.len() >= yield_at {
            yield_at += YIELD_EVERY;
            tokio::task::yield_now().await;
        }
    }
}

/// Bytes of the budget, given back when the exchange ends, however it ends.
struct Booked<'b> {
    budget: &'b Budget,
    bytes: usize,
}

impl<'b> Booked<'b> {
    fn new(budget: &'b Budget) -> Self {
        Self { budget, bytes: 0 }
    }

    fn add(&mut self, more: usize) -> Result<(), Fault> {
        if !self.budget.book(more) {
            return Err(Fault::Short);
        }
        self.bytes += more;
        Ok(())
    }
}

impl Drop for Booked<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.budget.unbook(self.bytes);
        }
    }
}
