//! A replica that a test plays, byte by byte.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use proto::uplink::{ALPN, Decoder, FORMATS, Frame, Hello, encode, encode_hello};
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Connection, Endpoint, RecvStream, SendStream};
use rustls::RootCertStore;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use crate::support::PATIENCE;

/// What it shows, and what it asks TLS for.
pub(super) struct Shown<'a> {
    pub(super) authority: &'a str,
    pub(super) certificate: Option<(&'a str, &'a str)>,
    pub(super) alpn: &'a [u8],
}

/// A connection and its one stream.
pub(super) struct Peer {
    runtime: Runtime,
    connection: Connection,
    _endpoint: Endpoint,
    send: SendStream,
    recv: RecvStream,
}

impl<'a> Shown<'a> {
    pub(super) fn new(authority: &'a str, certificate: &'a str, key: &'a str) -> Self {
        Self { authority, certificate: Some((certificate, key)), alpn: ALPN }
    }

    fn config(&self) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        for certificate in chain(self.authority) {
            roots.add(certificate).unwrap();
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match self.certificate {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => builder
                .with_client_auth_cert(
                    chain(certificate),
                    PrivateKeyDer::from_pem_file(key).unwrap(),
                )
                .unwrap(),
        };
        config.alpn_protocols = vec![self.alpn.to_vec()];
        ClientConfig::new(Arc::new(QuicClientConfig::try_from(config).unwrap()))
    }
}

fn chain(file: &str) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_file_iter(Path::new(file)).unwrap().map(Result::unwrap).collect()
}

impl Peer {
    /// Connects, which needs the other side's certificate only: what it thinks of ours comes later.
    pub(super) fn connect(to: SocketAddr, shown: &Shown<'_>) -> Result<Self, String> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let config = shown.config();
        let made = runtime.block_on(async {
            let endpoint = Endpoint::client(([127, 0, 0, 1], 0).into()).unwrap();
            let connecting = endpoint.connect_with(config, to, "localhost").unwrap();
            let connection = timeout(PATIENCE, connecting).await.unwrap();
            let connection = connection.map_err(|error| error.to_string())?;
            let (send, recv) = connection.open_bi().await.map_err(|error| error.to_string())?;
            Ok::<_, String>((endpoint, connection, send, recv))
        });
        let (endpoint, connection, send, recv) = made?;
        Ok(Self { runtime, connection, _endpoint: endpoint, send, recv })
    }

    /// Sends these bytes, as far as they are taken.
    pub(super) fn send(&mut self, bytes: &[u8]) {
        let Self { runtime, send, .. } = self;
        let sending = async { timeout(PATIENCE, send.write_all(bytes)).await };
        // A peer that has been cut off takes no more.
        let _ = runtime.block_on(sending).unwrap();
    }

    /// Says Hello under this name.
    pub(super) fn hello(&mut self, name: &str) {
        let mut out = Vec::new();
        encode_hello(name, 7, 1_790_000_000_000, 1_790_000_000_000, &mut out);
        self.send(&out);
    }

    /// Says Hello, and speaks only this.
    pub(super) fn hello_in(&mut self, name: &str, format: u16) {
        let mut out = Vec::new();
        let hello = Hello {
            formats: &format.to_le_bytes(),
            name,
            incarnation: 7,
            started_ms: 1_790_000_000_000,
            now_ms: 1_790_000_000_000,
        };
        encode(&Frame::Hello(hello), FORMATS[0], &mut out);
        self.send(&out);
    }

    /// Reads until a frame is of interest; `None` when the stream ends before that.
    pub(super) fn until<T>(
        &mut self,
        mut of_interest: impl FnMut(&Frame<'_>) -> Option<T>,
    ) -> Option<T> {
        let Self { runtime, recv, .. } = self;
        runtime.block_on(async {
            let mut decoder = Decoder::default();
            loop {
                while let Some(frame) = decoder.next_frame(FORMATS[0]).unwrap() {
                    if let Some(found) = of_interest(&frame) {
                        return Some(found);
                    }
                }
                match timeout(PATIENCE, recv.read_chunk(1 << 16, true)).await.unwrap() {
                    Ok(Some(chunk)) => decoder.push(&chunk.bytes),
                    _ => return None,
                }
            }
        })
    }

    /// Whether it is welcomed.
    pub(super) fn welcomed(&mut self) -> bool {
        self.until(|frame| matches!(frame, Frame::Welcome(_)).then_some(())).is_some()
    }

    /// Why it is refused, in words.
    pub(super) fn refusal(&mut self) -> Option<String> {
        self.until(|frame| match frame {
            Frame::Refuse(why) => Some((*why).to_owned()),
            _ => None,
        })
    }

    /// Why the connection was closed by the other side.
    pub(super) fn closed(&self) -> String {
        let closed = async { timeout(PATIENCE, self.connection.closed()).await };
        self.runtime.block_on(closed).unwrap().to_string()
    }
}
