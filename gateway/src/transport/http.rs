//! Plain HTTP: one message per POST, many per connection, hyper underneath (spec/serving.md 1.3).

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};

use super::exchange::{self, Fault};
use crate::drain::Phase;
use crate::listen::head::{self, Refusal, Wish};
use crate::listen::socket::Rewound;
use crate::listen::{Front, HEADERS_MAX};

/// How long a connection may wait for its next request, head and all. Twice the longest usual poll
/// interval and more, so that no poll meets a close (row 79).
pub const KEEP_ALIVE: Duration = Duration::from_secs(180);
/// hyper's buffer per connection while it reads.
const READ_BUFFER_MAX: usize = 64 * 1024;
/// The answer header that names this replica.
const INSTANCE: HeaderName = HeaderName::from_static("tidegate-instance");

/// An answer, whole.
pub(super) type Answer = Response<Full<Bytes>>;

/// Serves one connection until it ends, or until the drain has it end after its next answer.
///
/// The connection holds a place of [`Front::live`]; it is given back here.
pub async fn serve(front: Arc<Front>, socket: Rewound) {
    let _place = Place(Arc::clone(&front));
    let certificate: Option<Arc<[u8]>> = socket.certificate().map(Arc::from);
    let service = service_fn(|request: Request<Incoming>| {
        let (front, certificate) = (Arc::clone(&front), certificate.clone());
        async move { Ok::<_, Infallible>(answer(&front, certificate.as_deref(), request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(KEEP_ALIVE)
        .max_headers(HEADERS_MAX)
        .max_buf_size(READ_BUFFER_MAX)
        .half_close(true)
        .serve_connection(TokioIo::new(socket), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = front.drain.reached(Phase::Draining) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "an HTTP connection ended badly");
    }
}

/// A place among the live links, given back however the connection ends.
struct Place(Arc<Front>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.admission.leave();
    }
}

/// Answers one request.
async fn answer(front: &Front, certificate: Option<&[u8]>, request: Request<Incoming>) -> Answer {
    let (parts, body) = request.into_parts();
    let outcome = match head::wish(&parts) {
        Wish::Refused(refusal) => Err(Fault::Refused(refusal)),
        Wish::Upgrade { .. } => Err(Fault::Refused(Refusal::UpgradeLate)),
        Wish::Exchange => exchange::exchange(front, certificate, &parts, body).await,
    };
    let mut answer = outcome.unwrap_or_else(|fault| fault.answer(front));
    if let Some(instance) = &front.instance
        && let Ok(value) = HeaderValue::from_str(instance)
    {
        answer.headers_mut().insert(INSTANCE, value);
    }
    answer
}
