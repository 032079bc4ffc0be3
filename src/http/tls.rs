//! TLS: the certificate and its key, exchanged when their files change.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use thiserror::Error;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::{Error as PemError, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{self, ServerConfig, SupportedProtocolVersion};

use super::stamp::Stamp;
use crate::config::TlsFiles;

/// Older versions have known weaknesses, and no client in use needs them.
const VERSIONS: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];

/// What clients may speak inside, best first.
const PROTOCOLS: [&[u8]; 2] = [HTTP_2, b"http/1.1"];
/// HTTP/2's name in the handshake.
pub(super) const HTTP_2: &[u8] = b"h2";

/// Writers replace one file after the other; a pair that does not fit for so many looks is told.
const LOOKS_UNTIL_TOLD: u32 = 2;

/// Why there is no certificate with its key.
#[derive(Debug, Error)]
pub enum TlsError {
    #[error("cannot read {path}")]
    Read { path: PathBuf, source: io::Error },
    #[error("{path} is no PEM file: {problem}")]
    NotPem { path: PathBuf, problem: String },
    #[error("{path} has no certificate; its PEM text starts with BEGIN CERTIFICATE")]
    NoCertificate { path: PathBuf },
    #[error("{path} has no private key; its PEM text starts with BEGIN PRIVATE KEY")]
    NoKey { path: PathBuf },
    #[error("the private key of {path} is encrypted; write it without a passphrase")]
    EncryptedKey { path: PathBuf },
    #[error("the private key of {key} is not that of the certificate of {cert}")]
    Mismatch { cert: PathBuf, key: PathBuf },
    #[error("{cert} and {key} cannot be used: {problem}")]
    Unusable { cert: PathBuf, key: PathBuf, problem: String },
    #[error("TLS cannot be set up: {0}")]
    SetUp(rustls::Error),
}

/// Everything that a handshake needs.
pub(super) struct Tls {
    acceptor: TlsAcceptor,
    certificate: Arc<Certificate>,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// When one cannot be read or used, or they do not belong together.
    pub(super) fn open(files: &TlsFiles) -> Result<Self, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let certificate = Arc::new(Certificate::open(files, Arc::clone(&provider))?);
        let resolver = Arc::clone(&certificate) as Arc<dyn ResolvesServerCert>;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&VERSIONS)
            .map_err(TlsError::SetUp)?
            .with_no_client_auth()
            .with_cert_resolver(resolver);
        config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)), certificate })
    }

    /// Makes connections secure; of later handshakes each takes the certificate of its moment.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        self.acceptor.clone()
    }

    /// Reads the files again when one has changed; blocks while it reads.
    pub(super) fn refresh(&self) {
        self.certificate.refresh();
    }
}

/// The pair in use.
#[derive(Debug)]
struct Certificate {
    files: TlsFiles,
    provider: Arc<CryptoProvider>,
    current: ArcSwap<CertifiedKey>,
    last_look: Mutex<Look>,
}

/// What was found when the files were last looked at.
#[derive(Debug)]
struct Look {
    /// Of the pair in use, or of the last one that could not be used.
    stamps: Stamps,
    /// Looks in a row that found no pair to use.
    failures: u32,
}

type Stamps = [Option<Stamp>; 2];

impl Certificate {
    fn open(files: &TlsFiles, provider: Arc<CryptoProvider>) -> Result<Self, TlsError> {
        // Before the content: what is written from here on is a change.
        let last_look = Mutex::new(Look { stamps: stamps(files), failures: 0 });
        let current = ArcSwap::from_pointee(read(files, &provider)?);
        Ok(Self { files: files.clone(), provider, current, last_look })
    }

    fn refresh(&self) {
        let mut last = self.last_look.lock();
        let stamps = stamps(&self.files);
        if stamps == last.stamps && (last.failures == 0 || last.failures >= LOOKS_UNTIL_TOLD) {
            return;
        }
        let failures = if stamps == last.stamps { last.failures } else { 0 };
        *last = Look { stamps, failures: 0 };
        match read(&self.files, &self.provider) {
            Ok(pair) => {
                self.current.store(Arc::new(pair));
                tracing::info!("the TLS certificate was read again; new connections get it");
            }
            Err(error) => {
                last.failures = failures + 1;
                if last.failures == LOOKS_UNTIL_TOLD {
                    let cause = std::error::Error::source(&error).map(ToString::to_string);
                    tracing::warn!(%error, cause, "the TLS certificate read last stays");
                }
            }
        }
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.load_full())
    }
}

fn stamps(files: &TlsFiles) -> Stamps {
    [Stamp::of(&files.cert).ok(), Stamp::of(&files.key).ok()]
}

fn read(files: &TlsFiles, provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
    let TlsFiles { cert, key } = files;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes(cert)?).collect();
    let chain = chain.map_err(|error| not_pem(cert, &error))?;
    if chain.is_empty() {
        return Err(TlsError::NoCertificate { path: cert.clone() });
    }
    let private = private_key(key)?;
    CertifiedKey::from_der(chain, private, provider).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            TlsError::Mismatch { cert: cert.clone(), key: key.clone() }
        }
        other => {
            TlsError::Unusable { cert: cert.clone(), key: key.clone(), problem: other.to_string() }
        }
    })
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let text = bytes(path)?;
    // "BEGIN ENCRYPTED PRIVATE KEY", or the older "Proc-Type: 4,ENCRYPTED".
    if text.windows(b"ENCRYPTED".len()).any(|window| window == b"ENCRYPTED") {
        return Err(TlsError::EncryptedKey { path: path.to_owned() });
    }
    PrivateKeyDer::from_pem_slice(&text).map_err(|error| match error {
        PemError::NoItemsFound => TlsError::NoKey { path: path.to_owned() },
        other => not_pem(path, &other),
    })
}

fn bytes(path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|source| TlsError::Read { path: path.to_owned(), source })
}

/// Of the error only its kind: its text may show a line of the file.
fn not_pem(path: &Path, error: &PemError) -> TlsError {
    let problem = match error {
        PemError::MissingSectionEnd { .. } => "a section has no END line",
        PemError::IllegalSectionStart { .. } => "a BEGIN line is malformed",
        PemError::Base64Decode(_) => "its base64 is malformed",
        _ => "it is malformed",
    };
    TlsError::NotPem { path: path.to_owned(), problem: problem.to_owned() }
}

#[cfg(test)]
mod tests;
