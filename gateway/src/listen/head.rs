//! What a request asks for, decided from its head alone: an upgrade, a plain exchange, or neither.
//!
//! One function for both readers of heads: the greeter (first request of a socket, parsed by
//! httparse) and hyper (every request of a plain HTTP connection). The rules are T2, T4 and H1 of
//! spec/serving.md; the texts are for the person who reads a client's log.

use bytes::Bytes;
use proto::ids::InstanceUid;

/// The only path there is.
pub const PATH: &str = "/v1/opamp";
/// The media type that makes a request a plain exchange.
pub const PROTOBUF: &str = "application/x-protobuf";
/// The header by which a client may show its uid (H5).
pub const UID_HEADER: &str = "opamp-instance-uid";

/// A request head, whoever parsed it. Header names are asked for in lower case.
pub trait Head {
    /// The method as sent.
    fn method(&self) -> &str;
    /// The request target as sent: a path, or an absolute URI.
    fn target(&self) -> &str;
    /// Whether it is HTTP/1.1.
    fn is_http_11(&self) -> bool;
    /// All values of one header, in the order sent.
    fn values(&self, name: &str) -> impl Iterator<Item = &[u8]>;

    /// The only value of a header; `None` if it is missing or sent more than once.
    fn single(&self, name: &str) -> Option<&[u8]> {
        let mut values = self.values(name);
        let first = values.next()?;
        values.next().is_none().then_some(first)
    }

    /// Whether one of the comma-separated items of a header is `token`, in any case.
    fn has_token(&self, name: &str, token: &str) -> bool {
        self.values(name).any(|value| {
            value
                .split(|byte| *byte == b',')
                .any(|item| item.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
        })
    }
}

/// What a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// A WebSocket; `accept` is the value of `Sec-WebSocket-Accept` that grants it.
    Upgrade {
        /// RFC 6455 4.2.2, derived from the key.
        accept: String,
    },
    /// One OpAMP message by POST.
    Exchange,
    /// Nothing that is served here.
    Refused(Refusal),
}

/// Why a request is refused; each has its status and its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// 404.
    Path,
    /// 405.
    Method,
    /// 415, none given.
    ContentTypeMissing,
    /// 415, another one.
    ContentTypeOther,
    /// 426: a plain GET.
    UpgradeMissing,
    /// 400: asks to upgrade without saying so in `Connection`.
    ConnectionHeader,
    /// 426: another WebSocket version than 13.
    Version,
    /// 400: no key, or not 16 bytes in base64.
    Key,
    /// 400: a GET that announces a body, whose bytes would be taken for frames.
    UpgradeWithBody,
    /// 400: an upgrade on a connection that was used for plain HTTP before.
    UpgradeLate,
    /// 505: an upgrade needs HTTP/1.1.
    HttpVersion,
    /// 401.
    Credential(crate::tokens::Denied),
    /// 400: the head is not HTTP/1.
    Malformed,
    /// 431.
    HeadTooLarge,
    /// 503: sent away by admission.
    Busy {
        /// Seconds for `Retry-After`.
        retry_after: u32,
    },
}

impl Refusal {
    /// The HTTP status.
    pub fn status(self) -> u16 {
        match self {
            Self::ConnectionHeader
            | Self::Key
            | Self::UpgradeWithBody
            | Self::UpgradeLate
            | Self::Malformed => 400,
            Self::Credential(_) => 401,
            Self::Path => 404,
            Self::Method => 405,
            Self::ContentTypeMissing | Self::ContentTypeOther => 415,
            Self::UpgradeMissing | Self::Version => 426,
            Self::HeadTooLarge => 431,
            Self::Busy { .. } => 503,
            Self::HttpVersion => 505,
        }
    }

