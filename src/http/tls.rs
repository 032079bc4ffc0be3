//! TLS: the certificate and its key, exchanged when their files change.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::{Error as PemError, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{self, ServerConfig, SupportedProtocolVersion};

use super::watched::{Source, Watched, open_file};
use settings::TlsFiles;

/// Older versions have known weaknesses, and no client in use needs them.
const VERSIONS: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];

/// The protocols that clients may speak within TLS, best first.
const PROTOCOLS: [&[u8]; 2] = [HTTP_2, b"http/1.1"];
/// HTTP/2's name in the handshake.
pub(super) const HTTP_2: &[u8] = b"h2";

/// Why there is no certificate with its key.
#[allow(missing_docs, reason = "each message says it")]
#[derive(Debug, Error)]
pub enum TlsError {
    #[error("cannot read {path}, of --tls-cert or --tls-key")]
    Read { path: PathBuf, source: io::Error },
    #[error("{path} is not a PEM file: {problem}")]
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
    certificate: Arc<Watched<PairFiles>>,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// When one cannot be read or used, or they do not belong together.
    pub(super) fn open(files: &TlsFiles) -> Result<Self, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let pair = PairFiles { files: files.clone(), provider: Arc::clone(&provider) };
        let certificate = Watched::open(pair)?;
        let resolver = Arc::clone(&certificate) as Arc<dyn ResolvesServerCert>;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&VERSIONS)
            .map_err(TlsError::SetUp)?
            .with_no_client_auth()
            .with_cert_resolver(resolver);
        config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)), certificate })
    }

    /// Makes connections secure; each handshake takes the newest certificate.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        self.acceptor.clone()
    }

    /// From now on new connections get the certificate that the files hold.
    ///
    /// # Errors
    /// When the operating system gives no thread.
    pub(super) fn watch_files(&self) -> io::Result<()> {
        self.certificate.watch()
    }
}

/// The certificate's and the key's files.
struct PairFiles {
    files: TlsFiles,
    provider: Arc<CryptoProvider>,
}

impl Source for PairFiles {
    /// The certificate, the key.
    type Content = [Vec<u8>; 2];
    type Value = CertifiedKey;
    type Error = TlsError;

    const NAME: &'static str = "the TLS certificate and its key";

    fn read(&self) -> Result<Self::Content, TlsError> {
        Ok([bytes(&self.files.cert)?, bytes(&self.files.key)?])
    }

    fn parse(&self, [chain, private]: &Self::Content) -> Result<CertifiedKey, TlsError> {
        let TlsFiles { cert, key } = &self.files;
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain).collect();
        let chain = chain.map_err(|error| not_pem(cert, &error))?;
        if chain.is_empty() {
            return Err(TlsError::NoCertificate { path: cert.clone() });
        }
        let private = private_key(key, private)?;
        CertifiedKey::from_der(chain, private, &self.provider).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => {
                TlsError::Mismatch { cert: cert.clone(), key: key.clone() }
            }
            other => {
                let (cert, key, problem) = (cert.clone(), key.clone(), other.to_string());
                TlsError::Unusable { cert, key, problem }
            }
        })
    }

    fn log_change(&self, _: &CertifiedKey) {
        tracing::info!("the TLS certificate was read again; new connections get it");
    }
}

impl ResolvesServerCert for Watched<PairFiles> {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }
}

fn private_key(path: &Path, text: &[u8]) -> Result<PrivateKeyDer<'static>, TlsError> {
    // "BEGIN ENCRYPTED PRIVATE KEY", or the older "Proc-Type: 4,ENCRYPTED".
    if text.windows(b"ENCRYPTED".len()).any(|window| window == b"ENCRYPTED") {
        return Err(TlsError::EncryptedKey { path: path.to_owned() });
    }
    PrivateKeyDer::from_pem_slice(text).map_err(|error| match error {
        PemError::NoItemsFound => TlsError::NoKey { path: path.to_owned() },
        other => not_pem(path, &other),
    })
}

fn bytes(path: &Path) -> Result<Vec<u8>, TlsError> {
    let read = || {
        let mut content = Vec::new();
        open_file(path)?.0.read_to_end(&mut content)?;
        Ok(content)
    };
    read().map_err(|source| TlsError::Read { path: path.to_owned(), source })
}

/// Tells only the kind of the error: its text may show a line of the file.
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
