//! Certificates of both ends: mutual TLS 1.3, and nothing else.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use arc_swap::ArcSwap;
use aws_lc_rs::hmac;
use proto::uplink::ALPN;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{IdleTimeout, TransportConfig, VarInt};
use rustls::client::{Resumption, verify_server_name};
use rustls::crypto::{CryptoProvider, aws_lc_rs as provided};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::{CertificateDer, ServerName};

use super::{ALIVE_EVERY, SILENCE_MAX};
use crate::config::UplinkTls;
use crate::tls::{TlsError, certificates, expiry, key};

/// Bytes on their way to an end that does not read: QUIC's flow control holds back the rest.
pub const WINDOW_BYTES: u32 = 1 << 20;

/// What one end shows and whom it believes, read again when the files change; connections that
/// stand are not touched.
#[derive(Debug)]
pub struct Certificates<End> {
    files: UplinkTls,
    current: ArcSwap<End>,
    /// Seconds since 1970; [`UNKNOWN`] where the date could not be read.
    not_after: AtomicI64,
}

const UNKNOWN: i64 = i64::MIN;
/// What the key for resets is derived from a private key with.
const RESETS: &[u8] = b"tidegate uplink: stateless reset";

/// How one end speaks.
pub trait End: Sized {
    /// From what the files hold.
    ///
    /// # Errors
    /// They do not fit each other.
    fn make(files: &UplinkTls, read: Read) -> Result<Self, TlsError>;
}

/// What the files hold.
#[derive(Debug)]
pub struct Read {
    roots: Arc<RootCertStore>,
    chain: Vec<CertificateDer<'static>>,
    key: rustls_pki_types::PrivateKeyDer<'static>,
}

impl<E: End> Certificates<E> {
    /// Reads the files.
    ///
    /// # Errors
    /// [`TlsError`] names the file.
    pub fn load(files: UplinkTls) -> Result<Self, TlsError> {
        let (end, not_after) = load(&files)?;
        Ok(Self {
            files,
            current: ArcSwap::from_pointee(end),
            not_after: AtomicI64::new(not_after.unwrap_or(UNKNOWN)),
        })
    }

    /// Reads the files again; on an error what was in force stays.
    ///
    /// # Errors
    /// As [`Certificates::load`].
    pub fn reload(&self) -> Result<(), TlsError> {
        let (end, not_after) = load(&self.files)?;
        self.current.store(Arc::new(end));
        self.not_after.store(not_after.unwrap_or(UNKNOWN), Ordering::Relaxed);
        Ok(())
    }

    /// For the next handshake.
    pub fn current(&self) -> Arc<E> {
        self.current.load_full()
    }

    /// When the certificate that is shown ends, in seconds since 1970, if its date could be read.
    pub fn not_after(&self) -> Option<i64> {
        Some(self.not_after.load(Ordering::Relaxed)).filter(|seconds| *seconds != UNKNOWN)
    }

    /// The files to watch.
    pub fn files(&self) -> Vec<PathBuf> {
        self.files.files()
    }
}

fn load<E: End>(files: &UplinkTls) -> Result<(E, Option<i64>), TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&files.ca)? {
        roots.add(certificate).map_err(|error| TlsError::Authority {
            file: files.ca.clone(),
            why: error.to_string(),
        })?;
    }
    let chain = certificates(&files.cert)?;
    let not_after = chain.first().and_then(|leaf| expiry::not_after(leaf));
    let read = Read { roots: Arc::new(roots), chain, key: key(&files.key)? };
    Ok((E::make(files, read)?, not_after))
}

fn unfit(files: &UplinkTls) -> impl Fn(rustls::Error) -> TlsError + Copy {
    |error| TlsError::Unfit { cert: files.cert.clone(), key: files.key.clone(), error }
}

