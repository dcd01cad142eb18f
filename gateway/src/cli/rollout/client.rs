//! Asks a gateway's operators' listener: one request per connection, a deadline on everything, and
//! errors that name a way out.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::{Request, Response, StatusCode, Uri, header};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::sse::{Event, Parser};

/// From the first packet to an open connection, names included.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// From the request to the last byte of an answer. A plan over a million collectors takes seconds.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// Largest answer: a report that names 10,000 halted members has a few megabytes.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Silence after which a stream is given up: three times what a gateway lets pass.
const SILENCE_MAX: Duration = Duration::from_secs(45);

/// Largest token file; the same file as for `gateway serve`.
const TOKEN_FILE_BYTES_MAX: u64 = 1 << 20;

/// Where the gateway is, and who asks.
#[derive(Clone, Debug, Args)]
pub struct Connect {
    /// Where a gateway listens for operators (its --admin).
    #[arg(long, value_name = "URL", env = "TIDEGATE_ADMIN_URL", help_heading = "Gateway")]
    #[arg(default_value = "http://127.0.0.1:4321")]
    pub admin_url: String,

    /// File with the operators' token; of several lines the first that is no comment is sent
    /// [default: none is sent].
    #[arg(long, value_name = "FILE", env = "TIDEGATE_ADMIN_TOKEN_FILE", help_heading = "Gateway")]
    pub admin_token_file: Option<PathBuf>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The flag's value is no address of a gateway.
    #[error(
        "--admin-url '{url}': {why}; give the address that 'gateway serve' prints after 'admin', such as http://127.0.0.1:4321"
    )]
    Url {
        /// As given.
        url: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The token cannot be read.
    #[error("--admin-token-file {}: {why}", file.display())]
    Token {
        /// As given.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Nobody there.
    #[error(
        "cannot connect to {url}: {why}; is a gateway running there? Its --admin address goes into --admin-url or TIDEGATE_ADMIN_URL"
    )]
    Connect {
        /// Whom we asked.
        url: String,
        /// What the system said.
        why: String,
    },
    /// The connection broke, or took too long.
    #[error("{url} did not answer: {why}")]
    Broken {
        /// Whom we asked.
        url: String,
        /// What happened.
        why: String,
    },
    /// The gateway wants a token, or another one.
    #[error(
        "{url} asks for a token: {said}; give one of those in its --admin-token-file with --admin-token-file or TIDEGATE_ADMIN_TOKEN_FILE"
    )]
    Unauthorised {
        /// Whom we asked.
        url: String,
        /// What it said.
        said: String,
    },
    /// There is no such Rollout.
    #[error("{said}; {}", known_ids(known, *total))]
    NoSuchRollout {
        /// What it said.
        said: String,
        /// Some of those there are.
        known: Vec<String>,
        /// How many there are.
        total: usize,
    },
    /// The gateway cannot answer now.
    #[error("{url} cannot answer now: {said}")]
    Busy {
        /// Whom we asked.
        url: String,
        /// What it said.
        said: String,
    },
    /// It refuses the question.
    #[error("{url} refuses: {said}")]
    Refused {
        /// Whom we asked.
        url: String,
        /// What it said.
        said: String,
    },
    /// Something answers, but it is no gateway, or one of another version.
    #[error("what answers at {url} is no gateway of this version: {why}")]
    NotAGateway {
        /// Whom we asked.
        url: String,
        /// What it said instead.
        why: String,
    },
}

impl ClientError {
    /// Whether it may pass by itself: a gateway that restarts.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Connect { .. } | Self::Broken { .. } | Self::Busy { .. } => true,
            Self::Url { .. }
            | Self::Token { .. }
            | Self::Unauthorised { .. }
            | Self::NoSuchRollout { .. }
            | Self::Refused { .. }
            | Self::NotAGateway { .. } => false,
        }
    }
}

/// Ends a refusal with what could have been asked.
fn known_ids(known: &[String], total: usize) -> String {
    match total.saturating_sub(known.len()) {
        _ if total == 0 => "it has none".to_owned(),
        0 => format!("it has {}", known.join(", ")),
        more => format!("it has {} and {more} more", known.join(", ")),
    }
}

/// Says who asks, and whom.
#[derive(Clone, Debug)]
pub struct Client {
    /// As given, for people.
    url: String,
    host: String,
    port: u16,
    authority: String,
    /// Path in front of every path; no slash at its end.
    prefix: String,
    authorisation: Option<header::HeaderValue>,
}

/// What a refusal says.
#[derive(Debug, Deserialize)]
struct Problem {
    error: String,
    #[serde(default)]
    known: Vec<String>,
    #[serde(default)]
    total: usize,
}

