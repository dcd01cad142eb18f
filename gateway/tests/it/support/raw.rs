//! A client that sends exactly the bytes it is told to.

use std::io::ErrorKind;

use proto::opamp::ServerToAgent;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{Gateway, PATIENCE, message};

/// A good upgrade request without its last line, so that headers can be added.
pub(crate) const UPGRADE: &str = "GET /v1/opamp HTTP/1.1\r\nHost: gw\r\nConnection: Upgrade\r\n\
    Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

/// Opcodes.
pub(crate) const TEXT: u8 = 1;
pub(crate) const BINARY: u8 = 2;
pub(crate) const CLOSE: u8 = 8;
pub(crate) const PING: u8 = 9;
pub(crate) const PONG: u8 = 10;

/// A connection, and what was read of it ahead.
pub(crate) struct Raw<S = TcpStream> {
    pub(crate) stream: S,
    ahead: Vec<u8>,
}

impl Raw {
    /// Connects, and says nothing.
    pub(crate) async fn connect(gateway: &Gateway) -> Self {
        let stream = TcpStream::connect(gateway.addr).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self::over(stream)
    }

    /// Connects and upgrades.
    pub(crate) async fn upgraded(gateway: &Gateway) -> Self {
        let mut raw = Self::connect(gateway).await;
        raw.upgrade().await;
        raw
    }

    /// Connects, upgrades, and reports as `agent` of `role`; returns the offer too.
    pub(crate) async fn served(
        gateway: &Gateway,
        agent: &mut message::Agent,
        role: &str,
    ) -> (Self, ServerToAgent) {
        let mut raw = Self::upgraded(gateway).await;
        raw.send(&agent.report(role, 500)).await;
        let offer = raw.reply().await;
        (raw, offer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Raw<S> {
    /// Speaks over anything.
    pub(crate) fn over(stream: S) -> Self {
        Self { stream, ahead: Vec::new() }
    }

    pub(crate) async fn upgrade(&mut self) {
        self.write(format!("{UPGRADE}\r\n").as_bytes()).await;
        let head = self.head().await;
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    /// Sends a message as one frame.
    pub(crate) async fn send(&mut self, message: &[u8]) {
        self.write(&frame(BINARY, true, &[&[0], message].concat())).await;
    }

    /// The head of an HTTP answer.
    pub(crate) async fn head(&mut self) -> String {
        loop {
            if let Some(end) = self.ahead.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                let head = self.ahead.drain(..end + 4).collect();
                return String::from_utf8(head).unwrap();
            }
            assert!(self.more().await, "the connection ended in the head: {:?}", self.ahead);
        }
    }

    /// An HTTP answer: status, head and body.
    pub(crate) async fn answer(&mut self) -> (u16, String, Vec<u8>) {
        let head = self.head().await;
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let length: usize =
            header(&head, "content-length").map_or(0, |value| value.parse().unwrap());
        let body = self.exactly(length).await.unwrap();
        (status, head, body)
    }

    /// The next frame; `None` at the end of the stream.
    pub(crate) async fn frame(&mut self) -> Option<(u8, Vec<u8>)> {
        let start = self.exactly(2).await?;
        assert_eq!(start[0] & 0x70, 0, "no extension was agreed on");
        assert_ne!(start[0] & 0x80, 0, "whole messages only");
        assert_eq!(start[1] & 0x80, 0, "servers do not mask");
        let length = match start[1] {
            126 => u64::from(u16::from_be_bytes(self.exactly(2).await?.try_into().unwrap())),
            127 => u64::from_be_bytes(self.exactly(8).await?.try_into().unwrap()),
            short => short.into(),
        };
        let payload = self.exactly(usize::try_from(length).unwrap()).await?;
        Some((start[0] & 0xf, payload))
    }

    /// The next message, which must be the next frame.
    pub(crate) async fn reply(&mut self) -> ServerToAgent {
        let (opcode, payload) = self.frame().await.expect("a reply, not the end");
        assert_eq!(opcode, BINARY, "{payload:?}");
        let (header, message) = payload.split_first().unwrap();
        assert_eq!(*header, 0);
        message::reply(message)
    }

    /// The code of a close frame, which must be the next; then the stream ends.
    pub(crate) async fn close_code(&mut self) -> u16 {
        let (opcode, payload) = self.frame().await.expect("a close frame, not the end");
        assert_eq!(opcode, CLOSE, "{payload:?}");
        assert!(self.frame().await.is_none(), "nothing follows a close frame");
        u16::from_be_bytes(payload[..2].try_into().unwrap())
    }

    /// Reads on and forgets it; false at the end.
    pub(crate) async fn skip(&mut self) -> bool {
        self.ahead.clear();
        self.more().await
    }

    /// `length` bytes; `None` at the end of the stream, orderly or not.
    async fn exactly(&mut self, length: usize) -> Option<Vec<u8>> {
        while self.ahead.len() < length {
            if !self.more().await {
                return None;
            }
        }
        Some(self.ahead.drain(..length).collect())
    }

    /// Reads on; false at the end.
    async fn more(&mut self) -> bool {
        let mut buffer = vec![0; 64 * 1024];
        let read = tokio::time::timeout(PATIENCE, self.stream.read(&mut buffer)).await;
        match read.expect("the gateway says nothing") {
            Ok(read) => {
                self.ahead.extend_from_slice(&buffer[..read]);
                read > 0
            }
            Err(error) => {
                let ends =
                    [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe, ErrorKind::UnexpectedEof];
                assert!(ends.contains(&error.kind()), "{error}");
                false
            }
        }
    }
}

/// A header of an HTTP head.
pub(crate) fn header<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    head.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

/// A masked frame.
pub(crate) fn frame(opcode: u8, fin: bool, payload: &[u8]) -> Vec<u8> {
    let mask = [0xa5, 0x5a, 0x0f, 0xf1];
    let mut frame = vec![opcode | if fin { 0x80 } else { 0 }];
    match payload.len() {
        length @ 0..=125 => frame.push(0x80 | u8::try_from(length).unwrap()),
        length @ 126..=0xffff => {
            frame.push(0x80 | 126);
            frame.extend_from_slice(&u16::try_from(length).unwrap().to_be_bytes());
        }
        length => {
            frame.push(0x80 | 127);
            frame.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    frame.extend_from_slice(&mask);
    frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    frame
}