    /// One readable line; names what would have been right.
    pub fn text(self) -> String {
        match self {
            Self::Path => "nothing is served here; the OpAMP path is /v1/opamp\n".into(),
            Self::Method => {
                "OpAMP takes GET with an upgrade to WebSocket, or POST of application/x-protobuf\n"
                    .into()
            }
            Self::ContentTypeMissing => {
                "no Content-Type; an OpAMP message is application/x-protobuf\n".into()
            }
            Self::ContentTypeOther => {
                "wrong Content-Type; an OpAMP message is application/x-protobuf\n".into()
            }
            Self::UpgradeMissing => {
                "this is an OpAMP server: GET needs 'Upgrade: websocket', or POST application/x-protobuf\n"
                    .into()
            }
            Self::ConnectionHeader => "the Connection header does not name 'Upgrade'\n".into(),
            Self::Version => "only version 13 of the WebSocket protocol is spoken here\n".into(),
            Self::Key => "Sec-WebSocket-Key is not 16 bytes in base64\n".into(),
            Self::UpgradeWithBody => "an upgrade request cannot have a body\n".into(),
            Self::UpgradeLate => "open a new connection to upgrade; this one speaks plain HTTP\n".into(),
            Self::HttpVersion => "an upgrade needs HTTP/1.1\n".into(),
            Self::Credential(denied) => format!("{denied}\n"),
            Self::Malformed => "this is not an HTTP/1.1 request\n".into(),
            Self::HeadTooLarge => "the request head is larger than 16 KiB or has over 64 headers\n".into(),
            Self::Busy { retry_after } => {
                format!("busy; come back in {retry_after} seconds\n")
            }
        }
    }

    /// Headers that belong to the status beside the usual ones.
    pub fn headers(self) -> Vec<(&'static str, String)> {
        match self {
            Self::Credential(_) => vec![("www-authenticate", "Bearer realm=\"opamp\"".into())],
            Self::Method => vec![("allow", "GET, POST".into())],
            Self::UpgradeMissing => {
                vec![("upgrade", "websocket".into()), ("connection", "upgrade".into())]
            }
            Self::Version => vec![("sec-websocket-version", "13".into())],
            Self::Busy { retry_after } => vec![("retry-after", retry_after.to_string())],
            Self::Path
            | Self::ContentTypeMissing
            | Self::ContentTypeOther
            | Self::ConnectionHeader
            | Self::Key
            | Self::UpgradeWithBody
            | Self::UpgradeLate
            | Self::HttpVersion
            | Self::Malformed
            | Self::HeadTooLarge => Vec::new(),
        }
    }

    /// The whole answer of a socket that is closed after it.
    pub fn to_bytes(self) -> Bytes {
        let (status, text) = (self.status(), self.text());
        let mut answer = format!(
            "HTTP/1.1 {status} {}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {}\r\n",
            phrase(status),
            text.len()
        );
        let own_connection = matches!(self, Self::UpgradeMissing);
        for (name, value) in self.headers() {
            if name != "connection" {
                answer.push_str(&format!("{name}: {value}\r\n"));
            }
        }
        answer.push_str(if own_connection {
            "connection: upgrade, close\r\n\r\n"
        } else {
            "connection: close\r\n\r\n"
        });
        answer.push_str(&text);
        answer.into()
    }
}

/// The uid that a peer shows in [`UID_HEADER`]: canonical UUID text, in either case. It is not
/// authenticated, so it only ever makes us kinder.
pub fn uid_from_text(text: &[u8]) -> Option<InstanceUid> {
    let text = text.trim_ascii();
    let hyphens = [8, 13, 18, 23];
    if text.len() != 36 || hyphens.iter().any(|at| text[*at] != b'-') {
        return None;
    }
    let mut digits = text
        .iter()
        .enumerate()
        .filter(|(at, _)| !hyphens.contains(at))
        .map(|(_, digit)| char::from(*digit).to_digit(16));
    let mut uid = [0_u8; 16];
    for byte in &mut uid {
        let value = digits.next()?? * 16 + digits.next()??;
        *byte = u8::try_from(value).ok()?;
    }
    InstanceUid::from_slice(&uid)
}

/// Decides what a request asks for.
pub fn wish(head: &impl Head) -> Wish {
    let refused = Wish::Refused;
    if path(head.target()) != PATH {
        return refused(Refusal::Path);
    }
    // T4: this content type makes it a plain exchange whatever else is in the head.
    let content_type = head.values("content-type").next();
    if content_type.is_some_and(is_protobuf) {
        return if head.method() == "POST" { Wish::Exchange } else { refused(Refusal::Method) };
    }
    match (head.method(), content_type) {
        ("GET", _) => upgrade(head),
        ("POST", None) => refused(Refusal::ContentTypeMissing),
        ("POST", Some(_)) => refused(Refusal::ContentTypeOther),
        _ => refused(Refusal::Method),
    }
}