/// AES-128-GCM, which QUIC's first packets are in, is among the suites of the provider; without it
/// there would be this error.
fn no_suite<T>(files: &UplinkTls) -> impl Fn(T) -> TlsError {
    |_| unfit(files)(rustls::Error::General("no cipher suite for QUIC".to_owned()))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(provided::default_provider())
}

/// A replica's end.
#[derive(Debug, Clone)]
pub struct Dials(pub quinn::ClientConfig);

impl End for Dials {
    fn make(files: &UplinkTls, Read { roots, chain, key }: Read) -> Result<Self, TlsError> {
        let mut config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(unfit(files))?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)
            .map_err(unfit(files))?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        // A certificate is shown and looked at on each connection.
        config.resumption = Resumption::disabled();
        let quic = QuicClientConfig::try_from(config).map_err(no_suite(files))?;
        let mut config = quinn::ClientConfig::new(Arc::new(quic));
        config.transport_config(transport(0));
        Ok(Self(config))
    }
}

/// An aggregator's end.
#[derive(Debug, Clone)]
pub struct Listens {
    /// For handshakes.
    pub server: quinn::ServerConfig,
    resets: hmac::Key,
}

impl Listens {
    /// The key for telling replicas that their connections are gone (RFC 9000, section 10.3),
    /// instead of leaving them to find out. It follows from the private key, so that whoever takes
    /// this aggregator's place after a crash has it too, and from its `place`, so that others with
    /// the same certificate have not (section 21.11). A process keeps the one that it
    /// began with, whatever certificate it shows later.
    pub fn resets(&self, place: &str) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&self.resets, place.as_bytes()).as_ref())
    }
}

impl End for Listens {
    fn make(files: &UplinkTls, Read { roots, chain, key }: Read) -> Result<Self, TlsError> {
        let verifier =
            WebPkiClientVerifier::builder_with_provider(roots, provider()).build().map_err(
                |error| TlsError::Authority { file: files.ca.clone(), why: error.to_string() },
            )?;
        let secret = hmac::Key::new(hmac::HMAC_SHA256, key.secret_der());
        let resets = hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&secret, RESETS).as_ref());
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(unfit(files))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .map_err(unfit(files))?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        let quic = QuicServerConfig::try_from(config).map_err(no_suite(files))?;
        let mut config = quinn::ServerConfig::with_crypto(Arc::new(quic));
        config.transport_config(transport(1));
        Ok(Self { server: config, resets })
    }
}

/// `streams` is how many the peer may open.
fn transport(streams: u32) -> Arc<TransportConfig> {
    let mut config = TransportConfig::default();
    config
        .max_concurrent_bidi_streams(VarInt::from_u32(streams))
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .datagram_receive_buffer_size(None)
        .stream_receive_window(VarInt::from_u32(WINDOW_BYTES))
        .receive_window(VarInt::from_u32(WINDOW_BYTES))
        .send_window(u64::from(WINDOW_BYTES))
        .keep_alive_interval(Some(ALIVE_EVERY));
    if let Ok(idle) = IdleTimeout::try_from(SILENCE_MAX) {
        config.max_idle_timeout(Some(idle));
    }
    Arc::new(config)
}

/// The certificate that a replica has shown.
#[derive(Debug)]
pub struct Shown(CertificateDer<'static>);

impl Shown {
    /// Of a connection whose handshake is over.
    pub fn of(connection: &quinn::Connection) -> Option<Self> {
        let chain = connection.peer_identity()?.downcast::<Vec<CertificateDer<'static>>>().ok()?;
        chain.into_iter().next().map(Self)
    }

    /// Whether it is for this name: by RFC 6125, as for a server, in its one form without a dot at
    /// its end.
    pub fn covers(&self, name: &str) -> bool {
        if name.ends_with('.') {
            return false;
        }
        let (Ok(certificate), Ok(name)) =
            (ParsedCertificate::try_from(&self.0), ServerName::try_from(name))
        else {
            return false;
        };
        matches!(name, ServerName::DnsName(_)) && verify_server_name(&certificate, &name).is_ok()
    }
}
