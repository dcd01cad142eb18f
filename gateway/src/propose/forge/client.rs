//! HTTP requests to a forge: TLS with the machine's certificate authorities, a deadline, and
//! answers of bounded size. The token is read for each request and shown to nobody.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::ServerName;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::{Opened, WAIT_MAX};

/// From looking up the name to the last byte of the answer.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// Bytes of an answer.
pub const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Bytes of a token's file.
const TOKEN_BYTES_MAX: usize = 8 << 10;

/// Of what a forge says is wrong, the part that is kept.
const SAID_CHARS: usize = 200;

/// Why there is no pull request.
#[derive(Debug, thiserror::Error)]
pub enum ForgeError {
    /// The token cannot be read, or is none.
    #[error("--forge-token-file {}: {why}", file.display())]
    Token {
        /// The file.
        file: PathBuf,
        /// Why.
        why: String,
    },
    /// Nothing to check certificates with.
    #[error(
        "cannot check the forge's certificate: this machine has no certificate authorities{why}; \
         install ca-certificates, or name a file in SSL_CERT_FILE"
    )]
    Roots {
        /// What was said while they were looked for.
        why: String,
    },
    /// No connection, or one that broke.
    #[error("cannot reach {host}: {why}")]
    Connection {
        /// Host and port.
        host: String,
        /// Why.
        why: String,
    },
    /// Too slow.
    #[error("{host} did not answer within {DEADLINE:?}")]
    Deadline {
        /// Host and port.
        host: String,
    },
    /// The forge says no.
    #[error("{host} answered {status} to {request}: {said}")]
    Status {
        /// Host and port.
        host: String,
        /// Method and path.
        request: String,
        /// The status.
        status: StatusCode,
        /// What the forge says is wrong.
        said: String,
        /// How long it wants not to be asked.
        wait: Option<Duration>,
    },
    /// Not what this request is answered with.
    #[error("{host} answered {request} with something else than expected")]
    Answer {
        /// Host and port.
        host: String,
        /// Method and path.
        request: String,
    },
}

impl ForgeError {
    /// How long the forge wants not to be asked, an hour at most.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { wait, .. } => *wait,
            Self::Token { .. }
            | Self::Roots { .. }
            | Self::Connection { .. }
            | Self::Deadline { .. }
            | Self::Answer { .. } => None,
        }
    }

    /// The status that the forge answered with.
    pub(super) fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Status { status, .. } => Some(*status),
            Self::Token { .. }
            | Self::Roots { .. }
            | Self::Connection { .. }
            | Self::Deadline { .. }
            | Self::Answer { .. } => None,
        }
    }
}

/// One forge, one token.
pub(super) struct Client {
    /// With scheme and path, without a slash at its end.
    api: String,
    host: String,
    port: u16,
    /// `None` talks plain HTTP, to this machine itself.
    tls: Option<TlsConnector>,
    token_file: PathBuf,
}

/// How a forge wants the token.
pub(super) struct Credential {
    /// Such as `authorization`.
    pub(super) header: HeaderName,
    /// Before the token, such as `Bearer `.
    pub(super) prefix: &'static str,
}

impl Client {
    pub(super) fn new(api: &str, token_file: PathBuf) -> Result<Self, ForgeError> {
        let no_url =
            |why: &str| ForgeError::Connection { host: api.to_owned(), why: why.to_owned() };
        let uri: Uri = api.parse().map_err(|_| no_url("it is no URL"))?;
        let host = uri.host().ok_or_else(|| no_url("it has no host"))?.to_owned();
        let is_tls = uri.scheme_str() == Some("https");
        let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let tls = if is_tls { Some(connector(machine_roots()?)?) } else { None };
        Ok(Self { api: api.to_owned(), host, port, tls, token_file })
    }

