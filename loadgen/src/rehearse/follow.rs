//! Follows a Rollout on a gateway's operators' listener, by its server-sent events.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, HOST};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use render::rollout::report::RolloutReport;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};

/// How long to wait before asking again: a gateway that restarts, a Rollout that is not judged yet.
const AGAIN: Duration = Duration::from_millis(100);
/// Longest that an answer may take to begin.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// An event is a report; one that names 10,000 halted members has some megabytes.
const EVENT_MAX: usize = 64 << 20;
/// States that may wait to be read.
pub(crate) const NEWS_MAX: usize = 1_024;

/// What is heard.
#[derive(Debug)]
pub(crate) enum News {
    /// A state of the Rollout.
    Report(Box<RolloutReport>),
    /// It is not at head.
    Gone,
    /// Something that is no report.
    Garbled(String),
}

/// Follows until nobody listens; `address` is where, `None` while there is no gateway.
pub(crate) async fn follow(
    rollout: String,
    mut address: watch::Receiver<Option<SocketAddr>>,
    news: mpsc::Sender<News>,
) {
    loop {
        let at = *address.borrow_and_update();
        let stream = async {
            match at {
                Some(at) => read_events(at, &rollout, &news).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            ended = stream => if ended.is_err() { return },
            changed = address.changed() => {
                if changed.is_err() {
                    return;
                }
                continue;
            }
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// Reads one stream to its end; an error is that nobody listens any more.
async fn read_events(
    at: SocketAddr,
    rollout: &str,
    news: &mpsc::Sender<News>,
) -> Result<(), mpsc::error::SendError<News>> {
    let path = format!("/api/v1/rollouts/{rollout}/events");
    let Ok(Some(response)) = tokio::time::timeout(ANSWER_MAX, get(at, &path)).await else {
        return Ok(()); // it restarts, or is busy
    };
    match response.status() {
        StatusCode::OK => {}
        StatusCode::NOT_FOUND => return news.send(News::Gone).await,
        _ => return Ok(()),
    }
    let mut body = response.into_body();
    let mut buffer = BytesMut::new();
    while let Some(Ok(frame)) = body.frame().await {
        let Ok(data) = frame.into_data() else { continue };
        buffer.extend_from_slice(&data);
        while let Some(end) = find(&buffer, b"\n\n") {
            let event = buffer.split_to(end + 2);
            if let Some(piece) = parse(&String::from_utf8_lossy(&event)) {
                news.send(piece).await?;
            }
        }
        if buffer.len() > EVENT_MAX {
            return news.send(News::Garbled(format!("more than {EVENT_MAX} bytes"))).await;
        }
    }
    Ok(())
}

fn find(buffer: &[u8], what: &[u8]) -> Option<usize> {
    buffer.windows(what.len()).position(|window| window == what)
}

/// One event; comments and the events that end a stream say nothing.
fn parse(text: &str) -> Option<News> {
    let (mut event, mut data) = ("", String::new());
    for line in text.lines() {
        match line.split_once(':') {
            Some(("event", value)) => event = value.trim(),
            Some(("data", value)) => data.push_str(value.trim_start()),
            _ => {}
        }
    }
    match event {
        "report" => Some(match serde_json::from_str(&data) {
            Ok(report) => News::Report(Box::new(report)),
            Err(error) => News::Garbled(format!("an event is no report: {error}")),
        }),
        "gone" => Some(News::Gone),
        _ => None,
    }
}

/// The response to a GET; `None` when there is none.
async fn get(at: SocketAddr, path: &str) -> Option<Response<Incoming>> {
    let stream = TcpStream::connect(at).await.ok()?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.ok()?;
    tokio::spawn(connection); // ends with the response
    let request = Request::get(path)
        .header(HOST, at.to_string())
        .header(ACCEPT, "text/event-stream")
        .body(Empty::<Bytes>::new())
        .ok()?;
    sender.send_request(request).await.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_told_from_comments() {
        assert!(parse(": keep-alive\n\n").is_none());
        assert!(parse("retry: 2000\n\n").is_none());
        assert!(parse("event: end\ndata: \"draining\"\n\n").is_none());
        assert!(matches!(parse("event: gone\ndata: \"a/b\"\n\n"), Some(News::Gone)));
        assert!(matches!(parse("event: report\ndata: {}\n\n"), Some(News::Garbled(_))));
    }
}
