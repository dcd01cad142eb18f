//! One OpAMP exchange over HTTP, plain or under TLS, with every step's time: what a probe does.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use loadgen::tls::Stream;
use prost::Message;
use proto::opamp::{AgentToServer, ServerToAgent};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use super::certificates::Target;
use super::clock::{Clock, Nanos};
use super::records::Outcome;

/// An answer that takes longer is a failure: fixed before any run.
pub const ANSWER_MAX: Duration = Duration::from_millis(250);
/// Bytes of an answer; a probe accepts no configuration, so its answers are short.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// Capabilities of a probe: it reports its status, and accepts nothing.
const REPORTS_STATUS: u64 = 1;

/// What one exchange saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// When it began.
    pub sent_ns: Nanos,
    /// Connected; 0 for never.
    pub connected_ns: Nanos,
    /// First byte; 0 for never.
    pub first_byte_ns: Nanos,
    /// Over.
    pub done_ns: Nanos,
    /// Its own port.
    pub port: u16,
    /// `Tidegate-Instance`.
    pub answer: String,
    /// What came of it.
    pub outcome: Outcome,
}

/// Asks once. The uid is the stream's own, the sequence number goes up with every message.
pub async fn exchange(
    clock: Clock,
    source: IpAddr,
    target: &Target,
    uid: [u8; 16],
    sequence: u64,
) -> Seen {
    let mut seen = Seen {
        sent_ns: clock.now(),
        connected_ns: 0,
        first_byte_ns: 0,
        done_ns: 0,
        port: 0,
        answer: String::new(),
        outcome: Outcome::Timeout,
    };
    let message = AgentToServer {
        instance_uid: Bytes::copy_from_slice(&uid),
        sequence_num: sequence,
        capabilities: REPORTS_STATUS,
        ..AgentToServer::default()
    };
    let message = message.encode_to_vec();
    let asked = ask(clock, source, target, &message, &mut seen);
    let outcome = match tokio::time::timeout(ANSWER_MAX, asked).await {
        Ok(Ok(answer)) => judge(&answer, &uid, &mut seen.answer),
        Ok(Err(error)) if error.kind() == std::io::ErrorKind::ConnectionRefused => Outcome::Refused,
        Ok(Err(_)) => Outcome::Reset,
        Err(_) if seen.first_byte_ns > 0 => Outcome::Late,
        Err(_) => Outcome::Timeout,
    };
    seen.outcome = outcome;
    seen.done_ns = clock.now();
    seen
}

async fn ask(
    clock: Clock,
    source: IpAddr,
    target: &Target,
    body: &[u8],
    seen: &mut Seen,
) -> std::io::Result<Vec<u8>> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::new(source, 0))?;
    let to = target.to;
    let stream = socket.connect(to).await?;
    seen.connected_ns = clock.now();
    seen.port = stream.local_addr()?.port();
    let mut stream = match &target.trust {
        None => Stream::Plain(stream),
        Some(trust) => trust.connect(target.host(), stream).await?,
    };
    let head = format!(
        "POST /v1/opamp HTTP/1.1\r\nHost: {to}\r\nContent-Type: application/x-protobuf\r\n\
Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(&[head.as_bytes(), body].concat()).await?;
    read_all(clock, &mut stream, seen).await
}

async fn read_all(clock: Clock, stream: &mut Stream, seen: &mut Seen) -> std::io::Result<Vec<u8>> {
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let count = match stream.read(&mut buffer).await {
            Ok(count) => count,
            // The length of an answer is in its head: a peer that ends TLS without a word has still
            // sent it.
            Err(error)
                if error.kind() == std::io::ErrorKind::UnexpectedEof && !answer.is_empty() =>
            {
                0
            }
            Err(error) => return Err(error),
        };
        if count == 0 {
            let empty = std::io::ErrorKind::ConnectionReset;
            return if answer.is_empty() { Err(empty.into()) } else { Ok(answer) };
        }
        if seen.first_byte_ns == 0 {
            seen.first_byte_ns = clock.now();
        }
        answer.extend_from_slice(&buffer[..count]);
        if answer.len() > ANSWER_BYTES_MAX {
            return Err(std::io::ErrorKind::InvalidData.into());
        }
    }
}

/// Success: 200, and a `ServerToAgent` for the uid that asked.
fn judge(answer: &[u8], uid: &[u8; 16], instance: &mut String) -> Outcome {
    let Some(end) = answer.windows(4).position(|window| window == b"\r\n\r\n") else {
        return Outcome::Undecodable;
    };
    let head = String::from_utf8_lossy(&answer[..end]);
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).unwrap_or_default();
    for line in lines {
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("tidegate-instance")
        {
            // It becomes a field of a CSV file.
            *instance = value.trim().replace([',', '"'], "_");
        }
    }
    match status {
        "200" => match ServerToAgent::decode(&answer[end + 4..]) {
            Ok(message) if message.instance_uid[..] == uid[..] => Outcome::Ok,
            Ok(_) | Err(_) => Outcome::Undecodable,
        },
        "429" | "503" => Outcome::Shed,
        _ => Outcome::Undecodable,
    }
}

/// The status of a GET, for `/readyz`.
///
/// # Errors
/// When nobody answers with a status.
pub(crate) async fn get_status(to: SocketAddr, path: &str) -> std::io::Result<u16> {
    let asked = async {
        let mut stream = TcpStream::connect(to).await?;
        let head = format!("GET {path} HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.take(ANSWER_BYTES_MAX as u64).read_to_end(&mut answer).await?;
        let text = String::from_utf8_lossy(&answer);
        let status = text.split(' ').nth(1).and_then(|word| word.parse().ok());
        status.ok_or_else(|| std::io::Error::from(std::io::ErrorKind::InvalidData))
    };
    match tokio::time::timeout(Duration::from_secs(1), asked).await {
        Ok(answer) => answer,
        Err(_) => Err(std::io::ErrorKind::TimedOut.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: &str, uid: &[u8]) -> Vec<u8> {
        let body =
            ServerToAgent { instance_uid: Bytes::copy_from_slice(uid), ..ServerToAgent::default() };
        let head = format!("HTTP/1.1 {status}\r\nTidegate-Instance: a/1/2\r\n\r\n");
        [head.into_bytes(), body.encode_to_vec()].concat()
    }

    #[test]
    fn only_an_answer_to_the_uid_that_asked_is_a_success() {
        let mut instance = String::new();
        assert_eq!(judge(&answer("200 OK", &[7; 16]), &[7; 16], &mut instance), Outcome::Ok);
        assert_eq!(instance, "a/1/2");
        let mut judged = |bytes: &[u8]| judge(bytes, &[7; 16], &mut instance);
        assert_eq!(judged(&answer("200 OK", &[8; 16])), Outcome::Undecodable);
        assert_eq!(judged(&answer("503 Service Unavailable", &[7; 16])), Outcome::Shed);
        assert_eq!(judged(&answer("404 Not Found", &[7; 16])), Outcome::Undecodable);
        assert_eq!(judged(b"HTTP/1.1 200 OK\r\n"), Outcome::Undecodable);
    }
}
