//! TLS for collectors: PEM files, read again when they change (serving.md decision 15).

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::config::TlsConfig;

pub mod expiry;

/// Largest PEM file read.
pub const PEM_BYTES_MAX: u64 = 4 << 20;

/// The files, and the configuration that they last gave.
#[derive(Debug)]
pub struct Tls {
    files: TlsConfig,
    current: ArcSwap<ServerConfig>,
    /// Seconds since 1970; [`UNKNOWN`] where the date could not be read.
    not_after: AtomicI64,
}

/// One reading of the files.
struct Loaded {
    config: ServerConfig,
    not_after: Option<i64>,
}

const UNKNOWN: i64 = i64::MIN;

/// Why the files cannot be served with.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {}: {error}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Why.
        #[source]
        error: std::io::Error,
    },
    /// A file holds no PEM of the kind that is needed.
    #[error("{} holds no usable {what}: {error}", file.display())]
    Pem {
        /// The file.
        file: PathBuf,
        /// `certificate` or `private key`.
        what: &'static str,
        /// Why.
        #[source]
        error: rustls_pki_types::pem::Error,
    },
    /// A file holds no certificate at all.
    #[error("{} holds no certificate", file.display())]
    Empty {
        /// The file.
        file: PathBuf,
    },
    /// Certificate authorities that cannot be used.
    #[error("{} cannot judge certificates: {why}", file.display())]
    Authority {
        /// The file.
        file: PathBuf,
        /// Why.
        why: String,
    },
    /// Certificate and key do not fit each other, or not our cryptography.
    #[error("{} and {} do not work together: {error}", cert.display(), key.display())]
    Unfit {
        /// The certificate file.
        cert: PathBuf,
        /// The key file.
        key: PathBuf,
        /// Why.
        #[source]
        error: rustls::Error,
    },
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    ///
    /// [`TlsError`] names the file.
    pub fn load(files: TlsConfig) -> Result<Self, TlsError> {
        let Loaded { config, not_after } = load(&files)?;
        let current = ArcSwap::from_pointee(config);
        Ok(Self { files, current, not_after: AtomicI64::new(not_after.unwrap_or(UNKNOWN)) })
    }

    /// Reads the files again; on an error what was in force stays. Live links stay, too.
    ///
    /// # Errors
    ///
    /// As [`Tls::load`].
    pub fn reload(&self) -> Result<(), TlsError> {
        let Loaded { config, not_after } = load(&self.files)?;
        self.current.store(Arc::new(config));
        self.not_after.store(not_after.unwrap_or(UNKNOWN), Ordering::Relaxed);
        Ok(())
    }

    /// For the next handshake.
    pub fn current(&self) -> Arc<ServerConfig> {
        self.current.load_full()
    }

    /// When the served certificate ends, in seconds since 1970, if its date could be read.
    pub fn not_after(&self) -> Option<i64> {
        Some(self.not_after.load(Ordering::Relaxed)).filter(|seconds| *seconds != UNKNOWN)
    }

    /// Whether clients must show a certificate.
    pub fn asks_for_client_certificate(&self) -> bool {
        self.files.client_ca.is_some()
    }

    /// The files to watch.
    pub fn files(&self) -> Vec<PathBuf> {
        self.files.files()
    }
}

