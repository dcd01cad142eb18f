//! A private certificate authority, for trying TLS, client certificates and the uplink out.
//!
//! Two authorities, because who may fetch a configuration must not be able to speak for a replica:
//! `ca` signs the server's and the collectors' certificates, `uplink-ca` those of aggregators and
//! replicas. [`plan`] makes everything in memory, [`write`](Plan::write) puts it on the disk.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};
use rustls_pki_types::{DnsName, ServerName};

/// Longest that certificates for trying things out are valid: ten years.
pub const DAYS_MAX: u32 = 3_650;

/// Clocks of other machines may be behind by so much.
const BACKDATED: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);
/// What X.520 allows of a common name.
const COMMON_NAME_CHARS_MAX: usize = 64;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// DNS names and addresses that gateways and aggregators are reached by.
    pub names: Vec<String>,
    /// Names of collectors' certificates.
    pub collectors: Vec<String>,
    /// Names of replicas on the uplink; not empty or [`Request::aggregator`] makes `uplink-ca`.
    pub replicas: Vec<String>,
    /// A certificate for aggregators, too.
    pub aggregator: bool,
    /// How long all of them are valid.
    pub days: u32,
}

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A certificate, or an authority's.
    Certificate,
    /// A private key; mode 0600.
    Key,
}

/// One file that is to be written.
pub struct File {
    /// Inside the folder.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// Who it speaks for: `ca`, `server`, `collector`, `uplink-ca`, `aggregator` or `replica`.
    pub role: &'static str,
    /// What it is valid for.
    pub names: Vec<String>,
    /// PEM.
    text: String,
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without the text: it may be a key.
        f.debug_struct("File").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Everything that is to be written.
#[derive(Debug)]
pub struct Plan {
    /// In the order of their making.
    pub files: Vec<File>,
    /// When all of them end, in milliseconds since 1970.
    pub not_after_ms: u64,
}

/// Why there are no certificates.
#[derive(Debug, thiserror::Error)]
pub enum CertsError {
    /// Cryptography refused.
    #[error("cannot make a certificate: {0}")]
    Make(#[from] rcgen::Error),
    /// The files are written, but cannot be told about.
    #[error("the files are written; the answer is not: {0}")]
    Tell(#[source] serde_json::Error),
    /// Two files would have one name.
    #[error("{0} is asked for twice")]
    Twice(String),
    /// What is there stays there.
    #[error(
        "{} is there already; --force replaces it, and then whatever its authority signed before is good for nothing",
        .0.display()
    )]
    Present(PathBuf),
    /// The disk refused.
    #[error("cannot write {}: {error}", file.display())]
    Write {
        /// What should have been written.
        file: PathBuf,
        /// Why it was not.
        #[source]
        error: io::Error,
    },
}

/// A DNS name or an address that a certificate can be for.
///
/// # Errors
///
/// Says what is wanted.
pub fn server_name(text: &str) -> Result<String, String> {
    match ServerName::try_from(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => dns_name(text).map_err(|_| {
            format!("'{text}' is neither a DNS name, such as gw.example.com, nor an IP address")
        }),
    }
}

/// A name that a client's certificate can be for: a DNS name, also `*.` and one.
///
/// # Errors
///
/// Says what is wanted.
pub fn dns_name(text: &str) -> Result<String, String> {
    let rest = text.strip_prefix("*.").unwrap_or(text);
    let labels = text.split('.').count();
    let wanted = || {
        format!(
            "'{text}' is not a name such as edge-1 or edge-1.example.com, of at most {COMMON_NAME_CHARS_MAX} letters, digits, '-', '.' and '_'"
        )
    };
    DnsName::try_from(rest).map_err(|_| wanted())?;
    if text.len() > COMMON_NAME_CHARS_MAX || text.ends_with('.') || text.parse::<IpAddr>().is_ok() {
        return Err(wanted());
    }
    if rest.len() < text.len() && labels < 3 {
        return Err(format!(
            "'{text}': after '*.' there must be two labels, such as *.edge.example"
        ));
    }
    Ok(text.to_owned())
}

/// Makes everything; nothing is written yet.
///
/// # Errors
///
/// Two files of one name, or a refusal of the cryptography.
pub fn plan(request: &Request, now_ms: u64) -> Result<Plan, CertsError> {
    let now = Duration::from_millis(now_ms);
    let end = now + DAY * request.days;
    let span = Span { begin: now.saturating_sub(BACKDATED), end };
    let mut files = Vec::new();

    let ca = authority(&mut files, "ca", "Tidegate private authority", span)?;
    let server = [ExtendedKeyUsagePurpose::ServerAuth];
    let client = [ExtendedKeyUsagePurpose::ClientAuth];
    ca.issue(&mut files, "server", "server", &request.names, &server)?;
    for name in &request.collectors {
        let names = std::slice::from_ref(name);
        ca.issue(&mut files, "collector", &stem("collector", name), names, &client)?;
    }
    if request.aggregator || !request.replicas.is_empty() {
        let ca = authority(&mut files, "uplink-ca", "Tidegate uplink authority", span)?;
        if request.aggregator {
            ca.issue(&mut files, "aggregator", "aggregator", &request.names, &server)?;
        }
        for name in &request.replicas {
            let names = std::slice::from_ref(name);
            ca.issue(&mut files, "replica", &stem("replica", name), names, &client)?;
        }
    }
    let mut seen = BTreeSet::new();
    if let Some(file) = files.iter().find(|file| !seen.insert(&file.name)) {
        return Err(CertsError::Twice(file.name.clone()));
    }
    let not_after_ms = end.as_secs().saturating_mul(1_000);
    Ok(Plan { files, not_after_ms })
}

/// `collector` alone is the name of the one that is made unasked.
fn stem(role: &str, name: &str) -> String {
    // A file of that name would be at the mercy of every shell.
    let name = name.to_ascii_lowercase().replace('*', "any");
    if name == role { name } else { format!("{role}-{name}") }
}

#[derive(Clone, Copy)]
struct Span {
    begin: Duration,
    end: Duration,
}

impl Span {
    fn set(self, params: &mut CertificateParams) {
        let epoch = rcgen::date_time_ymd(1970, 1, 1);
        params.not_before = epoch + Duration::from_secs(self.begin.as_secs());
        params.not_after = epoch + Duration::from_secs(self.end.as_secs());
    }
}

struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    span: Span,
}

