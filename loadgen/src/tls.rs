//! TLS as a collector speaks it, and a socket that may or may not be under it.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Longest that a TLS handshake may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Whom to believe.
#[derive(Clone)]
pub struct Trust {
    connector: TlsConnector,
}

impl std::fmt::Debug for Trust {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trust").finish_non_exhaustive()
    }
}

impl Trust {
    /// The authorities in a PEM file, and nobody else. Sessions are resumed.
    ///
    /// # Errors
    ///
    /// A sentence that says what is wrong with the file.
    pub fn load(ca: &Path) -> Result<Self, String> {
        let wrong = |text: String| format!("{}: {text}", ca.display());
        let mut roots = RootCertStore::empty();
        let certificates =
            CertificateDer::pem_file_iter(ca).map_err(|error| wrong(error.to_string()))?;
        for certificate in certificates {
            let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
            roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
        }
        if roots.is_empty() {
            return Err(wrong("no certificate in it".to_owned()));
        }
        let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| wrong(error.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self { connector: TlsConnector::from(Arc::new(config)) })
    }

    /// The handshake with `host`, over a connection to it.
    ///
    /// # Errors
    ///
    /// It does not finish, or the certificate is not for `host`, or from nobody that is believed.
    pub async fn connect(&self, host: &str, tcp: TcpStream) -> io::Result<Stream> {
        let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let handshake = self.connector.connect(name, tcp);
        let stream = tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake)
            .await
            .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        Ok(Stream::Tls(Box::new(stream)))
    }
}

/// A connection to a gateway.
#[derive(Debug)]
pub enum Stream {
    /// Plain text.
    Plain(TcpStream),
    /// TLS, boxed: its state is some kilobytes.
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    /// The socket below.
    pub fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(tcp) => tcp,
            Self::Tls(stream) => stream.get_ref().0,
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_an_authority_is_refused_and_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.pem");
        assert!(Trust::load(&file).unwrap_err().contains("ca.pem: "));
        std::fs::write(&file, "not a certificate\n").unwrap();
        assert!(Trust::load(&file).unwrap_err().ends_with("no certificate in it"));
        let damaged = "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n";
        std::fs::write(&file, damaged).unwrap();
        assert!(Trust::load(&file).is_err());
    }
}