    /// Posts what makes a pull request; the field `url` of the answer says where it is.
    pub(super) async fn create(
        &self,
        path: &str,
        headers: &[(HeaderName, &'static str)],
        credential: &Credential,
        body: &Value,
        url: &str,
    ) -> Result<Opened, ForgeError> {
        let answer = self.ask(Method::POST, path, headers, credential, Some(body)).await?;
        let url = answer[url].as_str();
        let url = url.ok_or_else(|| self.unexpected(&format!("POST {path}")))?.to_owned();
        Ok(Opened { url, is_new: true, is_closed: false })
    }

    /// Sends a request to `path` (with its query) below the API, and gives the JSON that it is
    /// answered with.
    pub(super) async fn ask(
        &self,
        method: Method,
        path: &str,
        headers: &[(HeaderName, &'static str)],
        credential: &Credential,
        body: Option<&Value>,
    ) -> Result<Value, ForgeError> {
        let mut request = Request::builder()
            .method(method.clone())
            .uri(self.target(path)?)
            .header(header::HOST, self.authority())
            .header(header::USER_AGENT, concat!("tidegate/", env!("CARGO_PKG_VERSION")))
            .header(&credential.header, self.token(credential.prefix)?);
        for (name, value) in headers {
            request = request.header(name, *value);
        }
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let name = format!("{method} {path}");
        let bytes = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        let request = request.body(Full::new(bytes)).map_err(|error| self.broken(&error))?;
        match tokio::time::timeout(DEADLINE, self.send(request, &name)).await {
            Ok(answer) => answer,
            Err(_) => Err(ForgeError::Deadline { host: self.authority() }),
        }
    }

    /// What an answer lacks.
    pub(super) fn unexpected(&self, request: &str) -> ForgeError {
        ForgeError::Answer { host: self.authority(), request: request.to_owned() }
    }

    async fn send(&self, request: Request<Full<Bytes>>, name: &str) -> Result<Value, ForgeError> {
        // An IPv6 address is in brackets in a URL only.
        let host = self.host.trim_start_matches('[').trim_end_matches(']');
        let stream =
            TcpStream::connect((host, self.port)).await.map_err(|error| self.broken(&error))?;
        match &self.tls {
            None => self.exchange(stream, request, name).await,
            Some(tls) => {
                let server =
                    ServerName::try_from(host.to_owned()).map_err(|error| self.broken(&error))?;
                let stream =
                    tls.connect(server, stream).await.map_err(|error| self.broken(&error))?;
                self.exchange(stream, request, name).await
            }
        }
    }

    async fn exchange(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        request: Request<Full<Bytes>>,
        name: &str,
    ) -> Result<Value, ForgeError> {
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| self.broken(&error))?;
        let answer = async {
            let answer = sender.send_request(request).await.map_err(|error| self.broken(&error))?;
            let (head, body) = answer.into_parts();
            let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
            let body = body.map_err(|error| self.broken(&*error))?.to_bytes();
            Ok::<_, ForgeError>((head, body))
        };
        tokio::pin!(answer, connection);
        let (head, body) = tokio::select! {
            biased;
            answer = &mut answer => answer?,
            // A connection that ends has handed over all that it read.
            ended = &mut connection => {
                ended.map_err(|error| self.broken(&error))?;
                answer.await?
            }
        };
        if head.status.is_success() {
            return serde_json::from_slice(&body).map_err(|_| self.unexpected(name));
        }
        Err(ForgeError::Status {
            host: self.authority(),
            request: name.to_owned(),
            status: head.status,
            said: said(&body),
            wait: wait(&head.headers),
        })
    }

    /// The request line's target: the path of the API and what is asked below it.
    fn target(&self, path: &str) -> Result<Uri, ForgeError> {
        let uri: Uri =
            format!("{}{path}", self.api).parse().map_err(|error| self.broken(&error))?;
        let target = uri.path_and_query().map_or("/", |target| target.as_str());
        target.parse().map_err(|error| self.broken(&error))
    }

    fn authority(&self) -> String {
        let standard = if self.tls.is_some() { 443 } else { 80 };
        if self.port == standard {
            self.host.clone()
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// Read again each time, so that a token can be replaced while the gateway runs.
    fn token(&self, prefix: &str) -> Result<HeaderValue, ForgeError> {
        let fail = |why: String| ForgeError::Token { file: self.token_file.clone(), why };
        let meta = std::fs::metadata(&self.token_file).map_err(|error| fail(error.to_string()))?;
        if meta.len() > TOKEN_BYTES_MAX as u64 {
            return Err(fail(format!("longer than {TOKEN_BYTES_MAX} bytes")));
        }
        let text =
            std::fs::read_to_string(&self.token_file).map_err(|error| fail(error.to_string()))?;
        let token = text.trim();
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(fail("expected one token, a line of printable characters".to_owned()));
        }
        let mut value = HeaderValue::from_str(&format!("{prefix}{token}"))
            .map_err(|error| fail(error.to_string()))?;
        value.set_sensitive(true);
        Ok(value)
    }

    fn broken(&self, error: &dyn std::error::Error) -> ForgeError {
        // hyper and rustls put the cause behind a general word.
        let mut why = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            why.push_str(": ");
            why.push_str(&cause.to_string());
            source = cause.source();
        }
        ForgeError::Connection { host: self.authority(), why }
    }
}

/// The certificate authorities that this machine trusts.
fn machine_roots() -> Result<RootCertStore, ForgeError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        let why = found.errors.first().map(|error| format!(" ({error})")).unwrap_or_default();
        return Err(ForgeError::Roots { why });
    }
    Ok(roots)
}

fn connector(roots: RootCertStore) -> Result<TlsConnector, ForgeError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| ForgeError::Roots { why: format!(" ({error})") })?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// What a forge says is wrong: all three have a `message`, which may be a list.
fn said(body: &[u8]) -> String {
    let text = match serde_json::from_slice::<Value>(body) {
        Ok(Value::Object(answer)) => match answer.get("message").or_else(|| answer.get("error")) {
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
            None => "no reason given".to_owned(),
        },
        _ => "no reason given".to_owned(),
    };
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(SAID_CHARS).collect()
}

