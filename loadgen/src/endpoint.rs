//! Where the collectors connect to, and from where.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use hyper::Uri;
use socket2::SockRef;
use tokio::net::TcpSocket;

use crate::source;
use crate::tls::{Stream, Trust};

/// How collectors talk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// One WebSocket each.
    Ws,
    /// HTTP POST, a kept connection each.
    Http,
}

/// A server's address, resolved once.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// `host:port` as the user wrote it, for the Host header.
    pub authority: String,
    /// Path and query.
    pub path: String,
    /// Where connections go.
    pub address: SocketAddr,
    /// How.
    pub transport: Transport,
    /// From where, if not from wherever the kernel says.
    pub source: Option<IpAddr>,
    /// The URL asks for TLS.
    pub secure: bool,
    /// Whom to believe then; see [`Endpoint::trusting`].
    trust: Option<Trust>,
}

/// How long a connection and its handshake may take each.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

impl Endpoint {
    /// Takes a URL apart and resolves its host. `transport` overrides what its scheme says.
    ///
    /// # Errors
    ///
    /// A sentence that says what is wrong with it.
    pub async fn resolve(
        url: &str,
        transport: Option<Transport>,
        source: Option<IpAddr>,
    ) -> Result<Self, String> {
        let uri: Uri = url.parse().map_err(|error| format!("{url} is not a URL: {error}"))?;
        let (own, secure) = match uri.scheme_str() {
            Some("ws") => (Transport::Ws, false),
            Some("http") => (Transport::Http, false),
            Some("wss") => (Transport::Ws, true),
            Some("https") => (Transport::Http, true),
            _ => return Err(format!("{url} must begin with ws://, http://, wss:// or https://")),
        };
        let host = uri.host().filter(|host| !host.is_empty());
        let host = host.ok_or_else(|| format!("{url} has no host"))?;
        let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let mut addresses = tokio::net::lookup_host((host.trim_matches(['[', ']']), port))
            .await
            .map_err(|error| format!("{host} cannot be resolved: {error}"))?;
        let address = addresses.next().ok_or_else(|| format!("{host} has no address"))?;
        if source.is_some_and(|source| source.is_ipv4() != address.is_ipv4()) {
            return Err(format!("the source address and {address} are not of one family"));
        }
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        Ok(Self {
            authority: format!("{host}:{port}"),
            path,
            address,
            transport: transport.unwrap_or(own),
            source,
            secure,
            trust: None,
        })
    }

    /// The same, believing the authorities in a PEM file.
    ///
    /// # Errors
    ///
    /// A sentence: TLS and no file, a file and no TLS, or what is wrong with the file.
    pub fn trusting(mut self, ca: Option<&Path>) -> Result<Self, String> {
        self.trust = match (self.secure, ca) {
            (false, None) => None,
            (true, Some(ca)) => Some(Trust::load(ca)?),
            (true, None) => {
                return Err("wss:// and https:// need --ca FILE, the authority to believe".into());
            }
            (false, Some(_)) => return Err("--ca is for wss:// and https://".into()),
        };
        Ok(self)
    }

    /// One connection, without delay of small segments; under TLS if the URL asks for it.
    pub(crate) async fn connect(&self) -> io::Result<Stream> {
        let socket =
            if self.address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        if let Some(source) = self.source {
            source::bind(SockRef::from(&socket), source)?;
        }
        let stream = tokio::time::timeout(CONNECT_TIMEOUT, socket.connect(self.address))
            .await
            .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        stream.set_nodelay(true)?;
        match &self.trust {
            None if self.secure => {
                Err(io::Error::new(io::ErrorKind::InvalidInput, "TLS, and nobody to believe"))
            }
            None => Ok(Stream::Plain(stream)),
            Some(trust) => {
                let host = self.authority.rsplit_once(':').map_or("", |(host, _)| host);
                trust.connect(host, stream).await
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn urls_are_taken_apart() {
        let endpoint = Endpoint::resolve("ws://127.0.0.1:4320/v1/opamp", None, None).await.unwrap();
        assert_eq!(endpoint.authority, "127.0.0.1:4320");
        assert_eq!((endpoint.path.as_str(), endpoint.transport), ("/v1/opamp", Transport::Ws));
        let http = Endpoint::resolve("ws://127.0.0.1:1/x", Some(Transport::Http), None);
        assert_eq!(http.await.unwrap().transport, Transport::Http);
        let secure = Endpoint::resolve("wss://127.0.0.1/", None, None).await.unwrap();
        assert_eq!((secure.authority.as_str(), secure.secure), ("127.0.0.1:443", true));
        assert!(secure.clone().connect().await.is_err() && secure.trusting(None).is_err());
        let plain = Endpoint::resolve("ws://127.0.0.1/", None, None).await.unwrap();
        assert!(plain.trusting(Some(Path::new("ca.pem"))).is_err());
        for url in ["", "127.0.0.1:4320", "ftp://127.0.0.1/", "ws:///x"] {
            assert!(Endpoint::resolve(url, None, None).await.is_err(), "{url}");
        }
    }
}
