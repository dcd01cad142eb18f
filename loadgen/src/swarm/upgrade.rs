//! The request for a WebSocket, and what the server makes of it.

use std::io::Write as _;

use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use crate::clock::Micros;

/// Bytes of a response's head, at most.
const HEAD_MAX: usize = 16_384;
const HEADERS_MAX: usize = 64;

/// What came of a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Response {
    /// The rest of it has not come yet.
    More,
    /// A WebSocket, after that many bytes.
    Upgraded(usize),
    /// Too busy; come again after that long.
    Throttled(Option<Micros>),
    /// No WebSocket, and why.
    Refused(String),
}

/// The nonce of one connection as base64 of 16 bytes, made again when the answer comes rather than
/// kept.
pub(crate) fn key(seed: u64, index: u32, connection: u32) -> [u8; 24] {
    let mut nonce = [0; 18]; // 16 and what fills up six groups of three
    let bits = seed.wrapping_add(u64::from(index) << 32 | u64::from(connection));
    nonce[..8].copy_from_slice(&fastrand::Rng::with_seed(bits).u64(..).to_ne_bytes());
    nonce[8..12].copy_from_slice(&index.to_ne_bytes());
    nonce[12..16].copy_from_slice(&connection.to_ne_bytes());
    let mut text = [b'='; 24];
    for (letters, bytes) in text.chunks_exact_mut(4).zip(nonce.chunks_exact(3)) {
        let group = bytes.iter().fold(0_u32, |sum, byte| sum << 8 | u32::from(*byte));
        for (letter, shift) in letters.iter_mut().zip([18, 12, 6, 0]) {
            *letter = ALPHABET[usize::try_from(group >> shift & 63).unwrap_or_default()];
        }
    }
    text[22..].copy_from_slice(b"==");
    text
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Appends the request, as opamp-go's client makes it.
pub(crate) fn write_request(out: &mut Vec<u8>, authority: &str, path: &str, key: &[u8; 24]) {
    // Writing into a vector does not fail.
    let _ = write!(
        out,
        "GET {path} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: loadgen\r\nConnection: Upgrade\r\nSec-WebSocket-Key: {}\r\nSec-WebSocket-Version: 13\r\nUpgrade: websocket\r\n\r\n",
        key.escape_ascii()
    );
}

/// Reads the answer to a request with that key.
pub(crate) fn read_response(bytes: &[u8], key: &[u8; 24]) -> Response {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let size = match response.parse(bytes) {
        Ok(httparse::Status::Complete(size)) => size,
        Ok(httparse::Status::Partial) if bytes.len() < HEAD_MAX => return Response::More,
        Ok(httparse::Status::Partial) => {
            return Response::Refused("upgrade: a head without end".to_owned());
        }
        Err(error) => return Response::Refused(format!("upgrade: {error}")),
    };
    let status = response.code.unwrap_or_default();
    let header = |name: &str| {
        response
            .headers
            .iter()
            .find(|header| header.name.eq_ignore_ascii_case(name))
            .map(|header| header.value)
    };
    match status {
        101 => {}
        429 | 503 => {
            let seconds = header("retry-after")
                .and_then(|value| std::str::from_utf8(value).ok())
                .and_then(|value| value.trim().parse::<u64>().ok());
            return Response::Throttled(seconds.and_then(|seconds| seconds.checked_mul(1_000_000)));
        }
        _ => return Response::Refused(format!("upgrade refused: {status}")),
    }
    let is = |name: &str, value: &str| {
        header(name).is_some_and(|found| found.eq_ignore_ascii_case(value.as_bytes()))
    };
    if !is("upgrade", "websocket") || !is("connection", "upgrade") {
        return Response::Refused("upgrade: 101 without Upgrade: websocket".to_owned());
    }
    if header("sec-websocket-accept") != Some(derive_accept_key(key).as_bytes()) {
        return Response::Refused("upgrade: Sec-WebSocket-Accept is not of our key".to_owned());
    }
    if header("sec-websocket-extensions").is_some() {
        return Response::Refused("upgrade: an extension that was not asked for".to_owned());
    }
    Response::Upgraded(size)
}

#[cfg(test)]
mod tests {
    use tokio_tungstenite::tungstenite::handshake::server::create_response;
    use tokio_tungstenite::tungstenite::http;

    use super::*;

    /// What tungstenite answers to what is asked here.
    fn answer(key: &[u8; 24]) -> String {
        let mut request = Vec::new();
        write_request(&mut request, "127.0.0.1:4320", "/v1/opamp", key);
        let mut headers = [httparse::EMPTY_HEADER; 16];
        let mut parsed = httparse::Request::new(&mut headers);
        assert!(parsed.parse(&request).unwrap().is_complete());
        assert_eq!((parsed.method, parsed.path), (Some("GET"), Some("/v1/opamp")));
        let mut asked = http::Request::builder().uri("/v1/opamp").version(http::Version::HTTP_11);
        for header in parsed.headers.iter() {
            asked = asked.header(header.name, header.value);
        }
        let response = create_response(&asked.body(()).unwrap()).unwrap();
        let mut text = "HTTP/1.1 101 Switching Protocols\r\n".to_owned();
        for (name, value) in response.headers() {
            text.push_str(&format!("{name}: {}\r\n", value.to_str().unwrap()));
        }
        text + "\r\n"
    }

    #[test]
    fn tungstenite_upgrades_what_is_asked_and_its_answer_is_accepted() {
        for index in 0..50 {
            let key = key(7, index, 1);
            let text = answer(&key);
            assert_eq!(read_response(text.as_bytes(), &key), Response::Upgraded(text.len()));
            let cut = &text.as_bytes()[..text.len() - 1];
            assert_eq!(read_response(cut, &key), Response::More);
        }
    }

    #[test]
    fn an_answer_to_another_key_is_refused() {
        let text = answer(&key(7, 1, 1));
        for other in [key(7, 2, 1), key(7, 1, 2), key(8, 1, 1)] {
            assert!(matches!(read_response(text.as_bytes(), &other), Response::Refused(_)));
        }
    }

    #[test]
    fn a_busy_server_says_when_to_come_again() {
        let key = key(1, 1, 1);
        let busy = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 31\r\n\r\n";
        assert_eq!(read_response(busy, &key), Response::Throttled(Some(31_000_000)));
        let bare = b"HTTP/1.1 429 Too Many Requests\r\n\r\n";
        assert_eq!(read_response(bare, &key), Response::Throttled(None));
        let refused = b"HTTP/1.1 401 Unauthorized\r\n\r\n";
        assert_eq!(
            read_response(refused, &key),
            Response::Refused("upgrade refused: 401".to_owned())
        );
        assert!(matches!(read_response(b"\x00\x01", &key), Response::Refused(_)));
    }
}