impl Client {
    /// Checks flags and reads the token; connects to nobody yet.
    ///
    /// # Errors
    /// [`ClientError::Url`], [`ClientError::Token`].
    pub fn new(connect: &Connect) -> Result<Self, ClientError> {
        let url = connect.admin_url.clone();
        let wrong = |why| ClientError::Url { url: url.clone(), why };
        let uri: Uri = url.parse().map_err(|_| wrong("not a URL"))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => return Err(wrong("the operators' listener speaks plain HTTP")),
            _ => return Err(wrong("it does not begin with http://")),
        }
        let authority = uri.authority().ok_or_else(|| wrong("it names no host"))?;
        if authority.as_str().contains('@') {
            return Err(wrong("credentials belong into --admin-token-file"));
        }
        if uri.query().is_some() {
            return Err(wrong("it must not have a query"));
        }
        let authorisation = connect.admin_token_file.as_deref().map(token).transpose()?;
        Ok(Self {
            host: authority.host().trim_matches(['[', ']']).to_owned(),
            port: authority.port_u16().unwrap_or(80),
            authority: authority.to_string(),
            prefix: uri.path().trim_end_matches('/').to_owned(),
            authorisation,
            url,
        })
    }

    /// The answer to a GET, as JSON of a known shape.
    ///
    /// # Errors
    /// All but [`ClientError::Url`] and [`ClientError::Token`].
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        let bytes = self.bytes(path).await?;
        serde_json::from_slice(&bytes).map_err(|error| self.not_a_gateway(error.to_string()))
    }

    /// The answer to a GET, byte for byte.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn bytes(&self, path: &str) -> Result<Bytes, ClientError> {
        let answered = async {
            let response = self.send(path, "application/json").await?;
            self.body(response).await
        };
        timeout(ANSWER_MAX, answered).await.unwrap_or_else(|_| Err(self.late(ANSWER_MAX)))
    }

    /// Opens a stream of server-sent events.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn events(&self, path: &str) -> Result<Events, ClientError> {
        let response = timeout(ANSWER_MAX, self.send(path, "text/event-stream"))
            .await
            .unwrap_or_else(|_| Err(self.late(ANSWER_MAX)))?;
        let is_stream = response
            .headers()
            .get(header::CONTENT_TYPE)
            .is_some_and(|value| value.as_bytes().starts_with(b"text/event-stream"));
        if !is_stream {
            return Err(self.not_a_gateway("it answers without a stream of events".into()));
        }
        Ok(Events { client: self.clone(), body: response.into_body(), parser: Parser::default() })
    }

    async fn send(&self, path: &str, accept: &str) -> Result<Response<Incoming>, ClientError> {
        let connected = timeout(CONNECT_MAX, TcpStream::connect((&*self.host, self.port)));
        let unreachable = |why: String| ClientError::Connect { url: self.url.clone(), why };
        let stream = match connected.await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(unreachable(error.to_string())),
            Err(_) => return Err(unreachable(format!("no answer within {CONNECT_MAX:?}"))),
        };
        let broken = |error: &dyn std::fmt::Display| self.broken(error.to_string());
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| broken(&error))?;
        // What ends the connection early also ends the answer, which tells it.
        tokio::spawn(connection);
        let mut request = Request::get(format!("{}{path}", self.prefix))
            .header(header::HOST, &self.authority)
            .header(header::ACCEPT, accept)
            .header(header::USER_AGENT, concat!("tidegate/", env!("CARGO_PKG_VERSION")));
        if let Some(token) = &self.authorisation {
            request = request.header(header::AUTHORIZATION, token);
        }
        let request = request.body(Empty::<Bytes>::new()).map_err(|error| broken(&error))?;
        let response = sender.send_request(request).await.map_err(|error| broken(&error))?;
        if response.status() == StatusCode::OK {
            return Ok(response);
        }
        Err(self.refusal(response).await)
    }

    async fn body(&self, response: Response<Incoming>) -> Result<Bytes, ClientError> {
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX);
        match body.collect().await {
            Ok(body) => Ok(body.to_bytes()),
            Err(error) => Err(self.broken(error.to_string())),
        }
    }

    async fn refusal(&self, response: Response<Incoming>) -> ClientError {
        let status = response.status();
        let body = match self.body(response).await {
            Ok(body) => body,
            Err(error) => return error,
        };
        let problem: Option<Problem> = serde_json::from_slice(&body).ok();
        let said = match &problem {
            Some(problem) => problem.error.clone(),
            None => {
                let text = String::from_utf8_lossy(&body);
                let line = text.lines().next().unwrap_or_default().trim();
                if line.is_empty() { status.to_string() } else { line.to_owned() }
            }
        };
        let url = self.url.clone();
        match (status, problem) {
            (StatusCode::UNAUTHORIZED, _) => ClientError::Unauthorised { url, said },
            (StatusCode::NOT_FOUND, Some(Problem { known, total, .. })) => {
                ClientError::NoSuchRollout { said, known, total }
            }
            (StatusCode::SERVICE_UNAVAILABLE, _) => ClientError::Busy { url, said },
            (StatusCode::BAD_REQUEST, Some(_)) | (StatusCode::MISDIRECTED_REQUEST, None) => {
                ClientError::Refused { url, said }
            }
            _ => self.not_a_gateway(format!("{status}: {said}")),
        }
    }

    fn late(&self, patience: Duration) -> ClientError {
        self.broken(format!("nothing within {patience:?}"))
    }

    fn broken(&self, why: String) -> ClientError {
        ClientError::Broken { url: self.url.clone(), why }
    }

    pub(super) fn not_a_gateway(&self, why: String) -> ClientError {
        ClientError::NotAGateway { url: self.url.clone(), why }
    }
}