fn upgrade(head: &impl Head) -> Wish {
    let refused = Wish::Refused;
    if !head.has_token("upgrade", "websocket") {
        return refused(Refusal::UpgradeMissing);
    }
    if !head.is_http_11() {
        return refused(Refusal::HttpVersion);
    }
    if !head.has_token("connection", "upgrade") {
        return refused(Refusal::ConnectionHeader);
    }
    let body = head.values("content-length").any(|value| value.trim_ascii() != b"0");
    if body || head.values("transfer-encoding").next().is_some() {
        return refused(Refusal::UpgradeWithBody);
    }
    if head.single("sec-websocket-version").map(<[u8]>::trim_ascii) != Some(b"13") {
        return refused(Refusal::Version);
    }
    match head.single("sec-websocket-key").map(<[u8]>::trim_ascii) {
        Some(key) if is_key(key) => {
            Wish::Upgrade { accept: tungstenite::handshake::derive_accept_key(key) }
        }
        _ => refused(Refusal::Key),
    }
}

/// The path of a request target, without query; of an absolute URI too (RFC 9112 3.2.2).
fn path(target: &str) -> &str {
    let target = match target.split_once("://") {
        Some((scheme, rest)) if !scheme.contains('/') => {
            rest.find('/').map_or("/", |slash| &rest[slash..])
        }
        _ => target,
    };
    target.split(['?', '#']).next().unwrap_or(target)
}

/// Whether a Content-Type is ours; parameters are tolerated (T4).
fn is_protobuf(value: &[u8]) -> bool {
    let media = value.split(|byte| *byte == b';').next().unwrap_or(value);
    media.trim_ascii().eq_ignore_ascii_case(PROTOBUF.as_bytes())
}

/// 16 bytes in base64: 22 symbols and two signs of padding.
fn is_key(key: &[u8]) -> bool {
    key.len() == 24
        && key.ends_with(b"==")
        && key[..22].iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/'))
}

fn phrase(status: u16) -> &'static str {
    match status {
        400 => "Bad Request",
        401 => "Unauthorized",
        404 => "Not Found",
        405 => "Method Not Allowed",
        415 => "Unsupported Media Type",
        426 => "Upgrade Required",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        505 => "HTTP Version Not Supported",
        _ => "Refused",
    }
}

/// What httparse found, as a [`Head`].
#[derive(Debug)]
pub struct Parsed<'r, 'h, 'b>(pub &'r httparse::Request<'h, 'b>);

impl Head for Parsed<'_, '_, '_> {
    fn method(&self) -> &str {
        self.0.method.unwrap_or_default()
    }

    fn target(&self) -> &str {
        self.0.path.unwrap_or_default()
    }

    fn is_http_11(&self) -> bool {
        self.0.version == Some(1)
    }

    fn values(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        self.0
            .headers
            .iter()
            .filter(move |header| header.name.eq_ignore_ascii_case(name))
            .map(|header| header.value)
    }
}

impl Head for hyper::http::request::Parts {
    fn method(&self) -> &str {
        self.method.as_str()
    }

    fn target(&self) -> &str {
        self.uri.path()
    }

    fn is_http_11(&self) -> bool {
        self.version == hyper::Version::HTTP_11
    }