/// `Retry-After` in seconds, as all three send it when they are asked too often.
fn wait(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(WAIT_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_forge_says_is_short_and_one_line() {
        assert_eq!(said(br#"{"message":"no\nway"}"#), "no way");
        assert_eq!(said(br#"{"message":["one","two"]}"#), r#"["one","two"]"#);
        assert_eq!(said(br#"{"error":"nope"}"#), "nope");
        assert_eq!(said(b"<html>"), "no reason given");
        let long = format!(r#"{{"message":"{}"}}"#, "x".repeat(1_000));
        assert_eq!(said(long.as_bytes()).len(), SAID_CHARS);
    }

    #[test]
    fn a_forge_cannot_ask_for_more_than_an_hour() {
        let asked = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static(value));
            wait(&headers)
        };
        assert_eq!(asked("60"), Some(Duration::from_secs(60)));
        assert_eq!(asked("999999999"), Some(Duration::from_secs(3_600)));
        assert_eq!(asked("Fri, 31 Dec 1999 23:59:59 GMT"), None);
        assert_eq!(wait(&HeaderMap::new()), None);
    }

    /// A forge with a certificate of its own authority, for `localhost` only, that answers once;
    /// and the authority.
    async fn tls_forge() -> (u16, RootCertStore) {
        use rustls_pki_types::PrivateKeyDer;
        use tokio::io::{AsyncReadExt, AsyncWriteExt};

        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let certificate = made.cert.der().clone();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], key)
            .unwrap();
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            // A client that does not trust the certificate ends the handshake.
            let Ok(mut stream) = acceptor.accept(stream).await else { return };
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            // No length: the answer ends with the connection.
            stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n[1]").await.unwrap();
            stream.shutdown().await.unwrap();
        });
        let mut roots = RootCertStore::empty();
        roots.add(certificate).unwrap();
        (port, roots)
    }

    async fn ask_over_tls(
        port: u16,
        host: &str,
        roots: RootCertStore,
    ) -> Result<Value, ForgeError> {
        let token = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(token.path(), "token").unwrap();
        let client = Client {
            api: format!("https://{host}:{port}/api"),
            host: host.to_owned(),
            port,
            tls: Some(connector(roots).unwrap()),
            token_file: token.path().to_owned(),
        };
        let credential = Credential { header: header::AUTHORIZATION, prefix: "" };
        client.ask(Method::GET, "/x", &[], &credential, None).await
    }

    #[tokio::test]
    async fn a_forge_is_checked_by_its_certificate() {
        let (port, roots) = tls_forge().await;
        let answer = ask_over_tls(port, "localhost", roots).await.unwrap();
        assert_eq!(answer, serde_json::json!([1]));

        let (port, roots) = tls_forge().await;
        let error = ask_over_tls(port, "127.0.0.1", roots).await.unwrap_err();
        assert!(error.to_string().contains("not valid for name"), "another name: {error}");

        let (port, _) = tls_forge().await;
        let (_, others) = tls_forge().await;
        let error = ask_over_tls(port, "localhost", others).await.unwrap_err();
        assert!(matches!(error, ForgeError::Connection { .. }), "another authority: {error}");
    }
}