fn load(files: &TlsConfig) -> Result<Loaded, TlsError> {
    let chain = certificates(&files.cert)?;
    let not_after = chain.first().and_then(|leaf| expiry::not_after(leaf));
    let key = key(&files.key)?;
    let provider: Arc<CryptoProvider> = Arc::new(aws_lc_rs::default_provider());
    let unfit = |error| TlsError::Unfit { cert: files.cert.clone(), key: files.key.clone(), error };

    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(unfit)?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(file) => {
            let bad = |why: String| TlsError::Authority { file: file.clone(), why };
            let mut roots = rustls::RootCertStore::empty();
            for certificate in certificates(file)? {
                roots.add(certificate).map_err(|error| bad(error.to_string()))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .build()
                .map_err(|error| bad(error.to_string()))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder.with_single_cert(chain, key).map_err(unfit)?;
    // A WebSocket upgrade is an HTTP/1.1 matter.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // Resumption makes a reconnect storm cheaper, and its state lives with the clients. The key is
    // new with each reading, so that a client certificate that a new authority refuses cannot
    // come back in with an old ticket.
    config.ticketer = aws_lc_rs::Ticketer::new().map_err(unfit)?;
    config.send_tls13_tickets = 1;
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    Ok(Loaded { config, not_after })
}

/// The private key in a PEM file.
///
/// # Errors
///
/// [`TlsError`] names the file.
pub(crate) fn key(file: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(&read(file)?).map_err(|error| TlsError::Pem {
        file: file.to_owned(),
        what: "private key",
        error,
    })
}

/// The certificates in a PEM file, at least one.
///
/// # Errors
///
/// [`TlsError`] names the file.
pub(crate) fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let pem = read(file)?;
    let chain: Vec<_> = CertificateDer::pem_slice_iter(&pem)
        .collect::<Result<_, _>>()
        .map_err(|error| TlsError::Pem { file: file.to_owned(), what: "certificate", error })?;
    if chain.is_empty() {
        return Err(TlsError::Empty { file: file.to_owned() });
    }
    Ok(chain)
}

fn read(file: &Path) -> Result<Vec<u8>, TlsError> {
    let mut bytes = Vec::new();
    std::fs::File::open(file)
        .and_then(|open| open.take(PEM_BYTES_MAX).read_to_end(&mut bytes))
        .map_err(|error| TlsError::Unreadable { file: file.to_owned(), error })?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(dir: &Path, name: &str, pem: &str) -> PathBuf {
        let file = dir.join(name);
        std::fs::write(&file, pem).unwrap();
        file
    }

    fn certificate(dir: &Path, name: &str, until: i32) -> (PathBuf, PathBuf) {
        let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(until, 5, 6);
        let key = rcgen::KeyPair::generate().unwrap();
        let cert = params.self_signed(&key).unwrap();
        (
            write(dir, &format!("{name}.pem"), &cert.pem()),
            write(dir, &format!("{name}.key"), &key.serialize_pem()),
        )
    }

    #[test]
    fn a_changed_certificate_is_taken_and_a_bad_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let (cert, key) = certificate(dir.path(), "a", 2031);
        let (later_cert, later_key) = certificate(dir.path(), "b", 2062);
        let files = TlsConfig { cert: cert.clone(), key: key.clone(), client_ca: None };
        let tls = Tls::load(files).unwrap();
        assert_eq!(tls.not_after(), Some(1_935_792_000), "2031-05-06");

        std::fs::copy(&later_cert, &cert).unwrap();
        let error = tls.reload().unwrap_err();
        assert!(matches!(error, TlsError::Unfit { .. }), "half of a pair: {error}");
        assert_eq!(tls.not_after(), Some(1_935_792_000));

        std::fs::copy(&later_key, &key).unwrap();
        tls.reload().unwrap();
        assert_eq!(tls.not_after(), Some(2_914_099_200), "2062-05-06");
        assert_eq!(tls.current().alpn_protocols, [b"http/1.1".to_vec()]);
    }

    #[test]
    fn each_file_is_named_when_it_is_at_fault() {
        let dir = tempfile::tempdir().unwrap();
        let (cert, key) = certificate(dir.path(), "a", 2031);
        let empty = write(dir.path(), "empty.pem", "");
        let missing = dir.path().join("missing.pem");
        let check = |cert: &Path, key: &Path, ca: Option<&Path>, expect: &str| {
            let files = TlsConfig {
                cert: cert.to_owned(),
                key: key.to_owned(),
                client_ca: ca.map(Path::to_owned),
            };
            let error = Tls::load(files).unwrap_err().to_string();
            assert!(error.contains(expect), "{error}");
        };
        check(&missing, &key, None, "missing.pem: No such file");
        check(&empty, &key, None, "empty.pem holds no certificate");
        check(&cert, &cert, None, "a.pem holds no usable private key");
        check(&cert, &key, Some(&empty), "empty.pem holds no certificate");
        check(&cert, &key, Some(&missing), "missing.pem: No such file");
    }
}