/// An open stream of events.
#[derive(Debug)]
pub struct Events {
    client: Client,
    body: Incoming,
    parser: Parser,
}

impl Events {
    /// Waits for the next event.
    ///
    /// # Errors
    /// [`ClientError::Broken`] when the stream ends or falls silent, [`ClientError::NotAGateway`]
    /// when it is none.
    pub async fn next(&mut self) -> Result<Event, ClientError> {
        loop {
            if let Some(event) = self.parser.poll_event() {
                return Ok(event);
            }
            let frame = match timeout(SILENCE_MAX, self.body.frame()).await {
                Err(_) => return Err(self.client.late(SILENCE_MAX)),
                Ok(None) => return Err(self.client.broken("the stream ended".into())),
                Ok(Some(Err(error))) => return Err(self.client.broken(error.to_string())),
                Ok(Some(Ok(frame))) => frame,
            };
            if let Ok(bytes) = frame.into_data() {
                let taken = self.parser.handle_bytes(&bytes);
                taken.map_err(|error| self.client.not_a_gateway(error.to_string()))?;
            }
        }
    }
}

/// The first token of a file, as a header.
fn token(file: &Path) -> Result<header::HeaderValue, ClientError> {
    let wrong = |why: String| ClientError::Token { file: file.to_owned(), why };
    let mut text = String::new();
    std::fs::File::open(file)
        .and_then(|open| open.take(TOKEN_FILE_BYTES_MAX).read_to_string(&mut text))
        .map_err(|error| wrong(format!("cannot be read: {error}")))?;
    let token = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'));
    let token = token.ok_or_else(|| wrong("it holds no token".into()))?;
    let mut value = header::HeaderValue::try_from(format!("Bearer {token}"))
        .map_err(|_| wrong("its token is not plain text".into()))?;
    value.set_sensitive(true);
    Ok(value)
}

/// A name or a value as part of a query.
pub fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(url: &str) -> Result<Client, String> {
        let connect = Connect { admin_url: url.to_owned(), admin_token_file: None };
        Client::new(&connect).map_err(|error| error.to_string())
    }

    #[test]
    fn a_url_names_host_port_and_prefix() {
        let parts = |url| client(url).map(|one| (one.host, one.port, one.authority, one.prefix));
        let check = |url, host: &str, port, authority: &str, prefix: &str| {
            assert_eq!(parts(url), Ok((host.into(), port, authority.into(), prefix.into())));
        };
        check("http://127.0.0.1:4321", "127.0.0.1", 4321, "127.0.0.1:4321", "");
        check("http://[::1]:7/", "::1", 7, "[::1]:7", "");
        check("http://gw.example/tide/", "gw.example", 80, "gw.example", "/tide");
        for (bad, why) in [
            ("https://x", "plain HTTP"),
            ("127.0.0.1:4321", "--admin-url"),
            ("ftp://x", "does not begin with http://"),
            ("http://a:b@x", "--admin-token-file"),
            ("http://x?y", "query"),
            ("", "--admin-url"),
        ] {
            let error = client(bad).unwrap_err();
            assert!(error.contains(why), "{bad}: {error}");
        }
    }

    #[test]
    fn a_query_survives_what_attributes_hold() {
        assert_eq!(encoded("k8s.cluster=é &#"), "k8s.cluster%3D%C3%A9%20%26%23");
    }

    #[test]
    fn the_first_line_that_is_no_comment_is_the_token() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        std::fs::write(&file, "# ops\n\n secret-1 \nsecret-2\n").unwrap();
        assert_eq!(token(&file).unwrap(), "Bearer secret-1");
        std::fs::write(&file, "# none\n").unwrap();
        assert!(token(&file).unwrap_err().to_string().contains("holds no token"));
        std::fs::write(&file, "a\u{7f}b\n").unwrap();
        assert!(token(&file).unwrap_err().to_string().contains("not plain text"));
    }
}
