//! One HTTP/1.1 request over any stream.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::PATIENCE;

pub(crate) struct Request {
    line: String,
    host: Option<String>,
    headers: String,
    body: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Request {
    pub(crate) fn get(path: &str) -> Self {
        Self::new("GET", path)
    }

    pub(crate) fn new(method: &str, path: &str) -> Self {
        let line = format!("{method} {path} HTTP/1.1\r\n");
        Self { line, host: Some("localhost".to_owned()), headers: String::new(), body: Vec::new() }
    }

    pub(crate) fn host(mut self, host: Option<&str>) -> Self {
        self.host = host.map(str::to_owned);
        self
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push_str(&format!("{name}: {value}\r\n"));
        self
    }

    pub(crate) fn body(mut self, body: Vec<u8>) -> Self {
        self.body = body;
        self
    }

    pub(crate) fn send(self, to: SocketAddr) -> Answer {
        let stream = TcpStream::connect(to).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        self.send_over(stream).unwrap()
    }

    pub(crate) fn send_over(self, mut stream: impl Read + Write) -> std::io::Result<Answer> {
        let host = self.host.map(|host| format!("Host: {host}\r\n")).unwrap_or_default();
        let length = match self.body.len() {
            0 => String::new(),
            length => format!("Content-Length: {length}\r\n"),
        };
        let head = format!("{}{host}{}{length}Connection: close\r\n\r\n", self.line, self.headers);
        stream.write_all(head.as_bytes())?;
        stream.write_all(&self.body)?;
        stream.flush()?;
        let mut answer = Vec::new();
        if let Err(error) = stream.read_to_end(&mut answer)
            && answer.is_empty()
        {
            return Err(error);
        }
        let end = answer.windows(4).position(|window| window == b"\r\n\r\n");
        let end = end.ok_or(std::io::ErrorKind::UnexpectedEof)?;
        let head = String::from_utf8(answer[..end].to_vec()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Ok(Answer { status, head, body: answer[end + 4..].to_vec() })
    }
}