fn authority(
    files: &mut Vec<File>,
    role: &'static str,
    common_name: &str,
    span: Span,
) -> Result<Authority, CertsError> {
    let mut params = CertificateParams::default();
    span.set(&mut params);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.distinguished_name = rcgen::DistinguishedName::new();
    // Of two authorities with one name, each would be blamed for the other's signatures.
    let common_name = format!("{common_name} {:08x}", fastrand::u32(..));
    params.distinguished_name.push(DnType::CommonName, common_name);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
    push(files, role, role, &[], issuer.pem(), issuer.key());
    Ok(Authority { issuer, span })
}

impl Authority {
    fn issue(
        &self,
        files: &mut Vec<File>,
        role: &'static str,
        stem: &str,
        names: &[String],
        purposes: &[ExtendedKeyUsagePurpose],
    ) -> Result<(), CertsError> {
        let mut params = CertificateParams::new(names)?;
        self.span.set(&mut params);
        params.distinguished_name = rcgen::DistinguishedName::new();
        if let Some(name) = names.first().filter(|name| name.len() <= COMMON_NAME_CHARS_MAX) {
            params.distinguished_name.push(DnType::CommonName, &**name);
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = purposes.to_vec();
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        push(files, role, stem, names, certificate.pem(), &key);
        Ok(())
    }
}

fn push(
    files: &mut Vec<File>,
    role: &'static str,
    stem: &str,
    names: &[String],
    certificate: String,
    key: &KeyPair,
) {
    let file = |extension: &str, kind, text| File {
        name: format!("{stem}.{extension}"),
        kind,
        role,
        names: names.to_vec(),
        text,
    };
    files.push(file("crt", Kind::Certificate, certificate));
    files.push(file("key", Kind::Key, key.serialize_pem()));
}

impl Plan {
    /// Writes every file into `dir`, which is made where it is missing. Each appears whole, keys
    /// with mode 0600 from their first byte on.
    ///
    /// # Errors
    ///
    /// A file is there and is not to be replaced (`force`): nothing is written then. Or the disk
    /// refuses, and what was written before stays.
    pub fn write(&self, dir: &Path, force: bool) -> Result<(), CertsError> {
        let paths: Vec<PathBuf> = self.files.iter().map(|file| dir.join(&file.name)).collect();
        if !force && let Some(present) = paths.iter().find(|path| path.symlink_metadata().is_ok()) {
            return Err(CertsError::Present(present.clone()));
        }
        let fail = |file: &Path| {
            let file = file.to_owned();
            move |error| CertsError::Write { file, error }
        };
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(fail(dir))?;
        for (file, path) in self.files.iter().zip(&paths) {
            // Made with mode 0600.
            let mut new = tempfile::NamedTempFile::new_in(dir).map_err(fail(path))?;
            new.write_all(file.text.as_bytes()).map_err(fail(path))?;
            if file.kind == Kind::Certificate {
                let readable = std::fs::Permissions::from_mode(0o644);
                new.as_file().set_permissions(readable).map_err(fail(path))?;
            }
            let put = if force { new.persist(path) } else { new.persist_noclobber(path) };
            put.map_err(|error| fail(path)(error.error))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