    fn values(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        self.headers.get_all(name).into_iter().map(hyper::header::HeaderValue::as_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A good upgrade request, changed line by line below.
    const UPGRADE: &str = "GET /v1/opamp HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\n\
        Upgrade: WebSocket\r\nSec-WebSocket-Version: 13\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

    #[test]
    fn the_sample_key_of_the_rfc_gives_its_sample_answer() {
        check(UPGRADE, Wish::Upgrade { accept: "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=".into() });
    }

    #[test]
    fn every_deviation_of_an_upgrade_has_its_own_answer() {
        for (from, to, refusal) in [
            ("/v1/opamp ", "/ ", Refusal::Path),
            ("/v1/opamp ", "/v1/opamp/ ", Refusal::Path),
            ("/v1/opamp ", "/V1/opamp ", Refusal::Path),
            ("/v1/opamp ", "* ", Refusal::Path),
            ("GET", "PUT", Refusal::Method),
            ("GET", "get", Refusal::Method),
            ("GET", "POST", Refusal::ContentTypeMissing),
            ("GET", "CONNECT", Refusal::Method),
            ("Upgrade: WebSocket\r\n", "", Refusal::UpgradeMissing),
            ("Upgrade: WebSocket\r\n", "Upgrade: h2c\r\n", Refusal::UpgradeMissing),
            ("HTTP/1.1", "HTTP/1.0", Refusal::HttpVersion),
            ("keep-alive, Upgrade", "keep-alive", Refusal::ConnectionHeader),
            ("Version: 13", "Version: 8", Refusal::Version),
            ("Sec-WebSocket-Version: 13\r\n", "", Refusal::Version),
            ("dGhlIHNhbXBsZSBub25jZQ==", "dGhlIHNhbXBsZSBub25jZQ", Refusal::Key),
            ("dGhlIHNhbXBsZSBub25jZQ==", "", Refusal::Key),
            ("Host: a\r\n", "Content-Length: 5\r\n", Refusal::UpgradeWithBody),
            ("Host: a\r\n", "Transfer-Encoding: chunked\r\n", Refusal::UpgradeWithBody),
        ] {
            check(&UPGRADE.replacen(from, to, 1), Wish::Refused(refusal));
        }
    }

    #[test]
    fn query_and_absolute_form_reach_the_same_path() {
        for target in ["/v1/opamp?x=/y", "http://gw:4320/v1/opamp", "http://gw/v1/opamp?a=b"] {
            let wish = wish_of(&UPGRADE.replacen("/v1/opamp", target, 1));
            assert!(matches!(wish, Wish::Upgrade { .. }), "{target}: {wish:?}");
        }
        check(&UPGRADE.replacen("/v1/opamp", "http://gw", 1), Wish::Refused(Refusal::Path));
    }

    #[test]
    fn the_media_type_decides_for_a_plain_exchange() {
        for (method, content_type, expected) in [
            ("POST", "application/x-protobuf", Wish::Exchange),
            ("POST", "Application/X-Protobuf; charset=utf-8", Wish::Exchange),
            ("POST", "application/x-protobuf2", Wish::Refused(Refusal::ContentTypeOther)),
            ("POST", "application/json", Wish::Refused(Refusal::ContentTypeOther)),
            ("GET", "application/x-protobuf", Wish::Refused(Refusal::Method)),
            ("PUT", "application/x-protobuf", Wish::Refused(Refusal::Method)),
            ("PUT", "application/json", Wish::Refused(Refusal::Method)),
        ] {
            check(
                &format!("{method} /v1/opamp HTTP/1.1\r\nContent-Type: {content_type}\r\n\r\n"),
                expected,
            );
        }
    }

    #[test]
    fn only_canonical_uuid_text_is_a_shown_uid() {
        let uid = uid_from_text(b"0190a5E2-7f30-7000-8000-0000000000ff").unwrap();
        assert_eq!(uid.to_string(), "0190a5e2-7f30-7000-8000-0000000000ff");
        for text in [
            "",
            "0190a5e27f3070008000000000000000ffff",
            "0190a5e2-7f30-7000-8000-0000000000f",
            "0190a5e2-7f30-7000-8000-0000000000fg",
            "0190a5e2-7f30-7000-80000-000000000ff",
            "{190a5e2-7f30-7000-8000-0000000000f}",
        ] {
            assert_eq!(uid_from_text(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn a_refusal_says_its_length_and_closes() {
        let bytes = Refusal::Busy { retry_after: 42 }.to_bytes();
        let text = std::str::from_utf8(&bytes).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{head}");
        assert!(head.contains("\r\nretry-after: 42\r\n"), "{head}");
        assert!(head.contains(&format!("\r\ncontent-length: {}\r\n", body.len())), "{head}");
        assert!(head.ends_with("\r\nconnection: close"), "{head}");
    }

    fn check(request: &str, expected: Wish) {
        assert_eq!(wish_of(request), expected, "{request}");
    }

    fn wish_of(request: &str) -> Wish {
        let mut headers = [httparse::EMPTY_HEADER; 16];
        let mut parsed = httparse::Request::new(&mut headers);
        assert!(parsed.parse(request.as_bytes()).unwrap().is_complete(), "{request}");
        wish(&Parsed(&parsed))
    }
}
